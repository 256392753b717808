"""Responses to heartbeats, also those that arrive after the member has joined again, and the poll interval."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.net.virtual_loop import run

from headrace.client.group.coordinator_client import CoordinatorClient
from headrace.client.group.heartbeat import HeartbeatTask, PollTimer
from headrace.client.group.member import Member, MemberState
from headrace.common.errors import (
    CoordinatorLoadInProgressError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    InvalidGroupIdError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.testing.clock import ManualClock


class Bench:
    """A stable member of generation 3 that sends heartbeats to a simulated coordinator."""

    def __init__(self, answer: int | KafkaError = 0) -> None:
        self.answer = answer
        self.before_answer: Callable[[], None] = lambda: None
        self.requests: list[HeartbeatRequest] = []
        self.rejoins: list[str] = []
        self.failures: list[KafkaError] = []
        self.poll_timeouts = 0
        self.member = Member("g")
        self.join(3)
        self.clock = ManualClock()
        self.polls = PollTimer(self.clock, 60_000)
        self.heartbeats = HeartbeatTask(
            CoordinatorClient(self),
            self.member,
            self.polls,
            interval_ms=3000,
            session_timeout_ms=10_000,
            rejoin=self.rejoins.append,
            on_failure=self.failures.append,
            on_poll_timeout=self._poll_timeout,
        )

    def join(self, generation: int) -> None:
        for state in (MemberState.PREPARING, MemberState.JOINING):
            self.member.transition_to(state)
        self.member.joined(generation, "me", "range", False)
        self.member.transition_to(MemberState.STABLE)

    async def _poll_timeout(self) -> None:
        self.poll_timeouts += 1
        self.member.reset_generation()

    async def send(self, request: Any, *, timeout_ms: float | None = None, max_version: int | None = None) -> Any:
        self.requests.append(request)
        self.before_answer()
        if isinstance(self.answer, KafkaError):
            raise self.answer
        return HeartbeatResponse(error_code=self.answer)

    def forget(self, reason: str) -> None: ...

    def interrupt(self) -> None: ...

    def beat(self, seconds: float = 3.5) -> None:
        """Runs for a time in which one heartbeat is due."""

        async def main() -> None:
            task = asyncio.create_task(self.heartbeats.run())
            await asyncio.sleep(seconds)
            task.cancel()

        run(main())


def test_heartbeat_has_identity_of_member() -> None:
    bench = Bench()
    bench.beat(7)
    assert [(request.group_id, request.generation_id, request.member_id) for request in bench.requests] == [
        ("g", 3, "me"),
        ("g", 3, "me"),
    ]
    assert (bench.rejoins, bench.failures) == ([], [])


def test_unknown_member_rejoins_with_new_id() -> None:
    bench = Bench(UnknownMemberIdError.code)
    bench.beat()
    assert (bench.member.generation, bench.member.member_id) == (-1, "")
    assert len(bench.rejoins) == 1


def test_member_of_old_generation_rejoins_with_its_id() -> None:
    bench = Bench(IllegalGenerationError.code)
    bench.beat()
    assert (bench.member.generation, bench.member.member_id) == (-1, "me")
    assert len(bench.rejoins) == 1


def test_rebalance_makes_stable_member_rejoin() -> None:
    bench = Bench(RebalanceInProgressError.code)
    bench.beat()
    assert len(bench.rejoins) == 1
    assert bench.member.generation == 3
    preparing = Bench(RebalanceInProgressError.code)
    preparing.member.transition_to(MemberState.PREPARING)
    preparing.beat()
    assert len(preparing.requests) == 1
    assert preparing.rejoins == [], "it is about to join anyway"


def test_fenced_member_keeps_id_and_fails() -> None:
    bench = Bench(FencedInstanceIdError.code)
    bench.beat()
    assert isinstance(bench.failures[0], FencedInstanceIdError)
    assert (bench.member.generation, bench.member.member_id) == (-1, "me")
    assert bench.rejoins == []


def test_authorization_error_fails() -> None:
    bench = Bench(GroupAuthorizationFailedError.code)
    bench.beat()
    assert isinstance(bench.failures[0], GroupAuthorizationFailedError)
    assert bench.member.generation == 3


@pytest.mark.parametrize("error", [CoordinatorLoadInProgressError, InvalidGroupIdError])
def test_other_errors_are_retried(error: type[KafkaError]) -> None:
    bench = Bench(error.code)
    bench.beat(7)
    assert len(bench.requests) == 2
    assert (bench.rejoins, bench.failures, bench.member.generation) == ([], [], 3)


@pytest.mark.parametrize(
    "answer",
    [
        UnknownMemberIdError.code,
        IllegalGenerationError.code,
        RebalanceInProgressError.code,
        FencedInstanceIdError.code,
        GroupAuthorizationFailedError.code,
        UnsupportedVersionError("no"),
    ],
)
def test_response_about_previous_generation_is_ignored(answer: int | KafkaError) -> None:
    bench = Bench(answer)
    bench.before_answer = lambda: bench.join(4)
    bench.beat()
    assert len(bench.requests) == 1
    assert (bench.member.generation, bench.member.member_id, bench.member.state) == (4, "me", MemberState.STABLE)
    assert (bench.rejoins, bench.failures) == ([], [])


@pytest.mark.parametrize(("is_retriable", "failures"), [(True, 0), (False, 1)])
def test_lost_heartbeat_is_retried_unless_it_cannot_succeed(is_retriable: bool, failures: int) -> None:
    bench = Bench(CoordinatorLoadInProgressError("cut") if is_retriable else UnsupportedVersionError("no"))
    bench.beat()
    assert len(bench.failures) == failures
    assert bench.member.generation == 3


def test_member_without_polls_leaves() -> None:
    bench = Bench()
    bench.clock.advance(60_000)
    bench.beat(0.5)
    assert bench.poll_timeouts == 1
    assert bench.requests == []


def test_time_within_a_poll_does_not_count() -> None:
    bench = Bench()
    bench.polls.began()
    bench.clock.advance(100_000)
    assert bench.polls.seconds_left == 60
    bench.polls.ended()
    bench.clock.advance(59_000)
    assert bench.polls.seconds_left == 1
    bench.polls.restart()
    assert bench.polls.seconds_left == 60


def test_member_in_rebalance_sends_no_heartbeats() -> None:
    bench = Bench()
    bench.member.transition_to(MemberState.PREPARING)
    bench.member.transition_to(MemberState.JOINING)
    bench.beat(10)
    assert bench.requests == []
