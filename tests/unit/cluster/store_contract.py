"""The implementations that must pass the contract tests. Add a new one to IMPLEMENTATIONS."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.store import CoordinationStore
from headrace.testing.clock import ManualClock


class EmbeddedHarness:
    """Sessions on one embedded store."""

    def __init__(self, path: Path | None):
        self.clock = ManualClock()
        self._first: EmbeddedStore | None = None
        self._path = path

    async def session(self) -> CoordinationStore:
        if self._first is None:
            self._first = EmbeddedStore(self._path, self.clock)
            return self._first
        return self._first.new_session()

    async def expire(self, store: CoordinationStore) -> None:
        assert isinstance(store, EmbeddedStore)
        await store.expire_session()


Harness = EmbeddedHarness


async def embedded_file(directory: Path) -> Harness:
    return EmbeddedHarness(directory / "coordination.db")


async def embedded_memory(directory: Path) -> Harness:
    return EmbeddedHarness(None)


IMPLEMENTATIONS: list[Callable[[Path], Awaitable[Harness]]] = [embedded_file, embedded_memory]
