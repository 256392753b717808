"""The embedded cluster: start, failures, partitions, topics."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.net.wire_calls import batch, end_offset, produce
from tests.support.net.wire_client import WireClient

from headrace.cluster.topics import TopicSpec
from headrace.common.errors import HeadraceError, InvalidTopicError, TopicAlreadyExistsError
from headrace.protocol import ApiKey
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.testing import EmbeddedCluster


@pytest.fixture(scope="module")
def one() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, topics={"t": 2}) as cluster:
        yield cluster


def test_cluster_of_one(one: EmbeddedCluster) -> None:
    assert (one.controller(), one.leader("t", 1), one.in_sync_replicas("t")) == (1, 1, {1})
    assert one.bootstrap_servers == one.brokers[1].bootstrap_servers
    with WireClient(one.brokers[1].address) as client:
        assert produce(client, batch(b"1"), acks=-1).error_code == 0
        end = end_offset(client)
    one.restart(1, clean=False)
    with WireClient(one.brokers[1].address) as client:
        assert end_offset(client) == end


def test_errors(one: EmbeddedCluster) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        one.create_topic("t")
    with pytest.raises(InvalidTopicError):
        one.create_topic("no topic")
    with pytest.raises(ValueError, match=r"There is no broker 7: expected an id from 1 to 1"):
        one.kill(7)
    with pytest.raises(HeadraceError, match="two different nodes"):
        one.partition(1, 1)
    with pytest.raises(HeadraceError, match="already running"):
        one.start()
    with pytest.raises(TimeoutError, match="topic missing does not exist"):
        one.wait_until_in_sync("missing", timeout_ms=10)
    with pytest.raises(ValueError, match="expected at least 1"):
        EmbeddedCluster(0)
    with pytest.raises(ValueError, match=r"broker_properties has the ids \[4\]"):
        EmbeddedCluster(3, broker_properties={4: {}})
    with pytest.raises(HeadraceError, match="has not been started"):
        _ = EmbeddedCluster().bootstrap_servers


def test_partition_from_the_store_ends_the_session(one: EmbeddedCluster) -> None:
    epoch = one.brokers[1].call(lambda broker: broker.store.session_id)
    one.partition(1, "store")
    with pytest.raises(HeadraceError, match="stopped, paused or partitioned"):
        one.create_topic("x")
    one.wait_until(lambda: one.store.run(one.store.tree.exists("/brokers/ids/1")) is None)
    one.heal()
    one.brokers[1].wait_until(lambda broker: broker.store.session_id != epoch)


def test_data_dir_is_kept(tmp_path: Path) -> None:
    for _ in range(2):
        with (
            EmbeddedCluster(1, topics={"t": 2}, data_dir=tmp_path) as cluster,
            WireClient(cluster.brokers[1].address) as client,
        ):
            produce(client, batch(b"1"), acks=-1)
            end = end_offset(client)
    assert end == 2


def test_async_with_block() -> None:
    async def use() -> None:
        async with EmbeddedCluster(1, {"num.partitions": 7}) as cluster:
            assert cluster.brokers[1].call(lambda broker: broker.config.num_partitions) == 7
        assert not cluster.brokers[1].is_running

    asyncio.run(use())


# ---- three brokers


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, replication_factor=1, broker_properties={2: {"broker.rack": "b"}}) as cluster:
        yield cluster


@pytest.fixture
def three(running: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    yield running
    running.restore()


def test_each_broker_knows_all_brokers(three: EmbeddedCluster) -> None:
    three.create_topic("known", assignment={0: [3], 1: [1]})
    assert [three.leader("known", partition) for partition in (0, 1)] == [3, 1]
    for broker in three.brokers.values():
        with WireClient(broker.address) as client:
            response = client.call(MetadataRequest(topics=None), 8)
        assert sorted((node.node_id, node.port, node.rack) for node in response.brokers) == [
            (number, each.port, "b" if number == 2 else None) for number, each in three.brokers.items()
        ]
        leaders = {part.partition_index: part.leader_id for topic in response.topics for part in topic.partitions}
        assert leaders == {0: 3, 1: 1}
    three.delete_topic("known")


def test_faults_of_one_broker(three: EmbeddedCluster) -> None:
    fault = three.brokers[2].faults.error(ApiKey.API_VERSIONS, 7)
    codes = []
    for broker in three.brokers.values():
        with WireClient(broker.address) as client:
            codes.append(client.call(ApiVersionsRequest(), 0).error_code)
    assert (codes, fault.hits) == ([0, 7, 0], 1)


def test_another_controller_is_elected(three: EmbeddedCluster) -> None:
    controller = three.controller()
    three.kill(controller)
    assert not three.brokers[controller].is_running
    other = three.controller()
    assert other != controller
    leader = next(number for number in three.brokers if number not in (controller, other))
    three.create_topic("elected", assignment={0: [leader]})
    three.restart(controller)
    three.wait_until_in_sync()
    assert three.leader("elected") == leader


def test_partitioned_broker_gets_no_commands(three: EmbeddedCluster) -> None:
    controller = three.controller()
    lonely, other = (number for number in three.brokers if number != controller)
    three.partition(controller, lonely)
    assert three.store.links.blocked == {(controller, lonely), (lonely, controller)}
    admin = three.brokers[other]
    admin.run(lambda broker: broker.topic_admin.create_topic(TopicSpec("cut-off", assignment={0: [lonely]})))
    admin.wait_until(lambda broker: broker.image.has_topic("cut-off"))
    assert not three.brokers[lonely].call(lambda broker: broker.image.has_topic("cut-off"))
    three.heal()
    three.brokers[lonely].wait_until(lambda broker: broker.image.has_topic("cut-off"))


def test_paused_controller_is_replaced(three: EmbeddedCluster) -> None:
    controller = three.controller()
    three.pause(controller)
    assert three.controller(other_than=controller) != controller
    three.resume(controller)
    three.wait_until_in_sync()
    three.brokers[controller].wait_until(lambda broker: not broker.controller.is_active)


def test_stop_and_rolling_restart(three: EmbeddedCluster) -> None:
    three.create_topic("kept", 3)
    three.stop(2)
    assert not three.brokers[2].is_running
    three.restart(2)
    three.rolling_restart()
    assert sorted(three.leader("kept", partition) for partition in range(3)) == [1, 2, 3]
