"""What a broker takes from outside: its store, files, threads, listeners, connections, clock and randomness.

A broker uses nothing else of the world, so a simulation can replace all of it. The defaults are the real things.

- Awaited work in a thread goes through `run_in_thread`. Code that has no environment may use the loop's
  `run_in_executor` or `asyncio.to_thread`: the loop of a simulation replaces them.
- Work with a callback goes through a runner of `make_runner`.
- The loop's timers are a part of the loop.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from headrace.broker.config.broker import BrokerConfig
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.registration import read_cluster_id
from headrace.cluster.remote.client import RemoteStore
from headrace.cluster.store import CoordinationStore
from headrace.cluster.zookeeper.config import ZooKeeperConfig
from headrace.common.background import RunInThread, RunnerFactory, ThreadRunner
from headrace.common.clock import Clock, SystemClock
from headrace.common.errors import KafkaStorageError
from headrace.common.extras import requires_extra
from headrace.common.ids import Random, make_random
from headrace.common.metrics import Metrics
from headrace.net.connection import FrameHandler
from headrace.net.dialer import Dialer, SocketDialer
from headrace.net.limits import Limits
from headrace.net.listeners import Listener
from headrace.net.server import SocketServer
from headrace.storage.checkpoints import MetaProperties
from headrace.storage.files import FileSystem, storage_error

STORE_FILE = "coordination.sqlite"
"""The file of the embedded coordination store, in the first log directory."""


class StoreOpener(Protocol):
    """Opens the coordination store of a broker."""

    async def __call__(self, config: BrokerConfig, clock: Clock, files: FileSystem) -> CoordinationStore: ...


class ServerFactory(Protocol):
    """Creates the server that listens for connections; `start` opens its listeners."""

    def __call__(
        self, listeners: list[Listener], handler: FrameHandler, limits: Limits, clock: Clock, metrics: Metrics
    ) -> SocketServer: ...


async def open_store(config: BrokerConfig, clock: Clock, files: FileSystem) -> CoordinationStore:
    """Connects to ZooKeeper if `zookeeper.connect` is set. Otherwise opens the embedded store in the first log
    directory."""
    if config.zookeeper is not None:
        return await _open_zookeeper(config, config.zookeeper, files)
    cluster_id = _check_directories(config, files)
    return EmbeddedStore(_first_directory(config) / STORE_FILE, clock, cluster_id=cluster_id)


class RemoteStoreOpener:
    """Opens a session on the embedded store in the process that has started this one."""

    def __init__(self, path: Path):
        """`path` is the socket of the store's server."""
        self._path = path
        self._store: RemoteStore | None = None

    async def __call__(self, config: BrokerConfig, clock: Clock, files: FileSystem) -> CoordinationStore:  # noqa: ARG002
        store = await RemoteStore.open(self._path, f"broker {config.node_id}", config.zookeeper_session_timeout_ms)
        try:
            _check_cluster(
                config, files, await read_cluster_id(store), f"the coordination store at {self._path.parent}"
            )
        except BaseException:
            await store.close()
            raise
        self._store = store
        return store

    def abandon(self) -> None:
        """Called when the process of the store has ended: no call waits for it any more."""
        if self._store is not None:
            self._store.abandon()


async def _open_zookeeper(config: BrokerConfig, zookeeper: ZooKeeperConfig, files: FileSystem) -> CoordinationStore:
    with requires_extra("cluster"):
        from headrace.cluster.zookeeper.store import ZooKeeperStore

    store = await ZooKeeperStore.open(zookeeper)
    try:
        _check_cluster(config, files, await read_cluster_id(store), f"ZooKeeper {zookeeper.connect}")
    except BaseException:
        await store.close()
        raise
    return store


def _check_cluster(config: BrokerConfig, files: FileSystem, cluster_id: str | None, store: str) -> None:
    """Raises KafkaStorageError if a log directory belongs to another node, or to another cluster than the store."""
    for directory in map(Path, config.log_dirs):
        try:
            meta = MetaProperties.read(directory, files)
        except (KafkaStorageError, OSError):
            continue  # the log manager takes the directory offline and logs the reason
        if meta is None:
            continue
        if meta.cluster_id != cluster_id:
            found = f"has cluster {cluster_id}" if cluster_id is not None else "has no cluster yet"
            raise KafkaStorageError(
                f"Log directory {directory} belongs to cluster {meta.cluster_id} (meta.properties), but {store} "
                f"{found} (/cluster/id). Check zookeeper.connect and log.dirs; use empty directories for a new broker"
            )
        meta.check_owner(directory, cluster_id, config.node_id)


async def _to_thread(work: Callable[[], Any], /) -> Any:
    return await asyncio.to_thread(work)


@dataclass(frozen=True, kw_only=True)
class BrokerEnvironment:
    """The environment of one broker."""

    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=make_random)
    files: FileSystem = field(default_factory=FileSystem)
    open_store: StoreOpener = open_store
    make_runner: RunnerFactory = ThreadRunner
    run_in_thread: RunInThread = _to_thread
    make_server: ServerFactory = SocketServer
    dialer: Dialer = field(default_factory=SocketDialer)
    """Connects to other brokers."""

    async def run_in_thread_to_end(self, work: Callable[[], object]) -> None:
        """Runs work in a thread. Waits for its end even if the caller is cancelled, since the work owns its objects."""
        task = asyncio.ensure_future(self.run_in_thread(work))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait((task,))
            raise


def _check_directories(config: BrokerConfig, files: FileSystem) -> str | None:
    """Returns the cluster of the first log directory; None if it is new. Reads only.

    Raises KafkaStorageError if it belongs to another node, or if there is data of a cluster but no coordination store.
    """
    store = Path(config.log_dirs[0]) / STORE_FILE
    for directory in map(Path, config.log_dirs):
        try:
            meta = MetaProperties.read(directory, files)
        except (KafkaStorageError, OSError):
            continue  # the log manager takes the directory offline and logs the reason
        if meta is not None and not store.exists():
            raise KafkaStorageError(
                f"Log directory {directory} belongs to cluster {meta.cluster_id}, but the coordination store {store} "
                "does not exist. It contains the topics and configs of the cluster and must be in the first directory "
                "of log.dirs: restore it, or use empty directories to start a new cluster"
            )
        if directory == store.parent and meta is not None:
            meta.check_owner(directory, None, config.node_id)
            return meta.cluster_id
    return None


def _first_directory(config: BrokerConfig) -> Path:
    path = Path(config.log_dirs[0])
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error("create log directory", path, error) from error
    return path
