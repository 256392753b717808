"""Group members and transactional producers that follow the protocol and then violate it.

Each runs through the life of a member or producer with valid requests; in half of them one field is then wrong: an old
generation, another member id, no group, a newer epoch. They share names, so that they also affect each other: groups
rebalance continuously, and producers fence one another.
"""

from typing import TYPE_CHECKING, Any

from tests.support.hostile.requests import STRANGERS_FROM, STRINGS, VICTIM, VICTIM_PARTITIONS
from tests.support.net.wire_calls import batch, produce_request
from tests.support.protocol.samples import RANGES, present_fields

from headrace.protocol import Message
from headrace.protocol import message as m
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
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
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

if TYPE_CHECKING:
    from tests.support.hostile.clients import HostileConnection

GROUPS = (VICTIM, "hostile-group")
NAMES = (VICTIM, *(f"hostile-producer-{number}" for number in range(6)))
INSTANCES = (None, None, None, "i1", "i2")
MEMBER_ID_REQUIRED = 79
LONGEST_SESSION_MS = 200
"""Members that disconnect are removed after this time, if the broker allows such sessions."""


def spoil(peer: "HostileConnection", request: Message, version: int) -> None:
    """Sets one field of the request to a wrong value."""
    rng = peer.random
    fields = [field for field in present_fields(type(request), version) if field.name not in LEFT_ALONE]
    if not fields:
        return
    field = rng.choice(fields)
    value = getattr(request, field.name)
    if field.is_array:
        if value and field.struct is not None and rng.random() < 0.6:
            spoil(peer, rng.choice(value), version)
        else:
            setattr(request, field.name, rng.choice(([], value * 2, value * 1000)) if value else value)
    elif field.kind == m.STRING:
        setattr(request, field.name, rng.choice(("", "x", (value or "") + "x", rng.choice(STRINGS))))
    elif field.kind == m.BOOL:
        setattr(request, field.name, not value)
    elif field.kind in RANGES:
        low, high = RANGES[field.kind]
        near = (value - 1, value + 1, -1, 0, 1)
        setattr(request, field.name, rng.choice([low, high, *(each for each in near if low <= each <= high)]))


LEFT_ALONE = frozenset({"session_timeout_ms", "rebalance_timeout_ms", "transaction_timeout_ms", "acks", "topic_id"})
"""The waiting time depends on these; `hostile.requests` changes them."""


class Member:
    """A member of a group, as far as it knows."""

    def __init__(self, peer: "HostileConnection"):
        self.peer = peer
        self.group = peer.random.choice(GROUPS)
        self.instance = peer.random.choice(INSTANCES)
        self.member_id, self.generation = "", -1
        self.others: list[str] = []

    async def ask(self, request: Message, version: int) -> Any:
        if self.peer.random.random() < 0.5:
            spoil(self.peer, request, version)
        return await self.peer.call(request, version)

    async def join(self) -> None:
        rng = self.peer.random
        version = rng.randint(5 if self.instance else 0, 9)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=rng.randint(1, LONGEST_SESSION_MS),
            rebalance_timeout_ms=rng.choice((0, 1, 50, LONGEST_SESSION_MS)),
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=rng.randbytes(rng.choice((0, 10, 1000))))
                for name in rng.choice((("range",), ("range", "sticky"), ("sticky", "range")))
            ],
        )
        if rng.random() < 0.1:
            await self.peer.send(self.peer.frames.request(request, version))
            return  # without waiting for the response
        reply = await self.ask(request, version)
        if reply is not None:
            self.member_id, self.generation = reply.member_id, reply.generation_id
            self.others = [each.member_id for each in reply.members]
            if reply.error_code not in (0, MEMBER_ID_REQUIRED):
                self.member_id = ""

    async def sync(self) -> None:
        version = self.peer.random.randint(0, 5)
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance if version >= 3 else None,
            protocol_type="consumer" if version >= 5 else None,
            protocol_name="range" if version >= 5 else None,
            assignments=[SyncGroupRequestAssignment(member_id=each, assignment=b"a") for each in self.others],
        )
        await self.ask(request, version)

    async def heartbeat(self) -> None:
        version = self.peer.random.randint(0, 4)
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        await self.ask(request, version)

    async def leave(self) -> None:
        version = self.peer.random.randint(0, 5)
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance if version >= 3 else None)
        members = [identity] if version >= 3 else []
        request = LeaveGroupRequest(
            group_id=self.group, member_id="" if version >= 3 else self.member_id, members=members
        )
        await self.ask(request, version)

    async def commit(self) -> None:
        version = self.peer.random.randint(2, 9)
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata="note")
            for index in range(VICTIM_PARTITIONS)
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            retention_time_ms=-1,
            topics=[OffsetCommitRequestTopic(name=VICTIM, partitions=partitions)],
        )
        await self.ask(request, version)

    async def look(self) -> None:
        rng = self.peer.random
        topics = [OffsetFetchRequestTopics(name=VICTIM, partition_indexes=[0, 1])]
        asked = OffsetFetchRequestGroup(group_id=self.group, topics=rng.choice((topics, None)))
        deleted = OffsetDeleteRequestTopic(name=VICTIM, partitions=[OffsetDeleteRequestPartition()])
        request, version = rng.choice(
            (
                (OffsetFetchRequest(groups=[asked], require_stable=rng.random() < 0.5), rng.randint(8, 9)),
                (OffsetDeleteRequest(group_id=self.group, topics=[deleted]), 0),
                (DescribeGroupsRequest(groups=[self.group]), rng.randint(0, 6)),
                (ListGroupsRequest(), rng.randint(0, 5)),
                (DeleteGroupsRequest(groups_names=[self.group]), rng.randint(0, 2)),
            )
        )
        await self.ask(request, version)


