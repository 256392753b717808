"""Broker registration: creates the nodes that every cluster has, and the broker's ephemeral node.

The zxid of the broker's node is the broker epoch: it changes with every restart of the broker.
"""

import asyncio
import contextlib
import logging
from dataclasses import replace

from headrace.cluster import znodes
from headrace.cluster.commands import BrokerInfo
from headrace.cluster.store import CoordinationStore, Create, NodeExists, NoNode, Operation, WatchEvent
from headrace.common.clock import Clock
from headrace.common.errors import DuplicateBrokerRegistrationError
from headrace.common.ids import Random, random_uuid

_logger = logging.getLogger(__name__)


async def prepare_cluster(store: CoordinationStore, random: Random) -> str:
    """Creates the missing nodes of a cluster in one step. Returns the cluster id."""
    while True:
        existing = await read_cluster_id(store)
        if existing is not None:
            await _create_missing_paths(store)
            return existing
        missing: list[Operation] = [
            Create(path) for path in znodes.PERSISTENT_PATHS if await store.exists(path) is None
        ]
        if await store.exists(znodes.CONTROLLER_EPOCH) is None:
            epoch = znodes.encode_controller_epoch(znodes.INITIAL_CONTROLLER_EPOCH)
            missing.append(Create(znodes.CONTROLLER_EPOCH, epoch))
        if await store.exists(znodes.FEATURE) is None:
            missing.append(Create(znodes.FEATURE, znodes.encode_feature()))
        # The cluster id is last: if it exists, all nodes exist.
        cluster_id = str(random_uuid(random))
        try:
            await store.multi([*missing, Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))])
        except NodeExists:
            continue
        return cluster_id


async def read_cluster_id(store: CoordinationStore) -> str | None:
    try:
        data, _ = await store.get(znodes.CLUSTER_ID)
    except NoNode:
        return None
    return znodes.decode_cluster_id(data)


async def _create_missing_paths(store: CoordinationStore) -> None:
    """Creates nodes that a cluster of an older version does not have."""
    stats = await asyncio.gather(*(store.exists(path) for path in znodes.PERSISTENT_PATHS))
    for path, stat in zip(znodes.PERSISTENT_PATHS, stats, strict=True):
        if stat is None:
            with contextlib.suppress(NodeExists):
                await store.create(path)


async def generate_broker_id(store: CoordinationStore, reserved_max_id: int) -> int:
    """Returns a new broker id, greater than `reserved_max_id`: each version of /brokers/seqid is used once."""
    # Kafka writes and reads no data. With the session id, the store recognizes its own write after a lost connection.
    marker = b"%d" % store.session_id
    while True:
        try:
            stat = await store.set(znodes.BROKER_SEQUENCE, marker)
        except NoNode:
            with contextlib.suppress(NodeExists):
                await store.create(znodes.BROKER_SEQUENCE)
            continue
        broker_id = reserved_max_id + stat.version
        _logger.info("Generated broker id %d", broker_id)
        return broker_id


async def register_broker(
    store: CoordinationStore, broker: BrokerInfo, clock: Clock, *, wait_seconds: float = 0.0
) -> BrokerInfo:
    """Registers a live broker. Returns it with its epoch.

    After a crash the broker's previous registration exists until its session expires. Therefore waits `wait_seconds`
    before it concludes that another broker has the id and raises DuplicateBrokerRegistrationError. A registration of
    the same session is the broker's own, and is updated.
    """
    path = znodes.broker_path(broker.id)
    data = znodes.encode_broker(broker, clock.time_ms())
    try:
        async with asyncio.timeout(wait_seconds or None):
            while True:
                try:
                    await store.create(path, data, ephemeral=True)
                    break
                except NodeExists:
                    if await _is_own(store, path):
                        await store.set(path, data)
                        break
                    if not wait_seconds:
                        raise
                    _logger.info("Broker id %d is still registered; waiting for the old session to expire", broker.id)
                    await _wait_for_deletion(store, path)
    except (NodeExists, TimeoutError):
        raise DuplicateBrokerRegistrationError(
            f"Broker id {broker.id} is already registered by another broker{await _address_suffix(store, broker.id)}."
        ) from None
    stat = await store.exists(path)
    if stat is None:
        raise NoNode(f"The registration {path} was deleted right after its creation", path)
    registered = replace(broker, epoch=stat.czxid)
    _logger.info("Registered broker %d with epoch %d", broker.id, registered.epoch)
    return registered


async def _is_own(store: CoordinationStore, path: str) -> bool:
    stat = await store.exists(path)
    return stat is not None and stat.ephemeral_owner == store.session_id


async def _wait_for_deletion(store: CoordinationStore, path: str) -> None:
    changed = asyncio.Event()

    def on_change(_: WatchEvent) -> None:
        changed.set()

    if await store.exists(path, on_change) is not None:
        await changed.wait()


async def _address_suffix(store: CoordinationStore, broker_id: int) -> str:
    registered = await read_broker(store, broker_id)
    if registered is None or not registered.endpoints:
        return ""
    return f" at {registered.endpoints[0].host}:{registered.endpoints[0].port}"


async def read_broker(store: CoordinationStore, broker_id: int) -> BrokerInfo | None:
    try:
        data, stat = await store.get(znodes.broker_path(broker_id))
    except NoNode:
        return None
    return znodes.decode_broker(broker_id, data, stat.czxid)


async def read_brokers(store: CoordinationStore) -> dict[int, BrokerInfo]:
    """Returns the live brokers, sorted by id."""
    brokers: dict[int, BrokerInfo] = {}
    for broker_id in sorted(int(name) for name in await store.children(znodes.BROKER_IDS) if name.isdecimal()):
        broker = await read_broker(store, broker_id)
        if broker is not None:
            brokers[broker_id] = broker
    return brokers
