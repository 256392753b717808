"""The log of one partition: appends, reads, truncation, flushes.

One thread owns a log and calls all its methods. Blocking work runs on the context's background runner
(`flush_in_background`, deletion of files, compaction in `cleaner`).

    log_start_offset ≤ last stable offset ≤ high watermark ≤ log_end_offset

    log_start_offset    the first readable offset; advanced by retention and DeleteRecords
    last stable offset  the first offset of the first open transaction, or the high watermark
    high watermark      all records below it are replicated; set by the partition's leader
    log_end_offset      the offset of the next record
    recovery_point      all records below it are on disk; recovery starts here after a crash

An append changes the state only after its bytes are in the file: a failed write leaves the log unchanged.

`_fast_append` appends the ordinary batches of producers. It does the same as `append_as_leader`; change both together.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from headrace.common.background import WorkResult
from headrace.common.config import INT_MAX, LONG_MAX
from headrace.common.errors import CorruptRecordError, InvalidRecordError, KafkaStorageError, OffsetOutOfRangeError
from headrace.common.ids import Uuid
from headrace.common.types import Buffer, TopicPartition
from headrace.records import NO_LEADER_EPOCH, NO_TIMESTAMP, RecordBatch, split_batches
from headrace.storage._fast_append import LogFields
from headrace.storage.append import PreparedAppend, prepare_follower_append, prepare_leader_append
from headrace.storage.checkpoints import PARTITION_METADATA_FILE
from headrace.storage.config import LARGEST_RELATIVE_OFFSET, LogConfig
from headrace.storage.context import LogContext
from headrace.storage.failed_appends import FailedAppends
from headrace.storage.files import DISK_FULL, DataFile, DiskFullError, remove_files, storage_error
from headrace.storage.flushing import FlushTask, TruncationTask, open_files_to_sync, pending_changes, segments_to_flush
from headrace.storage.index import CorruptIndexError
from headrace.storage.leader_epoch_cache import LeaderEpochFileCache
from headrace.storage.open_files import TOO_MANY_OPEN_FILES
from headrace.storage.producer_snapshots import ProducerSnapshots
from headrace.storage.producer_state import AppendOrigin, BatchMetadata, ProducerStateManager
from headrace.storage.reading import (
    FetchIsolation,
    ReadRange,
    ReadResult,
    aborted_within,
    find_batch,
    find_max_timestamp,
    find_slice,
    find_timestamp,
)
from headrace.storage.rebuild import apply_batch, rebuild_indexes, replay_producers
from headrace.storage.segment import DELETED_SUFFIX, BatchPosition, LogSegment
from headrace.storage.segments import LogSegments
from headrace.storage.validation import ValidatedBatches, validate_batches

_logger = logging.getLogger(__name__)


__all__ = ["AppendResult", "FetchIsolation", "FlushTask", "Log", "LogContext", "ReadResult"]


class AppendResult(NamedTuple):
    """The result of an append. A duplicate has the offsets of the first append."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class Log(LogFields):
    """A partition's log. Open it with `headrace.storage.loader.open_log`."""

    config: LogConfig
    segments: LogSegments
    epochs: LeaderEpochFileCache
    producers: ProducerStateManager
    _failed_appends: FailedAppends

    def __init__(
        self,
        directory: Path,
        tp: TopicPartition,
        config: LogConfig,
        context: LogContext,
        *,
        segments: LogSegments,
        epochs: LeaderEpochFileCache,
        producers: ProducerStateManager,
        snapshots: ProducerSnapshots,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        topic_id: Uuid | None = None,
    ):
        self.directory = directory
        self.tp = tp
        self.topic_id = topic_id
        self.config = config
        self.context = context
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.snapshots = snapshots
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.high_watermark = log_start_offset
        self.last_flush_ms = context.clock.time_ms()
        self.cleaned_up_to: int | None = None
        """The offset up to which the log is compacted; stored in the cleaner offset checkpoint."""
        self.on_recovery_point_lowered: Callable[[], None] = lambda: None
        """Writes the checkpoints immediately. Called before a truncation changes files: the checkpoints must not
        contain offsets that the log no longer has. `LogManager.truncate_many` writes them in the background instead."""
        self.checkpoint_limit: int | None = None
        """The checkpoints contain no larger offset of this log, because a truncation to this offset is prepared."""
        self.is_limit_checkpointed = False
        """True if the checkpoint files respect the limit, so that a truncation need not write them."""
        self.is_checkpointed = True
        """True if the recovery point checkpoint contains this log; a new log is not in it yet."""
        self.is_directory_synced = True
        """False if the name of the log's directory and its topic id may not be on disk; the first flush syncs them."""
        self.on_disk_failed: Callable[[BaseException], None] | None = None
        """Called when a sync or a truncation fails: the state of the files on disk is then unknown."""
        self.segments.active.jitter_ms = self._random_jitter_ms()
        self._files = context.files
        self._failed_appends = FailedAppends()
        self._flush_in_progress = False
        self._truncation_count = 0
        self._ends_in_gap = False
        self._unsynced_truncation: TruncationTask | None = None
        """The files to sync before the next append: those of a truncation that is not on disk yet."""
        self._closed = False

    def __repr__(self) -> str:
        return (
            f"Log({self.tp}, offsets {self.log_start_offset} to {self.log_end_offset}, {len(self.segments)} segments)"
        )

    # ---- appending

    def append_as_leader(
        self,
        data: Buffer | ValidatedBatches,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        max_inline_bytes: int | None = None,
    ) -> AppendResult:
        """Validates a producer's batches, unless they are, assigns offsets and writes them.

        Patches a writable buffer in place. If an error of `common.errors` is raised, nothing was appended, unless only
        the flush for `flush.messages` failed. Raises LargeBatchError if a batch is larger than `max_inline_bytes`, if
        given, uncompressed.
        """
        self._check_open()
        if not NO_LEADER_EPOCH <= leader_epoch <= INT_MAX:
            raise ValueError(f"leader epoch {leader_epoch} is out of range: expected {NO_LEADER_EPOCH} to {INT_MAX}")
        now_ms = self.context.clock.time_ms()
        if not isinstance(data, ValidatedBatches):
            data = validate_batches(data, self.tp, self.config, self.context, now_ms, origin, max_inline_bytes)
        prepared = prepare_leader_append(
            data, next_offset=self.log_end_offset, leader_epoch=leader_epoch, config=self.config, now_ms=now_ms
        )
        duplicate = self._check_producers(prepared, origin)
        if duplicate is not None:
            self.flush_if_overdue()
            return AppendResult(
                duplicate.base_offset,
                duplicate.last_offset,
                duplicate.timestamp,
                duplicate.last_offset,
                duplicate.timestamp if self.config.log_append_time else -1,
                self.log_start_offset,
                duplicate=True,
            )
        log_append_time_ms = now_ms if self.config.log_append_time else -1
        return self._append(prepared, now_ms, log_append_time_ms, self._failed_appends)

    def append_as_follower(self, data: Buffer) -> AppendResult:
        """Appends the leader's batches with the offsets and leader epochs that the leader assigned."""
        self._check_open()
        return self._append(prepare_follower_append(data, self.log_end_offset), self.context.clock.time_ms(), -1)

    def _check_producers(self, prepared: PreparedAppend, origin: AppendOrigin) -> BatchMetadata | None:
        writers: set[int] = set()
        for batch, marker in zip(prepared.batches, prepared.markers, strict=True):
            if batch.producer_id >= 0:
                # A second batch would be checked against the producer state without the first one.
                if batch.producer_id in writers:
                    raise InvalidRecordError(
                        f"Producer {batch.producer_id} has more than one batch in one append; expected at most one"
                    )
                writers.add(batch.producer_id)
                if origin is AppendOrigin.CLIENT:
                    if duplicate := self.producers.find_duplicate(batch):
                        return duplicate
                    if self._failed_appends:
                        self._failed_appends.check(batch)
                self.producers.check(batch, origin, marker)
        return None

    def _append(
        self,
        prepared: PreparedAppend,
        now_ms: int,
        log_append_time_ms: int,
        failed_appends: FailedAppends | None = None,
    ) -> AppendResult:
        """Writes the batches. Notes a failure in `failed_appends`; a follower's is not the producer's."""
        try:
            active = self._write(prepared, now_ms)
        except KafkaStorageError as error:
            if failed_appends is not None:
                failed_appends.add(prepared.batches, error)
            raise
        self.log_end_offset = prepared.last_offset + 1
        self._ends_in_gap = False
        self._assign_epochs(prepared.batches)
        self._update_producers(prepared, active)
        self.flush_if_overdue()
        return AppendResult(
            prepared.first_offset,
            prepared.last_offset,
            prepared.max_timestamp,
            prepared.offset_of_max_timestamp,
            log_append_time_ms,
            self.log_start_offset,
        )

    def _write(self, prepared: PreparedAppend, now_ms: int) -> LogSegment:
        """Writes the batches to a segment, and returns it. If it raises KafkaStorageError, nothing was written."""
        if self._unsynced_truncation is not None:
            self.sync_truncation()
        try:
            active = self._segment_for(prepared, now_ms)
            positions = [BatchPosition.of(batch, batch.position) for batch in prepared.batches]
            active.append(prepared.data, positions, self.config.index_interval_bytes)
        except OSError as error:
            raise storage_error("append to", self.segments.active.path(), error) from error
        return active

    def _segment_for(self, prepared: PreparedAppend, now_ms: int) -> LogSegment:
        active = self.segments.active
        if active.should_roll(self.config, len(prepared.data), prepared.last_offset, prepared.max_timestamp, now_ms):
            # A follower's first offset may be above the log end offset; avoid a gap between segments if possible.
            fits = prepared.last_offset - self.log_end_offset <= LARGEST_RELATIVE_OFFSET
            return self._roll(self.log_end_offset if fits else prepared.first_offset)
        return active

    def _assign_epochs(self, batches: list[RecordBatch]) -> None:
        for batch in batches:
            if batch.leader_epoch >= 0 and batch.leader_epoch != self.epochs.latest_epoch:
                self.epochs.assign(batch.leader_epoch, batch.base_offset)

    def _update_producers(self, prepared: PreparedAppend, segment: LogSegment) -> None:
        for batch, marker in zip(prepared.batches, prepared.markers, strict=True):
            if batch.producer_id >= 0:
                apply_batch(self.producers, segment, batch, marker)
                if self._failed_appends:
                    self._failed_appends.appended(batch)
        self.producers.end_offset = self.log_end_offset

    def start_leader_epoch(self, leader_epoch: int) -> None:
        """Notes that the leader of an epoch appends from the log end on.

        A leader calls it before its first append: the compiled append does not check for an unsynced truncation.
        """
        self.sync_truncation()
        self.epochs.assign(leader_epoch, self.log_end_offset)

    def roll(self, base_offset: int | None = None) -> LogSegment:
        """Rolls to a new segment, by default at the log end offset, and flushes the old one in the background."""
        self._check_open()
        try:
            return self._roll(base_offset)
        except OSError as error:
            raise storage_error("roll a new segment in", self.directory, error) from error

    def _roll(self, base_offset: int | None = None) -> LogSegment:
        base_offset = self.log_end_offset if base_offset is None else max(base_offset, self.log_end_offset)
        old_segment = self.segments.active
        if old_segment.size == 0 and old_segment.base_offset == base_offset:
            return old_segment
        if old_segment.size:
            old_segment.seal()
        if base_offset > self.log_end_offset or self._ends_in_gap:
            self._checkpoint_gap(base_offset)
        elif not self.is_checkpointed:
            self.write_checkpoint()
        segment = self._create_segment(base_offset)
        self.segments.add(segment)
        if old_segment.size == 0:
            self.delete_segments([old_segment])  # empty, and its base offset is too far from the new offsets
            self.increment_log_start_offset(self.segments.first.base_offset)
        self.producers.end_offset = self.log_end_offset
        self.snapshots.take(self.producers, sync=False)
        self.flush_in_background(up_to=base_offset)
        return segment

    def _checkpoint_gap(self, base_offset: int) -> None:
        """Checkpoints the recovery point before a new segment leaves a gap after the previous one.

        Recovery takes a gap between segments for lost records and truncates the log there, unless the gap lies below
        the recovery point.
        """
        self.flush()
        self.log_end_offset = self.recovery_point = base_offset
        self._ends_in_gap = False
        self.write_checkpoint()

    def write_checkpoint(self) -> None:
        """Writes the recovery point to its checkpoint now."""
        self.on_recovery_point_lowered()
        self.is_checkpointed = True
        self._check_open()

    def _create_segment(self, base_offset: int) -> LogSegment:
        segment = LogSegment(self.directory, base_offset, self._files, created_ms=self.context.clock.time_ms())
        segment.create(self.config.segment_bytes if self.config.preallocate else 0)
        segment.jitter_ms = self._random_jitter_ms()
        return segment

    def _random_jitter_ms(self) -> int:
        max_jitter_ms = min(self.config.segment_jitter_ms, self.config.max_segment_ms)
        return self.context.random.randrange(max_jitter_ms) if max_jitter_ms else 0

    def _check_open(self) -> None:
        if self._closed:
            raise KafkaStorageError(f"The log for partition {self.tp} is closed")

    # ---- reading

    @property
    def last_stable_offset(self) -> int:
        unstable = self.producers.first_unstable_offset()
        if unstable is None:
            return self.high_watermark
        # The log start offset may have advanced past the first offset of the transaction.
        return max(min(unstable, self.high_watermark), self.log_start_offset)

    def readable_end(self, isolation: FetchIsolation) -> int:
        """Returns the offset up to which a reader with this isolation may read."""
        if isolation is FetchIsolation.LOG_END:
            return self.log_end_offset
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return self.high_watermark
        if isolation is FetchIsolation.TXN_COMMITTED:
            return self.last_stable_offset
        raise TypeError(f"isolation must be a FetchIsolation, not {isolation!r}")

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: FetchIsolation = FetchIsolation.LOG_END,
        first_batch_whole: bool = True,
    ) -> ReadResult:
        """Returns a slice of at most `max_bytes` that starts with the batch containing `offset`, or the next batch.

        If the first batch is larger than `max_bytes`, the slice is the whole batch with `first_batch_whole`, else None.
        The last batch of a slice may be incomplete.
        """
        self._check_open()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"Received request for offset {offset} for partition {self.tp}, but we only have log segments from "
                f"offset {self.log_start_offset} up to {self.log_end_offset}"
            )
        end = self.readable_end(isolation)
        read_range = ReadRange(offset, end, self.log_end_offset)
        slice_and_end = aborted = None
        try:
            if offset < end:
                slice_and_end = find_slice(self.segments, read_range, max_bytes, first_batch_whole, self.config)
            if isolation is FetchIsolation.TXN_COMMITTED:
                aborted = aborted_within(self.segments, offset, slice_and_end[1]) if slice_and_end is not None else []
        except OSError as error:
            raise storage_error("read", self.directory, error) from error
        return ReadResult(
            slice_and_end[0] if slice_and_end is not None else None,
            self.high_watermark,
            self.last_stable_offset,
            self.log_start_offset,
            aborted,
        )

    def start_of_batch_at(self, offset: int) -> int:
        """Returns the base offset of the batch that contains an offset; the offset itself if none does."""
        batch = find_batch(self.segments.from_offset(offset)[0], offset, self.config)
        return min(batch.base_offset, offset) if batch is not None else offset

    def batches(self, offset: int | None = None) -> Iterator[RecordBatch]:
        """Yields every batch from an offset (default: the log start) to the end. For tools and tests."""
        next_offset = self.log_start_offset if offset is None else offset
        while next_offset < self.log_end_offset:
            read = self.read(next_offset, 1024 * 1024)
            if read.slice is None:
                return
            batches = split_batches(read.slice.read(), allow_partial=True)
            if not batches:
                raise CorruptRecordError(f"Partition {self.tp}: no complete record batch at offset {next_offset}")
            yield from batches
            next_offset = batches[-1].next_offset

    def find_timestamp(
        self, timestamp: int, min_offset: int = 0, max_inline_bytes: int = INT_MAX
    ) -> tuple[int, int] | None:
        """Returns timestamp and offset of the first record at or after both arguments; None if there is none.

        Raises LargeStoredBatchError if the record may be in a batch larger than `max_inline_bytes` uncompressed.
        """
        self._check_open()
        timestamp = max(NO_TIMESTAMP, min(timestamp, LONG_MAX))
        try:
            return find_timestamp(
                self.segments, timestamp, max(min_offset, self.log_start_offset), self.config, max_inline_bytes
            )
        except OSError as error:
            raise storage_error("read", self.directory, error) from error

    def max_timestamp(self, max_inline_bytes: int = INT_MAX) -> tuple[int, int] | None:
        """Returns the largest timestamp and the first offset that has it; None without timestamps.

        Raises LargeStoredBatchError if the record is in a batch larger than `max_inline_bytes` uncompressed.
        """
        self._check_open()
        try:
            return find_max_timestamp(self.segments, self.config, max_inline_bytes)
        except OSError as error:
            raise storage_error("read", self.directory, error) from error

    @property
    def size_in_bytes(self) -> int:
        return self.segments.size_in_bytes

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns the largest epoch not above the requested one, and its end offset; (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # ---- high watermark and log start

    def update_high_watermark(self, offset: int) -> int:
        """Sets the high watermark, limited to the offsets of the log. Returns the new high watermark."""
        self.high_watermark = max(self.log_start_offset, min(offset, self.log_end_offset))
        self.producers.on_high_watermark_updated(self.high_watermark)
        return self.high_watermark

    def delete_records(self, before_offset: int) -> int:
        """Deletes the records before an offset. Returns the new log start offset.

        Raises OffsetOutOfRangeError if the offset is above the high watermark.
        """
        self._check_open()
        if before_offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"Cannot increment the log start offset of partition {self.tp} to {before_offset}: it is greater than "
                f"the high watermark {self.high_watermark}"
            )
        self.increment_log_start_offset(before_offset)
        return self.log_start_offset

    def increment_log_start_offset(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.high_watermark = max(self.high_watermark, offset)
            self.epochs.truncate_from_start(offset)

    # ---- truncating

    # A truncation changes the files and then syncs them. `truncate_to` and `truncate_fully_and_start_at` wait for the
    # disk; `LogManager.truncate_many` truncates many logs and waits in the background.

    def truncate_to(self, offset: int) -> bool:
        """Removes all records from an offset on. A follower calls it when its log diverges from the leader's.

        Returns False if the log has no records from that offset on.
        """
        task = self.begin_truncation(offset)
        if task is not None:
            self.sync_truncation()
        return task is not None

    def begin_truncation(self, offset: int) -> TruncationTask | None:
        """Truncates like `truncate_to`, and returns the files to sync; None if nothing had to be truncated.

        Call `finish_truncation` after the task has run. An append before that runs the task itself.
        """
        self._check_open()
        if offset < 0:
            raise ValueError(f"Cannot truncate partition {self.tp} to a negative offset ({offset})")
        if offset >= self.log_end_offset:
            return None
        if offset < self.log_start_offset:
            return self.begin_full_truncation(offset)
        self._lower_checkpoints(offset)
        try:
            # From the end backwards: a crash leaves no gap.
            self.delete_segments([segment for segment in reversed(list(self.segments)) if segment.base_offset > offset])
            if not len(self.segments):
                self.segments.add(self._create_segment(offset))
            self._truncate_active(offset)
            # After a power loss, truncated batches and deleted segments must not reappear after newly appended ones.
            self._unsynced_truncation = TruncationTask([self.segments.active.file], self.directory, self._files)
            self.snapshots.drop_beyond(offset)
            self.log_end_offset = offset
            self._ends_in_gap = True
            self.update_high_watermark(min(self.high_watermark, offset))
            self.epochs.truncate_from_end(offset)
            self._reload_producers()
        except OSError as error:
            self._fail("truncate", error)
        return self._unsynced_truncation

    def sync_truncation(self) -> None:
        """Syncs the files of the last truncation, unless they are on disk already."""
        task = self._unsynced_truncation
        if task is not None:
            try:
                task.run()
            except OSError as error:
                self._fail("truncate", error)
            self.finish_truncation(task)

    def finish_truncation(self, task: TruncationTask) -> None:
        """Allows appends without a sync again, unless the log was truncated once more."""
        if self._unsynced_truncation is task:
            self._unsynced_truncation = None

    @property
    def truncation_count(self) -> int:
        """How often the log was truncated since it was opened."""
        return self._truncation_count

    def needs_lower_checkpoint(self, offset: int) -> bool:
        """Returns True if the checkpoints must be lowered before a truncation to an offset."""
        return offset < max(self.recovery_point, self.log_start_offset)

    def _lower_checkpoints(self, offset: int) -> None:
        """Lowers the checkpointed offsets to the truncation offset."""
        self._truncation_count += 1
        if self.cleaned_up_to is not None:
            self.cleaned_up_to = min(self.cleaned_up_to, offset)
        if self.needs_lower_checkpoint(offset):
            before = self.recovery_point, self.log_start_offset
            self.recovery_point = min(self.recovery_point, offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            if self.is_limit_checkpointed and self.checkpoint_limit is not None and self.checkpoint_limit <= offset:
                return
            try:
                self.write_checkpoint()
            except KafkaStorageError:
                self.recovery_point, self.log_start_offset = before
                raise

    def _fail(self, action: str, error: OSError) -> NoReturn:
        """Closes the log after a partial truncation: its state is unknown, so it must no longer be used."""
        if self.on_disk_failed is not None:
            self.on_disk_failed(error)
        self.abandon()
        raise storage_error(action, self.directory, error) from error

    def _truncate_active(self, offset: int) -> None:
        active = self.segments.active
        try:
            active.truncate_to(offset, sync=False)
        except CorruptIndexError:
            rebuild_indexes(active, self.config)
            active.truncate_to(offset, sync=False)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Deletes all records and restarts the log at an offset.

        A follower calls it when its fetch offset is out of the leader's range.
        """
        self.begin_full_truncation(offset)
        self.sync_truncation()

    def begin_full_truncation(self, offset: int) -> TruncationTask:
        """Truncates like `truncate_fully_and_start_at`, and returns the files to sync; see `begin_truncation`."""
        self._check_open()
        if not 0 <= offset < LONG_MAX:
            raise ValueError(f"Cannot start the log of partition {self.tp} at offset {offset}")
        self._lower_checkpoints(offset)
        task = self._unsynced_truncation = TruncationTask([], self.directory, self._files)
        try:
            self.delete_segments(list(reversed(list(self.segments))))
            self.snapshots.keep_only(set())
            self.segments.add(self._create_segment(offset))
        except OSError as error:
            self._fail("truncate", error)
        self.log_start_offset = self.log_end_offset = self.high_watermark = offset
        self._ends_in_gap = False
        self.epochs.clear()
        self.producers.reset(offset)
        return task

    def _reload_producers(self) -> None:
        self.snapshots.load_latest(self.producers, self.log_start_offset, self.log_end_offset)
        replay_producers(self.producers, self.segments, self.log_end_offset)
        self.producers.on_high_watermark_updated(self.high_watermark)

    # ---- deleting

    def delete_segments(self, deletable: list[LogSegment]) -> None:
        """Removes segments from the log. Renames their files now, and deletes them after `file.delete.delay.ms`."""
        self._remove_segments(deletable)
        self._delete_unneeded_snapshots()

    def _remove_segments(self, deletable: list[LogSegment]) -> None:
        paths: list[Path] = []
        for segment in deletable:
            self.segments.remove(segment)
            segment.rename(DELETED_SUFFIX)
            segment.release()
            paths += segment.existing_paths()
        if paths:
            self._delete_files_later(paths)

    def _delete_unneeded_snapshots(self) -> None:
        """Keeps the newest snapshot and the snapshots at base offsets: recovery and truncation start from them."""
        if len(self.segments):
            self.snapshots.keep_only({*self.segments.bases, *self.snapshots.offsets[-1:]})

    def replace_segments(self, old: list[LogSegment], new: LogSegment) -> None:
        """Replaces segments by a compacted segment, whose files have the suffix `.swap`."""
        self._remove_segments(old)
        new.rename("")
        self._files.sync_directory(self.directory)
        self.segments.add(new)
        self._delete_unneeded_snapshots()

    def _delete_files_later(self, paths: list[Path]) -> None:
        def remove() -> None:
            # The directory of a future log may have been renamed meanwhile.
            existing = [self.directory / path.name for path in paths]
            self.context.runner.submit(lambda: remove_files(self._files, existing), done)

        def done(result: WorkResult) -> None:
            if result.error is not None:
                _logger.warning(
                    "Partition %s: cannot delete old segment files; the next start tries again: %s",
                    self.tp,
                    result.error,
                )

        if self.context.scheduler is None or self.config.file_delete_delay_ms == 0:
            remove()
        else:
            self.context.scheduler.after(self.config.file_delete_delay_ms, remove)

    def remove_expired_producers(self, expiration_ms: int) -> list[int]:
        """Removes the state of producers that have been idle for `expiration_ms`. Returns their ids."""
        return self.producers.remove_expired(self.context.clock.time_ms(), expiration_ms)

    # ---- flushing

    def flush(self, up_to: int | None = None, all_indexes: bool = False) -> None:
        """Syncs all records below an offset (default: the log end) to disk and moves the recovery point there."""
        task = self.begin_flush(up_to, all_indexes)
        if task is None:
            return
        try:
            task.run()
        except OSError as error:
            if error.errno not in TOO_MANY_OPEN_FILES and self.on_disk_failed is not None:
                self.on_disk_failed(error)
            raise storage_error("flush", self.directory, error) from error
        self.finish_flush(task)

    def flush_if_overdue(self) -> None:
        """Flushes if `flush.messages` demands it. Appends do so. If it fails on a full disk, the records stay in the
        log, and do not count as replicated before this succeeds."""
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush()

    def flush_in_background(self, up_to: int | None = None) -> None:
        """Flushes on the background runner; see `flush`. Does nothing if a flush is already in progress."""
        if self._flush_in_progress:
            return
        task = self.begin_flush(up_to)
        if task is None:
            return
        self._flush_in_progress = True

        def done(result: WorkResult) -> None:
            self._flush_in_progress = False
            if self._closed:
                return  # its directory may have been renamed, so the sync may have failed
            if result.error is None:
                self.finish_flush(task)
                return
            if isinstance(result.error, DiskFullError) or (
                isinstance(result.error, OSError) and result.error.errno in TOO_MANY_OPEN_FILES
            ):
                _logger.warning("Partition %s: cannot flush; the next flush tries again: %s", self.tp, result.error)
                return
            if self.on_disk_failed is None:
                raise KafkaStorageError(f"Cannot flush {self.directory}: {result.error}") from result.error
            self.on_disk_failed(result.error)

        self.context.runner.submit(task.run, done)

    def begin_flush(self, up_to: int | None = None, all_indexes: bool = False) -> FlushTask | None:
        """Returns a task with the files to sync; None if everything is on disk already.

        The transaction index is always synced. The offset and time index of the active segment are synced only with
        `all_indexes`, because recovery can rebuild them.
        """
        self._check_open()
        offset = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        segments = segments_to_flush(self.segments, self.recovery_point, offset, all_indexes)
        if offset <= self.recovery_point and not segments and self.is_directory_synced:
            return None
        try:
            opened: list[DataFile] = []
            for segment in segments:
                with_indexes = all_indexes or segment.needs_sync or segment is not self.segments.active
                opened += open_files_to_sync(segment, self._files, with_indexes)
            opened += self.snapshots.open_for_sync(self.recovery_point, offset)
            if not self.is_directory_synced and self.topic_id is not None:
                opened.append(self._files.open(self.directory / PARTITION_METADATA_FILE))
            write_epochs = self.epochs.prepare_sync(self.log_end_offset)
        except OSError as error:
            if error.errno not in DISK_FULL and self.on_disk_failed is not None:
                self.on_disk_failed(error)
            raise storage_error("flush", self.directory, error) from error
        changes = pending_changes(segments)
        directories = [self.directory] if self.is_directory_synced else [self.directory, self.directory.parent]
        return FlushTask(offset, opened, changes, self._truncation_count, directories, self._files, write_epochs)

    def finish_flush(self, task: FlushTask) -> None:
        """Moves the recovery point after a task has run, unless the log was truncated meanwhile."""
        for segment_or_index, changes in task.changes:
            segment_or_index.synced_changes = max(segment_or_index.synced_changes, changes)
        if task.truncations == self._truncation_count:
            self.recovery_point = max(self.recovery_point, task.offset)
        self.is_directory_synced = True
        self.last_flush_ms = self.context.clock.time_ms()

    def is_flush_due(self) -> bool:
        """Returns True if `flush.ms` has passed and there are unflushed records."""
        unflushed = self.recovery_point < self.log_end_offset
        return unflushed and self.context.clock.time_ms() - self.last_flush_ms >= self.config.flush_ms

    # ---- closing

    def close(self) -> None:
        """Flushes, writes a producer state snapshot, and closes. Opening the log again then needs no recovery."""
        if self._closed:
            return
        self.sync_truncation()
        try:
            if self.must_save:
                self.segments.active.seal()
                self.snapshots.take(self.producers)
                self.flush(all_indexes=True)
        except OSError as error:
            raise storage_error("close", self.directory, error) from error
        self.abandon()

    @property
    def must_save(self) -> bool:
        """True if closing must write or sync anything. An empty log has nothing to save."""
        active = self.segments.active
        if self.recovery_point < self.log_end_offset or not active.has_clean_tail or self._unsynced_truncation:
            return True
        if self.log_end_offset == self.segments.first.base_offset and not self.producers.entries:
            return False
        return (
            self.snapshots.offsets[-1:] != [self.log_end_offset]
            or not active.has_indexes  # after a roll; Kafka treats a segment without indexes as damaged
        )

    def abandon(self) -> None:
        """Closes all files without flushing, because the directory failed or the log is deleted."""
        self._closed = True
        for segment in self.segments:
            segment.release()

    # ---- future logs

    @property
    def is_settled(self) -> bool:
        """False while another thread syncs files of the log, or a truncation is in progress."""
        return not self._flush_in_progress and self._unsynced_truncation is None and self.checkpoint_limit is None

    def skip_to(self, offset: int) -> None:
        """Moves the log end offset of a copy behind its last batch: the end of its original is a gap, too."""
        self._check_open()
        if offset > self.log_end_offset:
            self.log_end_offset = self.producers.end_offset = offset
            self._ends_in_gap = True

    def take_over(self, original: "Log") -> None:
        """Takes over from the log of which this one is a complete copy, with what is not in its batches: the state of
        producers whose batches were deleted, epochs without batches, the offsets that the log has reached."""
        self.producers = original.producers
        self.epochs.replace(original.epochs.entries)
        self._failed_appends = original._failed_appends
        self.cleaned_up_to = original.cleaned_up_to
        self.log_start_offset = original.log_start_offset
        self.high_watermark = original.high_watermark
        self.config = original.config
        self.is_directory_synced = False  # the next flush syncs the new name

    def move_to(self, directory: Path) -> None:
        """Renames the log's directory."""
        self.epochs.rename_directory(self.directory, directory)
        self.directory = directory
        self.snapshots.directory = directory
        for segment in self.segments:
            segment.move_to(directory)
