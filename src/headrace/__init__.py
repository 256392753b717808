"""Headrace: Apache Kafka's system in Python.

The names below are imported on first use, so `import headrace` is nearly free.
"""

from typing import TYPE_CHECKING

from headrace.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin
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
    from headrace.client.group.assignors.assignor import Assignor
    from headrace.client.producer._batch import FutureRecordMetadata
    from headrace.client.producer.interceptors import OutgoingRecord, ProducerInterceptor
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
    from headrace.client.types import (
        ConsumerGroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        TopicPartition,
    )
    from headrace.common.errors import KafkaError
    from headrace.records import ConsumerRecord

__version__ = "0.2.0"

__all__ = [
    "Admin",
    "Assignor",
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
    "IntegerDeserializer",
    "IntegerSerializer",
    "JsonDeserializer",
    "JsonSerializer",
    "KafkaError",
    "LongDeserializer",
    "LongSerializer",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OutgoingRecord",
    "Producer",
    "ProducerInterceptor",
    "RecordMetadata",
    "Serializer",
    "SerializerWithHeaders",
    "StringDeserializer",
    "StringSerializer",
    "TopicPartition",
]

_MODULES = {
    "Admin": "headrace.client.admin.admin",
    "Assignor": "headrace.client.group.assignors.assignor",
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
    "IntegerDeserializer": "headrace.client.consumer.deserializers",
    "IntegerSerializer": "headrace.client.producer.serializers",
    "JsonDeserializer": "headrace.client.consumer.deserializers",
    "JsonSerializer": "headrace.client.producer.serializers",
    "KafkaError": "headrace.common.errors",
    "LongDeserializer": "headrace.client.consumer.deserializers",
    "LongSerializer": "headrace.client.producer.serializers",
    "OffsetAndMetadata": "headrace.client.types",
    "OffsetAndTimestamp": "headrace.client.types",
    "OutgoingRecord": "headrace.client.producer.interceptors",
    "Producer": "headrace.client.producer.producer",
    "ProducerInterceptor": "headrace.client.producer.interceptors",
    "RecordMetadata": "headrace.client.types",
    "Serializer": "headrace.client.producer.serializers",
    "SerializerWithHeaders": "headrace.client.producer.serializers",
    "StringDeserializer": "headrace.client.consumer.deserializers",
    "StringSerializer": "headrace.client.producer.serializers",
    "TopicPartition": "headrace.client.types",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
