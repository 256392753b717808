"""Compaction of one log: retains the last record of each key, and tombstones for a limited time.

Compaction has three steps. Only the second one takes long, and it may run on any thread:

    plan_cleaning      on the owner's thread: determines the dirty range and the sealed segments to clean
    CleaningJob.run    on any thread: builds the map of keys and writes compacted segments as `.cleaned` files
    finish_cleaning    on the owner's thread: swaps the new segments in, unless the log has changed meanwhile

A crash at any time leaves either the old segments or the new ones. The next start removes `.cleaned` files and replaces
source segments by their `.swap` segment (see `loader`).

Retained parts of a batch:

    last batch of its producer             at least the header, which has the sequence number
    last batch of the cleaned range        at least the header, which has the end offset
    batch of an aborted transaction        nothing
    commit or abort marker                 everything while its transaction has data, then for delete.retention.ms
    other batches                          the last record of each key; tombstones for delete.retention.ms

The first cleaning that reads a tombstone or marker determines how long it is retained. It stores that time in the batch
header as the delete horizon (KIP-534).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError
from headrace.records import (
    DEFAULT_MAX_INFLATED_BYTES,
    ControlType,
    OffsetMap,
    RecordBatch,
    encode_empty_batch,
    read_marker,
    rewrite_batch,
)
from headrace.storage.config import LARGEST_RELATIVE_OFFSET, LogConfig
from headrace.storage.files import DataFile, FileSystem
from headrace.storage.index import OffsetIndex, TimeIndex
from headrace.storage.log import FlushTask, Log
from headrace.storage.producer_state import LastBatch
from headrace.storage.segment import CLEANED_SUFFIX, SWAP_SUFFIX, BatchPosition, LogSegment, read_batches
from headrace.storage.txn_index import AbortedTransaction


class CleaningCancelled(HeadraceError):
    """The job was cancelled; the log is unchanged."""


@dataclass(frozen=True)
class CleanerConfig:
    """The configuration of the log cleaner."""

    dedupe_buffer_bytes: int = 128 * 1024 * 1024
    load_factor: float = 0.9
    io_buffer_bytes: int = 512 * 1024
    max_bytes_per_second: float = float(2**63)
    max_inflated_bytes: int = DEFAULT_MAX_INFLATED_BYTES


@dataclass
class CleaningStats:
    """Counts of one cleaning."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    keys: int = 0


class SourceSegment:
    """A sealed segment at the time when the job was planned."""

    def __init__(self, segment: LogSegment):
        self.segment = segment
        self.file: DataFile = segment.file
        self.size = segment.size
        self.base_offset = segment.base_offset
        self.modified_ms = segment.created_ms
        self.index_entries = (len(segment.offset_index), len(segment.time_index))
        self._truncation_count = segment.truncation_count

    def is_unchanged(self, log: Log) -> bool:
        return (
            self.segment in log.segments
            and self.segment.truncation_count == self._truncation_count
            and self.segment.size == self.size
        )


@dataclass
class LogToClean:
    """The clean and dirty parts of a log, and the range of offsets that can be cleaned now."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def log_to_clean(log: Log) -> LogToClean:
    """Measures the cleanable range of a log: from the last cleaned offset to the first uncleanable offset."""
    now_ms = log.context.clock.time_ms()
    first_dirty = max(log.cleaned_up_to or 0, log.segments.first.base_offset)
    if first_dirty > log.log_end_offset:
        first_dirty = log.segments.first.base_offset  # the log was truncated below the cleaned offset
    end_offset = _first_uncleanable_offset(log, now_ms)
    clean_bytes = dirty_bytes = 0
    oldest_dirty_ms: int | None = None
    for segment in log.segments:
        if segment.base_offset >= end_offset:
            break
        if log.segments.end_of(segment, log.log_end_offset) <= first_dirty:
            clean_bytes += segment.size
            continue
        dirty_bytes += segment.size
        if oldest_dirty_ms is None and segment.size:
            oldest_dirty_ms = (
                segment.first_batch_timestamp if segment.first_batch_timestamp >= 0 else segment.created_ms
            )
    overdue = oldest_dirty_ms is not None and now_ms - oldest_dirty_ms > log.config.max_compaction_lag_ms
    return LogToClean(first_dirty, max(first_dirty, end_offset), clean_bytes, dirty_bytes, overdue)


def _first_uncleanable_offset(log: Log, now_ms: int) -> int:
    """Returns the first offset that is in the active segment, at or above the last stable offset, or younger than
    `min.compaction.lag.ms`."""
    # The high watermark may be within a batch; such a batch is not cleaned.
    end_offset = log.start_of_batch_at(min(log.segments.active.base_offset, log.last_stable_offset))
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in log.segments:
            if segment.base_offset >= end_offset:
                break
            newest = segment.max_timestamp[0] if segment.max_timestamp[0] >= 0 else segment.created_ms
            if newest > now_ms - lag_ms:
                return segment.base_offset
    return end_offset


class Throttle:
    """Limits the rate of a job's reads and writes."""

    def __init__(self, bytes_per_second: float, clock: Clock):
        self._rate = bytes_per_second
        self._clock = clock
        self._started = clock.monotonic()
        self._bytes = 0

    def account(self, size: int) -> None:
        self._bytes += size
        ahead_seconds = self._bytes / self._rate - (self._clock.monotonic() - self._started)
        if ahead_seconds > 0.001:
            self._clock.sleep(ahead_seconds)


