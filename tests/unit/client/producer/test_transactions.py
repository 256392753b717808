"""The transaction manager and the idempotence manager, against simulated coordinators."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.net.virtual_loop import run

from headrace.client.coordinators import CoordinatorType
from headrace.client.errors import CommitFailedError, IllegalStateError, KafkaTimeoutError
from headrace.client.producer._batch import ProducerBatch
from headrace.client.producer.idempotence import IdempotenceManager
from headrace.client.producer.network_client import NetworkClient
from headrace.client.producer.sender_loop import SenderLoop
from headrace.client.producer.transactions import TransactionManager, TransactionState
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata
from headrace.common.backoff import Backoff
from headrace.common.clock import SystemClock
from headrace.common.errors import (
    ClusterAuthorizationFailedError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    NotCoordinatorError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnknownMemberIdError,
)
from headrace.common.ids import make_random
from headrace.common.types import TopicPartition
from headrace.net.errors import KafkaConnectionError
from headrace.protocol import Message
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from headrace.protocol.messages.end_txn import EndTxnResponse
from headrace.protocol.messages.init_producer_id import InitProducerIdResponse
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from headrace.records import encode_rows

TP = TopicPartition("t", 0)
S = TransactionState


class Coordinators(NetworkClient):
    """Responds to every request. `errors` are the errors of the next requests, by API."""

    def __init__(self, version: int):
        self.version = version
        self.epoch = -1
        self.requests: list[tuple[str, Any, int | None, int | None]] = []
        self.forgotten: list[tuple[CoordinatorType, str]] = []
        self.errors: dict[str, list[type[KafkaError]]] = {}
        self.slept: list[float] = []

    def names(self) -> list[str]:
        return [name for name, *_ in self.requests]

    async def send_to_any(self, request: Message) -> Any:
        return await self.send_to_coordinator(CoordinatorType.GROUP, "", request)

    async def send_to_coordinator(
        self,
        coordinator_type: CoordinatorType,
        key: str,
        request: Any,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> Any:
        name = type(request).__name__.removesuffix("Request")
        self.requests.append((name, request, min_version, max_version))
        await asyncio.sleep(0.001)
        errors = self.errors.get(name, [])
        error = errors.pop(0) if errors else None
        if error is not None and issubclass(error, KafkaConnectionError):
            raise error("cut", sent=True)
        code = 0 if error is None else error.code
        return getattr(self, f"_{name}")(request, code)

    def _InitProducerId(self, request: Any, code: int) -> Any:  # noqa: N802
        if not code:
            self.epoch += 1
        return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)

    def _AddPartitionsToTxn(self, request: Any, code: int) -> Any:  # noqa: N802
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                        for index in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def _AddOffsetsToTxn(self, request: Any, code: int) -> Any:  # noqa: N802
        return AddOffsetsToTxnResponse(error_code=code)

    def _TxnOffsetCommit(self, request: Any, code: int) -> Any:  # noqa: N802
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _EndTxn(self, request: Any, code: int) -> Any:  # noqa: N802
        if self.version >= 2 and not code:
            self.epoch += 1
        return EndTxnResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)

    def forget_coordinator(self, coordinator_type: CoordinatorType, key: str) -> None:
        self.forgotten.append((coordinator_type, key))

    async def transaction_version(self, transactional_id: str) -> int:
        return self.version

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(seconds)


def sender_loop() -> SenderLoop:
    return SenderLoop(asyncio.get_running_loop(), SystemClock())


class Bench:
    """A transaction manager without a producer."""

    def __init__(self, version: int):
        self.coordinators = Coordinators(version)
        self.fatal: list[BaseException] = []
        self.completed: list[bool] = []
        """The `drop_queued` of each call of `complete_batches`."""
        self.on_complete: Callable[[], None] = lambda: None
        self.manager = TransactionManager(
            "tx",
            60_000,
            self.coordinators,
            Backoff(100, 1000, make_random(0)),
            sender_loop(),
            self.fatal.append,
            self._complete_batches,
        )

    async def _complete_batches(self, drop_queued: bool) -> None:
        self.completed.append(drop_queued)
        while self.manager._new_partitions and not drop_queued and self.manager.state is S.COMMITTING:
            self.manager.prepare()
            await asyncio.sleep(0.001)
        self.on_complete()

    def batch(self) -> ProducerBatch:
        data = encode_rows([(None, b"v", 0, None)])
        return ProducerBatch.from_bytes(TP, data, 0.0, len(data))

    async def begun(self) -> TransactionManager:
        await self.manager.init()
        self.manager.begin()
        return self.manager

    async def added(self) -> TransactionManager:
        """Begins a transaction with one partition."""
        await self.begun()
        self.manager.maybe_add_partition(TP)
        self.manager.prepare()
        while not self.manager.may_drain(self.batch()):
            await asyncio.sleep(0.01)
        return self.manager


def with_bench(test: Callable[[Bench], Awaitable[None]], version: int = 1) -> None:
    async def main() -> None:
        await test(Bench(version))

    run(main())


def _ends(bench: Bench) -> list[bool]:
    """Returns `committed` of each EndTxn request."""
    return [request.committed for name, request, *_ in bench.coordinators.requests if name == "EndTxn"]


def test_version_1_adds_partitions_before_writing() -> None:
    async def test(bench: Bench) -> None:
        manager = await bench.begun()
        assert not manager.may_drain(bench.batch())
        manager.maybe_add_partition(TP)
        manager.maybe_add_partition(TopicPartition("t", 1))
        assert not manager.may_drain(bench.batch())
        manager.prepare()
        await asyncio.sleep(0.1)
        assert manager.may_drain(bench.batch())
        assert manager.produce_versions() == (None, 11)
        await manager.commit()
        assert manager.state is S.READY
        assert bench.coordinators.names() == ["InitProducerId", "AddPartitionsToTxn", "EndTxn"]
        (_, request, _, highest) = bench.coordinators.requests[1]
        assert [(topic.name, topic.partitions) for topic in request.v3_and_below_topics] == [("t", [0, 1])]
        assert highest == 3
        (_, request, _, highest) = bench.coordinators.requests[2]
        assert (request.producer_id, request.producer_epoch, request.committed, highest) == (7, 0, True, 4)

    with_bench(test)


def test_version_2_adds_no_partitions_and_takes_epoch_of_end_txn() -> None:
    async def test(bench: Bench) -> None:
        manager = await bench.begun()
        manager.maybe_add_partition(TP)
        assert manager.may_drain(bench.batch())
        assert manager.produce_versions() == (12, None)
        await manager.commit()
        assert bench.coordinators.names() == ["InitProducerId", "EndTxn"]
        assert bench.coordinators.requests[1][2] == 5
        assert manager.sequences.identity == (7, 1)
        manager.begin()
        manager.maybe_add_partition(TP)
        await manager.abort()
        assert manager.sequences.identity == (7, 2)
        assert manager.state is S.READY

    with_bench(test, version=2)


@pytest.mark.parametrize("version", [1, 2])
def test_empty_transaction_sends_no_requests(version: int) -> None:
    async def test(bench: Bench) -> None:
        manager = await bench.begun()
        await manager.commit()
        manager.begin()
        await manager.abort()
        assert bench.coordinators.names() == ["InitProducerId"]

    with_bench(test, version)


def test_invalid_calls_in_each_state() -> None:
    async def test(bench: Bench) -> None:
        manager = bench.manager
        for call in (manager.commit, manager.abort):
            with pytest.raises(IllegalStateError, match="uninitialized"):
                await call()
        with pytest.raises(IllegalStateError):
            manager.begin()
        with pytest.raises(IllegalStateError, match="init_transactions"):
            manager.check_open()
        await manager.init()
        with pytest.raises(IllegalStateError):
            await manager.init()
        with pytest.raises(IllegalStateError):
            manager.maybe_add_partition(TP)
        manager.begin()
        with pytest.raises(IllegalStateError):
            manager.begin()
        manager.check_open()

    with_bench(test)


@pytest.mark.parametrize("version", [1, 2])
def test_init_changes_transactional_id(version: int) -> None:
    async def test(bench: Bench) -> None:
        manager = bench.manager
        for name in ("first", "second", "second"):
            await manager.init(name)
            assert manager.transactional_id == name
            manager.begin()
            manager.maybe_add_partition(TP)
            with pytest.raises(IllegalStateError, match="in transaction"):
                await manager.init("third")
            assert manager.transactional_id == name
            await manager.abort()
        requests = [request for name, request, *_ in bench.coordinators.requests if name == "InitProducerId"]
        assert [request.transactional_id for request in requests] == ["first", "second", "second"]
        assert all(request.producer_id == -1 for request in requests)

    with_bench(test, version)


@pytest.mark.parametrize("version", [1, 2])
def test_sends_offsets_to_transaction(version: int) -> None:
    async def test(bench: Bench) -> None:
        manager = await bench.begun()
        group = ConsumerGroupMetadata("g", 3, "member", "instance")
        await manager.send_offsets({TP: OffsetAndMetadata(42, "note", 5), TopicPartition("u", 1): 7}, group)
        await manager.commit()
        expected = ["InitProducerId", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"]
        assert bench.coordinators.names() == (expected if version == 1 else expected[:1] + expected[2:])
        (_, request, lowest, highest) = next(
            each for each in bench.coordinators.requests if each[0] == "TxnOffsetCommit"
        )
        assert (lowest, highest) == ((3, 4) if version == 1 else (5, 5))
        assert (request.generation_id, request.member_id, request.group_instance_id) == (3, "member", "instance")
        part = request.topics[0].partitions[0]
        assert (part.committed_offset, part.committed_metadata, part.committed_leader_epoch) == (42, "note", 5)

    with_bench(test, version)


@pytest.mark.parametrize(
    ("api", "error", "forgets"),
    [
        ("InitProducerId", CoordinatorLoadInProgressError, False),
        ("InitProducerId", NotCoordinatorError, True),
        ("InitProducerId", ConcurrentTransactionsError, False),
        ("AddPartitionsToTxn", CoordinatorNotAvailableError, True),
        ("AddPartitionsToTxn", ConcurrentTransactionsError, False),
        ("AddOffsetsToTxn", NotCoordinatorError, True),
        ("TxnOffsetCommit", CoordinatorLoadInProgressError, False),
        ("TxnOffsetCommit", NotCoordinatorError, True),
        ("EndTxn", KafkaConnectionError, True),
        ("EndTxn", ConcurrentTransactionsError, False),
    ],
)
def test_retries_retriable_coordinator_errors(api: str, error: type[KafkaError], forgets: bool) -> None:
    async def test(bench: Bench) -> None:
        bench.coordinators.errors[api] = [error, error]
        manager = await bench.added()
        await manager.send_offsets({TP: 1}, "g")
        await manager.commit()
        assert manager.state is S.READY
        assert bench.coordinators.names().count(api) == 3
        assert bool(bench.coordinators.forgotten) == forgets
        assert len(bench.coordinators.slept) >= 2

    with_bench(test)


@pytest.mark.parametrize(
    "error",
    [ProducerFencedError, InvalidProducerEpochError, TransactionalIdAuthorizationFailedError, InvalidTxnStateError],
)
@pytest.mark.parametrize("api", ["AddPartitionsToTxn", "TxnOffsetCommit", "EndTxn"])
def test_fatal_errors_fail_producer(api: str, error: type[KafkaError]) -> None:
    async def test(bench: Bench) -> None:
        bench.coordinators.errors[api] = [error]
        expected = ProducerFencedError if error is InvalidProducerEpochError else error
        manager = await bench.begun()
        manager.maybe_add_partition(TP)
        manager.prepare()
        await asyncio.sleep(0.1)
        if api == "TxnOffsetCommit":
            with pytest.raises(expected):
                await manager.send_offsets({TP: 1}, "g")
        elif api == "EndTxn":
            with pytest.raises(expected):
                await manager.commit()
        assert manager.state is S.FATAL_ERROR
        assert [type(each) for each in bench.fatal] == [expected]
        assert bench.fatal[0].fatal  # type: ignore[attr-defined]
        for call in (manager.commit, manager.abort):
            with pytest.raises(expected) as caught:
                await call()
            assert caught.value.fatal
        with pytest.raises(expected):
            manager.check_open()
        with pytest.raises(expected):
            manager.begin()

    with_bench(test)


def test_fatal_error_of_init() -> None:
    async def test(bench: Bench) -> None:
        bench.coordinators.errors["InitProducerId"] = [ClusterAuthorizationFailedError]
        with pytest.raises(ClusterAuthorizationFailedError):
            await bench.manager.init()
        assert bench.manager.state is S.FATAL_ERROR

    with_bench(test)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("AddPartitionsToTxn", TopicAuthorizationFailedError),
        ("AddPartitionsToTxn", TransactionAbortableError),
        ("TxnOffsetCommit", GroupAuthorizationFailedError),
        ("TxnOffsetCommit", FencedInstanceIdError),
        ("TxnOffsetCommit", UnknownMemberIdError),
        ("TxnOffsetCommit", IllegalGenerationError),
        ("produce", OutOfOrderSequenceNumberError),
        ("produce", InvalidProducerEpochError),
        ("produce", TransactionAbortableError),
        ("EndTxn", TransactionAbortableError),
    ],
)
def test_abortable_errors_require_abort_only(api: str, error: type[KafkaError], version: int) -> None:
    if version == 2 and api == "AddPartitionsToTxn":
        api = "produce"  # version 2 does not send AddPartitionsToTxn

    async def test(bench: Bench) -> None:
        bench.coordinators.errors[api] = [error]
        manager = await bench.begun()
        manager.maybe_add_partition(TP)
        manager.prepare()
        await asyncio.sleep(0.1)
        expected = CommitFailedError if error in (UnknownMemberIdError, IllegalGenerationError) else error
        if api == "TxnOffsetCommit":
            with pytest.raises(expected):
                await manager.send_offsets({TP: 1}, "g")
        elif api == "produce":
            batch = bench.batch()
            manager.assign_sequence(batch)
            manager.handle_failed_batch(batch, error("no"))
        elif api == "EndTxn":
            with pytest.raises(expected):
                await manager.commit()
        assert manager.state is S.ABORTABLE_ERROR
        assert not manager.may_drain(bench.batch())
        with pytest.raises(expected) as caught:
            manager.check_open()
        assert caught.value.abortable
        assert not caught.value.fatal
        with pytest.raises(expected):
            await manager.commit()
        await manager.abort()
        assert manager.state is S.READY
        assert manager.error is None
        assert not bench.fatal
        names = bench.coordinators.names()
        assert names[-2:] == (["EndTxn", "InitProducerId"] if version == 1 else names[-2:])
        assert manager.sequences.identity == (7, 1), "the next transaction needs a new epoch"
        manager.begin()
        manager.check_open()

    with_bench(test, version)


def test_abort_skips_end_txn_after_invalid_producer_id_mapping() -> None:
    async def test(bench: Bench) -> None:
        manager = await bench.added()
        batch = bench.batch()
        manager.assign_sequence(batch)
        manager.handle_failed_batch(batch, InvalidProducerIdMappingError("gone"))
        await manager.abort()
        assert "EndTxn" not in bench.coordinators.names()
        assert manager.state is S.READY

    with_bench(test)


def test_error_while_completing_batches_stops_commit() -> None:
    async def test(bench: Bench) -> None:
        manager = await bench.added()
        batch = bench.batch()
        manager.assign_sequence(batch)
        bench.on_complete = lambda: manager.handle_failed_batch(batch, TopicAuthorizationFailedError("no"))
        with pytest.raises(TopicAuthorizationFailedError):
            await manager.commit()
        assert "EndTxn" not in bench.coordinators.names()
        bench.on_complete = lambda: None
        await manager.abort()
        assert bench.completed == [False, True]
        assert _ends(bench) == [False]

    with_bench(test)


def test_repeated_call_waits_for_same_operation() -> None:
    async def test(bench: Bench) -> None:
        manager = await bench.added()
        bench.coordinators.errors["EndTxn"] = [CoordinatorNotAvailableError] * 5
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await manager.commit()
        assert manager.state is S.COMMITTING
        with pytest.raises(IllegalStateError, match="commit_transaction"):
            await manager.abort()
        await manager.commit()
        assert manager.state is S.READY
        assert bench.coordinators.names().count("EndTxn") == 6

    with_bench(test)


def test_result_of_abandoned_call_is_not_returned_by_later_call() -> None:
    async def test(bench: Bench) -> None:
        manager = await bench.added()
        bench.coordinators.errors["EndTxn"] = [CoordinatorNotAvailableError]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await manager.commit()
        await asyncio.sleep(10)
        assert manager.state is S.READY, "the commit should have continued"
        manager.begin()
        bench.coordinators.errors["TxnOffsetCommit"] = [CoordinatorNotAvailableError]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await manager.send_offsets({TP: 1}, "g")
        await manager.send_offsets({TP: 2}, "g")
        await manager.commit()
        committed = [
            request.topics[0].partitions[0].committed_offset
            for name, request, *_ in bench.coordinators.requests
            if name == "TxnOffsetCommit"
        ]
        assert committed == [1, 1, 2]
        assert bench.coordinators.names().count("EndTxn") == 3

    with_bench(test)


def test_close_completes_commit_whose_caller_timed_out() -> None:
    async def test(bench: Bench) -> None:
        manager = await bench.added()
        bench.coordinators.errors["EndTxn"] = [CoordinatorNotAvailableError] * 5
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await manager.commit()
        await manager.close()
        assert manager.state is S.READY
        assert _ends(bench) == [True] * 6

    with_bench(test)


def test_close_aborts_after_commit_whose_caller_timed_out_has_failed() -> None:
    async def test(bench: Bench) -> None:
        manager = await bench.added()
        batch = bench.batch()
        manager.assign_sequence(batch)
        complete_batches = manager._complete_batches

        async def expire_batch(drop_queued: bool) -> None:
            manager._complete_batches = complete_batches
            await asyncio.sleep(10)
            manager.handle_failed_batch(batch, KafkaTimeoutError("expired"))

        manager._complete_batches = expire_batch
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await manager.commit()
        await manager.close()
        assert manager.state is S.READY
        assert _ends(bench) == [False]

    with_bench(test)


def test_close_without_transaction_sends_no_requests() -> None:
    async def test(bench: Bench) -> None:
        await bench.manager.close()
        assert bench.coordinators.names() == []

    with_bench(test)


# ---- without transactions


def idempotent(coordinators: Coordinators, fatal: list[BaseException]) -> IdempotenceManager:
    return IdempotenceManager(coordinators, Backoff(100, 1000, make_random(0)), sender_loop(), fatal.append)


def test_idempotent_producer_retries_init_producer_id() -> None:
    async def main() -> None:
        coordinators, fatal = Coordinators(1), []
        coordinators.errors["InitProducerId"] = [CoordinatorLoadInProgressError, KafkaConnectionError]
        manager = idempotent(coordinators, fatal)
        manager.prepare()
        manager.prepare()
        await asyncio.sleep(1)
        assert coordinators.names() == ["InitProducerId"] * 3
        assert manager.sequences.identity == (7, 0)
        assert not fatal

    run(main())


def test_idempotent_producer_fails_without_authorization() -> None:
    async def main() -> None:
        coordinators, fatal = Coordinators(1), []
        coordinators.errors["InitProducerId"] = [ClusterAuthorizationFailedError]
        manager = idempotent(coordinators, fatal)
        manager.prepare()
        await asyncio.sleep(1)
        manager.prepare()
        await asyncio.sleep(1)
        assert [type(error) for error in fatal] == [ClusterAuthorizationFailedError]
        assert coordinators.names() == ["InitProducerId"]

    run(main())


def test_idempotent_producer_bumps_epoch_locally() -> None:
    async def main() -> None:
        coordinators: Coordinators = Coordinators(1)
        manager = idempotent(coordinators, [])
        manager.prepare()
        await asyncio.sleep(1)
        assert manager.reset_sequence(TP)
        manager.prepare()
        assert manager.sequences.identity == (7, 1)
        assert coordinators.names() == ["InitProducerId"]

    run(main())
