"""The clients' errors that have no protocol code, with kafka-python's names, and the classification of errors.

All are KafkaErrors, so `except KafkaError` catches every error of a client. Applications import from `headrace.errors`.
"""

from headrace.common.errors import (
    BrokerNotAvailableError,
    BrokerResponseError,
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    InvalidMetadataError,
    InvalidTopicError,
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
from headrace.net.errors import (
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    NodeNotReadyError,
    SslAuthenticationError,
    UnknownBrokerIdError,
)

__all__ = [
    "Cancelled",
    "CommitFailedError",
    "CorrelationIdError",
    "DeserializationError",
    "IllegalArgumentError",
    "IllegalStateError",
    "IncompatibleBrokerVersion",
    "InvalidReceiveError",
    "InvalidTopicNameError",
    "KafkaConnectionError",
    "KafkaProtocolError",
    "KafkaTimeoutError",
    "LogTruncationError",
    "MetadataEmptyBrokerList",
    "NoBrokersAvailable",
    "NoError",
    "NoOffsetForPartitionError",
    "NodeNotReadyError",
    "NotAssignedError",
    "QuotaViolationError",
    "SerializationError",
    "SslAuthenticationError",
    "StaleMetadata",
    "TooManyInFlightRequests",
    "TransactionAbortedError",
    "UnknownBrokerIdError",
    "UnrecognizedBrokerVersion",
    "UnsupportedCodecError",
    "WakeupError",
    "check",
    "error_for",
    "is_stale_metadata",
]


class KafkaTimeoutError(RetriableError, TimeoutError):
    """The operation did not complete in time."""


class NoBrokersAvailable(KafkaConnectionError):
    """None of the bootstrap servers is reachable."""


class IllegalStateError(KafkaError):
    """The call is invalid in the client's current state, such as poll() after close()."""


class NotAssignedError(IllegalStateError, ValueError):
    """The partition is not assigned to this consumer. Also a ValueError, which kafka-python raises in seeks."""


class IllegalArgumentError(KafkaError, ValueError):
    """An argument is invalid. The message names it and the expected value."""


class InvalidTopicNameError(InvalidTopicError, ValueError):
    """A topic cannot have this name. Also a ValueError, which kafka-python raises."""


class CommitFailedError(KafkaError):
    """The offsets were not committed: the group has rebalanced and assigned the partitions to other members."""


class NoOffsetForPartitionError(KafkaError):
    """The partition has no committed offset, and `auto.offset.reset` is none."""


class LogTruncationError(KafkaError):
    """Consumed records are no longer in the log: a new leader did not have them."""


class TransactionAbortedError(KafkaError):
    """The record was not sent: its transaction was aborted."""


class SerializationError(KafkaError):
    """A serializer failed on a key or a value. `__cause__` is its exception."""


class DeserializationError(KafkaError):
    """A deserializer failed on a key or a value. `__cause__` is its exception."""


class WakeupError(KafkaError):
    """`wakeup()` was called while the consumer polled."""


# ---- kafka-python's errors that Headrace never raises; they exist so that `except` clauses and imports carry over


class Cancelled(RetriableError):
    """Never raised here: kafka-python's internal error of a cancelled request."""


class KafkaProtocolError(KafkaError):
    """Never raised here: an invalid response closes the connection and is a KafkaConnectionError."""


class CorrelationIdError(RetriableError, KafkaProtocolError):
    """Never raised here: see KafkaProtocolError."""


class InvalidReceiveError(KafkaProtocolError):
    """Never raised here: see KafkaProtocolError."""


class MetadataEmptyBrokerList(RetriableError):
    """Never raised here: metadata without brokers is requested again."""


class NoError(BrokerResponseError):
    """Never raised here: kafka-python's class of the code 0."""

    errno, message, description = 0, "NO_ERROR", "No error"


class QuotaViolationError(KafkaError):
    """Never raised here: kafka-python's error of its metrics."""


class StaleMetadata(InvalidMetadataError):
    """Never raised here: stale metadata is requested again."""


class TooManyInFlightRequests(RetriableError):
    """Never raised here: requests wait for their turn."""


class UnrecognizedBrokerVersion(KafkaError):
    """Never raised here: clients negotiate the version of each API."""


class UnsupportedCodecError(KafkaError):
    """Never raised here: all codecs are installed. UnsupportedCompressionTypeError is the broker's error."""


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
"""Errors that indicate stale metadata."""


def is_stale_metadata(error: BaseException | type[BaseException] | int) -> bool:
    """Returns True if an error (or its class, or a protocol code) indicates that the client's metadata is stale."""
    if isinstance(error, int):
        error = for_code(error)
    if isinstance(error, type):
        return issubclass(error, _STALE_METADATA)
    return isinstance(error, _STALE_METADATA)


def error_for(code: int, message: str | None = None, about: str | None = None) -> KafkaError | None:
    """Returns the error for a code in a response, or None for code 0. `about` names the topic, group or partition in
    errors for which the broker has no message."""
    if code == 0:
        return None
    cls = for_code(code)
    if message:
        return cls(message)
    doc = (cls.__doc__ or "").split("\n", 1)[0] if cls.code == code else f"unknown error code {code}"
    if about is None:
        return cls(doc)
    return cls(f"{about} does not exist" if cls is UnknownTopicOrPartitionError else f"{about}: {doc}")


def check(code: int, message: str | None = None) -> None:
    """Raises the error for a code in a response, unless it is 0."""
    error = error_for(code, message)
    if error is not None:
        raise error