class TransactionTracker:
    """Tracks transactions while scanning the log: which batches are aborted, and which markers have no data left."""

    def __init__(self, aborted: list[AbortedTransaction]):
        self._upcoming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._open_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._open_committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []
        """Aborted transactions that still have data, for the new transaction index."""

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Registers a data batch. Returns True if its transaction was aborted."""
        self._open_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._open_aborted:
            transaction, _ = self._open_aborted[batch.producer_id]
            self._open_aborted[batch.producer_id] = (transaction, True)
            return True
        self._open_committed.add(batch.producer_id)
        return False

    def is_marker_without_data(self, batch: RecordBatch, control_type: ControlType | None) -> bool:
        """Registers a marker. Returns True if its transaction has no data left."""
        self._open_up_to(batch.last_offset)
        if control_type is ControlType.ABORT:
            transaction, has_data = self._open_aborted.pop(batch.producer_id, (None, False))
            if has_data and transaction is not None:
                self.kept.append(transaction)
            return not has_data
        if control_type is ControlType.COMMIT:
            had_data = batch.producer_id in self._open_committed
            self._open_committed.discard(batch.producer_id)
            return not had_data
        return False

    def _open_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[-1].first_offset <= offset:
            transaction = self._upcoming.pop()
            self._open_aborted.setdefault(transaction.producer_id, (transaction, False))


@dataclass
class SegmentGroup:
    """Source segments, and the compacted segment that replaces them."""

    sources: list[SourceSegment]
    cleaned: LogSegment


@dataclass
class CleaningJob:
    """One cleaning of one log. `run` uses nothing that the owner's thread may change."""

    log_name: str
    directory: Path
    config: LogConfig
    files: FileSystem
    clock: Clock
    cleaner_config: CleanerConfig
    sources: list[SourceSegment]
    first_dirty_offset: int
    end_offset: int
    aborted: list[AbortedTransaction]
    """All transactions with records in the sources, even if their markers are in later segments."""
    last_batches: dict[int, LastBatch]
    now_ms: int
    flush: FlushTask | None = None
    groups: list[SegmentGroup] = field(default_factory=list)
    stats: CleaningStats = field(default_factory=CleaningStats)
    cleaned_up_to: int = 0
    cancelled: bool = False

    def run(self) -> "CleaningJob":
        """Writes the compacted segments. On an error or cancellation, removes them and raises."""
        throttle = Throttle(self.cleaner_config.max_bytes_per_second, self.clock)
        offsets = OffsetMap(self.cleaner_config.dedupe_buffer_bytes, self.cleaner_config.load_factor)
        try:
            # Flush first: compaction drops a record because of a newer one, which a power loss must not remove.
            if self.flush is not None:
                self.flush.run()
            self.cleaned_up_to = self._build_map(offsets, throttle)
            self.stats.keys = len(offsets)
            tracker = TransactionTracker(self.aborted)
            for sources in self._group(self.cleaned_up_to):
                self._clean_group(sources, offsets, tracker, throttle)
        except BaseException:
            self.discard()
            raise
        return self

    def applies_to(self, log: Log) -> bool:
        """Returns True if the source segments have not changed since the job was planned."""
        return all(source.is_unchanged(log) for source in self.sources)

    def discard(self) -> None:
        for group in self.groups:
            group.cleaned.release()
            for path in group.cleaned.existing_paths():
                self.files.remove(path)

    def _batches(self, source: SourceSegment, throttle: Throttle) -> Iterator[RecordBatch]:
        for _, batch in read_batches(source.file, source.size, 0, self.cleaner_config.io_buffer_bytes):
            if self.cancelled:
                raise CleaningCancelled(f"Partition {self.log_name}: compaction was cancelled")
            throttle.account(batch.size_in_bytes)
            self.stats.bytes_read += batch.size_in_bytes
            yield batch

    def _build_map(self, offsets: OffsetMap, throttle: Throttle) -> int:
        """Adds the keys of the dirty range to the map until it is full. Returns the end offset of the range read."""
        dirty = [source for source in self.sources if source.base_offset < self.end_offset]
        # The scan may not see the markers of transactions that ended before the dirty range.
        tracker = TransactionTracker([entry for entry in self.aborted if entry.last_offset >= self.first_dirty_offset])
        end_of_read_range = self.first_dirty_offset
        for source, next_source in zip(dirty, [*dirty[1:], None], strict=True):
            source_end = next_source.base_offset if next_source is not None else self.end_offset
            if source_end <= self.first_dirty_offset:
                continue
            for batch in self._batches(source, throttle):
                if batch.base_offset >= self.end_offset:
                    break
                if batch.is_control:
                    tracker.is_marker_without_data(batch, self._control_type(batch))
                elif not tracker.is_aborted(batch) and batch.last_offset >= self.first_dirty_offset:
                    records = batch.records(self.cleaner_config.max_inflated_bytes)
                    if not offsets.add(records, self.first_dirty_offset):
                        if end_of_read_range == self.first_dirty_offset:
                            raise HeadraceError(
                                f"A batch has {len(records)} records, but the log cleaner's map of keys "
                                f"has room for {offsets.capacity}; increase log.cleaner.dedupe.buffer.size"
                            )
                        return end_of_read_range
                end_of_read_range = max(end_of_read_range, batch.next_offset)
            end_of_read_range = max(end_of_read_range, min(source_end, self.end_offset))
        return end_of_read_range

    @staticmethod
    def _control_type(batch: RecordBatch) -> ControlType | None:
        marker = read_marker(batch.records())
        return marker.control_type if marker is not None else None

    def _group(self, end_offset: int) -> list[list[SourceSegment]]:
        """Groups adjacent segments that fit into one by size, index entries and offsets."""
        groups: list[list[SourceSegment]] = []
        cleanable = [source for source in self.sources if source.base_offset < end_offset]
        for source, next_source in zip(cleanable, [*cleanable[1:], None], strict=True):
            last_offset = next_source.base_offset - 1 if next_source is not None else self.end_offset
            if groups and self._fits(groups[-1], source, last_offset):
                groups[-1].append(source)
            else:
                groups.append([source])
        return groups

    def _fits(self, group: list[SourceSegment], source: SourceSegment, last_offset: int) -> bool:
        joined = [*group, source]
        index_bytes = self.config.segment_index_bytes
        return (
            sum(member.size for member in joined) <= self.config.segment_bytes
            and sum(member.index_entries[0] for member in joined) <= index_bytes // OffsetIndex.entry.size
            and sum(member.index_entries[1] for member in joined) < index_bytes // TimeIndex.entry.size
            and last_offset - group[0].base_offset <= LARGEST_RELATIVE_OFFSET
        )

    def _clean_group(
        self, sources: list[SourceSegment], offsets: OffsetMap, tracker: TransactionTracker, throttle: Throttle
    ) -> None:
        modified_ms = max(source.modified_ms for source in sources)
        cleaned = LogSegment(
            self.directory, sources[0].base_offset, self.files, created_ms=modified_ms, suffix=CLEANED_SUFFIX
        )
        cleaned.create()
        self.groups.append(SegmentGroup(sources, cleaned))
        pending = bytearray()
        positions: list[BatchPosition] = []
        for source in sources:
            for batch in self._batches(source, throttle):
                retained = self._clean_batch(batch, offsets, tracker)
                if retained is None:
                    continue
                positions.append(BatchPosition.of(RecordBatch(retained), len(pending)))
                pending += retained
                if len(pending) >= self.cleaner_config.io_buffer_bytes:
                    self._write(cleaned, pending, positions, throttle)
                    pending, positions = bytearray(), []
        if pending:
            self._write(cleaned, pending, positions, throttle)
        for transaction in tracker.kept:
            cleaned.txn_index.append(transaction)
        tracker.kept = []
        cleaned.seal()
        for file in (cleaned.file, *cleaned.open_indexes()):
            file.sync()
        cleaned.synced_changes = cleaned.changes
        self.files.set_modified(cleaned.path(), modified_ms)

    def _write(self, cleaned: LogSegment, data: bytearray, positions: list[BatchPosition], throttle: Throttle) -> None:
        cleaned.append(data, positions, self.config.index_interval_bytes)
        throttle.account(len(data))
        self.stats.bytes_written += len(data)

    def _clean_batch(
        self, batch: RecordBatch, offsets: OffsetMap, tracker: TransactionTracker
    ) -> memoryview | bytearray | None:
        """Returns the retained part of a batch; None if all of it is removed."""
        self.stats.records_read += batch.count
        horizon = batch.delete_horizon_ms
        horizon_passed = horizon is not None and horizon <= self.now_ms
        retained: memoryview | bytearray | None
        is_control = batch.is_control
        has_no_data = is_control and tracker.is_marker_without_data(batch, self._control_type(batch))
        aborted = not is_control and tracker.is_aborted(batch)
        if batch.base_offset >= self.cleaned_up_to:
            self.stats.records_kept += batch.count
            return batch.raw  # beyond the cleaned range, in a partly cleaned segment
        if is_control:
            needs_horizon = has_no_data and horizon is None
            retained = None if has_no_data and horizon_passed else self._keep_marker(batch, needs_horizon)
        elif aborted:
            retained = None
        else:
            retained = self._keep_records(batch, offsets, drop_tombstones=horizon_passed)
        if retained is None and self._must_keep_header(batch):
            return encode_empty_batch(batch)
        return retained

    def _keep_marker(self, batch: RecordBatch, needs_horizon: bool) -> memoryview | bytearray | None:
        if batch.count == 0:
            return None
        self.stats.records_kept += batch.count
        if not needs_horizon:
            return batch.raw
        return rewrite_batch(batch.records(), b"\x01" * batch.count, self.now_ms + self.config.delete_retention_ms)

    def _keep_records(
        self, batch: RecordBatch, offsets: OffsetMap, drop_tombstones: bool
    ) -> memoryview | bytearray | None:
        records = batch.records(self.cleaner_config.max_inflated_bytes)
        mask, kept_count, has_tombstones = offsets.select(records, self.cleaned_up_to, drop_tombstones)
        self.stats.records_kept += kept_count
        if kept_count == 0:
            return None
        needs_horizon = has_tombstones and batch.delete_horizon_ms is None
        if kept_count == len(records) and not needs_horizon:
            return batch.raw
        horizon = self.now_ms + self.config.delete_retention_ms if needs_horizon else None
        return rewrite_batch(records, mask, horizon)

    def _must_keep_header(self, batch: RecordBatch) -> bool:
        if batch.next_offset == self.cleaned_up_to:
            return True
        last_batch = self.last_batches.get(batch.producer_id)
        return last_batch is not None and last_batch.is_in(batch)


