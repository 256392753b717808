"""Serves the metrics of a broker: starts the endpoint's thread, and takes snapshots on the broker's loop for it."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from prometheus_client.core import Metric

from headrace.broker.broker_state import BrokerState
from headrace.broker.metrics.collector import BrokerCollector
from headrace.broker.server import Broker
from headrace.monitoring.broker_families import broker_families, broker_state_family
from headrace.monitoring.endpoint import Health, MetricsEndpoint, MonitoredProcess, parse_address
from headrace.monitoring.exposition import process_families
from headrace.monitoring.loop_monitor import LoopMonitor
from headrace.monitoring.snapshot import BrokerSnapshot

_logger = logging.getLogger(__name__)

_PERIOD_MS = 30_000
"""Quantiles cover the last one to two periods."""
_LOOP_TIMEOUT_SECONDS = 5.0
"""A broker whose loop does not answer within this time is not healthy."""
_COLLECT_TIMEOUT_SECONDS = 20.0
_SERVING = frozenset((BrokerState.RUNNING, BrokerState.PENDING_CONTROLLED_SHUTDOWN))
"""The states in which all parts of a broker exist. In others only its state is reported."""
T = TypeVar("T")


class MetricsService:
    """The endpoint of one broker. Create it on the broker's loop."""

    def __init__(self, broker: Broker, listener: str):
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._loop_monitor = LoopMonitor(broker.clock.monotonic)
        self._collector = BrokerCollector(broker, self._loop_monitor)
        self._collecting = asyncio.Lock()
        self.endpoint = MetricsEndpoint(
            *parse_address(listener), MonitoredProcess(self._collect, self._is_healthy, self._is_ready)
        )

    def start(self) -> None:
        self._loop_monitor.start()
        self._broker.driver.every(_PERIOD_MS, self._rotate)
        self.endpoint.start()
        _logger.info("Broker %d serves metrics at %s/metrics", self._broker.node_id, self.endpoint.url)

    async def stop(self) -> None:
        self._loop_monitor.stop()
        # In a thread: the endpoint may wait for this loop.
        await asyncio.to_thread(self.endpoint.stop)

    def _rotate(self) -> None:
        if self._broker.state in _SERVING:
            self._collector.rotate()

    async def _snapshot(self) -> BrokerSnapshot:
        async with self._collecting:
            return await self._collector.collect()

    # ---- called on the endpoint's loop

    async def _collect(self) -> Iterable[Metric]:
        state = await self._on_broker_loop(self._state, _LOOP_TIMEOUT_SECONDS)
        if state not in _SERVING:
            return itertools.chain([broker_state_family(state)], process_families())
        snapshot = await self._on_broker_loop(self._snapshot, _COLLECT_TIMEOUT_SECONDS)
        return itertools.chain(broker_families(snapshot), process_families())

    async def _is_healthy(self) -> Health:
        try:
            state = await self._on_broker_loop(self._state, _LOOP_TIMEOUT_SECONDS)
        except TimeoutError:
            return Health(False, f"the event loop has not answered within {_LOOP_TIMEOUT_SECONDS:.0f} seconds")
        return Health(True, f"ok: {state.name}")

    async def _is_ready(self) -> Health:
        try:
            state = await self._on_broker_loop(self._state, _LOOP_TIMEOUT_SECONDS)
        except TimeoutError:
            return Health(False, f"the event loop has not answered within {_LOOP_TIMEOUT_SECONDS:.0f} seconds")
        return Health(state is BrokerState.RUNNING, state.name)

    async def _state(self) -> BrokerState:
        return self._broker.state

    async def _on_broker_loop(self, work: Callable[[], Coroutine[Any, Any, T]], timeout: float) -> T:
        future: Awaitable[T] = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))
        return await asyncio.wait_for(future, timeout)
