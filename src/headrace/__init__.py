"""Headrace: Apache Kafka's system in Python.

The names below are imported on first use, so `import headrace` is nearly free.
"""

from typing import TYPE_CHECKING

from headrace.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin
    from headrace.client.consumer.commit_future import CommitFuture
    from headrace.client.consumer.consumer import Consumer
    from headrace.client.consumer.deserializers import (
        Deserializer,
        DeserializerWithHeaders,
        DoubleDeserializer,
        IntegerDeserializer,
        JsonDeserializer,
        LongDeserializer,
        StringDeserializer,
    )
    from headrace.client.consumer.interceptors import ConsumerInterceptor
    from headrace.client.consumer.subscription_state import ConsumerRebalanceListener
    from headrace.client.events import LogEvent, ThrottleEvent
    from headrace.client.group.assignors.assignor import Assignor
    from headrace.client.metric_names import KafkaMetric, MetricName
    from headrace.client.producer._batch import FutureRecordMetadata
    from headrace.client.producer.arrow import ArrowFuture, ArrowMetadata, OffsetRange
    from headrace.client.producer.interceptors import OutgoingRecord, ProducerInterceptor
    from headrace.client.producer.partitioners import Partitioner
    from headrace.client.producer.producer import Producer
    from headrace.client.producer.serializers import (
        DoubleSerializer,
        IntegerSerializer,
        JsonSerializer,
        LongSerializer,
        Serializer,
        SerializerWithHeaders,
        StringSerializer,
    )
    from headrace.client.producer.types import Headers, OnDelivery
    from headrace.client.types import (
        ConsumerGroupMetadata,
        MemberState,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        OnCommit,
        RecordMetadata,
        TopicPartition,
        TopicPartitionReplica,
    )
    from headrace.common.errors import KafkaError
    from headrace.records import ConsumerRecord

__version__ = "0.2.0"

__all__ = [
    "Admin",
    "ArrowFuture",
    "ArrowMetadata",
    "Assignor",
    "CommitFuture",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerInterceptor",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "Deserializer",
    "DeserializerWithHeaders",
    "DoubleDeserializer",
    "DoubleSerializer",
    "FutureRecordMetadata",
    "Headers",
    "IntegerDeserializer",
    "IntegerSerializer",
    "JsonDeserializer",
    "JsonSerializer",
    "KafkaError",
    "KafkaMetric",
    "LogEvent",
    "LongDeserializer",
    "LongSerializer",
    "MemberState",
    "MetricName",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetRange",
    "OnCommit",
    "OnDelivery",
    "OutgoingRecord",
    "Partitioner",
    "Producer",
    "ProducerInterceptor",
    "RecordMetadata",
    "Serializer",
    "SerializerWithHeaders",
    "StringDeserializer",
    "StringSerializer",
    "ThrottleEvent",
    "TopicPartition",
    "TopicPartitionReplica",
]

_MODULES = {
    "Admin": "headrace.client.admin.admin",
    "ArrowFuture": "headrace.client.producer.arrow",
    "ArrowMetadata": "headrace.client.producer.arrow",
    "Assignor": "headrace.client.group.assignors.assignor",
    "CommitFuture": "headrace.client.consumer.commit_future",
    "Consumer": "headrace.client.consumer.consumer",
    "ConsumerGroupMetadata": "headrace.client.types",
    "ConsumerInterceptor": "headrace.client.consumer.interceptors",
    "ConsumerRebalanceListener": "headrace.client.consumer.subscription_state",
    "ConsumerRecord": "headrace.records",
    "Deserializer": "headrace.client.consumer.deserializers",
    "DeserializerWithHeaders": "headrace.client.consumer.deserializers",
    "DoubleDeserializer": "headrace.client.consumer.deserializers",
    "DoubleSerializer": "headrace.client.producer.serializers",
    "FutureRecordMetadata": "headrace.client.producer._batch",
    "Headers": "headrace.client.producer.types",
    "IntegerDeserializer": "headrace.client.consumer.deserializers",
    "IntegerSerializer": "headrace.client.producer.serializers",
    "JsonDeserializer": "headrace.client.consumer.deserializers",
    "JsonSerializer": "headrace.client.producer.serializers",
    "KafkaError": "headrace.common.errors",
    "KafkaMetric": "headrace.client.metric_names",
    "LogEvent": "headrace.client.events",
    "LongDeserializer": "headrace.client.consumer.deserializers",
    "LongSerializer": "headrace.client.producer.serializers",
    "MemberState": "headrace.client.types",
    "MetricName": "headrace.client.metric_names",
    "OffsetAndMetadata": "headrace.client.types",
    "OffsetAndTimestamp": "headrace.client.types",
    "OffsetRange": "headrace.client.producer.arrow",
    "OnCommit": "headrace.client.types",
    "OnDelivery": "headrace.client.producer.types",
    "OutgoingRecord": "headrace.client.producer.interceptors",
    "Partitioner": "headrace.client.producer.partitioners",
    "Producer": "headrace.client.producer.producer",
    "ProducerInterceptor": "headrace.client.producer.interceptors",
    "RecordMetadata": "headrace.client.types",
    "Serializer": "headrace.client.producer.serializers",
    "SerializerWithHeaders": "headrace.client.producer.serializers",
    "StringDeserializer": "headrace.client.consumer.deserializers",
    "StringSerializer": "headrace.client.producer.serializers",
    "ThrottleEvent": "headrace.client.events",
    "TopicPartition": "headrace.client.types",
    "TopicPartitionReplica": "headrace.client.types",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
