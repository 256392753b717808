"""Drives the groups of one shard: short calls for members, collected responses, a manual clock."""

import struct
from collections.abc import Iterable
from typing import Any

from tests.support.coordinator.runtime import Bench

from headrace.common.errors import KafkaError
from headrace.common.ids import make_random
from headrace.common.types import TopicPartition
from headrace.coordinator.group.classic_group import ClassicGroup, GroupState
from headrace.coordinator.group.config import GroupConfig
from headrace.coordinator.group.joining import ClientInfo
from headrace.coordinator.group.shard import CommitRequest, GroupCoordinatorShard
from headrace.coordinator.result import CoordinatorResponse, CoordinatorResult, ProducerInfo
from headrace.coordinator.shard import ShardContext
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.protocol.messages.leave_group import MemberIdentity, MemberResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 30_000
NEWEST_JOIN = 9


def subscription(*topics: str) -> bytes:
    """Returns the metadata of a consumer."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class GroupBench(Bench):
    """One shard. Each call returns the response, or a list that receives the response later."""

    def __init__(self, config: GroupConfig | None = None, seed: int = 0):
        self.config = config or GroupConfig(initial_rebalance_delay_ms=0)
        random = make_random(seed)

        def make(context: ShardContext) -> GroupCoordinatorShard:
            self.context = context
            return GroupCoordinatorShard(context, lambda: self.config, random)

        super().__init__(make)

    @property
    def group(self) -> ClassicGroup:
        return self.shard.groups[GROUP]

    @property
    def state(self) -> GroupState:
        return self.group.state

    # ---- requests

    def join(
        self,
        member_id: str = "",
        *,
        group_id: str = GROUP,
        instance: str | None = None,
        protocols: Iterable[tuple[str, bytes]] = (("range", b""),),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 3,
        client_id: str = "client",
        replies: list[JoinGroupResponse] | None = None,
    ) -> list[JoinGroupResponse]:
        """Sends a JoinGroup; by default version 3, which needs no assigned member id. `replies` gets the response."""
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        told = [] if replies is None else replies
        self.runtime.write(
            0, lambda shard: shard.members.join(request, ClientInfo(client_id, "/host"), version, told.append), _ignore
        )
        return told

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
        group_id: str = GROUP,
        replies: list[SyncGroupResponse] | None = None,
    ) -> list[SyncGroupResponse]:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=data)
                for each, data in (assignments or {}).items()
            ],
        )
        told = [] if replies is None else replies
        self.runtime.write(0, lambda shard: shard.members.sync(request, told.append), _ignore)
        return told

    def heartbeat(
        self, member_id: str, generation: int, *, instance: str | None = None, group_id: str = GROUP
    ) -> type[KafkaError] | None:
        request = HeartbeatRequest(
            group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        try:
            self.shard.members.heartbeat(request)
        except KafkaError as error:
            return type(error)
        return None

    def leave(
        self, *identities: str | tuple[str, str | None], group_id: str = GROUP
    ) -> list[MemberResponse] | type[KafkaError]:
        members = [
            MemberIdentity(member_id=each)
            if isinstance(each, str)
            else MemberIdentity(member_id=each[0], group_instance_id=each[1])
            for each in identities
        ]
        return self.ask(lambda shard: shard.members.leave(group_id, members))

    def commit(self, offset: int, member_id: str = "", generation: int = -1, **options: Any) -> int | type[KafkaError]:
        """Returns the partition's error code, or the error of the whole request."""
        (reply,) = self.commit_later(offset, member_id, generation, **options)
        return reply

    def commit_later(
        self,
        offset: int,
        member_id: str = "",
        generation: int = -1,
        *,
        instance: str | None = None,
        topic: str = "t",
        partition: int = 0,
        metadata: str | None = "",
        expire_after_ms: int = -1,
        producer: ProducerInfo | None = None,
        group_id: str = GROUP,
        replies: list[int | type[KafkaError]] | None = None,
    ) -> list[int | type[KafkaError]]:
        """Sends a commit; the response comes when the record is committed."""
        tp = TopicPartition(topic, partition)
        request = CommitRequest(
            group_id, generation, member_id, instance, [(tp, offset, -1, metadata)], expire_after_ms
        )
        told = [] if replies is None else replies

        def done(outcome: CoordinatorResponse[dict[TopicPartition, int]]) -> None:
            told.append(type(outcome.error) if outcome.error is not None else outcome.result()[tp])

        self.runtime.write(
            0,
            lambda shard: shard.commit(request) if producer is None else shard.commit_in_transaction(request, producer),
            done,
        )
        return told

    def committed(self, topic: str = "t", partition: int = 0, group_id: str = GROUP) -> int | None:
        found = self.shard.offsets_of(group_id).get(topic, partition)
        return found.offset if found is not None else None

    def ask(self, operation: Any) -> Any:
        """Returns the response of an operation that does not wait, or the class of its error."""
        outcomes: list[CoordinatorResponse[Any]] = []
        self.runtime.write(0, operation, outcomes.append)
        (outcome,) = outcomes
        return type(outcome.error) if outcome.error is not None else outcome.result()

    def end_transaction(self, producer: ProducerInfo, committed: bool) -> None:
        outcomes: list[CoordinatorResponse[None]] = []
        self.runtime.end_transaction(0, producer, committed, 0, outcomes.append)
        outcomes[0].result()

    def expire(self) -> None:
        self.ask(lambda shard: shard.expire())

    def is_scheduled(self, kind: str) -> bool:
        """Returns True if any group has a timer of this kind."""
        return any(key[0] == kind for key in self.context.scheduled() if isinstance(key, tuple))

    # ---- complete groups

    def stable(self, count: int = 1, **options: Any) -> list[str]:
        """Creates a stable group. Returns the members, the leader first."""
        replies = [self.join(**options)]
        ids = [replies[0][0].member_id] if replies[0] else []
        while len(replies) < count:
            replies.append(self.join(**options))
            for member_id in ids:
                again = {key: value for key, value in options.items() if key != "instance"}
                replies.append(self.join(member_id, **again)) if member_id else None
            ids = list(self.group.members)
            replies = [[self.group.joined_response(member)] for member in self.group.members.values()]
        leader = self.group.leader_id or ""
        generation = self.group.generation_id
        self.sync(leader, generation, {each: each.encode() for each in self.group.members})
        for each in self.group.members:
            self.sync(each, generation)
        assert self.state is GroupState.STABLE
        return [leader, *(each for each in self.group.members if each != leader)]


def _ignore(_: CoordinatorResponse[Any]) -> None:
    """Ignores the response: the group responds to pending requests."""


def nothing(reply: Any = None) -> CoordinatorResult[Any]:
    return CoordinatorResult((), reply)
