import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest
from tests.support.cluster.fake_cluster import FakeCluster, async_test, lose_response, until

from headrace.cluster import controller as controller_module
from headrace.cluster import znodes
from headrace.cluster.commands import RECOVERED, RECOVERING, BrokerInfo, LeaderAndIsr, StopReplica, UpdateMetadata
from headrace.cluster.config_store import ConfigEntity, ConfigStore
from headrace.cluster.controller import Controller
from headrace.cluster.controller_context import PartitionStatus
from headrace.cluster.controller_requests import IsrChange
from headrace.cluster.leader_balance import LeaderBalanceConfig
from headrace.cluster.leader_election import Election
from headrace.cluster.registration import prepare_cluster
from headrace.cluster.store import ConnectionLoss, CoordinationStore, Operation, Set
from headrace.cluster.topics import TopicAdmin, TopicSpec
from headrace.cluster.znodes import Leadership
from headrace.common.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidTopicError,
    InvalidUpdateVersionError,
    KafkaError,
    NotControllerError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition

ORDERS = TopicPartition("orders", 0)


# ---- topics without ids


@async_test
async def test_topics_of_an_older_protocol_are_served_without_ids() -> None:
    """With inter.broker.protocol.version below 2.8, brokers of Kafka create topics without ids."""
    cluster = FakeCluster()
    cluster.has_topic_ids = False
    await prepare_cluster(cluster.store, cluster.random)
    for broker_id in (1, 2):
        await cluster.start(broker_id)
    admin = TopicAdmin(cluster.store, cluster.random, has_topic_ids=False)
    for name in ("first", "second"):
        await admin.create_topic(TopicSpec(name, assignment={0: [1, 2]}))
        await cluster.settle()
        await cluster.kill(1)  # the next controller reads the topic at its election
        await cluster.start(1)
        assert b"topic_id" not in (await cluster.store.get(znodes.topic_path(name)))[0]
        assert ORDERS._replace(topic=name) in cluster.brokers[2].leads()
        assert cluster.brokers[2].image.topic_id(name) == ZERO_UUID
    await admin.create_partitions("first", 2)
    await cluster.settle()
    assert len(cluster.brokers[2].image.topics["first"].partitions) == 2
    state = await cluster.state("first")
    (result,) = (
        await cluster.controller.alter_isr(
            2,
            cluster.brokers[2].info.epoch,
            {
                ORDERS._replace(topic="first"): IsrChange(
                    state.leader_epoch, state.partition_epoch, (2, 1), topic_id=ZERO_UUID
                )
            },
        )
    ).values()
    assert isinstance(result, Leadership)
    await cluster.close()


@async_test
async def test_assigns_ids_after_an_upgrade() -> None:
    cluster = await FakeCluster.make((1, 2))
    admin = TopicAdmin(cluster.store, cluster.random, has_topic_ids=False)
    await admin.create_topic(TopicSpec("orders", assignment={0: [1, 2]}))
    await cluster.settle()
    topic_id = znodes.decode_topic("orders", (await cluster.store.get(znodes.topic_path("orders")))[0]).topic_id
    assert topic_id != ZERO_UUID
    for broker in cluster.brokers.values():
        assert broker.image.topic_id("orders") == topic_id
    await cluster.kill(cluster.controller.broker_id)
    assert cluster.controller.context.topics["orders"].topic_id == topic_id
    # A leader that has not learned the id yet.
    (leader,) = (state.leader for state in (await cluster.states()).values())
    state = await cluster.state("orders")
    change = IsrChange(state.leader_epoch, state.partition_epoch, (leader,), topic_id=ZERO_UUID)
    results = await cluster.controller.alter_isr(leader, cluster.brokers[leader].info.epoch, {ORDERS: change})
    assert isinstance(results[ORDERS], Leadership)
    await cluster.close()


# ---- leaders that change ISRs in the store


@async_test
async def test_isr_that_the_controller_has_not_heard_of() -> None:
    """Below inter.broker.protocol.version 2.7, leaders write ISRs themselves and notify the controller later."""
    cluster = FakeCluster()
    cluster.leaders_write_isr = True
    await prepare_cluster(cluster.store, cluster.random)
    for broker_id in (1, 2, 3):
        await cluster.start(broker_id)
    await cluster.create("orders", {0: [3, 2]})
    two = await cluster.kill(2)
    await cluster.start(2, keeps=two)

    async def expand() -> None:
        state = await cluster.state("orders")
        assert (state.leader, state.isr) == (3, (3,))
        written = replace(state, isr=(3, 2))
        await cluster.store.set(znodes.state_path(ORDERS), znodes.encode_leadership(written), state.partition_epoch)

    await expand()
    two = await cluster.kill(2)
    assert (await cluster.state("orders")).isr == (3,), "a dead follower does not stay in the ISR"
    await cluster.start(2, keeps=two)
    await expand()
    assert await cluster.controller.controlled_shutdown(3, cluster.brokers[3].info.epoch) == set()
    state = await cluster.state("orders")
    assert (state.leader, state.isr) == (2, (2,))
    await cluster.close()


# ---- election


@async_test
async def test_first_broker_becomes_controller() -> None:
    cluster = await FakeCluster.make()
    assert cluster.controller.broker_id == 1
    assert cluster.controller.epoch == 1
    assert (await cluster.store.get(znodes.CONTROLLER_EPOCH))[0] == b"1"
    for broker in cluster.brokers.values():
        assert broker.controller is not None
        assert broker.controller.active_id == 1
        assert (broker.image.controller_id, broker.image.controller_epoch) == (1, 1)
        assert sorted(broker.image.brokers) == [1, 2, 3]
    await cluster.close()


