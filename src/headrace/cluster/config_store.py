"""Dynamic configs of topics, brokers, groups, users, client ids and IP addresses in the coordination store, and the
watch that notifies brokers of changes.

A change writes an entity's configs and a notification under /config/changes in one transaction. Each broker watches
/config/changes, reads the configs of each changed entity, and applies them. This module does not validate configs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias
from urllib.parse import quote, unquote

from headrace.cluster import znodes
from headrace.cluster.bulk_reads import read_many
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
"""How long a notification is kept, so that brokers that were disconnected still find it."""

_FEW_TOPICS = 50


@dataclass(frozen=True, slots=True)
class ConfigEntity:
    """An entity with dynamic configs: a topic, a broker, all brokers (the cluster-wide default), a group, a client
    metrics subscription, a user, a client id, both together, or an IP address.

    The names of the last six are encoded, since they may have any characters. The entity of all users (client ids, IP
    addresses) without an own one has the name `<default>`. User and client id together have the name
    `<user>/clients/<client id>`."""

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
        """Returns the entity of the cluster-wide broker defaults."""
        return cls(znodes.BROKER_CONFIGS, znodes.DEFAULT_ENTITY)

    @classmethod
    def group(cls, group_id: str) -> "ConfigEntity":
        return cls(znodes.GROUP_CONFIGS, quote(group_id, safe=""))

    @classmethod
    def client_metrics(cls, name: str) -> "ConfigEntity":
        return cls(znodes.CLIENT_METRICS_CONFIGS, quote(name, safe=""))

    @classmethod
    def user(cls, name: str | None) -> "ConfigEntity":
        """Returns the entity of a user; None: of all other users."""
        return cls(znodes.USER_CONFIGS, _encoded(name))

    @classmethod
    def client(cls, client_id: str | None) -> "ConfigEntity":
        """Returns the entity of a client id; None: of all other client ids."""
        return cls(znodes.CLIENT_CONFIGS, _encoded(client_id))

    @classmethod
    def user_client(cls, user: str | None, client_id: str | None) -> "ConfigEntity":
        """Returns the entity of a client id of a user; None: of all others."""
        return cls(znodes.USER_CONFIGS, f"{_encoded(user)}/{znodes.CLIENT_CONFIGS}/{_encoded(client_id)}")

    @classmethod
    def ip(cls, address: str | None) -> "ConfigEntity":
        """Returns the entity of an IP address; None: of all other addresses."""
        return cls(znodes.IP_CONFIGS, _encoded(address))

    @property
    def decoded_name(self) -> str:
        """The name of a group, a client metrics subscription, a user, a client id, or an IP address."""
        return unquote(self.name)

    @property
    def user_and_client(self) -> tuple[str, str]:
        """The encoded user and client id of a user, a client id, or both. Empty if the entity has none."""
        if self.kind == znodes.CLIENT_CONFIGS:
            return "", self.name
        user, _, client_id = self.name.partition(f"/{znodes.CLIENT_CONFIGS}/")
        return user, client_id

    @property
    def path(self) -> str:
        return znodes.config_path(self.kind, self.name)

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


def _encoded(name: str | None) -> str:
    # A user may have the name <default>.
    return znodes.DEFAULT_ENTITY if name is None else quote(name, safe="-._").replace("~", "%7E")


ConfigListener: TypeAlias = Callable[[ConfigEntity, dict[str, str]], None]
"""Called with an entity and its current configs ({} if it has none). Must not block."""


class ConfigStore:
    """Reads and writes dynamic configs in the coordination store."""

    def __init__(self, store: CoordinationStore):
        self._store = store

    async def get(self, entity: ConfigEntity) -> dict[str, str]:
        try:
            data, _ = await self._store.get(entity.path)
        except NoNode:
            return {}
        return znodes.decode_config(entity.path, data)

    async def names(self, kind: str) -> list[str]:
        """Returns the names of all entities of a kind (topics or brokers) that have configs."""
        return await self._store.children(f"{znodes.CONFIG}/{kind}")

    async def get_all(self, kind: str) -> dict[str, dict[str, str]]:
        """Returns the configs of all entities of a kind, by name. A broker reads them at startup."""
        names = await self.names(kind)
        if kind == znodes.USER_CONFIGS:
            clients = await read_many(names, self._clients_of)
            names += [f"{user}/{znodes.CLIENT_CONFIGS}/{client}" for user in names for client in clients[user]]
        return await read_many(names, lambda name: self.get(ConfigEntity(kind, name)))

    async def _clients_of(self, user: str) -> list[str]:
        """Returns the client ids of a user that have configs."""
        try:
            return await self._store.children(f"{znodes.CONFIG}/{znodes.USER_CONFIGS}/{user}/{znodes.CLIENT_CONFIGS}")
        except NoNode:
            return []

    async def set(self, entity: ConfigEntity, config: Mapping[str, str]) -> None:
        """Replaces all configs of an entity."""
        await self.alter(entity, lambda _: config)

    async def alter(
        self, entity: ConfigEntity, change: Callable[[dict[str, str]], Mapping[str, str]]
    ) -> dict[str, str]:
        """Calls `change` with the current configs, writes its result, and returns it. Calls `change` again if somebody
        else changed the configs meanwhile. If `change` raises, nothing is written."""
        while True:
            operation: Operation
            try:
                data, stat = await self._store.get(entity.path)
            except NoNode:
                updated = dict(change({}))
                await self._create_parents(entity)
                operation = Create(entity.path, znodes.encode_config(updated))
            else:
                updated = dict(change(znodes.decode_config(entity.path, data)))
                operation = Set(entity.path, znodes.encode_config(updated), stat.version)
            try:
                await self._store.multi([operation, notification(entity)])
            except (BadVersion, NodeExists, NoNode) as error:
                if error.index != 0 or (isinstance(error, NoNode) and isinstance(operation, Create)):
                    raise
                continue
            return updated

    async def _create_parents(self, entity: ConfigEntity) -> None:
        """Creates the nodes between the kind and the entity, without data, as Kafka does."""
        parts = entity.name.split("/")
        for size in range(1, len(parts)):
            path = znodes.config_path(entity.kind, "/".join(parts[:size]))
            with suppress(NodeExists):
                await self._store.create(path, b"")


def notification(entity: ConfigEntity) -> Create:
    """Returns the store operation that notifies all brokers of a change of the entity's configs."""
    return Create(
        f"{znodes.CONFIG_CHANGES}/{znodes.CONFIG_CHANGE_PREFIX}",
        znodes.encode_config_change(entity.kind, entity.name),
        sequential=True,
    )