def plan_cleaning(log: Log, cleaner_config: CleanerConfig, cleanable: LogToClean | None = None) -> CleaningJob | None:
    """Returns a job for the cleanable range of a log; None if there is nothing to clean."""
    cleanable = cleanable or log_to_clean(log)
    if cleanable.end_offset <= cleanable.first_dirty_offset or cleanable.dirty_bytes == 0:
        return None
    flush = log.begin_flush()
    sources = [SourceSegment(segment) for segment in log.segments if segment.base_offset < cleanable.end_offset]
    aborted = [entry for segment in log.segments for entry in segment.txn_index.entries()]
    return CleaningJob(
        str(log.tp),
        log.directory,
        log.config,
        log.context.files,
        log.context.clock,
        cleaner_config,
        sources,
        cleanable.first_dirty_offset,
        cleanable.end_offset,
        aborted,
        log.producers.last_batches(),
        log.context.clock.time_ms(),
        flush,
    )


def finish_cleaning(log: Log, job: CleaningJob, *, is_checkpointed: bool = False) -> bool:
    """Swaps the compacted segments in. Returns False, and changes nothing, if the log changed during the job.

    `is_checkpointed` is True if the checkpoint already has a recovery point after the job's flush.
    """
    if job.flush is not None:
        log.finish_flush(job.flush)
    # A compacted segment may end before the next one begins. Recovery treats that as a loss unless the range lies below
    # the recovery point.
    if not job.applies_to(log) or log.recovery_point < job.end_offset:
        job.discard()
        return False
    if not is_checkpointed:
        log.write_checkpoint()
    for group in job.groups:
        group.cleaned.rename(SWAP_SUFFIX)
        log.context.files.sync_directory(log.directory)
        log.replace_segments([source.segment for source in group.sources], group.cleaned)
    log.cleaned_up_to = job.cleaned_up_to
    return True