@async_test
async def test_failover_increments_epoch() -> None:
    cluster = await FakeCluster.make()
    await cluster.kill(1)
    assert cluster.controller.broker_id in (2, 3)
    assert cluster.controller.epoch == 2
    await cluster.stop(cluster.controller.broker_id)
    assert cluster.controller.epoch == 3
    (last,) = cluster.brokers.values()
    assert sorted(last.image.brokers) == [last.id]
    assert last.image.controller_epoch == 3
    await cluster.close()


@pytest.mark.parametrize("executed", [False, True])
@async_test
async def test_recognizes_its_own_election_without_a_response(executed: bool) -> None:
    cluster = await FakeCluster.make(())

    def wrap(store: CoordinationStore) -> CoordinationStore:
        lose_response(store, executed=executed)
        return store

    await cluster.start(1, wrap=wrap)
    assert cluster.controller.broker_id == 1
    assert cluster.controller.epoch == 1
    await cluster.create("orders", {0: [1]})
    assert (await cluster.state("orders")).leader == 1
    await cluster.close()


@async_test
async def test_allocates_producer_ids() -> None:
    cluster = await FakeCluster.make()
    blocks = [
        await cluster.controller.allocate_producer_ids(broker_id, cluster.brokers[broker_id].info.epoch)
        for broker_id in (2, 3)
    ]
    assert blocks == [znodes.ProducerIdBlock(2, 0, 999), znodes.ProducerIdBlock(3, 1000, 1999)]
    with pytest.raises(StaleBrokerEpochError):
        await cluster.controller.allocate_producer_ids(2, 1)
    other = cluster.brokers[2].controller
    assert other is not None
    with pytest.raises(NotControllerError):
        await other.allocate_producer_ids(2, cluster.brokers[2].info.epoch)
    await cluster.close()


@async_test
async def test_log_tells_a_failover(caplog: pytest.LogCaptureFixture) -> None:
    """An operator sees who became controller, which brokers failed, and which partitions stay offline and why."""
    caplog.set_level(logging.INFO)
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [1, 2, 3], 1: [1, 3, 2]})
    await cluster.create("alone", {0: [1]})
    caplog.clear()
    await cluster.kill(1)
    active = cluster.controller.broker_id
    other = 5 - active
    for expected in (
        f"Broker {active} is the active controller with epoch 2",
        f"Broker {other}: the active controller is broker {active}",
        "2 partitions have new leaders (offline partition election): broker 2: 1, broker 3: 1",
        "Election (offline partition) failed for 1 partitions: No replica of alone-0 is eligible as leader: ISR [1], "
        "online replicas []",
        f"Controller {active} (epoch 2) has taken over: brokers [2, 3], 2 topics, 3 partitions, 1 without a leader "
        "(alone-0)",
    ):
        assert expected in caplog.text
    caplog.clear()
    await cluster.kill(other)
    for expected in (
        f"Brokers failed or stopped: [{other}]; electing new leaders for the 1 partitions that they led",
        f"1 partitions have new leaders (offline partition election): broker {active}: 1",
        "Removed offline replicas from the ISR of 1 partitions; 0 of them have no leader",
    ):
        assert expected in caplog.text
    assert "failed for 1 partitions" not in caplog.text, "logged before"
    await cluster.brokers[active].session.expire_session()
    assert f"Broker {active} lost its session with the coordination store" in caplog.text
    await cluster.settle()
    await cluster.close()


@async_test
async def test_resigns_when_session_expires() -> None:
    cluster = await FakeCluster.make()
    old = cluster.brokers[1].controller
    assert old is not None
    await cluster.brokers[1].session.expire_session()
    assert not old.is_active
    await cluster.settle()
    assert cluster.controller is not old or cluster.controller.epoch == 2
    assert cluster.controller.epoch == 2
    await cluster.close()


@async_test
async def test_resigns_when_controller_node_is_deleted() -> None:
    cluster = await FakeCluster.make((1,))
    await cluster.store.delete(znodes.CONTROLLER)
    await cluster.settle()
    assert cluster.controller.epoch == 2
    await cluster.close()


@async_test
async def test_zombie_controller_is_fenced_by_store_and_brokers() -> None:
    """A replaced controller that has not noticed it: its writes fail, and brokers reject its commands."""
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [1, 2, 3]})
    zombie = cluster.brokers[1].controller
    assert zombie is not None
    await cluster.store.set(znodes.CONTROLLER_EPOCH, b"7")
    for broker in cluster.brokers.values():
        broker.image.check_controller_epoch(2, 7)
    term = zombie._active()
    term.batch.add_update_metadata([ORDERS])
    await term.batch.send()
    before = await cluster.state("orders")
    for broker in cluster.brokers.values():
        assert isinstance(broker.commands[-1], UpdateMetadata)
        with pytest.raises(StaleControllerEpochError):
            broker.image.apply(broker.commands[-1])
    with pytest.raises(NotControllerError):
        await zombie.alter_isr(1, cluster.brokers[1].info.epoch, {ORDERS: IsrChange(0, 0, (1,))})
    assert await cluster.state("orders") == before
    await cluster.settle()
    assert zombie.epoch != 1
    await cluster.close()


