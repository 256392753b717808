"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup for the groups of one shard.

The response of each group state to a known member with the current generation:

                          Empty            Preparing            Completing                 Stable
    JoinGroup             UNKNOWN_MEMBER   waits for others     same response again; new   same response again; leader
                                                                protocols: rebalance       or new protocols: rebalance
    SyncGroup             UNKNOWN_MEMBER   REBALANCE_IN_        waits for the leader's     its assignment
                                           PROGRESS             assignment
    Heartbeat             UNKNOWN_MEMBER   REBALANCE_IN_        no error                   no error
                                           PROGRESS
    LeaveGroup            UNKNOWN_MEMBER   removed              removed, rebalance         removed, rebalance

These errors come first, in this order: fenced or unknown instance id, unknown member id, wrong generation, wrong
protocol. A Dead group responds with COORDINATOR_NOT_AVAILABLE.
"""

import logging
from collections.abc import Callable, Sequence
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
from headrace.common.logs import shorten
from headrace.coordinator.group.classic_group import ClassicGroup, GroupState, JoinCallback, Member, SyncCallback
from headrace.coordinator.group.config import GroupConfig
from headrace.coordinator.group.joining import ClientInfo, Joining, check_group_id, write_error
from headrace.coordinator.group.rebalances import EMPTY_RESULT, Rebalances
from headrace.coordinator.group.records import group_record
from headrace.coordinator.result import CoordinatorResult
from headrace.coordinator.shard import ShardContext
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest
from headrace.protocol.messages.leave_group import MemberIdentity, MemberResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_logger = logging.getLogger(__name__)


class Membership:
    """Handles the membership requests of a shard's groups. Owned by the shard, whose `groups` it shares."""

    def __init__(
        self, context: ShardContext, groups: dict[str, ClassicGroup], config: Callable[[], GroupConfig], random: Random
    ):
        self._context = context
        self._groups = groups
        self._config = config
        self.rebalances = Rebalances(context, config)
        self._joining = Joining(context, groups, self.rebalances, config, random)

    def join(
        self, request: JoinGroupRequest, client: ClientInfo, version: int, respond: JoinCallback
    ) -> CoordinatorResult[None]:
        """Handles a JoinGroup. Calls `respond` once, now or when the next generation starts."""
        return self._joining.join(request, client, version, respond)

    # ---- SyncGroup

    def sync(self, request: SyncGroupRequest, respond: SyncCallback) -> CoordinatorResult[None]:
        """Handles a SyncGroup. Calls `respond` once, now or when the leader's assignment is committed."""
        try:
            return self._sync(request, respond)
        except KafkaError as error:
            respond(SyncGroupResponse(error_code=error.code))
            return EMPTY_RESULT

    def _sync(self, request: SyncGroupRequest, respond: SyncCallback) -> CoordinatorResult[None]:
        group = self._group_of_member(request.group_id)
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        if request.protocol_type is not None and request.protocol_type != group.protocol_type:
            raise InconsistentGroupProtocolError(
                f"Group {group.group_id} has protocol type {group.protocol_type!r}, not {request.protocol_type!r}."
            )
        if request.protocol_name is not None and request.protocol_name != group.protocol:
            raise InconsistentGroupProtocolError(
                f"Group {group.group_id} has protocol {group.protocol!r}, not {request.protocol_name!r}."
            )
        if group.state is GroupState.EMPTY:
            raise UnknownMemberIdError(f"Group {group.group_id} is empty.")
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgressError(f"Group {group.group_id} is rebalancing: waiting for members to join.")
        group.pending_syncs.discard(member.member_id)
        self.rebalances.record_heartbeat(group, member)
        if group.state is GroupState.STABLE:
            # Wait for the commit: the assignment may not be committed yet.
            return CoordinatorResult(
                (), None, on_completion=partial(self._respond_when_stable, group, request, respond)
            )
        member.complete_sync(SyncGroupResponse(error_code=RebalanceInProgressError.code))
        member.sync_callback = respond
        if member.member_id != group.leader_id:
            return EMPTY_RESULT
        assignments = {assignment.member_id: bytes(assignment.assignment) for assignment in request.assignments}
        value = group.to_value(assignments, self._context.now_ms())
        return CoordinatorResult(
            [group_record(group.group_id, value)],
            None,
            on_completion=partial(self._on_assignment_written, group, group.generation_id),
        )

    @staticmethod
    def _respond_when_stable(
        group: ClassicGroup, request: SyncGroupRequest, respond: SyncCallback, error: KafkaError | None
    ) -> None:
        """Responds from the current state: a member that was replaced meanwhile gets an error."""
        if error is None:
            try:
                member = group.check_member(request.member_id, request.group_instance_id)
                group.check_generation(request.generation_id)
            except KafkaError as changed:
                respond(SyncGroupResponse(error_code=changed.code))
            else:
                respond(group.synced_response(member.assignment))
        else:
            respond(SyncGroupResponse(error_code=write_error(error).code))

    def _on_assignment_written(self, group: ClassicGroup, generation_id: int, error: KafkaError | None) -> None:
        """Sends all members their assignment, or starts a new rebalance if it could not be written."""
        if group.generation_id != generation_id:
            return
        if error is None:
            if group.state is GroupState.STABLE:
                for member in group.members.values():
                    if member.complete_sync(group.synced_response(member.assignment)):
                        self.rebalances.record_heartbeat(group, member)
            return
        _logger.warning(
            "Group %s generation %d: could not write the assignment, rebalancing: %s",
            group.group_id,
            generation_id,
            error,
        )
        self.rebalances.fail_pending_syncs(group, write_error(error))
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            # In a separate operation: the failed write is still on the call stack.
            self._context.schedule(
                ("retry", group.group_id), 0, partial(self._rebalance_after_failure, group, generation_id)
            )

    def _rebalance_after_failure(self, group: ClassicGroup, generation_id: int) -> CoordinatorResult[None]:
        if group.generation_id == generation_id and group.can_rebalance and group.members:
            return self.rebalances.prepare_rebalance(group, "the assignment could not be written")
        return EMPTY_RESULT

    # ---- Heartbeat

    def heartbeat(self, request: HeartbeatRequest) -> None:
        """Handles a Heartbeat. Raises the error for the response."""
        group = self._group_of_member(request.group_id)
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        if group.state is GroupState.EMPTY:
            raise UnknownMemberIdError(f"Group {group.group_id} is empty.")
        self.rebalances.record_heartbeat(group, member)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgressError(f"Group {group.group_id} is rebalancing: waiting for members to join.")

    def record_commit(self, group: ClassicGroup, member: Member) -> None:
        """Counts an offset commit as a heartbeat."""
        self.rebalances.record_heartbeat(group, member)

    # ---- LeaveGroup

    def leave(self, group_id: str, members: Sequence[MemberIdentity]) -> CoordinatorResult[list[MemberResponse]]:
        """Handles a LeaveGroup. Raises an error that concerns the whole request."""
        group = self._group_of_member(group_id)
        departed: list[Member] = []
        responses: list[MemberResponse] = []
        removed_pending = False
        for identity in members:
            error: KafkaError | None = None
            try:
                member = self._leaving_member(group, identity)
                if member is None:
                    self.rebalances.remove_pending_member(group, identity.member_id)
                    removed_pending = True
                else:
                    self.rebalances.remove_member(group, member)
                    departed.append(member)
                    _logger.info(
                        "Group %s: member %s left: %s",
                        group.group_id,
                        shorten(member.member_id),
                        shorten(identity.reason or "no reason given"),
                    )
            except KafkaError as raised:
                error = raised
            responses.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=code_of(error),
                )
            )
        if not departed and not removed_pending:
            return CoordinatorResult((), responses)
        result = self.rebalances.rebalance_after_removal(group, bool(departed), "members left")
        return CoordinatorResult(result.records, responses, result.on_completion)

    @staticmethod
    def _leaving_member(group: ClassicGroup, identity: MemberIdentity) -> Member | None:
        """Returns the leaving member, or None for an assigned member id that has not joined.

        An admin client names a static member by its instance id only.
        """
        instance_id, member_id = identity.group_instance_id, identity.member_id
        if instance_id is not None and not member_id:
            member_id = group.static_members.get(instance_id, "")
        if instance_id is None and member_id in group.pending_joins:
            return None
        return group.check_member(member_id, instance_id)

    # ---- loading and removing groups

    def on_group_loaded(self, group: ClassicGroup) -> None:
        """Starts a full session for each member of a loaded group."""
        for member in group.members.values():
            self.rebalances.record_heartbeat(group, member)
        if len(group.members) > self._config().max_size:
            self._context.schedule(("retry", group.group_id), 0, partial(self._shrink, group))

    def _shrink(self, group: ClassicGroup) -> CoordinatorResult[None]:
        if group.state is not GroupState.STABLE:
            return EMPTY_RESULT
        return self.rebalances.prepare_rebalance(
            group, f"the group has more than group.max.size={self._config().max_size} members"
        )

    def remove_group(self, group: ClassicGroup, error: type[KafkaError]) -> None:
        """Moves a group to Dead: cancels its timers and fails its pending requests."""
        group.transition(GroupState.DEAD, self._context.now_ms())
        for kind in ("join", "sync", "retry"):
            self._context.cancel((kind, group.group_id))
        for member_id in list(group.pending_joins):
            self.rebalances.remove_pending_member(group, member_id)
        for member in list(group.members.values()):
            self._context.cancel(("member", group.group_id, member.member_id))
            member.fail_pending_requests(error)

    def _group_of_member(self, group_id: str) -> ClassicGroup:
        check_group_id(group_id)
        group = self._groups.get(group_id)
        if group is None:
            raise UnknownMemberIdError(f"Group {group_id} does not exist.")
        if group.state is GroupState.DEAD:
            raise CoordinatorNotAvailableError(f"Group {group_id} was deleted or moved to another coordinator.")
        return group
