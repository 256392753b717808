"""Settings of topics and brokers in the store, and how a change of them reaches every broker.

A change writes the settings and a notification under /config/changes in one step. Each broker watches that node, reads
the settings that a notification names, and applies them. Whether a value makes sense is for the broker to say.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from headrace.cluster import znodes
from headrace.cluster.store import (
    BadVersion,
    CoordinationStore,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    Set,
    StoreError,
    WatchEvent,
)
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError

_logger = logging.getLogger(__name__)

NOTIFICATION_RETENTION_MS = 15 * 60 * 1000
"""How long a notification stays, for brokers that are cut off for a while."""


@dataclass(frozen=True, slots=True)
class ConfigEntity:
    """What settings belong to: a topic, a broker, or all brokers."""

    kind: str
    name: str

    @classmethod
    def topic(cls, name: str) -> "ConfigEntity":
        return cls(znodes.TOPIC_CONFIGS, name)

    @classmethod
    def broker(cls, broker_id: int) -> "ConfigEntity":
        return cls(znodes.BROKER_CONFIGS, str(broker_id))

    @classmethod
    def all_brokers(cls) -> "ConfigEntity":
        """The cluster-wide default of brokers."""
        return cls(znodes.BROKER_CONFIGS, znodes.DEFAULT_ENTITY)

    @property
    def path(self) -> str:
        return znodes.config_path(self.kind, self.name)

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


ConfigListener: TypeAlias = Callable[[ConfigEntity, dict[str, str]], None]
"""Told what settings of an entity are now, {} if it has none. Must not block."""


class ConfigStore:
    def __init__(self, store: CoordinationStore):
        self._store = store

    async def get(self, entity: ConfigEntity) -> dict[str, str]:
        try:
            data, _ = await self._store.get(entity.path)
        except NoNode:
            return {}
        return znodes.decode_config(entity.path, data)

    async def names(self, kind: str) -> list[str]:
        """The entities of a kind that have settings."""
        return await self._store.children(f"{znodes.CONFIG}/{kind}")

    async def get_all(self, kind: str) -> dict[str, dict[str, str]]:
        """All settings of a kind, by name: what a broker reads when it starts."""
        return {name: await self.get(ConfigEntity(kind, name)) for name in await self.names(kind)}

    async def set(self, entity: ConfigEntity, config: Mapping[str, str]) -> None:
        """Replaces all settings of an entity."""
        await self.alter(entity, lambda _: config)

    async def alter(
        self, entity: ConfigEntity, change: Callable[[dict[str, str]], Mapping[str, str]]
    ) -> dict[str, str]:
        """Gives `change` the settings that there are and writes what it returns; again if another was quicker. What
        `change` raises leaves everything as it was. Returns the new settings."""
        while True:
            operation: Operation
            try:
                data, stat = await self._store.get(entity.path)
            except NoNode:
                after = dict(change({}))
                operation = Create(entity.path, znodes.encode_config(after))
            else:
                after = dict(change(znodes.decode_config(entity.path, data)))
                operation = Set(entity.path, znodes.encode_config(after), stat.version)
            try:
                await self._store.multi([operation, notification(entity)])
            except (BadVersion, NodeExists, NoNode) as error:
                if error.index != 0 or (isinstance(error, NoNode) and isinstance(operation, Create)):
                    raise
                continue
            return after


def notification(entity: ConfigEntity) -> Create:
    """Tells every broker that the settings have changed."""
    return Create(
        f"{znodes.CONFIG_CHANGES}/{znodes.CONFIG_CHANGE_PREFIX}",
        znodes.encode_config_change(entity.kind, entity.name),
        sequential=True,
    )


class ConfigWatcher:
    """Tells a listener of every change of settings. Start it before reading settings, then no change is missed."""

    def __init__(self, store: CoordinationStore, clock: Clock, listener: ConfigListener):
        self._store = store
        self._clock = clock
        self._listener = listener
        self._configs = ConfigStore(store)
        self._last_seen = ""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        names = await self._store.children(znodes.CONFIG_CHANGES, self._on_change)
        self._last_seen = max(names, default="")
        self._task = asyncio.create_task(self._run(), name="config-watcher")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def restart_watch(self) -> None:
        """After a session was lost: looks again, and sets the watch again."""
        self._changed.set()

    def _on_change(self, _: WatchEvent) -> None:
        self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._safely(self._process)

    async def _safely(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            # The next change must be heard of all the same.
            _logger.error("cannot follow changes of settings: %s", error, exc_info=not isinstance(error, HeadraceError))

    async def _process(self) -> None:
        names = await self._store.children(znodes.CONFIG_CHANGES, self._on_change)
        for name in names:
            if name > self._last_seen:
                self._last_seen = name
                await self._safely(partial(self._tell, f"{znodes.CONFIG_CHANGES}/{name}"))
        # Only now: a topic may be waiting for its settings.
        await self._purge([f"{znodes.CONFIG_CHANGES}/{name}" for name in names])

    async def _tell(self, path: str) -> None:
        try:
            data, _ = await self._store.get(path)
        except NoNode:
            return
        entity = ConfigEntity(*znodes.decode_config_change(path, data))
        self._listener(entity, await self._configs.get(entity))

    async def _purge(self, paths: Sequence[str]) -> None:
        """Removes what is old, unless another broker was quicker."""
        old: list[Operation] = []
        for path in paths:
            stat = await self._store.exists(path)
            if stat is not None and stat.ctime_ms + NOTIFICATION_RETENTION_MS > self._clock.time_ms():
                break  # they are in the order in which they were made
            old.append(Delete(path))
        try:
            if old:
                await self._store.multi(old)
        except StoreError as error:
            _logger.debug("old notifications stay for now: %s", error)
