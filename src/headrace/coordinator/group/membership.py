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
"""

import logging
from collections.abc import Callable
from functools import partial

from headrace.common.errors import (
    CoordinatorNotAvailableError,
    InconsistentGroupProtocolError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    code_of,
)
from headrace.common.ids import Random
from headrace.coordinator.group.classic_group import ClassicGroup, GroupState, JoinCallback, Member, SyncCallback
from headrace.coordinator.group.config import GroupConfig
from headrace.coordinator.group.joining import ClientInfo, Joining, check_group_id, write_error
from headrace.coordinator.group.rebalances import EMPTY_RESULT, Rebalances
from headrace.coordinator.group.records import group_record
from headrace.coordinator.result import CoordinatorResult
from headrace.coordinator.shard import ShardContext
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity, MemberResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_logger = logging.getLogger(__name__)


class Membership:
    """Owned by a shard; `groups` is the shard's."""

    def __init__(
        self, context: ShardContext, groups: dict[str, ClassicGroup], config: Callable[[], GroupConfig], random: Random
    ):
        self._context = context
        self._groups = groups
        self._config = config
        self.rebalances = Rebalances(context, config)
        self._joining = Joining(context, groups, self.rebalances, config, random)

    def join(
        self, request: JoinGroupRequest, client: ClientInfo, version: int, reply: JoinCallback
    ) -> CoordinatorResult[None]:
        """`reply` is called once, now or when the group's next generation begins."""
        return self._joining.join(request, client, version, reply)

    # ---- syncing

    def sync(self, request: SyncGroupRequest, reply: SyncCallback) -> CoordinatorResult[None]:
        """`reply` is called once, now or when the leader's assignment is stored."""
        try:
            return self._sync(request, reply)
        except KafkaError as error:
            reply(SyncGroupResponse(error_code=error.code))
            return EMPTY_RESULT

    def _sync(self, request: SyncGroupRequest, reply: SyncCallback) -> CoordinatorResult[None]:
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
        self.rebalances.record_heartbeat(group, member)
        if group.state is GroupState.STABLE:
            # Through the runtime: the assignment may not be committed yet.
            return CoordinatorResult((), None, on_completion=partial(self._answer_stable, group, request, reply))
        member.complete_sync(SyncGroupResponse(error_code=RebalanceInProgressError.code))
        member.sync_callback = reply
        if member.member_id != group.leader_id:
            return EMPTY_RESULT
        given = {assignment.member_id: bytes(assignment.assignment) for assignment in request.assignments}
        value = group.to_value(given, self._context.now_ms())
        return CoordinatorResult(
            [group_record(group.group_id, value)],
            None,
            on_completion=partial(self._assigned, group, group.generation_id),
        )

    @staticmethod
    def _answer_stable(
        group: ClassicGroup, request: SyncGroupRequest, reply: SyncCallback, error: KafkaError | None
    ) -> None:
        """As the group is by now: a member that was replaced meanwhile gets nothing."""
        if error is None:
            try:
                member = group.check_member(request.member_id, request.group_instance_id)
                group.check_generation(request.generation_id)
            except KafkaError as changed:
                reply(SyncGroupResponse(error_code=changed.code))
            else:
                reply(group.synced_response(member.assignment))
        else:
            reply(SyncGroupResponse(error_code=write_error(error).code))

    def _assigned(self, group: ClassicGroup, generation_id: int, error: KafkaError | None) -> None:
        """The leader's assignment is stored, or could not be."""
        if group.generation_id != generation_id:
            return
        if error is None:
            if group.state is GroupState.STABLE:
                for member in group.members.values():
                    if member.complete_sync(group.synced_response(member.assignment)):
                        self.rebalances.record_heartbeat(group, member)
            return
        _logger.warning("group %s: the assignment could not be written: %s", group.group_id, error)
        self.rebalances.refuse_syncs(group, write_error(error))
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            # Runs in its own time: the write that failed is still under way here.
            self._context.schedule(
                ("retry", group.group_id), 0, partial(self._rebalance_after_failure, group, generation_id)
            )

    def _rebalance_after_failure(self, group: ClassicGroup, generation_id: int) -> CoordinatorResult[None]:
        if group.generation_id == generation_id and group.can_rebalance and group.members:
            return self.rebalances.prepare(group, "an assignment could not be written")
        return EMPTY_RESULT

    # ---- heartbeats

    def heartbeat(self, request: HeartbeatRequest) -> None:
        """Raises the error for the reply."""
        group = self._group_of_member(request.group_id)
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        if group.state is GroupState.EMPTY:
            raise UnknownMemberIdError(f"group {group.group_id} is empty")
        self.rebalances.record_heartbeat(group, member)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgressError(f"group {group.group_id} waits for its members to join")

    def note_commit(self, group: ClassicGroup, member: Member) -> None:
        """A commit is as good as a heartbeat."""
        self.rebalances.record_heartbeat(group, member)

    # ---- leaving

    def leave(self, request: LeaveGroupRequest) -> CoordinatorResult[list[MemberResponse]]:
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
                    self.rebalances.remove_pending_member(group, identity.member_id)
                    forgotten = True
                else:
                    self.rebalances.remove_member(group, member)
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
            return CoordinatorResult((), replies)
        outcome = self.rebalances.rebalance_after_removal(group, bool(left), "members left")
        return CoordinatorResult(outcome.records, replies, outcome.on_completion)

    @staticmethod
    def _leaving(group: ClassicGroup, identity: MemberIdentity) -> Member | None:
        """The member that leaves; None if it has only been handed its id. An admin names a static member alone."""
        instance_id, member_id = identity.group_instance_id, identity.member_id
        if instance_id is not None and not member_id:
            member_id = group.static_members.get(instance_id, "")
        if instance_id is None and member_id in group.pending_joins:
            return None
        return group.check_member(member_id, instance_id)

    # ---- coming and going with the shard

    def loaded(self, group: ClassicGroup) -> None:
        """The members of a group that was just read have a whole session to be heard of."""
        for member in group.members.values():
            self.rebalances.record_heartbeat(group, member)
        if len(group.members) > self._config().max_size:
            self._context.schedule(("retry", group.group_id), 0, partial(self._shrink, group))

    def _shrink(self, group: ClassicGroup) -> CoordinatorResult[None]:
        if group.state is not GroupState.STABLE:
            return EMPTY_RESULT
        return self.rebalances.prepare(group, f"it has more than group.max.size={self._config().max_size} members")

    def remove_group(self, group: ClassicGroup, error: type[KafkaError]) -> None:
        """The group is gone from here; who waits is told."""
        group.transition(GroupState.DEAD, self._context.now_ms())
        for kind in ("join", "sync", "retry"):
            self._context.cancel((kind, group.group_id))
        for member_id in list(group.pending_joins):
            self.rebalances.remove_pending_member(group, member_id)
        for member in list(group.members.values()):
            self._context.cancel(("member", group.group_id, member.member_id))
            member.refuse(error)

    def _group_of_member(self, group_id: str) -> ClassicGroup:
        check_group_id(group_id)
        group = self._groups.get(group_id)
        if group is None:
            raise UnknownMemberIdError(f"there is no group {group_id!r}")
        if group.state is GroupState.DEAD:
            raise CoordinatorNotAvailableError(f"group {group_id} is gone")
        return group
