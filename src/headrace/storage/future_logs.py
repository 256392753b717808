"""Future logs: copies of logs in other log directories, which replace the originals once they have caught up (KIP-113).

    <topic>-<partition>                in directory A: the log, which is in use
    <topic>-<partition>.<id>-future    in directory B: its copy

`log_copy` decides what is copied next, `broker.replication.log_dir_moves` does it. A replacement has four steps:

    owner        renames the copy to <topic>-<partition>, and uses it from now on
    background   syncs directory B
    owner        renames the old log to <topic>-<partition>.<id>-delete
    background   removes its files, after `file.delete.delay.ms`

- A crash before the first rename is on disk leaves a log and its future log: the move continues.
- A crash before the second one leaves two logs of the partition. The older one has no record that the newer one lacks,
  so the next start deletes it: see `LogManager`.
- Before a replacement, the copy has everything on disk that the log has on disk. Afterwards its first flush syncs the
  directory with its name.

Owned by the thread of the log manager.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from headrace.common.background import BackgroundRunner, WorkResult
from headrace.common.errors import InvalidTopicError, KafkaStorageError, LogDirNotFoundError
from headrace.common.ids import random_uuid
from headrace.common.types import TopicPartition
from headrace.storage.config import LogConfig
from headrace.storage.context import LogContext
from headrace.storage.directory import (
    DELETE_DIRECTORY_SUFFIX,
    STRAY_DIRECTORY_SUFFIX,
    LogDirectory,
    future_directory_name,
    suffixed_directory_name,
)
from headrace.storage.files import storage_error
from headrace.storage.loader import create_log
from headrace.storage.log import Log
from headrace.storage.truncation import LogTruncation, TruncationResults

_logger = logging.getLogger(__name__)

_LONGEST_NAME = 255


class _LogManager(Protocol):
    """What future logs need of the log manager."""

    runner: BackgroundRunner
    directories: list[LogDirectory]

    def get(self, tp: TopicPartition) -> Log | None: ...
    def directory_of(self, tp: TopicPartition) -> LogDirectory | None: ...
    def fail_directory(self, directory: LogDirectory, reason: str) -> None: ...
    def replace_log(self, log: Log, directory: LogDirectory) -> LogDirectory: ...
    def watch_log(self, log: Log, directory: LogDirectory) -> None: ...
    def forget_checkpoints(self, directory: LogDirectory, tp: TopicPartition) -> None: ...
    def pause_cleaning(self, tp: TopicPartition) -> None: ...
    def prepare_checkpoints(self, directory: LogDirectory) -> Callable[[], None]: ...
    def checkpoint_failed(self, directory: LogDirectory, error: OSError) -> KafkaStorageError: ...
    def checkpoint_soon(self, directory: LogDirectory) -> None: ...
    def remove_directory_later(self, path: Path, delay_ms: int = 0) -> None: ...


class FutureLogs:
    """The future logs of a node, at most one for each partition."""

    def __init__(self, manager: _LogManager, context: LogContext, config_of: Callable[[str], LogConfig]):
        self._manager = manager
        self._context = context
        self._config_of = config_of
        self._logs: dict[TopicPartition, Log] = {}
        self._directory_of: dict[TopicPartition, LogDirectory] = {}
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        self._replaced: dict[TopicPartition, tuple[Log, LogDirectory]] = {}
        """The logs that were replaced, and that are not renamed yet."""

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._logs

    def get(self, tp: TopicPartition) -> Log | None:
        return self._logs.get(tp)

    def directory_of(self, tp: TopicPartition) -> LogDirectory | None:
        return self._directory_of.get(tp)

    def pair(self, tp: TopicPartition) -> tuple[Log, Log] | None:
        """Returns the log and the future log of a partition; None unless both exist."""
        log, future = self._manager.get(tp), self._logs.get(tp)
        return (log, future) if log is not None and future is not None else None

    # ---- directories

    def find_directory(self, path: str) -> LogDirectory:
        """Returns the log directory with an absolute path. Raises LogDirNotFoundError or KafkaStorageError."""
        for directory in self._manager.directories:
            if str(directory.path) == path:
                if not directory.online:
                    raise KafkaStorageError(f"Log directory {path} is offline")
                return directory
        raise LogDirNotFoundError(
            f"Log directory {path} is not in log.dirs, which has "
            f"{', '.join(str(directory) for directory in self._manager.directories)}"
        )

    def prefer(self, tp: TopicPartition, directory: LogDirectory) -> None:
        """Remembers where to create the log of a partition, until the next start."""
        self._preferred[tp] = directory

    def take_preferred(self, tp: TopicPartition) -> LogDirectory | None:
        """Returns and forgets the preferred directory of a new log; None if there is none, or if it is offline."""
        directory = self._preferred.pop(tp, None)
        return directory if directory is not None and directory.online else None

    # ---- creating and deleting

    def create(self, tp: TopicPartition, directory: LogDirectory) -> Log:
        """Creates the future log of a partition. Raises KafkaStorageError if a directory is offline, which might have
        another one."""
        log = self._manager.get(tp)
        if log is None or tp in self._logs:
            raise ValueError(f"Partition {tp} has no log, or has a future log already")
        offline = [str(other) for other in self._manager.directories if not other.online]
        if offline:
            raise KafkaStorageError(
                f"Cannot create a future log of partition {tp}: it may be in {', '.join(offline)}, which is offline"
            )
        name = future_directory_name(tp, random_uuid(self._context.random))
        if len(name) > _LONGEST_NAME:
            raise InvalidTopicError(
                f"The name of topic {tp.topic} is too long to move partition {tp}: its future directory would have a "
                f"name of {len(name)} characters, at most {_LONGEST_NAME} are allowed"
            )
        self._manager.forget_checkpoints(directory, tp)
        path = directory.path / name
        try:
            future = create_log(path, tp, self._config_of(tp.topic), self._context, log.topic_id)
        except OSError as error:
            raise storage_error("create a future log in", directory.path, error) from error
        self._manager.pause_cleaning(tp)
        self.add(future, directory)
        return future

    def add(self, log: Log, directory: LogDirectory) -> None:
        """Adds a log that was created or loaded."""
        self._logs[log.tp] = log
        self._directory_of[log.tp] = directory
        directory.partitions += 1
        self._manager.watch_log(log, directory)

    def delete(self, tp: TopicPartition) -> None:
        """Cancels a move: deletes the future log of a partition, if there is one."""
        if tp in self._logs:
            log = self._rename_and_remove(tp, DELETE_DIRECTORY_SUFFIX)
            self._manager.remove_directory_later(log.directory, log.config.file_delete_delay_ms)

    def move_stray_log(self, tp: TopicPartition) -> Path:
        """Renames a future log that has lost its original, but keeps its files. Returns the new directory."""
        return self._rename_and_remove(tp, STRAY_DIRECTORY_SUFFIX).directory

    def _rename_and_remove(self, tp: TopicPartition, suffix: str) -> Log:
        log, directory = self._remove(tp)
        log.abandon()
        try:
            log.move_to(directory.path / suffixed_directory_name(tp, random_uuid(self._context.random), suffix))
        except OSError as error:
            self._manager.fail_directory(directory, f"Cannot rename {log.directory}: {error}")
            raise storage_error("rename", log.directory, error) from error
        self._sync_in_background(directory)
        self._manager.checkpoint_soon(directory)
        return log

    def _remove(self, tp: TopicPartition) -> tuple[Log, LogDirectory]:
        directory = self._directory_of.pop(tp)
        directory.partitions -= 1
        return self._logs.pop(tp), directory

    def _sync_in_background(self, directory: LogDirectory, done: Callable[[], object] = lambda: None) -> None:
        def synced(result: WorkResult) -> None:
            if isinstance(result.error, OSError):
                self._manager.fail_directory(directory, f"Cannot sync {directory}: {result.error}")
                return
            result.result()
            done()

        self._manager.runner.submit(lambda: self._context.files.sync_directory(directory.path), synced)

    def take_offline(self, directory: LogDirectory) -> None:
        """Gives up the future logs in a failed directory, without changing a file."""
        for tp in [tp for tp, other in self._directory_of.items() if other is directory]:
            self._remove(tp)[0].abandon()
        for tp in [tp for tp, (_, other) in self._replaced.items() if other is directory]:
            del self._replaced[tp]

    # ---- truncating

    def truncate(
        self, tp: TopicPartition, offset: int, done: Callable[[TruncationResults], object], *, fully: bool
    ) -> None:
        """Truncates a future log as `LogManager.truncate_many` does."""
        LogTruncation(_Truncated(self, self._manager), {tp: offset}, done, fully, lambda _: True).start()

    # ---- replacing

    def can_replace(self, tp: TopicPartition) -> bool:
        """Returns True if the future log of a partition has the same records as the log, and all those on disk that the
        log has on disk."""
        logs = self.pair(tp)
        if logs is None:
            return False
        log, future = logs
        return (
            future.log_end_offset == log.log_end_offset
            and future.recovery_point >= log.recovery_point
            and log.is_settled
            and future.is_settled
            and tp not in self._replaced
        )

    def replace(self, tp: TopicPartition) -> Log:
        """Makes the future log the log of its partition. Call it only if `can_replace` is True. Returns the log."""
        log = self._manager.get(tp)
        assert log is not None
        future, directory = self._remove(tp)
        try:
            future.move_to(directory.path / str(tp))
        except OSError as error:
            future.abandon()
            self._manager.fail_directory(directory, f"Cannot rename {future.directory}: {error}")
            raise storage_error("rename", future.directory, error) from error
        future.take_over(log)
        self._replaced[tp] = log, self._manager.replace_log(future, directory)
        log.abandon()
        self._sync_in_background(directory, lambda: self.finish_replacement(tp))
        self._manager.checkpoint_soon(directory)
        return future

    def finish_replacement(self, tp: TopicPartition) -> None:
        """Deletes the log that was replaced in a partition, if it still exists."""
        log, directory = self._replaced.pop(tp, (None, None))
        if log is None or directory is None:
            return
        name = suffixed_directory_name(tp, random_uuid(self._context.random), DELETE_DIRECTORY_SUFFIX)
        try:
            log.move_to(directory.path / name)
        except OSError as error:
            self._manager.fail_directory(directory, f"Cannot rename {log.directory}: {error}")
            return
        self._manager.remove_directory_later(log.directory, log.config.file_delete_delay_ms)
        self._manager.checkpoint_soon(directory)

    def abandon(self) -> None:
        """Leaves replacements as they are: the next start completes them."""
        self._replaced.clear()

    def close(self) -> None:
        """Completes replacements, waiting for the disk."""
        for tp in list(self._replaced):
            directory = self._manager.directory_of(tp)
            if directory is None:
                continue
            try:
                self._context.files.sync_directory(directory.path)
            except OSError as error:
                self._manager.fail_directory(directory, f"Cannot sync {directory}: {error}")
            else:
                self.finish_replacement(tp)


class _Truncated:
    """The future logs as a truncation sees them."""

    def __init__(self, futures: FutureLogs, manager: _LogManager):
        self.runner = manager.runner
        self.get = futures.get
        self.directory_of = futures.directory_of
        self.prepare_checkpoints = manager.prepare_checkpoints
        self.checkpoint_failed = manager.checkpoint_failed


def is_part_of(log: Log, other: Log) -> bool:
    """Returns True if another log of the same partition has all records of a log that it has not deleted itself.

    Equal leader epoch and offset mean equal records, so it is enough to compare where the last epoch ends.
    """
    if log.topic_id is None or log.topic_id != other.topic_id or log.log_end_offset > other.log_end_offset:
        return False
    if log.log_end_offset == log.log_start_offset:
        return True
    latest_epoch = log.epochs.latest_epoch
    epoch, end_offset = other.end_offset_for_epoch(latest_epoch)
    return latest_epoch >= 0 and epoch == latest_epoch and end_offset >= log.log_end_offset
