"""The values that pass between a coordinator's operations and its runtime."""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from headrace.common.errors import KafkaError

T = TypeVar("T")


class CoordinatorRecord(NamedTuple):
    """A record of an internal topic. A record without a value is a tombstone: it deletes the entry of its key."""

    key: bytes
    value: bytes | None


class ProducerInfo(NamedTuple):
    """The producer id and epoch of a transactional batch."""

    producer_id: int
    producer_epoch: int


CommitCallback = Callable[[KafkaError | None], None]
"""Called once when an append is committed (None), or with the error if it failed."""


class CoordinatorResult(NamedTuple, Generic[T]):
    """The result of an operation: records to append, and the response to send when they are committed."""

    records: Sequence[CoordinatorRecord]
    response: T
    on_completion: CommitCallback | None = None
    """Called before the response is sent. If the append fails or the shard is unloaded, it receives the error."""
    producer: ProducerInfo | None = None
    """Set if the records belong to a transaction and take effect only when that transaction commits."""
    undo: Callable[[], None] | None = None
    """Called before `on_completion` if nothing was appended. Reverts the changes that the operation made in advance.
    Appended records are never undone, even if their commit is not confirmed in time."""


class CoordinatorResponse(Generic[T]):
    """The response of a completed operation, or its error."""

    __slots__ = ("_value", "error")

    def __init__(self, value: T | None = None, error: KafkaError | None = None):
        self._value = value
        self.error = error

    def result(self) -> T:
        """Returns the response, or raises the error."""
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]
