"""A seeded simulation of logs on a disk with power losses.

A LogModel remembers the appended batches of one log and the offset up to which the log was flushed. After a crash and a
recovery, `LogModel.check` requires:

    of a log that is not compacted   a prefix of the appended batches, byte for byte, with all flushed ones
    of a compacted log               records as they were appended, with the latest value of each key, as of the log's
                                     recovered end, which is not below the flushed offset
    of both                          everything that `log_checks.check_log` requires

An interrupted step counts as done, not done, or partly done if it has parts.
"""

from collections.abc import Callable
from random import Random

from tests.support.storage.log_checks import check_log, committed_in, committed_records, latest_values, producers_of
from tests.support.storage.log_workload import Mix, random_append, random_rows

from headrace.common.background import WorkResult
from headrace.records import RecordBatch, decode_rows, encode_rows
from headrace.storage.cleaner import CleanerConfig, finish_cleaning, plan_cleaning
from headrace.storage.log import Log
from headrace.storage.retention import delete_old_segments
from headrace.testing.clock import ManualClock


class DeferredRunner:
    """Background work that runs when the test starts it, and never after a power loss."""

    def __init__(self) -> None:
        self.queue: list[tuple[Callable[[], object], Callable[[WorkResult], object]]] = []

    def submit(self, work: Callable[[], object], done: Callable[[WorkResult], object]) -> None:
        self.queue.append((work, done))

    def run_one(self) -> None:
        if self.queue:
            work, done = self.queue.pop(0)
            try:
                outcome = WorkResult(work())
            except Exception as error:  # noqa: BLE001 - as the runners of headrace.common.background do
                outcome = WorkResult(error=error)
            done(outcome)

    def run_all(self) -> None:
        while self.queue:
            self.run_one()


class LogModel:
    """The content that one log must have after a crash."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.flushed = 0
        self.truncating_to: int | None = None
        """The offset of a truncation in progress: records from there on may be lost."""
        self.highest_start = 0
        """The highest possible log start offset: nothing above it was deleted."""

    def check(self, log: Log) -> None:
        """Compares the log with the model, then adopts the log's content."""
        readable = check_log(log)
        start, end = log.log_start_offset, log.log_end_offset
        assert start <= self.highest_start, f"the log starts at {start}, nothing above {self.highest_start} was deleted"
        missing = [batch for batch in self.batches if batch.base_offset < self.flushed and batch.next_offset > end]
        assert not missing, f"the log ends at {end}, but was flushed up to {self.flushed}: {missing}"
        expected = [batch for batch in self.batches if batch.last_offset >= start and batch.next_offset <= end]
        if log.config.compact:
            self._check_compacted(log, readable, expected)
        else:
            found, wanted = [bytes(batch.raw) for batch in readable], [bytes(batch.raw) for batch in expected]
            assert found == wanted, f"found {readable}, expected {expected}"
        # Records below the log start or removed by compaction stay in the model: a crash may bring them back.
        self.batches = [batch for batch in self.batches if batch.next_offset <= end]
        self.flushed = min(self.flushed, end)
        self.truncating_to = None
        self.note(log)

    def _check_compacted(self, log: Log, readable: list[RecordBatch], expected: list[RecordBatch]) -> None:
        appended = {record.offset: record for batch in expected for record in decode_rows(batch.records())}
        for batch in readable:
            for record in decode_rows(batch.records()):
                original = appended[record.offset]
                assert (record.key, record.value, record.timestamp) == (
                    original.key,
                    original.value,
                    original.timestamp,
                ), f"offset {record.offset}"
        start, stable = log.log_start_offset, log.last_stable_offset
        wanted = latest_values([record for record in committed_in(expected) if start <= record.offset < stable])
        found = latest_values(committed_records(log))
        assert found == wanted, {
            key: (found.get(key), wanted.get(key))
            for key in found.keys() | wanted.keys()
            if found.get(key) != wanted.get(key)
        }
        # Compaction retains sequence numbers.
        for producer_id, seen in producers_of(expected).items():
            entry = log.producers.entries[producer_id]
            assert entry.epoch == seen.epoch, (producer_id, entry, seen)
            if seen.last_sequence >= 0:
                assert entry.last_sequence == seen.last_sequence, (producer_id, entry, seen)

    def note(self, log: Log) -> None:
        """Checks the log after each step that was not interrupted."""
        if self.truncating_to is None:
            self.flushed = max(self.flushed, min(log.recovery_point, log.log_end_offset))
        self.highest_start = log.log_start_offset


