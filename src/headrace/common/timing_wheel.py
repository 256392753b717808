"""A hierarchical timing wheel, which runs all timeouts and expirations of a broker.

Time is divided into ticks. A wheel has a bucket for each of the next `wheel_size` ticks. Later entries go to the next
wheel, whose tick is as long as the whole wheel below (here with tick_ms=1 and wheel_size=20, at time 0):

    wheel 0   | 0 | 1 | 2 |  ...  | 19 |           a tick is   1 ms, the wheel covers    20 ms
    wheel 1   | 0-19 | 20-39 |  ...  | 380-399 |   a tick is  20 ms, the wheel covers   400 ms
    wheel 2   | 0-399 | 400-799 |  ...             a tick is 400 ms, the wheel covers 8,000 ms
    ...                                            wheels are added for longer delays

When the time of a bucket begins, its entries move to the buckets of lower wheels. In wheel 0, they are due. Wheels are
circular: an emptied bucket is reused for the tick one round later.

    advance to 400:  wheel 2 | 400-799 |  --moves-->  wheel 1 | 420-439 |  ...  and  wheel 0 | 400 | 401 | ...

- A heap contains the non-empty buckets by start time, so `advance` skips time in which nothing is due. The heap has at
  most one item per bucket, regardless of the number of entries.
- Adding and cancelling take constant time, and an entry moves at most once per wheel.
- One thread owns a Timer and calls all its methods. Callbacks run on that thread and may add and cancel entries.
- An entry never runs early (to the millisecond) and never twice.
- Entries of different ticks run in order. The order within a tick is undefined.
"""

import heapq
import logging
from collections.abc import Callable

from headrace.common.clock import Clock

_logger = logging.getLogger(__name__)


class TimerEntry:
    """A scheduled callback, and the handle to cancel it."""

    __slots__ = ("_bucket", "_callback", "deadline_ms")

    def __init__(self, deadline_ms: int, callback: Callable[[], object], bucket: "_Bucket"):
        self.deadline_ms = deadline_ms
        """The due time in monotonic time, rounded up to a tick."""
        self._callback = callback
        self._bucket: _Bucket | None = bucket

    @property
    def pending(self) -> bool:
        """True until the callback runs or is cancelled."""
        return self._bucket is not None

    def cancel(self) -> None:
        """Cancels the callback. Does nothing if it has run or was cancelled."""
        bucket, self._bucket = self._bucket, None
        if bucket is not None:
            bucket.timer._pending -= 1
            bucket.entries.pop(self, None)  # already removed if its bucket is running


class _Bucket:
    """The entries of one tick of one wheel. `queued` is True while it is in the timer's heap."""

    __slots__ = ("entries", "level", "queued", "start_ms", "timer")

    def __init__(self, timer: "Timer", level: int):
        self.timer = timer
        self.level = level
        self.start_ms = 0
        self.queued = False
        self.entries: dict[TimerEntry, None] = {}


