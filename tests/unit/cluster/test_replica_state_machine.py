"""Every state change of replicas, legal or not, and its commands."""

import pytest
from tests.support.cluster.fake_cluster import async_test
from tests.support.cluster.state_machines import TP, StateMachines

from headrace.cluster.commands import LeaderAndIsr, StopReplica
from headrace.cluster.controller_context import Replica, ReplicaStatus
from headrace.cluster.znodes import Leadership

LEGAL_REPLICA_CHANGES = {
    ("NonExistent", "New"),
    ("New", "Online"),
    ("New", "Offline"),
    ("Online", "Online"),
    ("Online", "Offline"),
    ("Offline", "Online"),
    ("Offline", "Offline"),
    ("Offline", "ReplicaDeletionStarted"),
    ("Offline", "ReplicaDeletionIneligible"),
    ("ReplicaDeletionStarted", "ReplicaDeletionSuccessful"),
    ("ReplicaDeletionStarted", "ReplicaDeletionIneligible"),
    ("ReplicaDeletionIneligible", "Online"),
    ("ReplicaDeletionIneligible", "Offline"),
    ("ReplicaDeletionSuccessful", "NonExistent"),
}


@pytest.mark.parametrize("target", ReplicaStatus)
@pytest.mark.parametrize("current", ReplicaStatus)
def test_replica_state_changes(current: ReplicaStatus, target: ReplicaStatus) -> None:
    async def run() -> None:
        machines = await StateMachines.make()
        context = machines.context
        replica = Replica(TP, 2)
        if current is ReplicaStatus.NON_EXISTENT:
            del context.replica_status[replica]
        else:
            context.replica_status[replica] = current
        before = await machines.written()
        refused = await machines.replicas.handle_state_changes([replica], target)
        if (current.value, target.value) in LEGAL_REPLICA_CHANGES:
            assert refused == []
            assert context.replica_status.get(replica, ReplicaStatus.NON_EXISTENT) is target
        else:
            assert refused == [replica]
            assert context.replica_status.get(replica, ReplicaStatus.NON_EXISTENT) is current
            assert await machines.written() == before
            await machines.batch.send()
            assert machines.sent == []

    async_test(run)()


@async_test
async def test_offline_replica_leaves_isr() -> None:
    machines = await StateMachines.make()
    del machines.context.brokers[2]
    await machines.replicas.handle_state_changes([Replica(TP, 2)], ReplicaStatus.OFFLINE)
    assert await machines.written() == Leadership(1, 1, (1, 3), 1, 1)
    assert sorted(await machines.commands(LeaderAndIsr)) == [1, 3]
    assert (await machines.commands(StopReplica)) == {}


@async_test
async def test_last_isr_member_stays_in_isr() -> None:
    machines = await StateMachines.make(isr=(1,))
    del machines.context.brokers[1]
    await machines.replicas.handle_state_changes([Replica(TP, 1)], ReplicaStatus.OFFLINE)
    assert await machines.written() == Leadership(-1, 1, (1,), 1, 1)
    machines = await StateMachines.make(isr=(1, 2, 3))
    machines.context.brokers = {}
    await machines.replicas.handle_state_changes([Replica(TP, one) for one in (1, 2, 3)], ReplicaStatus.OFFLINE)
    assert await machines.written() == Leadership(-1, 1, (1, 2, 3), 1, 1)


@async_test
async def test_starts_and_deletes_replicas() -> None:
    machines = await StateMachines.make()
    replica = Replica(TP, 2)
    await machines.replicas.handle_state_changes([replica], ReplicaStatus.ONLINE)
    assert sorted(await machines.commands(LeaderAndIsr)) == [2]
    machines.context.topics_to_be_deleted.add("orders")
    machines.sent.clear()
    await machines.replicas.handle_state_changes([replica], ReplicaStatus.OFFLINE)
    await machines.replicas.handle_state_changes([replica], ReplicaStatus.DELETION_STARTED)
    (stop,) = (await machines.commands(StopReplica))[2].partitions
    assert stop == (TP, -2, True)
    assert (await machines.commands(LeaderAndIsr)) == {}
    written = await machines.written()
    assert written is not None
    assert written.isr == (1, 2, 3)
