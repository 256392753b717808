"""The range assignor: divides each topic into ranges, one per member.

- The members of a topic are sorted: static members first, by instance id, then the others by member id.
- Each member gets a range of the topic's partitions. If the division is uneven, the first members get one more.
- Topics with the same number of partitions and the same members are divided alike. So a member gets the same partitions
  of each topic (co-partitioning).

Racks matter if members and brokers have racks and the partitions have different racks (KIP-881). Then partitions first
go to members in a rack with a replica, within the same quotas. The other partitions are assigned as if there were no
racks.
"""

from collections.abc import Callable

from headrace.client.group.assignors.assignor import Assignor, Members, Topics
from headrace.client.group.assignors.racks import are_racks_useful
from headrace.client.group.assignors.round_robin import in_order
from headrace.common.types import TopicPartition

__all__ = ["RangeAssignor"]


class _Topic:
    """A topic and its assignment so far."""

    def __init__(self, name: str, topics: Topics, members: Members):
        self.name = name
        self.count = topics.counts[name]
        self.members = [member for member in in_order(members) if name in members[member].topics]
        self.free = dict.fromkeys(topics.partitions(name))
        self.assigned: dict[str, list[TopicPartition]] = {member: [] for member in self.members}
        self._share, self._extras = divmod(self.count, len(self.members)) if self.members else (0, 0)
        self._rack_of = {member: rack for member in self.members if (rack := members[member].rack)}
        self._racks = {tp: topics.racks.get(tp, frozenset()) for tp in self.free} if self._rack_of else {}
        self.uses_racks = are_racks_useful(self._rack_of.values(), self._racks)

    @property
    def co_partition_key(self) -> tuple[object, ...]:
        """Equal for topics that are divided alike."""
        return (self.count if self._racks else 0, *((member, self._rack_of.get(member)) for member in self.members))

    def is_in_rack(self, member: str, tp: TopicPartition) -> bool:
        rack = self._rack_of.get(member)
        return rack is None or rack in self._racks.get(tp, ())

    def room(self, member: str) -> int:
        return max(0, self._share + (self._extras > 0) - len(self.assigned[member]))

    def assign_to(self, member: str, tps: list[TopicPartition]) -> None:
        self.assigned[member] += tps
        if len(self.assigned[member]) > self._share:
            self._extras -= 1
        for tp in tps:
            del self.free[tp]

    def assign_ranges(self, is_allowed: Callable[[str, TopicPartition], bool]) -> None:
        for member in self.members:
            if tps := [tp for tp in self.free if is_allowed(member, tp)][: self.room(member)]:
                self.assign_to(member, tps)


class RangeAssignor(Assignor):
    """Assigns a contiguous range of each topic's partitions to each member."""

    name = "range"

    def assign(self, topics: Topics, members: Members) -> dict[str, list[TopicPartition]]:
        states = [_Topic(name, topics, members) for name in sorted(topics.counts)]
        if any(state.uses_racks for state in states):
            _assign_by_rack(states)
        for state in states:
            state.assign_ranges(lambda member, tp: True)  # noqa: ARG005
        return {member: sorted(tp for state in states for tp in state.assigned.get(member, ())) for member in members}


def _assign_by_rack(states: list[_Topic]) -> None:
    groups: dict[tuple[object, ...], list[_Topic]] = {}
    for state in states:
        groups.setdefault(state.co_partition_key, []).append(state)
    for topics in groups.values():
        if len(topics) > 1:
            _assign_together_by_rack(topics)
        elif topics[0].uses_racks:
            topics[0].assign_ranges(topics[0].is_in_rack)


def _assign_together_by_rack(topics: list[_Topic]) -> None:
    """Assigns a partition number of all these topics to the first member whose rack has replicas of all of them."""
    first = topics[0]
    if first.co_partition_key[0] == 0:
        return
    for partition in range(first.count):
        for member in first.members:
            if all(
                topic.is_in_rack(member, TopicPartition(topic.name, partition)) and topic.room(member)
                for topic in topics
            ):
                for topic in topics:
                    topic.assign_to(member, [TopicPartition(topic.name, partition)])
                break
