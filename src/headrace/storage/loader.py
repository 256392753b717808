"""The log loader: opens the log in a directory, completes interrupted work, and recovers after a crash.

Interrupted work, by file:

    .deleted, .cleaned       removed: a pending deletion, or an unfinished compaction
    .log.swap                replaces the segments that it covers: a complete compacted segment
    index without its .log   removed

After a clean shutdown nothing is scanned. The recovery point is the log end offset, and the newest snapshot has the
producer state at that offset.

After a crash:

- The log is trusted up to the recovery point. If anything below it is damaged, recovery scans the whole log.
- Above the recovery point, recovery reads every batch. It truncates the log at the first batch that is incomplete, out
  of order or fails its CRC.
- The scan rebuilds indexes, producer state and leader epochs.
- Segments above the recovery point must follow each other without a gap. A power loss may remove the end of a segment
  although the next segment exists: the log then ends before the gap.
- The gaps that compaction leaves always lie below the checkpointed recovery point.
"""

import logging
import re
from dataclasses import dataclass
from pathlib import Path

from headrace.common.errors import CorruptRecordError, KafkaStorageError, UnsupportedForMessageFormatError
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition
from headrace.records import RecordBatch
from headrace.storage.checkpoints import (
    PARTITION_METADATA_FILE,
    create_partition_metadata,
    read_partition_metadata,
    write_partition_metadata,
)
from headrace.storage.config import LARGEST_RELATIVE_OFFSET, LogConfig
from headrace.storage.files import FileInfo, FileSystem, storage_error
from headrace.storage.index import CorruptIndexError, OffsetIndex, TimeIndex
from headrace.storage.leader_epoch_cache import EpochEntry, LeaderEpochFileCache
from headrace.storage.log import Log, LogContext
from headrace.storage.producer_snapshots import SNAPSHOT_SUFFIX, ProducerSnapshots
from headrace.storage.producer_state import ProducerStateManager
from headrace.storage.rebuild import apply_batch, rebuild_indexes, replay_producers
from headrace.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    BatchPosition,
    LogSegment,
    SegmentFiles,
    segment_name,
)
from headrace.storage.segments import LogSegments
from headrace.storage.txn_index import TransactionIndex

_logger = logging.getLogger(__name__)

_OFFSET_FILE = re.compile(r"(\d{20})(\.[a-z.]+)")
_INDEX_SUFFIXES = (OffsetIndex.suffix, TimeIndex.suffix, TransactionIndex.suffix)
_BROKEN = (CorruptRecordError, CorruptIndexError, UnsupportedForMessageFormatError)


@dataclass
class LoadReport:
    """Counts of the work that opening a log required."""

    scanned_batches: int = 0
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    rebuilt_indexes: int = 0
    finished_swaps: int = 0
    removed_files: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in vars(self).items() if count)


def open_log(
    directory: Path,
    tp: TopicPartition,
    config: LogConfig,
    context: LogContext,
    *,
    clean: bool = False,
    recovery_point: int | None = None,
    log_start_offset: int = 0,
    topic_id: Uuid | None = None,
) -> tuple[Log, LoadReport]:
    """Opens the log in a directory; creates the directory if it does not exist.

    `clean` is True after a clean shutdown. `recovery_point` and `log_start_offset` come from the checkpoints;
    `recovery_point` is None if the checkpoint does not contain this log.
    """
    try:
        listing = _list_or_create(directory, context.files)
        loader = _Loader(directory, tp, config, context, recovery_point, log_start_offset)
        stored_id = loader.read_topic_id(listing)
        if topic_id is not None and stored_id is not None and stored_id != topic_id:
            raise KafkaStorageError(f"Log directory {directory} belongs to topic id {stored_id}, not {topic_id}")
        if topic_id is not None and stored_id is None:
            write_partition_metadata(directory, topic_id, context.files)
        if log_start_offset == 0 and not recovery_point and listing.keys() <= {PARTITION_METADATA_FILE}:
            log = _new_log(directory, tp, config, context, stored_id or topic_id)
            log.is_checkpointed = recovery_point is not None
            return log, loader.report
        return loader.load(listing, clean, stored_id or topic_id)
    except OSError as error:
        raise storage_error("open", directory, error) from error


