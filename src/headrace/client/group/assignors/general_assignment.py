"""The sticky assignment of members that do not all want the same topics.

What is free goes, the topics with the fewest takers first, to the taker with the smallest share. Then partitions move,
in the same order, to the taker with the smallest share as long as there is one with two less than the partition's
owner; first only those that were free, so that what somebody has stays put if that is enough. The outcome of the moves
is dropped if it is no more even than what was there before them.

Two rules keep moves few: a partition goes back to who had it in an earlier generation if that is as good; and instead
of a move from A to B after one of the same topic from B to A, the latter is taken back.
"""

from collections import Counter
from collections.abc import Mapping

from headrace.client.group.assignors.assignor import Members, Topics, bucket, java_hash
from headrace.client.group.assignors.racks import Racks
from headrace.common.types import TopicPartition

__all__ = ["GeneralAssignment"]


class _Moves:
    """The net moves so far: a partition that went from A to B to C has moved from A to C."""

    def __init__(self) -> None:
        self._route: dict[TopicPartition, tuple[str, str]] = {}

    def add(self, tp: TopicPartition, source: str, target: str) -> None:
        if tp in self._route:
            source = self._route.pop(tp)[0]
        if source != target:
            self._route[tp] = source, target

    def better(self, tp: TopicPartition, source: str, target: str) -> TopicPartition:
        """The partition to move in place of `tp`: one of its topic that came the opposite way."""
        if tp in self._route:
            source = self._route[tp][0]
        opposite = [each for each, route in self._route.items() if route == (target, source) and each.topic == tp.topic]
        return min(opposite, key=_set_order) if opposite else tp


def _set_order(tp: TopicPartition) -> tuple[int, int]:
    """The order of a small Java set, so that the choice is Kafka's."""
    value = (31 * (31 + tp.partition) + java_hash(tp.topic)) & 0xFFFFFFFF
    return bucket(value, 16), tp.partition


class GeneralAssignment:
    """One assignment in the making."""

    def __init__(
        self,
        topics: Topics,
        members: Members,
        owned: Mapping[str, list[TopicPartition]],
        before: Mapping[TopicPartition, str],
        racks: Racks,
        keep_far: bool,
    ):
        """`keep_far`: members keep what they have although none of its replicas is in their rack."""
        self._topics = topics
        self._wants = {member: [t for t in members[member].topics if t in topics.counts] for member in members}
        self._takers: dict[str, list[str]] = {topic: [] for topic in topics.counts}
        for member, wanted in self._wants.items():
            for topic in wanted:
                self._takers[topic].append(member)
        self._before = before
        self._racks = racks
        self._moves = _Moves()
        self._owner: dict[TopicPartition, str] = {}
        self._share: Counter[str] = Counter(dict.fromkeys(members, 0))
        self._was_revoked = False
        for member, tps in owned.items():
            for tp in tps:
                if tp.topic not in self._wants[member] or (not keep_far and racks.is_far(member, tp)):
                    self._was_revoked = True
                else:
                    self._give(tp, member)

    def run(self) -> dict[str, list[TopicPartition]]:
        by_takers = sorted(self._takers, key=lambda topic: (len(self._takers[topic]), topic))
        everything = [tp for topic in by_takers for tp in self._topics.partitions(topic)]
        free = [tp for tp in everything if tp not in self._owner]
        is_fresh = not self._owner
        self._give_out(free)
        movable = {tp for tp in everything if len(self._takers[tp.topic]) > 1}
        busy = self._who_may_change()
        owner_before, share_before = dict(self._owner), Counter(self._share)
        if not self._was_revoked:
            self._move([tp for tp in free if tp in movable], busy)
        moved = self._move([tp for tp in everything if tp in movable], busy)
        if moved and not is_fresh and self._unevenness(busy, self._share) >= self._unevenness(busy, share_before):
            self._owner = owner_before
        given: dict[str, list[TopicPartition]] = {member: [] for member in self._wants}
        for tp, member in sorted(self._owner.items()):
            given[member].append(tp)
        return given

    def _give(self, tp: TopicPartition, member: str) -> None:
        if tp in self._owner:
            self._share[self._owner[tp]] -= 1
        self._owner[tp] = member
        self._share[member] += 1

    def _smallest(self, tp: TopicPartition, near: bool = False) -> str | None:
        takers = [each for each in self._takers[tp.topic] if not (near and self._racks.is_far(each, tp))]
        return min(takers, key=lambda member: (self._share[member], member), default=None)

    def _give_out(self, free: list[TopicPartition]) -> None:
        for near in (True, False) if self._racks.rack_of else (False,):
            for tp in free:
                if tp not in self._owner and (member := self._smallest(tp, near)) is not None:
                    self._give(tp, member)

    def _who_may_change(self) -> list[str]:
        """Members that lack something that they could have, or have something that others could."""
        shared = {self._owner[tp] for tp in self._owner if len(self._takers[tp.topic]) > 1}
        limit = {member: sum(self._topics.counts[t] for t in wanted) for member, wanted in self._wants.items()}
        return [member for member in self._wants if self._share[member] < limit[member] or member in shared]

    def _move(self, tps: list[TopicPartition], busy: list[str]) -> bool:
        """Whether anything was moved."""
        has_moved = False
        while True:
            was_moved = False
            for tp in tps:
                if self._is_even(busy):
                    break
                if (target := self._target(tp)) is not None:
                    better = self._moves.better(tp, self._owner[tp], target)
                    self._moves.add(better, self._owner[better], target)
                    self._give(better, target)
                    was_moved = has_moved = True
            if not was_moved:
                return has_moved

    def _target(self, tp: TopicPartition) -> str | None:
        enough = self._share[self._owner[tp]] - 2
        earlier = self._before.get(tp)
        if earlier in self._takers[tp.topic] and self._share[earlier] <= enough:
            return earlier
        smallest = self._smallest(tp)
        return smallest if smallest is not None and self._share[smallest] <= enough else None

    def _is_even(self, busy: list[str]) -> bool:
        """Whether no member can get a partition from one that has two more."""
        shares = [self._share[member] for member in busy]
        if max(shares) - min(shares) <= 1:
            return True
        most: dict[str, int] = {}
        for tp, member in self._owner.items():
            most[tp.topic] = max(most.get(tp.topic, 0), self._share[member])
        return all(self._share[member] + 1 >= most[topic] for member in busy for topic in self._wants[member])

    @staticmethod
    def _unevenness(busy: list[str], share: Counter[str]) -> int:
        """The sum of the differences of all pairs."""
        shares = sorted(share[member] for member in busy)
        return sum(share * (2 * place - len(shares) + 1) for place, share in enumerate(shares))