class Producer:
    """A transactional producer, as far as it knows."""

    def __init__(self, peer: "HostileConnection"):
        self.peer = peer
        self.name = peer.random.choice(NAMES)
        self.id, self.epoch, self.sequence = -1, -1, 0

    async def ask(self, request: Message, version: int) -> Any:
        if self.peer.random.random() < 0.5:
            spoil(self.peer, request, version)
        return await self.peer.call(request, version)

    async def init(self) -> None:
        version = self.peer.random.randint(0, 5)
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=300)
        if version >= 3 and self.peer.random.random() < 0.5:
            request.producer_id, request.producer_epoch = self.id, self.epoch
        reply = await self.ask(request, version)
        if reply is not None and reply.error_code == 0:
            self.id, self.epoch, self.sequence = reply.producer_id, reply.producer_epoch, 0

    async def add(self) -> None:
        version = self.peer.random.randint(0, 5)
        topics = [AddPartitionsToTxnTopic(name=VICTIM, partitions=[0, 1])]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        if version >= 4:
            one = AddPartitionsToTxnTransaction(
                transactional_id=self.name,
                producer_id=self.id,
                producer_epoch=self.epoch,
                topics=topics,
                verify_only=self.peer.random.random() < 0.3,
            )
            request = AddPartitionsToTxnRequest(transactions=[one])
        await self.ask(request, version)

    async def write(self) -> None:
        rng = self.peer.random
        data = batch(
            b"in a transaction",
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence + rng.choice((0, 0, 0, 1)),
            transactional=True,
        )
        request = produce_request(data, VICTIM, rng.randrange(VICTIM_PARTITIONS), acks=-1)
        request.transactional_id = rng.choice((self.name, self.name, None, "x"))
        await self.peer.call(request, rng.choice((9, 10, 11, 12)))
        self.sequence += 1

    async def commit_offsets(self) -> None:
        version = self.peer.random.randint(0, 5)
        group = self.peer.random.choice(GROUPS)
        if version < 5:
            added = AddOffsetsToTxnRequest(
                transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, group_id=group
            )
            await self.ask(added, self.peer.random.randint(0, 4))
        partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3)]
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=VICTIM, partitions=partitions)],
        )
        await self.ask(request, version)

    async def end(self) -> None:
        version = self.peer.random.randint(0, 5)
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=self.peer.random.random() < 0.5,
        )
        reply = await self.ask(request, version)
        if version >= 5 and reply is not None and reply.error_code == 0:
            self.id, self.epoch, self.sequence = reply.producer_id, reply.producer_epoch, 0

    async def mark(self) -> None:
        """Writes transaction markers, as only a coordinator may, for transactions that do not exist."""
        marker = WritableTxnMarker(
            producer_id=STRANGERS_FROM + self.peer.random.randrange(100),
            producer_epoch=1,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name=VICTIM, partition_indexes=[0, 1])],
        )
        await self.peer.call(WriteTxnMarkersRequest(markers=[marker]), self.peer.random.randint(1, 2))

    async def describe(self) -> None:
        await self.ask(DescribeTransactionsRequest(transactional_ids=[self.name]), 0)


async def members(peer: "HostileConnection") -> None:
    member = Member(peer)
    steps = (member.join, member.join, member.sync, member.heartbeat, member.commit, member.look, member.leave)
    for step in (member.join, member.join, member.sync, *peer.random.choices(steps, k=10)):
        await step()
    await peer.end()


async def producers(peer: "HostileConnection") -> None:
    producer = Producer(peer)
    steps = (
        producer.init,
        producer.add,
        producer.write,
        producer.commit_offsets,
        producer.end,
        producer.mark,
        producer.describe,
    )
    for step in (producer.init, producer.add, producer.write, *peer.random.choices(steps, k=10)):
        await step()
    await peer.end()