@async_test
async def test_inactive_controller_rejects_requests() -> None:
    cluster = await FakeCluster.make((1, 2))
    idle = cluster.brokers[2].controller
    assert idle is not None
    assert idle.epoch == 0
    with pytest.raises(NotControllerError):
        await idle.elect_leaders(Election.PREFERRED_REPLICA)
    with pytest.raises(NotControllerError):
        _ = idle.context
    await cluster.stop(2)
    with pytest.raises(NotControllerError, match="has stopped"):
        await idle.controlled_shutdown(2, 0)
    await cluster.close()


# ---- topics


@async_test
async def test_new_topic_is_sent_to_all_brokers() -> None:
    cluster = await FakeCluster.make()
    made = await cluster.create("orders", {0: [1, 2, 3], 1: [2, 3, 1]})
    assert await cluster.state("orders", 0) == Leadership(1, 0, (1, 2, 3), 1, 0)
    assert await cluster.state("orders", 1) == Leadership(2, 0, (2, 3, 1), 1, 0)
    for broker in cluster.brokers.values():
        assert broker.image.topic_is_ready("orders", 2)
        assert broker.image.topic_id("orders") == made.topic_id
        assert broker.hosted == {ORDERS: (1, 0), TopicPartition("orders", 1): (2, 0)}
        commands = [command for command in broker.received(LeaderAndIsr) if isinstance(command, LeaderAndIsr)]
        assert len(commands) == 1
        assert all(state.is_new for state in commands[0].partitions)
    await cluster.close()


@async_test
async def test_only_assigned_brokers_host_a_partition() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2]})
    assert [broker.id for broker in cluster.brokers.values() if broker.hosted] == [2]
    assert all(broker.image.partition("orders", 0) for broker in cluster.brokers.values())
    await cluster.close()


@async_test
async def test_creates_many_topics_concurrently() -> None:
    cluster = await FakeCluster.make()
    await asyncio.gather(*(cluster.admin.create_topic(TopicSpec(f"t{number}", 4, 2)) for number in range(20)))
    await cluster.settle()
    for broker in cluster.brokers.values():
        assert all(broker.image.topic_is_ready(f"t{number}", 4) for number in range(20))
    await cluster.close()


@async_test
async def test_adds_partitions() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [1, 2]})
    await cluster.admin.create_partitions("orders", 3, [[2, 3], [3, 1]])
    await cluster.settle()
    assert (await cluster.state("orders", 2)).leader == 3
    assert all(broker.image.topic_is_ready("orders", 3) for broker in cluster.brokers.values())
    await cluster.close()


@async_test
async def test_corrupt_topic_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    cluster = await FakeCluster.make((1,))
    await cluster.store.create("/brokers/topics/broken", b"?")
    await cluster.create("orders", {0: [1]})
    assert cluster.brokers[1].image.topic_is_ready("orders", 1)
    assert "Ignoring topic broken" in caplog.text
    await cluster.store.delete(znodes.CONTROLLER)
    await cluster.settle()
    assert cluster.controller.epoch == 2
    await cluster.close()


@async_test
async def test_corrupt_partition_state_or_broker_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    cluster = await FakeCluster.make((1, 2))
    await cluster.create("orders", {0: [1]})
    await cluster.create("clicks", {0: [2]})
    await cluster.store.set(znodes.state_path(ORDERS), b"?")
    await cluster.kill(1)
    broken = cluster.store.new_session()
    await broken.create("/brokers/ids/1", b"?", ephemeral=True)
    await cluster.settle()
    image = cluster.brokers[2].image
    assert image.topic_is_ready("clicks", 1)
    state = image.partition("orders", 0)
    assert state is not None
    assert state.leader == -1
    assert "Partition orders-0 cannot have a leader" in caplog.text
    assert "Ignoring broker 1" in caplog.text
    await broken.close()
    await cluster.start(1)
    assert cluster.controller.context.partition_status[ORDERS] is PartitionStatus.OFFLINE
    await cluster.close()


# ---- brokers


@async_test
async def test_leader_fails_and_returns() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [3, 2]})
    dead = await cluster.kill(3)
    assert await cluster.state("orders") == Leadership(2, 1, (2,), 1, 1)
    state = cluster.brokers[1].image.partition("orders", 0)
    assert state is not None
    assert (state.leader, state.offline_replicas) == (2, (3,))
    back = await cluster.start(3, keeps=dead)
    assert back.hosted[ORDERS] == (2, 1)
    assert (await cluster.state("orders")).leader == 2
    assert back.image.topic_is_ready("orders", 1)
    await cluster.close()


@async_test
async def test_follower_fails() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2, 3]})
    await cluster.kill(3)
    assert await cluster.state("orders") == Leadership(2, 1, (2,), 1, 1)
    assert cluster.brokers[2].hosted[ORDERS] == (2, 1)
    await cluster.close()


@async_test
async def test_partition_stays_offline_until_isr_member_returns() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2, 3]})
    two = await cluster.kill(2)
    three = await cluster.kill(3)
    assert await cluster.state("orders") == Leadership(-1, 2, (3,), 1, 2)
    await cluster.start(2, keeps=two)
    assert (await cluster.state("orders")).leader == -1
    assert cluster.controller.context.partition_status[ORDERS] is PartitionStatus.OFFLINE
    await cluster.start(3, keeps=three)
    assert await cluster.state("orders") == Leadership(3, 3, (3,), 1, 3)
    await cluster.close()


