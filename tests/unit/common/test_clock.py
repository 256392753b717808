import pytest

from headrace.common.clock import Clock, SystemClock
from headrace.testing.clock import ManualClock


def test_system_clock() -> None:
    clock: Clock = SystemClock()
    assert clock.time_ms() > 1_600_000_000_000
    assert clock.time_ms() < 10_000_000_000_000, "in milliseconds"
    before = clock.monotonic()
    clock.sleep(0)
    assert clock.monotonic() >= before


def test_manual_clock_moves_only_on_advance_and_sleep() -> None:
    clock: ManualClock = ManualClock(1_000)
    assert clock.time_ms() == clock.time_ms() == 1_000
    started = clock.monotonic()
    clock.advance(250)
    assert clock.time_ms() == 1_250
    assert clock.monotonic() - started == pytest.approx(0.25)
    clock.sleep(1.5)
    assert clock.time_ms() == 2_750


def test_manual_clock_rejects_negative_steps() -> None:
    with pytest.raises(ValueError, match="cannot move the clock backwards: -1 ms"):
        ManualClock().advance(-1)