class Workload:
    """Random steps on one log."""

    def __init__(self, random: Random, mix: Mix, clock: ManualClock, compacts: bool = True):
        """Without `compacts`, the log manager does the compaction."""
        self.random = random
        self.mix = mix
        self.clock = clock
        self.compacts = compacts
        self.leader_epoch = 0

    def step(self, log: Log, model: LogModel) -> None:
        random = self.random
        self.clock.advance(random.choice((0, 1, 10, 100)))
        kind = random.random()
        if kind < 0.70:
            self.append(log, model)
        elif kind < 0.75 and not log.config.compact:
            self.append_as_follower(log, model)
        elif kind < 0.83:
            log.flush(random.choice((None, None, random.randint(log.log_start_offset, log.log_end_offset))))
        elif kind < 0.87:
            log.roll()
        elif kind < 0.91 and not log.config.compact:
            self.truncate(log, model)
        elif kind < 0.94:
            self.delete_records(log, model)
        elif kind < 0.97:
            self.retain(log, model)
        elif log.config.compact and self.compacts:
            self.compact(log)
        model.note(log)

    def append(self, log: Log, model: LogModel) -> None:
        if self.random.random() < 0.03:
            self.leader_epoch += 1
        data, origin = random_append(log, self.random, self.mix)
        RecordBatch(data).patch_leader_epoch(-1)
        try:
            log.append_as_leader(data, self.leader_epoch, origin)
        finally:
            # The bytes get their offsets before they are written.
            if RecordBatch(data).leader_epoch == self.leader_epoch:
                model.batches.append(RecordBatch(data))
        log.update_high_watermark(log.log_end_offset)

    def append_as_follower(self, log: Log, model: LogModel) -> None:
        """Appends as a follower: a leader's log may have gaps after compaction."""
        base_offset = log.log_end_offset + self.random.choice((0, 0, 0, 1, 7))
        rows = random_rows(self.random, self.clock, self.mix)
        data = encode_rows(rows, base_offset=base_offset, leader_epoch=self.leader_epoch)
        model.batches.append(RecordBatch(data))
        log.append_as_follower(data)
        log.update_high_watermark(log.log_end_offset)

    def truncate(self, log: Log, model: LogModel) -> None:
        if self.random.random() < 0.15:
            self.start_over(log, model)
            return
        offset = self.random.randint(max(log.log_start_offset, log.log_end_offset - 40), log.log_end_offset)
        kept = [batch for batch in model.batches if batch.last_offset < offset]
        model.flushed = min([model.flushed, offset, *(batch.base_offset for batch in model.batches[len(kept) :])])
        log.truncate_to(offset)
        model.batches = kept
        self.leader_epoch += 1

    def start_over(self, log: Log, model: LogModel) -> None:
        random = self.random
        offset = random.choice((random.randint(0, log.log_start_offset), log.log_end_offset + random.randint(0, 50)))
        model.flushed = 0
        model.highest_start = max(model.highest_start, offset)
        log.truncate_fully_and_start_at(offset)
        model.batches = []
        self.leader_epoch += 1

    def delete_records(self, log: Log, model: LogModel) -> None:
        start, end = log.log_start_offset, log.log_end_offset
        offset = self.random.randint(start, min(end, start + 30))
        model.highest_start = offset
        log.delete_records(offset)

    def retain(self, log: Log, model: LogModel) -> None:
        model.highest_start = log.log_end_offset
        delete_old_segments(log)

    def compact(self, log: Log) -> None:
        job = plan_cleaning(log, CleanerConfig(dedupe_buffer_bytes=self.random.choice((1024, 1024 * 1024))))
        if job is not None:
            job.run()
            finish_cleaning(log, job)