@async_test
async def test_unclean_election_if_enabled_for_topic() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2, 3]})
    await cluster.create("clean", {0: [2, 3]})
    two = await cluster.kill(2)
    await cluster.kill(3)
    await cluster.start(2, keeps=two)
    await ConfigStore(cluster.store).set(ConfigEntity.topic("orders"), {"unclean.leader.election.enable": "true"})
    cluster.controller.unclean_election_enabled("orders")
    await cluster.settle()
    assert (await cluster.state("orders")).leader == 2
    assert (await cluster.state("orders")).isr == (2,)
    assert (await cluster.state("clean")).leader == -1
    cluster.unclean = True
    cluster.controller.unclean_election_enabled()
    await cluster.settle()
    assert (await cluster.state("clean")).leader == 2
    await cluster.close()


@async_test
async def test_broker_restart_is_detected_by_its_epoch() -> None:
    """The broker restarts before the controller reads it: the new epoch shows a failure and a start."""
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2, 3]})
    broker = cluster.brokers[2]
    path = znodes.broker_path(2)
    data, _ = await cluster.store.get(path)
    await cluster.store.delete(path)
    await broker.session.create(path, data, ephemeral=True)
    stat = await cluster.store.exists(path)
    assert stat is not None
    broker.info = BrokerInfo(2, broker.info.endpoints, None, stat.czxid)
    await cluster.settle()
    assert (await cluster.state("orders")).leader == 3
    assert broker.hosted[ORDERS][0] == 3
    assert cluster.controller.context.brokers[2].epoch == stat.czxid
    await cluster.close()


@async_test
async def test_broker_changes_its_address() -> None:
    cluster = await FakeCluster.make()
    data, _ = await cluster.store.get(znodes.broker_path(2))
    await cluster.store.set(znodes.broker_path(2), data.replace(b"127.0.0.1", b"elsewhere"))
    await cluster.settle()
    assert cluster.brokers[3].image.endpoints("PLAINTEXT")[2].host == "elsewhere"
    await cluster.close()


@async_test
async def test_new_partition_waits_for_online_replica() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [1]})
    cluster.controller.context.brokers.pop(3)
    three = await cluster.kill(3)
    made = await cluster.admin.create_topic(TopicSpec("clicks", assignment={0: [1]}))
    await cluster.store.set(
        znodes.topic_path("clicks"),
        znodes.encode_topic(
            znodes.TopicAssignment("clicks", made.topic_id, {0: made.partitions[0], 1: znodes.ReplicaAssignment((3,))})
        ),
    )
    await cluster.settle()
    state = cluster.brokers[1].image.partition("clicks", 1)
    assert state is not None
    assert state.leader == -1
    await cluster.start(3, keeps=three)
    assert (await cluster.state("clicks", 1)).leader == 3
    assert cluster.brokers[1].image.topic_is_ready("clicks", 2)
    await cluster.close()


# ---- log directories


@async_test
async def test_log_dir_fails_and_recovers() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2, 3], 1: [2, 3]})
    cluster.brokers[2].failed.add(ORDERS)
    await cluster.brokers[2].session.create(
        f"{znodes.LOG_DIR_EVENTS}/{znodes.LOG_DIR_EVENT_PREFIX}", znodes.encode_log_dir_event(2), sequential=True
    )
    await cluster.settle()
    assert (await cluster.state("orders", 0)).leader == 3
    assert (await cluster.state("orders", 0)).isr == (3,)
    assert (await cluster.state("orders", 1)).leader == 2
    assert await cluster.store.children(znodes.LOG_DIR_EVENTS) == []
    state = cluster.brokers[1].image.partition("orders", 0)
    assert state is not None
    assert state.offline_replicas == (2,)
    two = await cluster.kill(2)
    await cluster.start(2, keeps=two)
    state = cluster.brokers[1].image.partition("orders", 0)
    assert state is not None
    assert state.offline_replicas == ()
    await cluster.close()


@async_test
async def test_deletion_resumes_when_a_log_that_could_not_be_created_exists() -> None:
    cluster = await FakeCluster.make()
    cluster.brokers[2].failed.add(ORDERS)
    await cluster.create("orders", {0: [2], 1: [3]})
    await cluster.admin.delete_topic("orders")
    await cluster.settle()
    assert await cluster.store.children(znodes.TOPICS) == ["orders"]
    cluster.brokers[2].failed.clear()
    await cluster.brokers[2].session.create(
        f"{znodes.LOG_DIR_EVENTS}/{znodes.LOG_DIR_EVENT_PREFIX}", znodes.encode_log_dir_event(2), sequential=True
    )
    await cluster.settle()
    assert await cluster.store.children(znodes.TOPICS) == []
    await cluster.close()


@async_test
async def test_ignores_corrupt_log_dir_event() -> None:
    cluster = await FakeCluster.make((1,))
    await cluster.store.create(f"{znodes.LOG_DIR_EVENTS}/x", b"?")
    await cluster.settle()
    assert await cluster.store.children(znodes.LOG_DIR_EVENTS) == []
    assert cluster.controller.epoch == 1
    await cluster.close()


# ---- deletion


async def topic_nodes(cluster: FakeCluster, topic: str) -> list[str]:
    paths = (znodes.topic_path(topic), znodes.delete_topic_path(topic), znodes.config_path("topics", topic))
    return [path for path in paths if await cluster.store.exists(path) is not None]


