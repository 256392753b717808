"""JoinGroup: admits members to a group, assigns member ids, and starts rebalances."""

import logging
from collections.abc import Callable
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
)
from headrace.common.ids import Random, random_uuid
from headrace.common.logs import shorten
from headrace.coordinator.group.classic_group import ClassicGroup, GroupState, JoinCallback, Member
from headrace.coordinator.group.config import GroupConfig
from headrace.coordinator.group.rebalances import EMPTY_RESULT, Rebalances
from headrace.coordinator.group.records import group_record
from headrace.coordinator.result import CoordinatorResult
from headrace.coordinator.shard import ShardContext
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

_logger = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a new member may wait for its first generation.

Its client cannot send heartbeats before that. Without this limit a vanished client would stay a member until all others
have joined.
"""

_MAX_NAME_BYTES = 32_000
"""Less than the maximum of a string with a 16-bit length, since member ids are derived from names."""
_FIRST_VERSION_WITH_MEMBER_ID_REQUIRED = 4
_FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9


class ClientInfo(NamedTuple):
    """The client id and host of a request's sender."""

    client_id: str
    host: str


def write_error(error: KafkaError) -> type[KafkaError]:
    """Returns the error that clients get when the group could not be written: a retriable one."""
    if isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError):
        return UnknownError  # a retry would fail too
    return type(error) if isinstance(error, NotCoordinatorError) else CoordinatorNotAvailableError


