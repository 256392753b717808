"""Writes of the controller: fencing, and batched compare-and-set."""

import pytest
from tests.support.cluster.fake_cluster import async_test
from tests.support.cluster.state_machines import TP, StateMachines

from headrace.cluster import znodes
from headrace.cluster.controller_context import PartitionStatus, Replica, ReplicaStatus
from headrace.cluster.fenced_store import ControllerMoved
from headrace.cluster.znodes import Leadership
from headrace.common.types import TopicPartition


@async_test
async def test_replaced_controller_cannot_write() -> None:
    machines = await StateMachines.make()
    before = await machines.written()
    await machines.store.set(znodes.CONTROLLER_EPOCH, b"2")
    with pytest.raises(ControllerMoved):
        await machines.replicas.handle_state_changes([Replica(TP, 2)], ReplicaStatus.OFFLINE)
    with pytest.raises(ControllerMoved):
        await machines.partitions.handle_state_changes([TP], PartitionStatus.ONLINE)
    assert await machines.written() == before


@async_test
async def test_batched_update_fails_only_for_changed_partition() -> None:
    machines = await StateMachines.make()
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
