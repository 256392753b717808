"""The consumer protocol, compared with the bytes of Kafka and the decoders of other clients."""

import struct

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from headrace.client.group.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from headrace.common.types import TopicPartition
from headrace.protocol import ProtocolError

OWNED = (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))
FULL = Subscription(("a", "b"), b"data", OWNED, 7, "rack")


@pytest.mark.parametrize("version", range(4))
def test_subscription_round_trip(version: int) -> None:
    data = encode_subscription(FULL, version)
    assert struct.unpack_from(">h", data) == (version,)
    found = decode_subscription(data, "instance")
    assert found.topics == FULL.topics
    assert found.user_data == b"data"
    assert found.owned == (OWNED if version >= 1 else ())
    assert found.generation == (7 if version >= 2 else -1)
    assert found.rack == ("rack" if version >= 3 else None)
    assert found.group_instance_id == "instance"


def test_subscription_bytes() -> None:
    expected = (
        b"\x00\x03"  # version 3
        b"\x00\x00\x00\x01\x00\x01t"  # topics
        b"\xff\xff\xff\xff"  # no user data
        b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x05"  # owned: t-5
        b"\x00\x00\x00\x02"  # generation
        b"\xff\xff"  # no rack
    )
    subscription = Subscription(("t",), owned=(TopicPartition("t", 5),), generation=2)
    assert encode_subscription(subscription) == expected
    assert decode_subscription(expected) == subscription


def test_assignment_bytes() -> None:
    expected = b"\x00\x03\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff"
    assignment = Assignment((TopicPartition("t", 0), TopicPartition("t", 1)))
    assert encode_assignment(assignment) == expected
    assert decode_assignment(memoryview(expected)) == assignment


def test_newer_versions_are_read_as_latest_known() -> None:
    data = bytearray(encode_subscription(FULL) + b"what comes after")
    data[:2] = struct.pack(">h", 9)
    assert decode_subscription(data) == FULL
    more = bytearray(encode_assignment(Assignment(OWNED)) + b"what comes after")
    more[:2] = struct.pack(">h", 9)
    assert decode_assignment(more).partitions == OWNED


def test_empty_assignment() -> None:
    assert decode_assignment(b"") == Assignment(())


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff", b"\x00\x00\x00\x00\x00\x05"])
def test_rejects_invalid_subscriptions(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_subscription(data)


def test_aiokafka_reads_subscriptions() -> None:
    read = ConsumerProtocolMemberMetadata.decode(encode_subscription(FULL))
    assert read.subscription == ["a", "b"]
    assert read.user_data == b"data"
    assigned = ConsumerProtocolMemberAssignment.decode(encode_assignment(Assignment(OWNED)))
    assert [(tp.topic, tp.partition) for tp in assigned.partitions()] == [(tp.topic, tp.partition) for tp in OWNED]
