"""Several brokers on one loop, with real sockets and a shared store: the controller's commands go over the network."""

import asyncio
from pathlib import Path

import pytest
from tests.support.cluster.brokers import ClusterOfBrokers
from tests.support.cluster.waiting import cluster_test, until

from headrace import aio
from headrace.broker.broker_state import BrokerState
from headrace.broker.inter_broker_client import InterBrokerClient
from headrace.broker.server import Broker
from headrace.cluster import znodes
from headrace.cluster.commands import NO_LEADER, BrokerEndpoint, BrokerInfo
from headrace.cluster.controller_requests import IsrChange
from headrace.cluster.topics import TopicSpec
from headrace.cluster.znodes import Leadership
from headrace.common.errors import (
    NotControllerError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
)
from headrace.common.types import TopicPartition
from headrace.protocol.messages.alter_partition import AlterPartitionRequest
from headrace.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from headrace.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from headrace.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)

FULL = 2


async def create(broker: Broker, name: str, assignment: dict[int, list[int]]) -> None:
    (made,) = await broker.topic_admin.create_topics([TopicSpec(name, assignment=assignment)])
    if isinstance(made, Exception):
        raise made


async def until_known(cluster: ClusterOfBrokers, name: str, partitions: int) -> None:
    await until(lambda: all(broker.image.topic_is_ready(name, partitions) for broker in cluster.brokers.values()))


async def until_all_know_each_other(cluster: ClusterOfBrokers) -> None:
    await until(
        lambda: all(broker.image.brokers.keys() == cluster.brokers.keys() for broker in cluster.brokers.values())
    )


def controller_of(cluster: ClusterOfBrokers) -> Broker:
    (active,) = [broker for broker in cluster.brokers.values() if broker.controller.is_active]
    return active


def led_by(broker: Broker, topic: str) -> set[int]:
    return {
        partition.tp.partition for partition in broker.replicas if partition.is_leader and partition.tp.topic == topic
    }


async def produce_and_consume(cluster: ClusterOfBrokers, topic: str, partitions: int, text: str) -> None:
    """Writes a record to each partition and reads it."""
    async with aio.Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
        for index in range(partitions):
            await producer.send_and_wait(topic, f"{text}-{index}".encode(), partition=index)
    async with aio.Consumer(
        topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", group_id=None
    ) as consumer:
        expected = {f"{text}-{index}".encode() for index in range(partitions)}
        async for record in consumer:
            expected.discard(record.value)
            if not expected:
                break


@cluster_test
async def test_one_controller_leads_three_brokers(tmp_path: Path) -> None:
    async with ClusterOfBrokers(tmp_path, 3) as cluster:
        await until_all_know_each_other(cluster)
        brokers = list(cluster.brokers.values())
        assert {broker.image.controller_id for broker in brokers} == {controller_of(cluster).node_id}
        assert all(broker.state is BrokerState.RUNNING for broker in brokers)
        await create(brokers[0], "spread", {index: [index % 3] for index in range(6)})
        await until_known(cluster, "spread", 6)
        for broker in brokers:
            assert led_by(broker, "spread") == {broker.node_id, broker.node_id + 3}
        await produce_and_consume(cluster, "spread", 6, "first")


@cluster_test
async def test_another_broker_takes_over_when_the_controller_is_killed(tmp_path: Path) -> None:
    async with ClusterOfBrokers(tmp_path, 3) as cluster:
        await until_all_know_each_other(cluster)
        old = controller_of(cluster)
        epoch = old.controller.epoch
        await create(old, "before", {index: [index] for index in range(3)})
        await until_known(cluster, "before", 3)
        await cluster.kill(old.node_id)
        await until_all_know_each_other(cluster)
        new = controller_of(cluster)
        assert new.controller.epoch > epoch
        for broker in cluster.brokers.values():
            assert broker.image.controller_id == new.node_id
        await until(lambda: new.image.partition("before", old.node_id).leader == NO_LEADER)  # type: ignore[union-attr]
        survivors = list(cluster.brokers)
        await create(new, "after", {0: [survivors[0]], 1: [survivors[1]]})
        await until_known(cluster, "after", 2)
        await produce_and_consume(cluster, "after", 2, "second")
        # The killed broker comes back and gets its partition from the new controller.
        await cluster.start(old.node_id)
        await until_known(cluster, "before", 3)
        await until_all_know_each_other(cluster)
        assert led_by(cluster.brokers[old.node_id], "before") == {old.node_id}
        await produce_and_consume(cluster, "before", 3, "third")