class TopicConfigLoader:
    """Reads the configs of topics that a broker hears of for the first time.

    Apache Kafka's brokers create a topic with its configs, but without a notification: each broker reads them when it
    gets the topic's first partition.
    """

    def __init__(self, configs: ConfigStore, listener: ConfigListener):
        self._configs = configs
        self._listener = listener
        self._known: set[str] = set()
        """The topics whose configs have been read. From then on, the watcher follows them."""

    def add(self, topics: Iterable[str]) -> None:
        """Notes topics whose configs have been read."""
        self._known.update(topics)

    def forget(self, topic: str) -> None:
        """Reads the configs again if another topic gets this name."""
        self._known.discard(topic)

    async def load(self, topics: Iterable[str]) -> None:
        """Reads the configs of topics that are new to this broker."""
        new = dict.fromkeys(topic for topic in topics if topic not in self._known)
        if not new:
            return
        with_configs: Iterable[str] = new
        if len(new) > _FEW_TOPICS:  # as at the start: most topics have no configs
            with_configs = new.keys() & set(await self._configs.names(znodes.TOPIC_CONFIGS))
        read = await read_many(with_configs, lambda topic: self._configs.get(ConfigEntity.topic(topic)))
        self._known.update(new)
        for topic, config in read.items():
            self._listener(ConfigEntity.topic(topic), config)


class ConfigWatcher:
    """Calls a listener after every config change. Start it before you read the configs, so that no change is missed."""

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
        """Reads the notifications and sets the watch again. Call it after the session with the store was lost."""
        self._changed.set()

    def _on_change(self, _: WatchEvent) -> None:
        self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._log_errors(self._process)

    async def _log_errors(self, function: Callable[[], Awaitable[None]]) -> None:
        try:
            await function()
        except Exception as error:
            # Continue: later changes must still be processed.
            _logger.error(
                "Config change not applied; this broker keeps the old configs until their next change or a restart: %s",
                error,
                exc_info=not isinstance(error, HeadraceError),
            )

    async def _process(self) -> None:
        names = await self._store.children(znodes.CONFIG_CHANGES, self._on_change)
        for name in names:
            if name > self._last_seen:
                self._last_seen = name
                await self._log_errors(partial(self._notify_listener, f"{znodes.CONFIG_CHANGES}/{name}"))
        # Purge last, because a new topic may be waiting for its configs.
        await self._purge([f"{znodes.CONFIG_CHANGES}/{name}" for name in names])

    async def _notify_listener(self, path: str) -> None:
        try:
            data, _ = await self._store.get(path)
        except NoNode:
            return
        entity = ConfigEntity(*znodes.decode_config_change(path, data))
        self._listener(entity, await self._configs.get(entity))

    async def _purge(self, paths: Sequence[str]) -> None:
        """Deletes expired notifications. Another broker may delete them at the same time."""
        expired: list[str] = []
        for path in paths:
            stat = await self._store.exists(path)
            if stat is None:
                continue
            if stat.ctime_ms + NOTIFICATION_RETENTION_MS > self._clock.time_ms():
                break  # names are sorted by creation time: all later notifications are younger
            expired.append(path)
        while expired:
            try:
                await self._store.multi([Delete(path) for path in expired])
                return
            except NoNode as error:
                del expired[error.index]  # another broker was faster
            except StoreError as error:
                _logger.debug("Failed to delete expired config notifications, will retry: %s", error)
                return
