"""The log cleaner manager: selects the dirtiest log and runs one cleaning at a time."""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from headrace.common.background import WorkResult
from headrace.common.errors import KafkaStorageError
from headrace.common.types import TopicPartition
from headrace.records import DEFAULT_MAX_INFLATED_BYTES
from headrace.storage.cleaner import CleanerConfig, CleaningJob, finish_cleaning, log_to_clean, plan_cleaning
from headrace.storage.config import ManagerConfig
from headrace.storage.context import LogContext
from headrace.storage.files import DiskFullError
from headrace.storage.log import Log

_logger = logging.getLogger(__name__)

T = TypeVar("T")


class DiskErrorHandling(Protocol):
    """The log manager's handling of errors of its logs."""

    def attempt(self, log: Log, action: Callable[[Log], T]) -> T | None:
        """Runs an action; returns None if it fails."""

    def handle_disk_error(self, log: Log, error: KafkaStorageError | OSError) -> None:
        """Takes the log's directory offline, unless the disk is only full."""

    def checkpoint_recovery_point(self, log: Log, done: Callable[[int | KafkaStorageError], object]) -> None:
        """Writes the recovery point of a log in the background, then calls `done` with the recovery point in the
        checkpoint, or with the error."""


class LogCleanerManager:
    """Runs the cleanings of a log manager. Called on the manager's thread."""

    def __init__(
        self,
        context: LogContext,
        config: Callable[[], ManagerConfig],
        logs: Mapping[TopicPartition, Log],
        errors: DiskErrorHandling,
        on_cleaned: Callable[[Log], None],
        is_moving: Callable[[TopicPartition], bool] = lambda _: False,
    ):
        """`config` and `logs` are live: both may change. `on_cleaned` checkpoints the cleaned offset of a log.
        A log for which `is_moving` returns True is being copied to another directory: it is not cleaned."""
        self._context = context
        self._config = config
        self._logs = logs
        self._errors = errors
        self._on_cleaned = on_cleaned
        self._is_moving = is_moving
        self._uncleanable: set[TopicPartition] = set()
        self._job: CleaningJob | None = None
        self._closed = False

    def clean_next(self) -> TopicPartition | None:
        """Starts to clean the dirtiest log, unless a cleaning is in progress. Returns its partition."""
        if self._job is not None or self._closed:
            return None
        attempt = self._errors.attempt
        candidates = [
            log
            for log in self._logs.values()
            if log.config.compact and log.tp not in self._uncleanable and not self._is_moving(log.tp)
        ]
        dirty = [
            (cleanable, log)
            for cleanable, log in ((attempt(log, log_to_clean), log) for log in candidates)
            if cleanable is not None
            and cleanable.dirty_bytes
            and (cleanable.overdue or cleanable.dirty_ratio >= log.config.min_cleanable_dirty_ratio)
        ]
        if not dirty:
            return None
        cleanable, log = max(dirty, key=lambda pair: (pair[0].overdue, pair[0].dirty_ratio))
        job = attempt(log, lambda log: plan_cleaning(log, self._cleaner_config(log), cleanable))
        if job is None:
            return None
        self._job = job
        self._context.runner.submit(job.run, lambda result: self._finish(log, job, result))
        return log.tp

    def _cleaner_config(self, log: Log) -> CleanerConfig:
        config = self._config()
        return CleanerConfig(
            dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
            load_factor=config.log_cleaner_io_buffer_load_factor,
            io_buffer_bytes=config.log_cleaner_io_buffer_size,
            max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
            # The topic's limit may have been larger when the batches were appended.
            max_inflated_bytes=max(self._context.max_inflated_bytes(log.config), DEFAULT_MAX_INFLATED_BYTES),
        )

    def _finish(self, log: Log, job: CleaningJob, result: WorkResult) -> None:
        if not self._is_current(log, job):
            self._job = None
            job.discard()  # its source segments no longer exist
            return
        if result.error is None:
            if job.flush is not None:
                log.finish_flush(job.flush)
            # Before the swap, the recovery point must be on disk: see `finish_cleaning`.
            self._errors.checkpoint_recovery_point(log, lambda point: self._swap(log, job, point))
            return
        self._job = None
        if isinstance(result.error, OSError | DiskFullError):
            self._errors.handle_disk_error(log, result.error)
            return
        self._uncleanable.add(log.tp)
        _logger.error(
            "Partition %s: compaction failed and is disabled until the topic's config changes: %s",
            log.tp,
            result.error,
        )

    def _is_current(self, log: Log, job: CleaningJob) -> bool:
        """Returns False if the job was cancelled, or the log was deleted or changed meanwhile, or is about to be
        truncated: then the checkpoint may not have the recovery point that the swap needs."""
        if job.cancelled or self._closed or self._logs.get(log.tp) is not log:
            return False
        return log.checkpoint_limit is None and job.applies_to(log)

    def _swap(self, log: Log, job: CleaningJob, point: int | KafkaStorageError) -> None:
        self._job = None
        if isinstance(point, KafkaStorageError) or not self._is_current(log, job):
            job.discard()
            return
        is_checkpointed = point >= job.end_offset
        if self._errors.attempt(log, lambda log: int(finish_cleaning(log, job, is_checkpointed=is_checkpointed))):
            self._on_cleaned(log)
            _logger.info("Partition %s: compacted up to offset %d: %s", log.tp, job.cleaned_up_to, job.stats)

    def make_cleanable(self, tp: TopicPartition) -> None:
        """Allows cleanings of a log again after its config has changed or it was deleted."""
        self._uncleanable.discard(tp)

    def cancel(self, tp: TopicPartition) -> None:
        """Cancels a cleaning of this partition."""
        if self._job is not None and self._job.log_name == str(tp):
            self._job.cancelled = True

    def abandon(self) -> None:
        """Starts no more cleanings and discards the result of the cleaning in progress, without cancelling it."""
        self._closed = True

    def close(self) -> None:
        """Cancels the cleaning in progress and starts no more."""
        self._closed = True
        if self._job is not None:
            self._job.cancelled = True
