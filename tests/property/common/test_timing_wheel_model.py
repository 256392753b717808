"""The timing wheel against a plain list of deadlines."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from headrace.common.timing_wheel import Timer, TimerEntry
from headrace.testing.clock import ManualClock

DELAYS = st.one_of(st.integers(-3, 45), st.integers(350, 450), st.integers(0, 200_000), st.integers(0, 10**10))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), DELAYS),
        st.tuples(st.just("add one that adds"), DELAYS),
        st.tuples(st.just("cancel"), st.integers(0, 100)),
        st.tuples(st.just("advance"), st.one_of(st.integers(0, 45), st.integers(0, 10_000), st.integers(0, 10**9))),
        st.tuples(st.just("advance until due"), st.just(0)),
    ),
    max_size=60,
)


@dataclass
class Wait:
    number: int
    deadline_ms: int
    at_once: bool


class Model:
    """Drives a timer and keeps the expected entries in a dict."""

    def __init__(self, start_ms: int, tick_ms: int, wheel_size: int):
        self.clock = ManualClock(start_ms)
        self.tick_ms = tick_ms
        self.timer = Timer(self.clock, tick_ms, wheel_size)
        self.entries: list[TimerEntry] = []
        self.waiting: dict[int, Wait] = {}
        self.ran: list[int] = []

    def add(self, delay_ms: int, child_delay_ms: int | None = None) -> None:
        number = len(self.entries)

        def run() -> None:
            self.ran.append(number)
            if child_delay_ms is not None:
                self.add(child_delay_ms)

        deadline_ms = -(-(self.clock.now_ms + delay_ms) // self.tick_ms) * self.tick_ms
        self.waiting[number] = Wait(number, deadline_ms, delay_ms <= 0)
        self.entries.append(self.timer.add(delay_ms, run))

    def cancel(self, number: int) -> None:
        self.entries[number].cancel()
        self.waiting.pop(number, None)

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        due = [wait for wait in self.waiting.values() if wait.at_once or wait.deadline_ms <= self.clock.now_ms]
        self.ran = []
        assert self.timer.advance() == len(self.ran)
        assert sorted(self.ran) == sorted(wait.number for wait in due)
        order = [self.waiting[number] for number in self.ran]
        assert order == sorted(order, key=lambda wait: -1 if wait.at_once else wait.deadline_ms)
        for number in self.ran:
            del self.waiting[number]
            assert not self.entries[number].pending

    def advance_until_due(self) -> bool:
        due_ms = self.timer.next_due_ms()
        assert (due_ms is None) == (not self.waiting)
        if due_ms is None:
            return False
        soonest_ms = min(0 if wait.at_once else wait.deadline_ms - self.clock.now_ms for wait in self.waiting.values())
        assert due_ms <= max(0, soonest_ms)
        self.advance(due_ms)
        return True


@given(
    start_ms=st.integers(0, 10**6),
    tick_ms=st.sampled_from([1, 1, 1, 3, 10]),
    wheel_size=st.sampled_from([2, 3, 20]),
    steps=STEPS,
)
def test_timer_matches_sorted_deadlines(
    start_ms: int, tick_ms: int, wheel_size: int, steps: list[tuple[str, int]]
) -> None:
    model = Model(start_ms, tick_ms, wheel_size)
    for step, argument in steps:
        if step == "add":
            model.add(argument)
        elif step == "add one that adds":
            model.add(argument % 50, child_delay_ms=argument)
        elif step == "cancel" and model.entries:
            model.cancel(argument % len(model.entries))
        elif step == "advance":
            model.advance(argument)
        elif step == "advance until due":
            model.advance_until_due()
        assert len(model.timer) == len(model.waiting)
    while model.advance_until_due():
        pass
    assert model.waiting == {}
