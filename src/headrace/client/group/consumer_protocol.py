"""The consumer protocol: the bytes in JoinGroup and SyncGroup that the coordinator only forwards.

    subscription   version int16, ConsumerProtocolSubscription   from each member to the leader
    assignment     version int16, ConsumerProtocolAssignment     from the leader to each member

Both are written in version 3. A newer version is read as version 3: versions only add fields at the end (KIP-429 owned
partitions, KIP-792 generation, KIP-881 rack).
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
"""The version of subscriptions and assignments that this client writes."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription of a member, as the leader receives it."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    """Data of the member's assignor."""
    owned: tuple[TopicPartition, ...] = ()
    """The partitions that the member owns when it joins. Empty with the eager protocol."""
    generation: int = NO_GENERATION
    """The generation in which it received them."""
    rack: str | None = None
    group_instance_id: str | None = None
    """From the JoinGroup response, not from the subscription's bytes."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions of one member."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def group_by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns partition numbers by topic. Topics keep the order of their first partition."""
    by_topic: dict[str, list[int]] = {}
    for tp in tps:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return by_topic


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
        user_data=_copy(message.user_data),
        owned=_to_partitions(message.owned_partitions),
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
    """Decodes an assignment. Empty bytes mean that the leader has assigned nothing to this member."""
    if not len(data):
        return Assignment(())
    version = _read_version(data, "assignment")
    message = decode(assignments.ConsumerProtocolAssignment, version, data, 2)
    return Assignment(_to_partitions(message.assigned_partitions), _copy(message.user_data))


def _read_version(data: Buffer, kind: str) -> int:
    if len(data) < 2:
        raise ProtocolError(f"consumer protocol {kind} has {len(data)} bytes: expected at least 2 for its version")
    version: int = struct.unpack_from(">h", data)[0]
    if version < 0:
        raise ProtocolError(f"consumer protocol {kind} has version {version}: expected 0 or more")
    return min(version, VERSION)


def _to_partitions(
    topics: Sequence[subscriptions.TopicPartition] | Sequence[assignments.TopicPartition],
) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions)


def _copy(data: Buffer | None) -> bytes | None:
    return None if data is None else bytes(data)
