"""Well-formed but invalid requests to the coordinators, and the error that each gets.

The expected errors are Apache Kafka's. The requests are sent over a plain socket, because no client would send them.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from tests.support.broker.admin_clients import ConfluentAdmin
from tests.support.broker.process import Broker, eventually
from tests.support.broker.under_test import make_broker
from tests.support.net.routing_client import RoutingClient
from tests.support.net.wire_calls import batch, produce_request, topic_id
from tests.support.net.wire_client import WireClient

from headrace.common.errors import ERRORS_BY_CODE
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.protocol import Message
from headrace.protocol.message import parse_versions
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.list_transactions import ListTransactionsRequest
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
    OffsetFetchRequestTopics,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

TOPIC = "errors"
LARGEST = 2**31 - 1
SESSION_MS = 300_000
NOT_NOW = {14, 15, 16, 51}
"""Errors of a coordinator that is not ready, or of a transaction that is still ending."""
STRANGER = "nobody-0123456789abcdef"
UNKNOWN_ID = Uuid(int=0x1234567890ABCDEF1234567890ABCDEF)


@dataclass
class World:
    """The state of the broker before the requests."""

    client: RoutingClient
    topic: str
    topic_id: Uuid = ZERO_UUID
    dynamic: str = "errors-dynamic"
    """A stable consumer group with one dynamic member that reads the topic."""
    static: str = "errors-static"
    """A group with a static member, `instance`."""
    other: str = "errors-other"
    """A group whose members are not consumers."""
    empty: str = "errors-empty"
    """A group with an offset and no members."""
    members: dict[str, str] = field(default_factory=dict)
    """The member of each group; all are in generation 1."""
    idle: str = "errors-idle"
    """A transactional id without a transaction; its epoch is 1."""
    open: str = "errors-open"
    """A transactional id with an open transaction in partition 0 and no group; its epoch is 1."""
    producers: dict[str, int] = field(default_factory=dict)


def join(group: str, member: str = "", **options: Any) -> JoinGroupRequest:
    defaults: dict[str, Any] = {
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"")],
    }
    return JoinGroupRequest(group_id=group, member_id=member, **{**defaults, **options})


def subscription(topic: str) -> bytes:
    name = topic.encode()
    return b"\x00\x00" + (1).to_bytes(4, "big") + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"


def make_member(world: World, group: str, protocol_type: str = "consumer", instance: str | None = None) -> None:
    """Uses its own connection, because the first join takes a while."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription(world.topic))]
    options = {"protocol_type": protocol_type, "group_instance_id": instance, "protocols": protocols}
    with WireClient(world.client.group_coordinator, timeout=60.0) as client:
        joined = client.call(join(group, **options), 9)
        if instance is None:
            joined = client.call(join(group, joined.member_id, **options), 9)
        assert (joined.error_code, joined.generation_id) == (0, 1), joined
        world.members[group] = joined.member_id
        synced = client.call(
            SyncGroupRequest(
                group_id=group,
                generation_id=1,
                member_id=joined.member_id,
                group_instance_id=instance,
                protocol_type=protocol_type,
                protocol_name="range",
                assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")],
            ),
            5,
        )
        assert synced.error_code == 0, synced


