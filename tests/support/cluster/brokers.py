"""Several real brokers on one event loop, with sockets on loopback and one store in memory that they share.

    async with ClusterOfBrokers(tmp_path, 3) as cluster:
        leader = cluster.brokers[1]

`kill` ends a broker as a crash does, except that its session ends at once. `start` starts a new one on its files.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.environment import BrokerEnvironment
from headrace.broker.server import Broker
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.store import CoordinationStore
from headrace.common.clock import Clock
from headrace.storage.files import FileSystem


class ClusterOfBrokers:
    """Brokers with the ids 0 to `size` - 1. Keyword arguments are properties of all brokers, with _ for dots."""

    def __init__(
        self, directory: Path, size: int = 3, environment: BrokerEnvironment | None = None, **properties: object
    ):
        self._directory = directory
        self._size = size
        self._environment = replace(environment or BrokerEnvironment(), open_store=self._open_store)
        self._properties = {key.replace("_", "."): value for key, value in properties.items()}
        self.store: EmbeddedStore
        """A session of its own: reads what the brokers write."""
        self.brokers: dict[int, Broker] = {}
        """The running brokers."""

    async def __aenter__(self) -> "ClusterOfBrokers":
        self.store = EmbeddedStore(None, self._environment.clock)
        try:
            await asyncio.gather(*map(self.start, range(self._size)))
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _open_store(self, config: BrokerConfig, clock: Clock, files: FileSystem) -> CoordinationStore:
        return self.store.new_session()

    def make(self, node_id: int) -> Broker:
        """Returns a broker that is not started."""
        properties = {
            "broker.id": node_id,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(self._directory / f"broker-{node_id}"),
            **self._properties,
        }
        return Broker(BrokerConfig.load(properties), self._environment)

    async def start(self, node_id: int) -> Broker:
        broker = self.make(node_id)
        await broker.start()
        self.brokers[node_id] = broker
        return broker

    async def stop(self, node_id: int) -> None:
        await self.brokers.pop(node_id).stop()

    async def kill(self, node_id: int) -> None:
        await self.brokers.pop(node_id).abandon()

    async def close(self) -> None:
        await asyncio.gather(*(self.kill(node_id) for node_id in list(self.brokers)))
        await self.store.close()

    @property
    def bootstrap(self) -> str:
        """The addresses of the running brokers, for clients."""
        return ",".join(f"{found.host}:{found.port}" for broker in self.brokers.values() for found in broker.endpoints)
