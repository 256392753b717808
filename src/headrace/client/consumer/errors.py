"""Errors that name a partition and an offset, so that a program can seek past the trouble."""

from headrace.client.errors import DeserializationError, LogTruncationError
from headrace.client.types import OffsetAndMetadata
from headrace.common.errors import CorruptRecordError, KafkaError, OffsetOutOfRangeError
from headrace.common.types import TopicPartition

__all__ = [
    "CorruptBatchError",
    "OffsetsLostError",
    "RecordDeserializationError",
    "RecordTooLargeError",
    "TruncatedError",
]


class _Located(KafkaError):
    """Keeps what it is made of, so that it can be pickled, and reach another process."""

    _parts: tuple[object, ...]

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), self._parts


class RecordDeserializationError(_Located, DeserializationError):
    """A deserializer failed; the cause is chained. The position stays at the record: seek past it to go on."""

    def __init__(self, tp: TopicPartition, offset: int, field: str):
        super().__init__(f"the {field} of {tp} at offset {offset} could not be deserialized; to go on, seek past it")
        self._parts = tp, offset, field
        self.topic_partition = tp
        self.offset = offset
        self.field = field


class CorruptBatchError(_Located, CorruptRecordError):
    """Bytes came that are no valid batch. The position stays there: the next poll fetches it again."""

    def __init__(self, tp: TopicPartition, offset: int, reason: object):
        super().__init__(f"what {tp} has at offset {offset} is corrupt: {reason}")
        self._parts = tp, offset, str(reason)
        self.topic_partition = tp
        self.offset = offset


class RecordTooLargeError(_Located):
    """A batch does not fit into a reply: `max.partition.fetch.bytes` is too small for what old brokers do."""

    def __init__(self, tp: TopicPartition, offset: int, limit: int):
        super().__init__(
            f"the batch of {tp} at offset {offset} does not fit into {limit} bytes; raise max.partition.fetch.bytes"
        )
        self._parts = tp, offset, limit
        self.topic_partition = tp
        self.offset = offset


class OffsetsLostError(_Located, OffsetOutOfRangeError):
    """The log does not have the offset, and `auto.offset.reset` is none."""

    def __init__(self, tp: TopicPartition, offset: int):
        super().__init__(f"{tp} has no offset {offset} (any more), and auto.offset.reset is none: seek to one it has")
        self._parts = tp, offset
        self.topic_partition = tp
        self.offset = offset
        self.offsets = {tp: offset}


class TruncatedError(_Located, LogTruncationError):
    """See LogTruncationError. `divergent` is where the log went another way, None if that is not known."""

    def __init__(self, tp: TopicPartition, offset: int, divergent: OffsetAndMetadata | None):
        where = "" if divergent is None else f", it differs from offset {divergent.offset} on"
        super().__init__(
            f"{tp} was read up to offset {offset}, but its new leader does not have all of that{where}; "
            "auto.offset.reset is none: seek to where reading should go on"
        )
        self._parts = tp, offset, divergent
        self.topic_partition = tp
        self.offset = offset
        self.divergent = divergent
