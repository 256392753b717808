"""Writes of the controller: fencing, and batched compare-and-set."""

import pytest
from tests.support.cluster.fake_cluster import async_test, lose_response
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


@async_test
async def test_resigned_controller_cannot_write() -> None:
    machines = await StateMachines.make()
    before = await machines.written()
    machines.fenced.close()
    with pytest.raises(ControllerMoved, match="the controller with epoch 1 has resigned"):
        await machines.partitions.handle_state_changes([TP], PartitionStatus.ONLINE)
    assert await machines.written() == before


@pytest.mark.parametrize("executed", [False, True])
@async_test
async def test_write_without_a_response_is_recognized_or_sent_again(executed: bool) -> None:
    machines = await StateMachines.make()
    store, fenced = machines.store, machines.fenced
    state = Leadership(1, 0, (1, 2, 3), 1)
    lose_response(store, executed=executed)
    assert await fenced.update_leaderships({TP: state.new_leader(2)}) == {TP: Leadership(2, 1, (1, 2, 3), 1, 1)}
    assert await machines.written() == Leadership(2, 1, (1, 2, 3), 1, 1)
    other = TopicPartition("orders", 1)
    lose_response(store, executed=executed)
    await fenced.create_leaderships({other: state})
    assert await fenced.read_leadership(other) == state
    lose_response(store, executed=executed)
    await fenced.delete_existing([znodes.state_path(other)])
    assert await fenced.read_leadership(other) is None


@async_test
async def test_replaced_controller_does_not_take_the_write_of_another_for_its_own() -> None:
    machines = await StateMachines.make()
    state = Leadership(1, 0, (1, 2, 3), 1)
    await machines.store.set(znodes.CONTROLLER_EPOCH, b"2")
    await machines.store.set(znodes.state_path(TP), znodes.encode_leadership(Leadership(3, 1, (3,), 2)))
    lose_response(machines.store, executed=False)
    with pytest.raises(ControllerMoved):
        await machines.fenced.update_leaderships({TP: state.new_leader(2)})
