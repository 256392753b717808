"""Types of the producer's `send` arguments."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

from headrace.client.types import RecordMetadata
from headrace.common.errors import KafkaError

__all__ = ["ArrowData", "Headers", "OnDelivery"]


class _ExportsStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class _ExportsArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...


ArrowData: TypeAlias = _ExportsStream | _ExportsArray
"""The data of `send_arrow`: a pyarrow Table or RecordBatch, a data frame of Polars or pandas, a DuckDB relation, ..."""


Headers: TypeAlias = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""Record headers: pairs of name and value, or a mapping if all names are unique."""

OnDelivery: TypeAlias = Callable[[KafkaError | None, RecordMetadata], Any]
"""`on_delivery(error, metadata)`: `error` is None if the record was acknowledged. Otherwise `metadata.offset` is -1."""
