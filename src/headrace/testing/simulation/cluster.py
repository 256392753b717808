"""A simulated cluster: brokers with their disks, the store, and clients, on one virtual loop.

    run_simulation(seed, scenario)      # scenario: async def scenario(cluster)

The scenario and the checks belong to no node, so no fault affects them.
"""

import asyncio
import contextlib
import contextvars
import gc
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from headrace.aio import Admin, Consumer, Producer
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.environment import BrokerEnvironment
from headrace.broker.server import Broker
from headrace.cluster.store import CoordinationStore
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError
from headrace.common.ids import Random, make_random
from headrace.common.metrics import Metrics
from headrace.net.connection import FrameHandler
from headrace.net.limits import Limits
from headrace.net.listeners import Listener
from headrace.net.server import SocketServer
from headrace.storage.files import FileSystem
from headrace.testing.simulation.disks import SimulatedDisk, make_directory
from headrace.testing.simulation.loop import Node, NodeClock, VirtualLoop, VirtualRunner, current_node
from headrace.testing.simulation.network import Network, VirtualDialer, VirtualServer
from headrace.testing.simulation.store import StoreServer

PORT = 9092
_LOGGER = logging.getLogger("headrace")

BROKER_PROPERTIES: dict[str, object] = {
    "auto.create.topics.enable": False,
    "num.recovery.threads.per.data.dir": 1,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 100,
}


class SimulatedBroker:
    """A broker's machine: its disk, its clock error, and its current process, if it has one."""

    def __init__(self, cluster: "SimulatedCluster", broker_id: int):
        self.id = broker_id
        self.name = broker_name(broker_id)
        self.disk = SimulatedDisk(_made(cluster.directory / self.name))
        self.clock_offset_ms = 0
        self.node: Node | None = None
        """The process; None while the broker is down."""
        self.broker: Broker
        self.is_running = False
        """True after a successful start, until the process ends."""
        self._cluster = cluster

    def _environment(self, node: Node) -> BrokerEnvironment:
        cluster = self._cluster

        async def open_store(config: BrokerConfig, clock: Clock, files: FileSystem) -> CoordinationStore:  # noqa: ARG001
            return await cluster.store_server.client(node).opened()

        def make_server(
            listeners: list[Listener], handler: FrameHandler, limits: Limits, clock: Clock, metrics: Metrics
        ) -> SocketServer:
            return VirtualServer(cluster.network, node, listeners, handler, limits, clock, metrics)

        return BrokerEnvironment(
            clock=NodeClock(cluster.loop, node),
            random=make_random(cluster.random.getrandbits(64)),
            files=self.disk,
            open_store=open_store,
            make_runner=VirtualRunner,
            make_server=make_server,
            dialer=VirtualDialer(cluster.network, node),
        )

    def start(self) -> "asyncio.Task[None]":
        """Starts a process. The task ends when the broker is ready, or with the reason why it is not."""
        assert self.node is None, f"{self.name} is running"
        self.node = node = Node(self._cluster.loop, self.name)
        node.clock_offset_ms = self.clock_offset_ms
        self._cluster.network.node_restarted(self.name)
        properties = {
            **BROKER_PROPERTIES,
            "broker.id": self.id,
            "broker.rack": rack_of(self.id),
            "listeners": f"PLAINTEXT://{self.name}:{PORT}",
            "log.dirs": ",".join(str(self.disk.root / name) for name in self._cluster.log_dirs),
            **self._cluster.properties,
        }

        async def start() -> None:
            self.broker = Broker(BrokerConfig.load(properties), self._environment(node))
            try:
                await self.broker.start()
                self.is_running = True
            except HeadraceError as error:
                self._cluster.note(f"{self.name} did not start: {error}")
                self.ended(silently=False)
                raise

        return node.run(start())

    async def stop(self) -> None:
        """Stops the process cleanly."""
        node = self.node
        assert node is not None
        await node.run(self.broker.stop())
        if self.node is node:
            self.ended(silently=False)

    def kill(self, *, power_loss: Random | None = None) -> None:
        """Kills the process. A power loss also destroys what is not synced."""
        assert self.node is not None
        self.ended(silently=power_loss is not None)
        self.disk.process_ended(power_loss)

    def ended(self, *, silently: bool) -> None:
        node, self.node = self.node, None
        assert node is not None
        self.is_running = False
        self.clock_offset_ms = node.clock_offset_ms
        self._cluster.dead_nodes.append(node)
        node.kill()
        self._cluster.network.node_killed(node, silently=silently)
        if hasattr(self, "broker") and hasattr(self.broker, "log_manager"):
            for directory in self.broker.log_manager.directories:
                directory.unlock()  # as the operating system does
        self.disk.process_ended()


