"""Clients that outlive a task. Used in the driver's planners and in tasks.

Spark forks its Python workers once and uses them for many tasks, and connecting takes longer than a small task. So
clients are cached for the life of the process, by their configs. A worker runs one task at a time, so a client has one
user at a time.

Invariants:
- A client never crosses a fork.
- A client is discarded after an error that leaves its state uncertain.
"""

import os
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol, TypeVar

__all__ = ["cached", "close_all", "config_key", "discard"]


class Closeable(Protocol):
    def close(self) -> object: ...


T = TypeVar("T", bound=Closeable)

_MAX_CLIENTS = 32
"""The maximum number of clients per process. The least recently used client is closed first."""
_clients: dict[Hashable, Any] = {}
_lock = threading.Lock()


def config_key(kind: str, config: Mapping[str, object], *parts: Hashable) -> Hashable:
    """Returns a key for `cached`. Clients with equal configs have equal keys."""
    return (kind, tuple(sorted((name, repr(value)) for name, value in config.items())), *parts)


def cached(key: Hashable, create: Callable[[], T]) -> T:
    """Returns the client of a key. Creates it if there is none yet."""
    evicted: list[Any] = []
    with _lock:
        client = _clients.pop(key, None)
        if client is None:
            client = create()
        _clients[key] = client
        while len(_clients) > _MAX_CLIENTS:
            evicted.append(_clients.pop(next(iter(_clients))))
    for evicted_client in evicted:
        evicted_client.close()
    typed: T = client
    return typed


def discard(key: Hashable) -> None:
    """Closes and removes the client of a key, if there is one. The next call of `cached` creates a new client."""
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


def _clear_after_fork() -> None:
    """Drops the clients in the child of a fork: they belong to the parent."""
    global _lock
    _lock = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_clear_after_fork)
