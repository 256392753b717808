"""Consumer errors that name a partition and an offset, so that a program can seek past the problem."""

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
    """An error that can be pickled: it keeps its constructor arguments."""

    _parts: tuple[object, ...]

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), self._parts


class RecordDeserializationError(_Located, DeserializationError):
    """A deserializer failed. The cause is chained. The position stays at the record: seek past it to continue."""

    def __init__(self, tp: TopicPartition, offset: int, field: str):
        super().__init__(
            f"Error deserializing {field} for partition {tp} at offset {offset}. If needed, please seek past "
            "the record to continue consumption."
        )
        self._parts = tp, offset, field
        self.topic_partition = tp
        self.offset = offset
        self.field = field


class CorruptBatchError(_Located, CorruptRecordError):
    """Fetched bytes are not a valid batch. The position does not move: the next poll fetches the batch again."""

    def __init__(self, tp: TopicPartition, offset: int, reason: object):
        super().__init__(f"Record batch for partition {tp} at offset {offset} is invalid, cause: {reason}")
        self._parts = tp, offset, str(reason)
        self.topic_partition = tp
        self.offset = offset


class RecordTooLargeError(_Located):
    """A batch does not fit into a response of an old broker: `max.partition.fetch.bytes` is too small."""

    def __init__(self, tp: TopicPartition, offset: int, limit: int):
        super().__init__(
            f"The record batch of partition {tp} at offset {offset} is larger than the fetch size {limit}: increase "
            "max.partition.fetch.bytes"
        )
        self._parts = tp, offset, limit
        self.topic_partition = tp
        self.offset = offset


class OffsetsLostError(_Located, OffsetOutOfRangeError):
    """The fetch offset is out of range and `auto.offset.reset` is none."""

    def __init__(self, tp: TopicPartition, offset: int):
        super().__init__(
            f"Fetch position {offset} is out of range for partition {tp}, and no reset policy is configured: seek to "
            "an existing offset, or set auto.offset.reset"
        )
        self._parts = tp, offset
        self.topic_partition = tp
        self.offset = offset
        self.offsets = {tp: offset}


class TruncatedError(_Located, LogTruncationError):
    """The log was truncated below the position. `divergent` is the first offset that differs, None if unknown."""

    def __init__(self, tp: TopicPartition, offset: int, divergent: OffsetAndMetadata | None):
        details = "" if divergent is None else f"; the first diverging offset is {divergent.offset}"
        super().__init__(
            f"Detected log truncation for partition {tp}: the new leader does not have all records up to fetch "
            f"position {offset}{details}. No reset policy is configured: seek to the offset to continue at"
        )
        self._parts = tp, offset, divergent
        self.topic_partition = tp
        self.offset = offset
        self.divergent = divergent
