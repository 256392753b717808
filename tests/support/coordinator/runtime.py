"""A partition log in memory, and a coordinator runtime with a manual clock."""

from collections.abc import Callable
from typing import Generic

from headrace.common.errors import KafkaError
from headrace.common.timing_wheel import Timer
from headrace.coordinator.result import CommitCallback
from headrace.coordinator.runtime import CoordinatorRuntime, S
from headrace.coordinator.shard import ShardContext
from headrace.records import RecordBatch
from headrace.testing.clock import ManualClock


class MemoryLog:
    """Commits at once; with `replicated` False only on `commit`."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.replicated = True
        self.committed = 0
        self.failure: KafkaError | None = None
        """The error of the next appends."""
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
        """Commits everything so far, or fails the pending callbacks with an error."""
        if error is None:
            self.committed = self.end_offset()
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            done(error)

    def truncate(self) -> None:
        """Drops uncommitted records, as after the election of a leader without them."""
        self.batches = [batch for batch in self.batches if batch.next_offset <= self.committed]
        self._waiting.clear()


class Steps:
    """Replaces the event loop: callbacks run when the test says so."""

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


class Bench(Generic[S]):
    """One partition of a runtime, with a manual clock and a controllable log."""

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
        """Simulates a crash: loses the state in memory, keeps the log."""
        self.runtime.unload(0)
        self.load()

    @property
    def shard(self) -> S:
        return self.runtime.shard(0)

    def pass_time(self, ms: int) -> None:
        """Advances the clock and runs each timer at its time."""
        end = self.clock.now_ms + ms
        while True:
            due = self.timer.next_due_ms()
            if due is None or self.clock.now_ms + due > end:
                break
            self.clock.advance(due)
            self.timer.advance()
        self.clock.advance(end - self.clock.now_ms)
        self.timer.advance()
