"""Commits in virtual time: order, retries and errors."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.net.virtual_loop import run

from headrace.client.consumer.subscription_state import SubscriptionState
from headrace.client.errors import CommitFailedError, IllegalStateError, KafkaConnectionError, KafkaTimeoutError
from headrace.client.group.commit_request_manager import CommitRequestManager
from headrace.client.group.coordinator_client import CoordinatorClient
from headrace.client.group.member import Member, MemberState
from headrace.client.types import OffsetAndMetadata
from headrace.common.backoff import Backoff
from headrace.common.errors import (
    CoordinatorLoadInProgressError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    KafkaError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from headrace.common.ids import make_random
from headrace.common.types import TopicPartition
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Coordinator:
    """Stores offsets. Each next request fails with one of `failures`: an error code, or an exception of the network."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self.requests: list[Any] = []
        self.failures: list[int | Exception] = []
        self.failing_partitions: list[set[TopicPartition]] = []
        """The partitions that fail with UNKNOWN_TOPIC_OR_PARTITION, of each next commit."""
        self.forgotten = 0
        self.is_old = False

    async def send(self, request: Any, *, timeout_ms: float | None = None, max_version: int | None = None) -> Any:
        self.requests.append(request)
        await asyncio.sleep(0.01)
        failure = self.failures.pop(0) if self.failures else 0
        if isinstance(failure, Exception):
            raise failure
        if isinstance(request, OffsetCommitRequest):
            return self._commit(request, failure)
        return self._fetch(request, failure)

    def _commit(self, request: OffsetCommitRequest, code: int) -> OffsetCommitResponse:
        failing = self.failing_partitions.pop(0) if self.failing_partitions else set()
        topics = []
        for topic in request.topics:
            parts = []
            for each in topic.partitions:
                tp = TopicPartition(topic.name, each.partition_index)
                part_code = UnknownTopicOrPartitionError.code if tp in failing else code
                if not part_code:
                    self.offsets[tp] = each.committed_offset
                parts.append(OffsetCommitResponsePartition(partition_index=tp.partition, error_code=part_code))
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=parts))
        return OffsetCommitResponse(topics=topics)

    def _fetch(self, request: Any, code: int) -> OffsetFetchResponse:
        if self.is_old:
            old = [
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=self.offsets.get(TopicPartition(topic.name, index), -1),
                    metadata=None,
                    error_code=0,
                )
                for topic in request.topics
                for index in topic.partition_indexes
            ]
            return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=old)], error_code=code)
        is_part = code == UnstableOffsetCommitError.code
        parts = [
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=self.offsets.get(TopicPartition(topic.name, index), -1),
                metadata="",
                error_code=code if is_part else 0,
            )
            for topic in request.groups[0].topics
            for index in topic.partition_indexes
        ]
        topics = [OffsetFetchResponseTopics(name="t", partitions=parts)]
        group = OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=0 if is_part else code)
        return OffsetFetchResponse(groups=[group])

    def forget(self, reason: str) -> None:
        self.forgotten += 1

    def interrupt(self) -> None:
        pass


class Bench:
    def __init__(self, auto_commit_ms: float | None = None):
        self.coordinator = Coordinator()
        self.member = Member("g", "instance")
        self.subscription = SubscriptionState()
        self.rejoins: list[str] = []
        self.told: list[tuple[dict[TopicPartition, int], type | None]] = []
        self.commits = CommitRequestManager(
            CoordinatorClient(self.coordinator),
            self.member,
            self.subscription,
            Backoff(100, 1000, make_random(1)),
            default_timeout_ms=10_000,
            auto_commit_ms=auto_commit_ms,
            rejoin=self.rejoins.append,
            on_commit=self._tell,
        )

    def _tell(self, offsets: Any, error: KafkaError | None) -> None:
        self.told.append(({tp: each.offset for tp, each in offsets.items()}, None if error is None else type(error)))

    def join(self) -> None:
        self.subscription.subscribe(["t"])
        for state in (MemberState.PREPARING, MemberState.JOINING):
            self.member.transition_to(state)
        self.member.joined(3, "me", "range", False)
        self.member.transition_to(MemberState.STABLE)
        self.subscription.assign_from_group([A, B])