class Joining:
    """Handles JoinGroup for the groups of a shard. Owned by the shard, whose `groups` it shares."""

    def __init__(
        self,
        context: ShardContext,
        groups: dict[str, ClassicGroup],
        rebalances: Rebalances,
        config: Callable[[], GroupConfig],
        random: Random,
    ):
        self._context = context
        self._groups = groups
        self._rebalances = rebalances
        self._config = config
        self._random = random

    def join(
        self, request: JoinGroupRequest, client: ClientInfo, version: int, respond: JoinCallback
    ) -> CoordinatorResult[None]:
        """Handles a JoinGroup. Calls `respond` once, now or when the next generation starts."""
        try:
            return self._join(request, client, version, respond)
        except KafkaError as error:
            respond(JoinGroupResponse(error_code=error.code, member_id=request.member_id))
            return EMPTY_RESULT

    def _join(
        self, request: JoinGroupRequest, client: ClientInfo, version: int, respond: JoinCallback
    ) -> CoordinatorResult[None]:
        check_group_id(request.group_id)
        _check_lengths(request, client)
        config = self._config()
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            raise InvalidSessionTimeoutError(
                f"Session timeout {request.session_timeout_ms} ms is not between group.min.session.timeout.ms="
                f"{config.min_session_timeout_ms} and group.max.session.timeout.ms={config.max_session_timeout_ms}."
            )
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise UnknownMemberIdError(f"Group {request.group_id} does not exist.")
            if not request.protocol_type or not request.protocols:
                raise InconsistentGroupProtocolError("JoinGroup must have a protocol type and at least one protocol.")
            group = self._groups[request.group_id] = ClassicGroup(request.group_id, self._context.now_ms())
        if group.state is GroupState.DEAD:
            raise CoordinatorNotAvailableError(f"Group {group.group_id} was deleted or moved to another coordinator.")
        replaces_static_member = not request.member_id and request.group_instance_id in group.static_members
        if not replaces_static_member and not self._has_room(group, request.member_id, config.max_size):
            was_member = request.member_id in group.members
            self._rebalances.remove(group, request.member_id, GroupMaxSizeReachedError)
            respond(JoinGroupResponse(error_code=GroupMaxSizeReachedError.code))
            return self._rebalances.rebalance_after_removal(group, was_member, "the group has reached group.max.size")
        if not request.protocols or not group.supports(request.protocol_type, [p.name for p in request.protocols]):
            raise InconsistentGroupProtocolError(
                f"Group {group.group_id} has protocol type {group.protocol_type!r} and protocols "
                f"{sorted(group.common_protocols())}, but the member has {request.protocol_type!r} and "
                f"{[protocol.name for protocol in request.protocols]}."
            )
        if request.member_id:
            return self._join_known(group, request, client, respond)
        return self._join_new(group, request, client, version, respond)

    @staticmethod
    def _has_room(group: ClassicGroup, member_id: str, max_size: int) -> bool:
        """Returns True if the group can take the member. During a join phase only members that have joined count."""
        if group.state is GroupState.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.join_callback is not None) or group.joining < max_size
        return member is not None or len(group.members) < max_size

    def _join_new(
        self, group: ClassicGroup, request: JoinGroupRequest, client: ClientInfo, version: int, respond: JoinCallback
    ) -> CoordinatorResult[None]:
        instance_id = request.group_instance_id
        new_id = f"{instance_id or client.client_id}-{random_uuid(self._random).hex}"
        if instance_id is not None:
            if instance_id in group.static_members:
                return self._replace_static(group, new_id, request, client, version, respond)
            return self._add(group, new_id, request, client, respond)
        if version < _FIRST_VERSION_WITH_MEMBER_ID_REQUIRED:
            return self._add(group, new_id, request, client, respond)
        # Otherwise a client that times out and retries would leave a member behind each time (KIP-394).
        self._rebalances.add_pending_member(group, new_id, request.session_timeout_ms)
        respond(JoinGroupResponse(error_code=MemberIdRequiredError.code, member_id=new_id))
        return EMPTY_RESULT

    def _join_known(
        self, group: ClassicGroup, request: JoinGroupRequest, client: ClientInfo, respond: JoinCallback
    ) -> CoordinatorResult[None]:
        member_id = request.member_id
        if member_id in group.pending_joins:
            if request.group_instance_id is not None:
                raise UnknownMemberIdError(
                    f"Member id {member_id!r} was assigned to a dynamic member, but the request has an instance id."
                )
            self._rebalances.remove_pending_member(group, member_id)
            return self._add(group, member_id, request, client, respond)
        member = group.check_member(member_id, request.group_instance_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            return self._update(group, member, request, client, respond)
        changed = member.protocols != _protocols(request)
        if group.state is GroupState.COMPLETING_REBALANCE and not changed:
            # The response to its JoinGroup was lost: send it again.
            respond(group.joined_response(member))
            return EMPTY_RESULT
        if group.state is GroupState.STABLE and not changed and member.member_id != group.leader_id:
            # Only the leader requests a rebalance by joining again (partitions changed). A follower lost its response.
            respond(group.joined_response(member))
            return EMPTY_RESULT
        return self._update(group, member, request, client, respond)

    def _add(
        self, group: ClassicGroup, member_id: str, request: JoinGroupRequest, client: ClientInfo, respond: JoinCallback
    ) -> CoordinatorResult[None]:
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
        member.join_callback = respond
        if not group.members:
            group.protocol_type = request.protocol_type
        group.add(member)
        if group.state is GroupState.PREPARING_REBALANCE and group.is_initial_rebalance:
            group.new_member_added = True
        self._rebalances.expect_heartbeat(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return self._rebalances.prepare_or_complete_rebalance(group, f"member {shorten(member_id)} joined")

    def _update(
        self, group: ClassicGroup, member: Member, request: JoinGroupRequest, client: ClientInfo, respond: JoinCallback
    ) -> CoordinatorResult[None]:
        _supersede_join(member)
        _update_member_from_request(member, request, client)
        member.join_callback = respond
        reason = f"member {shorten(member.member_id)} joined again"
        return self._rebalances.prepare_or_complete_rebalance(group, reason)

    def _replace_static(
        self,
        group: ClassicGroup,
        new_id: str,
        request: JoinGroupRequest,
        client: ClientInfo,
        version: int,
        respond: JoinCallback,
    ) -> CoordinatorResult[None]:
        """Handles a restarted static member: it replaces the old member id, which is fenced (KIP-345)."""
        member = group.members[group.static_members[request.group_instance_id or ""]]
        old_id, old_leader = member.member_id, group.leader_id
        old_protocols_and_timeouts = member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
        old_client = ClientInfo(member.client_id, member.client_host)
        _logger.info(
            "Group %s: static member %s restarted, its member id is now %s",
            group.group_id,
            shorten(member.group_instance_id or ""),
            shorten(new_id),
        )
        member.fail_pending_requests(FencedInstanceIdError)
        self._rebalances.rename(group, member, new_id)
        _update_member_from_request(member, request, client)
        if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol:
            member.join_callback = respond
            self._rebalances.expect_heartbeat(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
            member.is_new = True
            return self._rebalances.prepare_or_complete_rebalance(
                group, f"static member {member.group_instance_id} was replaced"
            )
        self._rebalances.record_heartbeat(group, member)

        def undo() -> None:
            self._rebalances.rename(group, member, old_id)
            member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms = old_protocols_and_timeouts
            member.client_id, member.client_host = old_client

        def stored(error: KafkaError | None) -> None:
            if error is not None:
                respond(JoinGroupResponse(error_code=write_error(error).code))
                return
            try:
                group.check_member(new_id, request.group_instance_id)
            except KafkaError as changed:  # replaced again before this was committed
                respond(JoinGroupResponse(error_code=changed.code, member_id=new_id))
                return
            response = group.joined_response(member, skip_assignment=True)
            if version < _FIRST_VERSION_WITH_SKIP_ASSIGNMENT:
                # It must not compute a new assignment: the response names the old leader id.
                response.leader, response.skip_assignment, response.members = old_leader or "", False, []
            respond(response)

        value = group.to_value(
            {existing.member_id: existing.assignment for existing in group.members.values()}, self._context.now_ms()
        )
        return CoordinatorResult([group_record(group.group_id, value)], None, on_completion=stored, undo=undo)


def check_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupIdError("group.id must not be empty")
    if len(group_id) * 4 > _MAX_NAME_BYTES and len(group_id.encode()) > _MAX_NAME_BYTES:
        raise InvalidGroupIdError(f"group.id must not be longer than {_MAX_NAME_BYTES} bytes")


def _check_lengths(request: JoinGroupRequest, client: ClientInfo) -> None:
    """Rejects names that are too long for the group's record or for older protocol versions."""
    names = [request.protocol_type, request.group_instance_id or "", client.client_id]
    names += [protocol.name for protocol in request.protocols]
    if max(len(name.encode()) for name in names) > _MAX_NAME_BYTES:
        raise InvalidRequestError(f"A protocol name, instance id or client id is longer than {_MAX_NAME_BYTES} bytes.")


def _protocols(request: JoinGroupRequest) -> list[tuple[str, bytes]]:
    return [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms


def _update_member_from_request(member: Member, request: JoinGroupRequest, client: ClientInfo) -> None:
    member.protocols = _protocols(request)
    member.rebalance_timeout_ms = _rebalance_timeout_ms(request)
    member.session_timeout_ms = request.session_timeout_ms
    member.client_id, member.client_host = client


def _supersede_join(member: Member) -> None:
    """Completes a member's previous JoinGroup: its client no longer waits for it."""
    member.complete_join(JoinGroupResponse(error_code=RebalanceInProgressError.code, member_id=member.member_id))
