"""The log manager: all logs of a node, in one or several log directories, and their periodic tasks.

One thread owns the manager and its logs. It calls `tick` to run the periodic tasks that are due: retention, flushes,
checkpoints, compaction, expiration of producer ids. Blocking work runs on the background runner.

A directory that cannot be opened, synced or written goes offline with all its logs. The other directories stay online.
A full disk or a failed write fails only that append: see `files.DiskFullError`.

A partition has one log, in one of the directories, and perhaps a future log in another one: see `future_logs`. If the
start finds two logs of a partition, because a crash interrupted a move between directories, it deletes the one whose
records are all in the other. If there is none, the directory that was loaded later goes offline.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from headrace.common.background import BackgroundRunner, InlineRunner, Scheduler, WorkResult
from headrace.common.clock import Clock, SystemClock
from headrace.common.config import LONG_MAX
from headrace.common.errors import ConfigError, HeadraceError, KafkaStorageError
from headrace.common.ids import Uuid, make_random, random_uuid
from headrace.common.types import TopicPartition
from headrace.storage.checkpoints import OffsetCheckpoint, write_partition_metadata
from headrace.storage.cleaner_manager import LogCleanerManager
from headrace.storage.config import LogConfig, ManagerConfig
from headrace.storage.directory import (
    DELETE_DIRECTORY_SUFFIX,
    STRAY_DIRECTORY_SUFFIX,
    LogDirectory,
    StoredLog,
    check_partition_name,
    suffixed_directory_name,
)
from headrace.storage.files import DISK_FULL, DiskFullError, FileSystem, storage_error
from headrace.storage.future_logs import FutureLogs, is_part_of
from headrace.storage.loader import LoadReport, create_log, open_log
from headrace.storage.log import Log, LogContext
from headrace.storage.open_files import TOO_MANY_OPEN_FILES, max_open_files
from headrace.storage.progress import Progress
from headrace.storage.retention import delete_old_segments
from headrace.storage.truncation import LogTruncation

_logger = logging.getLogger(__name__)

T = TypeVar("T")


RESERVED_FILES = 64
"""File descriptors that new logs must leave free for short-lived files: checkpoints, segments, directory syncs."""
_OUT_OF_FILES = "too many open files; raise the limit of open files (ulimit -n) or close connections"
_LOGS_PER_TASK = 64
"""How many logs a thread loads or closes before it takes the next ones."""
_CLOSING_THREADS = 8
"""Closing a log waits for the disk; the file system syncs several files with one write to its journal."""
_CHECKPOINT_DELAY_MS = 1000
"""How long after the first of many new or deleted logs the checkpoints are written."""


class CheckpointKind(NamedTuple):
    """One of the checkpoint files of a log directory, and the offset of a log that it contains."""

    file_of: Callable[[LogDirectory], OffsetCheckpoint]
    offset_of: Callable[[Log], int | None]


RECOVERY_POINTS = CheckpointKind(lambda directory: directory.recovery_point_checkpoint, lambda log: log.recovery_point)
# Also if the log starts at its first segment: a power loss may bring deleted segments back.
LOG_STARTS = CheckpointKind(lambda directory: directory.log_start_checkpoint, lambda log: log.log_start_offset or None)
CLEANED_OFFSETS = CheckpointKind(lambda directory: directory.cleaner_checkpoint, lambda log: log.cleaned_up_to)


def _uses_reserved_files(path: Path) -> bool:
    """Returns True if a new log would use a reserved file descriptor. The kernel assigns the lowest free number."""
    limit = max_open_files()
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return error.errno in TOO_MANY_OPEN_FILES
    os.close(fd)
    return limit is not None and fd >= limit - min(RESERVED_FILES, limit // 8)


class LogManager:
    """Manages the logs of a node. Call `start` and `close`, or use it as a context manager."""

    def __init__(
        self,
        config: ManagerConfig,
        *,
        config_of: Callable[[str], LogConfig],
        cluster_id: str,
        node_id: int = 0,
        files: FileSystem | None = None,
        clock: Clock | None = None,
        runner: BackgroundRunner | None = None,
        seed: int | None = None,
        directory_ids: bool = True,
    ):
        """`config_of` returns the configuration of a topic's logs. `directory_ids` gives new directories an id, unlike
        brokers of Apache Kafka with ZooKeeper."""
        if type(node_id) is not int or node_id < 0:
            raise ConfigError(f"node.id={node_id!r} is not a valid value: expected an int of at least 0")
        if not isinstance(cluster_id, str) or not cluster_id.isprintable() or not cluster_id.strip():
            raise ConfigError(f"cluster.id={cluster_id!r} is not a valid value: expected printable characters")
        self.config = config
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.clock = clock or SystemClock()
        self.runner = runner or InlineRunner()
        self.scheduler = Scheduler(self.clock)
        self.on_directory_failed: Callable[[LogDirectory, list[TopicPartition]], object] = lambda *_: None
        self.load_reports: dict[TopicPartition, LoadReport] = {}
        self._config_of = config_of
        self._files = files or FileSystem()
        self._random = make_random(seed)
        self._directory_ids = directory_ids
        self._logs: dict[TopicPartition, Log] = {}
        self._directory_of: dict[TopicPartition, LogDirectory] = {}
        self._checkpoints_in_progress: set[OffsetCheckpoint] = set()
        self._checkpoints_due: set[LogDirectory] = set()
        self._started = False
        self._closed = False
        self._context = LogContext(
            files=self._files,
            clock=self.clock,
            runner=self.runner,
            scheduler=self.scheduler,
            random=self._random,
            max_inflation_ratio=config.headrace_max_inflation_ratio,
        )
        self._cleaner = LogCleanerManager(
            self._context, lambda: self.config, self._logs, self, self._checkpoint_cleaned_log, self._is_moving
        )
        self.futures = FutureLogs(self, self._context, config_of)
        self.directories = [LogDirectory(Path(path), self._files) for path in config.log_dirs]

    # ---- starting

    def start(self) -> "LogManager":
        """Opens all directories and loads their logs. Raises KafkaStorageError if no directory is usable."""
        if self._started:
            raise HeadraceError("This LogManager was already started; create a new one")
        self._started = True
        try:
            self._open_directories()
        except BaseException:
            self.abandon()
            raise
        self._schedule_tasks()
        return self

    def __enter__(self) -> "LogManager":
        return self if self._started and not self._closed else self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _open_directories(self) -> None:
        for directory in self.directories:
            try:
                new_id = random_uuid(self._random) if self._directory_ids else None
                directory.open(self.cluster_id, self.node_id, new_id)
            except (KafkaStorageError, OSError) as error:
                self._take_offline(directory, error)
        self._check_any_online()
        for directory in self.directories:
            if directory.online:
                self._load_directory(directory)
        self._check_any_online()
        self._warn_if_files_are_few()

    def _warn_if_files_are_few(self) -> None:
        max_files = self._files.open_files.max_files
        if len(self._logs) > max_files:
            _logger.warning(
                "Node %d has %d partitions, but the limit of open files (ulimit -n) is %s, of which logs use at most "
                "%d; files of idle partitions are closed and opened again on demand, which is slower",
                self.node_id,
                len(self._logs),
                max_open_files(),
                max_files,
            )

    def _check_any_online(self) -> None:
        if not any(directory.online for directory in self.directories):
            reasons = "; ".join(f"{directory.failure}" for directory in self.directories)
            raise KafkaStorageError(f"None of the specified log dirs can be used: {reasons}")

    def _check_running(self) -> None:
        """Raises an error unless the manager holds the locks: another process may own the directories by now."""
        if not self._started or self._closed:
            raise HeadraceError(f"This LogManager {'is closed' if self._closed else 'has not been started'}")

    def _load_directory(self, directory: LogDirectory) -> None:
        """Loads the logs of a directory. If one cannot be read, the directory goes offline."""
        try:
            stored, leftovers = directory.list()
            loaded = self._load_all(directory, stored)
        except (OSError, HeadraceError) as error:
            self._take_offline(directory, error)
            return
        for stored_log, (log, report) in zip(stored, loaded, strict=True):
            if stored_log.is_future:
                self._add_future(log, directory)
            elif not self._add_loaded(log, directory):
                return
            else:
                self.load_reports[log.tp] = report
            if report.truncated_bytes or report.rebuilt_indexes or report.finished_swaps:
                _logger.warning("Partition %s: recovered the log in %s: %s", log.tp, log.directory, report)
        recovery_points = directory.recovery_point_checkpoint.offsets
        if any(log.recovery_point < recovery_points.get(log.tp, 0) for log, _ in loaded):
            # A log ends before its checkpointed recovery point; records appended next will not be on disk.
            self._checkpoint_now(directory, RECOVERY_POINTS, must=False)
        for path in leftovers:
            self.remove_directory_later(path)

    def _add_loaded(self, log: Log, directory: LogDirectory) -> bool:
        """Adds a log. Returns False, and takes the directory offline, if another directory has the partition, too, and
        nobody can tell which of the logs is superfluous."""
        tp = log.tp
        other = self._logs.get(tp)
        if other is None:
            self._add_log(log, directory)
            return True
        if is_part_of(log, other):
            self._delete_duplicate(log, directory, other)
            return directory.online
        if is_part_of(other, log):
            other_directory = self._directory_of[tp]
            self._remove_log(tp)
            self._delete_duplicate(other, other_directory, log)
            self._add_log(log, directory)
            return True
        self._take_offline(
            directory,
            KafkaStorageError(
                f"Duplicate log directories found for partition {tp}: {self._directory_of[tp]} and {directory}; remove "
                "one of them"
            ),
        )
        return False

    def _delete_duplicate(self, log: Log, directory: LogDirectory, other: Log) -> None:
        """Deletes a log whose records are all in another one. Kafka would do that at the end of a move."""
        _logger.warning(
            "Partition %s: deleting the log in %s, all its records are in %s, to which the partition was being moved",
            log.tp,
            log.directory,
            other.directory,
        )
        log.abandon()
        name = suffixed_directory_name(log.tp, random_uuid(self._random), DELETE_DIRECTORY_SUFFIX)
        try:
            log.move_to(log.directory.parent / name)
        except OSError as error:
            self._take_offline(directory, error)
        else:
            self.remove_directory_later(log.directory)

    def _add_future(self, log: Log, directory: LogDirectory) -> None:
        tp = log.tp
        if self._directory_of.get(tp) is not directory and tp not in self.futures:
            self.futures.add(log, directory)
            return
        _logger.warning("Partition %s: deleting a superfluous future log in %s", tp, log.directory)
        log.abandon()
        self.remove_directory_later(log.directory)

    def _load_all(self, directory: LogDirectory, stored: list[StoredLog]) -> list[tuple[Log, LoadReport]]:
        """Loads logs in threads after a crash, because recovery waits for the disk."""
        loaded: list[tuple[Log, LoadReport]] = []
        progress = Progress(self.clock, f"Loading log directory {directory}", len(stored))
        chunks = [stored[first : first + _LOGS_PER_TASK] for first in range(0, len(stored), _LOGS_PER_TASK)]

        def load(chunk: list[StoredLog]) -> list[tuple[Log, LoadReport]]:
            return [self._load(directory, stored_log) for stored_log in chunk]

        threads = self.config.num_recovery_threads_per_data_dir
        with ThreadPoolExecutor(threads) as pool:
            for chunk in map(load, chunks) if directory.was_clean or threads == 1 else pool.map(load, chunks):
                loaded += chunk
                progress.add(len(chunk))
        progress.finish()
        return loaded

    def _load(self, directory: LogDirectory, stored_log: StoredLog) -> tuple[Log, LoadReport]:
        tp = stored_log.tp
        log, report = open_log(
            stored_log.path,
            tp,
            self._config_of(tp.topic),
            self._context,
            clean=directory.was_clean,
            recovery_point=directory.recovery_point_checkpoint.offsets.get(tp),
            log_start_offset=directory.log_start_checkpoint.offsets.get(tp, 0),
        )
        cleaned_up_to = directory.cleaner_checkpoint.offsets.get(tp)
        if cleaned_up_to is not None:
            log.cleaned_up_to = min(cleaned_up_to, log.log_end_offset)
        return log, report

    def _add_log(self, log: Log, directory: LogDirectory) -> None:
        self._logs[log.tp] = log
        self._directory_of[log.tp] = directory
        directory.partitions += 1
        self.watch_log(log, directory)

    def watch_log(self, log: Log, directory: LogDirectory) -> None:
        """Connects a log with the checkpoints and failures of its directory."""
        log.on_recovery_point_lowered = lambda: self._checkpoint_at_once(log, directory)
        log.on_disk_failed = lambda error: self._take_offline(directory, error)

    # ---- logs

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, tp: TopicPartition) -> Log | None:
        return self._logs.get(tp)

    def directory_of(self, tp: TopicPartition) -> LogDirectory | None:
        return self._directory_of.get(tp)

    def create(self, tp: TopicPartition, topic_id: Uuid | None = None) -> Log:
        """Returns the log of a partition. If there is none, creates it in the directory with the fewest logs."""
        self._check_running()
        if topic_id is not None and not isinstance(topic_id, Uuid):
            raise TypeError(f"topic_id must be a Uuid, not {topic_id!r}")
        log = self._logs.get(tp)
        if log is not None:
            if topic_id is not None and log.topic_id is not None and log.topic_id != topic_id:
                raise KafkaStorageError(f"Partition {tp} has topic id {log.topic_id}, not {topic_id}")
            if log.topic_id is None and topic_id is not None:
                self._assign_topic_id(log, topic_id)  # created without one, or a crash prevented the write
            return log
        check_partition_name(tp)
        config = self._config_of(tp.topic)
        if tp in self.futures:
            path = self.futures.move_stray_log(tp)
            _logger.warning("Partition %s: its log is lost, keeping the copy of it unused in %s", tp, path)
        directory = self.futures.take_preferred(tp) or self._least_loaded()
        self.forget_checkpoints(directory, tp)
        path = directory.path / str(tp)
        if self._is_out_of_files(directory):
            raise DiskFullError(f"Cannot create a log in {directory}: {_OUT_OF_FILES}")
        try:
            log = create_log(path, tp, config, self._context, topic_id)
        except OSError as error:
            raise self._creation_failed("create a log in", directory, directory.path, error) from error
        except KafkaStorageError as error:
            if isinstance(error.__cause__, OSError):
                self._creation_failed("open", directory, path, error.__cause__)
            raise
        self._add_log(log, directory)
        self.checkpoint_soon(directory)  # else the first roll of the log would have to write the checkpoint
        return log

    def forget_checkpoints(self, directory: LogDirectory, tp: TopicPartition) -> None:
        """Writes the checkpoints of a directory if they contain a deleted log of a partition: a new one with its name
        does not have these offsets."""
        if directory.is_checkpointed(tp):
            for kind in (RECOVERY_POINTS, LOG_STARTS, CLEANED_OFFSETS):
                self._checkpoint_now(directory, kind)

    def creation_problem(self) -> KafkaStorageError | None:
        """Returns why no log can be created now; None if nothing is known to prevent it."""
        try:
            directory = self._least_loaded()
        except KafkaStorageError as error:
            return error
        if self._is_out_of_files(directory):
            return DiskFullError(f"Cannot create logs in {directory}: {_OUT_OF_FILES}")
        return None

    def _is_out_of_files(self, directory: LogDirectory) -> bool:
        """Returns True if a new log would use a reserved file descriptor, even after idle files were closed."""
        return _uses_reserved_files(directory.path) and not (
            self._files.open_files.close_idle() and not _uses_reserved_files(directory.path)
        )

    def _assign_topic_id(self, log: Log, topic_id: Uuid) -> None:
        try:
            write_partition_metadata(log.directory, topic_id, self._files)
        except OSError as error:
            directory = self._directory_of[log.tp]
            raise self._creation_failed("write the topic id of", directory, log.directory, error) from error
        log.topic_id = topic_id

    def _creation_failed(self, action: str, directory: LogDirectory, path: Path, error: OSError) -> KafkaStorageError:
        """Returns the error of a log that could not be created. Takes the directory offline unless the disk is full:
        otherwise only this replica would be offline, and nothing would bring it back before the next start."""
        failure = storage_error(action, path, error)
        if not isinstance(failure, DiskFullError):
            self._take_offline(directory, failure)
        return failure

    def _least_loaded(self) -> LogDirectory:
        online = [directory for directory in self.directories if directory.online]
        if not online:
            raise KafkaStorageError("All log directories are offline")
        return min(online, key=lambda directory: directory.partitions)

    def delete(self, tp: TopicPartition) -> None:
        """Deletes a log. Renames its directory now, and removes the files after `file.delete.delay.ms`."""
        log = self._rename_and_remove(tp, DELETE_DIRECTORY_SUFFIX)
        self.remove_directory_later(log.directory, log.config.file_delete_delay_ms)

    def move_stray_log(self, tp: TopicPartition) -> Path:
        """Removes the log of an unknown partition from the manager, but keeps its files in a renamed directory.

        Returns the new directory. A new log may then use the name of the partition.
        """
        return self._rename_and_remove(tp, STRAY_DIRECTORY_SUFFIX).directory

    def _rename_and_remove(self, tp: TopicPartition, suffix: str) -> Log:
        """Renames a log's directory and removes the log from the manager.

        The checkpoints contain the log until they are written again; see `create`.
        """
        self._check_running()
        log = self._logs.get(tp)
        if log is None:
            raise KafkaStorageError(f"No log exists for partition {tp}")
        directory = self._directory_of[tp]
        self._cleaner.cancel(tp)
        self.futures.delete(tp)
        self.futures.finish_replacement(tp)
        try:
            log.move_to(directory.path / suffixed_directory_name(tp, random_uuid(self._random), suffix))
        except OSError as error:
            raise storage_error("rename", log.directory, error) from error
        try:
            self._files.sync_directory(directory.path)
        except OSError as error:
            # It is unknown whether the rename is on disk, so the log must no longer be written.
            self._take_offline(directory, error)
            raise storage_error("rename", log.directory, error) from error
        log.abandon()
        self._remove_log(tp)
        self.checkpoint_soon(directory)  # else a new log with this name would have to write the checkpoints
        return log

    def replace_log(self, log: Log, directory: LogDirectory) -> LogDirectory:
        """Makes a future log, which was removed from the future logs, the log of its partition. Returns the directory
        of the old one."""
        self._check_running()
        old_directory = self._directory_of[log.tp]
        self._remove_log(log.tp)
        self._add_log(log, directory)
        return old_directory

    def _remove_log(self, tp: TopicPartition) -> None:
        del self._logs[tp]
        self._directory_of.pop(tp).partitions -= 1
        self._cleaner.make_cleanable(tp)

    def remove_directory_later(self, path: Path, delay_ms: int = 0) -> None:
        """Removes the renamed directory of a deleted log in the background."""

        def remove() -> None:
            self.runner.submit(lambda: self._files.remove_tree(path), done)

        def done(result: WorkResult) -> None:
            if result.error is not None:
                _logger.warning("Cannot remove deleted log %s; the next start tries again: %s", path, result.error)

        self.scheduler.after(delay_ms, remove)

    def update_configs(self, configs: Mapping[str, LogConfig]) -> None:
        """Applies new configurations to the logs of these topics."""
        for log in (*self, *self.futures):
            config = configs.get(log.tp.topic)
            if config is not None:
                log.config = config
                self._cleaner.make_cleanable(log.tp)

    # ---- failed directories

    def _take_offline(self, directory: LogDirectory, error: BaseException) -> None:
        """Takes a failed directory offline: closes its logs without flushing and removes them from the manager."""
        if not directory.online:
            return
        directory.failure = str(error)
        partitions = sorted(tp for tp, log_directory in self._directory_of.items() if log_directory is directory)
        _logger.error(
            "Log directory %s is offline with %d partitions; restart the broker after fixing the cause: %s",
            directory,
            len(partitions),
            error,
        )
        for tp in partitions:
            self._cleaner.cancel(tp)
            self._logs[tp].abandon()
            self._remove_log(tp)
        self.futures.take_offline(directory)
        directory.unlock()
        self.on_directory_failed(directory, partitions)

    def fail_directory(self, directory: LogDirectory, reason: str) -> None:
        """Takes a directory offline because the caller could not write to it."""
        self._take_offline(directory, KafkaStorageError(reason))

    # ---- periodic tasks

    def tick(self) -> int | None:
        """Runs the tasks that are due. Returns the time in ms until the next one."""
        self._check_running()
        return self.scheduler.tick()

    def _schedule_tasks(self) -> None:
        config = self.config
        delay = config.log_initial_task_delay_ms
        every = self.scheduler.every
        every(config.log_retention_check_interval_ms, self.apply_retention, delay)
        every(config.log_flush_scheduler_interval_ms, self.flush_due_logs, delay)
        every(config.log_flush_offset_checkpoint_interval_ms, self.checkpoint_recovery_points, delay)
        every(config.log_flush_start_offset_checkpoint_interval_ms, self.checkpoint_log_start_offsets, delay)
        every(config.producer_id_expiration_check_interval_ms, self.remove_expired_producers, delay)
        if config.log_cleaner_enable:
            self.scheduler.after(delay, self._clean_periodically)

    def apply_retention(self) -> int:
        """Applies retention to all logs. Returns the number of deleted segments."""
        return sum(self.attempt(log, lambda log: delete_old_segments(log)) or 0 for log in self)

    def flush_due_logs(self) -> None:
        for log in self:
            if log.config.flush_ms < LONG_MAX and log.is_flush_due():
                self.attempt(log, lambda log: log.flush_in_background())

    def remove_expired_producers(self) -> None:
        for log in self:
            log.remove_expired_producers(self.config.producer_id_expiration_ms)

    def attempt(self, log: Log, action: Callable[[Log], T]) -> T | None:
        """Runs an action on a log that can be repeated later. Returns None if it fails.

        A disk error takes the log's directory offline, unless the disk is only full.
        """
        try:
            return action(log)
        except (KafkaStorageError, OSError) as error:
            self.handle_disk_error(log, error)
        except HeadraceError as error:
            # The stored data is damaged. Readers of this partition will get an error; the other logs are unaffected.
            _logger.error("Partition %s: periodic maintenance failed: %s", log.tp, error)
        return None

    def handle_disk_error(self, log: Log, error: KafkaStorageError | OSError) -> None:
        """Takes the log's directory offline, unless the disk is only full."""
        directory = self._directory_of.get(log.tp)
        if isinstance(error, DiskFullError) or (isinstance(error, OSError) and error.errno in DISK_FULL):
            _logger.warning("Partition %s: disk full, periodic maintenance will be retried: %s", log.tp, error)
        elif directory is not None:
            self._take_offline(directory, error)

    # ---- checkpoints

    def checkpoint_recovery_points(self) -> None:
        for directory in self.directories:
            self._checkpoint_in_background(directory, RECOVERY_POINTS)

    def checkpoint_log_start_offsets(self) -> None:
        for directory in self.directories:
            self._checkpoint_in_background(directory, LOG_STARTS)

    def truncate_many(
        self,
        offsets: Mapping[TopicPartition, int],
        done: Callable[[dict[TopicPartition, KafkaStorageError | None]], object],
        *,
        fully: bool = False,
        is_current: Callable[[TopicPartition], bool] = lambda _: True,
    ) -> None:
        """Truncates logs to offsets, like `Log.truncate_to`, without waiting for the disk on the owner's thread.

        With `fully`, deletes all records and restarts the logs at the offsets, like `Log.truncate_fully_and_start_at`.
        Each checkpoint file is written once for all logs together. The owner's thread truncates a few logs at a time.

        A follower must not append to these logs before `done` is called with the partitions that were truncated, or
        needed no truncation (None), or could not be truncated (the error). `is_current` is called just before a log
        is truncated: it must return False if the broker has become leader of the partition, or follows another leader
        epoch. Then the log stays as it is, and `done` does not get the partition; nor if its log was deleted.
        """
        self._check_running()
        LogTruncation(self, offsets, done, fully, is_current).start()

    def prepare_checkpoints(self, directory: LogDirectory) -> Callable[[], None]:
        """Returns a function for any thread that writes recovery points, log starts and compacted offsets."""
        writes = [self._prepare_checkpoint(directory, kind) for kind in (RECOVERY_POINTS, LOG_STARTS, CLEANED_OFFSETS)]

        def write() -> None:
            for write in writes:
                write()

        return write

    def _prepare_checkpoint(self, directory: LogDirectory, kind: CheckpointKind) -> Callable[[], None]:
        offsets: dict[TopicPartition, int] = {}
        logs = [log for log in self if self._directory_of[log.tp] is directory]
        # As Kafka does: a future log has its own directory, so that its partition has one entry in each file.
        for log in [*logs, *(log for log in self.futures if self.futures.directory_of(log.tp) is directory)]:
            offset = kind.offset_of(log)
            if offset is not None:
                limit = log.checkpoint_limit
                offsets[log.tp] = offset if limit is None else min(offset, limit)
        return kind.file_of(directory).prepare(offsets)

    def _checkpoint_at_once(self, log: Log, directory: LogDirectory) -> None:
        """Writes the checkpoints of a log now, because the old ones would contradict the files.

        A log calls it before a truncation, and before a compaction below its recovery point.
        """
        self._checkpoint_now(directory, RECOVERY_POINTS)
        if directory.log_start_checkpoint.offsets.get(log.tp, 0) != log.log_start_offset:
            self._checkpoint_now(directory, LOG_STARTS)

    def _checkpoint_now(self, directory: LogDirectory, kind: CheckpointKind, must: bool = True) -> None:
        """Writes a checkpoint. On a full disk, keeps the old one; with `must`, raises DiskFullError."""
        if not directory.online:
            return
        try:
            self._prepare_checkpoint(directory, kind)()
        except OSError as error:
            failure = self.checkpoint_failed(directory, error)
            if must and isinstance(failure, DiskFullError):
                raise failure from error
        else:
            self._note_checkpointed(directory, kind)

    def _checkpoint_in_background(self, directory: LogDirectory, kind: CheckpointKind) -> None:
        """Writes a checkpoint in the background; does nothing if its last write is still in progress."""
        file = kind.file_of(directory)
        if not directory.online or file in self._checkpoints_in_progress:
            return

        def done(result: WorkResult) -> None:
            self._checkpoints_in_progress.discard(file)
            if isinstance(result.error, OSError):
                self.checkpoint_failed(directory, result.error)
            else:
                result.result()
                self._note_checkpointed(directory, kind)

        self._checkpoints_in_progress.add(file)
        self.runner.submit(self._prepare_checkpoint(directory, kind), done)

    def checkpoint_recovery_point(self, log: Log, done: Callable[[int | KafkaStorageError], object]) -> None:
        """Writes the recovery point of a log in the background, then calls `done` with the recovery point in the
        checkpoint, or with the error."""
        directory = self._directory_of[log.tp]

        def written(result: WorkResult) -> None:
            if isinstance(result.error, OSError):
                done(self.checkpoint_failed(directory, result.error))
                return
            result.result()
            self._note_checkpointed(directory, RECOVERY_POINTS)
            done(directory.recovery_point_checkpoint.offsets.get(log.tp, 0))

        self.runner.submit(self._prepare_checkpoint(directory, RECOVERY_POINTS), written)

    def _note_checkpointed(self, directory: LogDirectory, kind: CheckpointKind) -> None:
        if kind is RECOVERY_POINTS:
            for tp in directory.recovery_point_checkpoint.offsets:
                if self._directory_of.get(tp) is directory:
                    self._logs[tp].is_checkpointed = True
                elif self.futures.directory_of(tp) is directory:
                    future = self.futures.get(tp)
                    assert future is not None
                    future.is_checkpointed = True

    def checkpoint_failed(self, directory: LogDirectory, error: OSError) -> KafkaStorageError:
        """Returns the error of a failed write. Takes the directory offline unless the disk is only full."""
        failure = storage_error("write a checkpoint to", directory.path, error)
        if isinstance(failure, DiskFullError):
            _logger.warning("Log directory %s: disk full, keeping the old checkpoint: %s", directory, failure)
        else:
            self._take_offline(directory, failure)
        return failure

    def checkpoint_soon(self, directory: LogDirectory) -> None:
        """Writes the checkpoints once after many logs were created or deleted."""
        if directory in self._checkpoints_due:
            return

        def write() -> None:
            self._checkpoints_due.discard(directory)
            for kind in (RECOVERY_POINTS, LOG_STARTS, CLEANED_OFFSETS):
                self._checkpoint_in_background(directory, kind)

        self._checkpoints_due.add(directory)
        self.scheduler.after(_CHECKPOINT_DELAY_MS, write)

    # ---- compaction

    def _clean_periodically(self) -> None:
        self.scheduler.after(self.config.log_cleaner_backoff_ms, self._clean_periodically)
        self.clean_next()

    def clean_next(self) -> TopicPartition | None:
        """Starts to clean the dirtiest log, unless a cleaning is in progress. Returns its partition."""
        return self._cleaner.clean_next()

    def _is_moving(self, tp: TopicPartition) -> bool:
        return tp in self.futures

    def pause_cleaning(self, tp: TopicPartition) -> None:
        """Cancels a compaction of a log that gets a future log. Until it is replaced, there is no other."""
        self._cleaner.cancel(tp)

    def _checkpoint_cleaned_log(self, log: Log) -> None:
        self._checkpoint_in_background(self._directory_of[log.tp], CLEANED_OFFSETS)

    # ---- closing

    def close(self) -> None:
        """Flushes and closes all logs, writes the checkpoints, and marks the shutdown as clean."""
        if self._closed:
            return
        self._cleaner.close()
        self.futures.close()
        self._close_logs()
        for directory in self.directories:
            try:
                self._checkpoint_now(directory, RECOVERY_POINTS)
                self._checkpoint_now(directory, LOG_STARTS)
                if directory.online:
                    directory.write_clean_shutdown()
            except (KafkaStorageError, OSError) as error:
                self._take_offline(directory, error)
        self._closed = True
        for directory in self.directories:
            directory.unlock()

    def _close_logs(self) -> None:
        """Closes all logs: those that must be saved in threads, because that waits for the disk."""
        logs = [*self, *self.futures]
        progress = Progress(self.clock, f"Closing the logs of node {self.node_id}", len(logs))
        unsaved = [log for log in logs if log.must_save]
        chunks = [unsaved[first : first + _LOGS_PER_TASK] for first in range(0, len(unsaved), _LOGS_PER_TASK)]
        with ThreadPoolExecutor(_CLOSING_THREADS) as pool:
            for failures in map(_close_all, chunks) if len(chunks) < 2 else pool.map(_close_all, chunks):
                for log, error in failures:
                    for directory in self.directories:
                        if directory.path == log.directory.parent:
                            self._take_offline(directory, error)
                progress.add(_LOGS_PER_TASK)
        for log in (*self, *self.futures):
            log.abandon()
        progress.finish()

    def abandon(self) -> None:
        """Closes everything without flushing, as in a crash."""
        self._closed = True
        self._cleaner.abandon()
        self.futures.abandon()
        for log in (*self, *self.futures):
            log.abandon()
        for directory in self.directories:
            directory.unlock()


def _close_all(logs: list[Log]) -> list[tuple[Log, Exception]]:
    """Closes logs on any thread. Returns those that could not be saved, with the error."""
    failures: list[tuple[Log, Exception]] = []
    for log in logs:
        log.on_disk_failed = None  # the owner's thread takes the directory offline
        try:
            log.close()
        except (KafkaStorageError, OSError) as error:
            failures.append((log, error))
    return failures
