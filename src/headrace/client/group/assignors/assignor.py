"""What an assignor is, and how the setting `partition.assignment.strategy` becomes some.

Assignors are plain computation: they read what they are given and touch nothing. They belong to one member, on the
loop; what `on_assignment` tells them they may remember until they make the next `user_data`.
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
"""Eager: members give up all they have before they join. Cooperative (KIP-429): they keep it, give up what the new
assignment takes from them, and join again for others to get that."""

Members: TypeAlias = Mapping[str, Subscription]
"""By member id, in the order in which the coordinator lists them."""


@dataclass(frozen=True)
class Topics:
    """The topics that the members want and that exist."""

    counts: Mapping[str, int]
    """The number of partitions of each."""
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)
    """Where the replicas of a partition are, as far as brokers name their rack."""

    def partitions(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in range(self.counts[topic])]

    def all_partitions(self) -> list[TopicPartition]:
        return [tp for topic in sorted(self.counts) for tp in self.partitions(topic)]

    def __contains__(self, tp: TopicPartition) -> bool:
        return 0 <= tp.partition < self.counts.get(tp.topic, 0)


class Assignor:
    """The base of all assignors."""

    name: ClassVar[str] = ""
    """What members agree on; goes over the wire."""
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = ("eager",)

    def assign(self, topics: Topics, members: Members) -> Mapping[str, Sequence[TopicPartition]]:
        """The partitions of each member. Members that are left out get none.

        An assignor that is used cooperatively may not give a partition to a member while another still owns it
        (`Subscription.owned`): it leaves it out, and the members join once more when it is free.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `assign`")

    def user_data(self, topics: Iterable[str]) -> bytes | None:  # noqa: ARG002
        """What this member adds to its subscription for the leader's assignor to read."""
        return None

    def on_assignment(self, tps: Sequence[TopicPartition], generation: int) -> None:
        """What this member has been given."""


def member_order(members: Members) -> list[str]:
    """The order in which Kafka's own leader visits members, wherever the outcome depends on one.

    That is the order of a Java hash map: by bucket, and within one as they came. With it the sticky assignors choose
    exactly as Kafka's do.
    """
    buckets = 16
    while len(members) > buckets * 3 // 4:
        buckets *= 2
    return sorted(members, key=lambda member: bucket(java_hash(member), buckets))


def java_hash(text: str) -> int:
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
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
    """The assignors of the setting: names, the class names of Kafka's own, `Assignor` classes or objects."""
    items: list[object] = (
        [each.strip() for each in strategies.split(",")] if isinstance(strategies, str) else list(strategies)
    )
    made = [_make(item) for item in items]
    names = [assignor.name for assignor in made]
    if not made or len(set(names)) < len(names):
        raise ConfigError(f"partition.assignment.strategy={strategies!r}: expected assignors with different names")
    return made


def _make(item: object) -> Assignor:
    if isinstance(item, type) and issubclass(item, Assignor):
        item = item()
    if isinstance(item, Assignor):
        if not item.name:
            raise ConfigError(f"{type(item).__name__} has no name: expected one that all members of the group know")
        return item
    if isinstance(item, str):
        short = item.rpartition(".")[2]
        for name, (module, cls) in _BUILT_IN.items():
            if item == name or short == cls:
                found: type[Assignor] = getattr(importlib.import_module(f"{__package__}.{module}"), cls)
                return found()
    raise ConfigError(
        f"partition.assignment.strategy={item!r} is not an assignor: expected {', '.join(_BUILT_IN)}, "
        f"or a class derived from {__name__}.Assignor"
    )


def rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The protocol that a member with these assignors follows: cooperative if all of them can."""
    protocols: tuple[RebalanceProtocol, ...] = ("cooperative", "eager")
    for protocol in protocols:
        if all(protocol in assignor.protocols for assignor in assignors):
            return protocol
    names = ", ".join(assignor.name for assignor in assignors)
    raise ConfigError(f"partition.assignment.strategy={names}: expected assignors that share a rebalance protocol")
