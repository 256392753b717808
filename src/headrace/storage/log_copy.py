"""Copies the log of a partition to its future log, in another directory: decides what to do next.

    truncate the copy to what it has in common with the log → read a slice of the log, append it to the copy → ... →
    flush the copy → replace the log

- The log is used meanwhile. Its leader or follower appends to it, a follower truncates it, retention deletes segments.
- After a truncation of the log, and after a restart, the leader epochs of both logs tell what they have in common.
- If retention overtakes the copy, it restarts where the log starts.

The owner of the logs calls `next` and executes the step: reads, flushes and truncations in the background.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from headrace.common.types import Buffer, TopicPartition
from headrace.records import split_batches
from headrace.storage.fetch_slice import FetchSlice
from headrace.storage.future_logs import FutureLogs
from headrace.storage.log import Log
from headrace.storage.reading import FetchIsolation


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the future log to an offset; with `fully`, delete its records and restart it there."""

    offset: int
    fully: bool


@dataclass(frozen=True, slots=True)
class Read:
    """Read a slice of the log, and pass its bytes to `LogCopy.append`."""

    slice: FetchSlice
    fetch_offset: int
    truncation_count: int


class Simple(Enum):
    """A step without parameters."""

    FLUSH = "flush the future log"
    WAIT = "wait for a sync or truncation of either log"
    REPLACE = "replace the log by the future log"
    STOP = "stop, because one of the logs does not exist any more"


Step: TypeAlias = Truncate | Read | Simple


class LogCopy:
    """The copy of one log. It survives a replacement of the log by a new one with the same name."""

    def __init__(self, tp: TopicPartition, futures: FutureLogs):
        self.tp = tp
        self._futures = futures
        self._compared: tuple[Log, Log, int] | None = None
        """The logs that are known to agree up to the end of the future log, as long as the log is not truncated."""

    @property
    def lag(self) -> int:
        """The number of offsets that the future log is behind; 0 if it does not exist any more."""
        logs = self._futures.pair(self.tp)
        return max(0, logs[0].log_end_offset - logs[1].log_end_offset) if logs is not None else 0

    def next(self, max_bytes: int) -> Step:
        """Returns the next step. A read has at most `max_bytes`, or one batch."""
        logs = self._futures.pair(self.tp)
        if logs is None:
            return Simple.STOP
        log, future = logs
        if self._compared != (log, future, log.truncation_count):
            end = common_end(log, future)
            if end < future.log_end_offset:
                restarts = end <= future.log_start_offset
                return Truncate(_start_of(log) if restarts else end, restarts)
            self._compared = log, future, log.truncation_count
        if future.log_start_offset > log.log_start_offset:
            return Truncate(_start_of(log), True)  # a crash has undone the deletion of records of the log
        if future.log_end_offset < log.log_start_offset and future.log_end_offset < (start := _start_of(log)):
            return Truncate(start, True)
        if future.log_end_offset < log.log_end_offset:
            fetch_offset = max(future.log_end_offset, log.log_start_offset)
            found = log.read(fetch_offset, max_bytes, FetchIsolation.LOG_END).slice
            if found is not None and found.base_offset < future.log_end_offset:
                # The copy ends in the middle of a batch: in a gap after a truncation, or at a log start offset.
                return Truncate(found.base_offset, found.base_offset <= future.log_start_offset)
            if found is not None:
                return Read(found, future.log_end_offset, log.truncation_count)
            future.skip_to(log.log_end_offset)
        if self._futures.can_replace(self.tp):
            return Simple.REPLACE
        if not log.is_settled or not future.is_settled or future.recovery_point >= log.recovery_point:
            return Simple.WAIT
        return Simple.FLUSH

    def append(self, step: Read, records: Buffer) -> int:
        """Appends the bytes of a slice. Returns the number of appended bytes: none if the logs have changed so that
        they do not fit any more."""
        logs = self._futures.pair(self.tp)
        if logs is None or self._compared != (*logs, step.truncation_count):
            return 0
        log, future = logs
        if step.truncation_count != log.truncation_count or step.fetch_offset != future.log_end_offset:
            return 0
        batches = split_batches(records, allow_partial=True)
        if not batches:
            return 0
        size = batches[-1].position + batches[-1].size_in_bytes
        future.append_as_follower(memoryview(records)[:size])
        future.update_high_watermark(min(log.high_watermark, future.log_end_offset))
        future.increment_log_start_offset(min(log.log_start_offset, future.log_end_offset))
        return size


def common_end(log: Log, copy: Log) -> int:
    """Returns the offset up to which a copy has the records of its log; at most its log start if it has none of them.

    log     epoch 3: 0-99    epoch 5: 100-150
    copy    epoch 3: 0-99    epoch 4: 100-120       both have 0-99
    """
    if copy.log_end_offset == copy.log_start_offset:
        return min(copy.log_end_offset, log.log_end_offset)
    end = copy.log_end_offset
    for entry in reversed(copy.epochs.entries):
        epoch, end_in_log = log.end_offset_for_epoch(entry.epoch)
        if epoch == entry.epoch and end_in_log > entry.start_offset:
            return min(end, end_in_log)
        end = entry.start_offset
    return copy.log_start_offset


def _start_of(log: Log) -> int:
    """Returns where the first batch of a log starts: perhaps below the log start offset, after DeleteRecords."""
    return log.start_of_batch_at(log.log_start_offset)
