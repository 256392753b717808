import pytest

from headrace.cluster.commands import BrokerInfo
from headrace.cluster.controller_context import ControllerContext
from headrace.cluster.leader_balance import LeaderBalanceConfig, partitions_to_rebalance
from headrace.cluster.znodes import Leadership, ReplicaAssignment, TopicAssignment
from headrace.common.errors import ConfigError
from headrace.common.ids import ZERO_UUID
from headrace.common.types import TopicPartition


def make_context(leaders: list[int]) -> ControllerContext:
    """A topic whose preferred leader is always broker 1; broker 2 is the other replica."""
    context = ControllerContext(1)
    context.brokers = {broker_id: BrokerInfo(broker_id) for broker_id in (1, 2)}
    partitions = {partition: ReplicaAssignment((1, 2)) for partition in range(len(leaders))}
    context.topics["orders"] = TopicAssignment("orders", ZERO_UUID, partitions)
    for partition, leader in enumerate(leaders):
        context.leaderships[TopicPartition("orders", partition)] = Leadership(leader, 0, (1, 2), 1)
    return context


def tps(*partitions: int) -> list[TopicPartition]:
    return [TopicPartition("orders", partition) for partition in partitions]


def test_rebalances_only_above_the_percentage() -> None:
    context = make_context([2] + [1] * 9)
    assert partitions_to_rebalance(context, 10) == {}
    assert partitions_to_rebalance(context, 9) == {1: tps(0)}
    context = make_context([2, 2] + [1] * 8)
    assert partitions_to_rebalance(context, 10) == {1: tps(0, 1)}
    assert partitions_to_rebalance(make_context([1, 1]), 0) == {}


def test_preferred_leader_must_be_online_and_in_sync() -> None:
    context = make_context([2, 2, 2])
    context.leaderships[TopicPartition("orders", 1)] = Leadership(2, 0, (2,), 1)
    context.replicas_on_offline_dirs[1] = {TopicPartition("orders", 2)}
    assert partitions_to_rebalance(context, 10) == {1: tps(0)}
    context.shutting_down.add(1)
    assert partitions_to_rebalance(context, 10) == {}


def test_ignores_topics_in_deletion_and_reassignments() -> None:
    context = make_context([2, 2])
    context.topics_to_be_deleted.add("orders")
    assert partitions_to_rebalance(context, 10) == {}
    context.topics_to_be_deleted.clear()
    context.topics["moving"] = TopicAssignment("moving", ZERO_UUID, {0: ReplicaAssignment((1, 2, 3), (3,), (1,))})
    assert partitions_to_rebalance(context, 10) == {}


def test_partition_without_a_leader_is_misplaced() -> None:
    assert partitions_to_rebalance(make_context([-1, 1]), 10) == {1: tps(0)}


def test_config() -> None:
    assert LeaderBalanceConfig.from_properties() == LeaderBalanceConfig(True, 300, 10)
    given = {
        "auto.leader.rebalance.enable": "false",
        "leader.imbalance.check.interval.seconds": "60",
        "leader.imbalance.per.broker.percentage": "0",
    }
    assert LeaderBalanceConfig.from_properties(given) == LeaderBalanceConfig(False, 60, 0)
    with pytest.raises(ConfigError, match=r"leader\.imbalance\.check\.interval\.seconds"):
        LeaderBalanceConfig.from_properties({"leader.imbalance.check.interval.seconds": "0"})
