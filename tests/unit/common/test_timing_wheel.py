import logging

import pytest

from headrace.common.timing_wheel import Timer, TimerEntry
from headrace.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timer(clock: ManualClock) -> Timer:
    return Timer(clock)


def test_runs_once_after_delay(clock: ManualClock, timer: Timer) -> None:
    ran: list[int] = []
    entry = timer.add(5, lambda: ran.append(clock.now_ms))
    start = clock.now_ms
    clock.advance(4)
    assert (timer.advance(), ran, entry.pending, len(timer)) == (0, [], True, 1)
    clock.advance(1)
    assert (timer.advance(), ran, entry.pending, len(timer)) == (1, [start + 5], False, 0)
    clock.advance(1000)
    assert timer.advance() == 0


@pytest.mark.parametrize("delay_ms", [1, 19, 20, 21, 399, 400, 401, 8_000, 159_999, 160_000, 86_400_000, 10**12])
@pytest.mark.parametrize("start_ms", [0, 1, 7, 19, 20, 1_700_000_000_123])
def test_runs_neither_early_nor_late(delay_ms: int, start_ms: int) -> None:
    clock = ManualClock(start_ms)
    timer = Timer(clock)
    timer.add(delay_ms, lambda: None)
    while len(timer):
        due_ms = timer.next_due_ms()
        assert due_ms is not None
        assert due_ms > 0
        clock.advance(due_ms)
        ran = timer.advance()
        assert ran == (clock.now_ms >= start_ms + delay_ms)
    assert clock.now_ms == start_ms + delay_ms
    assert timer.next_due_ms() is None


def test_entries_without_delay_run_at_next_advance(timer: Timer) -> None:
    ran: list[str] = []
    timer.add(0, lambda: ran.append("now"))
    timer.add(-5, lambda: ran.append("past"))
    assert timer.next_due_ms() == 0
    assert ran == []
    assert timer.advance() == 2
    assert ran == ["now", "past"]


def test_cancelled_entry_does_not_run(clock: ManualClock, timer: Timer) -> None:
    entries = [timer.add(delay_ms, lambda: pytest.fail("ran")) for delay_ms in (0, 5, 50, 5000)]
    for entry in entries:
        entry.cancel()
        entry.cancel()
        assert not entry.pending
    assert len(timer) == 0
    assert timer.next_due_ms() is None
    clock.advance(10_000)
    assert timer.advance() == 0


def test_cancel_after_run_does_nothing(clock: ManualClock, timer: Timer) -> None:
    entry = timer.add(5, lambda: None)
    timer.add(10, lambda: None)
    clock.advance(5)
    timer.advance()
    entry.cancel()
    assert len(timer) == 1


def test_callback_may_cancel_entry_of_same_tick(clock: ManualClock, timer: Timer) -> None:
    ran: list[str] = []
    entries: list[TimerEntry] = []

    def first() -> None:
        ran.append("first")
        entries[1].cancel()

    entries.append(timer.add(5, first))
    entries.append(timer.add(5, lambda: ran.append("second")))
    clock.advance(5)
    assert timer.advance() == 1
    assert ran == ["first"]
    assert len(timer) == 0


def test_entries_added_by_callbacks_run_at_next_advance(clock: ManualClock, timer: Timer) -> None:
    ran: list[int] = []

    def again() -> None:
        ran.append(clock.now_ms)
        timer.add(0, again)
        timer.add(3, lambda: ran.append(-1))

    timer.add(5, again)
    clock.advance(500)  # far beyond its deadline
    assert timer.advance() == 1
    assert timer.next_due_ms() == 0
    assert timer.advance() == 1
    assert ran == [clock.now_ms] * 2