def on_bench(test: Callable[[Bench], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        await test(Bench(**options))

    run(main())


def offsets(**numbers: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {{"a": A, "b": B}[name]: OffsetAndMetadata(number, "note", 4) for name, number in numbers.items()}


def test_commit() -> None:
    async def test(bench: Bench) -> None:
        bench.join()
        await bench.commits.commit(offsets(a=5, b=6))
        assert bench.coordinator.offsets == {A: 5, B: 6}
        (request,) = bench.coordinator.requests
        assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", 3, "me")
        assert request.group_instance_id == "instance"
        assert request.topics[0].partitions[0].committed_metadata == "note"
        assert request.topics[0].partitions[0].committed_leader_epoch == 4
        assert bench.told == [({A: 5, B: 6}, None)]
        await bench.commits.commit({})

    on_bench(test)


def test_commit_with_user_assignment() -> None:
    async def test(bench: Bench) -> None:
        bench.subscription.assign([A])
        await bench.commits.commit(offsets(a=5))
        (request,) = bench.coordinator.requests
        assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")

    on_bench(test)


def test_commits_are_ordered_and_merged() -> None:
    """One request is in flight at a time, waiting commits are merged, and callbacks run in order."""

    async def test(bench: Bench) -> None:
        bench.join()
        told: list[int] = []
        for number in range(10):
            bench.commits.commit_async(offsets(a=number), lambda done, error: told.append(done[A].offset))
        await bench.commits.commit(offsets(b=1))
        assert told == list(range(10))
        assert bench.coordinator.offsets == {A: 9, B: 1}
        await bench.commits.wait_for_pending()
        assert len(bench.coordinator.requests) <= 2

    on_bench(test)


def test_synchronous_commit_is_retried_before_later_commits() -> None:
    async def test(bench: Bench) -> None:
        bench.join()
        bench.coordinator.failures = [
            CoordinatorLoadInProgressError.code,
            NotCoordinatorError.code,
            KafkaConnectionError("cut"),
            RequestTimedOutError.code,
            UnknownTopicOrPartitionError.code,
        ]
        first = asyncio.create_task(bench.commits.commit(offsets(a=1)))
        await asyncio.sleep(0.3)
        last = bench.commits.commit_async(offsets(a=2))
        await first
        await last
        assert bench.coordinator.offsets == {A: 2}
        assert bench.coordinator.forgotten == 3

    on_bench(test)


def test_retry_does_not_overwrite_commit_made_during_the_request() -> None:
    async def test(bench: Bench) -> None:
        bench.join()
        bench.coordinator.failures = [CoordinatorLoadInProgressError.code]
        first = asyncio.create_task(bench.commits.commit(offsets(a=1, b=1)))
        await asyncio.sleep(0.005)
        assert len(bench.coordinator.requests) == 1, "the first request has no response yet"
        last = bench.commits.commit_async(offsets(a=2))
        await first
        await last
        assert bench.coordinator.offsets == {A: 2, B: 1}

    on_bench(test)


def test_retry_has_only_the_partitions_that_failed() -> None:
    """A later commit was merged into the first request and has succeeded: the retry must not undo it."""

    async def test(bench: Bench) -> None:
        bench.join()
        bench.coordinator.failing_partitions = [{B}]
        first = asyncio.create_task(bench.commits.commit(offsets(a=1, b=1)))
        last = asyncio.create_task(bench.commits.commit(offsets(a=2)))
        await first
        await last
        assert len(bench.coordinator.requests) == 2
        assert bench.coordinator.offsets == {A: 2, B: 1}
        assert bench.told == [({A: 2}, None), ({A: 1, B: 1}, None)]
        assert {tp: each.offset for tp, each in bench.commits.last_committed.items()} == {A: 2, B: 1}

    on_bench(test)


def test_asynchronous_commit_is_not_retried() -> None:
    async def test(bench: Bench) -> None:
        bench.join()
        errors: list[KafkaError | None] = []
        bench.coordinator.failures = [CoordinatorLoadInProgressError.code]
        bench.commits.commit_async(offsets(a=1), lambda done, error: errors.append(error))
        bench.commits.commit_async(offsets(b=1))
        await bench.commits.wait_for_pending()
        await asyncio.sleep(0)
        assert isinstance(errors[0], CoordinatorLoadInProgressError)
        assert errors[0].retriable

    on_bench(test)


def test_commit_times_out() -> None:
    async def test(bench: Bench) -> None:
        bench.join()
        bench.coordinator.failures = [CoordinatorLoadInProgressError.code] * 100
        with pytest.raises(KafkaTimeoutError) as late:
            await bench.commits.commit(offsets(a=1), timeout_ms=3000)
        assert isinstance(late.value.__cause__, CoordinatorLoadInProgressError)
        await bench.commits.wait_for_pending()
        bench.coordinator.failures = []

        async def never(*args: Any, **options: Any) -> Any:
            await asyncio.sleep(1000)

        bench.coordinator.send = never  # type: ignore[method-assign]
        with pytest.raises(KafkaTimeoutError):
            await bench.commits.commit(offsets(a=1), timeout_ms=3000)
        with pytest.raises(KafkaTimeoutError):
            await bench.commits.committed([A], timeout_ms=3000)

    on_bench(test)


@pytest.mark.parametrize("error", [UnknownMemberIdError, IllegalGenerationError])
def test_commit_fails_after_removal_from_group(error: type[KafkaError]) -> None:
    async def test(bench: Bench) -> None:
        bench.join()
        bench.coordinator.failures = [error.code]
        with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms"):
            await bench.commits.commit(offsets(a=1))
        assert not bench.member.is_member
        assert bench.member.member_id == ("me" if error is IllegalGenerationError else "")
        assert len(bench.rejoins) == 1
        with pytest.raises(CommitFailedError):
            await bench.commits.commit(offsets(a=1))
        assert len(bench.coordinator.requests) == 1, "a consumer that is not a member sends nothing"

    on_bench(test)


def test_commit_before_first_join() -> None:
    async def test(bench: Bench) -> None:
        bench.subscription.subscribe(["a"])
        for state in (MemberState.UNJOINED, MemberState.PREPARING, MemberState.JOINING):
            bench.member.transition_to(state)
            with pytest.raises(RebalanceInProgressError, match="has not joined the group yet: poll"):
                await bench.commits.commit(offsets(a=1))
        assert bench.coordinator.requests == []

    on_bench(test)


def test_commit_during_rebalance() -> None:
    async def test(bench: Bench) -> None:
        bench.join()
        bench.coordinator.failures = [RebalanceInProgressError.code]
        with pytest.raises(RebalanceInProgressError):
            await bench.commits.commit(offsets(a=1))
        assert bench.member.is_member
        assert len(bench.rejoins) == 1
        bench.member.transition_to(MemberState.PREPARING)
        await bench.commits.commit(offsets(a=1))
        bench.member.transition_to(MemberState.JOINING)
        with pytest.raises(RebalanceInProgressError):
            await bench.commits.commit(offsets(a=1))

    on_bench(test)


def test_response_about_previous_member() -> None:
    async def test(bench: Bench) -> None:
        bench.join()
        bench.coordinator.failures = [UnknownMemberIdError.code, FencedInstanceIdError.code]
        for _ in range(2):
            commit = asyncio.create_task(bench.commits.commit(offsets(a=1)))
            await asyncio.sleep(0.005)
            bench.member.transition_to(MemberState.PREPARING)
            bench.member.transition_to(MemberState.JOINING)
            bench.member.joined(bench.member.generation + 1, "me", "range", False)
            bench.member.transition_to(MemberState.STABLE)
            with pytest.raises(CommitFailedError):
                await commit
        assert bench.member.is_member
        assert bench.rejoins == []

    on_bench(test)


@pytest.mark.parametrize(
    "error",
    [FencedInstanceIdError, GroupAuthorizationFailedError, TopicAuthorizationFailedError, OffsetMetadataTooLargeError],
)
def test_raises_other_errors(error: type[KafkaError]) -> None:
    async def test(bench: Bench) -> None:
        bench.join()
        bench.coordinator.failures = [error.code]
        with pytest.raises(error):
            await bench.commits.commit(offsets(a=1))
        assert bench.told == [({A: 1}, error)]

    on_bench(test)


@pytest.mark.parametrize("is_old", [False, True])
def test_committed(is_old: bool) -> None:
    async def test(bench: Bench) -> None:
        bench.coordinator.is_old = is_old
        bench.subscription.assign([A, B])
        await bench.commits.commit(offsets(a=5))
        bench.coordinator.failures = [CoordinatorLoadInProgressError.code, NotCoordinatorError.code]
        if not is_old:
            bench.coordinator.failures.append(UnstableOffsetCommitError.code)
        assert await bench.commits.committed([A, B]) == {A: OffsetAndMetadata(5, "", -1), B: None}
        assert await bench.commits.committed([]) == {}
        bench.coordinator.failures = [GroupAuthorizationFailedError.code]
        with pytest.raises(GroupAuthorizationFailedError):
            await bench.commits.committed([A])

    on_bench(test)


def consume(bench: Bench, tp: TopicPartition, position: int) -> None:
    """The user has processed all records before the position."""
    state = bench.subscription.state(tp)
    if not state.has_position:
        bench.subscription.seek(tp, 0)
    with bench.subscription.lock:
        bench.subscription.consumed(state, position, 0)
    bench.subscription.mark_processed()


def test_automatic_commits() -> None:
    async def test(bench: Bench) -> None:
        bench.join()
        bench.commits.start()
        await asyncio.sleep(3)
        assert bench.coordinator.requests == []
        consume(bench, A, 7)
        await asyncio.sleep(1.5)
        assert bench.coordinator.offsets == {A: 7}
        await asyncio.sleep(5)
        assert len(bench.coordinator.requests) == 1, "unchanged offsets are not committed again"
        consume(bench, A, 8)
        consume(bench, B, 3)
        bench.coordinator.failures = [CoordinatorLoadInProgressError.code, KafkaConnectionError("cut")]
        await asyncio.sleep(1.5)
        assert bench.coordinator.offsets == {A: 8, B: 3}
        bench.member.reset_generation()
        consume(bench, A, 9)
        await asyncio.sleep(5)
        assert bench.coordinator.offsets == {A: 8, B: 3}, "a consumer that is not a member commits nothing"
        await bench.commits.stop()

    on_bench(test, auto_commit_ms=1000)


def test_commit_before_revocation() -> None:
    async def test(bench: Bench) -> None:
        bench.join()
        consume(bench, A, 7)
        bench.coordinator.failures = [CoordinatorLoadInProgressError.code]
        await bench.commits.commit_processed(5000)
        assert bench.coordinator.offsets == {A: 7}
        consume(bench, A, 8)
        bench.coordinator.failures = [GroupAuthorizationFailedError.code]
        await bench.commits.commit_processed(5000)
        assert bench.coordinator.offsets == {A: 7}, "failures are only logged"

    on_bench(test, auto_commit_ms=1_000_000)


def test_no_automatic_commits_if_disabled() -> None:
    async def test(bench: Bench) -> None:
        bench.join()
        consume(bench, A, 7)
        bench.commits.start()
        await bench.commits.commit_processed(5000)
        await asyncio.sleep(10)
        await bench.commits.stop()
        assert bench.coordinator.requests == []

    on_bench(test)


def test_unencodable_commit_raises() -> None:
    async def test(bench: Bench) -> None:
        bench.join()
        with pytest.raises(KafkaError, match="could not be encoded"):
            await bench.commits.commit({A: None})  # type: ignore[dict-item]
        await bench.commits.commit(offsets(a=1))

    on_bench(test)


def test_abandoned_commit_raises() -> None:
    async def test(bench: Bench) -> None:
        bench.join()
        bench.coordinator.failures = [CoordinatorLoadInProgressError.code] * 100
        bench.commits.start()
        waiting = asyncio.create_task(bench.commits.commit(offsets(a=1)))
        await asyncio.sleep(1)
        await bench.commits.abandon()
        with pytest.raises(IllegalStateError, match="closed before the commit completed"):
            await waiting

    on_bench(test, auto_commit_ms=100)


def test_abandoned_commit_calls_callback() -> None:
    async def test(bench: Bench) -> None:
        bench.join()
        told: list[KafkaError | None] = []
        sent = bench.commits.commit_async(offsets(a=1), lambda _, error: told.append(error))
        await asyncio.sleep(0.001)  # it is in flight
        queued = bench.commits.commit_async(offsets(a=2), lambda _, error: told.append(error))
        await bench.commits.abandon()
        await asyncio.wait([sent, queued])
        assert [type(error) for error in told] == [IllegalStateError, IllegalStateError]

    on_bench(test)