class SimulatedCluster:
    """The brokers, the store, the network and the clients of one run."""

    def __init__(self, loop: VirtualLoop, random: Random, directory: Path, brokers: int, properties: dict[str, object]):
        self.loop = loop
        self.random = random
        self.directory = directory
        self.log_dirs: tuple[str, ...] = ("data",)
        """The log directories of each broker."""
        self.properties = properties
        self.trace: list[str] = []
        self.dead_nodes: list[Node] = []
        self.network = Network(loop, make_random(random.getrandbits(64)), contextvars.Context())
        self.store_server = StoreServer(loop, self.network)
        self.brokers = {number: SimulatedBroker(self, number) for number in range(brokers)}

    @property
    def store(self) -> CoordinationStore:
        """The store as it is, without faults, for checks."""
        return self.store_server.store

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{broker.name}:{PORT}" for broker in self.brokers.values())

    def note(self, text: str) -> None:
        """Adds a line to the trace."""
        text = text.replace(f"{self.directory}/", "")  # differs between runs
        self.trace.append(f"{self.loop.time():9.3f} {current_node() or 'simulation'}: {text}")

    async def start(self) -> None:
        await asyncio.gather(*(broker.start() for broker in self.brokers.values()))

    # ---- clients

    def client_node(self, name: str) -> Node:
        return Node(self.loop, name)

    def producer(self, node: Node, **config: Any) -> Producer:
        return node.context.copy().run(lambda: Producer(**self._client_options(node), **config))

    def consumer(self, node: Node, *topics: str, **config: Any) -> "Consumer[bytes, bytes]":
        return node.context.copy().run(lambda: Consumer(*topics, **self._client_options(node), **config))

    def admin(self, node: Node, **config: Any) -> Admin:
        return node.context.copy().run(lambda: Admin(**self._client_options(node), **config))

    def _client_options(self, node: Node) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.bootstrap,
            "clock": NodeClock(self.loop, node),
            "random": make_random(self.random.getrandbits(64)),
            "dialer": VirtualDialer(self.network, node),
        }


class _TraceHandler(logging.Handler):
    """Adds the log of all nodes to the trace."""

    def __init__(self, cluster: SimulatedCluster):
        super().__init__(logging.INFO)
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.levelname} {record.name.removeprefix('headrace.')}: {record.getMessage()}"
        if record.exc_info and record.exc_info[1] is not None:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
            self._cluster.loop.errors.append(f"{current_node()}: {text}")
        self._cluster.note(text)


def run_simulation(
    seed: int,
    scenario: Callable[[SimulatedCluster], Awaitable[object]],
    *,
    brokers: int = 3,
    properties: dict[str, object] | None = None,
    limit_seconds: float = 3600.0,
) -> SimulatedCluster:
    """Runs a scenario on virtual time. Returns the cluster after the run, with its trace.

    If the scenario fails, the exception has the trace as its attribute `trace`.
    """
    random = make_random(seed)
    loop = VirtualLoop(make_random(random.getrandbits(64)))
    with make_directory() as directory:
        cluster: SimulatedCluster | None = None

        async def run() -> None:
            nonlocal cluster
            cluster = SimulatedCluster(loop, random, Path(directory), brokers, properties or {})
            handler = _TraceHandler(cluster)
            level, propagates = _LOGGER.level, _LOGGER.propagate
            _LOGGER.addHandler(handler)
            _LOGGER.setLevel(logging.INFO)
            _LOGGER.propagate = False
            try:
                async with asyncio.timeout(limit_seconds):
                    await scenario(cluster)
            except BaseException as error:
                error.trace = cluster.trace  # type: ignore[attr-defined]
                raise
            finally:
                _LOGGER.removeHandler(handler)
                _LOGGER.setLevel(level)
                _LOGGER.propagate = propagates
                for simulated in cluster.brokers.values():
                    if simulated.node is not None:
                        simulated.kill()

        asyncio.set_event_loop(loop)
        with _without_garbage_collection():
            try:
                loop.run_until_complete(run())
            finally:
                asyncio.set_event_loop(None)
                loop.close()
    assert cluster is not None
    return cluster


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Collects what earlier runs have left, and nothing during this run.

    The collection of a task of a killed process runs its `finally` blocks. During a run they would log errors, at times
    that differ between runs.
    """
    was_enabled, hook, disabled = gc.isenabled(), sys.unraisablehook, logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda _: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook
        logging.disable(disabled)
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def broker_name(broker_id: int) -> str:
    return f"broker-{broker_id}"


def rack_of(broker_id: int) -> str:
    """Returns the rack of a broker: every broker has its own."""
    return f"rack-{broker_id}"


def _made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path
