"""Names for types that are used everywhere."""

from dataclasses import dataclass
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes that may be read without copying."""


@dataclass(frozen=True, order=True, slots=True)
class TopicPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
