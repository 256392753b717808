"""One rebalance of a group member: revoke partitions, join, sync, apply the new assignment.

Runs in the task of `ConsumerCoordinator`. If a heartbeat or commit response shows during a step that the group has
removed the member, the step raises `RetryJoin`. The steps:

    prepare   eager: revokes all partitions. Cooperative: revokes partitions of topics that are no longer subscribed.
              Removed from the group: all partitions are lost
    join      JoinGroup; the coordinator responds once all members have joined. A new member first gets a member id
    sync      SyncGroup; the leader sends the assignment of the group, every member receives its own
    apply     cooperative: revokes the partitions that move to other members and rejoins. Then adds the new partitions

Errors are handled as in Kafka's client. An unknown member id is dropped. A coordinator that moved is looked up again.
Retriable errors are retried, and all others are raised to the user.

Revoking a partition takes three steps:

1. Fetching stops, so that no more of its records are returned.
2. The user enters the next poll, so the records of earlier polls count as processed.
3. The offset is committed and the listener is called.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence

from headrace.client.consumer.subscription_state import SubscriptionState
from headrace.client.group.assignors.assignor import Assignor, RebalanceProtocol, Topics
from headrace.client.group.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from headrace.client.group.coordinator_client import CoordinatorClient
from headrace.client.group.member import Member, MemberState
from headrace.client.group.rebalance_hooks import RebalanceHooks
from headrace.common.errors import (
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from headrace.common.types import TopicPartition
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

__all__ = ["Rebalance", "RetryJoin"]

_logger = logging.getLogger(__name__)

_JOIN_MARGIN_MS = 5000
"""Added to the rebalance timeout, after which the coordinator responds to JoinGroup at the latest."""


class RetryJoin(Exception):
    """The rebalance must start again: immediately, or after a backoff."""

    def __init__(self, reason: str, immediately: bool = False):
        super().__init__(reason)
        self.immediately = immediately


class Rebalance:
    """The steps of a rebalance, and the results of the last one."""

    def __init__(
        self,
        coordinator: CoordinatorClient,
        member: Member,
        subscription: SubscriptionState,
        assignors: Sequence[Assignor],
        protocol: RebalanceProtocol,
        hooks: RebalanceHooks,
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        request_timeout_ms: float,
        rack: str | None,
        find_topics: Callable[[frozenset[str]], Awaitable[Topics]],
        commit_processed: Callable[[], Awaitable[None]],
    ):
        self._coordinator = coordinator
        self._member = member
        self._subscription = subscription
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._protocol = protocol
        self._hooks = hooks
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._join_timeout_ms = max(request_timeout_ms, rebalance_timeout_ms + _JOIN_MARGIN_MS)
        self._rack = rack
        self._find_topics = find_topics
        self._commit_processed = commit_processed
        self.joined_topics: frozenset[str] = frozenset()
        """The subscribed topics at the last join."""
        self.group_topics: frozenset[str] = frozenset()
        """The subscribed topics of all members, if this member is the leader."""
        self.assigned_topics: Topics | None = None
        """The topics that the last assignment was computed from, or None if this member is not the leader."""

    # ---- prepare

    async def prepare(self) -> None:
        owned = self._subscription.assigned
        if not self._member.is_member:
            await self.lose(owned)
        elif self._protocol == "eager":
            await self.revoke(owned)
        else:
            subscribed = self._subscription.topics
            await self.revoke(frozenset(tp for tp in owned if tp.topic not in subscribed))

    async def revoke(self, tps: frozenset[TopicPartition]) -> None:
        """Revokes partitions. If the group removes the member meanwhile, all partitions are lost instead."""
        if not tps:
            return
        self._subscription.start_revoking(tps)
        await self._hooks.wait_for_poll()
        if self._member.is_member:
            await self._commit_processed()
        if not self._member.is_member:
            await self.lose(self._subscription.assigned)
            return
        await self._hooks.revoked(tps)
        self._subscription.assign_from_group(self._subscription.assigned - tps)
        self._subscription.changed()

    async def lose(self, tps: frozenset[TopicPartition]) -> None:
        if not tps:
            return
        self._subscription.start_revoking(tps)
        await self._hooks.wait_for_poll()
        await self._hooks.lost(tps)
        self._subscription.assign_from_group(())
        self._subscription.changed()

    # ---- join

    async def join(self, reason: str) -> JoinGroupResponse:
        member = self._member
        member.transition_to(MemberState.JOINING)
        self.joined_topics = self._subscription.topics
        request = JoinGroupRequest(
            group_id=member.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[self._join_protocol(assignor) for assignor in self._assignors.values()],
            reason=reason[:255],
        )
        response: JoinGroupResponse = await self._coordinator.send(request, timeout_ms=self._join_timeout_ms)
        error = self._coordinator.error(response.error_code)
        if error is None:
            if response.protocol_type not in (None, PROTOCOL_TYPE) or response.protocol_name not in self._assignors:
                raise InconsistentGroupProtocolError(
                    f"{member}: the group uses protocol {response.protocol_name!r} of type {response.protocol_type!r}: "
                    f"expected one of {', '.join(self._assignors)} of type {PROTOCOL_TYPE!r}"
                )
            is_leader = response.leader == response.member_id
            member.joined(response.generation_id, response.member_id, response.protocol_name, is_leader)
            _logger.info("%s: joined generation %d%s", member, member.generation, " as leader" if is_leader else "")
            return response
        if isinstance(error, MemberIdRequiredError):
            member.set_member_id(response.member_id)
            raise RetryJoin("the coordinator has assigned a member id", immediately=True)
        if isinstance(error, UnknownMemberIdError):
            member.reset_generation()
            raise RetryJoin("the coordinator does not know this member", immediately=True)
        if isinstance(error, IllegalGenerationError):
            member.reset_generation(keep_id=True)
            raise RetryJoin("this member is no longer in the group", immediately=True)
        raise self._to_exception(error)

    def _join_protocol(self, assignor: Assignor) -> JoinGroupRequestProtocol:
        subscription = Subscription(
            topics=tuple(sorted(self.joined_topics)),
            user_data=assignor.user_data(self.joined_topics),
            owned=tuple(sorted(self._subscription.assigned)),
            generation=self._member.generation,
            rack=self._rack,
        )
        return JoinGroupRequestProtocol(name=assignor.name, metadata=encode_subscription(subscription))

    @staticmethod
    def _to_exception(error: KafkaError) -> Exception:
        if error.retriable or isinstance(error, RebalanceInProgressError):
            return RetryJoin(str(error), immediately=isinstance(error, RebalanceInProgressError))
        return error

    # ---- sync

    async def sync(self, joined: JoinGroupResponse) -> Assignment:
        member, sent_as = self._member, self._member.identity
        assignments = await self._assign(joined) if member.is_leader else {}
        if not member.is_leader:
            self.assigned_topics = None
        request = SyncGroupRequest(
            group_id=member.group_id,
            generation_id=sent_as.generation_id,
            member_id=sent_as.member_id,
            group_instance_id=member.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=member.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(assignment))
                for member_id, assignment in assignments.items()
            ],
        )
        response: SyncGroupResponse = await self._coordinator.send(request, timeout_ms=self._join_timeout_ms)
        error = self._coordinator.error(response.error_code)
        if member.identity != sent_as:
            raise RetryJoin("the group removed this member during the join")
        if error is None:
            if response.protocol_name not in (None, member.protocol):
                raise InconsistentGroupProtocolError(
                    f"{member}: received an assignment of protocol {response.protocol_name!r}: expected "
                    f"{member.protocol!r}"
                )
            member.transition_to(MemberState.STABLE)
            return decode_assignment(response.assignment)
        if isinstance(error, UnknownMemberIdError | IllegalGenerationError):
            member.reset_generation(keep_id=isinstance(error, IllegalGenerationError))
            raise RetryJoin("this member is no longer in the group", immediately=True)
        raise self._to_exception(error)

    async def _assign(self, joined: JoinGroupResponse) -> dict[str, Assignment]:
        """Computes the assignment of all members, as the leader."""
        members = {
            joined_member.member_id: decode_subscription(joined_member.metadata, joined_member.group_instance_id)
            for joined_member in joined.members
        }
        self.group_topics = frozenset(topic for subscription in members.values() for topic in subscription.topics)
        topics = self.assigned_topics = await self._find_topics(self.group_topics)
        if joined.skip_assignment:  # a static leader has restarted: the group keeps its assignment (KIP-814)
            return {}
        assignor = self._assignors[self._member.protocol]
        assigned = assignor.assign(topics, members)
        for stranger in assigned.keys() - members.keys():
            raise ValueError(
                f"assignor {assignor.name} assigned partitions to {stranger!r}, which is not a member of the group"
            )
        return {member_id: Assignment(tuple(assigned.get(member_id, ()))) for member_id in members}

    # ---- apply

    async def apply(self, assignment: Assignment) -> str | None:
        """Applies an assignment. Returns the reason to rejoin, or None if there is no need."""
        generation = self._member.generation
        assigned = frozenset(assignment.partitions)
        if unsubscribed := sorted({tp.topic for tp in assigned} - self.joined_topics):
            return f"the assignment has partitions of topics that are not subscribed: {', '.join(unsubscribed)}"
        revoked = self._subscription.assigned - assigned
        if revoked:  # cooperative protocol; the eager protocol has revoked all partitions before
            await self.revoke(revoked)
            self._check_generation(generation)
        added = assigned - self._subscription.assigned
        self._assignors[self._member.protocol].on_assignment(sorted(assigned), generation)
        self._subscription.assign_from_group(assigned)
        self._subscription.changed()
        _logger.info("%s: %d partitions assigned, %d of them new", self._member, len(assigned), len(added))
        await self._hooks.assigned(added)
        return "revoked partitions can be assigned to other members" if revoked else None

    def _check_generation(self, generation: int) -> None:
        if self._member.generation != generation:
            raise RetryJoin("the group removed this member during the rebalance", immediately=True)
