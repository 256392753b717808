"""Every transition of partitions and replicas, legal or not."""

import asyncio

import pytest
from tests.support.cluster.fake_cluster import async_test

from headrace.cluster import znodes
from headrace.cluster.command_batch import CommandBatch
from headrace.cluster.commands import BrokerInfo, Command, CommandResult, LeaderAndIsr, StopReplica, UpdateMetadata
from headrace.cluster.controller_context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.fenced_store import ControllerMoved, FencedStore
from headrace.cluster.leader_election import Election
from headrace.cluster.partition_state_machine import IllegalTransition, PartitionStateMachine
from headrace.cluster.registration import prepare_cluster
from headrace.cluster.replica_state_machine import ReplicaStateMachine
from headrace.cluster.store import CoordinationStore
from headrace.cluster.znodes import Leadership, ReplicaAssignment, TopicAssignment
from headrace.common.errors import EligibleLeadersNotAvailableError, PreferredLeaderNotAvailableError
from headrace.common.ids import Uuid, make_random
from headrace.common.types import TopicPartition
from headrace.testing.clock import ManualClock

TP = TopicPartition("orders", 0)
ID = Uuid.parse("L4tkSDvtSWyV2FJpQYyZlA")

LEGAL_PARTITION_MOVES = {
    ("NonExistent", "New"),
    ("New", "Online"),
    ("New", "Offline"),
    ("Online", "Online"),
    ("Online", "Offline"),
    ("Offline", "Online"),
    ("Offline", "Offline"),
    ("Offline", "NonExistent"),
}
LEGAL_REPLICA_MOVES = {
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


class Machines:
    """Both state machines over a partition with replicas 1, 2, 3 on live brokers, leader 1."""

    def __init__(self, store: CoordinationStore):
        self.store = store
        self.sent: list[tuple[int, Command]] = []
        self.context = ControllerContext(1)
        self.context.epoch = 1
        self.context.brokers = {one: BrokerInfo(one, epoch=100 + one) for one in (1, 2, 3)}
        self.context.topics = {"orders": TopicAssignment("orders", ID, {0: ReplicaAssignment((1, 2, 3))})}
        self.batch = CommandBatch(self.context, self, lambda *_: None)
        self.fenced = FencedStore(store, 1, 0)
        self.unclean = False
        self.partitions = PartitionStateMachine(self.context, self.fenced, self.batch, self.unclean_allowed)
        self.replicas = ReplicaStateMachine(self.context, self.fenced, self.batch)

    @classmethod
    async def make(cls, *, isr: tuple[int, ...] = (1, 2, 3), leader: int = 1) -> "Machines":
        store = EmbeddedStore(None, ManualClock())
        await prepare_cluster(store, make_random(1))
        machines = cls(store)
        await store.create(znodes.topic_path("orders"))
        machines.context.partition_status[TP] = PartitionStatus.ONLINE
        machines.context.leaderships[TP] = Leadership(leader, 0, isr, 1)
        await machines.fenced.create_leaderships(machines.context.leaderships)
        for one in (1, 2, 3):
            machines.context.replica_status[Replica(TP, one)] = ReplicaStatus.ONLINE
        return machines

    async def unclean_allowed(self, topic: str) -> bool:
        return self.unclean

    def send(self, broker_id: int, command: Command, done: object) -> None:
        self.sent.append((broker_id, command))

    def add_broker(self, broker: BrokerInfo) -> None: ...

    def remove_broker(self, broker_id: int) -> None: ...

    def commands(self, kind: type[Command]) -> dict[int, Command]:
        self.batch.send()
        return {broker_id: command for broker_id, command in self.sent if isinstance(command, kind)}

    async def written(self) -> Leadership | None:
        return await self.fenced.read_leadership(TP)


@pytest.mark.parametrize("target", PartitionStatus)
@pytest.mark.parametrize("current", PartitionStatus)
def test_partition_transitions(current: PartitionStatus, target: PartitionStatus) -> None:
    async def run() -> None:
        machines = await Machines.make()
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
        if (current.value, target.value) in LEGAL_PARTITION_MOVES:
            assert failed == {}
            assert context.partition_status.get(TP, PartitionStatus.NON_EXISTENT) is target
        else:
            assert isinstance(failed[TP], IllegalTransition)
            assert str(failed[TP]) == f"Partition orders-0 cannot change from {current.value} to {target.value}."
            assert context.partition_status.get(TP, PartitionStatus.NON_EXISTENT) is current
            assert await machines.written() == before
            machines.batch.send()
            assert machines.sent == []
        context.partition_status[TP] = PartitionStatus.ONLINE
        with pytest.raises(IllegalTransition):
            machines.partitions._transition(TP, PartitionStatus.NEW)

    async_test(run)()


@pytest.mark.parametrize("target", ReplicaStatus)
@pytest.mark.parametrize("current", ReplicaStatus)
def test_replica_transitions(current: ReplicaStatus, target: ReplicaStatus) -> None:
    async def run() -> None:
        machines = await Machines.make()
        context = machines.context
        replica = Replica(TP, 2)
        if current is ReplicaStatus.NON_EXISTENT:
            del context.replica_status[replica]
        else:
            context.replica_status[replica] = current
        before = await machines.written()
        refused = await machines.replicas.handle_state_changes([replica], target)
        if (current.value, target.value) in LEGAL_REPLICA_MOVES:
            assert refused == []
            assert context.replica_status.get(replica, ReplicaStatus.NON_EXISTENT) is target
        else:
            assert refused == [replica]
            assert context.replica_status.get(replica, ReplicaStatus.NON_EXISTENT) is current
            assert await machines.written() == before
            machines.batch.send()
            assert machines.sent == []

    async_test(run)()


# ---- what a move does


@async_test
async def test_the_first_leader_is_the_first_replica_that_lives() -> None:
    machines = await Machines.make()
    del machines.context.brokers[1]
    machines.context.leaderships.clear()
    machines.context.partition_status[TP] = PartitionStatus.NEW
    await machines.store.delete(znodes.state_path(TP))
    assert await machines.partitions.handle_state_changes([TP], PartitionStatus.ONLINE) == {}
    assert await machines.written() == Leadership(2, 0, (2, 3), 1, 0)
    told = machines.commands(LeaderAndIsr)
    assert sorted(told) == [2, 3]
    (state,) = told[2].partitions
    assert (state.leader, state.isr, state.is_new, state.offline_replicas) == (2, (2, 3), True, (1,))
    assert told[2].broker_epoch == 102
    assert sorted(machines.commands(UpdateMetadata)) == [2, 3]


@async_test
async def test_a_new_partition_without_a_living_replica_stays_new() -> None:
    machines = await Machines.make()
    machines.context.brokers = {9: BrokerInfo(9)}
    machines.context.leaderships.clear()
    machines.context.partition_status[TP] = PartitionStatus.NEW
    await machines.store.delete(znodes.state_path(TP))
    failed = await machines.partitions.handle_state_changes([TP], PartitionStatus.ONLINE)
    assert isinstance(failed[TP], EligibleLeadersNotAvailableError)
    assert machines.context.partition_status[TP] is PartitionStatus.NEW
    assert await machines.written() is None
    (state,) = machines.commands(UpdateMetadata)[9].partitions
    assert (state.leader, state.leader_epoch, state.replicas) == (-1, -1, (1, 2, 3))


@async_test
async def test_an_election_writes_then_tells() -> None:
    machines = await Machines.make()
    del machines.context.brokers[1]
    await machines.partitions.handle_state_changes([TP], PartitionStatus.OFFLINE)
    assert (
        await machines.partitions.handle_state_changes([TP], PartitionStatus.ONLINE, Election.OFFLINE_PARTITION) == {}
    )
    assert await machines.written() == Leadership(2, 1, (2, 3), 1, 1)
    assert sorted(machines.commands(LeaderAndIsr)) == [2, 3]


@async_test
async def test_an_election_nobody_can_win() -> None:
    machines = await Machines.make(isr=(1,))
    del machines.context.brokers[1]
    await machines.partitions.handle_state_changes([TP], PartitionStatus.OFFLINE)
    await machines.partitions.trigger_online_state_change()
    assert machines.context.partition_status[TP] is PartitionStatus.OFFLINE
    machines.unclean = True
    await machines.partitions.trigger_online_state_change()
    assert machines.context.partition_status[TP] is PartitionStatus.ONLINE
    assert await machines.written() == Leadership(2, 1, (2,), 1, 1)


@async_test
async def test_the_asked_for_unclean_election_ignores_the_topic() -> None:
    machines = await Machines.make(isr=(1,))
    del machines.context.brokers[1]
    assert await machines.partitions.handle_state_changes([TP], PartitionStatus.ONLINE, Election.UNCLEAN) == {}
    assert await machines.written() == Leadership(2, 1, (2,), 1, 1)


@async_test
async def test_preferred_and_reassigned_leaders() -> None:
    machines = await Machines.make(leader=3, isr=(3, 2))
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
async def test_an_election_meets_a_change_of_the_isr() -> None:
    """The leader shrinks the ISR after the controller has read it and before it writes: the controller looks again."""
    machines = await Machines.make()
    del machines.context.brokers[1]
    read = machines.fenced.read_leadership
    meddled = False

    async def meddle(tp: TopicPartition) -> Leadership | None:
        nonlocal meddled
        found = await read(tp)
        if not meddled:
            meddled = True
            await machines.fenced.update_leaderships({TP: Leadership(1, 0, (1, 3), 1, 0)})
        return found

    machines.fenced.read_leadership = meddle  # type: ignore[method-assign]
    assert await machines.partitions.handle_state_changes([TP], PartitionStatus.ONLINE) == {}
    assert await machines.written() == Leadership(3, 1, (3,), 1, 2)


@async_test
async def test_a_replica_that_goes_leaves_the_isr() -> None:
    machines = await Machines.make()
    del machines.context.brokers[2]
    await machines.replicas.handle_state_changes([Replica(TP, 2)], ReplicaStatus.OFFLINE)
    assert await machines.written() == Leadership(1, 1, (1, 3), 1, 1)
    assert sorted(machines.commands(LeaderAndIsr)) == [1, 3]
    assert machines.commands(StopReplica) == {}


@async_test
async def test_the_last_of_the_isr_stays_in_it() -> None:
    machines = await Machines.make(isr=(1,))
    del machines.context.brokers[1]
    await machines.replicas.handle_state_changes([Replica(TP, 1)], ReplicaStatus.OFFLINE)
    assert await machines.written() == Leadership(-1, 1, (1,), 1, 1)
    machines = await Machines.make(isr=(1, 2, 3))
    machines.context.brokers = {}
    await machines.replicas.handle_state_changes([Replica(TP, one) for one in (1, 2, 3)], ReplicaStatus.OFFLINE)
    assert await machines.written() == Leadership(-1, 1, (1, 2, 3), 1, 1)


@async_test
async def test_starting_and_deleting_replicas() -> None:
    machines = await Machines.make()
    replica = Replica(TP, 2)
    await machines.replicas.handle_state_changes([replica], ReplicaStatus.ONLINE)
    assert sorted(machines.commands(LeaderAndIsr)) == [2]
    machines.context.topics_to_be_deleted.add("orders")
    machines.sent.clear()
    await machines.replicas.handle_state_changes([replica], ReplicaStatus.OFFLINE)
    await machines.replicas.handle_state_changes([replica], ReplicaStatus.DELETION_STARTED)
    (stop,) = machines.commands(StopReplica)[2].partitions
    assert stop == (TP, -2, True)
    assert machines.commands(LeaderAndIsr) == {}
    written = await machines.written()
    assert written is not None
    assert written.isr == (1, 2, 3)


@async_test
async def test_a_controller_that_was_replaced_writes_nothing() -> None:
    machines = await Machines.make()
    before = await machines.written()
    await machines.store.set(znodes.CONTROLLER_EPOCH, b"2")
    with pytest.raises(ControllerMoved):
        await machines.replicas.handle_state_changes([Replica(TP, 2)], ReplicaStatus.OFFLINE)
    with pytest.raises(ControllerMoved):
        await machines.partitions.handle_state_changes([TP], PartitionStatus.ONLINE)
    assert await machines.written() == before


@async_test
async def test_many_partitions_in_few_steps_and_only_the_changed_one_fails() -> None:
    machines = await Machines.make()
    tps = [TopicPartition("big", index) for index in range(1500)]
    states = dict.fromkeys(tps, Leadership(1, 0, (1,), 1))
    await machines.store.create(znodes.topic_path("big"))
    await machines.fenced.create_leaderships(states)
    await machines.store.set(znodes.state_path(tps[3]), znodes.encode_leadership(Leadership(2, 7, (2,), 1)))
    await machines.store.delete(znodes.state_path(tps[1400]))
    after = await machines.fenced.update_leaderships({tp: state.new_leader(2) for tp, state in states.items()})
    assert set(tps) - set(after) == {tps[3], tps[1400]}
    assert {one.partition_epoch for one in after.values()} == {1}
    assert await machines.fenced.read_leadership(tps[5]) == after[tps[5]]


def test_a_closed_batch_sends_nothing() -> None:
    async def run() -> None:
        machines = await Machines.make()
        machines.batch.add_full_metadata([1, 2])
        machines.batch.close()
        machines.batch.send()
        assert machines.sent == []

    asyncio.run(run())


def test_results() -> None:
    assert CommandResult().error_of(TP) == 0
    assert CommandResult(0, {TP: 56}).error_of(TP) == 56
    assert CommandResult(11, {TP: 56}).error_of(TP) == 11
