"""What the members of a group tell each other: the bytes inside JoinGroup and SyncGroup, which the coordinator only
passes on.

    subscription   version int16, ConsumerProtocolSubscription   from each member to the leader
    assignment     version int16, ConsumerProtocolAssignment     from the leader to each member

Both are written in the highest version known here. A newer one that others write is read as the highest known here:
versions only add fields at the end (KIP-429 owned partitions, KIP-792 generation, KIP-881 rack).
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.common.types import Buffer, TopicPartition
from headrace.protocol import ProtocolError, decode, encode
from headrace.protocol.messages import consumer_protocol_assignment as assignments
from headrace.protocol.messages import consumer_protocol_subscription as subscriptions

__all__ = [
    "NO_GENERATION",
    "PROTOCOL_TYPE",
    "Assignment",
    "Subscription",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
    "group_by_topic",
]

PROTOCOL_TYPE: Final = "consumer"
NO_GENERATION: Final = -1
VERSION: Final = 3
"""Of both, to write."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member as the leader of its group sees it."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    """What the member's assignor adds."""
    owned: tuple[TopicPartition, ...] = ()
    """What the member reads as it joins; empty under the eager protocol."""
    generation: int = NO_GENERATION
    """When it was given them."""
    rack: str | None = None
    group_instance_id: str | None = None
    """Comes with the JoinGroup reply, not in the subscription's bytes."""


@dataclass(frozen=True, slots=True)
class Assignment:
    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def group_by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, topics in the order in which they are first seen."""
    found: dict[str, list[int]] = {}
    for tp in tps:
        found.setdefault(tp.topic, []).append(tp.partition)
    return found


def encode_subscription(subscription: Subscription, version: int = VERSION) -> bytes:
    message = subscriptions.ConsumerProtocolSubscription(
        topics=list(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            subscriptions.TopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in group_by_topic(subscription.owned).items()
        ],
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    )
    return struct.pack(">h", version) + encode(message, version)


def decode_subscription(data: Buffer, group_instance_id: str | None = None) -> Subscription:
    version = _read_version(data, "subscription")
    message = decode(subscriptions.ConsumerProtocolSubscription, version, data, 2)
    return Subscription(
        topics=tuple(message.topics),
        user_data=_copied(message.user_data),
        owned=_flat(message.owned_partitions),
        generation=max(message.generation_id, NO_GENERATION),
        rack=message.rack_id,
        group_instance_id=group_instance_id,
    )


def encode_assignment(assignment: Assignment, version: int = VERSION) -> bytes:
    message = assignments.ConsumerProtocolAssignment(
        assigned_partitions=[
            assignments.TopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in group_by_topic(assignment.partitions).items()
        ],
        user_data=assignment.user_data,
    )
    return struct.pack(">h", version) + encode(message, version)


def decode_assignment(data: Buffer) -> Assignment:
    """An empty one is what a member gets that the leader has left out."""
    if not len(data):
        return Assignment(())
    version = _read_version(data, "assignment")
    message = decode(assignments.ConsumerProtocolAssignment, version, data, 2)
    return Assignment(_flat(message.assigned_partitions), _copied(message.user_data))


def _read_version(data: Buffer, what: str) -> int:
    if len(data) < 2:
        raise ProtocolError(f"a member's {what} has {len(data)} bytes: expected at least 2, its version")
    version: int = struct.unpack_from(">h", data)[0]
    if version < 0:
        raise ProtocolError(f"a member's {what} has version {version}: expected 0 or more")
    return min(version, VERSION)


def _flat(
    topics: Sequence[subscriptions.TopicPartition] | Sequence[assignments.TopicPartition],
) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(each.topic, partition) for each in topics for partition in each.partitions)


def _copied(data: Buffer | None) -> bytes | None:
    return None if data is None else bytes(data)
