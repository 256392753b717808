"""JoinGroup: who may join a group, under which id, and whether that makes it rebalance."""

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
from headrace.coordinator.group.classic_group import ClassicGroup, GroupState, JoinCallback, Member
from headrace.coordinator.group.config import GroupConfig
from headrace.coordinator.group.rebalances import EMPTY_RESULT, Rebalances
from headrace.coordinator.group.records import group_record
from headrace.coordinator.result import CoordinatorResult
from headrace.coordinator.shard import ShardContext
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

_logger = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long one that has just joined may wait for its first generation. Its client cannot beat meanwhile, and one that
has gone away would be waited for as long as the others take."""

_LONGEST_NAME = 32_000
"""In bytes: a little less than a string of 16 bits' length, since ids are made of names."""
_FIRST_WITH_ID_REQUIRED = 4
_FIRST_WITH_SKIP_ASSIGNMENT = 9


class ClientInfo(NamedTuple):
    """Who sends a request."""

    client_id: str
    host: str


def write_error(error: KafkaError) -> type[KafkaError]:
    """What clients are told when the group could not be stored: something that makes them try again."""
    if isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError):
        return UnknownError  # it would not fit the next time either
    return type(error) if isinstance(error, NotCoordinatorError) else CoordinatorNotAvailableError


