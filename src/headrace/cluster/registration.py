"""How a broker joins the cluster: it makes the nodes that every cluster has, and an ephemeral one of its own.

The zxid that made the broker's node is the broker's epoch: it tells one life of a broker from the next.
"""

import asyncio
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
    """Makes what is not there yet of the nodes that every cluster has, in one step. Returns the cluster's id."""
    while True:
        try:
            data, _ = await store.get(znodes.CLUSTER_ID)
            return znodes.decode_cluster_id(data)
        except NoNode:
            pass
        missing: list[Operation] = [
            Create(path) for path in znodes.PERSISTENT_PATHS if await store.exists(path) is None
        ]
        if await store.exists(znodes.CONTROLLER_EPOCH) is None:
            epoch = znodes.encode_controller_epoch(znodes.INITIAL_CONTROLLER_EPOCH)
            missing.append(Create(znodes.CONTROLLER_EPOCH, epoch))
        if await store.exists(znodes.FEATURE) is None:
            missing.append(Create(znodes.FEATURE, znodes.encode_feature()))
        # The id last: who finds it finds everything.
        cluster_id = str(random_uuid(random))
        try:
            await store.multi([*missing, Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))])
        except NodeExists:
            continue
        return cluster_id


async def register_broker(
    store: CoordinationStore, broker: BrokerInfo, clock: Clock, *, wait_seconds: float = 0.0
) -> BrokerInfo:
    """Registers a live broker; returns it with its epoch.

    The id may still be taken by this broker's last life, if that ended without a word; the store lets go of it when the
    old session runs out. So wait that long before concluding that another broker has the id.
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
                    if not wait_seconds:
                        raise
                    _logger.info("broker id %d is still registered; waiting for it to end", broker.id)
                    await _wait_until_gone(store, path)
    except (NodeExists, TimeoutError):
        raise DuplicateBrokerRegistrationError(
            f"broker id {broker.id} is in use by another broker{await _whereabouts(store, broker.id)}"
        ) from None
    stat = await store.exists(path)
    if stat is None:
        raise NoNode(f"the registration {path} was lost at once", path)
    registered = replace(broker, epoch=stat.czxid)
    _logger.info("registered broker %d with epoch %d", broker.id, registered.epoch)
    return registered


async def _wait_until_gone(store: CoordinationStore, path: str) -> None:
    changed = asyncio.Event()

    def on_change(_: WatchEvent) -> None:
        changed.set()

    if await store.exists(path, on_change) is not None:
        await changed.wait()


async def _whereabouts(store: CoordinationStore, broker_id: int) -> str:
    other = await read_broker(store, broker_id)
    if other is None or not other.endpoints:
        return ""
    return f" at {other.endpoints[0].host}:{other.endpoints[0].port}"


async def read_broker(store: CoordinationStore, broker_id: int) -> BrokerInfo | None:
    try:
        data, stat = await store.get(znodes.broker_path(broker_id))
    except NoNode:
        return None
    return znodes.decode_broker(broker_id, data, stat.czxid)


async def read_brokers(store: CoordinationStore) -> dict[int, BrokerInfo]:
    """The live brokers, by id and in its order."""
    found: dict[int, BrokerInfo] = {}
    for broker_id in sorted(int(name) for name in await store.children(znodes.BROKER_IDS) if name.isdecimal()):
        broker = await read_broker(store, broker_id)
        if broker is not None:
            found[broker_id] = broker
    return found