@pytest.mark.parametrize("stops_controller", [False, True])
@cluster_test
async def test_a_clean_stop_moves_leaderships_first(tmp_path: Path, stops_controller: bool) -> None:
    async with ClusterOfBrokers(tmp_path, 3) as cluster:
        await until_all_know_each_other(cluster)
        controller = controller_of(cluster)
        ids = sorted(cluster.brokers)
        stopped_id = next(found for found in ids if (found == controller.node_id) == stops_controller)
        others = [found for found in ids if found != stopped_id]
        await create(controller, "moves", {0: [stopped_id, *others], 1: [stopped_id, *others]})
        await until_known(cluster, "moves", 2)
        stopping = cluster.brokers[stopped_id]
        states: list[BrokerState] = []
        enter = stopping.lifecycle.enter

        def note(state: BrokerState) -> None:
            if state is BrokerState.SHUTTING_DOWN:
                # The broker still serves clients and is registered, and the others already lead.
                assert stopping.replicas.get("moves", 0) is None or not led_by(stopping, "moves")
                for other in others:
                    assert led_by(cluster.brokers[other], "moves") in (set(), {0, 1})
                assert sum(len(led_by(cluster.brokers[other], "moves")) for other in others) == 2
            states.append(state)
            enter(state)

        stopping.lifecycle.enter = note  # type: ignore[method-assign]
        await cluster.stop(stopped_id)
        assert states == [
            BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            BrokerState.SHUTTING_DOWN,
            BrokerState.NOT_RUNNING,
        ]
        await until_all_know_each_other(cluster)
        state = cluster.brokers[others[0]].image.partition("moves", 0)
        assert state is not None
        assert state.leader in others
        assert stopped_id not in state.isr


@cluster_test
async def test_commands_of_a_zombie_controller_are_rejected(tmp_path: Path) -> None:
    async with ClusterOfBrokers(tmp_path, 2) as cluster:
        await until_all_know_each_other(cluster)
        broker = cluster.brokers[0]
        client = InterBrokerClient(9, "PLAINTEXT")
        client.set_brokers(broker.image.brokers.values())
        old_controller = LeaderAndIsrRequest(controller_id=9, controller_epoch=0, broker_epoch=broker.epoch)
        response = await client.send(0, old_controller)
        assert response.error_code == StaleControllerEpochError.code
        epoch = broker.image.controller_epoch
        old_broker = UpdateMetadataRequest(controller_id=9, controller_epoch=epoch + 9, broker_epoch=broker.epoch - 1)
        response = await client.send(0, old_broker)
        assert response.error_code == StaleBrokerEpochError.code
        assert broker.image.controller_epoch == epoch
        await client.close()


@cluster_test
async def test_brokers_send_requests_to_the_controller(tmp_path: Path) -> None:
    async with ClusterOfBrokers(tmp_path, 3) as cluster:
        await until_all_know_each_other(cluster)
        controller = controller_of(cluster)
        leader = next(broker for broker in cluster.brokers.values() if broker is not controller)
        third = next(broker for broker in cluster.brokers.values() if broker not in (controller, leader))
        tp = TopicPartition("t", 0)
        await create(leader, "t", {0: [leader.node_id, third.node_id]})
        await until_known(cluster, "t", 1)
        state = leader.image.partition("t", 0)
        assert state is not None
        change = IsrChange(state.leader_epoch, state.partition_epoch, (leader.node_id,))
        results = await leader.controller_client.alter_partition({tp: change})
        result = results[tp]
        assert isinstance(result, Leadership)
        assert (result.isr, result.partition_epoch) == ((leader.node_id,), state.partition_epoch + 1)
        await until(lambda: third.image.partition("t", 0).isr == (leader.node_id,))  # type: ignore[union-attr]
        stale = await leader.controller_client.alter_partition({tp: IsrChange(state.leader_epoch, 0, (third.node_id,))})
        assert isinstance(stale[tp], Exception)
        # Only the active controller answers.
        for request in (
            AlterPartitionRequest(broker_id=leader.node_id, broker_epoch=leader.epoch),
            ControlledShutdownRequest(broker_id=leader.node_id, broker_epoch=leader.epoch),
        ):
            response = await leader.inter_broker_client.send(third.node_id, request)
            assert response.error_code == NotControllerError.code


