"""A model of a log as a plain list of batches: slow, obvious, without files.

The list keeps every batch that was appended and not truncated. Batches that compaction and retention removed are only
marked, so that the list alone shows the end of every transaction.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from headrace.common.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from headrace.records import ControlType, Record, RecordBatch, decode_rows, split_batches
from headrace.storage.log import Log
from headrace.storage.producer_state import ProducerStateEntry


class Fate(Enum):
    NOT_TRANSACTIONAL = "not transactional"
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(eq=False)
class ModelBatch:
    base_offset: int
    last_offset: int
    records: list[Record]
    """The records that remain."""
    leader_epoch: int
    max_timestamp: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    marker: ControlType | None = None
    coordinator_epoch: int = -1
    is_control: bool = False
    horizon: int | None = None
    there: bool = True
    """Returns True if at least the header is still in the log."""

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.last_offset - self.base_offset) % 2**31 if self.base_sequence >= 0 else -1


class SeenBatch(NamedTuple):
    """A batch on disk."""

    segment_base: int
    position: int
    raw: bytes
    batch: RecordBatch
    rows: list[Record]


def look(log: Log) -> list[SeenBatch]:
    """Returns every batch in the files of a log, parsed from their bytes alone."""
    seen: list[SeenBatch] = []
    for segment in log.segments:
        data = segment.path().read_bytes() if segment.existing_paths() else b""  # the first append creates the file
        if segment is log.segments.active and log.config.preallocate:
            assert not any(data[segment.size :]), "something lies behind the end of the active segment"
            data = data[: segment.size]
        assert len(data) == segment.size, f"{segment.path().name} has {len(data)} bytes, not {segment.size}"
        for batch in split_batches(data):
            batch.check_crc()
            seen.append(
                SeenBatch(segment.base_offset, batch.position, bytes(batch.raw), batch, decode_rows(batch.records()))
            )
    return seen


@dataclass
class Transaction:
    producer_id: int
    batches: list[ModelBatch]
    marker: ModelBatch | None = None

    @property
    def fate(self) -> Fate:
        if self.marker is None:
            return Fate.OPEN
        return Fate.ABORTED if self.marker.marker is ControlType.ABORT else Fate.COMMITTED

    def left(self, start: int) -> list[ModelBatch]:
        """Returns the batches that a log with this start still has."""
        return [batch for batch in self.batches if batch.there and batch.last_offset >= start]


class Sent(NamedTuple):
    """The metadata of a batch to recognize a retry."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


@dataclass
class ModelProducer:
    epoch: int = -1
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    first_offset: int | None = None
    """Of the open transaction."""
    batches: deque[Sent] = field(default_factory=lambda: deque(maxlen=5))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @classmethod
    def of(cls, entry: ProducerStateEntry) -> "ModelProducer":
        """Returns the state in the form of a real log."""
        batches = [Sent(b.base_sequence, b.last_sequence, b.base_offset, b.last_offset) for b in entry.batches]
        return cls(
            entry.epoch,
            entry.coordinator_epoch,
            entry.last_timestamp,
            entry.transaction_first_offset,
            deque(batches, maxlen=5),
        )

    def take(self, batch: ModelBatch) -> None:
        if batch.producer_epoch != self.epoch:
            self.epoch = batch.producer_epoch
            self.batches.clear()
        self.last_timestamp = batch.max_timestamp
        if batch.marker is not None:
            self.coordinator_epoch = max(self.coordinator_epoch, batch.coordinator_epoch)
            self.first_offset = None
            return
        self.batches.append(Sent(batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset))
        if batch.transactional and self.first_offset is None:
            self.first_offset = batch.base_offset

    def refusal(self, batch: ModelBatch) -> type[KafkaError] | None:
        """Returns the error with which a leader must reject a batch that is not a duplicate; None if it accepts it."""
        if batch.producer_epoch < self.epoch:
            return InvalidProducerEpochError
        if batch.marker is not None:
            return TransactionCoordinatorFencedError if batch.coordinator_epoch < self.coordinator_epoch else None
        if self.epoch != -1:
            follows = 0 if batch.producer_epoch > self.epoch else (self.last_sequence + 1) % 2**31
            if batch.base_sequence != follows:
                return OutOfOrderSequenceNumberError
        if self.first_offset is not None and not batch.transactional:
            return InvalidTxnStateError
        return None

    def duplicate_of(self, batch: ModelBatch) -> Sent | None:
        if batch.producer_epoch != self.epoch or batch.marker is not None:
            return None
        wanted = (batch.base_sequence, batch.last_sequence)
        return next((sent for sent in self.batches if sent[:2] == wanted), None)


