"""The sticky assignors: balanced assignments that move as few partitions as possible.

A member sends the leader its previous partitions and their generation. With `sticky`, an eager assignor, the member
owns nothing when it joins, so it sends them in the user data of its subscription. With `cooperative-sticky` it sends
them as owned partitions. The user data:

    sticky               v0: [topic string, [partition int32]]
                         v1: v0 and generation int32
    cooperative-sticky   generation int32; part of the subscription itself from v2 on (KIP-792)

If two members claim a partition, the one with the later generation owned it. If both claim it for the same generation,
neither did.

With equal subscriptions (`_assign_equal`) every member gets the minimum quota, and some members get one more. Members
keep their partitions up to the quota. The other partitions go, in order, to members below the minimum quota, then one
each to members at the minimum. `general_assignment` handles different subscriptions.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from headrace.client.group.assignors.assignor import Assignor, Members, RebalanceProtocol, Topics, member_order
from headrace.client.group.assignors.general_assignment import GeneralAssignment
from headrace.client.group.assignors.racks import Racks
from headrace.client.group.consumer_protocol import NO_GENERATION, Subscription, group_by_topic
from headrace.common.types import TopicPartition
from headrace.protocol import ProtocolError, decode, encode
from headrace.protocol.message import INT32, STRING, Message, field

__all__ = ["CooperativeStickyAssignor", "StickyAssignor", "StickyUserData"]


class StickyTopic(Message):
    """The previous partitions of one topic."""

    topic: str = field(STRING, "0+")
    partitions: list[int] = field([INT32], "0+")


class StickyUserData(Message, versions="0-1", flexible=""):
    """The user data of the sticky assignor."""

    previous_assignment: list[StickyTopic] = field([StickyTopic], "0+")
    generation: int = field(INT32, "1+", default=NO_GENERATION)


class CooperativeUserData(Message, versions="0-0", flexible=""):
    """The user data of the cooperative-sticky assignor."""

    generation: int = field(INT32, "0+", default=NO_GENERATION)


class _Claims:
    """The previous owners of partitions, according to the members."""

    def __init__(self, topics: Topics, claims: dict[str, tuple[Iterable[TopicPartition], int]]):
        self.owned: dict[str, list[TopicPartition]] = {member: [] for member in claims}
        self.owner: dict[TopicPartition, str] = {}
        self.disputed: set[TopicPartition] = set()
        """Claimed by two members for the same generation."""
        self.previous_owner: dict[TopicPartition, str] = {}
        """The owner of a partition in an earlier generation."""
        latest = max((generation for _, generation in claims.values()), default=NO_GENERATION)
        previous_generation: dict[TopicPartition, int] = {}
        for member, (tps, generation) in claims.items():
            for tp in tps:
                if tp in topics:
                    self._claim(member, tp, generation, claims)
                if generation < latest and generation > previous_generation.get(tp, NO_GENERATION - 1):
                    self.previous_owner[tp] = member
                    previous_generation[tp] = generation

    def _claim(
        self, member: str, tp: TopicPartition, generation: int, claims: dict[str, tuple[Iterable[TopicPartition], int]]
    ) -> None:
        other_member = self.owner.get(tp)
        if other_member is not None:
            other_generation = claims[other_member][1]
            if generation < other_generation:
                return
            if tp in self.owned[other_member]:
                self.owned[other_member].remove(tp)
            if generation == other_generation:
                self.disputed.add(tp)
                self.owner[tp] = member
                return
        self.owner[tp] = member
        self.owned[member].append(tp)


class StickyAssignor(Assignor):
    """Balances partitions and keeps previous owners. Eager."""

    name = "sticky"
    _keeps_other_rack: ClassVar[bool] = False
    """With different subscriptions: True if members keep partitions without a replica in their rack."""

    def __init__(self) -> None:
        self._previous: Sequence[TopicPartition] | None = None
        self._generation = NO_GENERATION

    def on_assignment(self, tps: Sequence[TopicPartition], generation: int) -> None:
        self._previous = tuple(tps)
        self._generation = generation

    def user_data(self, topics: Iterable[str]) -> bytes | None:  # noqa: ARG002
        if self._previous is None:
            return None
        previous = [
            StickyTopic(topic=topic, partitions=partitions)
            for topic, partitions in group_by_topic(self._previous).items()
        ]
        return encode(StickyUserData(previous_assignment=previous, generation=self._generation), 1)

    def _claims_of(self, subscription: Subscription) -> tuple[Sequence[TopicPartition], int]:
        """Returns the previous partitions of a member, and their generation."""
        if not subscription.user_data:
            return (), NO_GENERATION
        for version in (1, 0):
            try:
                data = decode(StickyUserData, version, subscription.user_data)
            except ProtocolError:
                continue
            previous_partitions = [
                TopicPartition(topic.topic, partition)
                for topic in data.previous_assignment
                for partition in topic.partitions
            ]
            return previous_partitions, data.generation
        return (), NO_GENERATION

    def assign(self, topics: Topics, members: Members) -> dict[str, list[TopicPartition]]:
        return self._assign(topics, members)[0]

    def _assign(self, topics: Topics, members: Members) -> tuple[dict[str, list[TopicPartition]], _Claims]:
        claims = _Claims(topics, {member: self._claims_of(members[member]) for member in member_order(members)})
        racks = Racks(topics, members)
        if len({frozenset(subscription.topics) for subscription in members.values()}) <= 1:
            return _assign_equal(topics, claims, racks), claims
        return GeneralAssignment(
            topics, members, claims.owned, claims.previous_owner, racks, self._keeps_other_rack
        ).run(), claims


class CooperativeStickyAssignor(StickyAssignor):
    """The sticky assignor in two steps: a partition that moves is first revoked, and assigned in the next rebalance."""

    name = "cooperative-sticky"
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = ("cooperative", "eager")
    _keeps_other_rack: ClassVar[bool] = True
    """Kafka's assignor differs: it takes a partition from an owner in another rack even if no member in a matching rack
    has room. So the partition can move between two members forever, with a rebalance each time."""

    def user_data(self, topics: Iterable[str]) -> bytes | None:  # noqa: ARG002
        return encode(CooperativeUserData(generation=self._generation), 0)

    def _claims_of(self, subscription: Subscription) -> tuple[Sequence[TopicPartition], int]:
        generation = subscription.generation
        if generation == NO_GENERATION and subscription.user_data:
            try:
                generation = decode(CooperativeUserData, 0, subscription.user_data).generation
            except ProtocolError:
                generation = NO_GENERATION
        return subscription.owned, generation

    def assign(self, topics: Topics, members: Members) -> dict[str, list[TopicPartition]]:
        assigned, claims = self._assign(topics, members)
        return {
            member: [tp for tp in tps if tp not in claims.disputed and claims.owner.get(tp, member) == member]
            for member, tps in assigned.items()
        }


def _assign_equal(topics: Topics, claims: _Claims, racks: Racks) -> dict[str, list[TopicPartition]]:
    all_tps = topics.all_partitions()
    min_quota, extras = divmod(len(all_tps), len(claims.owned))
    max_quota = min_quota + (extras > 0)
    assigned: dict[str, list[TopicPartition]] = {}
    below_min: list[str] = []
    at_min: list[str] = []
    for member, owned in claims.owned.items():
        kept_tps = sorted(
            (tp for tp in owned if tp not in claims.disputed and not racks.is_in_other_rack(member, tp)),
            key=lambda tp: (tp.partition, tp.topic),
        )
        if len(kept_tps) < min_quota:
            below_min.append(member)
        elif len(kept_tps) >= max_quota and extras > 0:
            extras -= 1
            kept_tps = kept_tps[:max_quota]
        else:
            kept_tps = kept_tps[:min_quota]
            at_min.append(member)
        assigned[member] = kept_tps
    assigned_tps = {tp for tps in assigned.values() for tp in tps}
    unassigned = racks.fewest_members_first([tp for tp in all_tps if tp not in assigned_tps])
    assigner = _QuotaAssigner(assigned, sorted(below_min), sorted(at_min), min_quota, extras)
    if racks.rack_of:
        unassigned = assigner.assign_in_rack(unassigned, racks)
    assigner.assign(unassigned)
    return assigned


class _QuotaAssigner:
    """Assigns partitions in turn to members below the minimum quota, then one each to members at the minimum."""

    def __init__(
        self,
        assigned: dict[str, list[TopicPartition]],
        below_min: list[str],
        at_min: list[str],
        min_quota: int,
        extras: int,
    ):
        self._assigned = assigned
        self._below_min = below_min
        self._at_min = at_min
        self._min_quota = min_quota
        self._extras = extras
        """The number of members that may still get one more than the minimum."""
        self._turn = 0

    def assign(self, unassigned: list[TopicPartition]) -> None:
        self._turn = 0
        for tp in unassigned:
            if self._below_min:
                self._assign_below_min(tp, self._turn % len(self._below_min))
            else:
                self._assign_extra(tp, self._at_min[0])

    def assign_in_rack(self, unassigned: list[TopicPartition], racks: Racks) -> list[TopicPartition]:
        """Assigns partitions to members in a rack with a replica. Returns the remaining partitions."""
        remaining = []
        for tp in unassigned:
            size = len(self._below_min)
            turns = [(self._turn + step) % size for step in range(size)]
            below_min = next((index for index in turns if racks.is_in_rack(self._below_min[index], tp)), None)
            if below_min is not None:
                self._assign_below_min(tp, below_min)
                continue
            member = next((candidate for candidate in self._at_min if racks.is_in_rack(candidate, tp)), None)
            if member is None or not self._extras:
                remaining.append(tp)
            else:
                self._assign_extra(tp, member)
        return remaining

    def _assign_extra(self, tp: TopicPartition, member: str) -> None:
        self._assigned[member].append(tp)
        self._at_min.remove(member)
        self._extras -= 1

    def _assign_below_min(self, tp: TopicPartition, index: int) -> None:
        """Assigns to a member below the minimum. A member that reaches it leaves the round, and its successor is
        next."""
        member = self._below_min[index]
        self._assigned[member].append(tp)
        self._turn = index + 1
        if len(self._assigned[member]) >= self._min_quota:
            del self._below_min[index]
            self._turn = index
            self._at_min.append(member)
        if self._turn >= len(self._below_min):
            self._turn = 0
