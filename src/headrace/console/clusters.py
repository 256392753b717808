"""A cluster of the console: its collector, its snapshot, its live updates, and the console's own identity on it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError
from headrace.console.attention import find_problems
from headrace.console.broker_metrics import BrokerMetrics
from headrace.console.broker_reader import BrokerReader
from headrace.console.collector import Collector, sentence
from headrace.console.errors import ApiError
from headrace.console.events import EventHub
from headrace.console.history import PREFIX, History
from headrace.console.history_recorder import record
from headrace.console.identity import Identity
from headrace.console.moves import Moves
from headrace.console.settings import ClusterSettings
from headrace.console.snapshot import Snapshot
from headrace.console.store import StateTopic
from headrace.diagnosis.snapshot import Finding, Limits

__all__ = ["Cluster"]

_logger = logging.getLogger(__name__)

_STORE_SECONDS = 15.0
_LAST_WRITE_SECONDS = 5.0
_PROBLEMS_MS = 30_000


class Cluster:
    """One cluster. Owner: the loop that starts it."""

    def __init__(
        self,
        settings: ClusterSettings,
        clock: Clock,
        interval_seconds: float,
        *,
        history_hours: float = 24.0,
        history_topic: str | None = None,
    ):
        self.settings = settings
        self.name = settings.name
        self.clock = clock
        self._interval = interval_seconds
        self.events = EventHub()
        self.own = Identity(settings, clock)
        """The console's own identity: it collects, and on a cluster without login it does everything."""
        self.history = History(clock, history_hours)
        self.store = StateTopic(history_topic, self.own)
        self.store.register(PREFIX, self.history.restored)
        self.moves = Moves(self.own.admin, clock)
        self.metrics = BrokerMetrics(settings.metrics_urls, clock)
        self.collector = Collector(
            self.own.admin,
            clock,
            interval_seconds,
            collected=self._collected,
            failed=self._failed,
            broker_reader=BrokerReader(self.own.admin, clock, self.metrics),
        )
        self.error: str | None = None
        """Why the cluster is not reachable."""
        self._callbacks: list[Callable[[Snapshot], Awaitable[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self._storing: asyncio.Task[None] | None = None
        self._store_due = 0.0
        self._status: tuple[bool, str | None] | None = None

    @property
    def snapshot(self) -> Snapshot | None:
        return self.collector.snapshot

    @property
    def is_reachable(self) -> bool:
        return self.error is None and self.snapshot is not None

    def known(self) -> Snapshot:
        """Returns the snapshot. Raises ApiError before the first collection."""
        if self.snapshot is None:
            raise ApiError(503, "CLUSTER_UNREACHABLE", self.error or f"Cluster {self.name!r} has not been read yet")
        return self.snapshot

    def on_snapshot(self, callback: Callable[[Snapshot], Awaitable[None]]) -> None:
        """Calls a function after each collection."""
        self._callbacks.append(callback)

    async def start(self) -> None:
        self._task = asyncio.create_task(self.collector.run(), name=f"collector of {self.name}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._storing is not None:
            self._storing.cancel()
            with suppress(asyncio.CancelledError):
                await self._storing
        try:
            async with asyncio.timeout(_LAST_WRITE_SECONDS):
                await self.history.flush(self.store.put, everything=True)
                await self.store.flush()
        except (HeadraceError, TimeoutError) as error:
            _logger.warning("The history of cluster %s is incomplete: %s", self.name, sentence(error))
        await self.store.close()
        await self.own.close()

    async def problems(self, identity: Identity) -> tuple[list[Finding], int]:
        """Returns what needs attention of what a principal may see, and when it was found. It is computed at most
        twice a minute for each principal."""
        known = identity.problems
        snapshot = self.known()
        if known is not None and snapshot.time_ms - known[1] < _PROBLEMS_MS and known[2] == snapshot.generation:
            return known[0], known[1]
        visibility = await identity.visibility()
        found = find_problems(snapshot, Limits(), visibility)
        identity.problems = found, snapshot.time_ms, dict(snapshot.generation)
        return found, snapshot.time_ms

    async def _collected(self, snapshot: Snapshot) -> None:
        self.error = None
        self._publish_status()
        record(self.history, snapshot)
        if self._storing is None or self._storing.done():
            now = self.clock.monotonic()
            if now >= self._store_due:
                self._store_due = now + _STORE_SECONDS
                self._storing = asyncio.create_task(self._store(snapshot), name=f"history of {self.name}")
        for callback in self._callbacks:
            try:
                await callback(snapshot)
            except Exception:
                _logger.exception("A callback after a collection of cluster %s failed", self.name)
        self.events.publish("tick", {"time_ms": snapshot.time_ms})

    async def _store(self, snapshot: Snapshot) -> None:
        """Reads the topic once, and writes what is due."""
        try:
            await self.store.open(len(snapshot.cluster.brokers))
            await self.history.flush(self.store.put)
            await self.store.flush()
        except HeadraceError as error:
            _logger.warning("Cannot store the history of cluster %s: %s", self.name, sentence(error))
        except Exception:
            _logger.exception("Storing the history of cluster %s failed", self.name)

    def _failed(self, error: str) -> None:
        if error != self.error:
            _logger.warning("Cluster %s is not reachable: %s", self.name, error)
        self.error = error
        self._publish_status()

    def _publish_status(self) -> None:
        status = (self.is_reachable, self.error)
        if status != self._status:
            self._status = status
            self.events.publish("status", {"reachable": status[0], "error": status[1]})