class ModelLog:
    def __init__(self) -> None:
        self.batches: list[ModelBatch] = []
        self.start = 0
        self.end = 0
        self.high_watermark = 0
        self.epochs: list[tuple[int, int]] = []
        self.producers: dict[int, ModelProducer] = {}
        self.unreplicated: dict[int, int] = {}
        """First and last offsets of transactions that ended above the high watermark since the log was opened."""
        self.cleaned_up_to = 0
        self.ever_expired: set[int] = set()
        """Producers that expired once, so that a snapshot may lack them."""

    # ---- content

    def present(self) -> list[ModelBatch]:
        return [batch for batch in self.batches if batch.there]

    def readable(self) -> list[ModelBatch]:
        return [batch for batch in self.present() if batch.last_offset >= self.start]

    def records(self) -> list[Record]:
        return [record for batch in self.readable() for record in batch.records if record.offset >= self.start]

    def transactions(self) -> list[Transaction]:
        found: list[Transaction] = []
        running: dict[int, Transaction] = {}
        for batch in self.batches:
            if batch.marker is not None:
                ended = running.pop(batch.producer_id, None)
                if ended is not None:
                    ended.marker = batch
            elif batch.transactional and not batch.is_control:
                if batch.producer_id not in running:
                    running[batch.producer_id] = Transaction(batch.producer_id, [])
                    found.append(running[batch.producer_id])
                running[batch.producer_id].batches.append(batch)
        return found

    def fates(self) -> dict[ModelBatch, Fate]:
        fates = dict.fromkeys(self.batches, Fate.NOT_TRANSACTIONAL)
        for transaction in self.transactions():
            fates.update(dict.fromkeys(transaction.batches, transaction.fate))
        return fates

    def stable_bounds(self) -> tuple[int, int]:
        """Returns the range in which the last stable offset must be.

        A reopened log does not know which transactions ended above its high watermark.
        """
        lowest = highest = self.high_watermark
        for transaction in self.transactions():
            first = transaction.batches[0].base_offset
            if transaction.marker is None:
                lowest = min(lowest, first)
                highest = min([highest, *(batch.base_offset for batch in transaction.left(self.start))])
            elif transaction.marker.last_offset >= self.high_watermark:
                lowest = min(lowest, first)
        highest = min([highest, *self.unreplicated])
        return max(lowest, self.start), max(highest, self.start)

    def table(self) -> dict[bytes, Record]:
        """Returns the last record of each key that a read_committed consumer may see."""
        fates = self.fates()
        found: dict[bytes, Record] = {}
        for batch in self.readable():
            if batch.is_control or fates[batch] is Fate.ABORTED:
                continue
            for record in batch.records:
                if record.key is not None and record.offset >= self.start:
                    found[record.key] = record
        return found

    # ---- changes

    def append(self, batch: ModelBatch) -> None:
        assert batch.base_offset >= self.end
        self.batches.append(batch)
        self.end = batch.last_offset + 1
        if not self.epochs or self.epochs[-1][0] != batch.leader_epoch:
            # An epoch without remaining records is replaced.
            before = [entry for entry in self.epochs if entry[1] < batch.base_offset]
            self.epochs = [*before, (batch.leader_epoch, batch.base_offset)]
        if batch.producer_id >= 0 and not (batch.is_control and batch.marker is None):
            producer = self.producers.setdefault(batch.producer_id, ModelProducer())
            if batch.marker is not None and producer.first_offset is not None:
                self.unreplicated[producer.first_offset] = batch.last_offset
            producer.take(batch)

    def move_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        self.unreplicated = {first: last for first, last in self.unreplicated.items() if last >= offset}

    def truncate(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.end = offset
        self.cleaned_up_to = min(self.cleaned_up_to, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.epochs = [entry for entry in self.epochs if entry[1] < offset]
        self.unreplicated = {}

    def start_over(self, offset: int) -> None:
        self.batches = []
        self.start = self.end = self.high_watermark = offset
        self.cleaned_up_to = min(self.cleaned_up_to, offset)
        self.epochs = []
        self.producers = {}
        self.unreplicated = {}

    def raise_start(self, offset: int) -> None:
        if offset <= self.start:
            return
        self.start = offset
        self.high_watermark = max(self.high_watermark, offset)
        below = [entry for entry in self.epochs if entry[1] <= offset]
        if below:
            self.epochs = [(below[-1][0], offset), *self.epochs[len(below) :]]

    def drop_below(self, first_base_offset: int) -> None:
        """Marks batches in deleted segments below this offset."""
        for batch in self.batches:
            if batch.last_offset < first_base_offset:
                batch.there = False
                batch.records = []

    def expired(self, now_ms: int, expiration_ms: int) -> list[int]:
        return [
            producer_id
            for producer_id, producer in self.producers.items()
            if producer.first_offset is None and now_ms - producer.last_timestamp >= expiration_ms
        ]

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Computes the end offset for an epoch (KIP-101) with a linear search."""
        if not self.epochs or epoch < 0 or epoch > self.epochs[-1][0]:
            return -1, -1
        following = [start for known, start in self.epochs if known > epoch]
        not_above = [known for known, _ in self.epochs if known <= epoch]
        return (not_above[-1] if not_above else epoch), (following[0] if following else self.end)

    # ---- compaction

    def clean(self, first_dirty: int, end: int, now_ms: int, retention_ms: int) -> None:
        """Applies one round of compaction with the keys of `[first_dirty, end)`."""
        fates = self.fates()
        has_data = {
            transaction.marker: any(batch.there for batch in transaction.batches)
            for transaction in self.transactions()
            if transaction.marker is not None
        }
        latest: dict[bytes, int] = {}
        for batch in self.present():
            if not batch.is_control and fates[batch] is not Fate.ABORTED:
                for record in batch.records:
                    if record.key is not None and first_dirty <= record.offset < end:
                        latest[record.key] = record.offset
        for batch in self.present():
            if batch.base_offset >= end:
                break
            horizon_passed = batch.horizon is not None and batch.horizon <= now_ms
            if batch.is_control:
                self._clean_marker(batch, not has_data.get(batch, False), horizon_passed, now_ms + retention_ms)
            else:
                kept = [
                    record
                    for record in batch.records
                    if fates[batch] is not Fate.ABORTED
                    and record.key is not None
                    and not (record.value is None and horizon_passed)
                    and record.offset >= latest.get(record.key, 0)
                ]
                self._keep(batch, kept, now_ms + retention_ms)
            if not batch.records:
                batch.there = batch.last_offset + 1 == end or self._is_last_of_producer(batch)

    def _is_last_of_producer(self, batch: ModelBatch) -> bool:
        """Returns True if a batch has a producer's last sequence number or, if it has only markers, its epoch."""
        producer = self.producers.get(batch.producer_id)
        if producer is None:
            return False
        if producer.batches:
            return producer.batches[-1].last_offset == batch.last_offset
        return batch.is_control and batch.producer_epoch == producer.epoch

    @staticmethod
    def _clean_marker(batch: ModelBatch, idle: bool, horizon_passed: bool, horizon: int) -> None:
        if idle and horizon_passed:
            batch.records = []
            batch.horizon = None
        elif idle and batch.horizon is None and batch.records:
            batch.horizon = horizon

    @staticmethod
    def _keep(batch: ModelBatch, kept: list[Record], horizon: int) -> None:
        needs_horizon = batch.horizon is None and any(record.value is None for record in kept)
        if not kept:
            batch.horizon = None
        elif needs_horizon or len(kept) != len(batch.records):
            batch.horizon = horizon if needs_horizon else batch.horizon
            batch.max_timestamp = max(-1, *(record.timestamp for record in kept))
        batch.records = kept
