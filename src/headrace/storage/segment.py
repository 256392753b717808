"""A log segment: a range of offsets in one file, with its indexes.

    <base offset, 20 digits>.log          record batches, one after the other
                            .index        offset → position, sparse
                            .timeindex    timestamp → offset, sparse
                            .txnindex     aborted transactions; exists only if there are any

Index entries are verified: if the batch at an indexed position is not the one of the entry, a lookup raises
CorruptIndexError, and the caller rebuilds the index.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.common.config import INT_MAX
from headrace.common.errors import CorruptRecordError
from headrace.common.types import Buffer
from headrace.records import BATCH_HEADER_BYTES, NO_TIMESTAMP, RecordBatch, walk_headers
from headrace.storage._fast_append import SegmentFields
from headrace.storage.config import LARGEST_RELATIVE_OFFSET, LogConfig
from headrace.storage.files import DataFile, FileSystem
from headrace.storage.index import CorruptIndexError, OffsetIndex, TimeIndex
from headrace.storage.large_batches import records_of
from headrace.storage.txn_index import TransactionIndex

LOG_SUFFIX = ".log"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

_LOOKUP_BYTES = 8 * 1024
_SCAN_BYTES = 1024 * 1024


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class BatchPosition(NamedTuple):
    """Position, offsets and maximum timestamp of a batch, from its header."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int

    @classmethod
    def of(cls, batch: RecordBatch, position: int) -> "BatchPosition":
        return cls(position, batch.size_in_bytes, batch.base_offset, batch.last_offset, batch.max_timestamp)


class SegmentFiles(NamedTuple):
    """The sizes of a segment's files; None for a file that does not exist."""

    log: int = 0
    offset_index: int | None = None
    time_index: int | None = None
    txn_index: int | None = None


def read_batches(
    file: DataFile, size: int, position: int = 0, chunk_bytes: int = _SCAN_BYTES
) -> Iterator[tuple[int, RecordBatch]]:
    """Yields position and batch for the batches of a file between `position` and `size`. For recovery and compaction.

    Raises CorruptRecordError at the first incomplete batch.
    """
    while position < size:
        chunk = file.read_at(min(chunk_bytes, size - position), position)
        chunk_offset = batch_bytes = 0
        while len(chunk) - chunk_offset >= BATCH_HEADER_BYTES:
            batch_bytes = RecordBatch(chunk, chunk_offset, header_only=True).size_in_bytes
            if batch_bytes > len(chunk) - chunk_offset:
                break
            yield position + chunk_offset, RecordBatch(chunk, chunk_offset)
            chunk_offset += batch_bytes
        if chunk_offset == 0:
            if batch_bytes <= len(chunk) or batch_bytes > size - position:
                raise CorruptRecordError(f"{file.path}: batch at byte {position} is incomplete", position)
            chunk_bytes = batch_bytes  # the batch is larger than a chunk: read a larger chunk
        position += chunk_offset


