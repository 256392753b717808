"""The replica manager, connected with the controller, the store and other brokers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.replicas import FOLLOWER, NODE, SLOW_FOLLOWER, TP, TP_1, Replicas
from tests.support.net.virtual_loop import run
from tests.support.storage.logs import make_batch

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.dynamic import DynamicConfig
from headrace.broker.config.replication import RACK_AWARE_SELECTOR
from headrace.broker.replication.isr import AlterPartitionManager, StoreIsrManager
from headrace.broker.replication.replication import Replication
from headrace.cluster.commands import BrokerInfo, UpdateMetadata
from headrace.cluster.controller_requests import IsrChange
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.znodes import DEFAULT_ENTITY, Leadership
from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition
from headrace.net.errors import KafkaConnectionError

ISR, ALL = (NODE, FOLLOWER), (NODE, FOLLOWER, SLOW_FOLLOWER)


class World:
    """A broker's replication, with other brokers that cannot be reached and a controller that accepts everything."""

    def __init__(self, directory: Path, store: EmbeddedStore, properties: dict[str, object]):
        self.replicas = Replicas(directory)
        self.image = MetadataImage()
        self.replicas.context.is_alive = self.image.is_alive
        self.dynamic_config = DynamicConfig(properties, NODE)
        self.requested = 0
        self.changes: list[IsrChange] = []
        self.replication = Replication(
            BrokerConfig.from_properties(properties),
            self.dynamic_config,
            self.replicas,
            image=self.image,
            store=store,
            client=self,
            controller=self,
            timer=self.replicas.timer,
            broker_epoch=lambda: 70,
        )
        self.set_brokers(*ALL)

    def set_brokers(self, *ids: int) -> None:
        brokers = [BrokerInfo(broker_id, (), f"rack-{broker_id}") for broker_id in ids]
        self.image.apply(UpdateMetadata(NODE, 1, 1, brokers, []))

    async def send(self, *_: Any, **__: Any) -> Any:
        self.requested += 1
        raise KafkaConnectionError("unreachable")

    async def alter_partition(
        self, changes: Mapping[TopicPartition, IsrChange]
    ) -> dict[TopicPartition, Leadership | KafkaError]:
        self.changes += changes.values()
        return {tp: Leadership(NODE, 0, change.isr, 1, change.partition_epoch + 1) for tp, change in changes.items()}


@asynccontextmanager
async def world(directory: Path, **properties: object) -> AsyncIterator[World]:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    store = EmbeddedStore(None, Replicas(directory / "clock").clock)
    world = World(directory / "data", store, given)
    try:
        yield world
    finally:
        await world.replication.close()
        world.replicas.manager.close()
        await store.close()


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def call(*arguments: Any, **fixtures: Any) -> None:
        run(test(*arguments, **fixtures))

    return call


@in_virtual_time
async def test_followers_fetch(tmp_path: Path) -> None:
    async with world(tmp_path) as broker:
        broker.replicas.lead(isr=ISR, leader=FOLLOWER)
        await asyncio.sleep(0.5)
        assert broker.requested == 1
        broker.set_brokers(NODE, FOLLOWER)
        await asyncio.sleep(0.1)
        assert broker.requested == 2, "at once, because a broker has come or gone"
        await broker.replication.close()
        await asyncio.sleep(10)
        assert broker.requested == 2


@pytest.mark.parametrize("entity", [DEFAULT_ENTITY, str(NODE)])
def test_dynamic_number_of_fetchers(tmp_path: Path, entity: str) -> None:
    async def check() -> None:
        async with world(tmp_path, num_replica_fetchers=1) as broker:
            for tp in (TP, TP_1):
                broker.replicas.lead(tp, isr=ISR, leader=FOLLOWER)
            assert len(broker.replication.fetchers) == 1
            broker.dynamic_config.set_broker_overrides(entity, {"num.replica.fetchers": "2"})
            assert len(broker.replication.fetchers) == 2
            broker.dynamic_config.set_broker_overrides(entity, {})
            assert len(broker.replication.fetchers) == 1

    run(check())


@in_virtual_time
async def test_leaders_change_the_isr(tmp_path: Path) -> None:
    async with world(tmp_path) as broker:
        partition = broker.replicas.lead(isr=ISR, replicas=ALL)
        partition.follower_fetched(SLOW_FOLLOWER, 0, broker_epoch=90)
        await asyncio.sleep(1)
        assert partition.isr == [*ALL]
        assert broker.changes[0].broker_epochs == (70, -1, 90)


@pytest.mark.parametrize(("version", "manager"), [("3.9", AlterPartitionManager), ("2.6", StoreIsrManager)])
def test_way_of_isr_changes(tmp_path: Path, version: str, manager: type) -> None:
    async def check() -> None:
        async with world(tmp_path, inter_broker_protocol_version=version) as broker:
            assert type(broker.replication.isr_manager) is manager

    asyncio.run(check())


@in_virtual_time
async def test_dead_brokers_do_not_hold_the_high_watermark_back(tmp_path: Path) -> None:
    async with world(tmp_path) as broker:
        partition = broker.replicas.lead(isr=ISR)
        partition.append(make_batch(2), 1)
        log = partition.check_leader()
        broker.replicas.lead(isr=(NODE,), replicas=ISR, partition_epoch=1)
        assert log.high_watermark == 0, "the follower has left the ISR, but may join again"
        broker.set_brokers(NODE)
        assert log.high_watermark == 2


@in_virtual_time
async def test_throttles(tmp_path: Path) -> None:
    async with world(tmp_path) as broker:
        quota = broker.replicas.leader_quota
        assert quota is not None
        assert not quota.is_throttled(TP)
        broker.dynamic_config.set_topic_overrides(TP.topic, {"leader.replication.throttled.replicas": f"0:{NODE}"})
        assert quota.is_throttled(TP)
        broker.dynamic_config.set_broker_overrides(str(NODE), {"leader.replication.throttled.rate": "10"})
        quota.record(1000)
        assert quota.is_exceeded


@in_virtual_time
async def test_selector(tmp_path: Path) -> None:
    async with world(tmp_path, replica_selector_class=RACK_AWARE_SELECTOR) as broker:
        partition = broker.replicas.lead(isr=ISR)
        partition.follower_fetched(FOLLOWER, 0, log_start_offset=0)
        assert broker.replicas.select_replica is not None
        assert broker.replicas.select_replica(partition, 0, f"rack-{FOLLOWER}") == FOLLOWER
