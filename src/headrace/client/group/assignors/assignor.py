"""The base class of assignors, and how `partition.assignment.strategy` selects them.

Assignors only compute: they read their arguments and change nothing else. An assignor object belongs to one member and
runs on the loop. It may keep the arguments of `on_assignment` until the next call of `user_data`.
"""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from headrace.client.group.consumer_protocol import Subscription
from headrace.common.errors import ConfigError
from headrace.common.types import TopicPartition

__all__ = ["Assignor", "Members", "RebalanceProtocol", "Topics", "make_assignors", "member_order", "rebalance_protocol"]

RebalanceProtocol: TypeAlias = Literal["eager", "cooperative"]
"""Eager: members revoke all partitions before they join. Cooperative (KIP-429): members keep their partitions, revoke
those that the new assignment moves elsewhere, and rejoin so that the new owners get them."""

Members: TypeAlias = Mapping[str, Subscription]
"""Subscriptions by member id, in the order of the coordinator's list."""


@dataclass(frozen=True)
class Topics:
    """The existing topics among those that the members subscribe to."""

    counts: Mapping[str, int]
    """The number of partitions of each topic."""
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)
    """The racks of a partition's replicas, as far as the brokers have racks."""

    def partitions(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, partition) for partition in range(self.counts[topic])]

    def all_partitions(self) -> list[TopicPartition]:
        return [tp for topic in sorted(self.counts) for tp in self.partitions(topic)]

    def __contains__(self, tp: TopicPartition) -> bool:
        return 0 <= tp.partition < self.counts.get(tp.topic, 0)


class Assignor:
    """The base class of all assignors."""

    name: ClassVar[str] = ""
    """The name that the members agree on. JoinGroup contains it."""
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = ("eager",)

    def assign(self, topics: Topics, members: Members) -> Mapping[str, Sequence[TopicPartition]]:
        """Returns the partitions of each member. Members that are left out get none.

        A cooperative assignor must not assign a partition to a member while another one owns it (`Subscription.owned`).
        It leaves the partition out, and the members rejoin when the partition is free.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement assign()")

    def user_data(self, topics: Iterable[str]) -> bytes | None:  # noqa: ARG002
        """Returns data that this member adds to its subscription for the assignor of the leader."""
        return None

    def on_assignment(self, tps: Sequence[TopicPartition], generation: int) -> None:
        """Called with the partitions that this member received."""


def member_order(members: Members) -> list[str]:
    """Returns the member ids in the order in which Kafka's Java client visits them.

    That is the order of a Java hash map: by bucket, and within a bucket by insertion. So the sticky assignors return
    exactly the assignments that Kafka's return.
    """
    buckets = 16
    while len(members) > buckets * 3 // 4:
        buckets *= 2
    return sorted(members, key=lambda member: bucket(java_hash(member), buckets))


def java_hash(text: str) -> int:
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high_byte, low_byte in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high_byte << 8 | low_byte)) & 0xFFFFFFFF
    return value


def bucket(value: int, buckets: int) -> int:
    return (value ^ value >> 16) & (buckets - 1)


_BUILT_IN = {
    "range": ("range", "RangeAssignor"),
    "roundrobin": ("round_robin", "RoundRobinAssignor"),
    "sticky": ("sticky", "StickyAssignor"),
    "cooperative-sticky": ("sticky", "CooperativeStickyAssignor"),
}


def make_assignors(strategies: str | Iterable[object]) -> list[Assignor]:
    """Returns the assignors of `partition.assignment.strategy`: names, class names of Kafka's assignors, subclasses of
    `Assignor`, or objects."""
    items: list[object] = (
        [name.strip() for name in strategies.split(",")] if isinstance(strategies, str) else list(strategies)
    )
    assignors = [_make_assignor(item) for item in items]
    names = [assignor.name for assignor in assignors]
    if not assignors or len(set(names)) < len(names):
        raise ConfigError(
            f"partition.assignment.strategy={strategies!r}: expected at least one assignor, each with a different name"
        )
    return assignors


def _make_assignor(item: object) -> Assignor:
    if isinstance(item, type) and issubclass(item, Assignor):
        item = item()
    if isinstance(item, Assignor):
        if not item.name:
            raise ConfigError(f"assignor {type(item).__name__} has no name: set the class attribute `name`")
        return item
    if isinstance(item, str):
        short_name = item.rpartition(".")[2]
        for name, (module, cls) in _BUILT_IN.items():
            if item == name or short_name == cls:
                assignor_class: type[Assignor] = getattr(importlib.import_module(f"{__package__}.{module}"), cls)
                return assignor_class()
    raise ConfigError(
        f"partition.assignment.strategy={item!r} is not a known assignor: expected {', '.join(_BUILT_IN)}, "
        "or a subclass of headrace.Assignor"
    )


def rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Returns the rebalance protocol for these assignors: cooperative if all of them support it."""
    protocols: tuple[RebalanceProtocol, ...] = ("cooperative", "eager")
    for protocol in protocols:
        if all(protocol in assignor.protocols for assignor in assignors):
            return protocol
    names = ", ".join(assignor.name for assignor in assignors)
    raise ConfigError(
        f"partition.assignment.strategy={names}: the assignors do not support a common rebalance protocol"
    )
