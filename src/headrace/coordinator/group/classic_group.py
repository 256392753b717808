"""A group of the classic protocol: its members, generation and rebalance state.

                 ┌────────────── a member joins ──────────────┐
                 ▼                                            │
    Empty ──► PreparingRebalance ──► CompletingRebalance ──► Stable
      ▲          │        ▲  all joined,  │  the leader's        │
      │    no    │        │  or timeout   │  assignment          │
      │ members  │        └───────────────┴── a member joins, leaves or times out
      └──────────┘
    any ──► Dead: deleted, or coordinated by another broker

PreparingRebalance waits for members to join. CompletingRebalance waits for the leader's assignment.

Only Stable and Empty groups are written to the log (`to_value`) and loaded from it (`install`). Other states are lost
when the broker stops, and the members join again.

This module has no clock and no timers. `membership` handles requests, and `rebalances` runs timers.
"""

import logging
import struct
from collections.abc import Callable, Iterable
from enum import Enum

from headrace.common.errors import (
    FencedInstanceIdError,
    HeadraceError,
    IllegalGenerationError,
    KafkaError,
    UnknownMemberIdError,
)
from headrace.coordinator.group.records import GroupMetadataValue, MemberMetadata
from headrace.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from headrace.protocol.messages.sync_group import SyncGroupResponse

_logger = logging.getLogger(__name__)

CONSUMER_PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1


