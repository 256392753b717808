"""The one table of errors.

Each class is one of Kafka's errors: `code` and `name` are the protocol's, `retriable` says whether the same request may
succeed when it is sent again. Class names follow kafka-python, so that `except` clauses carry over.
"""

from typing import ClassVar


class HeadraceError(Exception):
    """The root of everything Headrace raises on purpose."""


class ConfigError(HeadraceError, ValueError):
    """A configuration key or value that cannot be used; the message names the key, the value and what is expected."""


class KafkaError(HeadraceError):
    """An error that the Kafka protocol has a code for."""

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if "code" in vars(cls):
            ERRORS_BY_CODE[cls.code] = cls


ERRORS_BY_CODE: dict[int, type[KafkaError]] = {-1: KafkaError}


class OffsetOutOfRangeError(KafkaError):
    """The offset asked for is below the log's start or beyond its end."""

    code, name = 1, "OFFSET_OUT_OF_RANGE"


class CorruptRecordError(KafkaError):
    """Bytes that are not a valid record batch. `position` is the byte in the buffer where that was seen."""

    code, name, retriable = 2, "CORRUPT_MESSAGE", True

    def __init__(self, message: str, position: int | None = None):
        super().__init__(message)
        self.position = position


class InflatedTooLargeError(CorruptRecordError):
    """A compressed batch that inflates past the limit given: a bomb, or a limit set too low."""


class MessageSizeTooLargeError(KafkaError):
    """A batch larger than `max.message.bytes`."""

    code, name = 10, "MESSAGE_TOO_LARGE"


class InvalidTopicError(KafkaError):
    """A topic's name that Kafka does not allow."""

    code, name = 17, "INVALID_TOPIC_EXCEPTION"


class RecordListTooLargeError(KafkaError):
    """More bytes in one append than a segment may hold."""

    code, name = 18, "RECORD_LIST_TOO_LARGE"


class InvalidTimestampError(KafkaError):
    """A record timestamp outside the bounds that the topic allows."""

    code, name = 32, "INVALID_TIMESTAMP"


class UnsupportedForMessageFormatError(KafkaError):
    """Something that batches of magic 0 and 1 cannot carry."""

    code, name = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class OutOfOrderSequenceNumberError(KafkaError):
    """A producer's batch does not follow the last one that the log has of it."""

    code, name = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER"


class InvalidProducerEpochError(KafkaError):
    """A batch of a producer epoch older than the one the log has seen."""

    code, name = 47, "INVALID_PRODUCER_EPOCH"


class InvalidTxnStateError(KafkaError):
    """A write that does not fit the state of its transaction."""

    code, name = 48, "INVALID_TXN_STATE"


class TransactionCoordinatorFencedError(KafkaError):
    """A transaction marker from a coordinator that has been replaced."""

    code, name = 52, "TRANSACTION_COORDINATOR_FENCED"


class KafkaStorageError(KafkaError):
    """Disk trouble: full, failing, or a log directory that is offline."""

    code, name, retriable = 56, "KAFKA_STORAGE_ERROR", True


class UnsupportedCompressionTypeError(KafkaError):
    """A compression codec that the format does not define."""

    code, name = 76, "UNSUPPORTED_COMPRESSION_TYPE"


class InvalidRecordError(KafkaError):
    """A well-formed batch whose content the log may not take."""

    code, name = 87, "INVALID_RECORD"
