"""Members come, beat and go: JoinGroup, SyncGroup, Heartbeat and LeaveGroup on the groups of one shard.

How each state answers a member that it knows, of the right generation:

                          Empty            Preparing            Completing                 Stable
    JoinGroup             UNKNOWN_MEMBER   waits for the rest   told again, or, if it      the leader, or other
                                                                changed, rebalance         protocols: rebalance
    SyncGroup             UNKNOWN_MEMBER   REBALANCE_IN_        waits; the leader's        its assignment
                                           PROGRESS             assignment ends it
    Heartbeat             UNKNOWN_MEMBER   REBALANCE_IN_        fine                       fine
                                           PROGRESS
    LeaveGroup            UNKNOWN_MEMBER   removed              removed, rebalance         removed, rebalance

Before that come, in this order: a fenced or unknown instance id, an unknown member id, a wrong generation, a wrong
protocol. A group that is Dead answers COORDINATOR_NOT_AVAILABLE.

Timers, by key: `("join", group)` ends the join phase, `("sync", group)` drops members that never ask for their
assignment, `("member", group, id)` drops one that does not beat, `("pending", group, id)` forgets an id that was handed
out. A heartbeat only notes the time; the member's timer looks at it when it rings, and sets itself again.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from headrace.common.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    KafkaError,
    MemberIdRequiredError,
    MessageSizeTooLargeError,
    NotCoordinatorError,
    RebalanceInProgressError,
    RecordListTooLargeError,
    UnknownError,
    UnknownMemberIdError,
    code_of,
)
from headrace.common.ids import Random, random_uuid
from headrace.coordinator.group.classic import ClassicGroup, GroupState, JoinReply, Member, SyncReply
from headrace.coordinator.group.config import GroupConfig
from headrace.coordinator.group.records import group_record
from headrace.coordinator.runtime import Result, ShardContext
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity, MemberResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_logger = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long one that has just joined may wait for its first generation. Its client cannot beat meanwhile, and one that
has gone away would be waited for as long as the others take."""

_LONGEST_NAME = 32_000
"""In bytes: a little less than a string of 16 bits' length, since ids are made of names."""
_FIRST_WITH_ID_REQUIRED = 4
_FIRST_WITH_SKIP_ASSIGNMENT = 9

NOTHING: Result[None] = Result((), None)


class Client(NamedTuple):
    """Who sends a request."""

    client_id: str
    host: str


def write_error(error: KafkaError) -> type[KafkaError]:
    """What clients are told when the group could not be stored: something that makes them try again."""
    if isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError):
        return UnknownError  # it would not fit the next time either
    return type(error) if isinstance(error, NotCoordinatorError) else CoordinatorNotAvailableError


