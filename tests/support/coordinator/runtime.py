"""A partition's log in memory, and a runtime over it with a clock that the test moves."""

from collections.abc import Callable

from headrace.common.errors import KafkaError
from headrace.common.timing_wheel import Timer
from headrace.coordinator.result import CommitCallback
from headrace.coordinator.runtime import CoordinatorRuntime, S
from headrace.coordinator.shard import ShardContext
from headrace.records import RecordBatch
from headrace.testing.clock import ManualClock


class MemoryLog:
    """Commits at once, unless `replicated` is False: then up to where `commit` says."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.replicated = True
        self.committed = 0
        self.failure: KafkaError | None = None
        """What the next appends end in."""
        self.refused = 0
        self._waiting: list[tuple[int, CommitCallback]] = []

    def start_offset(self) -> int:
        return self.batches[0].base_offset if self.batches else 0

    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def read(self, offset: int, max_bytes: int) -> list[RecordBatch]:
        found: list[RecordBatch] = []
        for batch in self.batches:
            if batch.next_offset > offset:
                found.append(batch)
                max_bytes -= batch.size_in_bytes
                if max_bytes <= 0:
                    break
        return found

    def append(self, batch: bytearray) -> int:
        if self.failure is not None:
            self.refused += 1
            raise self.failure
        made = RecordBatch(batch)
        made.patch_base_offset(self.end_offset())
        self.batches.append(made)
        if self.replicated:
            self.committed = made.next_offset
        return made.last_offset

    def is_committed(self, offset: int) -> bool:
        return offset < self.committed

    def when_committed(self, offset: int, done: CommitCallback) -> None:
        self._waiting.append((offset, done))

    def commit(self, error: KafkaError | None = None) -> None:
        """Everything so far is replicated now; or those who wait for it get an error."""
        if error is None:
            self.committed = self.end_offset()
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            done(error)

    def truncate(self) -> None:
        """What is not committed is lost, as when a replica leads that did not have it."""
        self.batches = [batch for batch in self.batches if batch.next_offset <= self.committed]
        self._waiting.clear()


class Steps:
    """Stands in for the loop: what is to run soon runs when the test says so."""

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []

    def __call__(self, action: Callable[[], None]) -> None:
        self._due.append(action)

    def __len__(self) -> int:
        return len(self._due)

    def step(self) -> None:
        self._due.pop(0)()

    def run(self) -> None:
        while self._due:
            self.step()


class Bench:
    """One partition of a runtime, with time and disk in the test's hand."""

    def __init__(self, make_shard: Callable[[ShardContext], S], load_bytes: int = 1 << 20):
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.log = MemoryLog()
        self.steps = Steps()
        self.runtime: CoordinatorRuntime[S] = CoordinatorRuntime(
            "__internal", make_shard, self.clock, self.timer, self.steps, load_bytes=load_bytes
        )
        self.epoch = 0
        self.load()

    def load(self) -> None:
        self.epoch += 1
        self.runtime.load(0, self.epoch, self.log)
        self.steps.run()

    def reload(self) -> None:
        """As after a crash: everything in memory is gone, what was written is there."""
        self.runtime.unload(0)
        self.load()

    @property
    def shard(self) -> S:
        return self.runtime.shard(0)

    def pass_time(self, ms: int) -> None:
        """Moves the clock, stopping wherever something is due on the way."""
        end = self.clock.now_ms + ms
        while True:
            due = self.timer.next_due_ms()
            if due is None or self.clock.now_ms + due > end:
                break
            self.clock.advance(due)
            self.timer.advance()
        self.clock.advance(end - self.clock.now_ms)
        self.timer.advance()
