"""Decides which metadata `Metadata` requests next, and when. Deals with times and names only, not with requests.

- Everything that is due at the same time goes into one request. A request for all topics covers each of them.
- While a request for a topic is in flight, no second one is sent. If the topic's metadata turns out to be stale
  meanwhile, the response may be older than that event, so the topic is requested again afterwards.
- Pacing: retries for a topic wait, counted from its last refresh, longer and longer while refreshes bring nothing new
  or leave something missing. This yields librdkafka's fast queries for missing leaders, with exponential back-off.
- After a failed request nothing is requested before `hold_until`.

Owner: the loop.
"""

import asyncio
from collections.abc import Callable, Iterable

from headrace.common.backoff import Backoff

__all__ = ["MetadataSchedule"]

NEVER = float("inf")
_LONG_AGO = float("-inf")

SendRequest = Callable[[set[str], bool], None]
"""`send(names, is_full)`: requests these topics, or all topics. Neither: the brokers only."""


class MetadataSchedule:
    """The times at which topics, all topics and the brokers are to be requested."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pace: Backoff, send: SendRequest):
        self._loop = loop
        self._pace = pace
        self._send = send
        self._due: dict[str, float] = {}
        self._all_due = self._brokers_due = NEVER
        self._not_before = 0.0
        self._refreshed_at: dict[str, float] = {}
        self._all_refreshed_at = self._brokers_refreshed_at = _LONG_AGO
        self._futile: dict[str, int] = {}
        """How many refreshes of a topic in a row made no progress."""
        self._in_flight: dict[str, int] = {}
        """How many requests in flight name a topic."""
        self._all_in_flight = 0
        """How many requests for all topics are in flight."""
        self._retry_after_response: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._closed = False

    # ---- scheduling requests

    def request(self, name: str) -> None:
        """Requests a topic now, unless a request for it is in flight."""
        if name not in self._in_flight:
            self._set_due(name, self._loop.time())

    def retry(self, name: str) -> None:
        """Requests a topic again, at the pace described above."""
        if name in self._in_flight:
            self._retry_after_response.add(name)
            return
        refreshed_at = self._refreshed_at.get(name, _LONG_AGO)
        if self._loop.time() - refreshed_at > 2 * self._pace.limit_ms / 1000:
            self._futile.pop(name, None)
        self._set_due(name, self._due_after_backoff(refreshed_at, self._futile.get(name, 0)))

    def request_at(self, name: str, due_at: float) -> None:
        """Requests a topic at a time of the loop's clock."""
        self._set_due(name, due_at)

    def request_all(self) -> None:
        """Requests all topics now, unless such a request is in flight."""
        if not self._all_in_flight:
            self._all_due = min(self._all_due, self._loop.time())
            self._set_timer()

    def retry_all(self) -> None:
        """Requests all topics again, paced."""
        self._all_due = min(self._all_due, self._due_after_backoff(self._all_refreshed_at, 0))
        self._set_timer()

    def request_brokers(self) -> None:
        """Requests the brokers, paced."""
        self._brokers_due = min(self._brokers_due, self._due_after_backoff(self._brokers_refreshed_at, 0))
        self._set_timer()

    @property
    def is_idle(self) -> bool:
        """True if no topic is due or in flight."""
        return not self._due and not self._in_flight

    # ---- requests in flight

    def request_sent(self, names: Iterable[str], is_full: bool) -> None:
        """Notes that a request is in flight."""
        for name in names:
            self._in_flight[name] = self._in_flight.get(name, 0) + 1
        self._all_in_flight += is_full

    def request_finished(self, names: Iterable[str], is_full: bool) -> None:
        """Notes that a request got its response, or failed."""
        for name in names:
            count = self._in_flight.get(name, 0) - 1
            if count > 0:
                self._in_flight[name] = count
            else:
                self._in_flight.pop(name, None)
        self._all_in_flight = max(self._all_in_flight - is_full, 0)

    def request_again(self, names: Iterable[str], is_full: bool) -> None:
        """Requests topics, or all topics, again although the response to the request in flight is still missing."""
        if is_full:
            self._all_in_flight = 0
            self.request_all()
        for name in names:
            if self._in_flight.pop(name, None):
                self.request(name)

    def hold_until(self, time: float) -> None:
        """Requests nothing before a time of the loop's clock."""
        self._not_before = time

    # ---- responses

    def brokers_refreshed(self) -> None:
        """Notes a response, every one of which lists the brokers."""
        self._brokers_refreshed_at = self._loop.time()
        self._not_before = 0.0

    def all_refreshed(self, names: Iterable[str]) -> None:
        """Notes a response with all topics."""
        self._all_refreshed_at = self._loop.time()
        self._refreshed_at = dict.fromkeys(names, self._all_refreshed_at)

    def topic_refreshed(self, name: str, is_progress: bool) -> None:
        """Notes a response with a topic. `is_progress` is True if nothing is missing and something is new."""
        self._refreshed_at[name] = self._loop.time()
        if is_progress:
            self._futile.pop(name, None)
        else:
            self._futile[name] = self._futile.get(name, -1) + 1

    def run_postponed_retries(self, names: Iterable[str]) -> None:
        """Schedules the retries that came while these topics were in flight."""
        for name in [name for name in names if name in self._retry_after_response]:
            self._retry_after_response.discard(name)
            self.retry(name)

    def forget(self, name: str) -> None:
        """Drops everything about a topic."""
        for table in (self._due, self._refreshed_at, self._futile):
            table.pop(name, None)

    def age_ms(self, name: str) -> float:
        """Returns the time since a topic's last refresh."""
        return (self._loop.time() - self._refreshed_at.get(name, _LONG_AGO)) * 1000

    @property
    def age_of_all_ms(self) -> float:
        return (self._loop.time() - self._all_refreshed_at) * 1000

    @property
    def age_of_brokers_ms(self) -> float:
        return (self._loop.time() - self._brokers_refreshed_at) * 1000

    # ---- timer

    def _set_due(self, name: str, due_at: float) -> None:
        self._due[name] = min(due_at, self._due.get(name, due_at))
        self._set_timer()

    def _due_after_backoff(self, refreshed_at: float, futile: int) -> float:
        return max(self._loop.time(), refreshed_at + self._pace.wait_seconds(futile))

    def _set_timer(self) -> None:
        if self._closed:
            return
        fire_at = min(self._all_due, self._brokers_due, min(self._due.values(), default=NEVER))
        if fire_at == NEVER:
            return
        fire_at = max(fire_at, self._not_before)
        if self._timer is not None:
            if self._timer_at <= fire_at:
                return
            self._timer.cancel()
        self._timer_at = fire_at
        self._timer = self._loop.call_at(fire_at, self._fire)

    def _fire(self) -> None:
        """Sends one request for everything that is due."""
        self._timer = None
        self._timer_at = NEVER
        now = self._loop.time()
        due = [name for name, due_at in self._due.items() if due_at <= now]
        for name in due:
            del self._due[name]
        is_full = self._all_due <= now
        brokers_only = self._brokers_due <= now
        if is_full:
            self._all_due = NEVER
        if brokers_only:
            self._brokers_due = NEVER
        names = {name for name in due if name not in self._in_flight}
        if names or is_full or brokers_only:
            self._send(names, is_full)
        self._set_timer()

    def close(self) -> None:
        """Cancels the timer. No more metadata is requested."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
