"""The producer state of a log: sequence checks, duplicates, and open transactions.

For each producer id the log keeps:

- the producer epoch
- the last five batches, to recognize a retry of any batch that may still be in flight
- the first offset of its open transaction

The log's batches determine the state: appending and recovery call the same `apply`. A snapshot only saves time.

An append checks epoch and sequence number of a batch:

    batch epoch < known epoch                    fenced: INVALID_PRODUCER_EPOCH
    batch epoch > known epoch                    must start with sequence number 0
    same epoch, equal to a cached batch          duplicate: the response has the offset of the first append
    same epoch, sequence number is the next one  accepted (0 follows 2^31 - 1)
    same epoch, anything else                    OUT_OF_ORDER_SEQUENCE_NUMBER
    unknown producer                             accepted: its state may have expired or been deleted with old segments
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from headrace.common.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from headrace.records import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    ControlType,
    EndTransactionMarker,
    RecordBatch,
    read_marker,
)

BATCHES_KEPT = 5
"""A producer has at most this many requests in flight, so it cannot retry an older batch."""

_SEQUENCE_END = 2**31


class AppendOrigin(Enum):
    """The source of an append: a producer, a coordinator of this broker, or the leader's log.

    Sequence numbers are checked for clients only, the producer epoch also for coordinators. The leader has already
    checked the batches that a follower replicates.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """The metadata of an appended batch, to recognize a retry of it."""

    base_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerStateEntry:
    """The state of one producer."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    transaction_first_offset: int | None = None
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, batch: RecordBatch) -> BatchMetadata | None:
        if batch.producer_epoch != self.epoch:
            return None
        base_sequence, last_sequence = batch.base_sequence, batch.last_sequence
        for metadata in self.batches:
            if metadata.base_sequence == base_sequence and metadata.last_sequence == last_sequence:
                return metadata
        return None


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction whose marker was appended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerStateManager:
    """The state of all producers of a log. Owned by the log."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerStateEntry] = {}
        self.end_offset = 0
        """The state includes all batches below this offset."""
        self._open: dict[int, int] = {}
        """First offset of each open transaction → producer id, ordered by offset."""
        self._unreplicated: dict[int, int] = {}
        """First offset → last offset of transactions that ended above the high watermark, ordered by last offset."""

    def find_duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        entry = self.entries.get(batch.producer_id)
        return entry.duplicate_of(batch) if entry is not None else None

    def check(self, batch: RecordBatch, origin: AppendOrigin, marker: EndTransactionMarker | None = None) -> None:
        """Raises an error if epoch, sequence number or transaction of the batch are wrong. Changes nothing."""
        entry = self.entries.get(batch.producer_id)
        if entry is None or origin is AppendOrigin.REPLICATION:
            return
        epoch = batch.producer_epoch
        if epoch < entry.epoch:
            raise InvalidProducerEpochError(
                f"Epoch {epoch} of producer {batch.producer_id} is smaller than the last seen epoch {entry.epoch}"
            )
        if marker is not None:
            if marker.coordinator_epoch < entry.coordinator_epoch:
                raise TransactionCoordinatorFencedError(
                    f"Transaction marker for producer {batch.producer_id} has coordinator epoch "
                    f"{marker.coordinator_epoch}, which is smaller than the last seen epoch {entry.coordinator_epoch}"
                )
            return
        if origin is AppendOrigin.CLIENT:
            self._check_sequence(batch, entry)
        if entry.transaction_first_offset is not None and not batch.is_transactional:
            raise InvalidTxnStateError(
                f"Producer {batch.producer_id} sent a non-transactional batch while it has an ongoing transaction that "
                f"started at offset {entry.transaction_first_offset}"
            )

    @staticmethod
    def _check_sequence(batch: RecordBatch, entry: ProducerStateEntry) -> None:
        sequence = batch.base_sequence
        if batch.producer_epoch != entry.epoch:
            if sequence != 0 and entry.epoch != NO_PRODUCER_EPOCH:
                raise OutOfOrderSequenceNumberError(
                    f"Invalid sequence number for new epoch {batch.producer_epoch} of producer {batch.producer_id}: "
                    f"{sequence} (expected 0)"
                )
            return
        expected = (entry.last_sequence + 1) % _SEQUENCE_END
        if sequence != expected and entry.epoch != NO_PRODUCER_EPOCH:
            raise OutOfOrderSequenceNumberError(
                f"Out of order sequence number for producer {batch.producer_id}: {sequence} (incoming sequence "
                f"number), {entry.last_sequence} (current end sequence number), {expected} (expected)"
            )

    def apply(self, batch: RecordBatch, marker: EndTransactionMarker | None = None) -> CompletedTransaction | None:
        """Updates the state with a batch that is in the log. Returns the transaction that the batch ends, if any.

        `marker` is the content of a control batch; if it is None, it is read from the batch.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            self.end_offset = batch.next_offset
            return None
        if batch.is_control and marker is None:
            marker = read_marker(batch.records())
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerStateEntry(producer_id)
        completed = None
        if batch.is_control:
            if marker is not None:
                completed = self._end_transaction(entry, batch, marker)
        else:
            self._add_batch(entry, batch)
        self.end_offset = batch.next_offset
        return completed

    def _add_batch(self, entry: ProducerStateEntry, batch: RecordBatch) -> None:
        if batch.producer_epoch != entry.epoch:
            entry.epoch = batch.producer_epoch
            entry.batches.clear()
        last_offset = batch.last_offset
        entry.last_timestamp = batch.max_timestamp
        entry.batches.append(
            BatchMetadata(
                batch.base_sequence, batch.last_sequence, last_offset, batch.last_offset_delta, batch.max_timestamp
            )
        )
        if batch.is_transactional and entry.transaction_first_offset is None:
            entry.transaction_first_offset = batch.base_offset
            self._open[batch.base_offset] = entry.producer_id

    def _end_transaction(
        self, entry: ProducerStateEntry, batch: RecordBatch, marker: EndTransactionMarker
    ) -> CompletedTransaction | None:
        if batch.producer_epoch != entry.epoch:
            entry.epoch = batch.producer_epoch
            entry.batches.clear()
        entry.coordinator_epoch = max(entry.coordinator_epoch, marker.coordinator_epoch)
        entry.last_timestamp = batch.max_timestamp
        first_offset, entry.transaction_first_offset = entry.transaction_first_offset, None
        if first_offset is None:
            return None
        self._open.pop(first_offset, None)
        self._unreplicated[first_offset] = batch.last_offset
        return CompletedTransaction(
            entry.producer_id, first_offset, batch.last_offset, marker.control_type is ControlType.ABORT
        )

    def first_unstable_offset(self) -> int | None:
        """Returns the first offset of any transaction that is open or ended above the high watermark."""
        first_open = next(iter(self._open), None)
        if not self._unreplicated:
            return first_open
        first_unreplicated = min(self._unreplicated)
        return first_unreplicated if first_open is None else min(first_open, first_unreplicated)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        for first_offset in [first for first, last in self._unreplicated.items() if last < high_watermark]:
            del self._unreplicated[first_offset]

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """Returns the last stable offset after a transaction has ended: the first offset of the next open one."""
        open_first_offsets = [first for first in self._open if first != completed.first_offset]
        return min(open_first_offsets, default=completed.last_offset + 1)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Removes producers that are idle for `expiration_ms` and have no open transaction. Returns their ids."""
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.transaction_first_offset is None and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return expired

    def reset(self, end_offset: int, entries: Iterable[ProducerStateEntry] = ()) -> None:
        """Replaces the state with the entries of a snapshot, or with nothing."""
        self.entries = {entry.producer_id: entry for entry in entries}
        self.end_offset = end_offset
        open_transactions = ((entry.transaction_first_offset, entry.producer_id) for entry in self.entries.values())
        self._open = dict(sorted((first, producer) for first, producer in open_transactions if first is not None))
        self._unreplicated = {}

    def last_batches(self) -> dict[int, "LastBatch"]:
        """Returns the last batch of each producer, whose header compaction must retain."""
        return {
            producer_id: LastBatch(entry.batches[-1].last_offset if entry.batches else None, entry.epoch)
            for producer_id, entry in self.entries.items()
        }


class LastBatch(NamedTuple):
    """The last offset of a producer's last data batch. The offset is None if only a marker has the producer's epoch."""

    data_offset: int | None
    epoch: int

    def is_in(self, batch: RecordBatch) -> bool:
        if self.data_offset is not None:
            return batch.last_offset == self.data_offset
        return batch.is_control and batch.producer_epoch == self.epoch


def check_client_batch(batch: RecordBatch) -> None:
    """Checks the producer fields in the header of a client's batch."""
    if batch.is_control:
        raise InvalidRecordError("Clients are not allowed to write control records")
    if batch.producer_id < 0:
        if batch.is_transactional:
            raise InvalidRecordError("A transactional batch must have a producer id")
        return
    if batch.base_sequence < 0:
        raise InvalidRecordError(
            f"Invalid sequence number {batch.base_sequence} in a batch of producer {batch.producer_id}"
        )
    if batch.producer_epoch < 0:
        raise InvalidRecordError(
            f"Invalid producer epoch {batch.producer_epoch} in a batch of producer {batch.producer_id}"
        )
