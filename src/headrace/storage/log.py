"""The log of one partition: segments, offsets, and what may be done with them.

Owned by one thread; every method is called from it. What blocks is handed to the context's runner and comes back
(`flush_in_background`, deletion of files, compaction in `cleaner`).

    log_start_offset ≤ last stable offset ≤ high watermark ≤ log_end_offset

    log_start_offset    the first offset that may be read; moves up by retention and delete-records
    last stable offset  the first record of the first open transaction, or the high watermark
    high watermark      what is replicated; set by who replicates
    log_end_offset      the offset that the next record gets
    recovery_point      everything below is on disk; recovery starts here after a crash

An append changes the state only after its bytes are in the file: a failed write leaves the log as it was.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from headrace.common.background import WorkResult
from headrace.common.config import LONG_MAX
from headrace.common.errors import CorruptRecordError, InvalidRecordError, KafkaStorageError, OffsetOutOfRangeError
from headrace.common.ids import Uuid
from headrace.common.types import Buffer, TopicPartition
from headrace.records import NO_TIMESTAMP, RecordBatch, split_batches
from headrace.storage.append import PreparedAppend, prepare_follower_append, prepare_leader_append
from headrace.storage.config import LARGEST_RELATIVE_OFFSET, LogConfig
from headrace.storage.context import LogContext
from headrace.storage.files import DISK_FULL, NO_HANDLE, DataFile, remove_files, storage_error
from headrace.storage.flushing import FlushTask
from headrace.storage.index import CorruptIndexError
from headrace.storage.leader_epoch_cache import LeaderEpochFileCache
from headrace.storage.producer_snapshots import ProducerSnapshots
from headrace.storage.producer_state import AppendOrigin, BatchMetadata, ProducerStateManager
from headrace.storage.reading import (
    FetchIsolation,
    ReadResult,
    Span,
    aborted_within,
    find_batch,
    find_max_timestamp,
    find_slice,
    find_timestamp,
)
from headrace.storage.rebuild import apply_batch, rebuild_indexes, replay_producers
from headrace.storage.segment import DELETED_SUFFIX, BatchPosition, LogSegment
from headrace.storage.segments import LogSegments
from headrace.storage.txn_index import TransactionIndex

_logger = logging.getLogger(__name__)


__all__ = ["AppendResult", "FetchIsolation", "FlushTask", "Log", "LogContext", "ReadResult"]


class AppendResult(NamedTuple):
    """What became of an append. A duplicate was there already: its offsets are those of the first time."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class Log:
    """Open one with `headrace.storage.loader.open_log`."""

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
        """Up to where compaction has come; kept in the manager's checkpoint."""
        self.on_recovery_point_lowered: Callable[[], None] = lambda: None
        """Called when the checkpoints must be written before anything else happens: before a truncation touches files,
        they must not promise what is about to go; see also `write_checkpoint`."""
        self.is_checkpointed = True
        """Whether there is a checkpoint of the recovery point; a new log has none."""
        self.on_disk_failed: Callable[[BaseException], None] | None = None
        """Called when a sync or a truncation failed, after which it is not known what is on the disk."""
        self.segments.active.jitter_ms = self._random_jitter_ms()
        self._files = context.files
        self._flush_under_way = False
        self._truncation_count = 0
        self._ends_in_gap = False
        self._closed = False

    def __repr__(self) -> str:
        return (
            f"Log({self.tp}, offsets {self.log_start_offset} to {self.log_end_offset}, {len(self.segments)} segments)"
        )

    # ---- appending

    def append_as_leader(
        self, data: Buffer, leader_epoch: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendResult:
        """Takes batches from a producer: checks them, gives them offsets, and writes them once.

        A writable buffer is patched in place. Raises one of the errors of `common.errors`; then nothing was appended.
        """
        self._check_open()
        now_ms = self.context.clock.time_ms()
        prepared = prepare_leader_append(
            data,
            next_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            config=self.config,
            now_ms=now_ms,
            origin=origin,
            max_inflated_bytes=self.context.max_inflated_bytes,
        )
        duplicate = self._check_producers(prepared, origin)
        if duplicate is not None:
            return AppendResult(
                duplicate.base_offset,
                duplicate.last_offset,
                duplicate.timestamp,
                duplicate.last_offset,
                now_ms if self.config.log_append_time else -1,
                self.log_start_offset,
                duplicate=True,
            )
        return self._append(prepared, now_ms, now_ms if self.config.log_append_time else -1)

    def append_as_follower(self, data: Buffer) -> AppendResult:
        """Takes batches from the leader, with the offsets and epochs that it gave them."""
        self._check_open()
        return self._append(prepare_follower_append(data, self.log_end_offset), self.context.clock.time_ms(), -1)

    def _check_producers(self, prepared: PreparedAppend, origin: AppendOrigin) -> BatchMetadata | None:
        writers: set[int] = set()
        for batch, marker in zip(prepared.batches, prepared.markers, strict=True):
            if batch.producer_id >= 0:
                # The second would be checked against what the log knows without the first.
                if batch.producer_id in writers:
                    raise InvalidRecordError(f"producer {batch.producer_id} has more than one batch in one append")
                writers.add(batch.producer_id)
                if origin is AppendOrigin.CLIENT and (duplicate := self.producers.find_duplicate(batch)):
                    return duplicate
                self.producers.check(batch, origin, marker)
        return None

    def _append(self, prepared: PreparedAppend, now_ms: int, log_append_time_ms: int) -> AppendResult:
        data = prepared.data
        try:
            active = self._segment_for(prepared, now_ms)
            positions = [BatchPosition.of(batch, batch.position) for batch in prepared.batches]
            active.append(data, positions, self.config.index_interval_bytes)
        except OSError as error:
            raise storage_error("append to", self.segments.active.path(), error) from error
        self.log_end_offset = prepared.last_offset + 1
        self._ends_in_gap = False
        self._assign_epochs(prepared.batches)
        self._update_producers(prepared, active)
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush()
        return AppendResult(
            prepared.first_offset,
            prepared.last_offset,
            prepared.max_timestamp,
            prepared.offset_of_max_timestamp,
            log_append_time_ms,
            self.log_start_offset,
        )

    def _segment_for(self, prepared: PreparedAppend, now_ms: int) -> LogSegment:
        active = self.segments.active
        if active.should_roll(self.config, len(prepared.data), prepared.last_offset, prepared.max_timestamp, now_ms):
            # A follower's first offset may lie behind the log's end, but a segment follows the one before if it can.
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
        self.producers.end_offset = self.log_end_offset

    def roll(self, base_offset: int | None = None) -> LogSegment:
        """Begins a new segment, at the log's end unless said otherwise, and flushes the old one in the background."""
        self._check_open()
        try:
            return self._roll(base_offset)
        except OSError as error:
            raise storage_error("begin a segment in", self.directory, error) from error

    def _roll(self, base_offset: int | None = None) -> LogSegment:
        base_offset = self.log_end_offset if base_offset is None else max(base_offset, self.log_end_offset)
        old = self.segments.active
        if old.size == 0 and old.base_offset == base_offset:
            return old
        if old.size:
            old.seal()
        if base_offset > self.log_end_offset or self._ends_in_gap:
            self._checkpoint_gap(base_offset)
        elif not self.is_checkpointed:
            self.write_checkpoint()
        segment = self._create_segment(base_offset)
        self.segments.add(segment)
        if old.size == 0:
            self.delete_segments([old])  # its base is too far away to be of use
            self.increment_log_start_offset(self.segments.first.base_offset)
        self.producers.end_offset = self.log_end_offset
        self.snapshots.take(self.producers, sync=False)
        self.flush_in_background(up_to=base_offset)
        return segment

    def _checkpoint_gap(self, base_offset: int) -> None:
        """A segment is about to begin behind the end of the one before. Recovery takes a gap between segments for lost
        records, and truncation_count the log off there, unless it lies below the recovery point."""
        self.flush()
        self.log_end_offset = self.recovery_point = base_offset
        self._ends_in_gap = False
        self.write_checkpoint()

    def write_checkpoint(self) -> None:
        """Has the recovery point written down now."""
        self.on_recovery_point_lowered()
        self.is_checkpointed = True
        self._check_open()

    def _create_segment(self, base_offset: int) -> LogSegment:
        segment = LogSegment(self.directory, base_offset, self._files, created_ms=self.context.clock.time_ms())
        segment.create(self.config.segment_bytes if self.config.preallocate else 0)
        segment.jitter_ms = self._random_jitter_ms()
        return segment

    def _random_jitter_ms(self) -> int:
        longest = min(self.config.segment_jitter_ms, self.config.max_segment_ms)
        return self.context.random.randrange(longest) if longest else 0

    def _check_open(self) -> None:
        if self._closed:
            raise KafkaStorageError(f"the log of {self.tp} is closed")

    # ---- reading

    @property
    def last_stable_offset(self) -> int:
        unstable = self.producers.first_unstable_offset()
        if unstable is None:
            return self.high_watermark
        # A transaction may have begun below the log's start, if that was moved up since.
        return max(min(unstable, self.high_watermark), self.log_start_offset)

    def _readable_end(self, isolation: FetchIsolation) -> int:
        if isolation is FetchIsolation.LOG_END:
            return self.log_end_offset
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return self.high_watermark
        if isolation is FetchIsolation.TXN_COMMITTED:
            return self.last_stable_offset
        raise TypeError(f"isolation is a value of FetchIsolation, not {isolation!r}")

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: FetchIsolation = FetchIsolation.LOG_END,
        first_batch_whole: bool = True,
    ) -> ReadResult:
        """A slice of at most `max_bytes` that begins with the batch that holds `offset`, or the next one there is.

        A first batch larger than that comes whole, or, without `first_batch_whole`, not at all. The last batch of a
        slice may be cut short.
        """
        self._check_open()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.tp} is out of range: it has {self.log_start_offset} to {self.log_end_offset}"
            )
        end = self._readable_end(isolation)
        span = Span(offset, end, self.log_end_offset)
        found = aborted = None
        try:
            if offset < end:
                found = find_slice(self.segments, span, max_bytes, first_batch_whole, self.config)
            if isolation is FetchIsolation.TXN_COMMITTED:
                aborted = aborted_within(self.segments, offset, found[1]) if found is not None else []
        except OSError as error:
            raise storage_error("read", self.directory, error) from error
        return ReadResult(
            found[0] if found is not None else None,
            self.high_watermark,
            self.last_stable_offset,
            self.log_start_offset,
            aborted,
        )

    def start_of_batch_at(self, offset: int) -> int:
        """Where the batch begins that holds an offset; the offset itself if none does."""
        at = find_batch(self.segments.from_offset(offset)[0], offset, self.config)
        return min(at.base_offset, offset) if at is not None else offset

    def batches(self, offset: int | None = None) -> Iterator[RecordBatch]:
        """Every batch from an offset (or the start) to the log's end. For tools and tests; a reader uses `read`."""
        next_offset = self.log_start_offset if offset is None else offset
        while next_offset < self.log_end_offset:
            read = self.read(next_offset, 1024 * 1024)
            if read.slice is None:
                return
            found = split_batches(read.slice.read(), allow_partial=True)
            if not found:
                raise CorruptRecordError(f"{self.tp} has no whole batch at offset {next_offset}")
            yield from found
            next_offset = found[-1].next_offset

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Timestamp and offset of the first record that is not older than `timestamp`; None if all are."""
        self._check_open()
        timestamp = max(NO_TIMESTAMP, min(timestamp, LONG_MAX))
        try:
            return find_timestamp(self.segments, timestamp, self.log_start_offset, self.config)
        except OSError as error:
            raise storage_error("read", self.directory, error) from error

    def max_timestamp(self) -> tuple[int, int] | None:
        """The newest timestamp and the first offset that has it; None in a log without timestamps."""
        self._check_open()
        try:
            return find_max_timestamp(self.segments, self.config)
        except OSError as error:
            raise storage_error("read", self.directory, error) from error

    @property
    def size_in_bytes(self) -> int:
        return self.segments.size_in_bytes

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above the one asked for, and where it ended; (-1, -1) if that is not known."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # ---- moving offsets

    def update_high_watermark(self, offset: int) -> int:
        """Moves the high watermark, within the log, and returns where it is now."""
        self.high_watermark = max(self.log_start_offset, min(offset, self.log_end_offset))
        self.producers.on_high_watermark_updated(self.high_watermark)
        return self.high_watermark

    def delete_records(self, before_offset: int) -> int:
        """Moves the log's start up to an offset, at most to the high watermark. Returns the new start."""
        self._check_open()
        if before_offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"records of {self.tp} can be deleted up to {self.high_watermark} (high watermark), not {before_offset}"
            )
        self.increment_log_start_offset(before_offset)
        return self.log_start_offset

    def increment_log_start_offset(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.high_watermark = max(self.high_watermark, offset)
            self.epochs.truncate_from_start(offset)

    def truncate_to(self, offset: int) -> bool:
        """Removes everything from an offset on, as a follower does that parted from its leader. False if none is."""
        self._check_open()
        if offset < 0:
            raise ValueError(f"cannot truncate to offset {offset}")
        if offset >= self.log_end_offset:
            return False
        if offset < self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        self._lower_checkpoints(offset)
        try:
            # From the end on: a crash in between leaves no gap.
            self.delete_segments([segment for segment in reversed(list(self.segments)) if segment.base_offset > offset])
            if not len(self.segments):
                self.segments.add(self._create_segment(offset))
            self._truncate_active(offset)
            self.snapshots.drop_beyond(offset)
            # What was dropped must not come back behind what is appended next.
            self._files.sync_directory(self.directory)
            self.log_end_offset = offset
            self._ends_in_gap = True
            self.update_high_watermark(min(self.high_watermark, offset))
            self.epochs.truncate_from_end(offset)
            self._reload_producers()
        except OSError as error:
            self._fail("truncate", error)
        return True

    def _lower_checkpoints(self, offset: int) -> None:
        """No checkpoint may name an offset that the log will not have."""
        self._truncation_count += 1
        if self.cleaned_up_to is not None:
            self.cleaned_up_to = min(self.cleaned_up_to, offset)
        if offset < max(self.recovery_point, self.log_start_offset):
            before = self.recovery_point, self.log_start_offset
            self.recovery_point = min(self.recovery_point, offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            try:
                self.write_checkpoint()
            except KafkaStorageError:
                self.recovery_point, self.log_start_offset = before
                raise

    def _fail(self, action: str, error: OSError) -> NoReturn:
        """The log is neither what it was nor what it was to become: nothing may be done with it any more."""
        if self.on_disk_failed is not None:
            self.on_disk_failed(error)
        self.abandon()
        raise storage_error(action, self.directory, error) from error

    def _truncate_active(self, offset: int) -> None:
        active = self.segments.active
        try:
            active.truncate_to(offset)
        except CorruptIndexError:
            rebuild_indexes(active, self.config)
            active.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Removes everything and goes on at an offset, as a follower does whose leader no longer has what it lacks."""
        self._check_open()
        if not 0 <= offset < LONG_MAX:
            raise ValueError(f"a log cannot start at offset {offset}")
        self._lower_checkpoints(offset)
        try:
            self.delete_segments(list(reversed(list(self.segments))))
            self.snapshots.keep_only(set())
            self.segments.add(self._create_segment(offset))
            self._files.sync_directory(self.directory)
        except OSError as error:
            self._fail("start over in", error)
        self.log_start_offset = self.log_end_offset = self.high_watermark = offset
        self._ends_in_gap = False
        self.epochs.clear()
        self.producers.reset(offset)

    def _reload_producers(self) -> None:
        self.snapshots.load_latest(self.producers, self.log_start_offset, self.log_end_offset)
        replay_producers(self.producers, self.segments, self.log_end_offset)
        self.producers.on_high_watermark_updated(self.high_watermark)

    # ---- forgetting

    def delete_segments(self, deletable: list[LogSegment]) -> None:
        """Takes segments out of the log: renamed at once, removed from the disk later."""
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
        """One at the base of each segment, and the newest, are what recovery and truncation start from."""
        if len(self.segments):
            self.snapshots.keep_only({*self.segments.bases, *self.snapshots.offsets[-1:]})

    def replace_segments(self, old: list[LogSegment], new: LogSegment) -> None:
        """Puts a compacted segment, whose files end in `.swap`, in the place of the ones that it was made from."""
        self._remove_segments(old)
        new.rename("")
        self._files.sync_directory(self.directory)
        self.segments.add(new)
        self._delete_unneeded_snapshots()

    def _delete_files_later(self, paths: list[Path]) -> None:
        def remove() -> None:
            self.context.runner.submit(lambda: remove_files(self._files, paths), done)

        def done(outcome: WorkResult) -> None:
            if outcome.error is not None:
                _logger.warning("%s: cannot remove files: %s; the next start tries again", self.tp, outcome.error)

        if self.context.scheduler is None or self.config.file_delete_delay_ms == 0:
            remove()
        else:
            self.context.scheduler.after(self.config.file_delete_delay_ms, remove)

    def remove_expired_producers(self, expiration_ms: int) -> list[int]:
        """Forgets producers that have not written for so long. Returns their ids."""
        return self.producers.remove_expired(self.context.clock.time_ms(), expiration_ms)

    # ---- reaching the disk

    def flush(self, up_to: int | None = None, all_indexes: bool = False) -> None:
        """Waits until everything below an offset (the log's end) is on disk, and moves the recovery point there."""
        task = self.begin_flush(up_to, all_indexes)
        if task is None:
            return
        try:
            task.run()
        except OSError as error:
            if error.errno not in NO_HANDLE and self.on_disk_failed is not None:
                self.on_disk_failed(error)
            raise storage_error("flush", self.directory, error) from error
        self.finish_flush(task)

    def flush_in_background(self, up_to: int | None = None) -> None:
        """As `flush`, without waiting. One at a time: what comes meanwhile is in the next."""
        if self._flush_under_way:
            return
        task = self.begin_flush(up_to)
        if task is None:
            return
        self._flush_under_way = True

        def done(outcome: WorkResult) -> None:
            self._flush_under_way = False
            if self._closed:
                return  # and perhaps moved: then there was no directory to sync
            if outcome.error is None:
                self.finish_flush(task)
                return
            if isinstance(outcome.error, OSError) and outcome.error.errno in NO_HANDLE:
                _logger.warning("%s: cannot flush: %s; the next flush does it", self.tp, outcome.error)
                return
            if self.on_disk_failed is None:
                raise KafkaStorageError(f"cannot flush {self.directory}: {outcome.error}") from outcome.error
            self.on_disk_failed(outcome.error)

        self.context.runner.submit(task.run, done)

    def begin_flush(self, up_to: int | None = None, all_indexes: bool = False) -> FlushTask | None:
        """Collects what to sync; None if everything is on disk already.

        Indexes of the active segment are written but synced only with `all_indexes`: recovery does without them, but
        for the aborted transactions below the recovery point.
        """
        self._check_open()
        offset = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        segments = self._segments_to_flush(offset, all_indexes)
        if offset <= self.recovery_point and not segments:
            return None
        try:
            opened: list[DataFile] = []
            for segment in segments:
                segment.save_indexes()
                opened.append(segment.file)
                if all_indexes or segment.needs_sync or segment is not self.segments.active:
                    opened += segment.open_indexes()
                elif segment.txn_index.needs_sync:
                    opened.append(self._files.open(segment.txn_index.path))
            opened += self.snapshots.open_for_sync(self.recovery_point, offset)
            self.epochs.sync()
        except OSError as error:
            if error.errno not in DISK_FULL and self.on_disk_failed is not None:
                self.on_disk_failed(error)
            raise storage_error("flush", self.directory, error) from error
        changed: list[LogSegment | TransactionIndex] = [*segments, *(segment.txn_index for segment in segments)]
        changes = [(each, each.changes) for each in changed]
        return FlushTask(offset, opened, changes, self._truncation_count, self.directory, self._files)

    def _segments_to_flush(self, offset: int, all_indexes: bool) -> list[LogSegment]:
        """Those with records between the recovery point and an offset, and those whose indexes have changed since."""
        first = self.segments.from_offset(self.recovery_point)[0].base_offset
        return [
            segment
            for segment in self.segments
            if segment.needs_sync
            or (all_indexes and segment is self.segments.active)
            or (self.recovery_point < offset and first <= segment.base_offset < offset)
        ]

    def finish_flush(self, task: FlushTask) -> None:
        for changed, changes in task.changes:
            changed.synced_changes = max(changed.synced_changes, changes)
        if task.truncations == self._truncation_count:
            self.recovery_point = max(self.recovery_point, task.offset)
        self.last_flush_ms = self.context.clock.time_ms()

    def is_flush_due(self) -> bool:
        """Whether `flush.ms` is over for records that are in memory only."""
        unflushed = self.recovery_point < self.log_end_offset
        return unflushed and self.context.clock.time_ms() - self.last_flush_ms >= self.config.flush_ms

    # ---- leaving

    def close(self) -> None:
        """Flushes, takes a snapshot of the producers, and closes. After this, opening the log needs no scan."""
        if self._closed:
            return
        try:
            active = self.segments.active
            if (
                self.recovery_point < self.log_end_offset
                or self.snapshots.offsets[-1:] != [self.log_end_offset]
                or not active.has_indexes  # rolled, and empty since: Kafka takes a segment without them for damaged
                or not active.is_tidy
            ):
                active.seal()
                self.snapshots.take(self.producers)
                self.flush(all_indexes=True)
        except OSError as error:
            raise storage_error("close", self.directory, error) from error
        self.abandon()

    def abandon(self) -> None:
        """Lets go of all files without writing anything: its directory has failed, or is being deleted."""
        self._closed = True
        for segment in self.segments:
            segment.release()

    def move_to(self, directory: Path) -> None:
        """Renames the log's directory."""
        self._files.rename(self.directory, directory)
        self.directory = directory
        self.epochs.move_to(directory)
        self.snapshots.directory = directory
        for segment in self.segments:
            segment.move_to(directory)
