"""Rebalances of groups: join phase, generations, sessions, and the removal of members.

    prepare ──► members join ──► all have joined, or timeout ──► new generation ──► members send SyncGroup
       ▲                                                              │ some do not         │
       └────────── a member joins, leaves or times out ◄──────────────┴─────────────────────┘

Timers by key:

    ("join", group)           ends the join phase
    ("sync", group)           removes members that do not send SyncGroup
    ("member", group, id)     removes a member without heartbeats
    ("pending", group, id)    removes an assigned member id that never joined
    ("retry", group)          starts a rebalance in a separate operation

A heartbeat only updates the member's deadline. The member's timer checks the deadline when it fires, and reschedules
itself if the member is alive.
"""

import logging
from collections.abc import Callable
from functools import partial

from headrace.common.errors import KafkaError, RebalanceInProgressError, UnknownMemberIdError
from headrace.common.logs import shorten
from headrace.coordinator.group.classic_group import ClassicGroup, GroupState, Member
from headrace.coordinator.group.config import GroupConfig
from headrace.coordinator.group.records import group_record
from headrace.coordinator.result import CoordinatorResult
from headrace.coordinator.shard import ShardContext
from headrace.protocol.messages.sync_group import SyncGroupResponse

_logger = logging.getLogger(__name__)

EMPTY_RESULT: CoordinatorResult[None] = CoordinatorResult((), None)


