"""What `Metadata` is to ask next, and when. Knows times and names, and nothing of requests and replies.

- What is due at the same time is asked in one go; all topics stand for each of them.
- A topic that is being asked for has a hint: nobody asks a second time meanwhile. If something happens to it while the
  answer is under way, which may be older than that, it is asked for again afterwards.
- Pace: who asks again for a topic waits, from the last answer, the longer the more often answers in a row brought
  nothing new or left something missing. This makes the fast queries for missing leaders, with exponential back-off.
- After a request that failed nothing is asked before `hold_until`.

Belongs to the loop.
"""

import asyncio
from collections.abc import Callable, Iterable

from headrace.common.backoff import Backoff

__all__ = ["MetadataSchedule"]

NEVER = float("inf")
_LONG_AGO = float("-inf")

Ask = Callable[[set[str], bool], None]
"""Told what to ask for: topics, and whether all of them. Neither: for the brokers only."""


class MetadataSchedule:
    def __init__(self, loop: asyncio.AbstractEventLoop, pace: Backoff, ask: Ask):
        self._loop = loop
        self._pace = pace
        self._ask = ask
        self._due: dict[str, float] = {}
        self._all_due = self._brokers_due = NEVER
        self._not_before = 0.0
        self._answered: dict[str, float] = {}
        self._all_answered = self._brokers_answered = _LONG_AGO
        self._troubles: dict[str, int] = {}
        """How many answers in a row were no help."""
        self._hints: dict[str, int] = {}
        """How many requests under way ask for a topic."""
        self._all_under_way = False
        self._again: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._closed = False

    # ---- what is wanted

    def want(self, name: str) -> None:
        """Now, unless it is being asked for."""
        if name not in self._hints:
            self._set_due(name, self._loop.time())

    def want_again(self, name: str) -> None:
        """When its time has come."""
        if name in self._hints:
            self._again.add(name)
            return
        answered = self._answered.get(name, _LONG_AGO)
        if self._loop.time() - answered > 2 * self._pace.limit_ms / 1000:
            self._troubles.pop(name, None)
        self._set_due(name, self._paced(answered, self._troubles.get(name, 0)))

    def want_at(self, name: str, at: float) -> None:
        self._set_due(name, at)

    def want_all(self) -> None:
        if not self._all_under_way:
            self._all_due = min(self._all_due, self._loop.time())
            self._arm()

    def want_all_again(self) -> None:
        self._all_due = min(self._all_due, self._paced(self._all_answered, 0))
        self._arm()

    def want_brokers(self) -> None:
        self._brokers_due = min(self._brokers_due, self._paced(self._brokers_answered, 0))
        self._arm()

    @property
    def is_quiet(self) -> bool:
        """Whether no topic is due or being asked for."""
        return not self._due and not self._hints

    # ---- what is being asked

    def is_asked(self, name: str) -> bool:
        return name in self._hints

    def begin(self, names: Iterable[str], is_full: bool) -> None:
        """A request goes out."""
        for name in names:
            self._hints[name] = self._hints.get(name, 0) + 1
        self._all_under_way = self._all_under_way or is_full

    def end(self, names: Iterable[str], is_full: bool) -> None:
        """It has been answered, or has failed."""
        for name in names:
            count = self._hints.get(name, 0) - 1
            if count > 0:
                self._hints[name] = count
            else:
                self._hints.pop(name, None)
        if is_full:
            self._all_under_way = False

    def drop_hints(self, names: Iterable[str]) -> None:
        """They may be asked for again, though there is no answer yet."""
        for name in names:
            if self._hints.pop(name, None):
                self.want(name)

    def hold_until(self, at: float) -> None:
        self._not_before = at

    # ---- what was answered

    def answered_brokers(self) -> None:
        self._brokers_answered = self._loop.time()
        self._not_before = 0.0

    def answered_all(self, names: Iterable[str]) -> None:
        self._all_answered = self._loop.time()
        self._answered = dict.fromkeys(names, self._all_answered)

    def answered(self, name: str, helped: bool) -> None:
        """`helped`: nothing is missing, and something is new."""
        self._answered[name] = self._loop.time()
        if helped:
            self._troubles.pop(name, None)
        else:
            self._troubles[name] = self._troubles.get(name, -1) + 1

    def ask_again(self, names: Iterable[str]) -> None:
        """For those to which something happened while they were being asked for."""
        for name in [name for name in names if name in self._again]:
            self._again.discard(name)
            self.want_again(name)

    def forget(self, name: str) -> None:
        for table in (self._due, self._answered, self._troubles):
            table.pop(name, None)

    def age_ms(self, name: str) -> float:
        """Since the last answer."""
        return (self._loop.time() - self._answered.get(name, _LONG_AGO)) * 1000

    @property
    def age_of_all_ms(self) -> float:
        return (self._loop.time() - self._all_answered) * 1000

    @property
    def age_of_brokers_ms(self) -> float:
        return (self._loop.time() - self._brokers_answered) * 1000

    # ---- the timer

    def _set_due(self, name: str, at: float) -> None:
        self._due[name] = min(at, self._due.get(name, at))
        self._arm()

    def _paced(self, answered: float, troubles: int) -> float:
        return max(self._loop.time(), answered + self._pace.wait_seconds(troubles))

    def _arm(self) -> None:
        if self._closed:
            return
        at = min(self._all_due, self._brokers_due, min(self._due.values(), default=NEVER))
        if at == NEVER:
            return
        at = max(at, self._not_before)
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        """Hands out everything that is due."""
        self._timer = None
        self._timer_at = NEVER
        now = self._loop.time()
        due = [name for name, at in self._due.items() if at <= now]
        for name in due:
            del self._due[name]
        is_full = self._all_due <= now
        brokers_only = self._brokers_due <= now
        if is_full:
            self._all_due = NEVER
        if brokers_only:
            self._brokers_due = NEVER
        names = {name for name in due if name not in self._hints}
        if names or is_full or brokers_only:
            self._ask(names, is_full)
        self._arm()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
