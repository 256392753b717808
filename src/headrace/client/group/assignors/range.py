"""Range: each topic is cut into ranges, one per member.

The members that want a topic stand in order (static ones first, by instance id, then the others by member id); each
gets a range of the topic's partitions, the first ones a partition more where it does not come out even. Topics with as
many partitions and the same members are cut alike: a member reads the same partitions of all (co-partitioning).

Where members and brokers name their racks and not every partition has replicas everywhere (KIP-881), partitions go
first, within the same shares, to members in a rack with a replica; what is left is given out as if there were no racks.
"""

from collections.abc import Callable

from headrace.client.group.assignors.assignor import Assignor, Members, Topics
from headrace.client.group.assignors.racks import are_racks_useful
from headrace.client.group.assignors.round_robin import in_order
from headrace.common.types import TopicPartition

__all__ = ["RangeAssignor"]


class _Topic:
    """A topic that is being given out."""

    def __init__(self, name: str, topics: Topics, members: Members):
        self.name = name
        self.count = topics.counts[name]
        self.members = [member for member in in_order(members) if name in members[member].topics]
        self.free = dict.fromkeys(topics.partitions(name))
        self.given: dict[str, list[TopicPartition]] = {member: [] for member in self.members}
        self._share, self._extras = divmod(self.count, len(self.members)) if self.members else (0, 0)
        self._rack_of = {member: rack for member in self.members if (rack := members[member].rack)}
        self._racks = {tp: topics.racks.get(tp, frozenset()) for tp in self.free} if self._rack_of else {}
        self.uses_racks = are_racks_useful(self._rack_of.values(), self._racks)

    @property
    def alike(self) -> tuple[object, ...]:
        """Equal for topics that are cut alike."""
        return (self.count if self._racks else 0, *((member, self._rack_of.get(member)) for member in self.members))

    def is_near(self, member: str, tp: TopicPartition) -> bool:
        rack = self._rack_of.get(member)
        return rack is None or rack in self._racks.get(tp, ())

    def room(self, member: str) -> int:
        return max(0, self._share + (self._extras > 0) - len(self.given[member]))

    def give(self, member: str, tps: list[TopicPartition]) -> None:
        self.given[member] += tps
        if len(self.given[member]) > self._share:
            self._extras -= 1
        for tp in tps:
            del self.free[tp]

    def give_ranges(self, may_have: Callable[[str, TopicPartition], bool]) -> None:
        for member in self.members:
            if fitting := [tp for tp in self.free if may_have(member, tp)][: self.room(member)]:
                self.give(member, fitting)


class RangeAssignor(Assignor):
    name = "range"

    def assign(self, topics: Topics, members: Members) -> dict[str, list[TopicPartition]]:
        states = [_Topic(name, topics, members) for name in sorted(topics.counts)]
        if any(state.uses_racks for state in states):
            _give_by_rack(states)
        for state in states:
            state.give_ranges(lambda member, tp: True)  # noqa: ARG005
        return {member: sorted(tp for state in states for tp in state.given.get(member, ())) for member in members}


def _give_by_rack(states: list[_Topic]) -> None:
    alike: dict[tuple[object, ...], list[_Topic]] = {}
    for state in states:
        alike.setdefault(state.alike, []).append(state)
    for together in alike.values():
        if len(together) > 1:
            _give_rows_by_rack(together)
        elif together[0].uses_racks:
            together[0].give_ranges(together[0].is_near)


def _give_rows_by_rack(together: list[_Topic]) -> None:
    """A partition number goes, of all these topics, to the first member that is near to all of them."""
    first = together[0]
    if first.alike[0] == 0:
        return
    for number in range(first.count):
        for member in first.members:
            if all(t.is_near(member, TopicPartition(t.name, number)) and t.room(member) for t in together):
                for t in together:
                    t.give(member, [TopicPartition(t.name, number)])
                break