@async_test
async def test_deleted_topic_can_be_recreated() -> None:
    cluster = await FakeCluster.make()
    first = await cluster.create("orders", {0: [1, 2], 1: [2, 3]})
    await cluster.admin.delete_topic("orders")
    await cluster.settle()
    assert await topic_nodes(cluster, "orders") == []
    for broker in cluster.brokers.values():
        assert not broker.image.has_topic("orders")
        assert broker.hosted == {}
    second = await cluster.create("orders", {0: [3]})
    assert second.topic_id != first.topic_id
    assert all(broker.image.topic_id("orders") == second.topic_id for broker in cluster.brokers.values())
    context = cluster.controller.context
    assert list(context.topics) == ["orders"]
    assert len(context.replica_status) == len(context.partition_status) == len(context.leaderships) == 1
    assert (
        context.topics_to_be_deleted
        == context.topics_with_deletion_started
        == context.topics_ineligible_for_deletion
        == set()
    )
    await cluster.close()


@async_test
async def test_metadata_is_updated_before_logs_are_deleted() -> None:
    cluster = await FakeCluster.make((1,))
    await cluster.create("orders", {0: [1]})
    cluster.brokers[1].commands.clear()
    await cluster.admin.delete_topic("orders")
    await cluster.settle()
    first, second = cluster.brokers[1].commands
    assert isinstance(first, UpdateMetadata)
    assert first.partitions[0].leader == -2
    assert isinstance(second, StopReplica)
    assert second.partitions[0].delete
    await cluster.close()


@async_test
async def test_deletion_waits_for_offline_broker() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2, 3]})
    three = await cluster.kill(3)
    await cluster.admin.delete_topic("orders")
    await cluster.settle()
    assert len(await topic_nodes(cluster, "orders")) == 3
    assert cluster.brokers[2].hosted == {}
    assert not cluster.brokers[1].image.has_topic("orders")
    assert cluster.controller.context.topics_ineligible_for_deletion == {"orders"}
    back = await cluster.start(3, keeps=three)
    assert await topic_nodes(cluster, "orders") == []
    assert back.hosted == {}
    assert not back.image.has_topic("orders")
    await cluster.close()


@async_test
async def test_broker_fails_during_deletion() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2, 3]})
    cluster.paused.add(3)
    await cluster.admin.delete_topic("orders")
    await cluster.settle()
    assert len(await topic_nodes(cluster, "orders")) == 3
    three = await cluster.kill(3)
    cluster.paused.clear()
    assert cluster.controller.context.topics_ineligible_for_deletion == {"orders"}
    await cluster.start(3, keeps=three)
    assert await topic_nodes(cluster, "orders") == []
    await cluster.close()


@async_test
async def test_failed_deletion_is_retried_when_broker_returns() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2, 3]})
    cluster.brokers[3].undeletable.add(ORDERS)
    await cluster.admin.delete_topic("orders")
    await cluster.settle()
    assert len(await topic_nodes(cluster, "orders")) == 3
    three = await cluster.kill(3)
    await cluster.start(3, keeps=three)
    assert await topic_nodes(cluster, "orders") == []
    await cluster.close()


@async_test
async def test_late_response_completes_deletion() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [1, 2], 1: [2, 3]})
    await cluster.create("clicks", {0: [2]})
    cluster.paused.add(2)
    await cluster.admin.delete_topic("orders")
    await cluster.admin.delete_topic("clicks")
    await cluster.settle()
    assert len(await topic_nodes(cluster, "orders")) == 3
    cluster.paused.clear()
    cluster.channels[1].deliver()
    await cluster.settle()
    assert await cluster.store.children(znodes.TOPICS) == []
    await cluster.close()


@async_test
async def test_new_controller_resumes_deletion() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2, 3]})
    cluster.paused.update({2, 3})
    await cluster.admin.delete_topic("orders")
    await cluster.settle()
    cluster.paused.clear()
    await cluster.kill(1)
    assert await topic_nodes(cluster, "orders") == []
    assert all(broker.hosted == {} for broker in cluster.brokers.values())
    await cluster.close()


@async_test
async def test_topic_created_and_deleted_before_controller_reads_it() -> None:
    cluster = await FakeCluster.make()
    await cluster.admin.create_topic(TopicSpec("orders", 3, 2))
    await cluster.admin.delete_topic("orders")
    await cluster.settle()
    assert await topic_nodes(cluster, "orders") == []
    await cluster.close()


@async_test
async def test_deletion_mark_without_topic_is_removed() -> None:
    cluster = await FakeCluster.make((1, 2))
    await cluster.store.create(znodes.delete_topic_path("none"))
    await cluster.settle()
    assert await cluster.store.children(znodes.DELETE_TOPICS) == []
    await cluster.stop(1)
    await cluster.close()


@async_test
async def test_topic_without_configs_is_deleted() -> None:
    cluster = await FakeCluster.make((1,))
    await cluster.create("orders", {0: [1]})
    await cluster.store.delete("/config/topics/orders")
    await cluster.admin.delete_topic("orders")
    await cluster.settle()
    assert await topic_nodes(cluster, "orders") == []
    await cluster.close()