class Membership:
    """Owned by a shard; `groups` is the shard's."""

    def __init__(
        self, context: ShardContext, groups: dict[str, ClassicGroup], config: Callable[[], GroupConfig], random: Random
    ):
        self._context = context
        self._groups = groups
        self._config = config
        self._random = random

    # ---- joining

    def join(self, request: JoinGroupRequest, client: Client, version: int, reply: JoinReply) -> Result[None]:
        """`reply` is called once, now or when the group's next generation begins."""
        try:
            return self._join(request, client, version, reply)
        except KafkaError as error:
            reply(JoinGroupResponse(error_code=error.code, member_id=request.member_id))
            return NOTHING

    def _join(self, request: JoinGroupRequest, client: Client, version: int, reply: JoinReply) -> Result[None]:
        check_group_id(request.group_id)
        _check_lengths(request, client)
        config = self._config()
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            raise InvalidSessionTimeoutError(
                f"a session timeout is {config.min_session_timeout_ms} to {config.max_session_timeout_ms} ms, not "
                f"{request.session_timeout_ms}"
            )
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise UnknownMemberIdError(f"there is no group {request.group_id!r}")
            if not request.protocol_type or not request.protocols:
                raise InconsistentGroupProtocolError("a member has to name a protocol type and a protocol")
            group = self._groups[request.group_id] = ClassicGroup(request.group_id, self._context.now_ms())
        if group.state is GroupState.DEAD:
            raise CoordinatorNotAvailableError(f"group {group.group_id} is gone")
        if not request.protocols or not group.supports(request.protocol_type, [p.name for p in request.protocols]):
            raise InconsistentGroupProtocolError(
                f"group {group.group_id} has protocol type {group.protocol_type!r} and speaks "
                f"{sorted(group.common_protocols())}, the member {request.protocol_type!r} and "
                f"{[protocol.name for protocol in request.protocols]}"
            )
        replaces = not request.member_id and request.group_instance_id in group.static_members
        if not replaces and not self._has_room(group, request.member_id, config.max_size):
            was_member = request.member_id in group.members
            self._remove(group, request.member_id, GroupMaxSizeReachedError)
            reply(JoinGroupResponse(error_code=GroupMaxSizeReachedError.code, member_id=request.member_id))
            return self._after_loss(group, was_member, "it is full")
        if request.member_id:
            return self._join_known(group, request, client, reply)
        return self._join_new(group, request, client, version, reply)

    @staticmethod
    def _has_room(group: ClassicGroup, member_id: str, max_size: int) -> bool:
        """While a rebalance waits for members, those count that have joined: the first to come are in."""
        if group.state is GroupState.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.join_reply is not None) or group.joining < max_size
        return member is not None or len(group.members) < max_size

    def _join_new(
        self, group: ClassicGroup, request: JoinGroupRequest, client: Client, version: int, reply: JoinReply
    ) -> Result[None]:
        instance_id = request.group_instance_id
        new_id = f"{instance_id or client.client_id}-{random_uuid(self._random).hex}"
        if instance_id is not None:
            if instance_id in group.static_members:
                return self._replace_static(group, new_id, request, client, version, reply)
            return self._add(group, new_id, request, client, reply)
        if version < _FIRST_WITH_ID_REQUIRED:
            return self._add(group, new_id, request, client, reply)
        # A client that gives up and tries again would otherwise leave a member behind each time (KIP-394).
        group.pending_joins.add(new_id)
        self._context.schedule(
            ("pending", group.group_id, new_id),
            request.session_timeout_ms,
            partial(self._pending_expired, group, new_id),
        )
        reply(JoinGroupResponse(error_code=MemberIdRequiredError.code, member_id=new_id))
        return NOTHING

    def _join_known(
        self, group: ClassicGroup, request: JoinGroupRequest, client: Client, reply: JoinReply
    ) -> Result[None]:
        member_id = request.member_id
        if member_id in group.pending_joins:
            if request.group_instance_id is not None:
                raise UnknownMemberIdError(f"{member_id!r} was handed out to a member without an instance id")
            self._forget_pending(group, member_id)
            return self._add(group, member_id, request, client, reply)
        member = group.check_member(member_id, request.group_instance_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            return self._update(group, member, request, client, reply)
        changed = member.protocols != _protocols(request)
        if group.state is GroupState.COMPLETING_REBALANCE and not changed:
            # The reply to its join was lost; it is told again.
            reply(group.joined_response(member))
            return NOTHING
        if group.state is GroupState.STABLE and not changed and member.member_id != group.leader_id:
            # The leader asks for a rebalance by joining: it saw the partitions change. Others have lost the reply.
            reply(group.joined_response(member))
            return NOTHING
        return self._update(group, member, request, client, reply)

    def _add(
        self, group: ClassicGroup, member_id: str, request: JoinGroupRequest, client: Client, reply: JoinReply
    ) -> Result[None]:
        member = Member(
            member_id,
            request.group_instance_id,
            client.client_id,
            client.host,
            _rebalance_timeout_ms(request),
            request.session_timeout_ms,
            _protocols(request),
        )
        member.is_new = True
        member.join_reply = reply
        if not group.members:
            group.protocol_type = request.protocol_type
        group.add(member)
        if group.state is GroupState.PREPARING_REBALANCE and group.is_initial_rebalance:
            group.new_member_added = True
        self._expect_beat(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return self._rebalance_or_complete(group, f"{member_id} joined")

    def _update(
        self, group: ClassicGroup, member: Member, request: JoinGroupRequest, client: Client, reply: JoinReply
    ) -> Result[None]:
        _supersede_join(member)
        member.protocols = _protocols(request)
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id, member.client_host = client
        member.join_reply = reply
        return self._rebalance_or_complete(group, f"{member.member_id} joined again")

    def _replace_static(
        self,
        group: ClassicGroup,
        new_id: str,
        request: JoinGroupRequest,
        client: Client,
        version: int,
        reply: JoinReply,
    ) -> Result[None]:
        """A static member's process has started again: it takes the place of the old one, which is fenced (KIP-345)."""
        member = group.members[group.static_members[request.group_instance_id or ""]]
        old_id, old_leader = member.member_id, group.leader_id
        old_protocols = member.protocols
        _logger.info("group %s: static member %s is %s now", group.group_id, member.group_instance_id, new_id)
        member.refuse(FencedInstanceIdError)
        self._rename(group, member, new_id)
        member.protocols = _protocols(request)
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id, member.client_host = client
        if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol:
            member.join_reply = reply
            self._expect_beat(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
            member.is_new = True
            return self._rebalance_or_complete(group, f"static member {member.group_instance_id} was replaced")
        self._beat(group, member)

        def stored(error: KafkaError | None) -> None:
            if error is not None:
                if group.members.get(new_id) is member:
                    self._rename(group, member, old_id)
                    member.protocols = old_protocols
                reply(JoinGroupResponse(error_code=write_error(error).code, member_id=""))
                return
            response = group.joined_response(member, skip_assignment=True)
            if version < _FIRST_WITH_SKIP_ASSIGNMENT:
                # It must not assign anew: it is told that another leads.
                response.leader, response.skip_assignment, response.members = old_leader or "", False, []
            reply(response)

        value = group.to_value({each.member_id: each.assignment for each in group.members.values()}, self._now_ms())
        return Result([group_record(group.group_id, value)], None, after=stored)

    def _rename(self, group: ClassicGroup, member: Member, new_id: str) -> None:
        self._context.cancel(("member", group.group_id, member.member_id))
        member.timer_at_ms = None
        group.rename_static(member, new_id)
        self._beat(group, member)

    # ---- rebalancing

    def _rebalance_or_complete(self, group: ClassicGroup, reason: str) -> Result[None]:
        if group.can_rebalance:
            return self.prepare_rebalance(group, reason)
        return self._complete_if_all_joined(group)

    def prepare_rebalance(self, group: ClassicGroup, reason: str) -> Result[None]:
        _logger.info("group %s rebalances after generation %d: %s", group.group_id, group.generation_id, reason)
        self._refuse_syncs(group, RebalanceInProgressError)  # also those whose assignment is not committed yet
        self._context.cancel(("sync", group.group_id))
        group.pending_syncs.clear()
        group.is_initial_rebalance = group.state is GroupState.EMPTY
        group.new_member_added = False
        group.transition(GroupState.PREPARING_REBALANCE, self._now_ms())
        if not group.is_initial_rebalance:
            if group.all_joined:
                return self._complete_join(group)
            self._schedule_join_end(group, group.rebalance_timeout_ms)
            return NOTHING
        # The first of several that start together would otherwise have a generation of its own.
        delay_ms = self._config().initial_rebalance_delay_ms
        left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        if delay_ms <= 0:
            return self._complete_join(group)
        self._schedule_initial_end(group, delay_ms, left_ms)
        return NOTHING

    def _schedule_join_end(self, group: ClassicGroup, delay_ms: int) -> None:
        self._context.schedule(("join", group.group_id), delay_ms, partial(self._join_phase_over, group))

    def _join_phase_over(self, group: ClassicGroup) -> Result[None]:
        return self._complete_join(group) if group.state is GroupState.PREPARING_REBALANCE else NOTHING

    def _schedule_initial_end(self, group: ClassicGroup, delay_ms: int, left_ms: int) -> None:
        self._context.schedule(("join", group.group_id), delay_ms, partial(self._initial_delay_over, group, left_ms))

    def _initial_delay_over(self, group: ClassicGroup, left_ms: int) -> Result[None]:
        if group.state is not GroupState.PREPARING_REBALANCE:
            return NOTHING
        if group.new_member_added and left_ms > 0:
            group.new_member_added = False
            delay_ms = min(self._config().initial_rebalance_delay_ms, left_ms)
            self._schedule_initial_end(group, delay_ms, left_ms - delay_ms)
            return NOTHING
        return self._complete_join(group)

    def _complete_if_all_joined(self, group: ClassicGroup) -> Result[None]:
        if group.state is GroupState.PREPARING_REBALANCE and not group.is_initial_rebalance and group.all_joined:
            return self._complete_join(group)
        return NOTHING

    def _complete_join(self, group: ClassicGroup) -> Result[None]:
        """Ends the join phase: who has not joined is out, unless it is static, and a generation begins."""
        self._context.cancel(("join", group.group_id))
        for member in [m for m in group.members.values() if m.join_reply is None and not m.is_static]:
            _logger.info("group %s: %s did not join again", group.group_id, member.member_id)
            self._drop(group, member)
        if not group.members:
            return self._become_empty(group)
        if not group.elect_joined_leader():
            # Only static members are left, and none is here: they keep their places until their sessions end.
            self._schedule_join_end(group, group.rebalance_timeout_ms)
            return NOTHING
        group.is_initial_rebalance = False
        group.next_generation(self._now_ms())
        _logger.info("group %s: generation %d has %d members", group.group_id, group.generation_id, len(group.members))
        for member in list(group.members.values()):
            if member.join_reply is None:
                continue  # a static member that is away
            group.pending_syncs.add(member.member_id)
            member.is_new = False
            self._expect_beat(group, member, member.session_timeout_ms)
            member.answer_join(group.joined_response(member))
        self._context.schedule(
            ("sync", group.group_id),
            group.rebalance_timeout_ms,
            partial(self._sync_phase_over, group, group.generation_id),
        )
        return NOTHING

    def _become_empty(self, group: ClassicGroup) -> Result[None]:
        value = group.to_value({}, self._now_ms())
        value.generation, value.protocol, value.leader = group.generation_id + 1, None, None

        def stored(error: KafkaError | None) -> None:
            if error is not None and group.state is GroupState.PREPARING_REBALANCE and not group.members:
                _logger.warning("group %s is empty, which could not be written: %s", group.group_id, error)
                was_stored = group.is_stored
                group.install(value)
                group.is_stored = was_stored

        group.is_initial_rebalance = False
        return Result([group_record(group.group_id, value)], None, after=stored)

    def _sync_phase_over(self, group: ClassicGroup, generation_id: int) -> Result[None]:
        if group.generation_id != generation_id or group.state not in (
            GroupState.COMPLETING_REBALANCE,
            GroupState.STABLE,
        ):
            return NOTHING
        late = [group.members[member_id] for member_id in group.pending_syncs if member_id in group.members]
        if not late:
            return NOTHING
        for member in late:
            _logger.info("group %s: %s did not ask for its assignment", group.group_id, member.member_id)
            self._drop(group, member)
        return self.prepare_rebalance(group, "members did not ask for their assignment")

    # ---- syncing

    def sync(self, request: SyncGroupRequest, reply: SyncReply) -> Result[None]:
        """`reply` is called once, now or when the leader's assignment is stored."""
        try:
            return self._sync(request, reply)
        except KafkaError as error:
            reply(SyncGroupResponse(error_code=error.code))
            return NOTHING

    def _sync(self, request: SyncGroupRequest, reply: SyncReply) -> Result[None]:
        group = self._group_of_member(request.group_id)
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        if request.protocol_type is not None and request.protocol_type != group.protocol_type:
            raise InconsistentGroupProtocolError(f"group {group.group_id} has protocol type {group.protocol_type!r}")
        if request.protocol_name is not None and request.protocol_name != group.protocol:
            raise InconsistentGroupProtocolError(f"group {group.group_id} has protocol {group.protocol!r}")
        if group.state is GroupState.EMPTY:
            raise UnknownMemberIdError(f"group {group.group_id} is empty")
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgressError(f"group {group.group_id} waits for its members to join")
        group.pending_syncs.discard(member.member_id)
        self._beat(group, member)
        if group.state is GroupState.STABLE:
            # Through the runtime: the assignment may not be committed yet.
            response = group.synced_response(member.assignment)
            return Result((), None, after=lambda error: reply(response if error is None else _sync_failed(error)))
        member.answer_sync(SyncGroupResponse(error_code=RebalanceInProgressError.code))
        member.sync_reply = reply
        if member.member_id != group.leader_id:
            return NOTHING
        given = {assignment.member_id: bytes(assignment.assignment) for assignment in request.assignments}
        value = group.to_value(given, self._now_ms())
        return Result(
            [group_record(group.group_id, value)], None, after=partial(self._assigned, group, group.generation_id)
        )

    def _assigned(self, group: ClassicGroup, generation_id: int, error: KafkaError | None) -> None:
        """The leader's assignment is stored, or could not be."""
        if group.generation_id != generation_id:
            return
        if error is None:
            if group.state is GroupState.STABLE:
                for member in group.members.values():
                    if member.answer_sync(group.synced_response(member.assignment)):
                        self._beat(group, member)
            return
        _logger.warning("group %s: the assignment could not be written: %s", group.group_id, error)
        self._refuse_syncs(group, write_error(error))
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            # Runs in its own time: the write that failed is still under way here.
            self._context.schedule(
                ("retry", group.group_id), 0, partial(self._rebalance_after_failure, group, generation_id)
            )

    def _rebalance_after_failure(self, group: ClassicGroup, generation_id: int) -> Result[None]:
        if group.generation_id == generation_id and group.can_rebalance and group.members:
            return self.prepare_rebalance(group, "an assignment could not be written")
        return NOTHING

    def _refuse_syncs(self, group: ClassicGroup, error: type[KafkaError]) -> None:
        for member in group.members.values():
            if member.answer_sync(SyncGroupResponse(error_code=error.code)):
                self._beat(group, member)

    # ---- heartbeats

    def heartbeat(self, request: HeartbeatRequest) -> None:
        """Raises the error for the reply."""
        group = self._group_of_member(request.group_id)
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        if group.state is GroupState.EMPTY:
            raise UnknownMemberIdError(f"group {group.group_id} is empty")
        self._beat(group, member)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgressError(f"group {group.group_id} waits for its members to join")

    def note_commit(self, group: ClassicGroup, member: Member) -> None:
        """A commit is as good as a heartbeat."""
        self._beat(group, member)

    def _beat(self, group: ClassicGroup, member: Member) -> None:
        self._expect_beat(group, member, member.session_timeout_ms)

    def _expect_beat(self, group: ClassicGroup, member: Member, within_ms: int) -> None:
        deadline_ms = self._context.steady_ms() + within_ms
        member.alive_until_ms = deadline_ms
        if member.timer_at_ms is None or member.timer_at_ms > deadline_ms:
            self._set_timer(group, member, within_ms, deadline_ms)

    def _set_timer(self, group: ClassicGroup, member: Member, delay_ms: int, at_ms: int) -> None:
        member.timer_at_ms = at_ms
        self._context.schedule(
            ("member", group.group_id, member.member_id), delay_ms, partial(self._session_looked_at, group, member)
        )

    def _session_looked_at(self, group: ClassicGroup, member: Member) -> Result[None]:
        member.timer_at_ms = None
        if group.members.get(member.member_id) is not member:
            return NOTHING
        left_ms = member.alive_until_ms - self._context.steady_ms()
        if left_ms > 0:
            self._set_timer(group, member, left_ms, member.alive_until_ms)
            return NOTHING
        if member.is_waiting and not member.is_new:
            return NOTHING  # its request is here; it is expected to beat from the reply on
        return self._lose(group, member, "its session timed out")

    # ---- leaving

    def leave(self, request: LeaveGroupRequest) -> Result[list[MemberResponse]]:
        """Raises an error of the whole request."""
        group = self._group_of_member(request.group_id)
        left: list[Member] = []
        replies: list[MemberResponse] = []
        forgotten = False
        for identity in request.members:
            error: KafkaError | None = None
            try:
                member = self._leaving(group, identity)
                if member is None:
                    self._forget_pending(group, identity.member_id)
                    forgotten = True
                else:
                    self._drop(group, member)
                    left.append(member)
                    _logger.info(
                        "group %s: %s left: %s", group.group_id, member.member_id, identity.reason or "no reason given"
                    )
            except KafkaError as raised:
                error = raised
            replies.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=code_of(error),
                )
            )
        if not left and not forgotten:
            return Result((), replies)
        records, _, after, _ = self._after_loss(group, bool(left), "members left")
        return Result(records, replies, after)

    @staticmethod
    def _leaving(group: ClassicGroup, identity: MemberIdentity) -> Member | None:
        """The member that leaves; None if it has only been handed its id. An admin names a static member alone."""
        instance_id, member_id = identity.group_instance_id, identity.member_id
        if instance_id is not None and not member_id:
            member_id = group.static_members.get(instance_id, "")
        if instance_id is None and member_id in group.pending_joins:
            return None
        return group.check_member(member_id, instance_id)

    def _lose(self, group: ClassicGroup, member: Member, reason: str) -> Result[None]:
        _logger.info("group %s lost %s: %s", group.group_id, member.member_id, reason)
        self._drop(group, member)
        return self._after_loss(group, True, f"{member.member_id} is lost")

    def _after_loss(self, group: ClassicGroup, lost: bool, reason: str) -> Result[None]:
        if group.state is GroupState.PREPARING_REBALANCE:
            if not group.members and not group.pending_joins:
                return self._complete_join(group)
            return self._complete_if_all_joined(group)
        if lost and group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self.prepare_rebalance(group, reason)
        return NOTHING

    def _drop(self, group: ClassicGroup, member: Member) -> None:
        self._remove(group, member.member_id, UnknownMemberIdError)

    def _remove(self, group: ClassicGroup, member_id: str, error: type[KafkaError]) -> None:
        member = group.remove(member_id)
        if member is not None:
            self._context.cancel(("member", group.group_id, member_id))
            member.timer_at_ms = None
            member.refuse(error)

    def _pending_expired(self, group: ClassicGroup, member_id: str) -> Result[None]:
        group.pending_joins.discard(member_id)
        return self._after_loss(group, False, "")

    def _forget_pending(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_joins.discard(member_id)
        self._context.cancel(("pending", group.group_id, member_id))

    # ---- coming and going with the shard

    def loaded(self, group: ClassicGroup) -> None:
        """The members of a group that was just read have a whole session to be heard of."""
        for member in group.members.values():
            self._beat(group, member)
        if len(group.members) > self._config().max_size:
            self._context.schedule(("retry", group.group_id), 0, partial(self._shrink, group))

    def _shrink(self, group: ClassicGroup) -> Result[None]:
        if group.state is not GroupState.STABLE:
            return NOTHING
        return self.prepare_rebalance(group, f"it has more than group.max.size={self._config().max_size} members")

    def bury(self, group: ClassicGroup, error: type[KafkaError]) -> None:
        """The group is gone from here; who waits is told."""
        group.transition(GroupState.DEAD, self._now_ms())
        for kind in ("join", "sync", "retry"):
            self._context.cancel((kind, group.group_id))
        for member_id in list(group.pending_joins):
            self._forget_pending(group, member_id)
        for member in list(group.members.values()):
            self._context.cancel(("member", group.group_id, member.member_id))
            member.refuse(error)

    # ---- small things

    def _now_ms(self) -> int:
        return self._context.now_ms()

    def _group_of_member(self, group_id: str) -> ClassicGroup:
        check_group_id(group_id)
        group = self._groups.get(group_id)
        if group is None:
            raise UnknownMemberIdError(f"there is no group {group_id!r}")
        if group.state is GroupState.DEAD:
            raise CoordinatorNotAvailableError(f"group {group_id} is gone")
        return group


def check_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupIdError("a group that has members has a name")
    if len(group_id) * 4 > _LONGEST_NAME and len(group_id.encode()) > _LONGEST_NAME:
        raise InvalidGroupIdError(f"a group's name has at most {_LONGEST_NAME} bytes")


def _sync_failed(error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=write_error(error).code)


def _check_lengths(request: JoinGroupRequest, client: Client) -> None:
    """Newer versions have room for more than a record, or an older version, can say again."""
    names = [request.protocol_type, request.group_instance_id or "", client.client_id]
    names += [protocol.name for protocol in request.protocols]
    if max(len(name.encode()) for name in names) > _LONGEST_NAME:
        raise InvalidRequestError(f"a name of more than {_LONGEST_NAME} bytes")


def _protocols(request: JoinGroupRequest) -> list[tuple[str, bytes]]:
    return [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms


def _supersede_join(member: Member) -> None:
    """A second request of a member answers the first: its client does not wait for that any more."""
    member.answer_join(JoinGroupResponse(error_code=RebalanceInProgressError.code, member_id=member.member_id))
