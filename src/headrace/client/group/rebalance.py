"""One rebalance of a group member: revoke partitions, join, sync, apply the new assignment.

Runs in the task of `ConsumerCoordinator`. At every step the member may turn out to have been removed from the group
(a heartbeat or commit response says so); the step then raises `RetryJoin`:

    prepare   eager: revokes all partitions. Cooperative: revokes partitions of topics that are no longer subscribed.
              Removed from the group: all partitions are lost
    join      JoinGroup; the coordinator responds once all members have joined. A new member first gets a member id
    sync      SyncGroup; the leader sends the assignment of the group, every member receives its own
    apply     cooperative: revokes the partitions that move to other members and rejoins. Then adds the new partitions

Errors are handled as in Kafka's client: an unknown member id is dropped, a coordinator that moved is looked up again,
retriable errors are retried, and all others are raised to the user.

Revoking a partition takes three steps. Fetching stops, so that no more of its records are returned; the user enters
the next poll, so the records of earlier polls count as processed; then the offset is committed and the listener called.
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
"""A JoinGroup is answered after the rebalance timeout at the latest, and then the reply has to travel."""


class RetryJoin(Exception):
    """The rebalance has to be begun again: at once, or after a wait."""

    def __init__(self, reason: str, at_once: bool = False):
        super().__init__(reason)
        self.at_once = at_once


class Rebalance:
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
        commit_done: Callable[[], Awaitable[None]],
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
        self._commit_done = commit_done
        self.joined_topics: frozenset[str] = frozenset()
        """What was subscribed to at the last join."""
        self.group_topics: frozenset[str] = frozenset()
        """What all members together have subscribed to, if this member leads."""
        self.assigned_topics: Topics | None = None
        """What the leader has given out: its topics as they were. None for other members."""

    # ---- prepare

    async def prepare(self) -> None:
        owned = self._subscription.assigned
        if not self._member.is_member:
            await self.lose(owned)
        elif self._protocol == "eager":
            await self.revoke(owned)
        else:
            wanted = self._subscription.topics
            await self.revoke(frozenset(tp for tp in owned if tp.topic not in wanted))

    async def revoke(self, tps: frozenset[TopicPartition]) -> None:
        """Gives partitions up. If the member is expelled before that is done, all are lost instead."""
        if not tps:
            return
        self._subscription.start_revoking(tps)
        await self._hooks.at_poll()
        if self._member.is_member:
            await self._commit_done()
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
        await self._hooks.at_poll()
        await self._hooks.lost(tps)
        self._subscription.assign_from_group(())
        self._subscription.changed()

    # ---- join

    async def join(self, reason: str) -> JoinGroupResponse:
        member = self._member
        member.move(MemberState.JOINING)
        self.joined_topics = self._subscription.topics
        request = JoinGroupRequest(
            group_id=member.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[self._offer(assignor) for assignor in self._assignors.values()],
            reason=reason[:255],
        )
        reply: JoinGroupResponse = await self._coordinator.send(request, timeout_ms=self._join_timeout_ms)
        error = self._coordinator.error(reply.error_code)
        if error is None:
            if reply.protocol_type not in (None, PROTOCOL_TYPE) or reply.protocol_name not in self._assignors:
                raise InconsistentGroupProtocolError(
                    f"{member}: the group follows {reply.protocol_name!r} of {reply.protocol_type!r}: expected one of "
                    f"{', '.join(self._assignors)} of {PROTOCOL_TYPE!r}"
                )
            is_leader = reply.leader == reply.member_id
            member.joined(reply.generation_id, reply.member_id, reply.protocol_name, is_leader)
            _logger.info("%s: in generation %d%s", member, member.generation, ", which it leads" if is_leader else "")
            return reply
        if isinstance(error, MemberIdRequiredError):
            member.named(reply.member_id)
            raise RetryJoin("the coordinator has given this member an id", at_once=True)
        if isinstance(error, UnknownMemberIdError):
            member.expelled()
            raise RetryJoin("the coordinator does not know this member", at_once=True)
        if isinstance(error, IllegalGenerationError):
            member.expelled(keep_id=True)
            raise RetryJoin("the group has gone on without this member", at_once=True)
        raise self._failed(error)

    def _offer(self, assignor: Assignor) -> JoinGroupRequestProtocol:
        subscription = Subscription(
            topics=tuple(sorted(self.joined_topics)),
            user_data=assignor.user_data(self.joined_topics),
            owned=tuple(sorted(self._subscription.assigned)),
            generation=self._member.generation,
            rack=self._rack,
        )
        return JoinGroupRequestProtocol(name=assignor.name, metadata=encode_subscription(subscription))

    @staticmethod
    def _failed(error: KafkaError) -> Exception:
        if error.retriable or isinstance(error, RebalanceInProgressError):
            return RetryJoin(str(error), at_once=isinstance(error, RebalanceInProgressError))
        return error

    # ---- sync

    async def sync(self, joined: JoinGroupResponse) -> Assignment:
        member, asked = self._member, self._member.identity
        assignments = await self._assign(joined) if member.is_leader else {}
        if not member.is_leader:
            self.assigned_topics = None
        request = SyncGroupRequest(
            group_id=member.group_id,
            generation_id=asked.generation_id,
            member_id=asked.member_id,
            group_instance_id=member.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=member.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=encode_assignment(assignment))
                for each, assignment in assignments.items()
            ],
        )
        reply: SyncGroupResponse = await self._coordinator.send(request, timeout_ms=self._join_timeout_ms)
        error = self._coordinator.error(reply.error_code)
        if member.identity != asked:
            raise RetryJoin("the member was expelled as it joined")
        if error is None:
            if reply.protocol_name not in (None, member.protocol):
                raise InconsistentGroupProtocolError(
                    f"{member}: was given an assignment by {reply.protocol_name!r}: expected {member.protocol!r}"
                )
            member.move(MemberState.STABLE)
            return decode_assignment(reply.assignment)
        if isinstance(error, UnknownMemberIdError | IllegalGenerationError):
            member.expelled(keep_id=isinstance(error, IllegalGenerationError))
            raise RetryJoin("the group has gone on without this member", at_once=True)
        raise self._failed(error)

    async def _assign(self, joined: JoinGroupResponse) -> dict[str, Assignment]:
        """What the leader gives to whom."""
        members = {
            each.member_id: decode_subscription(each.metadata, each.group_instance_id) for each in joined.members
        }
        self.group_topics = frozenset(topic for each in members.values() for topic in each.topics)
        topics = self.assigned_topics = await self._find_topics(self.group_topics)
        if joined.skip_assignment:  # a static leader is back, and the group goes on as it was (KIP-814)
            return {}
        assignor = self._assignors[self._member.protocol]
        given = assignor.assign(topics, members)
        for stranger in given.keys() - members.keys():
            raise ValueError(f"the assignor {assignor.name} gave partitions to {stranger!r}, which is not a member")
        return {each: Assignment(tuple(given.get(each, ()))) for each in members}

    # ---- apply

    async def apply(self, assignment: Assignment) -> str | None:
        """Takes what was given. Returns the reason to join once more, if there is one."""
        generation = self._member.generation
        given = frozenset(assignment.partitions)
        if strangers := sorted({tp.topic for tp in given} - self.joined_topics):
            return f"the leader gave partitions of {', '.join(strangers)}, which this member has not subscribed to"
        gone = self._subscription.assigned - given
        if gone:  # the eager protocol has revoked everything before
            await self.revoke(gone)
            self._check(generation)
        added = given - self._subscription.assigned
        self._assignors[self._member.protocol].on_assignment(sorted(given), generation)
        self._subscription.assign_from_group(given)
        self._subscription.changed()
        _logger.info("%s: has %d partitions, %d of them new", self._member, len(given), len(added))
        await self._hooks.assigned(added)
        return "partitions were revoked, and others wait for them" if gone else None

    def _check(self, generation: int) -> None:
        if self._member.generation != generation:
            raise RetryJoin("the member was expelled as it took its partitions", at_once=True)
