"""Racks of members and of partitions, for the assignors that heed them (KIP-881)."""

from collections import Counter
from collections.abc import Iterable, Mapping

from headrace.client.group.assignors.assignor import Members, Topics
from headrace.common.types import TopicPartition

__all__ = ["Racks", "are_racks_useful"]


def are_racks_useful(member_racks: Iterable[str], racks: Mapping[TopicPartition, frozenset[str]]) -> bool:
    """Whether it matters who reads what: there are members near to some partition, and partitions not near to all."""
    everywhere = frozenset().union(*racks.values())
    return not everywhere.isdisjoint(member_racks) and any(each != everywhere for each in racks.values())


class Racks:
    """All racks of a group. Where they do not matter, no member has one."""

    def __init__(self, topics: Topics, members: Members):
        rack_of = {member: rack for member, each in members.items() if (rack := each.rack)}
        partitions = {tp: topics.racks.get(tp, frozenset()) for tp in topics.all_partitions()} if rack_of else {}
        useful = are_racks_useful(rack_of.values(), partitions)
        self.rack_of = rack_of if useful else {}
        self._partitions = partitions if useful else {}
        in_rack = Counter(rack_of.values())
        self._readers = {tp: sum(in_rack[rack] for rack in racks) for tp, racks in partitions.items()}

    def is_far(self, member: str, tp: TopicPartition) -> bool:
        rack = self.rack_of.get(member)
        return rack is not None and rack not in self._partitions.get(tp, ())

    def is_near(self, member: str, tp: TopicPartition) -> bool:
        """Both racks are known, and match."""
        return self.rack_of.get(member) in self._partitions.get(tp, ())

    def hardest_first(self, tps: list[TopicPartition]) -> list[TopicPartition]:
        """Partitions with few members near to them come first."""
        return sorted(tps, key=lambda tp: self._readers.get(tp, 0))
