"""Automatic preferred leader election: moves leaders back after their brokers have returned.

After a restart a broker follows all its partitions, and the other brokers do its work. The active controller checks the
balance periodically. If too many of the partitions whose preferred leader is a broker have another leader, it elects
the preferred leaders, as far as they are online and in the ISR.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.cluster.controller_context import ControllerContext
from headrace.cluster.leader_election import elect_preferred
from headrace.common.config import ConfigKey, ConfigTable, ConfigType
from headrace.common.types import TopicPartition

FIRST_CHECK_SECONDS = 5.0
"""How long after its election the controller checks the balance for the first time."""

LEADER_BALANCE_KEYS = ConfigTable(
    [
        ConfigKey(
            "auto.leader.rebalance.enable",
            ConfigType.BOOLEAN,
            True,
            "Whether the controller moves leaders back to their preferred brokers, which are the first replicas.",
            dynamic=False,
        ),
        ConfigKey(
            "leader.imbalance.check.interval.seconds",
            ConfigType.LONG,
            300,
            "How often the controller checks the balance of leaders.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "leader.imbalance.per.broker.percentage",
            ConfigType.INT,
            10,
            "The percentage of a broker's preferred partitions that may have another leader. Above it, the controller "
            "elects the preferred leaders.",
            low=0,
            dynamic=False,
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class LeaderBalanceConfig:
    """Typed and checked values of `LEADER_BALANCE_KEYS`."""

    enable: bool
    check_interval_seconds: int
    percentage: int

    @classmethod
    def from_properties(cls, properties: Mapping[str, object] | None = None) -> "LeaderBalanceConfig":
        """Raises ConfigError."""
        values = LEADER_BALANCE_KEYS.parse(properties or {})
        return cls(
            enable=values["auto_leader_rebalance_enable"],
            check_interval_seconds=values["leader_imbalance_check_interval_seconds"],
            percentage=values["leader_imbalance_per_broker_percentage"],
        )


def partitions_to_rebalance(context: ControllerContext, percentage: int) -> dict[int, list[TopicPartition]]:
    """Returns, for each broker that leads too few of its preferred partitions, those that it can lead again."""
    preferred_count: dict[int, int] = {}
    misplaced: dict[int, list[TopicPartition]] = {}
    is_reassigning = False
    for topic, assignment in context.topics.items():
        if topic in context.topics_to_be_deleted:
            continue
        for partition, replicas in assignment.partitions.items():
            is_reassigning = is_reassigning or replicas.is_reassigned
            tp = TopicPartition(topic, partition)
            state = context.leaderships.get(tp)
            if not replicas.replicas or state is None:
                continue
            preferred = replicas.replicas[0]
            preferred_count[preferred] = preferred_count.get(preferred, 0) + 1
            if state.leader != preferred:
                misplaced.setdefault(preferred, []).append(tp)
    if is_reassigning:
        return {}  # as in Kafka: the preferred leaders are about to change
    rebalanced: dict[int, list[TopicPartition]] = {}
    for broker_id, tps in sorted(misplaced.items()):
        if 100 * len(tps) > percentage * preferred_count[broker_id]:
            movable = [tp for tp in tps if _can_lead(context, tp)]
            if movable:
                rebalanced[broker_id] = movable
    return rebalanced


def _can_lead(context: ControllerContext, tp: TopicPartition) -> bool:
    """Returns True if the preferred replica can be elected."""
    return elect_preferred(context.leaderships[tp], context.assignment(tp), context.online_replicas(tp)) is not None
