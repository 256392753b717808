import threading
from collections.abc import Callable

import pytest

from headrace.common.background import InlineRunner, Scheduler, ThreadRunner, WorkResult
from headrace.testing.clock import ManualClock


def fail() -> None:
    raise OSError("no room")


def test_result_is_value_or_error() -> None:
    assert WorkResult(3).result() == 3
    with pytest.raises(OSError, match="no room"):
        WorkResult(error=OSError("no room")).result()


def test_inline_runner_runs_immediately() -> None:
    outcomes: list[WorkResult] = []
    InlineRunner().submit(lambda: 3, outcomes.append)
    InlineRunner().submit(fail, outcomes.append)
    assert outcomes[0].value == 3
    assert outcomes[0].error is None
    assert isinstance(outcomes[1].error, OSError)


def test_drain_delivers_results_of_threads() -> None:
    runner = ThreadRunner(threads=2)
    owner, worked, heard = threading.get_ident(), [], []

    def work() -> int:
        worked.append(threading.get_ident())
        return 3

    def done(outcome: WorkResult) -> None:
        heard.append((threading.get_ident(), outcome.value))

    runner.submit(work, done)
    assert heard == []
    runner.drain(wait=True)
    assert heard == [(owner, 3)]
    assert worked != [owner]
    runner.close()


def test_drain_does_not_wait_by_default() -> None:
    runner = ThreadRunner(threads=1)
    go_on, heard = threading.Event(), []
    runner.submit(lambda: go_on.wait(60), lambda outcome: heard.append(outcome.value))
    runner.drain()
    assert heard == []
    go_on.set()
    runner.close()
    assert heard == [True]


def test_drain_waits_for_work_submitted_meanwhile() -> None:
    runner = ThreadRunner(threads=1)
    heard: list[object] = []

    def then(outcome: WorkResult) -> None:
        heard.append(outcome.value)
        if outcome.value == 1:
            runner.submit(lambda: 2, then)

    runner.submit(lambda: 1, then)
    runner.drain(wait=True)
    assert heard == [1, 2]
    runner.close()


def test_errors_of_threads_reach_owner() -> None:
    runner = ThreadRunner()
    heard: list[WorkResult] = []
    runner.submit(fail, heard.append)
    runner.close()
    assert str(heard[0].error) == "no room"


def test_wakes_owner_when_work_is_done() -> None:
    woken, heard = threading.Event(), []
    runner = ThreadRunner(wake=woken.set)
    runner.submit(lambda: 3, lambda outcome: heard.append(outcome.value))
    assert woken.wait(60)
    runner.drain()
    assert heard == [3]
    runner.close()


def test_close_stops_threads_even_if_done_raises() -> None:
    runner = ThreadRunner()
    runner.submit(fail, WorkResult.result)
    with pytest.raises(OSError, match="no room"):
        runner.close()
    with pytest.raises(RuntimeError, match="shutdown"):
        runner.submit(fail, WorkResult.result)


class Calls(list[str]):
    def note(self, name: str) -> Callable[[], None]:
        return lambda: self.append(name)


def test_runs_in_order_of_time_then_submission() -> None:
    clock, calls = ManualClock(), Calls()
    scheduler = Scheduler(clock)
    for delay_ms, name in ((20, "late"), (10, "first"), (10, "second"), (0, "now")):
        scheduler.after(delay_ms, calls.note(name))
    assert scheduler.tick() == 10
    assert calls == ["now"]
    clock.advance(9)
    assert scheduler.tick() == 1
    assert calls == ["now"]
    clock.advance(11)
    assert scheduler.tick() is None
    assert calls == ["now", "first", "second", "late"]


def test_after_runs_once() -> None:
    clock, calls = ManualClock(), Calls()
    scheduler = Scheduler(clock)
    scheduler.after(10, calls.note("once"))
    for _ in range(3):
        clock.advance(10)
        scheduler.tick()
    assert calls == ["once"]


def test_periods() -> None:
    clock, calls = ManualClock(), Calls()
    scheduler = Scheduler(clock)
    scheduler.every(100, calls.note("tick"))
    assert scheduler.tick() == 100
    clock.advance(99)
    assert scheduler.tick() == 1
    clock.advance(1)
    assert scheduler.tick() == 100
    assert calls == ["tick"]
    clock.advance(450)
    assert scheduler.tick() == 100
    assert calls == ["tick", "tick"], "what was missed is not made up for"


def test_initial_delay() -> None:
    clock, calls = ManualClock(), Calls()
    scheduler = Scheduler(clock)
    scheduler.every(100, calls.note("tick"), initial_delay_ms=5)
    clock.advance(5)
    assert scheduler.tick() == 100
    assert calls == ["tick"]


def test_failed_periodic_action_runs_again() -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock)
    scheduler.every(100, fail, initial_delay_ms=0)
    with pytest.raises(OSError, match="no room"):
        scheduler.tick()
    assert scheduler.tick() == 100
    clock.advance(100)
    with pytest.raises(OSError, match="no room"):
        scheduler.tick()


def test_action_may_schedule_another() -> None:
    clock, calls = ManualClock(), Calls()
    scheduler = Scheduler(clock)
    scheduler.after(0, lambda: scheduler.after(0, calls.note("inner")))
    assert scheduler.tick() is None
    assert calls == ["inner"]


def test_nothing_scheduled() -> None:
    assert Scheduler(ManualClock()).tick() is None
