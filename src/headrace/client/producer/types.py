"""Names for what `send` takes."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from headrace.client.types import RecordMetadata

__all__ = ["Headers", "OnDelivery"]

Headers: TypeAlias = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""Pairs of a name and bytes; a mapping where no name comes twice."""

OnDelivery: TypeAlias = Callable[[BaseException | None, RecordMetadata], Any]
"""`on_delivery(error, metadata)`: error None for a record that was acknowledged; the offset is -1 otherwise."""
