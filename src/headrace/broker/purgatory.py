"""The purgatory: requests that cannot be completed yet.

    try_complete_else_watch ── can complete now ─────────────────────────────────→ on_complete
            │
            └─ watched under its keys ─┬─ check_and_complete(key): try_complete ─→ on_complete
                                       └─ timeout ───────────────────────────────→ on_complete, on_expire

An operation completes exactly once, by the first of these events. It is then removed from the watch lists of all its
keys and from the timer. All of this takes constant time, however many operations wait.

The broker's loop owns a purgatory and everything in it.
"""

import logging
from collections.abc import Callable, Hashable, Iterable

from headrace.common.timing_wheel import Timer, TimerEntry

_logger = logging.getLogger(__name__)


class DelayedOperation:
    """An operation that waits for a condition, at most for a timeout.

    A subclass checks the condition in `try_complete` and acts in `on_complete`.
    """

    __slots__ = ("_entry", "_keys", "_purgatory", "completed", "on_failed", "timeout_ms")

    def __init__(self, timeout_ms: int):
        self.timeout_ms = timeout_ms
        self.completed = False
        self.on_failed: Callable[[], object] = lambda: None
        """Called if `on_complete` raises, so that the client does not wait forever."""
        self._purgatory: Purgatory | None = None
        self._keys: tuple[Hashable, ...] = ()
        self._entry: TimerEntry | None = None

    def try_complete(self) -> bool:
        """Checks the condition. If it holds, calls `force_complete` and returns its result."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Completes the operation. Called exactly once."""
        raise NotImplementedError

    def on_expire(self) -> None:
        """Called after `on_complete` if the operation timed out."""

    def force_complete(self) -> bool:
        """Completes the operation now. Returns False if it was completed already."""
        if not self._finish():
            return False
        try:
            self.on_complete()
        except Exception:
            self.on_failed()
            raise
        return True

    def cancel(self) -> bool:
        """Removes the operation without completing it: the caller handles the request. Returns False if completed."""
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
    """Operations of one kind, watched under hashable keys."""

    def __init__(self, name: str, timer: Timer):
        self.name = name
        self.delayed = 0
        """The number of waiting operations."""
        self.expired = 0
        """The number of operations that completed by timeout."""
        self._timer = timer
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}

    @property
    def watched(self) -> int:
        """The total length of the watch lists: an operation counts once for each of its keys."""
        return sum(map(len, self._watchers.values()))

    @property
    def keys(self) -> int:
        """The number of keys that have waiting operations."""
        return len(self._watchers)

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Completes an operation if its condition holds or its timeout is 0, else watches it.

        Returns True if it is completed.
        """
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
        """Completes the operations of a key whose condition holds now. Returns their number.

        An operation that fails is logged and affects neither the others nor the caller, which may be another request.
        """
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        completed = 0
        for operation in list(watchers):
            if operation.completed:
                continue  # completed by an earlier operation
            try:
                completed += operation.try_complete()
            except Exception:
                _logger.exception("A delayed %s request failed, its connection is closed", self.name)
        return completed

    def cancel_for_key(self, key: Hashable) -> list[DelayedOperation]:
        """Cancels the operations of a key, also under their other keys, and returns them."""
        return [operation for operation in list(self._watchers.get(key, ())) if operation.cancel()]

    def complete_all(self) -> int:
        """Completes all operations, as when the broker stops. Returns their number."""
        completed = 0
        for watchers in list(self._watchers.values()):
            for operation in list(watchers):
                try:
                    completed += operation.force_complete()
                except Exception:
                    _logger.exception("A delayed %s request failed, its connection is closed", self.name)
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
