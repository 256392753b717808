import asyncio

import pytest
from tests.support.cluster.fake_cluster import async_test

from headrace.cluster.commands import (
    LEADER_DURING_DELETE,
    NO_LEADER,
    BrokerEndpoint,
    BrokerInfo,
    PartitionState,
    UpdateMetadata,
)
from headrace.cluster.metadata_image import NO_CONTROLLER, ImageChange, MetadataImage
from headrace.common.errors import StaleControllerEpochError
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition

ID = Uuid.parse("L4tkSDvtSWyV2FJpQYyZlA")
OTHER_ID = Uuid.parse("AAAAAAAAAAAAAAAAAAAAAQ")


def state(
    topic: str = "orders", index: int = 0, leader: int = 1, topic_id: Uuid = ID, epoch: int = 0
) -> PartitionState:
    return PartitionState(TopicPartition(topic, index), topic_id, leader, epoch, (1,), 0, (1,))


def update(
    *states: PartitionState, epoch: int = 1, full: bool = False, brokers: tuple[int, ...] = (1,)
) -> UpdateMetadata:
    infos = [
        BrokerInfo(one, (BrokerEndpoint("PLAINTEXT", "h", one), BrokerEndpoint("INTERNAL", "i", one)))
        for one in brokers
    ]
    return UpdateMetadata(1, epoch, 0, infos, states, full)


def test_new_image_is_empty() -> None:
    image = MetadataImage()
    assert image.controller_id == NO_CONTROLLER
    assert image.partition("orders", 0) is None
    assert image.topic("orders") is image.topic_id("orders") is image.topic_name(ID) is image.topic_by_id(ID) is None
    assert not image.is_alive(1)
    assert not image.has_topic("orders")
    assert image.partition_count == 0


def test_lookups() -> None:
    image = MetadataImage()
    image.apply(update(state(), state(index=1), brokers=(1, 2)))
    assert image.partition("orders", 1) == state(index=1)
    assert image.partition("orders", 2) is None
    assert image.topic_id("orders") == ID
    assert image.topic_name(ID) == "orders"
    assert image.topic_by_id(ID) is image.topic("orders")
    assert "orders" in repr(image.topic("orders"))
    assert image.controller_id == 1
    assert list(image.brokers) == [1, 2]
    broker = image.broker(2)
    assert broker is not None
    assert broker.endpoint("INTERNAL") == BrokerEndpoint("INTERNAL", "i", 2)
    assert broker.endpoint("NONE") is None
    assert image.endpoints("INTERNAL") == {1: BrokerEndpoint("INTERNAL", "i", 1), 2: BrokerEndpoint("INTERNAL", "i", 2)}
    assert image.endpoints("NONE") == {}
    assert [one.tp.partition for one in image.partitions()] == [0, 1]
    assert image.partition_count == 2


def test_update_replaces_brokers_and_adds_partitions() -> None:
    image = MetadataImage()
    image.apply(update(state(), brokers=(1, 2)))
    change = image.apply(update(state("clicks", topic_id=OTHER_ID), brokers=(1,)))
    assert list(image.brokers) == [1]
    assert sorted(image.topics) == ["clicks", "orders"]
    assert change == ImageChange((state("clicks", topic_id=OTHER_ID),), (), ("clicks",), (), True)
    assert image.apply(update(state())) == ImageChange((), (), (), (), False)


def test_removes_deleted_partitions() -> None:
    image = MetadataImage()
    image.apply(update(state(), state(index=1)))
    change = image.apply(update(state(leader=LEADER_DURING_DELETE)))
    assert change.deleted_partitions == (TopicPartition("orders", 0),)
    assert change.deleted_topics == ()
    change = image.apply(update(state(index=1, leader=LEADER_DURING_DELETE), state(leader=LEADER_DURING_DELETE)))
    assert change.deleted_topics == ("orders",)
    assert image.topic_name(ID) is None
    assert not image.has_topic("orders")


def test_recreated_topic_replaces_old_one() -> None:
    image = MetadataImage()
    image.apply(update(state(), state(index=1)))
    change = image.apply(update(state(topic_id=OTHER_ID)))
    assert set(change.deleted_partitions) == {TopicPartition("orders", 0), TopicPartition("orders", 1)}
    assert change.new_topics == change.deleted_topics == ("orders",)
    assert image.topic_name(ID) is None
    assert image.topic_name(OTHER_ID) == "orders"
    assert image.partition_count == 1


def test_full_update_removes_missing_partitions() -> None:
    image = MetadataImage()
    image.apply(update(state(), state(index=1), state("clicks", topic_id=OTHER_ID)))
    change = image.apply(update(state(), full=True))
    assert change.deleted_topics == ("clicks",)
    assert change.deleted_partitions == (TopicPartition("orders", 1), TopicPartition("clicks", 0))
    assert [one.tp for one in image.partitions()] == [TopicPartition("orders", 0)]


def test_rejects_old_controller_epoch() -> None:
    image = MetadataImage()
    image.apply(update(state(), epoch=5))
    with pytest.raises(StaleControllerEpochError, match="epoch 4, but controller 1 has the newer epoch 5"):
        image.apply(update(state(leader=2), epoch=4))
    found = image.partition("orders", 0)
    assert found is not None
    assert found.leader == 1
    image.check_controller_epoch(2, 6)
    assert (image.controller_id, image.controller_epoch) == (2, 6)
    with pytest.raises(StaleControllerEpochError):
        image.check_controller_epoch(1, 5)


@async_test
async def test_wait_for() -> None:
    image = MetadataImage()
    waiting = asyncio.create_task(image.wait_for(lambda image: image.topic_is_ready("orders", 2), 10))
    await asyncio.sleep(0)
    image.apply(update(state()))
    image.apply(update(state(index=1, leader=NO_LEADER)))
    await asyncio.sleep(0)
    assert not waiting.done()
    image.apply(update(state(index=1)))
    assert await waiting
    assert await image.wait_for(lambda image: image.has_topic("orders"), 10)
    assert not await image.wait_for(lambda image: image.has_topic("clicks"), 0.001)
    assert image._listeners == []


def test_listeners_see_complete_change() -> None:
    image = MetadataImage()
    seen: list[tuple[int, int]] = []

    def listener(change: ImageChange) -> None:
        seen.append((len(change.changed_partitions), image.partition_count))

    image.add_listener(listener)
    image.apply(update(state(), state(index=1)))
    image.remove_listener(listener)
    image.apply(update(state(index=2)))
    assert seen == [(2, 2)]
