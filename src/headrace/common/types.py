"""Names for types that are used everywhere."""

from typing import NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes that may be read without copying."""


class TopicPartition(NamedTuple):
    """A partition of a topic. A tuple, as kafka-python's: `topic, partition = tp`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
