"""Round robin: all partitions in a row, dealt to the members one by one.

Topics and partitions are dealt in order, to members in order: static ones first, by their instance id, then the others
by member id. A member that does not want the topic is passed over. With equal subscriptions shares differ by at most
one.
"""

from headrace.client.group.assignors.assignor import Assignor, Members, Topics
from headrace.client.group.consumer_protocol import Subscription
from headrace.common.types import TopicPartition

__all__ = ["RoundRobinAssignor", "in_order"]


def in_order(members: Members) -> list[str]:
    """Static members keep their place when their member id changes, so they come first."""

    def key(item: tuple[str, Subscription]) -> tuple[bool, str]:
        member, subscription = item
        instance = subscription.group_instance_id
        return (True, member) if instance is None else (False, instance)

    return [member for member, _ in sorted(members.items(), key=key)]


class RoundRobinAssignor(Assignor):
    name = "roundrobin"

    def assign(self, topics: Topics, members: Members) -> dict[str, list[TopicPartition]]:
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        wanted = {member: frozenset(members[member].topics) for member in members}
        ring = in_order(members)
        turn = 0
        for topic in sorted(topics.counts):
            if not any(topic in each for each in wanted.values()):
                continue
            for tp in topics.partitions(topic):
                while topic not in wanted[ring[turn % len(ring)]]:
                    turn += 1
                given[ring[turn % len(ring)]].append(tp)
                turn += 1
        return given
