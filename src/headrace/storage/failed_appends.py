"""Remembers the batches of idempotent producers that could not be written, because the disk was full or failed.

The producer has sent more batches before it learns of the failure. They would get OUT_OF_ORDER_SEQUENCE_NUMBER, or, if
the log does not know the producer yet, be accepted before the failed one, whose retry is then rejected. So they get the
storage error, too, until the producer has sent the failed batch again and it was written.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.common.errors import KafkaStorageError
from headrace.records import RecordBatch

_MAX_PRODUCERS = 10_000
_LAST_SEQUENCE = 2**31 - 1


class _FailedBatch(NamedTuple):
    producer_epoch: int
    base_sequence: int
    reason: str


class FailedAppends:
    """The first batch of each producer that could not be written. Owned by the log."""

    def __init__(self) -> None:
        self._batches: dict[int, _FailedBatch] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batches: Iterable[RecordBatch], reason: BaseException) -> None:
        """Notes that these batches could not be written."""
        for batch in batches:
            if batch.producer_id >= 0 and batch.base_sequence >= 0:
                self._batches[batch.producer_id] = _FailedBatch(batch.producer_epoch, batch.base_sequence, str(reason))
                if len(self._batches) > _MAX_PRODUCERS:
                    del self._batches[next(iter(self._batches))]

    def check(self, batch: RecordBatch) -> None:
        """Raises KafkaStorageError if an earlier batch of this producer could not be written and has to come first."""
        failed = self._batches.get(batch.producer_id)
        if (
            failed is not None
            and failed.producer_epoch == batch.producer_epoch
            and _is_after(batch.base_sequence, failed.base_sequence)
        ):
            raise KafkaStorageError(
                f"Producer {batch.producer_id}: sequence number {batch.base_sequence} cannot be appended before "
                f"sequence number {failed.base_sequence}, which failed: {failed.reason}"
            )

    def appended(self, batch: RecordBatch) -> None:
        """Notes that a batch of the producer was written."""
        self._batches.pop(batch.producer_id, None)


def _is_after(sequence: int, other: int) -> bool:
    """Compares two sequence numbers, which wrap from 2^31 - 1 to 0."""
    return 0 < (sequence - other) & _LAST_SEQUENCE <= _LAST_SEQUENCE // 2