@cluster_test
async def test_a_controller_reaches_a_broker_that_has_no_metadata_while_clients_wait(tmp_path: Path) -> None:
    cluster = ClusterOfBrokers(tmp_path, 0)
    async with cluster:
        # The controller is a program elsewhere, which has not noticed the new broker yet.
        await cluster.store.create("/controller", znodes.encode_controller(7, 0), ephemeral=True)
        broker = cluster.make(1)
        starting = asyncio.create_task(broker.start())
        try:
            await until(lambda: broker.epoch >= 0)
            (endpoint,) = broker.endpoints
            bootstrap = f"{endpoint.host}:{endpoint.port}"
            async with aio.Admin(bootstrap_servers=bootstrap) as admin:
                asked = asyncio.create_task(admin.describe_cluster())
                await until(lambda: broker.server.connections_open)
                assert broker.state is BrokerState.RECOVERY
                client = InterBrokerClient(7, "PLAINTEXT")
                client.set_brokers([BrokerInfo(1, (BrokerEndpoint("PLAINTEXT", endpoint.host, endpoint.port),))])
                update = UpdateMetadataRequest(
                    controller_id=7,
                    controller_epoch=3,
                    broker_epoch=broker.epoch,
                    type=FULL,
                    live_brokers=[
                        UpdateMetadataBroker(
                            id=1,
                            endpoints=[
                                UpdateMetadataEndpoint(
                                    port=endpoint.port, host=endpoint.host, listener="PLAINTEXT", security_protocol=0
                                )
                            ],
                        )
                    ],
                )
                assert not asked.done()
                assert (await client.send(1, update)).error_code == 0
                await starting
                described = await asked
                assert [node.id for node in described.brokers] == [1]
                assert broker.state is BrokerState.RUNNING
                await client.close()
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await broker.abandon()


@cluster_test
async def test_the_control_plane_has_its_own_listener(tmp_path: Path) -> None:
    cluster = ClusterOfBrokers(
        tmp_path,
        3,
        listeners="PLAINTEXT://127.0.0.1:0,CONTROL://127.0.0.1:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
        control_plane_listener_name="CONTROL",
    )
    async with cluster:
        await until_all_know_each_other(cluster)
        controller = controller_of(cluster)
        for broker in cluster.brokers.values():
            assert broker.control_server is not None
            assert [bound.name for bound in broker.control_server.endpoints] == ["CONTROL"]
            expected = 0 if broker is controller else 1
            assert broker.control_server.connections_open == expected
            assert broker.image.brokers[broker.node_id].endpoint("CONTROL") is not None


@cluster_test
async def test_the_old_protocol_without_topic_ids(tmp_path: Path) -> None:
    async with ClusterOfBrokers(tmp_path, 3, inter_broker_protocol_version="2.6") as cluster:
        await until_all_know_each_other(cluster)
        await create(cluster.brokers[0], "old", {index: [index] for index in range(3)})
        await until_known(cluster, "old", 3)
        await produce_and_consume(cluster, "old", 3, "one")
        old = controller_of(cluster)
        await cluster.kill(old.node_id)
        await until_all_know_each_other(cluster)
        await cluster.start(old.node_id)
        await until_known(cluster, "old", 3)
        await until_all_know_each_other(cluster)
        await produce_and_consume(cluster, "old", 3, "two")


@cluster_test
async def test_metadata_has_the_racks_and_endpoints_of_all_brokers(tmp_path: Path) -> None:
    cluster = ClusterOfBrokers(
        tmp_path,
        2,
        listeners="PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
        inter_broker_listener_name="PLAINTEXT",
        broker_rack="rack-a",
    )
    async with cluster:
        await until_all_know_each_other(cluster)
        for listener in ("PLAINTEXT", "OUTSIDE"):
            ports = {
                broker.node_id: endpoint.port
                for broker in cluster.brokers.values()
                for endpoint in broker.endpoints
                if endpoint.listener == listener
            }
            for port in ports.values():
                async with aio.Admin(bootstrap_servers=f"127.0.0.1:{port}") as admin:
                    described = await admin.describe_cluster()
                    assert {node.id: node.port for node in described.brokers} == ports
                    assert {node.rack for node in described.brokers} == {"rack-a"}