class Timer:
    """Runs callbacks after a delay. The owner calls `advance` to run the due callbacks.

    The timer calls `on_earlier` when a new entry may be due before all others. A loop that sleeps until `next_due_ms`
    can then wake up earlier.
    """

    def __init__(
        self,
        clock: Clock,
        tick_ms: int = 1,
        wheel_size: int = 20,
        on_earlier: Callable[[], object] | None = None,
    ):
        if tick_ms < 1 or wheel_size < 2:
            raise ValueError(f"tick_ms={tick_ms} must be at least 1 and wheel_size={wheel_size} at least 2")
        self.buckets_opened = 0
        """The number of buckets that `advance` has removed from the heap: a measure of its work."""
        self.entries_moved = 0
        """The number of entries that `advance` has moved to a lower wheel."""
        self.on_earlier = on_earlier
        self._clock = clock
        self._size = wheel_size
        self._ticks_ms = [tick_ms]
        self._wheels = [[_Bucket(self, 0) for _ in range(wheel_size)]]
        self._now_bucket = _Bucket(self, -1)  # entries without delay, outside the wheels
        self._heap: list[tuple[int, int, _Bucket]] = []
        self._pending = 0
        self._current_ms = self._now_ms()  # the time of the wheels

    def __len__(self) -> int:
        """Returns the number of pending entries."""
        return self._pending

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    def add(self, delay_ms: int, callback: Callable[[], object]) -> TimerEntry:
        """Runs `callback` once after the delay, or at the next `advance` if there is no delay."""
        now_ms = round(self._clock.monotonic() * 1000)
        if delay_ms <= 0:
            bucket, deadline_ms = self._now_bucket, now_ms
            earlier = not bucket.entries
        else:
            tick_ms = self._ticks_ms[0]
            deadline_ms = -(-(now_ms + delay_ms) // tick_ms) * tick_ms
            bucket = self._bucket_for(deadline_ms)
            earlier = not bucket.queued and self._queue(bucket)
        entry = TimerEntry(deadline_ms, callback, bucket)
        bucket.entries[entry] = None
        self._pending += 1
        if earlier and self.on_earlier is not None:
            self.on_earlier()
        return entry

    def _bucket_for(self, deadline_ms: int) -> _Bucket:
        """Returns the bucket for a deadline in the lowest wheel that covers it, with its start time set."""
        current_ms = self._current_ms
        level, tick_ms = 0, self._ticks_ms[0]
        while deadline_ms - (current_ms - current_ms % tick_ms) >= tick_ms * self._size:
            level += 1
            if level == len(self._wheels):
                self._ticks_ms.append(tick_ms * self._size)
                self._wheels.append([_Bucket(self, level) for _ in range(self._size)])
            tick_ms = self._ticks_ms[level]
        number = deadline_ms // tick_ms
        bucket = self._wheels[level][number % self._size]
        if not bucket.queued:
            bucket.start_ms = number * tick_ms
        return bucket

    def _queue(self, bucket: _Bucket) -> bool:
        """Adds a bucket to the heap. Returns True if it is the first one.

        Of two buckets with the same start time, the one of the higher wheel comes first, since it may have entries for
        the other.
        """
        bucket.queued = True
        heapq.heappush(self._heap, (bucket.start_ms, -bucket.level, bucket))
        return self._heap[0][2] is bucket

    def _pop(self) -> _Bucket:
        bucket = heapq.heappop(self._heap)[2]
        bucket.queued = False
        self.buckets_opened += 1
        return bucket

    def advance(self) -> int:
        """Runs the due callbacks and returns their number. Entries that callbacks add run at the next call."""
        now_ms = self._now_ms()
        ran = 0
        if self._now_bucket.entries:
            due, self._now_bucket.entries = self._now_bucket.entries, {}
            ran += self._run(due)
        while self._heap and self._heap[0][0] <= now_ms:
            bucket = self._pop()
            self._current_ms = bucket.start_ms
            due, bucket.entries = bucket.entries, {}
            if bucket.level == 0:
                ran += self._run(due)
            else:
                self._move_down(due)
        self._current_ms = max(self._current_ms, now_ms)
        return ran

    def _run(self, due: dict[TimerEntry, None]) -> int:
        ran = 0
        for entry in due:
            if entry._bucket is None:
                continue  # cancelled by an earlier callback
            entry._bucket = None
            self._pending -= 1
            ran += 1
            try:
                entry._callback()
            except Exception:
                _logger.exception("Timer callback failed: %r", entry._callback)
        return ran

    def _move_down(self, entries: dict[TimerEntry, None]) -> None:
        self.entries_moved += len(entries)
        for entry in entries:
            bucket = entry._bucket = self._bucket_for(entry.deadline_ms)
            bucket.entries[entry] = None
            if not bucket.queued:
                self._queue(bucket)

    def next_due_ms(self) -> int | None:
        """Returns the time in ms until `advance` may have work to do; None without entries."""
        if self._now_bucket.entries:
            return 0
        while self._heap and not self._heap[0][2].entries:
            self._pop()
        return max(0, self._heap[0][0] - self._now_ms()) if self._heap else None
