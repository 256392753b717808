"""Types of the producer's `send` arguments."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from headrace.client.types import RecordMetadata
from headrace.common.errors import KafkaError

__all__ = ["Headers", "OnDelivery"]

Headers: TypeAlias = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""Record headers: pairs of name and value, or a mapping if all names are unique."""

OnDelivery: TypeAlias = Callable[[KafkaError | None, RecordMetadata], Any]
"""`on_delivery(error, metadata)`: `error` is None if the record was acknowledged. Otherwise `metadata.offset` is -1."""
