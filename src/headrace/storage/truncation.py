"""Truncation of many logs, as at a failover. The owner's thread never waits for the disk.

    owner        limits what the checkpoints may contain of each log to its truncation offset
    background   writes the checkpoint files, once for all logs of a directory
    owner        truncates the files, a few logs at a time
    background   syncs them
    owner        the logs may be appended to again

Safety: see `Log.truncate_to`. The checkpoint files are lowered before any file of a log is truncated. They stay below
the truncation offset, because every checkpoint that is prepared until then respects the limit, and no checkpoint that
was prepared earlier is written later (`OffsetCheckpoint`). Truncated data is off the disk before the next append.
"""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, cast

from headrace.common.background import BackgroundRunner, WorkResult
from headrace.common.errors import KafkaStorageError
from headrace.common.types import TopicPartition
from headrace.storage.directory import LogDirectory
from headrace.storage.files import storage_error
from headrace.storage.flushing import TruncationTask
from headrace.storage.log import Log

_LOGS_PER_TURN = 16
"""How many logs are truncated before the owner's thread gets other work."""

TruncationResults = dict[TopicPartition, KafkaStorageError | None]
_Synced = list[tuple[Log, TruncationTask, OSError | None]]


class _LogManager(Protocol):
    """What a truncation needs of the log manager."""

    runner: BackgroundRunner

    def get(self, tp: TopicPartition) -> Log | None: ...
    def directory_of(self, tp: TopicPartition) -> LogDirectory | None: ...
    def prepare_checkpoints(self, directory: LogDirectory) -> Callable[[], None]: ...
    def checkpoint_failed(self, directory: LogDirectory, error: OSError) -> KafkaStorageError: ...


class LogTruncation:
    """One step that truncates logs. See `LogManager.truncate_many`."""

    def __init__(
        self,
        manager: _LogManager,
        offsets: Mapping[TopicPartition, int],
        done: Callable[[TruncationResults], object],
        fully: bool,
        is_current: Callable[[TopicPartition], bool],
    ):
        self._manager = manager
        self._offsets = offsets
        self._done = done
        self._fully = fully
        self._is_current = is_current
        self._results: TruncationResults = {}
        self._logs: deque[Log] = deque()
        self._turn_in_progress = False
        self._is_in_loop = False

    def start(self) -> None:
        directories: dict[LogDirectory, list[Log]] = {}
        for tp, offset in self._offsets.items():
            log, directory = self._manager.get(tp), self._manager.directory_of(tp)
            if log is None or directory is None:
                continue
            self._logs.append(log)
            if (self._fully or offset < log.log_end_offset) and log.needs_lower_checkpoint(offset):
                limit = log.checkpoint_limit
                log.checkpoint_limit = offset if limit is None else min(limit, offset)
                log.is_limit_checkpointed = False
                directories.setdefault(directory, []).append(log)
        if not directories:
            self._truncate()
            return
        missing = len(directories)

        def written(directory: LogDirectory, result: WorkResult) -> None:
            nonlocal missing
            self._note_checkpoint(directory, directories[directory], result)
            missing -= 1
            if missing == 0:
                self._truncate()

        for directory in list(directories):
            write = self._manager.prepare_checkpoints(directory)
            self._manager.runner.submit(write, partial(written, directory))

    def _note_checkpoint(self, directory: LogDirectory, logs: list[Log], result: WorkResult) -> None:
        if result.error is None:
            for log in logs:
                log.is_limit_checkpointed = log.checkpoint_limit is not None
            return
        if not isinstance(result.error, OSError):
            result.result()
        else:
            failure = self._manager.checkpoint_failed(directory, result.error)
            for log in logs:
                log.checkpoint_limit = None
                self._results[log.tp] = failure

    def _truncate(self) -> None:
        """Truncates the logs in turns; the syncs of a turn end before the next one begins."""
        if self._is_in_loop:
            return
        self._is_in_loop = True
        while self._logs and not self._turn_in_progress:
            self._turn_in_progress = True
            turn = [self._logs.popleft() for _ in range(min(_LOGS_PER_TURN, len(self._logs)))]
            tasks = [(log, task) for log in turn if (task := self._truncate_log(log)) is not None]
            self._manager.runner.submit(partial(_sync, tasks), self._synced)
        self._is_in_loop = False
        if not self._logs and not self._turn_in_progress:
            self._done(self._results)

    def _truncate_log(self, log: Log) -> TruncationTask | None:
        tp = log.tp
        try:
            if tp in self._results or self._manager.get(tp) is not log or not self._is_current(tp):
                return None
            offset = self._offsets[tp]
            task = log.begin_full_truncation(offset) if self._fully else log.begin_truncation(offset)
        except KafkaStorageError as error:
            self._results[tp] = error
            return None
        finally:
            log.checkpoint_limit = None
        self._results[tp] = None
        return task

    def _synced(self, result: WorkResult) -> None:
        self._turn_in_progress = False
        for log, task, error in cast(_Synced, result.result()):
            if error is None:
                log.finish_truncation(task)
            elif self._manager.get(log.tp) is log:
                self._results[log.tp] = storage_error("truncate", log.directory, error)
                if log.on_disk_failed is not None:
                    log.on_disk_failed(error)
        self._truncate()


def _sync(tasks: list[tuple[Log, TruncationTask]]) -> _Synced:
    """Syncs the files of truncated logs on any thread. Returns the errors."""
    synced: _Synced = []
    for log, task in tasks:
        error: OSError | None = None
        try:
            task.run()
        except OSError as failure:
            error = failure
        synced.append((log, task, error))
    return synced