class Rebalances:
    """Runs the rebalances of a shard's groups. Owned by the shard."""

    def __init__(self, context: ShardContext, config: Callable[[], GroupConfig]):
        self._context = context
        self._config = config

    # ---- join phase

    def prepare_or_complete_rebalance(self, group: ClassicGroup, reason: str) -> CoordinatorResult[None]:
        if group.can_rebalance:
            return self.prepare_rebalance(group, reason)
        return self._complete_if_all_joined(group)

    def prepare_rebalance(self, group: ClassicGroup, reason: str) -> CoordinatorResult[None]:
        _logger.info(
            "Preparing rebalance of group %s in generation %d: %s", group.group_id, group.generation_id, reason
        )
        self.fail_pending_syncs(
            group, RebalanceInProgressError
        )  # including those whose assignment is not committed yet
        self._context.cancel(("sync", group.group_id))
        group.pending_syncs.clear()
        group.is_initial_rebalance = group.state is GroupState.EMPTY
        group.new_member_added = False
        group.transition(GroupState.PREPARING_REBALANCE, self._context.now_ms())
        if not group.is_initial_rebalance:
            if group.all_joined:
                return self._complete_join(group)
            self._schedule_join_timeout(group, group.rebalance_timeout_ms)
            return EMPTY_RESULT
        # Otherwise the first of several members that start together would get its own generation.
        delay_ms = self._config().initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        if delay_ms <= 0:
            return self._complete_join(group)
        self._schedule_initial_delay(group, delay_ms, remaining_ms)
        return EMPTY_RESULT

    def _schedule_join_timeout(self, group: ClassicGroup, delay_ms: int) -> None:
        self._context.schedule(("join", group.group_id), delay_ms, partial(self._on_join_timeout, group))

    def _on_join_timeout(self, group: ClassicGroup) -> CoordinatorResult[None]:
        return self._complete_join(group) if group.state is GroupState.PREPARING_REBALANCE else EMPTY_RESULT

    def _schedule_initial_delay(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        self._context.schedule(("join", group.group_id), delay_ms, partial(self._on_initial_delay, group, remaining_ms))

    def _on_initial_delay(self, group: ClassicGroup, remaining_ms: int) -> CoordinatorResult[None]:
        if group.state is not GroupState.PREPARING_REBALANCE:
            return EMPTY_RESULT
        if group.new_member_added and remaining_ms > 0:
            group.new_member_added = False
            delay_ms = min(self._config().initial_rebalance_delay_ms, remaining_ms)
            self._schedule_initial_delay(group, delay_ms, remaining_ms - delay_ms)
            return EMPTY_RESULT
        return self._complete_join(group)

    def _complete_if_all_joined(self, group: ClassicGroup) -> CoordinatorResult[None]:
        if group.state is GroupState.PREPARING_REBALANCE and not group.is_initial_rebalance and group.all_joined:
            return self._complete_join(group)
        return EMPTY_RESULT

    def _complete_join(self, group: ClassicGroup) -> CoordinatorResult[None]:
        """Ends the join phase: removes dynamic members that have not joined, and starts the next generation."""
        self._context.cancel(("join", group.group_id))
        for member in [m for m in group.members.values() if m.join_callback is None and not m.is_static]:
            _logger.info(
                "Group %s: removing member %s, it did not rejoin in time", group.group_id, shorten(member.member_id)
            )
            self.remove_member(group, member)
        if not group.members:
            return self._become_empty(group)
        if not group.elect_joined_leader():
            # Only static members are left and none has joined: they stay members until their sessions time out.
            self._schedule_join_timeout(group, group.rebalance_timeout_ms)
            return EMPTY_RESULT
        group.is_initial_rebalance = False
        group.next_generation(self._context.now_ms())
        _logger.info(
            "Stabilized group %s generation %d with %d members",
            group.group_id,
            group.generation_id,
            len(group.members),
        )
        for member in list(group.members.values()):
            group.pending_syncs.add(member.member_id)
            member.is_new = False
            self.expect_heartbeat(group, member, member.session_timeout_ms)
            member.complete_join(group.joined_response(member))
        self._context.schedule(
            ("sync", group.group_id),
            group.rebalance_timeout_ms,
            partial(self._on_sync_timeout, group, group.generation_id),
        )
        return EMPTY_RESULT

    def _become_empty(self, group: ClassicGroup) -> CoordinatorResult[None]:
        value = group.to_value({}, self._context.now_ms())
        value.generation, value.protocol, value.leader = group.generation_id + 1, None, None

        def stored(error: KafkaError | None) -> None:
            if error is not None and group.state is GroupState.PREPARING_REBALANCE and not group.members:
                _logger.warning("Group %s: could not write its Empty state: %s", group.group_id, error)
                was_stored = group.is_stored
                group.install(value)
                group.is_stored = was_stored

        group.is_initial_rebalance = False
        return CoordinatorResult([group_record(group.group_id, value)], None, on_completion=stored)

    def _on_sync_timeout(self, group: ClassicGroup, generation_id: int) -> CoordinatorResult[None]:
        if group.generation_id != generation_id or group.state not in (
            GroupState.COMPLETING_REBALANCE,
            GroupState.STABLE,
        ):
            return EMPTY_RESULT
        missing = [group.members[member_id] for member_id in group.pending_syncs if member_id in group.members]
        if not missing:
            return EMPTY_RESULT
        for member in missing:
            _logger.info(
                "Group %s: removing member %s, it sent no SyncGroup in time", group.group_id, shorten(member.member_id)
            )
            self.remove_member(group, member)
        return self.prepare_rebalance(group, "members did not send SyncGroup in time")

    def fail_pending_syncs(self, group: ClassicGroup, error: type[KafkaError]) -> None:
        for member in group.members.values():
            if member.complete_sync(SyncGroupResponse(error_code=error.code)):
                self.record_heartbeat(group, member)

    # ---- sessions

    def record_heartbeat(self, group: ClassicGroup, member: Member) -> None:
        """Extends a member's session."""
        self.expect_heartbeat(group, member, member.session_timeout_ms)

    def expect_heartbeat(self, group: ClassicGroup, member: Member, timeout_ms: int) -> None:
        """Sets the deadline of a member's next heartbeat."""
        deadline_ms = self._context.steady_ms() + timeout_ms
        member.alive_until_ms = deadline_ms
        if member.timer_at_ms is None or member.timer_at_ms > deadline_ms:
            self._set_timer(group, member, timeout_ms, deadline_ms)

    def _set_timer(self, group: ClassicGroup, member: Member, delay_ms: int, fires_at_ms: int) -> None:
        member.timer_at_ms = fires_at_ms
        self._context.schedule(
            ("member", group.group_id, member.member_id), delay_ms, partial(self._check_session, group, member)
        )

    def _check_session(self, group: ClassicGroup, member: Member) -> CoordinatorResult[None]:
        member.timer_at_ms = None
        if group.members.get(member.member_id) is not member:
            return EMPTY_RESULT
        remaining_ms = member.alive_until_ms - self._context.steady_ms()
        if remaining_ms > 0:
            self._set_timer(group, member, remaining_ms, member.alive_until_ms)
            return EMPTY_RESULT
        if member.is_waiting and not member.is_new:
            return EMPTY_RESULT  # its request is pending; heartbeats are expected after the response
        return self._expire_member(group, member)

    def rename(self, group: ClassicGroup, member: Member, new_id: str) -> None:
        self._context.cancel(("member", group.group_id, member.member_id))
        member.timer_at_ms = None
        group.rename_static(member, new_id)
        self.record_heartbeat(group, member)

    # ---- removing members

    def _expire_member(self, group: ClassicGroup, member: Member) -> CoordinatorResult[None]:
        _logger.info("Group %s: removing member %s, its session timed out", group.group_id, shorten(member.member_id))
        self.remove_member(group, member)
        return self.rebalance_after_removal(group, True, f"the session of member {shorten(member.member_id)} timed out")

    def rebalance_after_removal(self, group: ClassicGroup, was_member: bool, reason: str) -> CoordinatorResult[None]:
        """Starts a rebalance, or completes the join phase, after a member or a pending member id was removed."""
        if group.state is GroupState.PREPARING_REBALANCE:
            if not group.members and not group.pending_joins:
                return self._complete_join(group)
            return self._complete_if_all_joined(group)
        if was_member and group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self.prepare_rebalance(group, reason)
        return EMPTY_RESULT

    def remove_member(self, group: ClassicGroup, member: Member) -> None:
        self.remove(group, member.member_id, UnknownMemberIdError)

    def remove(self, group: ClassicGroup, member_id: str, error: type[KafkaError]) -> None:
        self.remove_pending_member(group, member_id)
        member = group.remove(member_id)
        if member is not None:
            self._context.cancel(("member", group.group_id, member_id))
            member.timer_at_ms = None
            member.fail_pending_requests(error)

    # ---- assigned member ids that have not joined

    def add_pending_member(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        group.pending_joins.add(member_id)
        self._context.schedule(
            ("pending", group.group_id, member_id), timeout_ms, partial(self._on_pending_timeout, group, member_id)
        )

    def _on_pending_timeout(self, group: ClassicGroup, member_id: str) -> CoordinatorResult[None]:
        group.pending_joins.discard(member_id)
        return self.rebalance_after_removal(group, False, "")

    def remove_pending_member(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_joins.discard(member_id)
        self._context.cancel(("pending", group.group_id, member_id))