class LogSegment(SegmentFields):
    """A segment file and its indexes. Owned by its log.

    `size` is the size of the valid part; after a failed write the file may be longer.
    """

    offset_index: OffsetIndex
    time_index: TimeIndex
    _file: DataFile | None
    _last_batch: BatchPosition | None

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        files: FileSystem,
        *,
        created_ms: int,
        file_sizes: SegmentFiles | None = None,
        suffix: str = "",
    ):
        """Opens the files with these sizes. Without sizes, the segment is new."""
        self.base_offset = base_offset
        self.created_ms = created_ms
        self._files = files
        self._suffix = suffix
        self._directory = directory
        self._is_new = file_sizes is None
        file_sizes = file_sizes or SegmentFiles()
        self.size = file_sizes.log
        self.offset_index = OffsetIndex(self.path(OffsetIndex.suffix), base_offset, files, file_sizes.offset_index)
        self.time_index = TimeIndex(self.path(TimeIndex.suffix), base_offset, files, file_sizes.time_index)
        self.txn_index = TransactionIndex(self.path(TransactionIndex.suffix), base_offset, files, file_sizes.txn_index)
        self._file = None
        self.recently_used = False
        self._tail_may_be_dirty = False
        self.changes = self.synced_changes = 0
        """The number of changes to the files of a sealed segment and its indexes, and how many of them are synced."""
        self._bytes_since_index = 0
        self._first_batch_timestamp = None
        self._max_timestamp = (NO_TIMESTAMP, base_offset - 1) if not file_sizes.log else None
        self._last_batch = None
        self.jitter_ms = 0
        self.truncation_count = 0
        """The number of truncations. Compaction compares it to detect that its input has changed."""

    def path(self, suffix: str = LOG_SUFFIX) -> Path:
        return self._directory / f"{segment_name(self.base_offset)}{suffix}{self._suffix}"

    @property
    def file(self) -> DataFile:
        """The open segment file. It may close as soon as the caller drops it: see `open_files`."""
        self.recently_used = True
        file = self._file
        if file is None:
            file = self._file = self._files.open_files.open(self, self._open)
        return file

    def _open(self) -> DataFile:
        file = self._files.open(self.path(), create=self._is_new)
        self._is_new = False
        return file

    def close_idle_file(self) -> None:
        self._file = None

    def create(self, preallocate_bytes: int = 0) -> None:
        """Creates the file of a new segment."""
        try:
            self.file.truncate(0)
            if preallocate_bytes:
                self.file.allocate(preallocate_bytes)
                self._tail_may_be_dirty = True
        except OSError:
            # The next start would take the file for the active segment.
            self.release()
            self._files.remove(self.path())
            raise

    # ---- writing

    def append(self, data: Buffer, batches: list[BatchPosition], index_interval_bytes: int) -> None:
        """Writes validated batches with assigned offsets. `batches` has their positions relative to `data`.

        If the write fails, nothing is appended. The next append overwrites the bytes of the failed write.
        """
        start = self.size
        try:
            self.file.write_at(data, start)
        except OSError:
            self._tail_may_be_dirty = True
            self._try_to_drop_tail()
            raise
        self.size = start + len(data)
        if self._first_batch_timestamp is None and start == 0:
            self._first_batch_timestamp = batches[0].max_timestamp
        for batch in batches:
            self.index_batch(batch._replace(position=start + batch.position), index_interval_bytes)

    def _try_to_drop_tail(self) -> None:
        try:
            self.file.truncate(self.size)
        except OSError:
            return  # the next append overwrites the tail, or closing or recovery truncates it
        self._tail_may_be_dirty = False

    def index_batch(self, batch: BatchPosition, index_interval_bytes: int) -> None:
        """Adds a batch of the file to the indexes."""
        timestamp, offset = self.max_timestamp
        if batch.max_timestamp > timestamp:
            timestamp, offset = self._max_timestamp = (batch.max_timestamp, batch.last_offset)
        if self._bytes_since_index > index_interval_bytes:
            self.offset_index.append(batch.last_offset, batch.position)
            self.time_index.maybe_append(timestamp, offset)
            self._bytes_since_index = 0
        self._bytes_since_index += batch.size
        self._last_batch = batch

    def should_roll(
        self, config: LogConfig, incoming_bytes: int, last_offset: int, timestamp: int, now_ms: int
    ) -> bool:
        """Returns True if an append of `incoming_bytes` up to `last_offset` must go to a new segment."""
        if last_offset - self.base_offset > LARGEST_RELATIVE_OFFSET:
            return True
        if self.size == 0:
            return False
        return (
            self.size + incoming_bytes > config.segment_bytes
            or self._time_waited_for_roll_ms(timestamp, now_ms) > config.max_segment_ms - self.jitter_ms
            or len(self.offset_index) >= config.segment_index_bytes // OffsetIndex.entry.size
            or len(self.time_index) >= config.segment_index_bytes // TimeIndex.entry.size - 1
        )

    def _time_waited_for_roll_ms(self, timestamp: int, now_ms: int) -> int:
        """Returns the time from the first batch to the appended one. Uses the clock if records have no timestamps."""
        first_timestamp = self.first_batch_timestamp
        return timestamp - first_timestamp if first_timestamp >= 0 and timestamp >= 0 else now_ms - self.created_ms

    @property
    def first_batch_timestamp(self) -> int:
        """The maximum timestamp of the first batch; -1 without batches or timestamps."""
        if self._first_batch_timestamp is None:
            if self.size < BATCH_HEADER_BYTES:
                return NO_TIMESTAMP
            self._first_batch_timestamp = next(self.positions()).max_timestamp
        return self._first_batch_timestamp

    # ---- lookups

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and the last offset of the batch that has it; (-1, ...) without timestamps."""
        if self._max_timestamp is None:
            # Sealing adds a last entry to the time index, so this reads one batch unless the index is incomplete.
            self._max_timestamp = self._find_max_timestamp()
        return self._max_timestamp

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, RecordBatch]]:
        """Yields position and header of each batch from `position` on, without reading the records.

        Raises CorruptRecordError where there is no valid header.
        """
        end = self.size if end is None else min(end, self.size)
        chunk, chunk_start = b"", position
        while position < end:
            if position + BATCH_HEADER_BYTES > chunk_start + len(chunk):
                chunk_start = position
                chunk = self.file.read_at(min(_LOOKUP_BYTES, self.size - position), position)
            batch = RecordBatch(chunk, position - chunk_start, header_only=True)
            if batch.size_in_bytes > self.size - position:
                raise CorruptRecordError(f"{self.path()}: batch at byte {position} extends past the end", position)
            yield position, batch
            position += batch.size_in_bytes

    def positions(self, position: int = 0, end: int | None = None) -> Iterator[BatchPosition]:
        """Yields the BatchPosition of each batch from `position` on."""
        return (BatchPosition.of(batch, batch_position) for batch_position, batch in self.headers(position, end))

    def find(self, offset: int) -> BatchPosition | None:
        """Returns the first batch that ends at or after `offset`; None if there is none."""
        last_batch = self._last_batch
        if last_batch is not None and offset >= last_batch.base_offset:
            return last_batch if offset <= last_batch.last_offset else None
        indexed_offset, position = self.offset_index.lookup(offset)
        must_check = indexed_offset >= self.base_offset
        if position < 0 or (position > 0 and not must_check):
            raise CorruptIndexError(f"{self.path()}: its index points to byte {position}")
        while position < self.size:
            chunk = self.file.read_at(min(_LOOKUP_BYTES, self.size - position), position)
            if must_check:
                self._check_indexed(chunk, position, indexed_offset)
                must_check = False
            header_or_skipped_bytes = walk_headers(chunk, 0, offset)
            if not isinstance(header_or_skipped_bytes, int):
                return BatchPosition(position + header_or_skipped_bytes[0], *header_or_skipped_bytes[1:])
            if header_or_skipped_bytes == 0:
                raise CorruptRecordError(f"{self.path()}: batch at byte {position} is incomplete", position)
            position += header_or_skipped_bytes
        if must_check:
            raise CorruptIndexError(f"{self.path()}: its index points to byte {position}, past the end of the file")
        return None

    def _check_indexed(self, chunk: bytes, position: int, offset: int) -> None:
        """Raises CorruptIndexError unless the batch at the indexed position ends with the indexed offset."""
        try:
            header_or_skipped_bytes = walk_headers(chunk, 0, -1)
        except CorruptRecordError as error:
            raise CorruptIndexError(f"{self.path()}: no batch at indexed byte {position}") from error
        if isinstance(header_or_skipped_bytes, int) or header_or_skipped_bytes[3] != offset:
            raise CorruptIndexError(
                f"{self.path()}: the batch at indexed byte {position} does not end with offset {offset}"
            )

    def find_timestamp(
        self, timestamp: int, min_offset: int, max_inline_bytes: int = INT_MAX
    ) -> tuple[int, int] | None:
        """Returns timestamp and offset of the first record at or after both `timestamp` and `min_offset`."""
        indexed_timestamp, indexed_offset = self.time_index.lookup(timestamp)
        position = 0
        if indexed_offset >= self.base_offset:
            # Before 3.9, Kafka indexed the offset of the record; since then, the last offset of its batch.
            indexed_batch = self._find_indexed(indexed_timestamp, indexed_offset)
            if indexed_batch is None:
                raise CorruptIndexError(
                    f"{self.path()}: no batch with timestamp {indexed_timestamp} at offset {indexed_offset}"
                )
            position = indexed_batch.position
        for batch in self.positions(position):
            if batch.max_timestamp >= timestamp and batch.last_offset >= min_offset:
                record = records_of(self.load(batch), max_inline_bytes).first_at_or_after(timestamp, min_offset)
                if record is not None:
                    return record
        return None

    def load(self, batch: BatchPosition) -> RecordBatch:
        """Reads a whole batch without checking its CRC."""
        return RecordBatch(self.file.read_at(batch.size, batch.position))

    def batches(self, position: int = 0) -> Iterator[tuple[int, RecordBatch]]:
        """Yields position and batch from `position` on, reading the file in large chunks."""
        return read_batches(self.file, self.size, position)

    # ---- truncating

    def truncate_to(self, offset: int, sync: bool = True) -> None:
        """Removes the batches that end at or after `offset`; see `truncate_at`."""
        first_removed = self.find(offset)
        if first_removed is not None:
            self.truncate_at(first_removed.position, offset, sync)

    def truncate_at(self, position: int, offset: int, sync: bool = True) -> None:
        """Truncates the file at the position of the first batch that ends at or after `offset`, and syncs it.

        Without the sync, a power loss could bring removed batches back after newly appended ones. If `sync` is False,
        the caller syncs the file before the next append.
        """
        self.file.truncate(position)
        self.size = position
        self.truncation_count += 1
        self._tail_may_be_dirty = False
        self._last_batch = None
        self._bytes_since_index = 0
        if position == 0:
            self._first_batch_timestamp = None
        if sync:
            self.file.sync()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.restore_max_timestamp()

    def restore_max_timestamp(self, end: int | None = None) -> None:
        """Recomputes the maximum timestamp from the batches before position `end`."""
        self._max_timestamp = self._find_max_timestamp(end)

    def _find_max_timestamp(self, end: int | None = None) -> tuple[int, int]:
        """Scans from the last entry of the time index, or from the beginning if that entry is wrong."""
        newest = self.time_index.last()
        indexed_batch = self._find_indexed(*newest) if newest[1] >= self.base_offset else None
        if indexed_batch is not None:
            position = indexed_batch.position
        else:
            newest, position = (NO_TIMESTAMP, self.base_offset - 1), 0
        try:
            for batch in self.positions(position, end):
                if batch.max_timestamp > newest[0]:
                    newest = (batch.max_timestamp, batch.last_offset)
        except CorruptRecordError:
            pass  # the rest is unreadable; a reader or recovery will report it
        return newest

    def _find_indexed(self, timestamp: int, offset: int) -> BatchPosition | None:
        """Returns the batch of a time index entry; None if the entry does not match a batch."""
        try:
            batch = self.find(offset)
        except (CorruptIndexError, CorruptRecordError):
            return None
        return batch if batch is not None and batch.max_timestamp == timestamp else None

    def check_last_entries(self) -> None:
        """Raises CorruptIndexError unless the last entries of both indexes match batches of the file."""
        self.find(self.offset_index.last()[0])
        timestamp, offset = self.time_index.last()
        if offset >= self.base_offset and self._find_indexed(timestamp, offset) is None:
            raise CorruptIndexError(f"{self.path()}: no batch with timestamp {timestamp} at offset {offset}")

    def reset_indexes(self) -> None:
        """Empties offset and time index; `index_batch` fills them again."""
        self.offset_index.reset()
        self.time_index.reset()
        self._last_batch = None
        self._bytes_since_index = 0
        self._max_timestamp = (NO_TIMESTAMP, self.base_offset - 1)
        self._first_batch_timestamp = None

    # ---- saving and closing

    def save_indexes(self, last: bool = False) -> None:
        """Writes index entries to their files. With `last`, first adds the maximum timestamp to the time index."""
        if last:
            self.time_index.maybe_append(*self.max_timestamp)
        self.offset_index.save()
        self.time_index.save()
        self.txn_index.save()

    def seal(self) -> None:
        """Finishes the segment: truncates the file to its size and saves the indexes. No appends follow."""
        if self._tail_may_be_dirty:
            self.file.truncate(self.size)
            self._tail_may_be_dirty = False
        self.save_indexes(last=True)
        self.offset_index.seal()
        self.time_index.seal()
        self._last_batch = None
        self.changes += 1

    @property
    def needs_sync(self) -> bool:
        return self.changes != self.synced_changes

    @property
    def has_clean_tail(self) -> bool:
        """True if the file ends with the last batch."""
        return not self._tail_may_be_dirty

    @property
    def has_indexes(self) -> bool:
        """True if the files of offset and time index exist."""
        return self.offset_index.exists and self.time_index.exists

    def open_indexes(self) -> list[DataFile]:
        """Opens the index files, to sync them."""
        indexes = (self.offset_index, self.time_index, self.txn_index)
        return [self._files.open(index.path) for index in indexes if index.exists]

    def release(self) -> None:
        """Releases the files. The segment file closes once no reader references a slice of it."""
        if self._file is not None:
            self._file = None
            self._files.open_files.closed(self)
        self.offset_index.unmap()
        self.time_index.unmap()

    def existing_paths(self) -> list[Path]:
        """Returns the paths of the existing files, the `.log` file last. A new segment may have no file yet."""
        indexes = (self.offset_index, self.time_index, self.txn_index)
        return [*(index.path for index in indexes if index.exists), *([] if self._is_new else [self.path()])]

    def rename(self, suffix: str) -> None:
        """Appends a suffix to all file names, in place of the current one: `.deleted`, `.swap` or none.

        The `.log` file comes last: if a `.log.swap` exists, all its indexes exist too.
        """
        old_paths = self.existing_paths()
        old_suffix, self._suffix = self._suffix, suffix
        for old_path in old_paths:
            plain_name = old_path.name[: len(old_path.name) - len(old_suffix)] if old_suffix else old_path.name
            self._files.rename(old_path, old_path.with_name(plain_name + suffix))
        self._update_paths()

    def move_to(self, directory: Path) -> None:
        """Updates the paths after the log's directory was renamed."""
        self._directory = directory
        self._update_paths()

    def _update_paths(self) -> None:
        for index in (self.offset_index, self.time_index, self.txn_index):
            index.path = self.path(index.suffix)
        file = self._file
        if file is not None:
            file.path = self.path()
