from collections.abc import Sequence

import pytest
from tests.support.cluster.fake_cluster import FakeCluster, async_test

from headrace.cluster import znodes
from headrace.cluster.commands import LeaderAndIsr, StopReplica
from headrace.cluster.controller_requests import IsrChange
from headrace.cluster.leader_election import Election
from headrace.cluster.store import Create
from headrace.cluster.znodes import ReplicaAssignment
from headrace.common.errors import (
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    NoReassignmentInProgressError,
    NotControllerError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition

ORDERS = TopicPartition("orders", 0)


async def make(*replicas: int, brokers: Sequence[int] = (1, 2, 3, 4)) -> FakeCluster:
    cluster = await FakeCluster.make(brokers)
    await cluster.create("orders", {0: list(replicas)})
    return cluster


async def assignment(cluster: FakeCluster, tp: TopicPartition = ORDERS) -> ReplicaAssignment:
    data, _ = await cluster.store.get(znodes.topic_path(tp.topic))
    return znodes.decode_topic(tp.topic, data).partitions[tp.partition]


async def join(cluster: FakeCluster, *isr: int, tp: TopicPartition = ORDERS) -> None:
    """The leader reports these in-sync replicas."""
    state = await cluster.state(*tp)
    leader = cluster.brokers[state.leader]
    change = IsrChange(state.leader_epoch, state.partition_epoch, isr)
    results = await cluster.controller.alter_isr(leader.id, leader.info.epoch, {tp: change})
    assert not isinstance(results[tp], Exception), results
    await cluster.settle()


async def move(cluster: FakeCluster, *replicas: int) -> None:
    assert await cluster.controller.alter_reassignments({ORDERS: replicas or None}) == {ORDERS: None}
    await cluster.settle()


class TestPhases:
    @async_test
    async def test_start_assigns_and_creates_new_replicas(self) -> None:
        cluster = await make(1, 2)
        before = await cluster.state("orders")
        await move(cluster, 3, 4)
        assert await assignment(cluster) == ReplicaAssignment((3, 4, 1, 2), adding=(3, 4), removing=(1, 2))
        state = await cluster.state("orders")
        assert (state.leader, state.isr, state.leader_epoch) == (1, (1, 2), before.leader_epoch + 1)
        for broker_id in (1, 2, 3, 4):
            command = cluster.brokers[broker_id].received(LeaderAndIsr)[-1]
            assert isinstance(command, LeaderAndIsr)
            (sent,) = command.partitions
            assert (sent.replicas, sent.adding, sent.removing) == ((3, 4, 1, 2), (3, 4), (1, 2))
            assert sent.is_new == (broker_id in (3, 4))
        await cluster.close()

    @async_test
    async def test_waits_for_the_whole_target(self) -> None:
        cluster = await make(1, 2)
        await move(cluster, 3, 4)
        await join(cluster, 1, 2, 3)
        assert (await assignment(cluster)).is_reassigned
        assert await cluster.controller.list_reassignments() == {
            ORDERS: ReplicaAssignment((3, 4, 1, 2), adding=(3, 4), removing=(1, 2))
        }
        await cluster.close()

    @async_test
    async def test_completes_when_the_target_is_in_sync(self) -> None:
        cluster = await make(1, 2)
        await move(cluster, 3, 4)
        await join(cluster, 1, 2, 3, 4)
        assert await assignment(cluster) == ReplicaAssignment((3, 4))
        state = await cluster.state("orders")
        assert (state.leader, sorted(state.isr)) == (3, [3, 4])
        assert await cluster.controller.list_reassignments() == {}
        for broker_id in (1, 2):
            stops = cluster.brokers[broker_id].received(StopReplica)
            assert [(one.tp, one.delete) for stop in stops for one in stop.partitions][-1] == (ORDERS, True)  # type: ignore[union-attr]
            assert ORDERS not in cluster.brokers[broker_id].hosted
        for broker_id in (3, 4):
            assert cluster.brokers[broker_id].hosted[ORDERS] == (3, state.leader_epoch)
        shown = cluster.brokers[2].image.partition(*ORDERS)
        assert shown is not None
        assert (shown.replicas, shown.adding, shown.removing) == ((3, 4), (), ())
        await cluster.close()

    @async_test
    async def test_leader_in_the_target_stays(self) -> None:
        cluster = await make(1, 2)
        await move(cluster, 3, 1)
        await join(cluster, 1, 2, 3)
        state = await cluster.state("orders")
        assert (state.leader, sorted(state.isr)) == (1, [1, 3])
        assert await assignment(cluster) == ReplicaAssignment((3, 1))
        await cluster.close()

    @async_test
    async def test_only_adding_increments_the_leader_epoch_at_the_end(self) -> None:
        cluster = await make(1)
        await move(cluster, 1, 2)
        during = await cluster.state("orders")
        await join(cluster, 1, 2)
        assert (await cluster.state("orders")).leader_epoch == during.leader_epoch + 1
        assert await assignment(cluster) == ReplicaAssignment((1, 2))
        await cluster.close()

    @async_test
    async def test_new_order_completes_at_once(self) -> None:
        cluster = await make(1, 2)
        await move(cluster, 2, 1)
        assert await assignment(cluster) == ReplicaAssignment((2, 1))
        assert (await cluster.state("orders")).leader == 1
        assert await cluster.controller.list_reassignments() == {}
        await cluster.close()

    @async_test
    async def test_fewer_replicas_complete_at_once(self) -> None:
        cluster = await make(1, 2, 3)
        await move(cluster, 3)
        state = await cluster.state("orders")
        assert (state.leader, state.isr) == (3, (3,))
        assert await assignment(cluster) == ReplicaAssignment((3,))
        await cluster.close()

    @async_test
    async def test_offline_old_replica_does_not_delay_completion(self) -> None:
        cluster = await make(1, 2, 3)
        await cluster.kill(3)
        await move(cluster, 2, 4)
        await join(cluster, 1, 2, 4)
        assert await assignment(cluster) == ReplicaAssignment((2, 4))
        await cluster.close()

    @async_test
    async def test_new_replica_restarts_during_the_reassignment(self) -> None:
        cluster = await make(1, 2)
        await move(cluster, 1, 4)
        four = await cluster.kill(4)
        assert (await assignment(cluster)).is_reassigned
        await cluster.start(4, keeps=four)
        assert cluster.brokers[4].hosted[ORDERS][0] == 1
        await join(cluster, 1, 2, 4)
        assert await assignment(cluster) == ReplicaAssignment((1, 4))
        await cluster.close()

    @async_test
    async def test_partition_without_a_first_leader_gets_one(self) -> None:
        cluster = await FakeCluster.make((1, 2, 3))
        await cluster.kill(3)
        topic = znodes.TopicAssignment("orders", Uuid(int=1), {0: ReplicaAssignment((3,))})
        await cluster.store.multi(
            [
                Create(znodes.config_path("topics", "orders"), znodes.encode_config({})),
                Create(znodes.topic_path("orders"), znodes.encode_topic(topic)),
            ]
        )
        await cluster.settle()
        await move(cluster, 2)
        state = await cluster.state("orders")
        assert state.leader == 2
        await cluster.close()


class TestReplacementAndCancellation:
    @async_test
    async def test_cancel_restores_the_original_replicas(self) -> None:
        cluster = await make(1, 2)
        await move(cluster, 3, 4)
        await join(cluster, 1, 2, 3)
        await move(cluster)
        assert await assignment(cluster) == ReplicaAssignment((1, 2))
        state = await cluster.state("orders")
        assert (state.leader, state.isr) == (1, (1, 2))
        for broker_id in (3, 4):
            assert ORDERS not in cluster.brokers[broker_id].hosted
        assert await cluster.controller.list_reassignments() == {}
        await cluster.close()

    @async_test
    async def test_cancel_moves_leadership_away_from_a_new_replica(self) -> None:
        cluster = await make(1, 2)
        await move(cluster, 3, 4)
        await join(cluster, 1, 2, 3)
        await cluster.kill(1)
        await cluster.controller.elect_leaders(Election.UNCLEAN, [ORDERS])
        await cluster.settle()
        assert (await cluster.state("orders")).leader == 3
        await move(cluster)
        state = await cluster.state("orders")
        assert (state.leader, state.isr) == (2, (2,))
        await cluster.close()

    @async_test
    async def test_cancel_is_refused_if_no_original_replica_is_in_sync(self) -> None:
        cluster = await make(1, brokers=(1, 2, 3))
        await move(cluster, 2, 3)
        await join(cluster, 1, 2)
        one = await cluster.kill(1)
        assert (await cluster.state("orders")).isr == (2,)
        results = await cluster.controller.alter_reassignments({ORDERS: None})
        assert isinstance(results[ORDERS], InvalidReplicationAssignmentError)
        assert "in sync" in str(results[ORDERS])
        assert (await assignment(cluster)).is_reassigned
        assert ORDERS in cluster.brokers[2].hosted
        await cluster.start(1, keeps=one)
        await cluster.close()

    @async_test
    async def test_another_target_replaces_the_first(self) -> None:
        cluster = await make(1, 2, brokers=(1, 2, 3, 4, 5))
        await move(cluster, 3, 4)
        await join(cluster, 1, 2, 3)
        await move(cluster, 4, 5)
        assert await assignment(cluster) == ReplicaAssignment((4, 5, 1, 2), adding=(4, 5), removing=(1, 2))
        assert ORDERS not in cluster.brokers[3].hosted
        assert (await cluster.state("orders")).isr == (1, 2)
        assert cluster.brokers[4].hosted[ORDERS][0] == 1
        await join(cluster, 1, 2, 4, 5)
        assert await assignment(cluster) == ReplicaAssignment((4, 5))
        await cluster.close()

    @async_test
    async def test_deletion_of_the_topic_deletes_new_replicas_too(self) -> None:
        cluster = await make(1, 2)
        await move(cluster, 3, 4)
        await cluster.admin.delete_topic("orders")
        await cluster.settle()
        assert await cluster.store.exists(znodes.topic_path("orders")) is None
        assert all(not broker.hosted for broker in cluster.brokers.values())
        assert await cluster.controller.list_reassignments() == {}
        await cluster.close()


class TestErrors:
    @pytest.mark.parametrize(
        ("replicas", "message"),
        [
            ((), "Empty replica list specified in partition reassignment."),
            ((1, 1), "Duplicate replica ids in partition reassignment replica list: [1, 1]"),
            ((1, -2), "Invalid broker id in replica list: [1, -2]"),
            (
                (1, 9),
                "Replica assignment has brokers that are not alive. Replica list: [9], live broker list: [1, 2, 3]",
            ),
        ],
    )
    def test_invalid_replicas(self, replicas: tuple[int, ...], message: str) -> None:
        @async_test
        async def run() -> None:
            cluster = await make(1, 2, brokers=(1, 2, 3))
            results = await cluster.controller.alter_reassignments({ORDERS: replicas})
            assert isinstance(results[ORDERS], InvalidReplicationAssignmentError)
            assert str(results[ORDERS]) == message
            assert not (await assignment(cluster)).is_reassigned
            await cluster.close()

        run()

    @async_test
    async def test_each_partition_has_its_result(self) -> None:
        cluster = await make(1, 2)
        unknown = TopicPartition("orders", 7)
        results = await cluster.controller.alter_reassignments({ORDERS: None, unknown: (1, 2)})
        assert isinstance(results[ORDERS], NoReassignmentInProgressError)
        assert isinstance(results[unknown], UnknownTopicOrPartitionError)
        await cluster.close()

    @async_test
    async def test_replication_factor_can_be_protected(self) -> None:
        cluster = await make(1, 2)
        alter = cluster.controller.alter_reassignments
        results = await alter({ORDERS: (1, 2, 3)}, allow_replication_factor_change=False)
        assert isinstance(results[ORDERS], InvalidReplicationFactorError)
        assert (await alter({ORDERS: (3, 4)}, allow_replication_factor_change=False)) == {ORDERS: None}
        # The target of the ongoing reassignment counts.
        results = await alter({ORDERS: (3, 4, 1)}, allow_replication_factor_change=False)
        assert isinstance(results[ORDERS], InvalidReplicationFactorError)
        await cluster.close()

    @async_test
    async def test_only_the_controller_responds(self) -> None:
        cluster = await make(1, 2)
        other = cluster.brokers[2].controller
        assert other is not None
        with pytest.raises(NotControllerError):
            await other.alter_reassignments({ORDERS: (3,)})
        with pytest.raises(NotControllerError):
            await other.list_reassignments()
        await cluster.close()


class TestFailover:
    @async_test
    async def test_next_controller_completes_it(self) -> None:
        cluster = await make(2, 3, brokers=(1, 2, 3, 4))
        await move(cluster, 3, 4)
        await cluster.kill(1)
        assert list(await cluster.controller.list_reassignments()) == [ORDERS]
        await join(cluster, 2, 3, 4)
        assert await assignment(cluster) == ReplicaAssignment((3, 4))
        assert ORDERS not in cluster.brokers[2].hosted
        await cluster.close()

    @async_test
    async def test_target_came_in_sync_without_a_controller(self) -> None:
        cluster = await make(2, 3)
        await move(cluster, 3, 4)
        state = await cluster.state("orders")
        isr = znodes.Leadership(state.leader, state.leader_epoch, (2, 3, 4), state.controller_epoch)
        await cluster.store.set(znodes.state_path(ORDERS), znodes.encode_leadership(isr), state.partition_epoch)
        await cluster.kill(1)
        assert await assignment(cluster) == ReplicaAssignment((3, 4))
        await cluster.close()


class TestRequestsOfOlderTools:
    async def request(self, cluster: FakeCluster, targets: dict[TopicPartition, Sequence[int]]) -> None:
        await cluster.store.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments(targets))
        await cluster.settle()

    @async_test
    async def test_node_starts_a_reassignment_and_disappears(self) -> None:
        cluster = await make(1, 2)
        for target in ((3, 4), (1, 2)):
            await self.request(cluster, {ORDERS: target})
            assert (await assignment(cluster)).target == target
            assert await cluster.store.exists(znodes.REASSIGN_PARTITIONS) is not None
            await join(cluster, 1, 2, 3, 4)
            assert await assignment(cluster) == ReplicaAssignment(target)
            assert await cluster.store.exists(znodes.REASSIGN_PARTITIONS) is None
        await cluster.close()

    @async_test
    async def test_entries_disappear_one_by_one(self) -> None:
        cluster = await make(1, 2)
        await cluster.create("other", {0: [1, 2]})
        other = TopicPartition("other", 0)
        await self.request(
            cluster, {ORDERS: (3,), other: (4,), TopicPartition("none", 0): (1,), TopicPartition("x", 1): ()}
        )
        await join(cluster, 1, 2, 3)
        data, _ = await cluster.store.get(znodes.REASSIGN_PARTITIONS)
        assert znodes.decode_reassignments(data) == {other: (4,)}
        await cluster.close()

    @async_test
    async def test_node_from_before_the_failover(self) -> None:
        cluster = await make(2, 3)
        await self.request(cluster, {ORDERS: (4,)})
        await cluster.kill(1)
        assert (await assignment(cluster)).target == (4,)
        await cluster.kill(2)
        await join(cluster, 3, 4)
        assert await assignment(cluster) == ReplicaAssignment((4,))
        await cluster.close()

    @async_test
    async def test_newer_request_takes_precedence(self) -> None:
        cluster = await make(1, 2)
        await self.request(cluster, {ORDERS: (3,)})
        await move(cluster, 4)
        assert await cluster.store.exists(znodes.REASSIGN_PARTITIONS) is None
        assert (await assignment(cluster)).target == (4,)
        await cluster.close()

    @async_test
    async def test_unreadable_node_is_deleted(self) -> None:
        cluster = await make(1, 2)
        await cluster.store.create(znodes.REASSIGN_PARTITIONS, b'{"version":1,"partitions":[{"topic":"orders"}]}')
        await cluster.settle()
        assert await cluster.store.exists(znodes.REASSIGN_PARTITIONS) is None
        await cluster.close()
