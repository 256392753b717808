"""The round-robin assignor: assigns all partitions to the members in turn.

Topics and partitions are sorted, and so are the members: static members first, by instance id, then the others by
member id. A member that does not subscribe to a topic is skipped. With equal subscriptions the members' partition
counts differ by at most one.
"""

from headrace.client.group.assignors.assignor import Assignor, Members, Topics
from headrace.client.group.consumer_protocol import Subscription
from headrace.common.types import TopicPartition

__all__ = ["RoundRobinAssignor", "in_order"]


def in_order(members: Members) -> list[str]:
    """Returns the member ids in order. Static members come first: they keep their place when their member id
    changes."""

    def key(item: tuple[str, Subscription]) -> tuple[bool, str]:
        member, subscription = item
        instance = subscription.group_instance_id
        return (True, member) if instance is None else (False, instance)

    return [member for member, _ in sorted(members.items(), key=key)]


class RoundRobinAssignor(Assignor):
    """Assigns partitions one by one to the members in turn."""

    name = "roundrobin"

    def assign(self, topics: Topics, members: Members) -> dict[str, list[TopicPartition]]:
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        subscribed = {member: frozenset(members[member].topics) for member in members}
        ordered = in_order(members)
        turn = 0
        for topic in sorted(topics.counts):
            if not any(topic in topics_of_member for topics_of_member in subscribed.values()):
                continue
            for tp in topics.partitions(topic):
                while topic not in subscribed[ordered[turn % len(ordered)]]:
                    turn += 1
                assigned[ordered[turn % len(ordered)]].append(tp)
                turn += 1
        return assigned