class Joining:
    """Owned by a shard; `groups` is the shard's."""

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
        self, request: JoinGroupRequest, client: ClientInfo, version: int, reply: JoinCallback
    ) -> CoordinatorResult[None]:
        """`reply` is called once, now or when the group's next generation begins."""
        try:
            return self._join(request, client, version, reply)
        except KafkaError as error:
            reply(JoinGroupResponse(error_code=error.code, member_id=request.member_id))
            return EMPTY_RESULT

    def _join(
        self, request: JoinGroupRequest, client: ClientInfo, version: int, reply: JoinCallback
    ) -> CoordinatorResult[None]:
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
        replaces = not request.member_id and request.group_instance_id in group.static_members
        if not replaces and not self._has_room(group, request.member_id, config.max_size):
            was_member = request.member_id in group.members
            self._rebalances.remove(group, request.member_id, GroupMaxSizeReachedError)
            reply(JoinGroupResponse(error_code=GroupMaxSizeReachedError.code))
            return self._rebalances.rebalance_after_removal(group, was_member, "it is full")
        if not request.protocols or not group.supports(request.protocol_type, [p.name for p in request.protocols]):
            raise InconsistentGroupProtocolError(
                f"group {group.group_id} has protocol type {group.protocol_type!r} and speaks "
                f"{sorted(group.common_protocols())}, the member {request.protocol_type!r} and "
                f"{[protocol.name for protocol in request.protocols]}"
            )
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
            return (member is not None and member.join_callback is not None) or group.joining < max_size
        return member is not None or len(group.members) < max_size

    def _join_new(
        self, group: ClassicGroup, request: JoinGroupRequest, client: ClientInfo, version: int, reply: JoinCallback
    ) -> CoordinatorResult[None]:
        instance_id = request.group_instance_id
        new_id = f"{instance_id or client.client_id}-{random_uuid(self._random).hex}"
        if instance_id is not None:
            if instance_id in group.static_members:
                return self._replace_static(group, new_id, request, client, version, reply)
            return self._add(group, new_id, request, client, reply)
        if version < _FIRST_WITH_ID_REQUIRED:
            return self._add(group, new_id, request, client, reply)
        # A client that gives up and tries again would otherwise leave a member behind each time (KIP-394).
        self._rebalances.add_pending_member(group, new_id, request.session_timeout_ms)
        reply(JoinGroupResponse(error_code=MemberIdRequiredError.code, member_id=new_id))
        return EMPTY_RESULT

    def _join_known(
        self, group: ClassicGroup, request: JoinGroupRequest, client: ClientInfo, reply: JoinCallback
    ) -> CoordinatorResult[None]:
        member_id = request.member_id
        if member_id in group.pending_joins:
            if request.group_instance_id is not None:
                raise UnknownMemberIdError(f"{member_id!r} was handed out to a member without an instance id")
            self._rebalances.remove_pending_member(group, member_id)
            return self._add(group, member_id, request, client, reply)
        member = group.check_member(member_id, request.group_instance_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            return self._update(group, member, request, client, reply)
        changed = member.protocols != _protocols(request)
        if group.state is GroupState.COMPLETING_REBALANCE and not changed:
            # The reply to its join was lost; it is told again.
            reply(group.joined_response(member))
            return EMPTY_RESULT
        if group.state is GroupState.STABLE and not changed and member.member_id != group.leader_id:
            # The leader asks for a rebalance by joining: it saw the partitions change. Others have lost the reply.
            reply(group.joined_response(member))
            return EMPTY_RESULT
        return self._update(group, member, request, client, reply)

    def _add(
        self, group: ClassicGroup, member_id: str, request: JoinGroupRequest, client: ClientInfo, reply: JoinCallback
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
        member.join_callback = reply
        if not group.members:
            group.protocol_type = request.protocol_type
        group.add(member)
        if group.state is GroupState.PREPARING_REBALANCE and group.is_initial_rebalance:
            group.new_member_added = True
        self._rebalances.expect_heartbeat(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return self._rebalances.prepare_or_complete_rebalance(group, f"{member_id} joined")

    def _update(
        self, group: ClassicGroup, member: Member, request: JoinGroupRequest, client: ClientInfo, reply: JoinCallback
    ) -> CoordinatorResult[None]:
        _supersede_join(member)
        _update_member_from_request(member, request, client)
        member.join_callback = reply
        return self._rebalances.prepare_or_complete_rebalance(group, f"{member.member_id} joined again")

    def _replace_static(
        self,
        group: ClassicGroup,
        new_id: str,
        request: JoinGroupRequest,
        client: ClientInfo,
        version: int,
        reply: JoinCallback,
    ) -> CoordinatorResult[None]:
        """A static member's process has started again: it takes the place of the old one, which is fenced (KIP-345)."""
        member = group.members[group.static_members[request.group_instance_id or ""]]
        old_id, old_leader = member.member_id, group.leader_id
        before = member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
        old_client = ClientInfo(member.client_id, member.client_host)
        _logger.info("group %s: static member %s is %s now", group.group_id, member.group_instance_id, new_id)
        member.refuse(FencedInstanceIdError)
        self._rebalances.rename(group, member, new_id)
        _update_member_from_request(member, request, client)
        if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol:
            member.join_callback = reply
            self._rebalances.expect_heartbeat(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
            member.is_new = True
            return self._rebalances.prepare_or_complete_rebalance(
                group, f"static member {member.group_instance_id} was replaced"
            )
        self._rebalances.record_heartbeat(group, member)

        def undo() -> None:
            self._rebalances.rename(group, member, old_id)
            member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
            member.client_id, member.client_host = old_client

        def stored(error: KafkaError | None) -> None:
            if error is not None:
                reply(JoinGroupResponse(error_code=write_error(error).code))
                return
            try:
                group.check_member(new_id, request.group_instance_id)
            except KafkaError as changed:  # another took its place before this was committed
                reply(JoinGroupResponse(error_code=changed.code, member_id=new_id))
                return
            response = group.joined_response(member, skip_assignment=True)
            if version < _FIRST_WITH_SKIP_ASSIGNMENT:
                # It must not assign anew: it is told that another leads.
                response.leader, response.skip_assignment, response.members = old_leader or "", False, []
            reply(response)

        value = group.to_value(
            {each.member_id: each.assignment for each in group.members.values()}, self._context.now_ms()
        )
        return CoordinatorResult([group_record(group.group_id, value)], None, on_completion=stored, undo=undo)


def check_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupIdError("a group that has members has a name")
    if len(group_id) * 4 > _LONGEST_NAME and len(group_id.encode()) > _LONGEST_NAME:
        raise InvalidGroupIdError(f"a group's name has at most {_LONGEST_NAME} bytes")


def _check_lengths(request: JoinGroupRequest, client: ClientInfo) -> None:
    """Newer versions have room for more than a record, or an older version, can say again."""
    names = [request.protocol_type, request.group_instance_id or "", client.client_id]
    names += [protocol.name for protocol in request.protocols]
    if max(len(name.encode()) for name in names) > _LONGEST_NAME:
        raise InvalidRequestError(f"a name of more than {_LONGEST_NAME} bytes")


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
    """A second request of a member answers the first: its client does not wait for that any more."""
    member.complete_join(JoinGroupResponse(error_code=RebalanceInProgressError.code, member_id=member.member_id))
