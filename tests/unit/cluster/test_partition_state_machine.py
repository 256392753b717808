"""Every state change of partitions, legal or not, and elections."""

import pytest
from tests.support.cluster.fake_cluster import async_test
from tests.support.cluster.state_machines import ID, TP, StateMachines

from headrace.cluster import znodes
from headrace.cluster.commands import RECOVERING, BrokerInfo, LeaderAndIsr, UpdateMetadata
from headrace.cluster.controller_context import PartitionStatus
from headrace.cluster.leader_election import Election
from headrace.cluster.partition_state_machine import IllegalTransition
from headrace.cluster.znodes import Leadership, ReplicaAssignment, TopicAssignment
from headrace.common.errors import EligibleLeadersNotAvailableError, PreferredLeaderNotAvailableError

LEGAL_PARTITION_CHANGES = {
    ("NonExistent", "New"),
    ("New", "Online"),
    ("New", "Offline"),
    ("Online", "Online"),
    ("Online", "Offline"),
    ("Offline", "Online"),
    ("Offline", "Offline"),
    ("Offline", "NonExistent"),
}


@pytest.mark.parametrize("target", PartitionStatus)
@pytest.mark.parametrize("current", PartitionStatus)
def test_partition_state_changes(current: PartitionStatus, target: PartitionStatus) -> None:
    async def run() -> None:
        machines = await StateMachines.make()
        context = machines.context
        if current is PartitionStatus.NON_EXISTENT:
            del context.partition_status[TP]
        else:
            context.partition_status[TP] = current
        if current is PartitionStatus.NEW:
            context.leaderships.clear()
            await machines.store.delete(znodes.state_path(TP))
        before = await machines.written()
        failed = await machines.partitions.handle_state_changes([TP], target)
        if (current.value, target.value) in LEGAL_PARTITION_CHANGES:
            assert failed == {}
            assert context.partition_status.get(TP, PartitionStatus.NON_EXISTENT) is target
        else:
            assert isinstance(failed[TP], IllegalTransition)
            assert str(failed[TP]) == f"Partition orders-0 cannot change from {current.value} to {target.value}."
            assert context.partition_status.get(TP, PartitionStatus.NON_EXISTENT) is current
            assert await machines.written() == before
            await machines.batch.send()
            assert machines.sent == []
        context.partition_status[TP] = PartitionStatus.ONLINE
        with pytest.raises(IllegalTransition):
            machines.partitions._transition(TP, PartitionStatus.NEW)

    async_test(run)()


@async_test
async def test_first_online_replica_becomes_first_leader() -> None:
    machines = await StateMachines.make()
    del machines.context.brokers[1]
    machines.context.leaderships.clear()
    machines.context.partition_status[TP] = PartitionStatus.NEW
    await machines.store.delete(znodes.state_path(TP))
    assert await machines.partitions.handle_state_changes([TP], PartitionStatus.ONLINE) == {}
    assert await machines.written() == Leadership(2, 0, (2, 3), 1, 0)
    commands = await machines.commands(LeaderAndIsr)
    assert sorted(commands) == [2, 3]
    (state,) = commands[2].partitions
    assert (state.leader, state.isr, state.is_new, state.offline_replicas) == (2, (2, 3), True, (1,))
    assert commands[2].broker_epoch == 102
    assert sorted(await machines.commands(UpdateMetadata)) == [2, 3]


@async_test
async def test_new_partition_without_online_replica_stays_new() -> None:
    machines = await StateMachines.make()
    machines.context.brokers = {9: BrokerInfo(9)}
    machines.context.leaderships.clear()
    machines.context.partition_status[TP] = PartitionStatus.NEW
    await machines.store.delete(znodes.state_path(TP))
    failed = await machines.partitions.handle_state_changes([TP], PartitionStatus.ONLINE)
    assert isinstance(failed[TP], EligibleLeadersNotAvailableError)
    assert machines.context.partition_status[TP] is PartitionStatus.NEW
    assert await machines.written() is None
    (state,) = (await machines.commands(UpdateMetadata))[9].partitions
    assert (state.leader, state.leader_epoch, state.replicas) == (-1, -1, (1, 2, 3))


@async_test
async def test_election_writes_store_before_sending_commands() -> None:
    machines = await StateMachines.make()
    del machines.context.brokers[1]
    await machines.partitions.handle_state_changes([TP], PartitionStatus.OFFLINE)
    assert (
        await machines.partitions.handle_state_changes([TP], PartitionStatus.ONLINE, Election.OFFLINE_PARTITION) == {}
    )
    assert await machines.written() == Leadership(2, 1, (2, 3), 1, 1)
    assert sorted(await machines.commands(LeaderAndIsr)) == [2, 3]


@async_test
async def test_election_without_eligible_replica_fails() -> None:
    machines = await StateMachines.make(isr=(1,))
    del machines.context.brokers[1]
    await machines.partitions.handle_state_changes([TP], PartitionStatus.OFFLINE)
    await machines.partitions.trigger_online_state_change()
    assert machines.context.partition_status[TP] is PartitionStatus.OFFLINE
    machines.unclean = True
    await machines.partitions.trigger_online_state_change()
    assert machines.context.partition_status[TP] is PartitionStatus.ONLINE
    assert await machines.written() == Leadership(2, 1, (2,), 1, 1, RECOVERING)


@async_test
async def test_requested_unclean_election_ignores_topic_config() -> None:
    machines = await StateMachines.make(isr=(1,))
    del machines.context.brokers[1]
    assert await machines.partitions.handle_state_changes([TP], PartitionStatus.ONLINE, Election.UNCLEAN) == {}
    assert await machines.written() == Leadership(2, 1, (2,), 1, 1, RECOVERING)


@async_test
async def test_preferred_and_reassignment_elections() -> None:
    machines = await StateMachines.make(leader=3, isr=(3, 2))
    failed = await machines.partitions.handle_state_changes([TP], PartitionStatus.ONLINE, Election.PREFERRED_REPLICA)
    assert isinstance(failed[TP], PreferredLeaderNotAvailableError)
    assert machines.context.partition_status[TP] is PartitionStatus.ONLINE
    machines.context.topics["orders"] = TopicAssignment(
        "orders", ID, {0: ReplicaAssignment((2, 1, 3), adding=(2,), removing=(3, 1))}
    )
    assert (
        await machines.partitions.handle_state_changes([TP], PartitionStatus.ONLINE, Election.REASSIGN_PARTITION) == {}
    )
    assert await machines.written() == Leadership(2, 1, (3, 2), 1, 1)


@async_test
async def test_election_retries_after_concurrent_isr_change() -> None:
    """The leader has shrunk the ISR since the controller last read it: the controller reads it again."""
    machines = await StateMachines.make()
    del machines.context.brokers[1]
    await machines.fenced.update_leaderships({TP: Leadership(1, 0, (1, 3), 1, 0)})
    assert await machines.partitions.handle_state_changes([TP], PartitionStatus.ONLINE) == {}
    assert await machines.written() == Leadership(3, 1, (3,), 1, 2)
