"""Headrace: Apache Kafka's system in Python.

The names below are imported when they are first used, so that `import headrace` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin
    from headrace.client.consumer.consumer import Consumer
    from headrace.client.consumer.deserializers import (
        DoubleDeserializer,
        IntegerDeserializer,
        JsonDeserializer,
        LongDeserializer,
        StringDeserializer,
    )
    from headrace.client.consumer.subscription_state import ConsumerRebalanceListener
    from headrace.client.group.assignors.assignor import Assignor
    from headrace.client.producer.producer import Producer
    from headrace.client.producer.serializers import (
        DoubleSerializer,
        IntegerSerializer,
        JsonSerializer,
        LongSerializer,
        StringSerializer,
    )
    from headrace.client.types import (
        ConsumerGroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        TopicPartition,
    )
    from headrace.records import ConsumerRecord

__version__ = "0.2.0"

__all__ = [
    "Admin",
    "Assignor",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "DoubleDeserializer",
    "DoubleSerializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "JsonDeserializer",
    "JsonSerializer",
    "LongDeserializer",
    "LongSerializer",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "RecordMetadata",
    "StringDeserializer",
    "StringSerializer",
    "TopicPartition",
]

_HOMES = {
    "Admin": "headrace.client.admin.admin",
    "Assignor": "headrace.client.group.assignors.assignor",
    "Consumer": "headrace.client.consumer.consumer",
    "ConsumerGroupMetadata": "headrace.client.types",
    "ConsumerRebalanceListener": "headrace.client.consumer.subscription_state",
    "ConsumerRecord": "headrace.records",
    "DoubleDeserializer": "headrace.client.consumer.deserializers",
    "DoubleSerializer": "headrace.client.producer.serializers",
    "IntegerDeserializer": "headrace.client.consumer.deserializers",
    "IntegerSerializer": "headrace.client.producer.serializers",
    "JsonDeserializer": "headrace.client.consumer.deserializers",
    "JsonSerializer": "headrace.client.producer.serializers",
    "LongDeserializer": "headrace.client.consumer.deserializers",
    "LongSerializer": "headrace.client.producer.serializers",
    "OffsetAndMetadata": "headrace.client.types",
    "OffsetAndTimestamp": "headrace.client.types",
    "Producer": "headrace.client.producer.producer",
    "RecordMetadata": "headrace.client.types",
    "StringDeserializer": "headrace.client.consumer.deserializers",
    "StringSerializer": "headrace.client.producer.serializers",
    "TopicPartition": "headrace.client.types",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
