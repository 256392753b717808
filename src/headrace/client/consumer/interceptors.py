"""The consumer's interceptors: they see every record before the application does, and every commit."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from headrace.client.types import OffsetAndMetadata
from headrace.common.types import TopicPartition
from headrace.records import ConsumerRecord

__all__ = ["ConsumerInterceptor", "RecordsByPartition"]

RecordsByPartition: TypeAlias = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]


class ConsumerInterceptor(Protocol):
    """The methods of a consumer interceptor. Subclass it to implement only one of them."""

    def on_consume(self, records: RecordsByPartition, /) -> RecordsByPartition | None:  # noqa: ARG002
        """Called with the records of a poll before the application receives them. Returns the records to pass on, or
        None to pass them on unchanged. An exception is logged and the records are passed on unchanged."""
        return None

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> object:  # noqa: ARG002
        """Called by the next poll after offsets were committed."""
        return None
