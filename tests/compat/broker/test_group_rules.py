"""Responses of the group coordinator to raw requests that no well-behaved client sends.

Each case has its own group. The expected responses are Apache Kafka's.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from tests.support.broker.admin_clients import ConfluentAdmin
from tests.support.broker.process import Broker, eventually
from tests.support.broker.under_test import make_broker
from tests.support.net.wire_calls import coordinator_address, leader_address
from tests.support.net.wire_client import WireClient

from headrace.common.errors import (
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from headrace.common.ids import Uuid
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.list_groups import ListGroupsRequest
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

pytestmark = pytest.mark.timeout(120)

TOPIC = "rules"
GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
NOT_ASKED_FOR = -(2**31)
MAX_SIZE = 3
_numbers = count()

Case = Callable[["Group"], object]
CASES: dict[str, tuple[Case, object]] = {}


def expect(answer: object) -> Callable[[Case], Case]:
    """Adds a case with its expected result to the table."""

    def enter(case: Case) -> Case:
        CASES[case.__name__] = (case, answer)
        return case

    return enter


def name_of(code: int) -> object:
    return for_code(code) if code else 0


class Group:
    """One group and its requests; responses are reduced to the relevant fields."""

    def __init__(self, connect: Callable[[], WireClient], name: str | None = None):
        self.connect = connect
        self.client = connect()
        self.name = f"rules-{next(_numbers)}" if name is None else name

    def call(self, request: Any, version: int | None = None) -> Any:
        return self.client.call(request, version)

    def join(
        self,
        member: str = "",
        version: int = 9,
        *,
        instance: str | None = None,
        protocols: tuple[str, ...] = ("range",),
        kind: str = "consumer",
        metadata: bytes = b"m",
        session_ms: int = 30_000,
        client: WireClient | None = None,
        later: bool = False,
    ) -> Any:
        request = JoinGroupRequest(
            group_id=self.name,
            member_id=member,
            group_instance_id=instance,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=30_000,
            protocol_type=kind,
            protocols=[JoinGroupRequestProtocol(name=each, metadata=metadata) for each in protocols],
        )
        client = client or self.client
        sent = client.send(request, version)
        return (lambda: client.receive(sent)) if later else client.receive(sent)

    def sync(self, member: str, generation: int, shares: dict[str, bytes] | None = None, **options: Any) -> Any:
        return self.call(
            SyncGroupRequest(
                group_id=self.name,
                member_id=member,
                generation_id=generation,
                group_instance_id=options.get("instance"),
                protocol_type=options.get("kind", "consumer"),
                protocol_name=options.get("protocol", "range"),
                assignments=[
                    SyncGroupRequestAssignment(member_id=each, assignment=share)
                    for each, share in (shares or {}).items()
                ],
            )
        )

    def beat(self, member: str, generation: int, instance: str | None = None) -> object:
        request = HeartbeatRequest(
            group_id=self.name, member_id=member, generation_id=generation, group_instance_id=instance
        )
        return name_of(self.call(request).error_code)

    def leave(self, *members: tuple[str, str | None], version: int = 5) -> object:
        identities = [MemberIdentity(member_id=each, group_instance_id=instance) for each, instance in members]
        reply = self.call(LeaveGroupRequest(group_id=self.name, members=identities), version)
        return name_of(reply.error_code), [name_of(each.error_code) for each in reply.members]

    def commit(
        self,
        member: str = "",
        generation: int = -1,
        version: int = 9,
        *,
        instance: str | None = None,
        topic: str = TOPIC,
        partition: int = 0,
        metadata: str | None = "",
        offset: int = 7,
        topic_id: Uuid | None = None,
    ) -> object:
        one = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=3, committed_metadata=metadata
        )
        named = OffsetCommitRequestTopic(name=topic, partitions=[one])
        if topic_id is not None:
            named.topic_id = topic_id
        request = OffsetCommitRequest(
            group_id=self.name,
            member_id=member,
            generation_id_or_member_epoch=generation,
            group_instance_id=instance,
            topics=[named],
        )
        return name_of(self.call(request, version).topics[0].partitions[0].error_code)

    def fetch(self, *partitions: int, topics: Any = (), version: int = 9) -> object:
        asked: Any = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(partitions))]
        if topics != ():
            asked = topics
        reply = self.call(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.name, topics=asked)]), version
        )
        (group,) = reply.groups
        return name_of(group.error_code), [
            (each.partition_index, each.committed_offset, each.committed_leader_epoch, name_of(each.error_code))
            for topic in group.topics
            for each in topic.partitions
        ]

    def describe(self, version: int = 6, operations: bool = False) -> object:
        request = DescribeGroupsRequest(groups=[self.name], include_authorized_operations=operations)
        (group,) = self.call(request, version).groups
        return (
            name_of(group.error_code),
            group.group_state,
            group.protocol_type,
            group.protocol_data,
            [(each.member_metadata, each.member_assignment) for each in group.members],
            group.authorized_operations,
        )

    def delete(self) -> object:
        (result,) = self.call(DeleteGroupsRequest(groups_names=[self.name])).results
        return name_of(result.error_code)

    def delete_offset(self, topic: str = TOPIC, partition: int = 0) -> object:
        one = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)])
        reply = self.call(OffsetDeleteRequest(group_id=self.name, topics=[one]))
        return name_of(reply.error_code), [name_of(each.partitions[0].error_code) for each in reply.topics]

    def state(self) -> object:
        return self.describe()[1]  # type: ignore[index]

    # ---- whole groups

    def stable(self, **options: Any) -> tuple[str, int]:
        """Creates a group with one member that has all partitions. Version 3 joins in one step."""
        version = 9 if options.get("instance") else 3
        joined = self.join(version=version, **options)
        assert joined.error_code == 0
        shares = {joined.member_id: b"all"}
        self.sync(joined.member_id, joined.generation_id, shares, instance=options.get("instance"))
        return joined.member_id, joined.generation_id

    def two(self, **options: Any) -> tuple[str, str, int]:
        """Creates a stable group of a leader and a follower, which may be static."""
        leader, _ = self.stable()
        version = 9 if options.get("instance") else 3
        coming = self.join(version=version, client=self.connect(), later=True, **options)
        self.until("PreparingRebalance")
        again, joined = self.join(leader), coming()
        assert (again.error_code, joined.error_code) == (0, 0)
        shares = {leader: b"1", joined.member_id: b"2"}
        self.sync(leader, again.generation_id, shares)
        self.sync(joined.member_id, again.generation_id, instance=options.get("instance"))
        return leader, joined.member_id, again.generation_id

    def until(self, state: str) -> None:
        eventually(lambda: self.state() == state, f"{self.name} is {state}", 20)

    def preparing(self, **options: Any) -> tuple[str, str, int]:
        leader, other, generation = self.two(**options)
        self.join(leader, client=self.connect(), later=True)
        self.until("PreparingRebalance")
        return leader, other, generation

    def completing(self, **options: Any) -> tuple[str, str, int]:
        leader, other, generation = self.two(**options)
        waiting = self.join(leader, client=self.connect(), later=True)
        self.until("PreparingRebalance")
        self.join(other, instance=options.get("instance"))
        waiting()
        assert self.state() == "CompletingRebalance"
        return leader, other, generation + 1


@pytest.fixture(scope="module")
def rules_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "group.max.size": MAX_SIZE,
        "offsets.topic.num.partitions": 1,  # so that all groups have one coordinator
        "offsets.topic.replication.factor": 1,
    }
    with make_broker(tmp_path_factory.mktemp("rules") / "data", settings) as running:
        yield running


@pytest.fixture(scope="module")
def connect(rules_broker: Broker) -> Iterator[Callable[[], WireClient]]:
    opened: list[WireClient] = []
    coordinator = coordinator_address(rules_broker.bootstrap)

    def make() -> WireClient:
        opened.append(WireClient(coordinator))
        return opened[-1]

    ConfluentAdmin(rules_broker.bootstrap).create(TOPIC, 3)
    leader_address(rules_broker.bootstrap, TOPIC)
    probes = [Group(make) for _ in range(10)]
    eventually(lambda: all(each.state() == "Dead" for each in probes), "all groups are loaded")
    yield make
    for each in opened:
        each.close()


# ---- groups without a name


def nameless(group: Group) -> Group:
    return Group(lambda: group.client, "")


@expect([InvalidGroupIdError] * 5)
def members_need_a_group_with_a_name(group: Group) -> object:
    none = nameless(group)
    return [
        name_of(none.join().error_code),
        name_of(none.sync("m", 1).error_code),
        none.beat("m", 1),
        none.leave(("m", None))[0],  # type: ignore[index]
        none.delete_offset()[0],  # type: ignore[index]
    ]


@expect([0, (0, [(0, 7, 3, 0)]), "Empty", 0, (0, [(0, -1, -1, 0)])])
def offsets_do_not(group: Group) -> object:
    none = nameless(group)
    return [none.commit(), none.fetch(0), none.state(), none.delete(), none.fetch(0)]


# ---- missing groups


@expect([UnknownMemberIdError, UnknownMemberIdError, UnknownMemberIdError])
def a_member_of_no_group(group: Group) -> object:
    return [name_of(group.join("m").error_code), name_of(group.sync("m", 1).error_code), group.beat("m", 1)]


@expect([(0, [UnknownMemberIdError, UnknownMemberIdError]), UnknownMemberIdError])
def leaving_no_group(group: Group) -> object:
    old = group.call(LeaveGroupRequest(group_id=group.name, member_id="m"), 2)
    return [group.leave(("m", None), ("", "i")), name_of(old.error_code)]


@expect(
    [
        (0, "Dead", "", "", [], NOT_ASKED_FOR),
        (0, "Dead", "", "", [], GROUP_OPERATIONS),
        (GroupIdNotFoundError, "Dead", "", "", [], NOT_ASKED_FOR),
    ]
)
def describing_no_group(group: Group) -> object:
    return [group.describe(5), group.describe(5, True), group.describe(6, True)]


@expect([GroupIdNotFoundError, (GroupIdNotFoundError, []), (0, [(0, -1, -1, 0), (2, -1, -1, 0)]), (0, [])])
def offsets_of_no_group(group: Group) -> object:
    return [group.delete(), group.delete_offset(), group.fetch(0, 2), group.fetch(topics=None)]


@expect([IllegalGenerationError, IllegalGenerationError, GroupIdNotFoundError, GroupIdNotFoundError])
def commits_of_a_member_of_no_group(group: Group) -> object:
    return [group.commit("m", 1, 8), group.commit("", 0, 8), group.commit("m", 1, 9), group.commit("", 0, 9)]


@expect(0)
def a_commit_of_a_member_of_no_group_without_a_generation(group: Group) -> object:
    return group.commit("m", -1)


# ---- joining


@expect([MemberIdRequiredError, True, 0, True])
def a_member_id_first(group: Group) -> object:
    first = group.join()
    second = group.join(first.member_id)
    return [name_of(first.error_code), first.member_id != "", second.error_code, second.member_id == first.member_id]


@expect([InvalidSessionTimeoutError, InvalidSessionTimeoutError])
def session_timeouts(group: Group) -> object:
    return [name_of(group.join(session_ms=each).error_code) for each in (5_999, 1_800_001)]


@expect([InconsistentGroupProtocolError] * 2)
def a_first_member_without_a_protocol(group: Group) -> object:
    return [name_of(group.join(protocols=()).error_code), name_of(group.join(kind="").error_code)]


@expect([InconsistentGroupProtocolError] * 4)
def other_protocols(group: Group) -> object:
    member, _ = group.stable()
    return [
        name_of(group.join(protocols=("roundrobin",)).error_code),
        name_of(group.join(kind="connect").error_code),
        name_of(group.join(member, protocols=("roundrobin",)).error_code),
        name_of(group.join("nobody", protocols=("roundrobin",)).error_code),
    ]


@expect((0, 0, 2, "Stable", [], b"2"))
def a_follower_that_joins_again(group: Group) -> object:
    _, other, _ = group.two()
    again = group.join(other)
    synced = group.sync(other, again.generation_id)
    return again.error_code, synced.error_code, again.generation_id, group.state(), again.members, synced.assignment


@expect([(GroupMaxSizeReachedError, ""), (GroupMaxSizeReachedError, ""), "Stable"])
def a_full_group(group: Group) -> object:
    leader, other, _ = group.two()
    coming = group.join(version=3, client=group.connect(), later=True)
    group.until("PreparingRebalance")
    again = group.join(leader, client=group.connect(), later=True)
    third = group.join(other)
    shares = {leader: b"1"}
    assert [coming().error_code, again().error_code, third.error_code] == [0, 0, 0]
    group.sync(leader, third.generation_id, shares)
    refused, wrong = group.join(version=3), group.join(version=3, protocols=("other",))
    return [*((name_of(each.error_code), each.member_id) for each in (refused, wrong)), group.state()]


# ---- static members


@expect([0, True, True, True, b"all", [FencedInstanceIdError] * 4, (0, [FencedInstanceIdError])])
def a_static_leader_is_replaced(group: Group) -> object:
    old, generation = group.stable(instance="i")
    new = group.join(instance="i")
    return [
        new.error_code,
        new.member_id != old,
        new.leader == new.member_id,
        new.skip_assignment,
        group.sync(new.member_id, generation, instance="i").assignment,
        [
            name_of(group.join(old, instance="i").error_code),
            name_of(group.sync(old, generation, instance="i").error_code),
            group.beat(old, generation, "i"),
            group.commit(old, generation, instance="i"),
        ],
        group.leave((old, "i")),
    ]


@expect([0, True, [], False])
def an_old_client_replaces_a_static_leader(group: Group) -> object:
    old, _ = group.stable(instance="i")
    new = group.join(instance="i", version=8)
    return [new.error_code, new.leader == old, new.members, new.skip_assignment]


@expect([0, 2, "CompletingRebalance"])
def a_static_member_comes_back_with_another_protocol(group: Group) -> object:
    group.stable(instance="i", protocols=("range", "sticky"))
    new = group.join(instance="i", protocols=("sticky",))
    return [new.error_code, new.generation_id, group.state()]


@expect([InconsistentGroupProtocolError])
def a_static_member_comes_back_with_only_another_protocol(group: Group) -> object:
    group.stable(instance="i")
    return [name_of(group.join(instance="i", protocols=("sticky",)).error_code)]


@expect([0, 3, False])
def a_static_member_is_replaced_while_others_join(group: Group) -> object:
    _, old, _ = group.preparing(instance="i")
    new = group.join(instance="i")
    return [new.error_code, new.generation_id, new.member_id == old]


@expect(["PreparingRebalance", RebalanceInProgressError])
def a_static_member_is_replaced_before_the_assignment(group: Group) -> object:
    leader, _, generation = group.completing(instance="i")
    group.join(instance="i", client=group.connect(), later=True)
    group.until("PreparingRebalance")
    return [group.state(), group.beat(leader, generation)]


@expect([(0, [0, UnknownMemberIdError]), "Empty"])
def an_admin_removes_a_static_member(group: Group) -> object:
    group.stable(instance="i")
    return [group.leave(("", "i"), ("", "other")), group.state()]


@expect([UnknownMemberIdError, FencedInstanceIdError, UnknownMemberIdError])
def wrong_instances(group: Group) -> object:
    member, generation = group.stable(instance="i")
    return [
        group.beat(member, generation, "other"),
        group.beat("other", generation, "i"),
        group.beat("other", generation),
    ]


# ---- states


@expect([RebalanceInProgressError, RebalanceInProgressError, 0, NonEmptyGroupError])
def preparing(group: Group) -> object:
    _, other, generation = group.preparing()
    return [
        group.beat(other, generation),
        name_of(group.sync(other, generation).error_code),
        group.commit(other, generation),
        group.delete(),
    ]


@expect([0, RebalanceInProgressError, IllegalGenerationError, UnknownMemberIdError, UnknownMemberIdError])
def completing(group: Group) -> object:
    _, other, generation = group.completing()
    return [
        group.beat(other, generation),
        group.commit(other, generation),
        group.commit(other, generation - 1),
        group.commit(),
        group.commit("nobody", generation),
    ]


@expect([InconsistentGroupProtocolError] * 4 + [IllegalGenerationError, 0])
def syncs(group: Group) -> object:
    member, generation = group.stable()
    return [
        name_of(each.error_code)
        for each in (
            group.sync(member, generation, kind="connect"),
            group.sync(member, generation, protocol="sticky"),
            group.sync(member, generation, protocol=None),
            group.sync("nobody", generation, kind=None),
            group.sync(member, generation + 1),
            group.sync(member, generation),
        )
    ]


@expect([UnknownMemberIdError, UnknownMemberIdError, UnknownMemberIdError, 0, UnknownMemberIdError])
def empty(group: Group) -> object:
    member, generation = group.stable()
    group.leave((member, None))
    return [
        group.beat(member, generation),
        name_of(group.sync(member, generation).error_code),
        name_of(group.join(member).error_code),
        group.commit(),
        group.commit(member, generation + 1),
    ]


@expect(
    [
        (0, "Stable", "consumer", "range", [(b"m", b"all")], GROUP_OPERATIONS),
        (0, "CompletingRebalance", "consumer", "", [(b"", b"all")], NOT_ASKED_FOR),
        (0, "Empty", "consumer", "", [], NOT_ASKED_FOR),
    ]
)
def descriptions(group: Group) -> object:
    member, _ = group.stable()
    stable = group.describe(operations=True)
    group.join(member)
    completing = group.describe()
    group.leave((member, None))
    return [stable, completing, group.describe()]


# ---- offsets


@expect([OffsetMetadataTooLargeError, 0, UnknownTopicOrPartitionError, UnknownTopicOrPartitionError, 0])
def commits(group: Group) -> object:
    return [
        group.commit(metadata="x" * 4097),
        group.commit(metadata="x" * 4096),
        group.commit(topic="nope"),
        group.commit(partition=99),
        group.commit(metadata=None, offset=-1),
    ]


@expect(UnknownTopicIdError)
def a_commit_to_an_unknown_topic_id(group: Group) -> object:
    return group.commit(version=10, topic="", topic_id=Uuid(int=77))


@expect((0, [(0, 7, 3, 0), (2, 9, 3, 0)]))
def all_offsets(group: Group) -> object:
    group.commit(partition=0)
    group.commit(partition=2, offset=9)
    code, found = group.fetch(topics=None)  # type: ignore[misc]
    return code, sorted(found)


@expect((0, [(0, -1, -1, UnknownTopicIdError)]))
def offsets_of_an_unknown_topic_id(group: Group) -> object:
    group.commit()
    return group.fetch(topics=[OffsetFetchRequestTopics(topic_id=Uuid(int=77), partition_indexes=[0])], version=10)


@expect([(0, 0, 7), (0, 1, -1)])
def old_fetches(group: Group) -> object:
    group.commit()
    asked = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 1])]
    reply = group.call(OffsetFetchRequest(group_id=group.name, topics=asked), 1)
    return [(each.error_code, each.partition_index, each.committed_offset) for each in reply.topics[0].partitions]


@expect([(NonEmptyGroupError, []), (0, [0]), (0, [UnknownTopicOrPartitionError])])
def deleted_offsets(group: Group) -> object:
    member, _ = group.stable(kind="connect")
    full = group.delete_offset()
    group.leave((member, None))
    return [full, group.delete_offset(), group.delete_offset("nope")]


@expect(["consumer", "classic", "Stable"])
def listed(group: Group) -> object:
    group.stable()
    (found,) = [each for each in group.call(ListGroupsRequest()).groups if each.group_id == group.name]
    return [found.protocol_type, found.group_type, found.group_state]


@expect([True, True, False, False, True, False])
def filters(group: Group) -> object:
    group.stable()

    def is_listed(states: list[str], types: list[str]) -> bool:
        reply = group.call(ListGroupsRequest(states_filter=states, types_filter=types))
        return group.name in {each.group_id for each in reply.groups}

    return [
        is_listed(["stable"], []),
        is_listed(["Empty", "STABLE"], ["classic"]),
        is_listed(["Empty"], []),
        is_listed(["bogus"], []),
        is_listed([], ["CLASSIC"]),
        is_listed([], ["consumer"]),
    ]


@pytest.mark.parametrize("name", CASES)
def test_coordinator_responds_as_kafka_does(connect: Callable[[], WireClient], name: str) -> None:
    case, expected = CASES[name]
    assert case(Group(connect)) == expected