@async_test
async def test_externally_removed_topic_is_dropped() -> None:
    cluster = await FakeCluster.make((1,))
    await cluster.store.create(
        "/brokers/topics/orders",
        znodes.encode_topic(znodes.TopicAssignment("orders", (await cluster.create("other", {0: [1]})).topic_id, {})),
    )
    await cluster.settle()
    assert "orders" in cluster.controller.context.topics
    await cluster.store.delete("/brokers/topics/orders")
    await cluster.settle()
    assert list(cluster.controller.context.topics) == ["other"]
    await cluster.close()


@async_test
async def test_deletes_topic_with_many_partitions() -> None:
    cluster = await FakeCluster.make((1,))
    await cluster.admin.create_topic(TopicSpec("big", 1200, 1))
    await cluster.settle()
    assert cluster.brokers[1].image.topic_is_ready("big", 1200)
    assert len(cluster.brokers[1].hosted) == 1200
    await cluster.admin.delete_topic("big")
    await cluster.settle()
    assert await topic_nodes(cluster, "big") == []
    await cluster.close()


# ---- requests


@async_test
async def test_preferred_replica_election() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2, 3], 1: [3, 2]})
    two = await cluster.kill(2)
    await cluster.start(2, keeps=two)
    epoch = cluster.brokers[3].info.epoch
    state = await cluster.state("orders")
    assert state.leader == 3
    changes = {ORDERS: IsrChange(state.leader_epoch, state.partition_epoch, (3, 2))}
    assert (await cluster.controller.alter_isr(3, epoch, changes))[ORDERS] == await cluster.state("orders")
    results = await cluster.controller.elect_leaders(Election.PREFERRED_REPLICA)
    assert results == {ORDERS: None}
    assert (await cluster.state("orders")).leader == 2
    assert cluster.brokers[2].hosted[ORDERS][0] == 2
    other = TopicPartition("orders", 1)
    none = TopicPartition("none", 0)
    errors = await cluster.controller.elect_leaders(Election.PREFERRED_REPLICA, [ORDERS, other, none])
    assert isinstance(errors[ORDERS], ElectionNotNeededError)
    assert isinstance(errors[none], UnknownTopicOrPartitionError)
    cluster.paused.add(2)
    await cluster.admin.delete_topic("orders")
    await cluster.settle()
    errors = await cluster.controller.elect_leaders(Election.UNCLEAN, [ORDERS])
    assert isinstance(errors[ORDERS], InvalidTopicError)
    await cluster.close()


@async_test
async def test_unclean_election_on_request() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2, 3]})
    two = await cluster.kill(2)
    await cluster.kill(3)
    errors = await cluster.controller.elect_leaders(Election.UNCLEAN, [ORDERS])
    assert isinstance(errors[ORDERS], EligibleLeadersNotAvailableError)
    await cluster.start(2, keeps=two)
    assert await cluster.controller.elect_leaders(Election.UNCLEAN, [ORDERS]) == {ORDERS: None}
    assert (await cluster.state("orders")).isr == (2,)
    errors = await cluster.controller.elect_leaders(Election.UNCLEAN, [ORDERS])
    assert isinstance(errors[ORDERS], ElectionNotNeededError)
    await cluster.close()


@async_test
async def test_alter_isr() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2, 3]})
    controller = cluster.controller
    epoch = cluster.brokers[2].info.epoch

    async def ask(leader_epoch: int, partition_epoch: int, *isr: int, broker: int = 2) -> Leadership | KafkaError:
        answer = await controller.alter_isr(
            broker, cluster.brokers[broker].info.epoch, {ORDERS: IsrChange(leader_epoch, partition_epoch, isr)}
        )
        return answer[ORDERS]

    assert await ask(0, 0, 2) == Leadership(2, 0, (2,), 1, 1)
    state = cluster.brokers[1].image.partition("orders", 0)
    assert state is not None
    assert (state.isr, state.partition_epoch, state.leader_epoch) == ((2,), 1, 0)
    assert await ask(0, 0, 2) == Leadership(2, 0, (2,), 1, 1), "asked for again"
    assert isinstance(await ask(0, 0, 2, 3), InvalidUpdateVersionError)
    assert isinstance(await ask(-1, 1, 2, 3), FencedLeaderEpochError)
    assert isinstance(await ask(1, 1, 2, 3), NotControllerError), "only a newer controller can know this epoch"
    assert isinstance(await ask(0, 9, 2, 3), NotControllerError)
    assert isinstance(await ask(0, 1, 3), InvalidRequestError)
    assert isinstance(await ask(0, 1, 2, 9), InvalidRequestError)
    assert isinstance(await ask(0, 1, 2, 2, 3), InvalidRequestError)
    assert isinstance(await ask(0, 1, 2, 3, broker=3), InvalidRequestError)
    assert await ask(0, 1, 2, 3) == Leadership(2, 0, (2, 3), 1, 2)
    await ask(0, 2, 2)
    await cluster.kill(3)
    assert isinstance(await ask(0, 3, 2, 3), IneligibleReplicaError)
    with pytest.raises(StaleBrokerEpochError, match=f"Broker 2 sent epoch 5, but its current epoch is {epoch}"):
        await controller.alter_isr(2, 5, {})
    none = TopicPartition("none", 0)
    answer = await controller.alter_isr(2, epoch, {none: IsrChange(0, 0, (2,))})
    assert isinstance(answer[none], UnknownTopicOrPartitionError)
    await cluster.close()


