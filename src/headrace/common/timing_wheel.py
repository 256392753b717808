"""A hierarchical timing wheel: every wait and expiry of a broker hangs on one.

Time is cut into ticks. A wheel has a bucket for each of the next `wheel_size` ticks. What is due later goes to the
wheel above, where a tick is as long as the whole wheel below (drawn with tick_ms=1 and wheel_size=20, at time 0):

    wheel 0   | 0 | 1 | 2 |  ...  | 19 |           a tick is   1 ms, the wheel covers    20 ms
    wheel 1   | 0-19 | 20-39 |  ...  | 380-399 |   a tick is  20 ms, the wheel covers   400 ms
    wheel 2   | 0-399 | 400-799 |  ...             a tick is 400 ms, the wheel covers 8,000 ms
    ...                                            wheels are added as longer waits come

When the time of a bucket of a higher wheel begins, its entries move to the wheels below, each to the bucket that it
belongs to now; when the time of a bucket of wheel 0 comes, its entries are due. The wheels turn: a bucket that has just
been emptied serves the tick one round later.

    advance to 400:  wheel 2 | 400-799 |  --moves-->  wheel 1 | 420-439 |  ...  and  wheel 0 | 400 | 401 | ...

A heap holds the buckets that have entries, by the time they begin. So time in which nothing is due is skipped and not
walked through; the heap has no more items than there are buckets, however many entries wait. To add and to cancel costs
the same at any number of entries, and an entry moves at most once per wheel in its life.

One thread owns a Timer and calls all its methods; callbacks run there too, and may add and cancel. An entry never runs
early (to the millisecond) and never twice. Those due at different ticks run in that order; within a tick the order is
not defined.
"""

import heapq
import logging
from collections.abc import Callable

from headrace.common.clock import Clock

_logger = logging.getLogger(__name__)


class TimerEntry:
    """A callback that waits for its time. The handle to call it off."""

    __slots__ = ("_bucket", "_callback", "deadline_ms")

    def __init__(self, deadline_ms: int, callback: Callable[[], object], bucket: "_Bucket"):
        self.deadline_ms = deadline_ms
        """In the timer's own steady time, rounded up to a tick."""
        self._callback = callback
        self._bucket: _Bucket | None = bucket

    @property
    def pending(self) -> bool:
        """Whether it has neither run nor been cancelled."""
        return self._bucket is not None

    def cancel(self) -> None:
        """It will not run. Does nothing if it has run, or was cancelled."""
        bucket, self._bucket = self._bucket, None
        if bucket is not None:
            bucket.timer._pending -= 1
            bucket.entries.pop(self, None)  # not there any more if its bucket is being run just now


class _Bucket:
    """The entries of one tick of one wheel. `queued` says that the timer's heap holds it."""

    __slots__ = ("entries", "level", "queued", "start_ms", "timer")

    def __init__(self, timer: "Timer", level: int):
        self.timer = timer
        self.level = level
        self.start_ms = 0
        self.queued = False
        self.entries: dict[TimerEntry, None] = {}


class Timer:
    """Callbacks to be run later, by calls of `advance`.

    `on_earlier` is called whenever something was added that may be due before everything else: a loop that sleeps until
    `next_due_ms` sets its alarm again.
    """

    def __init__(
        self,
        clock: Clock,
        tick_ms: int = 1,
        wheel_size: int = 20,
        on_earlier: Callable[[], object] | None = None,
    ):
        if tick_ms < 1 or wheel_size < 2:
            raise ValueError(f"a timer has ticks of at least 1 ms and wheels of at least 2: {tick_ms}, {wheel_size}")
        self.buckets_opened = 0
        """How many buckets `advance` has emptied, moved down or thrown away so far: a measure of its work."""
        self.entries_moved = 0
        """How many entries `advance` has moved to a lower wheel so far."""
        self.on_earlier = on_earlier
        self._clock = clock
        self._size = wheel_size
        self._ticks_ms = [tick_ms]
        self._wheels = [[_Bucket(self, 0) for _ in range(wheel_size)]]
        self._now_bucket = _Bucket(self, -1)  # what is due at once waits here, outside of the wheels
        self._heap: list[tuple[int, int, _Bucket]] = []
        self._pending = 0
        self._current_ms = self._now_ms()  # the time that the wheels stand at

    def __len__(self) -> int:
        """How many entries are pending."""
        return self._pending

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    def add(self, delay_ms: int, callback: Callable[[], object]) -> TimerEntry:
        """Runs `callback` once, when the delay is over; with none, at the next `advance`."""
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
        """The bucket of the lowest wheel that reaches to the deadline, set to the time that it stands for now."""
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
        """Puts a bucket into the heap; returns whether it comes before all others. Of two that begin at one time the
        higher wheel's comes first, since it may hold entries for the lower one."""
        bucket.queued = True
        heapq.heappush(self._heap, (bucket.start_ms, -bucket.level, bucket))
        return self._heap[0][2] is bucket

    def _pop(self) -> _Bucket:
        bucket = heapq.heappop(self._heap)[2]
        bucket.queued = False
        self.buckets_opened += 1
        return bucket

    def advance(self) -> int:
        """Runs what is due by now and returns how many. What callbacks add waits for the next call, due or not."""
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
                continue  # cancelled by a callback before it
            entry._bucket = None
            self._pending -= 1
            ran += 1
            try:
                entry._callback()
            except Exception:
                _logger.exception("a timer's callback failed")
        return ran

    def _move_down(self, entries: dict[TimerEntry, None]) -> None:
        self.entries_moved += len(entries)
        for entry in entries:
            bucket = entry._bucket = self._bucket_for(entry.deadline_ms)
            bucket.entries[entry] = None
            if not bucket.queued:
                self._queue(bucket)

    def next_due_ms(self) -> int | None:
        """In how many ms `advance` may have something to do; None if nothing waits."""
        if self._now_bucket.entries:
            return 0
        while self._heap and not self._heap[0][2].entries:
            self._pop()
        return max(0, self._heap[0][0] - self._now_ms()) if self._heap else None
