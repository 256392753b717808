"""Commands survive the way over the wire in every version, except what a version does not have."""

from dataclasses import replace

import pytest

from headrace.broker.control import wire
from headrace.cluster.commands import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    BrokerEndpoint,
    BrokerInfo,
    CommandResult,
    LeaderAndIsr,
    PartitionState,
    ReplicaToStop,
    StopReplica,
    UpdateMetadata,
)
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition
from headrace.protocol import Message, decode, encode
from headrace.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from headrace.protocol.messages.stop_replica import StopReplicaRequest
from headrace.protocol.messages.update_metadata import UpdateMetadataRequest

A, B = Uuid(int=1), Uuid(int=2)
BROKERS = (
    BrokerInfo(
        1, (BrokerEndpoint("INSIDE", "one", 9092), BrokerEndpoint("OUTSIDE", "one.example", 9093, "SASL_SSL")), "r1"
    ),
    BrokerInfo(2, (BrokerEndpoint("INSIDE", "two", 9092),)),
)


def state(topic: str, topic_id: Uuid, index: int, **changes: object) -> PartitionState:
    made = PartitionState(
        TopicPartition(topic, index), topic_id, 1, 7, (1, 2), 9, (1, 2, 3), (3,), (2,), controller_epoch=4
    )
    return replace(made, **changes)  # type: ignore[arg-type]


LEADER_AND_ISR = LeaderAndIsr(
    1,
    5,
    77,
    [state("a", A, 0, is_new=True), state("b", B, 3, leader_recovery_state=1), state("a", A, 1, leader=-1, isr=())],
)
UPDATE_METADATA = UpdateMetadata(
    1,
    5,
    77,
    BROKERS,
    [
        state("a", A, 0, adding=(), removing=(), offline_replicas=(3,)),
        state("b", B, 3, adding=(), removing=(), leader=-2),
    ],
    full=True,
)
STOP_REPLICA = StopReplica(
    1,
    5,
    77,
    [
        ReplicaToStop(TopicPartition("a", 0), 7, False),
        ReplicaToStop(TopicPartition("b", 3), EPOCH_DURING_DELETE, True),
        ReplicaToStop(TopicPartition("a", 1), 8, False),
    ],
)


def over_the_wire(message: Message, version: int) -> Message:
    data = encode(message, version)
    assert isinstance(data, bytes)
    return decode(type(message), version, data)


@pytest.mark.parametrize("version", range(8))
def test_leader_and_isr(version: int) -> None:
    (request,) = wire.encode_command(LEADER_AND_ISR, version, [(1, "one", 9092)])
    received = over_the_wire(request, version)
    assert isinstance(received, LeaderAndIsrRequest)
    assert [(leader.broker_id, leader.host_name, leader.port) for leader in received.live_leaders] == [(1, "one", 9092)]
    decoded = wire.decode_leader_and_isr(received)
    assert (decoded.controller_id, decoded.controller_epoch) == (1, 5)
    assert decoded.broker_epoch == (77 if version >= 2 else -1)
    expected = sorted(LEADER_AND_ISR.partitions, key=lambda found: found.tp)
    if version < 1:
        expected = [replace(found, is_new=False) for found in expected]
    if version < 3:
        expected = [replace(found, adding=(), removing=()) for found in expected]
    if version < 5:
        expected = [replace(found, topic_id=ZERO_UUID) for found in expected]
    if version < 6:
        expected = [replace(found, leader_recovery_state=0) for found in expected]
    assert sorted(decoded.partitions, key=lambda found: found.tp) == expected

    result = CommandResult(partition_errors={TopicPartition("b", 3): 56})
    response = over_the_wire(wire.leader_and_isr_response(decoded, result, version), version)
    assert wire.decode_result(LEADER_AND_ISR, [response]) == result
    refused = CommandResult(error_code=11)
    response = over_the_wire(wire.leader_and_isr_response(decoded, refused, version), version)
    assert wire.decode_result(LEADER_AND_ISR, [response]).error_code == 11


@pytest.mark.parametrize("version", range(5))
def test_stop_replica(version: int) -> None:
    requests = wire.encode_command(STOP_REPLICA, version)
    assert len(requests) == (1 if version >= 3 else 2)
    decoded = []
    for request in requests:
        received = over_the_wire(request, version)
        assert isinstance(received, StopReplicaRequest)
        decoded.append(wire.decode_stop_replica(received))
    expected = sorted(STOP_REPLICA.partitions)
    if version < 3:
        expected = [replica._replace(leader_epoch=NO_EPOCH) for replica in expected]
    assert sorted(replica for command in decoded for replica in command.partitions) == expected
    assert {command.broker_epoch for command in decoded} == {77 if version >= 1 else -1}

    result = CommandResult(partition_errors={TopicPartition("a", 1): 74})
    responses = [over_the_wire(wire.stop_replica_response(command, result), version) for command in decoded]
    assert wire.decode_result(STOP_REPLICA, responses) == result


@pytest.mark.parametrize("version", range(9))
def test_update_metadata(version: int) -> None:
    (request,) = wire.encode_command(UPDATE_METADATA, version)
    received = over_the_wire(request, version)
    assert isinstance(received, UpdateMetadataRequest)
    decoded = wire.decode_update_metadata(received, version)
    assert decoded.full == (version >= 8)
    assert decoded.broker_epoch == (77 if version >= 5 else -1)
    expected = list(UPDATE_METADATA.partitions)
    if version < 4:
        expected = [replace(found, offline_replicas=()) for found in expected]
    if version < 7:
        expected = [replace(found, topic_id=ZERO_UUID) for found in expected]
    assert decoded.partitions == expected
    first, second = decoded.brokers
    if version >= 3:
        assert (first, second) == BROKERS
    elif version >= 1:
        assert [endpoint.listener for endpoint in first.endpoints] == ["PLAINTEXT", "SASL_SSL"]
        assert first.rack == ("r1" if version >= 2 else None)
    else:
        assert second.endpoints == (BrokerEndpoint("PLAINTEXT", "two", 9092),)
    response = over_the_wire(wire.update_metadata_response(CommandResult(error_code=77)), version)
    assert wire.decode_result(UPDATE_METADATA, [response]).error_code == 77


def test_the_bytes_of_a_leader_and_isr_request() -> None:
    (request,) = wire.encode_command(LeaderAndIsr(1, 5, 77, [state("a", A, 0, is_new=True)]), 7, [(1, "h", 9092)])
    assert bytes(encode(request, 7)).hex(" ") == (
        "00 00 00 01 00 00 00 00 05 00 00 00 00 00 00 00 4d 00 02 02 61 "
        "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 02 "
        "00 00 00 00 00 00 00 04 00 00 00 01 00 00 00 07 03 00 00 00 01 00 00 00 02 00 00 00 09 "
        "04 00 00 00 01 00 00 00 02 00 00 00 03 02 00 00 00 03 02 00 00 00 02 01 00 00 00 "
        "02 00 00 00 01 02 68 00 00 23 84 00 00"
    )
