"""Groups over a socket: every version of each API, errors, lost connections, restarts, the internal topic."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.net.wire_calls import topic_id
from tests.support.net.wire_client import ConnectionEnded, WireClient

from headrace.common.errors import (
    CoordinatorLoadInProgressError,
    GroupIdNotFoundError,
    InvalidGroupIdError,
    InvalidRequestError,
    MemberIdRequiredError,
    NonEmptyGroupError,
    UnknownMemberIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import Uuid
from headrace.coordinator.partitioner import partition_for
from headrace.protocol import Message, encode_request
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.testing import EmbeddedBroker

PROTOCOL = [JoinGroupRequestProtocol(name="range", metadata=b"meta")]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 3)
        with WireClient(broker.address) as client:
            client.call(FindCoordinatorRequest(coordinator_keys=["any"]))
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[WireClient]:
    with WireClient(broker.address) as client:
        yield client


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def join_request(group: str, member_id: str = "", **options: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=PROTOCOL,
        **options,
    )


def join(client: WireClient, group: str, version: int = 9, **options: Any) -> Any:
    reply = client.call(join_request(group, **options), version)
    if reply.error_code == MemberIdRequiredError.code:
        reply = client.call(join_request(group, reply.member_id, **options), version)
    assert reply.error_code == 0
    return reply


def make_stable(client: WireClient, group: str, **options: Any) -> tuple[str, int]:
    """Creates a group with one member. Returns member and generation."""
    joined = join(client, group, **options)
    shares = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")]
    request = SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=shares
    )
    assert client.call(request, 4).assignment == b"all"
    return joined.member_id, joined.generation_id


def commit_request(
    group: str, offset: int, topic: str = "t", partition: int = 0, topic_id: Uuid | None = None, **options: Any
) -> OffsetCommitRequest:
    one = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata="note", committed_leader_epoch=0
    )
    named = OffsetCommitRequestTopic(name=topic, partitions=[one])
    if topic_id is not None:
        named.topic_id = topic_id
    return OffsetCommitRequest(group_id=group, topics=[named], **options)


def commit(client: WireClient, group: str, offset: int, version: int = 9, **options: Any) -> int:
    ((one,),) = (topic.partitions for topic in client.call(commit_request(group, offset, **options), version).topics)
    return int(one.error_code)


def committed(client: WireClient, group: str, topic: str = "t", partition: int = 0) -> int:
    asked = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
    )
    (found,) = client.call(OffsetFetchRequest(groups=[asked]), 9).groups
    assert found.error_code == 0
    return int(found.topics[0].partitions[0].committed_offset)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ---- finding


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [0, 1])
def test_find_coordinator(broker: EmbeddedBroker, client: WireClient, version: int, key_type: int) -> None:
    request = FindCoordinatorRequest(
        key="g", key_type=key_type if version else 0, coordinator_keys=["g", "h"] if version >= 4 else []
    )
    reply = client.call(request, version)
    found = reply.coordinators if version >= 4 else [reply]
    assert len(found) == (2 if version >= 4 else 1)
    for each in found:
        assert (each.error_code, each.node_id, each.host, each.port) == (0, 0, *broker.address)


@pytest.mark.parametrize("version", [3, 6])
def test_find_coordinator_of_other_key_types(client: WireClient, version: int) -> None:
    reply = client.call(
        FindCoordinatorRequest(key="g", key_type=2, coordinator_keys=["g"] if version > 3 else []), version
    )
    found = reply.coordinators[0] if version > 3 else reply
    assert (found.error_code, found.node_id) == (InvalidRequestError.code, -1)


def test_creates_the_internal_topic(client: WireClient) -> None:
    (topic,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")])).topics
    assert topic.is_internal
    assert len(topic.partitions) == 50
    resource = DescribeConfigsResource(resource_type=2, resource_name="__consumer_offsets", configuration_keys=None)
    (result,) = client.call(DescribeConfigsRequest(resources=[resource])).results
    configs = {config.name: config.value for config in result.configs}
    assert configs["cleanup.policy"] == "compact"
    assert configs["compression.type"] == "producer"
    assert configs["segment.bytes"] == "104857600"


# ---- members


@pytest.mark.parametrize("version", range(10))
def test_join_group(client: WireClient, group: str, version: int) -> None:
    joined = join(client, group, version)
    assert joined.generation_id == 1
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("wire-")
    assert joined.protocol_name == "range"
    assert [member.metadata for member in joined.members] == [b"meta"]
    assert joined.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize("version", range(6))
def test_sync_group(client: WireClient, group: str, version: int) -> None:
    joined = join(client, group)
    request = SyncGroupRequest(
        group_id=group,
        generation_id=1,
        member_id=joined.member_id,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")],
    )
    for _ in range(2):
        synced = client.call(request, version)
        assert (synced.error_code, synced.assignment) == (0, b"mine")


@pytest.mark.parametrize("version", range(5))
def test_heartbeat(client: WireClient, group: str, version: int) -> None:
    member_id, generation = make_stable(client, group)
    request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
    assert client.call(request, version).error_code == 0
    request.member_id = "nobody"
    assert client.call(request, version).error_code == UnknownMemberIdError.code


@pytest.mark.parametrize("version", range(6))
def test_leave_group(client: WireClient, group: str, version: int) -> None:
    member_id, _ = make_stable(client, group)
    for expected in (0, UnknownMemberIdError.code):
        if version < 3:
            assert client.call(LeaveGroupRequest(group_id=group, member_id=member_id), version).error_code == expected
        else:
            members = [MemberIdentity(member_id=member_id)]
            reply = client.call(LeaveGroupRequest(group_id=group, members=members), version)
            assert [each.error_code for each in reply.members] == [expected]


def test_static_members(client: WireClient, group: str) -> None:
    old, generation = make_stable(client, group, group_instance_id="one")
    again = client.call(join_request(group, group_instance_id="one"), 9)
    assert (again.generation_id, again.skip_assignment) == (generation, True)
    assert again.member_id != old


def test_lost_connection_does_not_stop_the_group(broker: EmbeddedBroker, client: WireClient, group: str) -> None:
    member_id, _ = make_stable(client, group)
    with WireClient(broker.address) as other:
        other.send(join_request(group), 3)
        until(lambda: client.call(DescribeGroupsRequest(groups=[group])).groups[0].group_state == "PreparingRebalance")
    joined = client.call(join_request(group, member_id), 9)
    assert joined.error_code == 0
    assert len(joined.members) == 2  # the lost member stays until its session expires


# ---- offsets


@pytest.mark.parametrize("version", range(2, 11))
def test_offset_commit_and_fetch(client: WireClient, group: str, version: int) -> None:
    known = topic_id(client)
    assert commit(client, group, 7, version, topic="t" if version < 10 else "", topic_id=known) == 0
    assert committed(client, group) == 7


def test_offset_commit_to_missing_partitions(client: WireClient, group: str) -> None:
    assert commit(client, group, 7, topic="nope") == UnknownTopicOrPartitionError.code
    assert commit(client, group, 7, partition=99) == UnknownTopicOrPartitionError.code
    assert commit(client, group, 7, 10, topic="", topic_id=Uuid(int=5)) == UnknownTopicIdError.code
    assert commit(client, group, 7, member_id="m", generation_id_or_member_epoch=3) != 0
    assert committed(client, group) == -1


@pytest.mark.parametrize("version", range(1, 8))
def test_offset_fetch_of_one_group(client: WireClient, group: str, version: int) -> None:
    commit(client, group, 7)
    asked = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    reply = client.call(OffsetFetchRequest(group_id=group, topics=asked), version)
    assert reply.error_code == 0
    found = [(one.committed_offset, one.metadata, one.error_code) for one in reply.topics[0].partitions]
    assert found == [(7, "note", 0), (-1, "", 0)]
    if version >= 5:
        assert [one.committed_leader_epoch for one in reply.topics[0].partitions] == [0, -1]
    if version >= 2:
        everything = client.call(OffsetFetchRequest(group_id=group, topics=None), version)
        assert [(topic.name, len(topic.partitions)) for topic in everything.topics] == [("t", 1)]


@pytest.mark.parametrize("version", [8, 9, 10])
def test_offset_fetch_of_several_groups(client: WireClient, group: str, version: int) -> None:
    commit(client, group, 7)
    topics = [
        OffsetFetchRequestTopics(name="t" if version < 10 else "", topic_id=topic_id(client), partition_indexes=[0])
    ]
    asked = [
        OffsetFetchRequestGroup(group_id=group, topics=topics),
        OffsetFetchRequestGroup(group_id=group + "-not", topics=topics),
        OffsetFetchRequestGroup(group_id=group + "-all", topics=None),
    ]
    reply = client.call(OffsetFetchRequest(groups=asked, require_stable=True), version)
    assert [each.group_id for each in reply.groups] == [each.group_id for each in asked]
    assert [[one.committed_offset for topic in each.topics for one in topic.partitions] for each in reply.groups] == [
        [7],
        [-1],
        [],
    ]
    if version >= 10:
        topics[0].topic_id = Uuid(int=5)
        (found,) = client.call(OffsetFetchRequest(groups=asked[:1]), version).groups
        assert found.topics[0].partitions[0].error_code == UnknownTopicIdError.code


def test_offset_delete(client: WireClient, group: str) -> None:
    commit(client, group, 7)
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 99)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
    reply = client.call(OffsetDeleteRequest(group_id=group, topics=topics))
    assert reply.error_code == 0
    codes = [one.error_code for one in reply.topics[0].partitions]
    assert codes == [0, UnknownTopicOrPartitionError.code]
    assert committed(client, group) == -1
    assert client.call(OffsetDeleteRequest(group_id=group + "-not")).error_code == GroupIdNotFoundError.code
    assert client.call(OffsetDeleteRequest(group_id="")).error_code == InvalidGroupIdError.code


def test_deleting_a_topic_deletes_its_offsets(broker: EmbeddedBroker, client: WireClient, group: str) -> None:
    broker.create_topic("short-lived", 1)
    commit(client, group, 7, topic="short-lived")
    commit(client, group, 8)
    broker.delete_topic("short-lived")
    until(lambda: committed(client, group, "short-lived") == -1)
    assert committed(client, group) == 8


# ---- administration


@pytest.mark.parametrize("version", range(7))
def test_describe_groups(client: WireClient, group: str, version: int) -> None:
    member_id, _ = make_stable(client, group)
    request = DescribeGroupsRequest(groups=[group, group + "-not"], include_authorized_operations=version >= 3)
    found, missing = client.call(request, version).groups
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    (member,) = found.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "wire", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"meta", b"all")
    assert missing.group_state == "Dead"
    assert missing.error_code == (GroupIdNotFoundError.code if version >= 6 else 0)


@pytest.mark.parametrize("version", range(6))
def test_list_groups(client: WireClient, group: str, version: int) -> None:
    make_stable(client, group)
    commit(client, group + "-simple", 1)

    def listed(**filters: Any) -> dict[str, Any]:
        reply = client.call(ListGroupsRequest(**filters), version)
        assert reply.error_code == 0
        return {each.group_id: each for each in reply.groups}

    everything = listed()
    assert everything[group].protocol_type == "consumer"
    assert everything[group + "-simple"].protocol_type == ""
    if version >= 4:
        assert everything[group].group_state == "Stable"
        assert group not in listed(states_filter=["Empty"])
        assert group + "-simple" in listed(states_filter=["empty", "Dead"])
    if version >= 5:
        assert everything[group].group_type == "classic"
        assert group in listed(types_filter=["classic"])
        assert listed(types_filter=["consumer"]) == {}


@pytest.mark.parametrize("version", range(3))
def test_delete_groups(client: WireClient, group: str, version: int) -> None:
    make_stable(client, group)
    commit(client, group + "-simple", 1)
    names = [group, group + "-simple", group + "-not", ""]
    results = client.call(DeleteGroupsRequest(groups_names=names), version).results
    assert [(each.group_id, each.error_code) for each in results] == [
        (group, NonEmptyGroupError.code),
        (group + "-simple", 0),
        (group + "-not", GroupIdNotFoundError.code),
        ("", GroupIdNotFoundError.code),
    ]
    assert committed(client, group + "-simple") == -1


def test_empty_requests(client: WireClient) -> None:
    assert client.call(FindCoordinatorRequest()).coordinators == []
    assert client.call(DescribeGroupsRequest()).groups == []
    assert client.call(DeleteGroupsRequest()).results == []
    assert client.call(OffsetFetchRequest()).groups == []
    assert client.call(OffsetCommitRequest(group_id="g")).topics == []
    assert client.call(LeaveGroupRequest(group_id="nobody-here")).members == []


# ---- bad input


@pytest.mark.parametrize(
    "request_",
    [
        FindCoordinatorRequest(coordinator_keys=["g"]),
        join_request("bad"),
        SyncGroupRequest(group_id="bad"),
        HeartbeatRequest(group_id="bad"),
        LeaveGroupRequest(group_id="bad", members=[MemberIdentity(member_id="m")]),
        commit_request("bad", 1),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="bad", topics=None)]),
        OffsetDeleteRequest(group_id="bad"),
        DescribeGroupsRequest(groups=["bad"]),
        ListGroupsRequest(states_filter=["Empty"]),
        DeleteGroupsRequest(groups_names=["bad"]),
    ],
    ids=lambda request: type(request).__name__,
)
def test_truncated_request_closes_the_connection(broker: EmbeddedBroker, request_: Message) -> None:
    from headrace.protocol.apis import APIS

    version = APIS[ApiKey(type(request_).__api_key__)].last_version
    whole = encode_request(request_, version, 1, "wire")
    for end in range(len(whole) - 1, 12 + len("wire"), -3):
        with WireClient(broker.address) as client:
            client.sock.sendall((end - 4).to_bytes(4, "big") + whole[4:end])
            with pytest.raises(ConnectionEnded):
                client.receive_frame()


# ---- restarts


@pytest.mark.parametrize("clean", [True, False])
def test_groups_and_offsets_survive_a_restart(clean: bool) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 1)
        with WireClient(broker.address) as client:
            client.call(FindCoordinatorRequest(coordinator_keys=["g"]))
            member_id, generation = make_stable(client, "g")
            options = {"member_id": member_id, "generation_id_or_member_epoch": generation}
            for offset in range(100):
                assert commit(client, "g", offset, **options) == 0
            commit(client, "simple", 5)
        broker.restart(clean=clean)
        with WireClient(broker.address) as client:
            heartbeat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
            assert client.call(heartbeat).error_code == 0
            until(lambda: client.call(ListGroupsRequest()).error_code == 0)
            assert (committed(client, "g"), committed(client, "simple")) == (99, 5)
            assert commit(client, "g", 100, **options) == 0


def test_errors_while_a_partition_loads(broker: EmbeddedBroker, client: WireClient, group: str) -> None:
    commit(client, group, 5)
    index = partition_for(group, 50)
    slot = broker.call(lambda running: running.coordinators.groups._coordinators[index])
    loading = type(slot.state).LOADING
    active = slot.state
    slot.state = loading
    try:
        assert commit(client, group, 6) == CoordinatorLoadInProgressError.code
        assert client.call(join_request(group)).error_code == CoordinatorLoadInProgressError.code
        assert client.call(HeartbeatRequest(group_id=group)).error_code == 0
        assert client.call(ListGroupsRequest()).error_code == CoordinatorLoadInProgressError.code
        (found,) = client.call(DescribeGroupsRequest(groups=[group])).groups
        assert found.error_code == CoordinatorLoadInProgressError.code
        reply = client.call(OffsetFetchRequest(group_id=group, topics=None), 7)
        assert reply.error_code == CoordinatorLoadInProgressError.code
        asked = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        (topic,) = client.call(OffsetFetchRequest(group_id=group, topics=asked), 1).topics
        assert topic.partitions[0].error_code == CoordinatorLoadInProgressError.code
    finally:
        slot.state = active
    assert committed(client, group) == 5
