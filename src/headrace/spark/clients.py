"""Clients that outlive a task. Runs wherever clients are needed: in the driver's planners and in tasks.

Spark forks its Python workers once and uses them for many tasks, while connecting takes longer than a small task: so
clients are kept for the life of the process, by what they were made of. A worker runs one task at a time, so a client
has one user at a time.

Invariants: a client never crosses a fork; what fails in a way that leaves a client in doubt discards it (`discard`).
"""

import os
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol, TypeVar

__all__ = ["cached", "close_all", "discard", "settings_key"]


class Closeable(Protocol):
    def close(self) -> object: ...


T = TypeVar("T", bound=Closeable)

_MOST = 32
"""Clients of a process; the one that was not used for longest goes first."""
_clients: dict[Hashable, Any] = {}
_lock = threading.Lock()


def settings_key(kind: str, settings: Mapping[str, object], *more: Hashable) -> Hashable:
    """A key for `cached`: equal for equal settings."""
    return (kind, tuple(sorted((name, repr(value)) for name, value in settings.items())), *more)


def cached(key: Hashable, make: Callable[[], T]) -> T:
    """The client of a key, made if there is none yet."""
    evicted: list[Any] = []
    with _lock:
        client = _clients.pop(key, None)
        if client is None:
            client = make()
        _clients[key] = client
        while len(_clients) > _MOST:
            evicted.append(_clients.pop(next(iter(_clients))))
    for each in evicted:
        each.close()
    found: T = client
    return found


def discard(key: Hashable) -> None:
    """Closes the client of a key, if there is one; the next who asks gets a new one."""
    with _lock:
        client = _clients.pop(key, None)
    if client is not None:
        client.close()


def close_all() -> None:
    """Closes every client of this process."""
    with _lock:
        clients = list(_clients.values())
        _clients.clear()
    for client in clients:
        client.close()


def _forget() -> None:
    """In a child of a fork: the clients belong to the parent."""
    global _lock
    _lock = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_forget)
