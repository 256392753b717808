"""A cluster of the console: its collector, its snapshot, its live updates, and the console's own identity on it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from headrace.common.clock import Clock
from headrace.console.broker_metrics import BrokerMetrics
from headrace.console.broker_reader import BrokerReader
from headrace.console.collector import Collector
from headrace.console.errors import ApiError
from headrace.console.events import EventHub
from headrace.console.identity import Identity
from headrace.console.settings import ClusterSettings
from headrace.console.snapshot import Snapshot

__all__ = ["Cluster"]

_logger = logging.getLogger(__name__)


class Cluster:
    """One cluster. Owner: the loop that starts it."""

    def __init__(self, settings: ClusterSettings, clock: Clock, interval_seconds: float):
        self.settings = settings
        self.name = settings.name
        self.clock = clock
        self._interval = interval_seconds
        self.events = EventHub()
        self.own = Identity(settings, clock)
        """The console's own identity: it collects, and on a cluster without login it does everything."""
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
        await self.own.close()

    async def _collected(self, snapshot: Snapshot) -> None:
        self.error = None
        self._publish_status()
        for callback in self._callbacks:
            try:
                await callback(snapshot)
            except Exception:
                _logger.exception("A callback after a collection of cluster %s failed", self.name)
        self.events.publish("tick", {"time_ms": snapshot.time_ms})

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