@async_test
async def test_leader_gets_a_state_that_it_and_the_controller_did_not_know() -> None:
    """Somebody else has written the state. The leader keeps its change pending until it gets the newer state."""
    cluster = await FakeCluster.make((1, 2))
    await cluster.create("orders", {0: [2, 1]})
    state = await cluster.state("orders")
    written = replace(state, isr=(2,))
    await cluster.store.set(znodes.state_path(ORDERS), znodes.encode_leadership(written))
    change = IsrChange(state.leader_epoch, state.partition_epoch, (2,))
    leader = cluster.brokers[2]
    results = await cluster.controller.alter_isr(2, leader.info.epoch, {ORDERS: change})
    assert isinstance(results[ORDERS], InvalidUpdateVersionError)
    await cluster.settle()
    assert cluster.controller.context.leaderships[ORDERS].partition_epoch == state.partition_epoch + 1
    command = leader.received(LeaderAndIsr)[-1]
    assert isinstance(command, LeaderAndIsr)
    assert [(one.isr, one.partition_epoch) for one in command.partitions] == [((2,), state.partition_epoch + 1)]
    await cluster.close()


@async_test
async def test_restarted_broker_cannot_join_the_isr_with_its_old_epoch() -> None:
    """It may have lost records that it had before the restart (KIP-903)."""
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2, 3]})
    leader_epoch = cluster.brokers[2].info.epoch
    old_epoch = cluster.brokers[3].info.epoch
    three = await cluster.kill(3)
    await cluster.start(3, keeps=three)
    state = await cluster.state("orders")
    assert state.isr == (2,)

    async def ask(*broker_epochs: int, **fields: Any) -> Leadership | KafkaError:
        change = IsrChange(state.leader_epoch, state.partition_epoch, (2, 3), broker_epochs, **fields)
        return (await cluster.controller.alter_isr(2, leader_epoch, {ORDERS: change}))[ORDERS]

    refused = await ask(leader_epoch, old_epoch)
    assert isinstance(refused, IneligibleReplicaError)
    assert "brokers [3] are offline or have restarted" in str(refused)
    assert isinstance(await ask(leader_epoch + 1, -1), IneligibleReplicaError)
    assert isinstance(await ask(-1), InvalidRequestError)
    assert isinstance(await ask(topic_id=Uuid(int=99)), UnknownTopicIdError)
    topic_id = cluster.controller.context.topics["orders"].topic_id
    accepted = await ask(-1, cluster.brokers[3].info.epoch, topic_id=topic_id)
    assert isinstance(accepted, Leadership)
    assert accepted.isr == (2, 3)
    await cluster.close()


@async_test
async def test_unclean_leader_is_recovering_until_it_reports_recovered() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2, 3]})
    three = await cluster.kill(3)
    await cluster.kill(2)
    await cluster.start(3, keeps=three)
    await cluster.controller.elect_leaders(Election.UNCLEAN, [ORDERS])
    state = await cluster.state("orders")
    assert (state.leader, state.isr, state.leader_recovery_state) == (3, (3,), RECOVERING)
    assert cluster.controller.context.partition_state(ORDERS).leader_recovery_state == RECOVERING
    await cluster.start(2)
    epoch = cluster.brokers[3].info.epoch

    async def ask(isr: tuple[int, ...], recovery_state: int) -> Leadership | KafkaError:
        state = await cluster.state("orders")
        change = IsrChange(state.leader_epoch, state.partition_epoch, isr, leader_recovery_state=recovery_state)
        return (await cluster.controller.alter_isr(3, epoch, {ORDERS: change}))[ORDERS]

    assert isinstance(await ask((3, 2), RECOVERING), InvalidRequestError)
    recovered = await ask((3,), RECOVERED)
    assert isinstance(recovered, Leadership)
    assert recovered.leader_recovery_state == RECOVERED
    assert isinstance(await ask((3,), RECOVERING), InvalidRequestError)
    await cluster.close()


@async_test
async def test_isr_changes_of_old_brokers_are_propagated() -> None:
    """Below protocol version 2.7 a leader writes the ISR itself, and notifies the controller."""
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2, 3], 1: [3, 2]})

    async def shrink_isr(partition: int) -> None:
        tp = TopicPartition("orders", partition)
        state = await cluster.state("orders", partition)
        shrunk = replace(state, isr=(state.leader,))
        await cluster.store.set(znodes.state_path(tp), znodes.encode_leadership(shrunk), state.partition_epoch)

    await shrink_isr(0)
    await shrink_isr(1)
    path = f"{znodes.ISR_CHANGES}/{znodes.ISR_CHANGE_PREFIX}"
    tps = [ORDERS, TopicPartition("orders", 1), TopicPartition("none", 0)]
    await cluster.store.create(path, znodes.encode_isr_change(tps), sequential=True)
    await cluster.store.create(path, b"not JSON", sequential=True)
    await cluster.settle()
    for broker in cluster.brokers.values():
        for partition, leader in ((0, 2), (1, 3)):
            state = broker.image.partition("orders", partition)
            assert state is not None
            assert (state.isr, state.partition_epoch) == ((leader,), 1)
    assert await cluster.store.children(znodes.ISR_CHANGES) == []
    # A new controller processes the notifications that its predecessor left.
    await cluster.kill(1)
    await cluster.store.create(path, znodes.encode_isr_change(tps), sequential=True)
    await cluster.settle()
    assert await cluster.store.children(znodes.ISR_CHANGES) == []
    await cluster.close()


