import logging
from collections.abc import Callable

import pytest

from headrace.broker.purgatory import DelayedOperation, Purgatory
from headrace.common.timing_wheel import Timer
from headrace.testing.clock import ManualClock


class Wait(DelayedOperation):
    """Completes when `ready` is set."""

    def __init__(self, timeout_ms: int = 500, ready: bool = False, on_done: Callable[[], object] = lambda: None):
        super().__init__(timeout_ms)
        self.ready = ready
        self.on_done = on_done
        self.tries = self.completions = self.expirations = 0

    def try_complete(self) -> bool:
        self.tries += 1
        return self.force_complete() if self.ready else False

    def on_complete(self) -> None:
        self.completions += 1
        self.on_done()

    def on_expire(self) -> None:
        assert self.completions == 1
        self.expirations += 1


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timer(clock: ManualClock) -> Timer:
    return Timer(clock)


@pytest.fixture
def purgatory(timer: Timer) -> Purgatory:
    return Purgatory("fetch", timer)


def empty(purgatory: Purgatory, timer: Timer) -> bool:
    return purgatory.delayed == purgatory.watched == purgatory.keys == len(timer) == 0


def test_completes_at_once_without_watching(purgatory: Purgatory, timer: Timer) -> None:
    wait = Wait(ready=True)
    assert purgatory.try_complete_else_watch(wait, ["a"])
    assert (wait.completions, wait.expirations) == (1, 0)
    assert empty(purgatory, timer)