def _list_or_create(directory: Path, files: FileSystem) -> dict[str, FileInfo]:
    try:
        return files.list(directory)
    except FileNotFoundError:
        files.make_directory(directory)
        return {}


def create_log(
    directory: Path, tp: TopicPartition, config: LogConfig, context: LogContext, topic_id: Uuid | None = None
) -> Log:
    """Creates a log, or opens the one in an existing directory. Syncs nothing: the first flush of the log does."""
    if context.files.exists(directory):
        return open_log(directory, tp, config, context, topic_id=topic_id)[0]
    context.files.add_directory(directory)
    if topic_id is not None:
        create_partition_metadata(directory, topic_id, context.files)
    return _new_log(directory, tp, config, context, topic_id)


def _new_log(directory: Path, tp: TopicPartition, config: LogConfig, context: LogContext, topic_id: Uuid | None) -> Log:
    """Returns a log without records. The first append creates the segment file."""
    files = context.files
    log = Log(
        directory,
        tp,
        config,
        context,
        segments=LogSegments([LogSegment(directory, 0, files, created_ms=context.clock.time_ms())]),
        epochs=LeaderEpochFileCache(directory, files),
        producers=ProducerStateManager(),
        snapshots=ProducerSnapshots(directory, files),
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        topic_id=topic_id,
    )
    log.is_checkpointed = log.is_directory_synced = False
    return log


