"""Types of the arguments of `send`."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from headrace.client.types import RecordMetadata

__all__ = ["Headers", "OnDelivery"]

Headers: TypeAlias = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""Pairs of a header name and bytes. A mapping if every name is unique."""

OnDelivery: TypeAlias = Callable[[BaseException | None, RecordMetadata], Any]
"""`on_delivery(error, metadata)`: `error` is None for an acknowledged record; otherwise the offset is -1."""
