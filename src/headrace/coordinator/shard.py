"""The interface between the coordinator runtime and the state machine of one partition (a shard)."""

from collections.abc import Callable, Hashable
from typing import Protocol

from headrace.common.clock import Clock
from headrace.common.timing_wheel import Timer, TimerEntry
from headrace.coordinator.result import CoordinatorResult, ProducerInfo
from headrace.records import Record


class CoordinatorShard(Protocol):
    """The state machine of one partition. Synchronous. Only `replay` and `replay_end` change durable state."""

    def replay(self, record: Record, producer: ProducerInfo | None) -> None:
        """Applies a record, while loading and right after an append."""

    def replay_end(self, producer: ProducerInfo, committed: bool) -> None:
        """Applies the marker that ends a producer's transaction in this partition."""

    def on_loaded(self) -> None:
        """Called when all records have been replayed."""

    def on_unloaded(self) -> None:
        """Called when this broker no longer leads the partition."""


class ShardContext:
    """A shard's clock and timers. Each timer has a key."""

    def __init__(
        self, partition: int, clock: Clock, timer: Timer, run: Callable[[Callable[[], CoordinatorResult[None]]], None]
    ):
        self.partition = partition
        self._clock = clock
        self._timer = timer
        self._run = run
        self._entries: dict[Hashable, TimerEntry] = {}

    def now_ms(self) -> int:
        """Returns the wall-clock time, for timestamps in records."""
        return self._clock.time_ms()

    def steady_ms(self) -> int:
        """Returns the monotonic time, for deadlines."""
        return round(self._clock.monotonic() * 1000)

    def run(self, operation: Callable[[], CoordinatorResult[None]]) -> None:
        """Runs an operation now."""
        self._run(operation)

    def schedule(self, key: Hashable, delay_ms: int, operation: Callable[[], CoordinatorResult[None]]) -> None:
        """Runs an operation after a delay. Replaces the timer with the same key."""
        self.cancel(key)

        def due() -> None:
            self._entries.pop(key, None)
            self._run(operation)

        self._entries[key] = self._timer.add(delay_ms, due)

    def cancel(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.cancel()

    def scheduled(self) -> set[Hashable]:
        """Returns the keys of the active timers."""
        return set(self._entries)

    def cancel_all(self) -> None:
        for entry in self._entries.values():
            entry.cancel()
        self._entries.clear()