class _Loader:
    """Loads one log: its segments, leader epochs and producer state."""

    def __init__(
        self,
        directory: Path,
        tp: TopicPartition,
        config: LogConfig,
        context: LogContext,
        recovery_point: int | None,
        log_start_offset: int,
    ):
        self.directory = directory
        self.tp = tp
        self.config = config
        self.context = context
        self.files = context.files
        self.recovery_point = recovery_point or 0
        self.checkpointed_point = recovery_point
        self.log_start_offset = log_start_offset
        self.report = LoadReport()
        self.segments = LogSegments()
        self.producers = ProducerStateManager()
        self.has_producers = False
        self.epochs = LeaderEpochFileCache(directory, context.files)
        self.checkpointed_epochs: list[EpochEntry] = []
        self.epochs_known_up_to = 0
        self.snapshots = ProducerSnapshots(directory, context.files)

    def read_topic_id(self, listing: dict[str, FileInfo]) -> Uuid | None:
        """Returns the topic id; None for a log that was created before topics had ids, or just before a power loss.

        The first flush syncs the file, so it can only be damaged without a recovery point if nothing was flushed yet.
        """
        if PARTITION_METADATA_FILE not in listing:
            return None
        try:
            return read_partition_metadata(self.directory, self.files)
        except KafkaStorageError as error:
            if self.recovery_point:
                raise
            _logger.warning("Partition %s: its topic id was not on disk before a crash: %s", self.tp, error)
            self._remove(listing, PARTITION_METADATA_FILE)
            return None

    def load(self, listing: dict[str, FileInfo], clean: bool, topic_id: Uuid | None) -> tuple[Log, LoadReport]:
        listing = self._complete_interrupted_work(listing)
        self._open_segments(listing)
        if len(self.segments):
            self.log_start_offset = max(self.log_start_offset, self.segments.first.base_offset)
        if LeaderEpochFileCache.file_name in listing or self._has_records():
            self._load_epochs(listing)
        end_offset = self._end_after_clean_shutdown() if clean and self._is_plausible() else None
        if end_offset is None:
            end_offset = self._recover()
        end_offset = self._ensure_segment(end_offset)
        self._restore_producers(end_offset)
        self.epochs.truncate_from_start(self.log_start_offset)
        self.epochs.truncate_from_end(end_offset)
        log = Log(
            self.directory,
            self.tp,
            self.config,
            self.context,
            segments=self.segments,
            epochs=self.epochs,
            producers=self.producers,
            snapshots=self.snapshots,
            log_start_offset=self.log_start_offset,
            log_end_offset=end_offset,
            recovery_point=min(self.recovery_point, end_offset),
            topic_id=topic_id,
        )
        log.is_checkpointed = self.checkpointed_point is not None
        # Closing an empty log syncs nothing, not even its topic id.
        log.is_directory_synced = clean and bool(self.checkpointed_point)
        if log.log_end_offset - log.recovery_point >= self.config.flush_messages:
            log.flush()  # the crash may have come before the sync of these records, and leaders count on it
        return log, self.report

    # ---- interrupted work

    def _complete_interrupted_work(self, listing: dict[str, FileInfo]) -> dict[str, FileInfo]:
        """Completes or undoes interrupted deletions and compactions. Returns the remaining files."""
        for name in [name for name in listing if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp"))]:
            self._remove(listing, name)
        for name in sorted(name for name in listing if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
            self._finish_swap(listing, name)
        for name in [name for name in listing if name.endswith(SWAP_SUFFIX)]:
            self._remove(listing, name)  # indexes of a segment that was not complete
        logs = {name.removesuffix(LOG_SUFFIX) for name in listing if name.endswith(LOG_SUFFIX)}
        for name in [name for name in listing if name.endswith(_INDEX_SUFFIXES) and name.split(".")[0] not in logs]:
            self._remove(listing, name)
        return listing

    def _remove(self, listing: dict[str, FileInfo], name: str) -> None:
        self.files.remove(self.directory / name)
        del listing[name]
        self.report.removed_files += 1

    def _finish_swap(self, listing: dict[str, FileInfo], log_name: str) -> None:
        """Replaces the segments whose base offsets a compacted segment covers."""
        base_offset = int(log_name[:20])
        swapped = LogSegment(
            self.directory,
            base_offset,
            self.files,
            created_ms=listing[log_name].modified_ms,
            file_sizes=SegmentFiles(listing[log_name].size),
            suffix=SWAP_SUFFIX,
        )
        end_offset = max((batch.last_offset + 1 for batch in swapped.positions()), default=base_offset + 1)
        swapped.release()
        # A `.log` file is renamed after its indexes. While the old log with the same base offset exists, indexes with
        # final names are the old ones; without it, they are the new ones, renamed just before the crash.
        first_old = base_offset if segment_name(base_offset) + LOG_SUFFIX in listing else base_offset + 1
        for name in sorted(listing, key=lambda name: name.endswith(LOG_SUFFIX)):
            matched = _OFFSET_FILE.fullmatch(name)
            if matched and matched[2] in (LOG_SUFFIX, *_INDEX_SUFFIXES) and first_old <= int(matched[1]) < end_offset:
                self._remove(listing, name)
        # Indexes first, as in compaction: after a crash here, the next start finds the `.log.swap` again.
        for suffix in (*_INDEX_SUFFIXES, LOG_SUFFIX):
            name = segment_name(base_offset) + suffix
            if name + SWAP_SUFFIX in listing:
                self.files.rename(self.directory / (name + SWAP_SUFFIX), self.directory / name)
                listing[name] = listing.pop(name + SWAP_SUFFIX)
        self.files.sync_directory(self.directory)
        self.report.finished_swaps += 1

    # ---- loading

    def _open_segments(self, listing: dict[str, FileInfo]) -> None:
        snapshots: set[int] = set()
        for name, info in listing.items():
            matched = _OFFSET_FILE.fullmatch(name)
            if not matched:
                continue
            base_offset = int(matched[1])
            if matched[2] == SNAPSHOT_SUFFIX:
                snapshots.add(base_offset)
            elif matched[2] == LOG_SUFFIX:
                index_files = (listing.get(segment_name(base_offset) + suffix) for suffix in _INDEX_SUFFIXES)
                file_sizes = SegmentFiles(info.size, *(index_file and index_file.size for index_file in index_files))
                self.segments.add(
                    LogSegment(
                        self.directory, base_offset, self.files, created_ms=info.modified_ms, file_sizes=file_sizes
                    )
                )
        self.snapshots.set_offsets(snapshots)

    def _has_records(self) -> bool:
        return any(segment.size for segment in self.segments)

    def _load_epochs(self, listing: dict[str, FileInfo]) -> None:
        try:
            if LeaderEpochFileCache.file_name in listing:
                self.epochs.load()
            self.checkpointed_epochs = self.epochs.entries
            if self._knows_first_epoch():
                return
        except (KafkaStorageError, *_BROKEN):
            pass
        # Rebuild the cache from the log: every batch has the epoch of its leader.
        self.epochs.clear()
        try:
            for segment in self.segments:
                for _, header in segment.headers():
                    self._assign_epoch(header)
        except _BROKEN:
            pass  # recovery handles it
        self.checkpointed_epochs = self.epochs.entries

    def _knows_first_epoch(self) -> bool:
        """Returns False if the checkpoint lacks the first batch's epoch.

        The crash may have lost the checkpoint or a new log start offset.
        """
        if self.epochs.entries and self.epochs.entries[0].start_offset <= self.log_start_offset:
            return True
        for segment in self.segments:
            for _, header in segment.headers():
                if header.last_offset >= self.log_start_offset:
                    first_offset = max(header.base_offset, self.log_start_offset)
                    return header.leader_epoch < 0 or self.epochs.epoch_for_offset(first_offset) is not None
        return True

    def _assign_epoch(self, batch: RecordBatch) -> None:
        """Assigns the leader epoch of a scanned batch.

        Compaction may have removed the first batches of an epoch, or all of them. Then only the checkpoint has its
        start offset. A checkpoint entry is used if it fits between the previous batch and this one.
        """
        if batch.leader_epoch > self.epochs.latest_epoch:
            for entry in self.checkpointed_epochs:
                if (
                    self.epochs.latest_epoch < entry.epoch <= batch.leader_epoch
                    and self.epochs_known_up_to <= entry.start_offset <= batch.base_offset
                ):
                    self.epochs.assign(entry.epoch, entry.start_offset)
            if batch.leader_epoch > self.epochs.latest_epoch:
                self.epochs.assign(batch.leader_epoch, batch.base_offset)
        self.epochs_known_up_to = batch.next_offset

    def _is_plausible(self) -> bool:
        """Returns True if the recovery point matches the files, as it does after a clean shutdown."""
        if not len(self.segments):
            return True
        active = self.segments.active
        return (self.recovery_point > active.base_offset) == (
            active.size > 0
        ) and self.recovery_point >= active.base_offset

    def _end_after_clean_shutdown(self) -> int | None:
        """Returns the log end offset without a scan. Returns None if the log is so damaged that it needs a scan."""
        end_offset = max(self.recovery_point, self.log_start_offset)
        try:
            self._check_indexes(self.segments)
            if len(self.segments):
                self._reload_producers(end_offset)
                self.has_producers = True
        except _BROKEN:
            return None
        return end_offset

    def _check_indexes(self, segments: LogSegments) -> None:
        """Rebuilds missing and damaged indexes."""
        for segment in segments:
            try:
                if segment.size and not segment.has_indexes:
                    raise CorruptIndexError(f"{segment.path()} has no index")
                segment.offset_index.check()
                segment.time_index.check()
            except CorruptIndexError:
                rebuild_indexes(segment, self.config)
                self.report.rebuilt_indexes += 1
            try:
                segment.txn_index.check()
            except CorruptIndexError:
                self._rebuild_txn_index(segment)

    def _rebuild_txn_index(self, segment: LogSegment, end_offset: int | None = None) -> None:
        """Rebuilds the transaction index of a segment, or of its part below an offset, from the log."""
        segment.txn_index.forget()
        self.report.rebuilt_indexes += 1
        producers = ProducerStateManager()
        self.snapshots.load_latest(producers, self.log_start_offset, segment.base_offset)
        replay_producers(producers, self.segments, segment.base_offset)
        for position, header in segment.headers():
            batch = segment.load(BatchPosition.of(header, position)) if header.is_control else header
            apply_batch(producers, segment, batch)
            if end_offset is not None and header.next_offset >= end_offset:
                break
        segment.txn_index.replace()
        segment.changes += 1

    def _ensure_segment(self, end_offset: int) -> int:
        """Ensures that the log has an active segment and does not end before it starts. Returns the log end offset."""
        if len(self.segments) and end_offset < self.log_start_offset:
            # All records that survived the crash lie below the log start offset.
            self._drop(list(self.segments))
        if not len(self.segments):
            end_offset = self.log_start_offset
            segment = LogSegment(self.directory, end_offset, self.files, created_ms=self.context.clock.time_ms())
            segment.create()
            segment.release()  # most new partitions get no records at once
            self.segments.add(segment)
        return end_offset

    def _drop(self, deletable: list[LogSegment]) -> None:
        """Deletes segments from the end backwards, and syncs: a segment must not reappear after newly appended ones."""
        for segment in reversed(deletable):
            self.segments.remove(segment)
            self.report.truncated_bytes += segment.size
            for path in segment.existing_paths():
                self.files.remove(path)
        if deletable:
            self.files.sync_directory(self.directory)

    # ---- recovery

    def _recover(self) -> int:
        """Scans from the recovery point, or the whole log if anything below it is damaged. Returns the end offset."""
        # From the first segment, not from the log start offset: data below it must be valid, too.
        first_base_offset = self.segments.first.base_offset if len(self.segments) else self.log_start_offset
        try:
            return self._recover_from(max(self.recovery_point, first_base_offset))
        except _BROKEN:
            return self._recover_from(first_base_offset)

    def _recover_from(self, start: int) -> int:
        # A segment that ends at the recovery point may have been flushed before it was sealed, so it is not trusted.
        trusted = [segment for segment in self.segments if self._end_of(segment) < start]
        self._check_indexes(LogSegments(trusted))
        self.snapshots.drop_beyond(start)
        self.snapshots.load_latest(self.producers, self.log_start_offset, start)
        self.epochs.truncate_from_end(start)
        self.epochs_known_up_to = start
        end_offset = self.segments.first.base_offset if len(self.segments) else start
        if trusted:
            end_offset = self._end_of(trusted[-1])
            replay_producers(self.producers, LogSegments(trusted), end_offset)
        unflushed = [segment for segment in self.segments if segment not in LogSegments(trusted)]
        for index, segment in enumerate(unflushed):
            if segment.base_offset < end_offset or self._follows_a_loss(segment, end_offset):
                self._drop(unflushed[index:])
                break
            is_valid, end_offset = self._recover_segment(segment, max(start, segment.base_offset), end_offset)
            if not is_valid:
                self._drop(unflushed[index + 1 :])
                break
        self.has_producers = self.producers.end_offset == end_offset
        return end_offset

    def _follows_a_loss(self, segment: LogSegment, end_offset: int) -> bool:
        """Returns True if the end of the previous segment is lost: it was not synced, but this segment was.

        Intended gaps (see `Log._checkpoint_gap` and compaction) lie below the checkpointed recovery point.
        """
        recovery_point = self.checkpointed_point
        return recovery_point is not None and max(end_offset, recovery_point) < segment.base_offset

    def _end_of(self, segment: LogSegment) -> int:
        return self.segments.end_of(segment, 2**63 - 1)

    def _recover_segment(self, segment: LogSegment, start: int, end_offset: int) -> tuple[bool, int]:
        """Scans a segment from an offset on. Returns True if all batches are valid, and the end offset."""
        position, next_offset = self._start_of_scan(segment, start, end_offset)
        segment.changes += 1
        try:
            for batch_position, batch in segment.batches(position):
                batch.check_crc()
                self._check_order(segment, batch, next_offset)
                apply_batch(self.producers, segment, batch)
                self._assign_epoch(batch)
                segment.index_batch(BatchPosition.of(batch, batch_position), self.config.index_interval_bytes)
                self.report.scanned_batches += 1
                self.report.scanned_bytes += batch.size_in_bytes
                position, next_offset = batch_position + batch.size_in_bytes, batch.next_offset
        except _BROKEN:
            self.report.truncated_bytes += segment.size - position
            segment.truncate_at(position, next_offset)
            segment.save_indexes(last=True)
            # No loss if the next segment follows directly: a preallocated file ends in zeros.
            return next_offset == self._end_of(segment), next_offset
        segment.save_indexes(last=True)
        return True, next_offset

    def _start_of_scan(self, segment: LogSegment, start: int, end_offset: int) -> tuple[int, int]:
        """Truncates the indexes at the scan's start. Returns its position and the lowest offset allowed there."""
        if start <= segment.base_offset:
            segment.reset_indexes()
            segment.txn_index.reset()
            return 0, max(segment.base_offset, end_offset)
        is_indexed = self._truncate_indexes(segment, start)
        indexed_batch = segment.find(max(segment.offset_index.last()[0], segment.base_offset))
        position, next_offset = 0, segment.base_offset
        for batch in segment.positions(indexed_batch.position if indexed_batch is not None else 0):
            if batch.last_offset >= start:
                break
            if not is_indexed:
                segment.index_batch(batch, self.config.index_interval_bytes)
            position, next_offset = batch.position + batch.size, batch.last_offset + 1
            if next_offset >= start:
                break  # the rest is not validated yet
        segment.restore_max_timestamp(position)
        replay_producers(self.producers, LogSegments([segment]), next_offset)
        return position, next_offset

    def _truncate_indexes(self, segment: LogSegment, start: int) -> bool:
        """Truncates the indexes to an offset. Resets the offset and time index and returns False if they are damaged.

        Both may be damaged after a crash, because they are not always synced.
        """
        try:
            segment.txn_index.truncate_to(start)
        except CorruptIndexError:
            self._rebuild_txn_index(segment, start)
        try:
            segment.offset_index.check()
            segment.time_index.check()
            segment.offset_index.drop_torn_tail()
            segment.time_index.drop_torn_tail()
            segment.offset_index.truncate_to(start)
            segment.time_index.truncate_to(start)
            segment.check_last_entries()
        except CorruptIndexError:
            segment.reset_indexes()
            self.report.rebuilt_indexes += 1
            return False
        return True

    def _check_order(self, segment: LogSegment, batch: RecordBatch, min_offset: int) -> None:
        if batch.base_offset < min_offset or batch.last_offset < batch.base_offset:
            raise CorruptRecordError(f"{segment.path()}: offset {batch.base_offset} is below the expected {min_offset}")
        if batch.last_offset - segment.base_offset > LARGEST_RELATIVE_OFFSET:
            raise CorruptRecordError(f"{segment.path()}: offset {batch.last_offset} is too far from the base offset")

    def _restore_producers(self, end_offset: int) -> None:
        self.snapshots.drop_beyond(end_offset)  # snapshots of truncated records must not match a later log end
        if not self.has_producers or self.producers.end_offset != end_offset:
            self._reload_producers(end_offset)
        self.snapshots.keep_only({*self.segments.bases, *self.snapshots.offsets[-1:]})

    def _reload_producers(self, end_offset: int) -> None:
        self.snapshots.load_latest(self.producers, self.log_start_offset, end_offset)
        try:
            replay_producers(self.producers, self.segments, end_offset)
        except CorruptIndexError:
            for segment in self.segments:
                rebuild_indexes(segment, self.config)
            self.snapshots.load_latest(self.producers, self.log_start_offset, end_offset)
            replay_producers(self.producers, self.segments, end_offset)
