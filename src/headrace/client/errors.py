"""Errors of the clients that the protocol has no code for, named as kafka-python names them; and what errors mean.

All are KafkaErrors, so `except KafkaError` gets everything that a client raises. Users import from `headrace.errors`.
"""

from headrace.common.errors import (
    BrokerNotAvailableError,
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    NetworkExceptionError,
    NotLeaderForPartitionError,
    OffsetNotAvailableError,
    ReplicaNotAvailableError,
    RetriableError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from headrace.net.errors import IncompatibleBrokerVersion, KafkaConnectionError, NodeNotReadyError, UnknownBrokerIdError

__all__ = [
    "CommitFailedError",
    "DeserializationError",
    "IllegalArgumentError",
    "IllegalStateError",
    "IncompatibleBrokerVersion",
    "KafkaConnectionError",
    "KafkaTimeoutError",
    "LogTruncationError",
    "NoBrokersAvailable",
    "NoOffsetForPartitionError",
    "NodeNotReadyError",
    "NotAssignedError",
    "SerializationError",
    "TransactionAbortedError",
    "UnknownBrokerIdError",
    "WakeupError",
    "check",
    "error_for",
    "is_stale_metadata",
]


class KafkaTimeoutError(RetriableError, TimeoutError):
    """What was waited for did not happen in the time that was given."""


class NoBrokersAvailable(KafkaConnectionError):
    """None of the bootstrap servers could be reached."""


class IllegalStateError(KafkaError):
    """A call that does not fit what the client is doing: poll() after close(), say."""


class NotAssignedError(IllegalStateError, ValueError):
    """A partition that this consumer does not have (now). kafka-python has ValueError for it in seeks."""


class IllegalArgumentError(KafkaError, ValueError):
    """An argument that cannot be used; the message names it and what is expected."""


class CommitFailedError(KafkaError):
    """The offsets were not committed: the group has gone on without this member, and others have its partitions."""


class NoOffsetForPartitionError(KafkaError):
    """There is no committed offset for the partition, and `auto.offset.reset` is none."""


class LogTruncationError(KafkaError):
    """Records that were consumed are not in the log any more: a new leader did not have them."""


class TransactionAbortedError(KafkaError):
    """The record was not sent: its transaction was aborted."""


class SerializationError(KafkaError):
    """A serializer failed on a key or a value; the cause is chained."""


class DeserializationError(KafkaError):
    """A deserializer failed on a key or a value; the cause is chained."""


class WakeupError(KafkaError):
    """`wakeup()` was called while the consumer polled."""


_STALE_METADATA = (
    UnknownTopicOrPartitionError,
    LeaderNotAvailableError,
    NotLeaderForPartitionError,
    ReplicaNotAvailableError,
    BrokerNotAvailableError,
    NetworkExceptionError,
    KafkaConnectionError,
    FencedLeaderEpochError,
    UnknownLeaderEpochError,
    KafkaStorageError,
    ListenerNotFoundError,
    OffsetNotAvailableError,
    UnknownTopicIdError,
    InconsistentTopicIdError,
)
"""Errors after which new metadata may tell another broker to ask."""


def is_stale_metadata(error: BaseException | type[BaseException] | int) -> bool:
    """Whether an error (or its class, or a protocol code) says that the client's view of the cluster may be old."""
    if isinstance(error, int):
        error = for_code(error)
    if isinstance(error, type):
        return issubclass(error, _STALE_METADATA)
    return isinstance(error, _STALE_METADATA)


def error_for(code: int, message: str | None = None) -> KafkaError | None:
    """The error for a code in a reply, or None if there is none (0)."""
    if code == 0:
        return None
    cls = for_code(code)
    if message:
        return cls(message)
    doc = (cls.__doc__ or "").split("\n", 1)[0]
    return cls(doc if cls.code == code else f"error code {code}, which is not known here")


def check(code: int, message: str | None = None) -> None:
    """Raises the error for a code in a reply, if it is one."""
    error = error_for(code, message)
    if error is not None:
        raise error