@async_test
async def test_preferred_replica_election_requested_through_the_store() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [2, 3], 1: [3, 2]})
    await return_without_leadership(cluster, 2)
    assert (await cluster.state("orders")).leader == 3
    tps = [ORDERS, TopicPartition("orders", 1), TopicPartition("none", 0)]
    for _ in range(2):
        await cluster.store.create(znodes.PREFERRED_ELECTION, znodes.encode_preferred_election(tps))
        await cluster.settle()
        assert (await cluster.state("orders")).leader == 2
        assert await cluster.store.exists(znodes.PREFERRED_ELECTION) is None
    await cluster.store.create(znodes.PREFERRED_ELECTION, b"damaged")
    await cluster.settle()
    assert await cluster.store.exists(znodes.PREFERRED_ELECTION) is None
    await cluster.close()


async def return_without_leadership(cluster: FakeCluster, broker_id: int) -> None:
    """Restarts a broker and adds it to the ISRs again. It leads nothing then."""
    await cluster.start(broker_id, keeps=await cluster.kill(broker_id))
    for tp, state in (await cluster.states()).items():
        if broker_id in cluster.controller.context.assignment(tp).replicas and broker_id not in state.isr:
            epoch = cluster.brokers[state.leader].info.epoch
            change = IsrChange(state.leader_epoch, state.partition_epoch, (*state.isr, broker_id))
            answer = await cluster.controller.alter_isr(state.leader, epoch, {tp: change})
            assert isinstance(answer[tp], Leadership)


@async_test
async def test_leaders_are_moved_back_automatically(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_module, "FIRST_CHECK_SECONDS", 0.001)
    cluster = await FakeCluster.make(balance=LeaderBalanceConfig(True, 1, 10))
    await cluster.create("orders", {0: [2, 3], 1: [3, 2]})
    await return_without_leadership(cluster, 2)
    await cluster.kill(1)  # the new controller checks the balance soon after its election
    while (await cluster.state("orders")).leader != 2:
        await asyncio.sleep(0.001)
    assert cluster.brokers[2].leads() == {ORDERS}
    await cluster.close()


@async_test
async def test_controlled_shutdown() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [3, 2], 1: [2, 3]})
    await cluster.create("alone", {0: [3]})
    epoch = cluster.brokers[3].info.epoch
    assert await cluster.controller.controlled_shutdown(3, epoch) == set()
    assert await cluster.state("orders", 0) == Leadership(2, 1, (2,), 1, 1)
    assert (await cluster.state("orders", 1)).isr == (2,)
    assert (await cluster.state("alone")).leader == 3
    assert cluster.brokers[3].leads() == {TopicPartition("alone", 0)}
    with pytest.raises(StaleBrokerEpochError):
        await cluster.controller.controlled_shutdown(3, epoch + 1)
    three = await cluster.stop(3)
    assert (await cluster.state("alone")).leader == -1
    await cluster.start(3, keeps=three)
    assert (await cluster.state("alone")).leader == 3
    assert cluster.controller.context.shutting_down == set()
    await cluster.close()


@async_test
async def test_controlled_shutdown_reports_remaining_partitions() -> None:
    cluster = await FakeCluster.make()
    await cluster.create("orders", {0: [3, 2]})
    await cluster.kill(2)
    left = await cluster.controller.controlled_shutdown(3, cluster.brokers[3].info.epoch)
    assert left == {ORDERS}
    await cluster.close()


# ---- store failures


@async_test
async def test_store_failure_makes_controller_resign_and_retry(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(controller_module, "RETRY_SECONDS", 0.0)
    caplog.set_level(logging.INFO)
    cluster = await FakeCluster.make((1,))
    session = cluster.brokers[1].session
    real = session.multi
    failures = 3

    async def fail(operations: list[Operation]) -> object:
        nonlocal failures
        if failures and any(not isinstance(one, Set) for one in operations):
            failures -= 1
            raise ConnectionLoss("the disk is full")
        return await real(operations)

    monkeypatch.setattr(session, "multi", fail)
    await cluster.admin.create_topic(TopicSpec("orders", 2))
    image = cluster.brokers[1].image
    await until(lambda: image.topic_is_ready("orders", 2))
    assert failures == 0
    assert cluster.controller.epoch == 2
    assert "next election in 0 s: the disk is full" in caplog.text
    await cluster.close()


@async_test
async def test_store_failure_fails_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await FakeCluster.make((1, 2))
    await cluster.create("orders", {0: [1, 2]})
    epoch = cluster.brokers[1].info.epoch

    async def fail(operations: list[Operation]) -> object:
        raise ConnectionLoss("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.brokers[1].session, "multi", fail)
        with pytest.raises(NotControllerError, match="'alter ISR' failed: the disk is full"):
            await cluster.controller.alter_isr(1, epoch, {ORDERS: IsrChange(0, 0, (1,))})
    await cluster.close()


@async_test
async def test_stop_fails_pending_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await FakeCluster.make((1,))
    controller: Controller = cluster.controller
    never = asyncio.Event()
    controller._enqueue("stuck", never.wait)  # type: ignore[arg-type]
    asked = asyncio.create_task(controller.elect_leaders(Election.PREFERRED_REPLICA))
    await asyncio.sleep(0)
    await cluster.stop(1)
    with pytest.raises(NotControllerError, match="has stopped"):
        await asked
    assert await cluster.store.exists(znodes.CONTROLLER) is None
    await cluster.close()
