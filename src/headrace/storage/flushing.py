"""Syncs of a log's files, for a flush and for a truncation: planned on the owner's thread, executed on any thread."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.storage.files import DISK_FULL, DataFile, FileSystem, storage_error
from headrace.storage.segment import LogSegment
from headrace.storage.segments import LogSegments
from headrace.storage.txn_index import TransactionIndex


@dataclass(frozen=True, slots=True)
class TruncationTask:
    """The files to sync before a truncated log may be appended to."""

    opened: list[DataFile]
    directory: Path
    files: FileSystem

    def run(self) -> None:
        for file in self.opened:
            file.sync()
        self.files.sync_directory(self.directory)


@dataclass(frozen=True, slots=True)
class FlushTask:
    """The files to sync before the recovery point may move to `offset`, unless the log is truncated meanwhile.

    `run` raises DiskFullError if there is no space for the leader epochs, and an OSError if a sync fails.
    """

    offset: int
    opened: list[DataFile]
    changes: list[tuple[LogSegment | TransactionIndex, int]]
    truncations: int
    directories: list[Path]
    files: FileSystem
    write_epochs: Callable[[], None] | None = None

    def run(self) -> None:
        if self.write_epochs is not None:
            try:
                self.write_epochs()
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                raise storage_error("write the leader epochs in", self.directories[0], error) from error
        for file in self.opened:
            file.sync()
        for directory in self.directories:
            self.files.sync_directory(directory)


def segments_to_flush(segments: LogSegments, recovery_point: int, offset: int, all_indexes: bool) -> list[LogSegment]:
    """Returns the segments with records between the recovery point and `offset`, or with unsynced changes."""
    first_base_offset = segments.from_offset(recovery_point)[0].base_offset
    return [
        segment
        for segment in segments
        if segment.needs_sync
        or (all_indexes and segment is segments.active)
        or (recovery_point < offset and first_base_offset <= segment.base_offset < offset)
    ]


def open_files_to_sync(segment: LogSegment, files: FileSystem, with_indexes: bool) -> list[DataFile]:
    """Saves the indexes and opens the files to sync. Without `with_indexes`, only the transaction index is synced."""
    segment.save_indexes()
    opened = [segment.file]
    if with_indexes:
        opened += segment.open_indexes()
    elif segment.txn_index.needs_sync:
        opened.append(files.open(segment.txn_index.path))
    return opened


def pending_changes(segments: list[LogSegment]) -> list[tuple[LogSegment | TransactionIndex, int]]:
    """Returns the change counts that will be on disk once the segments are synced."""
    changed: list[LogSegment | TransactionIndex] = [*segments, *(segment.txn_index for segment in segments)]
    return [(item, item.changes) for item in changed]
