"""The racks of members and partitions, for rack-aware assignors (KIP-881)."""

from collections import Counter
from collections.abc import Iterable, Mapping

from headrace.client.group.assignors.assignor import Members, Topics
from headrace.common.types import TopicPartition

__all__ = ["Racks", "are_racks_useful"]


def are_racks_useful(member_racks: Iterable[str], racks: Mapping[TopicPartition, frozenset[str]]) -> bool:
    """Returns True if racks matter: a member shares a rack with a replica, and not all partitions have the same
    racks."""
    all_racks = frozenset().union(*racks.values())
    return not all_racks.isdisjoint(member_racks) and any(
        partition_racks != all_racks for partition_racks in racks.values()
    )


class Racks:
    """The racks of a group. If racks do not matter, no member has one."""

    def __init__(self, topics: Topics, members: Members):
        rack_of = {member: rack for member, subscription in members.items() if (rack := subscription.rack)}
        partitions = {tp: topics.racks.get(tp, frozenset()) for tp in topics.all_partitions()} if rack_of else {}
        useful = are_racks_useful(rack_of.values(), partitions)
        self.rack_of = rack_of if useful else {}
        self._partitions = partitions if useful else {}
        in_rack = Counter(rack_of.values())
        self._readers = {tp: sum(in_rack[rack] for rack in racks) for tp, racks in partitions.items()}

    def is_in_other_rack(self, member: str, tp: TopicPartition) -> bool:
        """Returns True if the member has a rack and no replica is in it."""
        rack = self.rack_of.get(member)
        return rack is not None and rack not in self._partitions.get(tp, ())

    def is_in_rack(self, member: str, tp: TopicPartition) -> bool:
        """Returns True if a replica is in the member's rack."""
        return self.rack_of.get(member) in self._partitions.get(tp, ())

    def fewest_members_first(self, tps: list[TopicPartition]) -> list[TopicPartition]:
        """Sorts partitions by the number of members in their racks, ascending."""
        return sorted(tps, key=lambda tp: self._readers.get(tp, 0))