@pytest.mark.parametrize("how", ["at once", "woken", "expired", "at the end"])
def test_calls_on_failed_after_an_error(
    purgatory: Purgatory, timer: Timer, clock: ManualClock, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError("no")

    told: list[str] = []
    wait = Wait(ready=how == "at once", on_done=fail)
    wait.on_failed = lambda: told.append(how)
    with caplog.at_level(logging.CRITICAL):
        if how == "at once":
            with pytest.raises(ValueError, match="no"):
                purgatory.try_complete_else_watch(wait, ["a"])
        else:
            assert not purgatory.try_complete_else_watch(wait, ["a"])
            wait.ready = True
            if how == "woken":
                purgatory.check_and_complete("a")
            elif how == "expired":
                clock.advance(1000)
                timer.advance()
            else:
                purgatory.complete_all()
    assert told == [how]
    assert empty(purgatory, timer)


def test_completes_when_its_condition_holds(purgatory: Purgatory, timer: Timer, clock: ManualClock) -> None:
    wait = Wait()
    assert not purgatory.try_complete_else_watch(wait, ["a", "b", "a"])
    assert (purgatory.delayed, purgatory.watched, purgatory.keys) == (1, 2, 2)
    assert purgatory.check_and_complete("a") == 0
    assert purgatory.check_and_complete("c") == 0
    wait.ready = True
    assert purgatory.check_and_complete("b") == 1
    assert purgatory.check_and_complete("a") == 0
    assert empty(purgatory, timer)
    clock.advance(1000)
    timer.advance()
    assert (wait.completions, wait.expirations, wait.tries) == (1, 0, 3)


def test_expires(purgatory: Purgatory, timer: Timer, clock: ManualClock) -> None:
    wait = Wait(timeout_ms=500)
    purgatory.try_complete_else_watch(wait, ["a", "b"])
    clock.advance(499)
    timer.advance()
    assert wait.completions == 0
    clock.advance(1)
    timer.advance()
    assert (wait.completions, wait.expirations, purgatory.expired) == (1, 1, 1)
    assert empty(purgatory, timer)
    wait.ready = True
    assert purgatory.check_and_complete("a") == 0
    assert not wait.force_complete()
    assert wait.completions == 1


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_timeout_0_expires_at_once(purgatory: Purgatory, timer: Timer, timeout_ms: int) -> None:
    wait = Wait(timeout_ms)
    assert purgatory.try_complete_else_watch(wait, ["a"])
    assert (wait.completions, wait.expirations, purgatory.expired) == (1, 1, 1)
    assert empty(purgatory, timer)


def test_operation_without_keys_expires(purgatory: Purgatory, timer: Timer, clock: ManualClock) -> None:
    wait = Wait()
    assert not purgatory.try_complete_else_watch(wait, [])
    assert purgatory.delayed == 1
    clock.advance(500)
    timer.advance()
    assert wait.completions == 1
    assert empty(purgatory, timer)


def test_can_be_completed_by_others(purgatory: Purgatory, timer: Timer) -> None:
    wait = Wait()
    purgatory.try_complete_else_watch(wait, ["a"])
    assert wait.force_complete()
    assert not wait.force_complete()
    assert wait.completions == 1
    assert empty(purgatory, timer)
    assert purgatory.try_complete_else_watch(wait, ["a"]), "it is completed"
    assert empty(purgatory, timer)


def test_completion_can_complete_others_of_the_key(purgatory: Purgatory, timer: Timer) -> None:
    """As when a response lets the connection read its next request."""
    second = Wait(ready=False)
    first = Wait(on_done=lambda: second.force_complete())
    third = Wait()
    for wait in (first, second, third):
        purgatory.try_complete_else_watch(wait, ["a"])
    first.ready = second.ready = True
    assert purgatory.check_and_complete("a") == 1, "the second is not this call's"
    assert [wait.completions for wait in (first, second, third)] == [1, 1, 0]
    assert purgatory.delayed == 1


def test_completion_can_watch_again(purgatory: Purgatory, timer: Timer) -> None:
    """As a consumer does that sends its next fetch after a response."""
    second = Wait(ready=False)
    first = Wait(on_done=lambda: purgatory.try_complete_else_watch(second, ["a"]))
    purgatory.try_complete_else_watch(first, ["a"])
    first.ready = True
    assert purgatory.check_and_complete("a") == 1
    assert (purgatory.delayed, purgatory.watched, second.tries) == (1, 1, 1)


def test_failing_operation_does_not_affect_others(
    purgatory: Purgatory, timer: Timer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = Wait(on_done=lambda: 1 // 0), Wait()
    for wait in (bad, good):
        purgatory.try_complete_else_watch(wait, ["a"])
        wait.ready = True
    with caplog.at_level(logging.ERROR):
        assert purgatory.check_and_complete("a") == 1
    assert "A delayed fetch request failed" in caplog.text
    assert (bad.completions, good.completions) == (1, 1)
    assert empty(purgatory, timer)


def test_cancels_a_key(purgatory: Purgatory, timer: Timer, clock: ManualClock) -> None:
    one, both, other = Wait(), Wait(), Wait()
    purgatory.try_complete_else_watch(one, ["a"])
    purgatory.try_complete_else_watch(both, ["a", "b"])
    purgatory.try_complete_else_watch(other, ["b"])
    assert purgatory.cancel_for_key("a") == [one, both]
    assert purgatory.cancel_for_key("a") == []
    assert (purgatory.delayed, purgatory.watched) == (1, 1)
    clock.advance(1000)
    timer.advance()
    assert [wait.completions for wait in (one, both, other)] == [0, 0, 1]


def test_complete_all(purgatory: Purgatory, timer: Timer) -> None:
    waits = [Wait() for _ in range(5)]
    for number, wait in enumerate(waits):
        purgatory.try_complete_else_watch(wait, [number, number + 1])
    assert purgatory.complete_all() == 5
    assert [wait.completions for wait in waits] == [1] * 5
    assert empty(purgatory, timer)


def test_watch_lists_do_not_grow(purgatory: Purgatory, timer: Timer) -> None:
    """One key is busy, the other idle: the idle one must not keep operations that the busy one completed."""
    for _ in range(1000):
        wait = Wait()
        purgatory.try_complete_else_watch(wait, ["busy", "idle"])
        wait.ready = True
        purgatory.check_and_complete("busy")
        assert empty(purgatory, timer)
