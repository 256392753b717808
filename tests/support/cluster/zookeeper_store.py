"""Sessions of `ZooKeeperStore` for tests."""

import asyncio
import functools
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from kazoo.client import KazooClient

from headrace.cluster.store import CoordinationStore
from headrace.cluster.zookeeper.config import ZooKeeperConfig
from headrace.cluster.zookeeper.store import ZooKeeperStore

DEADLINE_SECONDS = 300.0
_chroots = itertools.count(1)


def slow_test(function: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs a coroutine function as a test, with a deadline for a slow machine."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await function(*arguments, **options)

        asyncio.run(limited())

    return run


async def eventually(condition: Callable[[], object]) -> None:
    """Waits until a condition holds. The test's deadline limits the wait."""
    while not condition():
        await asyncio.sleep(0.005)


def new_chroot() -> str:
    return f"/test-{next(_chroots)}/cluster"


def config_of(connect: str, **properties: object) -> ZooKeeperConfig:
    settings = {"zookeeper.connect": connect, "zookeeper.session.timeout.ms": 10_000}
    settings["zookeeper.connection.timeout.ms"] = 60_000
    settings |= {
        f"zookeeper.{name.replace('_', '.')}": value for name, value in properties.items() if value is not None
    }
    config = ZooKeeperConfig.from_properties(settings)
    assert config is not None
    return config


async def open_store(connect: str, **properties: object) -> ZooKeeperStore:
    """Opens a store. Keyword arguments are configs: `session_timeout_ms=2000`."""
    return await ZooKeeperStore.open(config_of(connect, **properties))


def expire_session(store: ZooKeeperStore) -> None:
    """Ends the session of a store on the server: a second client takes it over and closes it."""
    thief = KazooClient(",".join(store.config.servers), client_id=store.session_credentials, timeout=10)
    thief.start(timeout=60)
    thief.stop()
    thief.close()


class _NoClock:
    def advance(self, seconds: float) -> None:
        """ZooKeeper has its own clock."""


class ZooKeeperHarness:
    """Sessions on one ZooKeeper, with an empty tree."""

    def __init__(self, connect: str):
        self.clock = _NoClock()
        self._connect = connect + new_chroot()

    async def session(self) -> CoordinationStore:
        return await open_store(self._connect)

    async def expire(self, store: CoordinationStore) -> None:
        assert isinstance(store, ZooKeeperStore)
        await asyncio.to_thread(expire_session, store)
