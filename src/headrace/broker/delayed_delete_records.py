"""A DeleteRecords request that waits until the live followers have deleted the records, too."""

from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.partition import Partition
from headrace.broker.purgatory import DelayedOperation
from headrace.common.errors import KafkaError, RequestTimedOutError, code_of
from headrace.protocol.messages.delete_records import DeleteRecordsPartitionResult

UNKNOWN_OFFSET = -1


class PendingDeletion(NamedTuple):
    """A partition whose followers may still have records below an offset, and its part of the response."""

    partition: Partition
    offset: int
    result: DeleteRecordsPartitionResult


class DelayedDeleteRecords(DelayedOperation):
    """Completes when one of these cases holds for each partition:

    A. this broker no longer leads the partition, or has lost it: NOT_LEADER_OR_FOLLOWER or KAFKA_STORAGE_ERROR
    B. the low watermark, the smallest log start offset of the live replicas, has reached the offset: no error
    C. the request's timeout has passed: REQUEST_TIMED_OUT. The records are deleted all the same.
    """

    def __init__(self, deletions: list[PendingDeletion], timeout_ms: int, on_done: Callable[[], None]):
        super().__init__(timeout_ms)
        self._deletions = deletions
        self._on_done = on_done

    def try_complete(self) -> bool:
        if all(self._is_settled(deletion) for deletion in self._deletions):
            return self.force_complete()
        return False

    @staticmethod
    def _is_settled(deletion: PendingDeletion) -> bool:
        try:
            return deletion.partition.low_watermark() >= deletion.offset
        except KafkaError:
            return True

    def on_complete(self) -> None:
        for partition, offset, result in self._deletions:
            try:
                result.low_watermark = partition.low_watermark()
                result.error_code = 0 if result.low_watermark >= offset else RequestTimedOutError.code
            except KafkaError as error:
                result.low_watermark, result.error_code = UNKNOWN_OFFSET, code_of(error)
        self._on_done()
