"""Revocation and assignment of partitions, step by step: what happens if the group removes the member meanwhile."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.client.consumer.subscription_state import SubscriptionState
from headrace.client.group.consumer_protocol import Assignment
from headrace.client.group.coordinator_client import CoordinatorClient
from headrace.client.group.member import Member, MemberState
from headrace.client.group.rebalance import Rebalance, RetryJoin
from headrace.common.errors import InconsistentGroupProtocolError
from headrace.common.types import TopicPartition
from headrace.protocol.messages.join_group import JoinGroupResponse

A, B, C = (TopicPartition("t", number) for number in range(3))


class RecordingAssignor:
    """An assignor that records the assignments of its member."""

    name = "recording"

    def __init__(self) -> None:
        self.assignments: list[tuple[list[TopicPartition], int]] = []

    def user_data(self, topics: object) -> bytes | None:
        return None

    def on_assignment(self, assigned: list[TopicPartition], generation: int) -> None:
        self.assignments.append((assigned, generation))


class Bench:
    """A member that owns A and B in generation 3. `steps` are the calls of the rebalance in order; `before` has
    functions to run before a step."""

    def __init__(self, protocol: Any = "cooperative") -> None:
        self.steps: list[Any] = []
        self.before: dict[str, Callable[[], None]] = {}
        self.member = Member("g")
        self.subscription = SubscriptionState()
        self.subscription.subscribe(["t"])
        self.assignor = RecordingAssignor()
        self.member.transition_to(MemberState.PREPARING)
        self.rejoin(3)
        self.subscription.assign_from_group([A, B])
        unused: Any = None
        self.rebalance = Rebalance(
            unused,
            self.member,
            self.subscription,
            [self.assignor],  # type: ignore[list-item]
            protocol,
            self,
            session_timeout_ms=1000,
            rebalance_timeout_ms=1000,
            request_timeout_ms=1000,
            rack=None,
            find_topics=unused,
            commit_processed=self._commit_processed,
        )
        self.rebalance.joined_topics = frozenset(["t"])

    def rejoin(self, generation: int) -> None:
        self.member.transition_to(MemberState.PREPARING)
        self.member.transition_to(MemberState.JOINING)
        self.member.joined(generation, "me", "recording", False)
        self.member.transition_to(MemberState.STABLE)

    def use_coordinator(self, response: Any) -> None:
        """Makes the coordinator send this response."""

        async def send(request: Any, **options: Any) -> Any:
            return response

        sender: Any = SimpleNamespace(send=send)
        self.rebalance._coordinator = CoordinatorClient(sender)

    def _step(self, name: str, *details: Any) -> None:
        self.before.get(name, lambda: None)()
        self.steps.append((name, *details) if details else name)

    # ---- the hooks

    async def wait_for_poll(self) -> None:
        assert all(state.is_stopped for state in self.subscription.states() if state.tp in (A,))
        self._step("poll")

    async def _commit_processed(self) -> None:
        self._step("commit")

    async def revoked(self, tps: frozenset[TopicPartition]) -> None:
        assert tps <= self.subscription.assigned, "the listener can still commit"
        self._step("revoked", set(tps))

    async def lost(self, tps: frozenset[TopicPartition]) -> None:
        self._step("lost", set(tps))

    async def assigned(self, tps: frozenset[TopicPartition]) -> None:
        self._step("assigned", set(tps))

    def failed(self, error: Exception) -> None:
        raise AssertionError(error)


def test_revocation_waits_for_poll_and_commits() -> None:
    bench = Bench()
    asyncio.run(bench.rebalance.revoke(frozenset([A])))
    assert bench.steps == ["poll", "commit", ("revoked", {A})]
    assert bench.subscription.assigned == {B}


def test_revocation_of_nothing_waits_for_nothing() -> None:
    bench = Bench()
    asyncio.run(bench.rebalance.revoke(frozenset()))
    asyncio.run(bench.rebalance.lose(frozenset()))
    assert bench.steps == []
    assert bench.subscription.assigned == {A, B}


def test_member_removed_before_commit_loses_all_partitions_without_commit() -> None:
    bench = Bench()
    bench.before["poll"] = bench.member.reset_generation
    asyncio.run(bench.rebalance.revoke(frozenset([A])))
    assert bench.steps == ["poll", "poll", ("lost", {A, B})]
    assert bench.subscription.assigned == frozenset()


def test_member_removed_during_commit_loses_all_partitions() -> None:
    bench = Bench()
    bench.before["commit"] = bench.member.reset_generation
    asyncio.run(bench.rebalance.revoke(frozenset([A])))
    assert bench.steps == ["poll", "commit", "poll", ("lost", {A, B})]
    assert bench.subscription.assigned == frozenset()


@pytest.mark.parametrize(("protocol", "revoked"), [("eager", {A, B}), ("cooperative", set())])
def test_member_prepares_by_protocol(protocol: str, revoked: set[TopicPartition]) -> None:
    bench = Bench(protocol)
    asyncio.run(bench.rebalance.prepare())
    assert bench.steps == (["poll", "commit", ("revoked", revoked)] if revoked else [])
    assert bench.subscription.assigned == {A, B} - revoked


def test_removed_member_prepares_by_losing_its_partitions() -> None:
    bench = Bench()
    bench.member.reset_generation()
    asyncio.run(bench.rebalance.prepare())
    assert bench.steps == ["poll", ("lost", {A, B})]


def test_cooperative_member_prepares_by_revoking_unsubscribed_topics() -> None:
    bench = Bench()
    bench.subscription.subscribe(["other"])
    asyncio.run(bench.rebalance.prepare())
    assert bench.steps == ["poll", "commit", ("revoked", {A, B})]


def test_assignment_revokes_missing_partitions_and_rejoins() -> None:
    bench = Bench()
    reason = asyncio.run(bench.rebalance.apply(Assignment((B, C))))
    assert bench.steps == ["poll", "commit", ("revoked", {A}), ("assigned", {C})]
    assert bench.subscription.assigned == {B, C}
    assert bench.assignor.assignments == [([B, C], 3)]
    assert reason == "revoked partitions can be assigned to other members"


def test_assignment_without_revocation_needs_no_rejoin() -> None:
    bench = Bench()
    assert asyncio.run(bench.rebalance.apply(Assignment((A, B, C)))) is None
    assert bench.steps == [("assigned", {C})]
    assert bench.subscription.assigned == {A, B, C}


@pytest.mark.parametrize("step", ["poll", "commit", "revoked"])
def test_member_removed_while_it_revokes_does_not_take_the_assignment(step: str) -> None:
    bench = Bench()
    bench.before[step] = bench.member.reset_generation
    with pytest.raises(RetryJoin) as caught:
        asyncio.run(bench.rebalance.apply(Assignment((B, C))))
    assert caught.value.immediately
    assert C not in bench.subscription.assigned
    assert bench.assignor.assignments == []


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name"), [("connect", "recording"), ("consumer", "other"), ("connect", "other")]
)
def test_rejects_group_of_another_protocol(protocol_type: str, protocol_name: str) -> None:
    bench = Bench()
    response = JoinGroupResponse(
        generation_id=4, member_id="me", leader="me", protocol_type=protocol_type, protocol_name=protocol_name
    )
    bench.use_coordinator(response)
    bench.member.transition_to(MemberState.PREPARING)
    with pytest.raises(InconsistentGroupProtocolError, match=f"the group uses protocol '{protocol_name}'"):
        asyncio.run(bench.rebalance.join("test"))
    assert bench.member.generation == 3


@pytest.mark.parametrize("protocol_type", ["consumer", None])
def test_joins_group_of_its_protocol(protocol_type: str | None) -> None:
    bench = Bench()
    response = JoinGroupResponse(
        generation_id=4, member_id="me", leader="me", protocol_type=protocol_type, protocol_name="recording"
    )
    bench.use_coordinator(response)
    bench.member.transition_to(MemberState.PREPARING)
    assert asyncio.run(bench.rebalance.join("test")) is response
    assert (bench.member.generation, bench.member.is_leader, bench.member.state) == (4, True, MemberState.SYNCING)


def test_assignment_of_unsubscribed_topic_is_not_taken() -> None:
    bench = Bench()
    reason = asyncio.run(bench.rebalance.apply(Assignment((A, TopicPartition("other", 0)))))
    assert reason == "the assignment has partitions of topics that are not subscribed: other"
    assert bench.subscription.assigned == {A, B}
    assert bench.steps == []
