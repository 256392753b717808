"""Sticky: shares as even as can be, and as many partitions as can be stay where they are.

A member tells the leader what it had and in which generation, in the user data of its subscription (sticky, which is
eager: by the time it joins it has given all up) or as its owned partitions (cooperative-sticky):

    sticky               v0: [topic string, [partition int32]]
                         v1: v0 and generation int32
    cooperative-sticky   generation int32; the subscription itself has it from v2 on (KIP-792)

Of two members that claim a partition the one with the later generation had it; if both claim it for the same
generation, neither did.

Given equal subscriptions (`_assign_equal`): every member gets the low quota, some one more. Members keep what they had
up to their quota; what is left is dealt, in order, to those below the low quota, and then one each to those at it.
Otherwise see `sticky_balance`.
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
    topic: str = field(STRING, "0+")
    partitions: list[int] = field([INT32], "0+")


class StickyUserData(Message, versions="0-1", flexible=""):
    previous_assignment: list[StickyTopic] = field([StickyTopic], "0+")
    generation: int = field(INT32, "1+", default=NO_GENERATION)


class CooperativeUserData(Message, versions="0-0", flexible=""):
    generation: int = field(INT32, "0+", default=NO_GENERATION)


class _Claims:
    """Who had which partition before."""

    def __init__(self, topics: Topics, claims: dict[str, tuple[Iterable[TopicPartition], int]]):
        self.owned: dict[str, list[TopicPartition]] = {member: [] for member in claims}
        self.owner: dict[TopicPartition, str] = {}
        self.disputed: set[TopicPartition] = set()
        """Claimed by two members for the same generation."""
        self.before: dict[TopicPartition, str] = {}
        """Who had a partition in an earlier generation."""
        latest = max((generation for _, generation in claims.values()), default=NO_GENERATION)
        since: dict[TopicPartition, int] = {}
        for member, (tps, generation) in claims.items():
            for tp in tps:
                if tp in topics:
                    self._claim(member, tp, generation, claims)
                if generation < latest and generation > since.get(tp, NO_GENERATION - 1):
                    self.before[tp] = member
                    since[tp] = generation

    def _claim(
        self, member: str, tp: TopicPartition, generation: int, claims: dict[str, tuple[Iterable[TopicPartition], int]]
    ) -> None:
        other = self.owner.get(tp)
        if other is not None:
            others = claims[other][1]
            if generation < others:
                return
            if tp in self.owned[other]:
                self.owned[other].remove(tp)
            if generation == others:
                self.disputed.add(tp)
                self.owner[tp] = member
                return
        self.owner[tp] = member
        self.owned[member].append(tp)


class StickyAssignor(Assignor):
    name = "sticky"
    _keeps_far: ClassVar[bool] = False
    """Whether, among members that want different topics, what is far from its owner stays with it."""

    def __init__(self) -> None:
        self._had: Sequence[TopicPartition] | None = None
        self._generation = NO_GENERATION

    def on_assignment(self, tps: Sequence[TopicPartition], generation: int) -> None:
        self._had = tuple(tps)
        self._generation = generation

    def user_data(self, topics: Iterable[str]) -> bytes | None:  # noqa: ARG002
        if self._had is None:
            return None
        previous = [
            StickyTopic(topic=topic, partitions=numbers) for topic, numbers in group_by_topic(self._had).items()
        ]
        return encode(StickyUserData(previous_assignment=previous, generation=self._generation), 1)

    def _claims_of(self, subscription: Subscription) -> tuple[Sequence[TopicPartition], int]:
        """What a member had, and when."""
        if not subscription.user_data:
            return (), NO_GENERATION
        for version in (1, 0):
            try:
                data = decode(StickyUserData, version, subscription.user_data)
            except ProtocolError:
                continue
            had = [
                TopicPartition(each.topic, number) for each in data.previous_assignment for number in each.partitions
            ]
            return had, data.generation
        return (), NO_GENERATION

    def assign(self, topics: Topics, members: Members) -> dict[str, list[TopicPartition]]:
        return self._assign(topics, members)[0]

    def _assign(self, topics: Topics, members: Members) -> tuple[dict[str, list[TopicPartition]], _Claims]:
        claims = _Claims(topics, {member: self._claims_of(members[member]) for member in member_order(members)})
        racks = Racks(topics, members)
        if len({frozenset(each.topics) for each in members.values()}) <= 1:
            return _assign_equal(topics, claims, racks), claims
        return GeneralAssignment(topics, members, claims.owned, claims.before, racks, self._keeps_far).run(), claims


class CooperativeStickyAssignor(StickyAssignor):
    """As sticky, in two steps: what changes hands is first given to nobody."""

    name = "cooperative-sticky"
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = ("cooperative", "eager")
    _keeps_far: ClassVar[bool] = True
    """Here Kafka's own assignor differs: it takes a partition from an owner that is far from it, may find nobody who is
    near and has room, and so can hand it to and fro between two that are far for ever, a rebalance each time."""

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
        given, claims = self._assign(topics, members)
        return {
            member: [tp for tp in tps if tp not in claims.disputed and claims.owner.get(tp, member) == member]
            for member, tps in given.items()
        }


def _assign_equal(topics: Topics, claims: _Claims, racks: Racks) -> dict[str, list[TopicPartition]]:
    everything = topics.all_partitions()
    low, extras = divmod(len(everything), len(claims.owned))
    high = low + (extras > 0)
    given: dict[str, list[TopicPartition]] = {}
    below: list[str] = []
    at_low: list[str] = []
    for member, owned in claims.owned.items():
        kept = sorted(
            (tp for tp in owned if tp not in claims.disputed and not racks.is_far(member, tp)),
            key=lambda tp: (tp.partition, tp.topic),
        )
        if len(kept) < low:
            below.append(member)
        elif len(kept) >= high and extras > 0:
            extras -= 1
            kept = kept[:high]
        else:
            kept = kept[:low]
            at_low.append(member)
        given[member] = kept
    taken = {tp for tps in given.values() for tp in tps}
    free = racks.hardest_first([tp for tp in everything if tp not in taken])
    dealer = _Dealer(given, sorted(below), sorted(at_low), low, extras)
    if racks.rack_of:
        free = dealer.deal_near(free, racks)
    dealer.deal(free)
    return given


class _Dealer:
    """Deals partitions to members that are below the low quota, in turns, and then one each to those that are at it."""

    def __init__(
        self, given: dict[str, list[TopicPartition]], below: list[str], at_low: list[str], low: int, extras: int
    ):
        self._given = given
        self._below = below
        self._at_low = at_low
        self._low = low
        self._extras = extras
        """How many members may still get one more than the low quota."""
        self._turn = 0

    def deal(self, free: list[TopicPartition]) -> None:
        self._turn = 0
        for tp in free:
            if self._below:
                self._give_below(tp, self._turn % len(self._below))
            else:
                self._give_extra(tp, self._at_low[0])

    def deal_near(self, free: list[TopicPartition], racks: Racks) -> list[TopicPartition]:
        """Deals to members near to a partition only; returns what is left."""
        left = []
        for tp in free:
            size = len(self._below)
            turns = [(self._turn + step) % size for step in range(size)]
            below = next((index for index in turns if racks.is_near(self._below[index], tp)), None)
            if below is not None:
                self._give_below(tp, below)
                continue
            member = next((each for each in self._at_low if racks.is_near(each, tp)), None)
            if member is None or not self._extras:
                left.append(tp)
            else:
                self._give_extra(tp, member)
        return left

    def _give_extra(self, tp: TopicPartition, member: str) -> None:
        self._given[member].append(tp)
        self._at_low.remove(member)
        self._extras -= 1

    def _give_below(self, tp: TopicPartition, index: int) -> None:
        """Whoever reaches the low quota leaves the round; the turn is then at the one that stood behind."""
        member = self._below[index]
        self._given[member].append(tp)
        self._turn = index + 1
        if len(self._given[member]) >= self._low:
            del self._below[index]
            self._turn = index
            self._at_low.append(member)
        if self._turn >= len(self._below):
            self._turn = 0
