"""Requests that cannot be answered yet.

    try_complete_else_watch ── can be answered now ──────────────────────────────→ on_complete
            │
            └─ watched under its keys ─┬─ check_and_complete(key): try_complete ─→ on_complete
                                       └─ its time is over ──────────────────────→ on_complete, on_expire

An operation completes exactly once, whatever comes first; in that moment it leaves the lists of all its keys and its
timer, so neither holds what is done with. Each of these costs the same however many operations wait.

The broker's loop owns a purgatory and everything in it.
"""

import logging
from collections.abc import Callable, Hashable, Iterable

from headrace.common.timing_wheel import Timer, TimerEntry

_logger = logging.getLogger(__name__)


class DelayedOperation:
    """Something that waits for a condition, and for a given time at most.

    A subclass says in `try_complete` when it is done and in `on_complete` what happens then.
    """

    __slots__ = ("_entry", "_keys", "_purgatory", "completed", "on_failed", "timeout_ms")

    def __init__(self, timeout_ms: int):
        self.timeout_ms = timeout_ms
        self.completed = False
        self.on_failed: Callable[[], object] = lambda: None
        """Called if `on_complete` raises: who waits for it must not wait for ever."""
        self._purgatory: Purgatory | None = None
        self._keys: tuple[Hashable, ...] = ()
        self._entry: TimerEntry | None = None

    def try_complete(self) -> bool:
        """Looks whether the condition holds; if so, calls `force_complete` and returns what that returned."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Does what was waited for. Called exactly once."""
        raise NotImplementedError

    def on_expire(self) -> None:
        """Called after `on_complete` if the time was over."""

    def force_complete(self) -> bool:
        """Completes it now, unless it is completed already, which is what the result tells."""
        if not self._finish():
            return False
        try:
            self.on_complete()
        except Exception:
            self.on_failed()
            raise
        return True

    def cancel(self) -> bool:
        """It will never complete: whoever calls this takes care of what waits behind it."""
        return self._finish()

    def _finish(self) -> bool:
        if self.completed:
            return False
        self.completed = True
        if self._purgatory is not None:
            self._purgatory._forget(self)
        return True

    def _expire(self) -> None:
        if self.force_complete():
            if self._purgatory is not None:
                self._purgatory.expired += 1
            self.on_expire()


class Purgatory:
    """Operations of one kind, watched under keys. A key may be anything that can be one of a dict's."""

    def __init__(self, name: str, timer: Timer):
        self.name = name
        self.delayed = 0
        """How many operations wait."""
        self.expired = 0
        """How many have completed because their time was over."""
        self._timer = timer
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}

    @property
    def watched(self) -> int:
        """How many places in the keys' lists are taken: an operation has one under each of its keys."""
        return sum(map(len, self._watchers.values()))

    @property
    def keys(self) -> int:
        """How many keys something waits for."""
        return len(self._watchers)

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Completes it at once if that can be done, or if it may not wait; else watches it. Returns whether it is
        completed."""
        if operation.completed or operation.try_complete():
            return True
        operation._purgatory = self
        if operation.timeout_ms <= 0:
            self.delayed += 1
            operation._expire()
            return True
        operation._keys = tuple(dict.fromkeys(keys))
        operation._entry = self._timer.add(operation.timeout_ms, operation._expire)
        self.delayed += 1
        for key in operation._keys:
            watchers = self._watchers.get(key)
            if watchers is None:
                watchers = self._watchers[key] = {}
            watchers[operation] = None
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Something has happened to a key: completes what can be completed. Returns how many were.

        One that fails is logged and stops neither the others nor the caller, who may be somebody else's request.
        """
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        completed = 0
        for operation in list(watchers):
            if operation.completed:
                continue  # together with one before it
            try:
                completed += operation.try_complete()
            except Exception:
                _logger.exception("a waiting %s failed", self.name)
        return completed

    def cancel_for_key(self, key: Hashable) -> list[DelayedOperation]:
        """Takes out what waits for a key, also from its other keys, and returns it; none of it will complete."""
        return [operation for operation in list(self._watchers.get(key, ())) if operation.cancel()]

    def complete_all(self) -> int:
        """Completes everything that waits for a key, as when the broker stops. Returns how many were."""
        completed = 0
        for watchers in list(self._watchers.values()):
            for operation in list(watchers):
                try:
                    completed += operation.force_complete()
                except Exception:
                    _logger.exception("a waiting %s failed", self.name)
        return completed

    def _forget(self, operation: DelayedOperation) -> None:
        self.delayed -= 1
        if operation._entry is not None:
            operation._entry.cancel()
            operation._entry = None
        for key in operation._keys:
            watchers = self._watchers[key]
            del watchers[operation]
            if not watchers:
                del self._watchers[key]