def init(name: str | None, **options: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=name, **{"transaction_timeout_ms": 600_000, **options})


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker, or a cluster with one coordinator of each kind."""
    settings = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    with make_broker(tmp_path_factory.mktemp("errors") / "data", settings) as running:
        yield running


@pytest.fixture(scope="module")
def world(own_broker: Broker) -> Iterator[World]:
    admin = ConfluentAdmin(own_broker.bootstrap)
    nodes = list(admin.cluster().nodes)
    admin.create(TOPIC, assignment={0: nodes, 1: nodes})
    with RoutingClient(own_broker.bootstrap, TOPIC) as client, ThreadPoolExecutor() as pool:
        made = World(client, TOPIC)
        made.topic_id = topic_id(client, made.topic)
        wait_for_coordinators(client)
        members = [
            pool.submit(make_member, made, made.dynamic),
            pool.submit(make_member, made, made.static, instance="instance"),
            pool.submit(make_member, made, made.other, protocol_type="connect"),
        ]
        assert codes_in(client.call(commit(made.empty, made.topic), 9), 9) == {0}
        for name in (made.idle, made.open):
            for _ in range(2):
                given = call_until_ready(client, init(name), 5)
                assert given.error_code == 0, given
            made.producers[name] = given.producer_id
        assert codes_in(client.call(add(made, made.open), 3), 3) == {0}
        data = batch(
            b"open", producer_id=made.producers[made.open], producer_epoch=1, base_sequence=0, transactional=True
        )
        produced = produce_request(data, made.topic, acks=-1)
        produced.transactional_id = made.open
        assert codes_in(client.call(produced, 11), 11) == {0}
        for member in members:
            member.result()
        yield made
        client.call(end(made, made.open, committed=False), 4)


def call_until_ready(client: RoutingClient, request: Message, version: int) -> Any:
    """Retries while the coordinator is not ready."""
    reply: Any = None

    def is_ready() -> bool:
        nonlocal reply
        reply = client.call(request, version)
        return not NOT_NOW & codes_in(reply, version)

    eventually(is_ready, f"an answer to {type(request).__name__}")
    return reply


def wait_for_coordinators(client: RoutingClient) -> None:
    """Waits until the internal topics are created and loaded."""
    names = [f"any-{number}" for number in range(200)]

    def all_ready() -> bool:
        replies = [
            (client.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=names), 4), 4) for kind in (0, 1)
        ]
        replies.append((client.call(DescribeGroupsRequest(groups=names), 5), 5))
        replies.append((client.call(DescribeTransactionsRequest(transactional_ids=names), 0), 0))
        return not any(NOT_NOW & codes_in(reply, version) for reply, version in replies)

    eventually(all_ready, "the coordinators are there")


def codes_in(reply: Message, version: int) -> set[int]:
    """Returns all error codes of a response."""
    found: set[int] = set()
    for each in type(reply).__fields__:
        low, high = parse_versions(each.versions)
        if not low <= version <= high:
            continue
        value = getattr(reply, each.name)
        if each.name in ("error_code", "partition_error_code"):
            found.add(value)
        elif each.struct is not None and value is not None:
            for one in value if each.is_array else [value]:
                found |= codes_in(one, version)
    return found


# ---- requests


def sync(world: World, group: str, member: str | None = None, **options: Any) -> SyncGroupRequest:
    defaults: dict[str, Any] = {"generation_id": 1, "protocol_type": "consumer", "protocol_name": "range"}
    chosen = world.members.get(group, "") if member is None else member
    return SyncGroupRequest(group_id=group, member_id=chosen, **{**defaults, **options})


def beat(world: World, group: str, member: str | None = None, **options: Any) -> HeartbeatRequest:
    chosen = world.members.get(group, "") if member is None else member
    return HeartbeatRequest(group_id=group, member_id=chosen, **{"generation_id": 1, **options})


def leave(group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    return LeaveGroupRequest(
        group_id=group,
        members=[MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members],
    )


def commit(
    group: str,
    topic: str,
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
    topic_id: Uuid = ZERO_UUID,
    partitions: tuple[int, ...] = (0,),
    **partition: Any,
) -> OffsetCommitRequest:
    asked = [
        OffsetCommitRequestPartition(partition_index=index, **{"committed_offset": 0, **partition})
        for index in partitions
    ]
    return OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=generation,
        group_instance_id=instance,
        topics=[OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=asked)],
    )


def offsets(group: str, topic: str | None, partition: int = 0, **options: Any) -> OffsetFetchRequest:
    topics = None
    if topic is not None:
        topics = [OffsetFetchRequestTopics(name=topic, topic_id=UNKNOWN_ID, partition_indexes=[partition])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics, **options)])


def take_back(group: str, topic: str, partition: int = 0) -> OffsetDeleteRequest:
    asked = [OffsetDeleteRequestPartition(partition_index=partition)]
    return OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=asked)])


class Producer(NamedTuple):
    id: int
    epoch: int


def producer_of(world: World, name: str, producer_id: int | None, epoch: int) -> Producer:
    return Producer(world.producers.get(name, 0) if producer_id is None else producer_id, epoch)


def add(
    world: World, name: str, producer_id: int | None = None, epoch: int = 1, topic: str | None = None, *partitions: int
) -> AddPartitionsToTxnRequest:
    producer = producer_of(world, name, producer_id, epoch)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=world.topic if topic is None else topic, partitions=list(partitions or (0,)))
        ],
    )


def verify(
    world: World, name: str, producer_id: int | None = None, epoch: int = 1, partition: int = 0, only: bool = True
) -> AddPartitionsToTxnRequest:
    producer = producer_of(world, name, producer_id, epoch)
    one = AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        verify_only=only,
        topics=[AddPartitionsToTxnTopic(name=world.topic, partitions=[partition])],
    )
    return AddPartitionsToTxnRequest(transactions=[one])


def add_group(
    world: World, name: str, producer_id: int | None = None, epoch: int = 1, group: str = "errors-empty"
) -> AddOffsetsToTxnRequest:
    producer = producer_of(world, name, producer_id, epoch)
    return AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer.id, producer_epoch=producer.epoch, group_id=group
    )


def commit_in(
    world: World,
    name: str,
    group: str = "errors-empty",
    producer_id: int | None = None,
    epoch: int = 1,
    topic: str | None = None,
    partition: int = 0,
    metadata: str = "",
    **options: Any,
) -> TxnOffsetCommitRequest:
    producer = producer_of(world, name, producer_id, epoch)
    asked = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=0, committed_metadata=metadata)
    topics = [TxnOffsetCommitRequestTopic(name=world.topic if topic is None else topic, partitions=[asked])]
    return TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=topics,
        **options,
    )


def end(
    world: World, name: str, producer_id: int | None = None, epoch: int = 1, committed: bool = True
) -> EndTxnRequest:
    producer = producer_of(world, name, producer_id, epoch)
    return EndTxnRequest(
        transactional_id=name, producer_id=producer.id, producer_epoch=producer.epoch, committed=committed
    )


def mark(
    topic: str,
    producer_id: int = 1 << 40,
    epoch: int = 0,
    partition: int = 0,
    coordinator_epoch: int = 0,
    version: int = 0,
) -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        transaction_result=False,
        transaction_version=version,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
    )
    return WriteTxnMarkersRequest(markers=[marker])


# ---- invalid values


class Case(NamedTuple):
    what: str
    version: int
    request: Callable[[World], Message]
    expected: str
    """Returns the names of errors, or NONE."""


CASES: list[Case] = []


def case(what: str, version: int, expected: str, request: Callable[[World], Message]) -> None:
    CASES.append(Case(what, version, request, expected))


def find(kind: int, *keys: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))


for kind, named in ((0, "group"), (1, "transactional id")):
    case(f"find: no {named}", 4, "NONE", lambda w, kind=kind: find(kind, ""))
    case(f"find: longest {named}", 4, "NONE", lambda w, kind=kind: find(kind, "n" * 32_767))
case("find: unknown type", 4, "INVALID_REQUEST", lambda w: find(3, "k"))
case("find: negative type", 6, "INVALID_REQUEST", lambda w: find(-1, "k"))
case("commit: 4000 times the same", 9, "NONE", lambda w: commit(w.empty, w.topic, partitions=(0,) * 4000))
case("leave: 4000 strangers", 5, "NONE UNKNOWN_MEMBER_ID", lambda w: leave(w.dynamic, *[(STRANGER, None)] * 4000))
case("find: nothing", 6, "", lambda w: find(0))

case("join: no group", 9, "INVALID_GROUP_ID", lambda w: join(""))
for version in (0, 3, 5, 9):
    case(f"join: unknown member {version}", version, "UNKNOWN_MEMBER_ID", lambda w: join(w.dynamic, STRANGER))
    case(f"join: unknown group {version}", version, "UNKNOWN_MEMBER_ID", lambda w: join("errors-none", STRANGER))
for session_ms in (0, -1, 1, 5_999, 1_800_001, LARGEST, -LARGEST):
    case(
        f"join: session of {session_ms} ms",
        9,
        "INVALID_SESSION_TIMEOUT",
        lambda w, session_ms=session_ms: join(w.dynamic, session_timeout_ms=session_ms),
    )
case("join: no protocols", 9, "INCONSISTENT_GROUP_PROTOCOL", lambda w: join(w.dynamic, protocols=[]))
case("join: no protocols, new group", 9, "INCONSISTENT_GROUP_PROTOCOL", lambda w: join("errors-none", protocols=[]))
case("join: no type", 9, "INCONSISTENT_GROUP_PROTOCOL", lambda w: join(w.dynamic, protocol_type=""))
case("join: no type, new group", 9, "INCONSISTENT_GROUP_PROTOCOL", lambda w: join("errors-none", protocol_type=""))
case("join: other type", 9, "INCONSISTENT_GROUP_PROTOCOL", lambda w: join(w.dynamic, protocol_type="connect"))
case(
    "join: other protocols",
    9,
    "INCONSISTENT_GROUP_PROTOCOL",
    lambda w: join(w.dynamic, protocols=[JoinGroupRequestProtocol(name="exotic")]),
)
case("join: without an id", 4, "MEMBER_ID_REQUIRED", lambda w: join("errors-pending"))
case("join: negative rebalance timeout", 9, "MEMBER_ID_REQUIRED", lambda w: join("errors-p2", rebalance_timeout_ms=-9))
case(
    "join: id of another process",
    9,
    "FENCED_INSTANCE_ID",
    lambda w: join(w.static, STRANGER, group_instance_id="instance"),
)
case(
    "join: unknown instance with an id",
    9,
    "UNKNOWN_MEMBER_ID",
    lambda w: join(w.static, STRANGER, group_instance_id="other"),
)
case(
    "join: instance of a dynamic member",
    9,
    "UNKNOWN_MEMBER_ID",
    lambda w: join(w.dynamic, w.members[w.dynamic], group_instance_id="other"),
)

case("sync: no group", 5, "INVALID_GROUP_ID", lambda w: sync(w, ""))
case("sync: unknown group", 5, "UNKNOWN_MEMBER_ID", lambda w: sync(w, "errors-none", STRANGER))
case("sync: unknown member", 5, "UNKNOWN_MEMBER_ID", lambda w: sync(w, w.dynamic, STRANGER))
case("sync: no member", 5, "UNKNOWN_MEMBER_ID", lambda w: sync(w, w.dynamic, ""))
case("sync: empty group", 5, "UNKNOWN_MEMBER_ID", lambda w: sync(w, w.empty, STRANGER))
for generation in (0, 2, -1, LARGEST):
    case(
        f"sync: generation {generation}",
        5,
        "ILLEGAL_GENERATION",
        lambda w, generation=generation: sync(w, w.dynamic, generation_id=generation),
    )
case("sync: other type", 5, "INCONSISTENT_GROUP_PROTOCOL", lambda w: sync(w, w.dynamic, protocol_type="connect"))
case("sync: other protocol", 5, "INCONSISTENT_GROUP_PROTOCOL", lambda w: sync(w, w.dynamic, protocol_name="exotic"))
case("sync: no type", 5, "INCONSISTENT_GROUP_PROTOCOL", lambda w: sync(w, w.dynamic, protocol_type=None))
case("sync: no protocol", 5, "INCONSISTENT_GROUP_PROTOCOL", lambda w: sync(w, w.dynamic, protocol_name=None))
case("sync: no protocol, which 4 has not", 4, "NONE", lambda w: sync(w, w.dynamic))
case("sync: other process", 5, "FENCED_INSTANCE_ID", lambda w: sync(w, w.static, "x", group_instance_id="instance"))
case("sync: unknown instance", 5, "UNKNOWN_MEMBER_ID", lambda w: sync(w, w.static, group_instance_id="other"))

case("heartbeat: no group", 4, "INVALID_GROUP_ID", lambda w: beat(w, ""))
case("heartbeat: unknown group", 4, "UNKNOWN_MEMBER_ID", lambda w: beat(w, "errors-none", STRANGER))
case("heartbeat: empty group", 4, "UNKNOWN_MEMBER_ID", lambda w: beat(w, w.empty, STRANGER))
case("heartbeat: unknown member", 4, "UNKNOWN_MEMBER_ID", lambda w: beat(w, w.dynamic, STRANGER))
for generation in (0, 2, -1, LARGEST):
    case(
        f"heartbeat: generation {generation}",
        4,
        "ILLEGAL_GENERATION",
        lambda w, generation=generation: beat(w, w.dynamic, generation_id=generation),
    )
case(
    "heartbeat: other process", 4, "FENCED_INSTANCE_ID", lambda w: beat(w, w.static, "x", group_instance_id="instance")
)
case("heartbeat: unknown instance", 4, "UNKNOWN_MEMBER_ID", lambda w: beat(w, w.static, group_instance_id="other"))

case("leave: no group", 5, "INVALID_GROUP_ID", lambda w: leave("", (STRANGER, None)))
case("leave: unknown group", 5, "NONE UNKNOWN_MEMBER_ID", lambda w: leave("errors-none", (STRANGER, None)))
case("leave: unknown group, 0", 0, "UNKNOWN_MEMBER_ID", lambda w: LeaveGroupRequest(group_id="x", member_id="y"))
case("leave: unknown member", 5, "NONE UNKNOWN_MEMBER_ID", lambda w: leave(w.dynamic, (STRANGER, None), ("", None)))
case("leave: unknown member, 0", 0, "UNKNOWN_MEMBER_ID", lambda w: LeaveGroupRequest(group_id=w.dynamic, member_id="y"))
case("leave: nobody", 5, "NONE", lambda w: leave(w.dynamic))
case("leave: other process", 5, "NONE FENCED_INSTANCE_ID", lambda w: leave(w.static, (STRANGER, "instance")))
case("leave: unknown instance", 5, "NONE UNKNOWN_MEMBER_ID", lambda w: leave(w.static, ("", "other")))

for version in (2, 7, 9):
    case(
        f"commit: unknown member {version}",
        version,
        "UNKNOWN_MEMBER_ID",
        lambda w: commit(w.dynamic, w.topic, STRANGER, 1),
    )
    unknown = "GROUP_ID_NOT_FOUND" if version >= 9 else "ILLEGAL_GENERATION"
    case(f"commit: unknown group {version}", version, unknown, lambda w: commit("errors-never", w.topic, "m", 1))
case("commit: no name", 9, "NONE", lambda w: commit("", w.topic))
case("commit: no member, in a group that has some", 9, "UNKNOWN_MEMBER_ID", lambda w: commit(w.dynamic, w.topic))
for generation in (0, 2, LARGEST, -1):
    case(
        f"commit: generation {generation}",
        9,
        "ILLEGAL_GENERATION",
        lambda w, generation=generation: commit(w.dynamic, w.topic, w.members[w.dynamic], generation),
    )
case("commit: generation of an empty group", 9, "UNKNOWN_MEMBER_ID", lambda w: commit(w.empty, w.topic, STRANGER, 1))
case("commit: unknown topic", 9, "UNKNOWN_TOPIC_OR_PARTITION", lambda w: commit(w.empty, "errors-nowhere"))
case("commit: no topic", 9, "UNKNOWN_TOPIC_OR_PARTITION", lambda w: commit(w.empty, ""))
case(
    "commit: some partitions",
    9,
    "NONE UNKNOWN_TOPIC_OR_PARTITION",
    lambda w: commit(w.empty, w.topic, partitions=(0, 0, 2, -1, LARGEST)),
)
case("commit: unknown topic id", 10, "UNKNOWN_TOPIC_ID", lambda w: commit(w.empty, "", topic_id=UNKNOWN_ID))
case("commit: no topic id", 10, "UNKNOWN_TOPIC_ID", lambda w: commit(w.empty, w.topic))
case(
    "commit: metadata of 4097 bytes",
    9,
    "OFFSET_METADATA_TOO_LARGE",
    lambda w: commit(w.empty, w.topic, committed_metadata="m" * 4097),
)
case("commit: metadata of 4096 bytes", 9, "NONE", lambda w: commit(w.empty, w.topic, committed_metadata="m" * 4096))
case(
    "commit: metadata of 4096 characters",
    9,
    "NONE",
    lambda w: commit(w.empty, w.topic, committed_metadata="ä" * 4096),
)
case("commit: negative offset", 9, "NONE", lambda w: commit(w.empty, w.topic, partitions=(1,), committed_offset=-5))
case(
    "commit: other process",
    9,
    "FENCED_INSTANCE_ID",
    lambda w: commit(w.static, w.topic, STRANGER, 1, instance="instance"),
)
case(
    "commit: unknown instance",
    9,
    "UNKNOWN_MEMBER_ID",
    lambda w: commit(w.static, w.topic, w.members[w.static], 1, instance="other"),
)
case("commit: nothing", 9, "", lambda w: OffsetCommitRequest(group_id=w.empty, generation_id_or_member_epoch=-1))

case("offsets: unknown group", 9, "NONE", lambda w: offsets("errors-none", w.topic))
case("offsets: no group", 9, "NONE", lambda w: offsets("", w.topic))
case("offsets: all of an unknown group", 9, "NONE", lambda w: offsets("errors-none", None))
case("offsets: unknown topic", 9, "NONE", lambda w: offsets(w.empty, "errors-nowhere"))
case("offsets: negative partition", 9, "NONE", lambda w: offsets(w.empty, w.topic, -1))
case("offsets: unknown topic id", 10, "NONE UNKNOWN_TOPIC_ID", lambda w: offsets(w.empty, ""))
case(
    "offsets: member of an unknown group",
    9,
    "NONE",
    lambda w: offsets("errors-none", w.topic, member_id="x", member_epoch=3),
)
case("offsets: unknown member", 9, "NONE", lambda w: offsets(w.dynamic, w.topic, member_id=STRANGER, member_epoch=3))
case("offsets: no groups", 9, "", lambda w: OffsetFetchRequest())

case("take back: unknown group", 0, "GROUP_ID_NOT_FOUND", lambda w: take_back("errors-never", w.topic))
case("take back: no group", 0, "INVALID_GROUP_ID", lambda w: take_back("", w.topic))
case("take back: other members", 0, "NON_EMPTY_GROUP", lambda w: take_back(w.other, w.topic))
case("take back: is read", 0, "NONE GROUP_SUBSCRIBED_TO_TOPIC", lambda w: take_back(w.dynamic, w.topic))
case("take back: unknown partition", 0, "NONE UNKNOWN_TOPIC_OR_PARTITION", lambda w: take_back(w.empty, w.topic, 9))
case("take back: unknown topic", 0, "NONE UNKNOWN_TOPIC_OR_PARTITION", lambda w: take_back(w.empty, "errors-nowhere"))

case("describe: unknown group", 6, "GROUP_ID_NOT_FOUND", lambda w: DescribeGroupsRequest(groups=["errors-never"]))
case("describe: unknown group, 5", 5, "NONE", lambda w: DescribeGroupsRequest(groups=["errors-never"]))
case("describe: no name", 6, "NONE", lambda w: DescribeGroupsRequest(groups=[""]))
case("describe: twice", 6, "NONE", lambda w: DescribeGroupsRequest(groups=[w.empty, w.empty]))
case("delete: unknown group", 2, "GROUP_ID_NOT_FOUND", lambda w: DeleteGroupsRequest(groups_names=["errors-never"]))
case("delete: no name", 2, "NONE", lambda w: DeleteGroupsRequest(groups_names=[""]))
case("describe: no name any more", 6, "GROUP_ID_NOT_FOUND", lambda w: DescribeGroupsRequest(groups=[""]))
case("delete: with members", 2, "NON_EMPTY_GROUP", lambda w: DeleteGroupsRequest(groups_names=[w.dynamic, w.other]))
case("list: unknown state", 5, "NONE", lambda w: ListGroupsRequest(states_filter=["Happy", ""]))
case("list: unknown type", 5, "NONE", lambda w: ListGroupsRequest(types_filter=["tribe", ""]))

for timeout_ms in (0, -1, -LARGEST, 900_001, LARGEST):
    case(
        f"init: timeout of {timeout_ms} ms",
        5,
        "INVALID_TRANSACTION_TIMEOUT",
        lambda w, timeout_ms=timeout_ms: init(w.idle, transaction_timeout_ms=timeout_ms),
    )
case("init: empty id", 5, "INVALID_REQUEST", lambda w: init(""))
case("init: id without epoch", 5, "INVALID_REQUEST", lambda w: init(w.idle, producer_id=5))
case("init: epoch without id", 5, "INVALID_REQUEST", lambda w: init(w.idle, producer_epoch=5))
case("init: no transactions, id without epoch", 5, "INVALID_REQUEST", lambda w: init(None, producer_id=5))
case("init: no transactions, a timeout", 5, "NONE", lambda w: init(None, transaction_timeout_ms=LARGEST))
case("init: no transactions, an old id", 5, "NONE", lambda w: init(None, producer_id=5, producer_epoch=6))
for version, fenced in ((5, "PRODUCER_FENCED"), (3, "INVALID_PRODUCER_EPOCH")):
    case(
        f"init: old epoch {version}",
        version,
        fenced,
        lambda w: init(w.idle, producer_id=w.producers[w.idle], producer_epoch=0),
    )
    case(
        f"init: later epoch {version}",
        version,
        fenced,
        lambda w: init(w.idle, producer_id=w.producers[w.idle], producer_epoch=9),
    )
    case(
        f"init: other producer {version}",
        version,
        fenced,
        lambda w: init(w.idle, producer_id=1 << 40, producer_epoch=1),
    )
case("init: new name, old producer", 5, "NONE", lambda w: init("errors-new", producer_id=1 << 40, producer_epoch=1))

for version, fenced in ((3, "PRODUCER_FENCED"), (1, "INVALID_PRODUCER_EPOCH")):
    for epoch in (0, 2, -1):
        case(f"add: epoch {epoch} v{version}", version, fenced, lambda w, epoch=epoch: add(w, w.open, epoch=epoch))
        case(
            f"add group: epoch {epoch} v{version}",
            version,
            fenced,
            lambda w, epoch=epoch: add_group(w, w.open, epoch=epoch),
        )
        case(f"end: epoch {epoch} v{version}", version, fenced, lambda w, epoch=epoch: end(w, w.open, epoch=epoch))
    case(f"add: unknown name v{version}", version, "INVALID_PRODUCER_ID_MAPPING", lambda w: add(w, "errors-none"))
    case(f"add: other producer v{version}", version, "INVALID_PRODUCER_ID_MAPPING", lambda w: add(w, w.open, 1 << 40))
case("add: empty name", 3, "INVALID_REQUEST", lambda w: add(w, ""))
case("add: unknown topic", 3, "UNKNOWN_TOPIC_OR_PARTITION", lambda w: add(w, w.open, None, 1, "errors-nowhere", 0))
case(
    "add: one unknown partition",
    3,
    "OPERATION_NOT_ATTEMPTED UNKNOWN_TOPIC_OR_PARTITION",
    lambda w: add(w, w.open, None, 1, None, 0, 9),
)
case("add: twice the same", 3, "NONE", lambda w: add(w, w.open, None, 1, None, 0, 0))
case("add: unknown name, 5", 5, "NONE INVALID_PRODUCER_ID_MAPPING", lambda w: verify(w, "errors-none", only=False))
case("add: old epoch, 5", 5, "NONE PRODUCER_FENCED", lambda w: verify(w, w.open, epoch=0, only=False))
case("verify: belongs", 5, "NONE", lambda w: verify(w, w.open))
case("verify: another partition", 5, "NONE TRANSACTION_ABORTABLE", lambda w: verify(w, w.open, partition=1))
case("verify: another partition, 4", 4, "NONE TRANSACTION_ABORTABLE", lambda w: verify(w, w.open, partition=1))
case("verify: no transaction", 5, "NONE TRANSACTION_ABORTABLE", lambda w: verify(w, w.idle))
case("verify: old epoch", 5, "NONE PRODUCER_FENCED", lambda w: verify(w, w.open, epoch=0))
case("verify: unknown name", 5, "NONE INVALID_PRODUCER_ID_MAPPING", lambda w: verify(w, "errors-none"))

case("add group: unknown name", 4, "INVALID_PRODUCER_ID_MAPPING", lambda w: add_group(w, "errors-none"))
case("add group: other producer", 4, "INVALID_PRODUCER_ID_MAPPING", lambda w: add_group(w, w.open, 1 << 40))
case("add group: empty name", 4, "INVALID_REQUEST", lambda w: add_group(w, ""))

case("end: unknown name", 4, "INVALID_PRODUCER_ID_MAPPING", lambda w: end(w, "errors-none"))
case("end: other producer", 4, "INVALID_PRODUCER_ID_MAPPING", lambda w: end(w, w.open, 1 << 40))
case("end: empty name", 4, "INVALID_REQUEST", lambda w: end(w, ""))
case("end: no transaction", 4, "INVALID_TXN_STATE", lambda w: end(w, w.idle))
case("end: no transaction to abort", 4, "INVALID_TXN_STATE", lambda w: end(w, w.idle, committed=False))
case("end: no transaction, 5", 5, "INVALID_TXN_STATE", lambda w: end(w, w.idle))

for version, refused in ((3, "INVALID_TXN_STATE"), (4, "TRANSACTION_ABORTABLE")):
    case(f"commit in: not added v{version}", version, refused, lambda w: commit_in(w, w.open))
    case(f"commit in: no transaction v{version}", version, refused, lambda w: commit_in(w, w.idle))
for version in (3, 5):
    case(
        f"commit in: unknown name v{version}", version, "INVALID_PRODUCER_ID_MAPPING", lambda w: commit_in(w, "x-none")
    )
    case(
        f"commit in: other producer v{version}",
        version,
        "INVALID_PRODUCER_ID_MAPPING",
        lambda w: commit_in(w, w.open, producer_id=1 << 40),
    )
    case(f"commit in: old epoch v{version}", version, "INVALID_PRODUCER_EPOCH", lambda w: commit_in(w, w.open, epoch=0))
    case(f"commit in: no group v{version}", version, "INVALID_GROUP_ID", lambda w: commit_in(w, w.open, ""))
    case(
        f"commit in: unknown topic v{version}",
        version,
        "UNKNOWN_TOPIC_OR_PARTITION",
        lambda w: commit_in(w, w.open, topic="errors-nowhere"),
    )
    case(
        f"commit in: unknown partition v{version}",
        version,
        "UNKNOWN_TOPIC_OR_PARTITION",
        lambda w: commit_in(w, w.open, partition=9),
    )
case(
    "commit in: unknown member",
    5,
    "UNKNOWN_MEMBER_ID",
    lambda w: commit_in(w, w.open, w.dynamic, member_id=STRANGER, generation_id=1),
)
case(
    "commit in: old generation",
    5,
    "ILLEGAL_GENERATION",
    lambda w: commit_in(w, w.open, w.dynamic, member_id=w.members[w.dynamic], generation_id=0),
)
case(
    "commit in: generation of an unknown group",
    5,
    "ILLEGAL_GENERATION",
    lambda w: commit_in(w, w.open, "errors-not-yet", member_id=STRANGER, generation_id=1),
)
case(
    "commit in: other process",
    5,
    "FENCED_INSTANCE_ID",
    lambda w: commit_in(w, w.open, w.static, member_id=STRANGER, generation_id=1, group_instance_id="instance"),
)
case("commit in: nobody, in a group that has members", 5, "NONE", lambda w: commit_in(w, w.open, w.dynamic))
case("commit in: metadata", 5, "OFFSET_METADATA_TOO_LARGE", lambda w: commit_in(w, w.open, metadata="m" * 5000))

case("mark: unknown topic", 1, "UNKNOWN_TOPIC_OR_PARTITION", lambda w: mark("errors-nowhere"))
case("mark: unknown partition", 1, "UNKNOWN_TOPIC_OR_PARTITION", lambda w: mark(w.topic, partition=9))
case("mark: a stranger's", 1, "NONE", lambda w: mark(w.topic, epoch=3, coordinator_epoch=5))
case("mark: an old epoch", 1, "INVALID_PRODUCER_EPOCH", lambda w: mark(w.topic, epoch=2, coordinator_epoch=5))
case("mark: an old coordinator", 1, "TRANSACTION_COORDINATOR_FENCED", lambda w: mark(w.topic, epoch=3))
case("mark: the open one, too late", 1, "INVALID_PRODUCER_EPOCH", lambda w: mark(w.topic, w.producers[w.open], 0))
case("mark: nothing", 1, "", lambda w: WriteTxnMarkersRequest())

case(
    "describe: unknown transaction",
    0,
    "TRANSACTIONAL_ID_NOT_FOUND",
    lambda w: DescribeTransactionsRequest(transactional_ids=["errors-none"]),
)
case("describe: no name", 0, "INVALID_REQUEST", lambda w: DescribeTransactionsRequest(transactional_ids=[""]))
case("list: unknown state of transactions", 2, "NONE", lambda w: ListTransactionsRequest(state_filters=["Happy"]))
case(
    "list: bad pattern",
    2,
    "INVALID_REGULAR_EXPRESSION",
    lambda w: ListTransactionsRequest(transactional_id_pattern="("),
)
case("list: no pattern", 2, "NONE", lambda w: ListTransactionsRequest(transactional_id_pattern=""))


@pytest.mark.parametrize("asked", CASES, ids=[each.what for each in CASES])
def test_error(world: World, asked: Case) -> None:
    found = codes_in(world.client.call(asked.request(world), asked.version), asked.version)
    names = {ERRORS_BY_CODE[code].name if code else "NONE" for code in found}
    assert names == set(asked.expected.split()), asked.what


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("duration_ms", "names"), [(-1, {"idle", "open"}), (0, {"idle", "open"}), (3_600_000, {"idle"})]
)
def test_listing_by_duration(world: World, version: int, duration_ms: int, names: set[str]) -> None:
    """An id without a transaction counts as one that began long ago."""
    reply = world.client.call(ListTransactionsRequest(duration_filter=duration_ms), version)
    assert reply.error_code == 0
    found = {each.transactional_id for each in reply.transaction_states} & {world.idle, world.open}
    assert found == {getattr(world, name) for name in names}


def test_state_is_unchanged_after_errors(world: World) -> None:
    """The failed requests changed nothing."""
    for group in (world.dynamic, world.other):
        assert world.client.call(beat(world, group), 4).error_code == 0
    assert world.client.call(beat(world, world.static, group_instance_id="instance"), 4).error_code == 0
    assert codes_in(world.client.call(verify(world, world.open), 5), 5) == {0}
