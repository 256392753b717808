"""The sticky assignment for members with different subscriptions.

1. Unassigned partitions go to the subscriber with the fewest partitions. Topics with the fewest subscribers come first.
2. Partitions move, in the same order, to the subscriber with the fewest partitions, as long as it has at least two less
   than the owner. The partitions that were unassigned move first, so that owners keep theirs if that is enough.
3. If the moves do not make the assignment more balanced, they are undone.

Two rules keep the moves few:

- A partition returns to its owner in an earlier generation if that is as good.
- Instead of a move from A to B after a move of the same topic from B to A, the earlier move is reverted.
"""

from collections import Counter
from collections.abc import Mapping

from headrace.client.group.assignors.assignor import Members, Topics, bucket, java_hash
from headrace.client.group.assignors.racks import Racks
from headrace.common.types import TopicPartition

__all__ = ["GeneralAssignment"]


class _Moves:
    """The net moves so far: a partition that moved from A to B to C has moved from A to C."""

    def __init__(self) -> None:
        self._route: dict[TopicPartition, tuple[str, str]] = {}

    def add(self, tp: TopicPartition, source: str, target: str) -> None:
        if tp in self._route:
            source = self._route.pop(tp)[0]
        if source != target:
            self._route[tp] = source, target

    def replacement(self, tp: TopicPartition, source: str, target: str) -> TopicPartition:
        """Returns the partition to move instead of `tp`: one of its topic that moved in the opposite direction."""
        if tp in self._route:
            source = self._route[tp][0]
        opposite = [
            other_tp
            for other_tp, route in self._route.items()
            if route == (target, source) and other_tp.topic == tp.topic
        ]
        return min(opposite, key=_set_order) if opposite else tp


def _set_order(tp: TopicPartition) -> tuple[int, int]:
    """The order of a small Java set, for the same choice as in Kafka."""
    value = (31 * (31 + tp.partition) + java_hash(tp.topic)) & 0xFFFFFFFF
    return bucket(value, 16), tp.partition


class GeneralAssignment:
    """Computes one assignment. `run` returns it."""

    def __init__(
        self,
        topics: Topics,
        members: Members,
        owned: Mapping[str, list[TopicPartition]],
        previous_owner: Mapping[TopicPartition, str],
        racks: Racks,
        keep_other_rack: bool,
    ):
        """`keep_other_rack`: members keep partitions without a replica in their rack."""
        self._topics = topics
        self._subscribed = {
            member: [topic for topic in members[member].topics if topic in topics.counts] for member in members
        }
        self._subscribers: dict[str, list[str]] = {topic: [] for topic in topics.counts}
        for member, topics_of_member in self._subscribed.items():
            for topic in topics_of_member:
                self._subscribers[topic].append(member)
        self._previous_owner = previous_owner
        self._racks = racks
        self._moves = _Moves()
        self._owner: dict[TopicPartition, str] = {}
        self._counts: Counter[str] = Counter(dict.fromkeys(members, 0))
        self._was_revoked = False
        for member, tps in owned.items():
            for tp in tps:
                if tp.topic not in self._subscribed[member] or (
                    not keep_other_rack and racks.is_in_other_rack(member, tp)
                ):
                    self._was_revoked = True
                else:
                    self._assign_to(tp, member)

    def run(self) -> dict[str, list[TopicPartition]]:
        by_subscribers = sorted(self._subscribers, key=lambda topic: (len(self._subscribers[topic]), topic))
        all_partitions = [tp for topic in by_subscribers for tp in self._topics.partitions(topic)]
        unassigned = [tp for tp in all_partitions if tp not in self._owner]
        is_fresh = not self._owner
        self._assign_unassigned(unassigned)
        movable = {tp for tp in all_partitions if len(self._subscribers[tp.topic]) > 1}
        changeable = self._changeable_members()
        owner_before, counts_before = dict(self._owner), Counter(self._counts)
        if not self._was_revoked:
            self._move([tp for tp in unassigned if tp in movable], changeable)
        moved = self._move([tp for tp in all_partitions if tp in movable], changeable)
        if (
            moved
            and not is_fresh
            and self._imbalance(changeable, self._counts) >= self._imbalance(changeable, counts_before)
        ):
            self._owner = owner_before
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in self._subscribed}
        for tp, member in sorted(self._owner.items()):
            assigned[member].append(tp)
        return assigned

    def _assign_to(self, tp: TopicPartition, member: str) -> None:
        if tp in self._owner:
            self._counts[self._owner[tp]] -= 1
        self._owner[tp] = member
        self._counts[member] += 1

    def _least_loaded_subscriber(self, tp: TopicPartition, in_rack_only: bool = False) -> str | None:
        subscribers = [
            subscriber
            for subscriber in self._subscribers[tp.topic]
            if not (in_rack_only and self._racks.is_in_other_rack(subscriber, tp))
        ]
        return min(subscribers, key=lambda member: (self._counts[member], member), default=None)

    def _assign_unassigned(self, unassigned: list[TopicPartition]) -> None:
        for in_rack_only in (True, False) if self._racks.rack_of else (False,):
            for tp in unassigned:
                if tp not in self._owner and (member := self._least_loaded_subscriber(tp, in_rack_only)) is not None:
                    self._assign_to(tp, member)

    def _changeable_members(self) -> list[str]:
        """Returns members that could get more partitions, or own partitions that others could get."""
        shared = {self._owner[tp] for tp in self._owner if len(self._subscribers[tp.topic]) > 1}
        limit = {
            member: sum(self._topics.counts[topic] for topic in topics_of_member)
            for member, topics_of_member in self._subscribed.items()
        }
        return [member for member in self._subscribed if self._counts[member] < limit[member] or member in shared]

    def _move(self, tps: list[TopicPartition], changeable: list[str]) -> bool:
        """Moves partitions to members with fewer. Returns True if any was moved."""
        has_moved = False
        while True:
            was_moved = False
            for tp in tps:
                if self._is_balanced(changeable):
                    break
                if (target := self._target(tp)) is not None:
                    replacement = self._moves.replacement(tp, self._owner[tp], target)
                    self._moves.add(replacement, self._owner[replacement], target)
                    self._assign_to(replacement, target)
                    was_moved = has_moved = True
            if not was_moved:
                return has_moved

    def _target(self, tp: TopicPartition) -> str | None:
        limit = self._counts[self._owner[tp]] - 2
        previous = self._previous_owner.get(tp)
        if previous in self._subscribers[tp.topic] and self._counts[previous] <= limit:
            return previous
        least_loaded = self._least_loaded_subscriber(tp)
        return least_loaded if least_loaded is not None and self._counts[least_loaded] <= limit else None

    def _is_balanced(self, changeable: list[str]) -> bool:
        """Returns True if no member can get a partition from a member that has two more."""
        counts = [self._counts[member] for member in changeable]
        if max(counts) - min(counts) <= 1:
            return True
        largest_counts: dict[str, int] = {}
        for tp, member in self._owner.items():
            largest_counts[tp.topic] = max(largest_counts.get(tp.topic, 0), self._counts[member])
        return all(
            self._counts[member] + 1 >= largest_counts[topic]
            for member in changeable
            for topic in self._subscribed[member]
        )

    @staticmethod
    def _imbalance(changeable: list[str], count: Counter[str]) -> int:
        """Returns the sum of the differences of all pairs."""
        counts = sorted(count[member] for member in changeable)
        return sum(count * (2 * rank - len(counts) + 1) for rank, count in enumerate(counts))
