"""Common types."""

from typing import NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes that can be read without copying."""


class TopicPartition(NamedTuple):
    """A partition of a topic. As in kafka-python, it is a tuple: `topic, partition = tp`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