def test_failed_callback_is_logged_and_others_run(
    clock: ManualClock, timer: Timer, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []
    timer.add(5, lambda: 1 // 0)
    timer.add(5, lambda: ran.append("same tick"))
    timer.add(50, lambda: ran.append("later"))
    clock.advance(100)
    with caplog.at_level(logging.ERROR):
        assert timer.advance() == 3
    assert ran == ["same tick", "later"]
    assert "ZeroDivisionError" in caplog.text


def test_runs_all_due_entries_in_order_after_pause(clock: ManualClock, timer: Timer) -> None:
    ran: list[int] = []
    delays = [7_000, 3, 100_000, 450, 21, 399, 20, 8_001]
    for delay_ms in delays:
        timer.add(delay_ms, lambda delay_ms=delay_ms: ran.append(delay_ms))
    clock.advance(1_000_000)
    assert timer.advance() == len(delays)
    assert ran == sorted(delays)


def test_longer_ticks_round_up(clock: ManualClock) -> None:
    timer = Timer(ManualClock(0), tick_ms=10, wheel_size=4)
    assert timer.add(1, lambda: None).deadline_ms == 10
    assert timer.add(10, lambda: None).deadline_ms == 10
    assert timer.add(11, lambda: None).deadline_ms == 20


@pytest.mark.parametrize(("tick_ms", "wheel_size"), [(0, 20), (1, 1)])
def test_rejects_invalid_wheels(clock: ManualClock, tick_ms: int, wheel_size: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        Timer(clock, tick_ms, wheel_size)


def test_calls_on_earlier_for_earlier_entry(clock: ManualClock) -> None:
    alarms: list[int | None] = []
    timer: Timer = Timer(clock, on_earlier=lambda: alarms.append(timer.next_due_ms()))  # type: ignore[attr-defined]
    timer.add(1000, lambda: None)
    (first,) = alarms
    assert first is not None
    assert 600 <= first <= 1000  # when its bucket begins
    timer.add(1001, lambda: None)
    assert len(alarms) == 1
    timer.add(10, lambda: None)
    assert alarms[1:] == [10]
    timer.add(15, lambda: None)
    timer.add(0, lambda: None)
    timer.add(0, lambda: None)
    assert alarms[1:] == [10, 0]


def pending(count: int, clock: ManualClock) -> Timer:
    """Delays from 30 seconds to a day."""
    timer = Timer(clock)
    for number in range(count):
        timer.add(30_000 + number * 86_370_000 // count, lambda: pytest.fail("not due"))
    return timer


def test_tick_cost_does_not_depend_on_entries(clock: ManualClock) -> None:
    few, many = pending(100, clock), pending(100_000, clock)
    for _ in range(7_000):  # the second lowest wheel that holds entries has ticks of 8 s
        clock.advance(1)
        assert few.advance() == many.advance() == 0
    assert (few.buckets_opened, few.entries_moved) == (many.buckets_opened, many.entries_moved)
    assert many.next_due_ms() is not None
    assert len(many) == 100_000


def test_heap_size_does_not_depend_on_entries(clock: ManualClock) -> None:
    timer = pending(100_000, clock)
    assert len(timer._heap) <= 20 * len(timer._wheels)


def test_entry_moves_at_most_once_per_wheel(clock: ManualClock) -> None:
    timer = Timer(clock)
    for number in range(10_000):
        timer.add(1 + number * 7, lambda: None)
    ran = 0
    while (due_ms := timer.next_due_ms()) is not None:
        clock.advance(due_ms)
        ran += timer.advance()
    assert ran == 10_000
    assert timer.entries_moved <= 10_000 * (len(timer._wheels) - 1)


def test_cancelled_entries_leave_nothing(clock: ManualClock, timer: Timer) -> None:
    """As for a fetch that completes before its timeout: repeatedly added and cancelled."""
    for _ in range(20_000):
        timer.add(500, lambda: None).cancel()
        clock.advance(1)
        timer.advance()
    assert len(timer) == 0
    assert sum(len(bucket.entries) for wheel in timer._wheels for bucket in wheel) == 0
    assert len(timer._heap) <= 20 * len(timer._wheels)