class GroupState(Enum):
    """The state of a group. The values are the names in the protocol."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_S = GroupState
PREDECESSORS: dict[GroupState, frozenset[GroupState]] = {
    _S.EMPTY: frozenset({_S.PREPARING_REBALANCE}),
    _S.PREPARING_REBALANCE: frozenset({_S.STABLE, _S.COMPLETING_REBALANCE, _S.EMPTY}),
    _S.COMPLETING_REBALANCE: frozenset({_S.PREPARING_REBALANCE}),
    _S.STABLE: frozenset({_S.COMPLETING_REBALANCE}),
    _S.DEAD: frozenset({_S.STABLE, _S.PREPARING_REBALANCE, _S.COMPLETING_REBALANCE, _S.EMPTY, _S.DEAD}),
}
"""The valid previous states of each state."""

JoinCallback = Callable[[JoinGroupResponse], None]
SyncCallback = Callable[[SyncGroupResponse], None]


class Member:
    """A member of a group. `join_callback` and `sync_callback` are set while a JoinGroup or SyncGroup is pending."""

    __slots__ = (
        "alive_until_ms",
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_callback",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_callback",
        "timer_at_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: list[tuple[str, bytes]],
        assignment: bytes = b"",
    ):
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        """Names with metadata, the preferred protocol first."""
        self.assignment = assignment
        self.is_new = False
        """True until the member is part of its first generation."""
        self.join_callback: JoinCallback | None = None
        self.sync_callback: SyncCallback | None = None
        self.alive_until_ms = 0
        self.timer_at_ms: int | None = None
        """The time at which its session timer fires."""

    def __repr__(self) -> str:
        return f"Member({self.member_id!r})"

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_waiting(self) -> bool:
        return self.join_callback is not None or self.sync_callback is not None

    def metadata(self, protocol: str) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def complete_join(self, response: JoinGroupResponse) -> bool:
        """Responds to the pending JoinGroup. Returns False if there is none."""
        callback, self.join_callback = self.join_callback, None
        if callback is None:
            return False
        callback(response)
        return True

    def complete_sync(self, response: SyncGroupResponse) -> bool:
        """Responds to the pending SyncGroup. Returns False if there is none."""
        callback, self.sync_callback = self.sync_callback, None
        if callback is None:
            return False
        callback(response)
        return True

    def fail_pending_requests(self, error: type[KafkaError]) -> None:
        """Completes the pending JoinGroup and SyncGroup with an error."""
        self.complete_join(JoinGroupResponse(error_code=error.code, member_id=self.member_id))
        self.complete_sync(SyncGroupResponse(error_code=error.code))


class ClassicGroup:
    """A group: its members, generation, selected protocol and state."""

    def __init__(self, group_id: str, now_ms: int, state: GroupState = GroupState.EMPTY):
        self.group_id = group_id
        self.state = state
        self.state_timestamp_ms = now_ms
        """The time at which the group entered this state. The retention of an empty group starts here."""
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Instance id → member id."""
        self.pending_joins: set[str] = set()
        """Member ids that were assigned but have not joined yet (KIP-394)."""
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not sent SyncGroup yet."""
        self.new_member_added = False
        """True if a member joined during the initial rebalance delay."""
        self.is_initial_rebalance = False
        """True while the first rebalance of an empty group is delayed, so that more members can join."""
        self.is_stored = False
        """True if the log has a record of this group."""
        self._subscribed: tuple[int, frozenset[str] | None] | None = None

    def __repr__(self) -> str:
        return f"ClassicGroup({self.group_id!r}, {self.state.value}, generation {self.generation_id})"

    # ---- states

    def transition(self, state: GroupState, now_ms: int) -> None:
        if self.state not in PREDECESSORS[state]:
            raise HeadraceError(f"Group {self.group_id} cannot change from {self.state.value} to {state.value}")
        _logger.debug("Group %s: %s -> %s", self.group_id, self.state.value, state.value)
        self.state = state
        self.state_timestamp_ms = now_ms
        self._subscribed = None

    @property
    def can_rebalance(self) -> bool:
        return self.state in PREDECESSORS[GroupState.PREPARING_REBALANCE]

    # ---- members

    def add(self, member: Member) -> None:
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id

    def remove(self, member_id: str) -> Member | None:
        member = self.members.pop(member_id, None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        if member is None:
            return None
        instance_id = member.group_instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def rename_static(self, member: Member, new_id: str) -> None:
        """Replaces the member id of a static member. It keeps its position and its leadership."""
        old_id = member.member_id
        self.members = {
            (new_id if member_id == old_id else member_id): existing for member_id, existing in self.members.items()
        }
        member.member_id = new_id
        assert member.group_instance_id is not None
        self.static_members[member.group_instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.discard(old_id)
            self.pending_syncs.add(new_id)

    def check_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """Returns the member. Raises UnknownMemberIdError, or FencedInstanceIdError if it was replaced."""
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is None:
                raise UnknownMemberIdError(f"Group {self.group_id} has no static member {group_instance_id!r}.")
            if holder != member_id:
                raise FencedInstanceIdError(
                    f"Static member {group_instance_id!r} of group {self.group_id} has member id {holder!r}, not "
                    f"{member_id!r}."
                )
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"Group {self.group_id} has no member {member_id!r}.")
        return member

    def check_generation(self, generation_id: int) -> None:
        if generation_id != self.generation_id:
            raise IllegalGenerationError(
                f"Group {self.group_id} is in generation {self.generation_id}, but the request has generation "
                f"{generation_id}."
            )

    # ---- join phase

    @property
    def joining(self) -> int:
        return sum(member.join_callback is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        return not self.pending_joins and all(member.join_callback is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The largest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Elects a joined member if the leader has not joined this rebalance. Returns False if none has joined."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is not None and leader.join_callback is not None:
            return True
        for member in self.members.values():
            if member.join_callback is not None:
                self.leader_id = member.member_id
                return True
        return False

    # ---- protocols

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Returns True if a member with these protocols can join."""
        if self.state is GroupState.EMPTY or not self.members:
            return bool(protocol_type)
        return protocol_type == self.protocol_type and not self.common_protocols().isdisjoint(names)

    def common_protocols(self) -> set[str]:
        """Returns the protocols that all members support."""
        members = list(self.members.values())
        common = {name for name, _ in members[0].protocols} if members else set()
        for member in members[1:]:
            common &= {name for name, _ in member.protocols}
        return common

    def select_protocol(self) -> str:
        """Returns the protocol with the most votes. A member votes for its first protocol that all support."""
        candidates = self.common_protocols()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if name in candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    # ---- generations

    def next_generation(self, now_ms: int) -> None:
        """Starts the next generation: selects the protocol and waits for the leader's assignment."""
        self.generation_id += 1
        self.protocol = self.select_protocol()
        self.transition(GroupState.COMPLETING_REBALANCE, now_ms)
        self.pending_syncs.clear()

    def joined_response(self, member: Member, *, skip_assignment: bool = False) -> JoinGroupResponse:
        """Returns a member's JoinGroup response. The leader's also has the subscriptions of all members."""
        is_leader = member.member_id == self.leader_id
        return JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader_id or "",
            skip_assignment=skip_assignment and is_leader,
            member_id=member.member_id,
            members=self.subscriptions() if is_leader else [],
        )

    def subscriptions(self) -> list[JoinGroupResponseMember]:
        protocol = self.protocol or ""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(protocol),
            )
            for member in self.members.values()
        ]

    def synced_response(self, assignment: bytes) -> SyncGroupResponse:
        return SyncGroupResponse(protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=assignment)

    # ---- stored form

    def to_value(self, assignments: dict[str, bytes], now_ms: int) -> GroupMetadataValue:
        protocol = self.protocol or ""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol,
            leader=self.leader_id,
            state_timestamp_ms=now_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata(protocol),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )

    def install(self, value: GroupMetadataValue) -> None:
        """Replaces the group's state by a record's. Existing members keep soft state such as pending requests."""
        self.generation_id = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.leader_id = value.leader
        self.state_timestamp_ms = value.state_timestamp_ms
        old_members, self.members = self.members, {}
        self.static_members = {}
        for stored in value.members:
            member = old_members.get(stored.member_id)
            if member is None:
                member = Member(
                    stored.member_id,
                    stored.group_instance_id,
                    stored.client_id,
                    stored.client_host,
                    stored.rebalance_timeout_ms,
                    stored.session_timeout_ms,
                    [(value.protocol or "", stored.subscription)],
                )
            member.assignment = stored.assignment
            self.members[member.member_id] = member
            if member.group_instance_id is not None:
                self.static_members[member.group_instance_id] = member.member_id
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.is_stored = True
        self._subscribed = None

    # ---- subscriptions

    def is_subscribed(self, topic: str) -> bool:
        """Returns True if a member is subscribed to the topic, or if the subscriptions are unknown."""
        topics = self.subscribed_topics()
        return topics is None or topic in topics

    def subscribed_topics(self) -> frozenset[str] | None:
        """Returns the subscribed topics of a consumer group, or None if they are unknown."""
        if self._subscribed is None or self._subscribed[0] != self.generation_id:
            self._subscribed = (self.generation_id, self._read_subscriptions())
        return self._subscribed[1]

    def _read_subscriptions(self) -> frozenset[str] | None:
        if not self.members:
            return frozenset()
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.protocol is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics |= read_subscription(member.metadata(self.protocol))
            except (struct.error, UnicodeDecodeError, ValueError):
                return None
        return frozenset(topics)


def read_subscription(metadata: bytes) -> set[str]:
    """Returns the topics of a consumer subscription: `version int16, topics [string]`. Ignores later fields."""
    _, count = struct.unpack_from(">hi", metadata)
    position = 6
    topics: set[str] = set()
    for _ in range(count):
        (length,) = struct.unpack_from(">h", metadata, position)
        position += 2
        if length < 0 or position + length > len(metadata):
            raise ValueError("truncated topic name")
        topics.add(metadata[position : position + length].decode())
        position += length
    return topics
