"""Transactional appends that wait for a transaction coordinator: order, guards, errors, batches."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.replicas import TP, TP_1, Replicas
from tests.support.cluster.fake_cluster import async_test, until

from headrace.broker.config.coordinators import TRANSACTION_TOPIC
from headrace.broker.transaction_verification import Operation, UnverifiedAppend, Verifier, produce_operation
from headrace.cluster.commands import NO_LEADER, BrokerInfo, PartitionState, UpdateMetadata
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    RequestTimedOutError,
    TransactionAbortableError,
    UnsupportedVersionError,
)
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition
from headrace.coordinator.result import CoordinatorResponse, ProducerInfo
from headrace.net.errors import KafkaConnectionError
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from headrace.records import BatchBuilder, ControlType, encode_marker
from headrace.storage.producer_state import AppendOrigin

HERE, THERE = 1, 2
PRODUCER = ProducerInfo(70, 3)


class Runtime:
    """The coordinators of this broker: those of `partitions`, with the answers of the test."""

    def __init__(self) -> None:
        self.partitions: set[int] = set()
        self.answer: KafkaError | bool | None = True
        self.waiting: list[Callable[[], None]] = []
        self.is_silent = False
        self.calls: list[str] = []

    def __contains__(self, partition: int) -> bool:
        return partition in self.partitions

    def write(self, partition: int, operation: Any, done: Any) -> None:
        self._run("add", done)

    def read(self, partition: int, operation: Any, done: Any) -> None:
        self._run("verify", done)

    def _run(self, call: str, done: Any) -> None:
        self.calls.append(call)

        def respond() -> None:
            error = self.answer if isinstance(self.answer, KafkaError) else None
            done(CoordinatorResponse(self.answer, error))

        if self.is_silent:
            self.waiting.append(respond)
        else:
            respond()


class World:
    """This broker leads two partitions. The coordinator is on another broker, unless the test moves it."""

    def __init__(self, directory: Path):
        self.replicas = Replicas(directory)
        self.partition, self.other = self.replicas.lead(TP), self.replicas.lead(TP_1)
        self.image = MetadataImage()
        self.lead_coordinator(THERE)
        self.runtime: Any = Runtime()
        self.requests: list[tuple[int, AddPartitionsToTxnRequest, asyncio.Future[Any]]] = []
        self.is_enabled = True
        self.verifier = Verifier(HERE, self.image, self.runtime, lambda _: 5, self, lambda: self.is_enabled)

    def lead_coordinator(self, leader: int, alive: tuple[int, ...] = (HERE, THERE)) -> None:
        state = PartitionState(TopicPartition(TRANSACTION_TOPIC, 5), Uuid(int=9), leader, 0, (leader,), 0, (leader,))
        self.image.apply(UpdateMetadata(HERE, 1, 1, [BrokerInfo(broker) for broker in alive], [state]))

    async def send(
        self, broker_id: int, request: Any, *, purpose: str = "", min_version: int | None = None, **_: object
    ) -> Any:
        assert (purpose, min_version) == ("transactions", 4)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.requests.append((broker_id, request, future))
        return await future

    async def asked(self, number: int = 1) -> tuple[AddPartitionsToTxnRequest, "asyncio.Future[Any]"]:
        await until(lambda: len(self.requests) >= number)
        assert len(self.requests) == number
        broker_id, request, future = self.requests[-1]
        assert broker_id == THERE
        return request, future

    def check(
        self,
        sequence: int = 0,
        operation: Operation = Operation.ADD,
        producer: ProducerInfo = PRODUCER,
        name: str = "id",
        partition: Any = None,
    ) -> UnverifiedAppend | None:
        return self.verifier.check_append(partition or self.partition, producer, sequence, name, operation)

    def append(self, sequence: int = 0, producer: ProducerInfo = PRODUCER, partition: Any = None) -> None:
        builder = BatchBuilder(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        builder.append(b"", b"%d" % sequence, 0)
        (partition or self.partition).append(builder.build(), 1)

    def mark(self, producer: ProducerInfo = PRODUCER) -> None:
        """Ends the transaction in the partition."""
        self.verifier.marker_written(TP, producer)
        marker = encode_marker(
            ControlType.ABORT,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=0,
            timestamp=0,
        )
        self.partition.append(marker, -1, AppendOrigin.COORDINATOR)

    def start(self, append: UnverifiedAppend | None, sequence: int = 0) -> "asyncio.Task[str]":
        """Appends as the Produce handler does. The result is the name of the error, or OK."""
        assert append is not None

        async def run() -> str:
            try:
                await append.wait()
                append.check()
                self.append(sequence)
            except KafkaError as error:
                return error.name
            finally:
                append.finish()
            return "OK"

        return asyncio.get_running_loop().create_task(run())

    def is_clean(self) -> bool:
        return not self.verifier._guards and not self.verifier.last_appends


def response(request: AddPartitionsToTxnRequest, *errors: type[KafkaError] | None, whole: int = 0) -> Any:
    """Returns the response with an error for each transaction."""
    codes = [error.code if error is not None else 0 for error in errors] or [0] * len(request.transactions)
    return AddPartitionsToTxnResponse(
        error_code=whole,
        results_by_transaction=[]
        if whole
        else [
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                            for index in topic.partitions
                        ],
                    )
                    for topic in transaction.topics
                ],
            )
            for transaction, code in zip(request.transactions, codes, strict=True)
        ],
    )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    with world.replicas:
        yield world
        assert world.is_clean()


def test_operations_of_produce_versions() -> None:
    assert [produce_operation(version) for version in (10, 11, 12, 13)] == [
        Operation.VERIFY,
        Operation.VERIFY_ABORTABLE,
        Operation.ADD,
        Operation.ADD,
    ]


# ---- a coordinator on this broker


@pytest.mark.parametrize(
    ("operation", "call"),
    [(Operation.VERIFY, "verify"), (Operation.VERIFY_ABORTABLE, "verify"), (Operation.ADD, "add")],
)
def test_local_coordinator_answers_at_once(world: World, operation: Operation, call: str) -> None:
    world.runtime.partitions = {5}
    assert world.check(operation=operation) is None
    assert world.runtime.calls == [call]
    world.append()
    assert world.check(1, operation=operation) is None
    assert world.runtime.calls == [call], "an open transaction needs no verification"


@pytest.mark.parametrize(
    ("operation", "error"),
    [(Operation.VERIFY, InvalidTxnStateError), (Operation.VERIFY_ABORTABLE, TransactionAbortableError)],
)
def test_partition_outside_of_the_transaction(world: World, operation: Operation, error: type[KafkaError]) -> None:
    world.runtime.partitions, world.runtime.answer = {5}, False
    with pytest.raises(error):
        world.check(operation=operation)


def test_verification_can_be_disabled(world: World) -> None:
    world.is_enabled = False
    assert world.check(operation=Operation.VERIFY) is None
    world.runtime.partitions = {5}
    assert world.check(operation=Operation.ADD) is None
    assert world.runtime.calls == ["add"]


@pytest.mark.parametrize(
    ("raised", "operation", "seen"),
    [
        (ProducerFencedError, Operation.ADD, InvalidProducerEpochError),
        (ConcurrentTransactionsError, Operation.ADD, ConcurrentTransactionsError),
        (ConcurrentTransactionsError, Operation.VERIFY, NotEnoughReplicasError),
        (CoordinatorLoadInProgressError, Operation.ADD, NotEnoughReplicasError),
        (CoordinatorNotAvailableError, Operation.VERIFY_ABORTABLE, NotEnoughReplicasError),
        (NotCoordinatorError, Operation.VERIFY, NotEnoughReplicasError),
        (InvalidProducerIdMappingError, Operation.VERIFY, InvalidProducerIdMappingError),
    ],
)
def test_errors_for_the_producer(
    world: World, raised: type[KafkaError], operation: Operation, seen: type[KafkaError]
) -> None:
    world.runtime.partitions, world.runtime.answer = {5}, raised("no")
    with pytest.raises(KafkaError) as caught:
        world.check(operation=operation)
    assert type(caught.value) is seen


@pytest.mark.parametrize(("leader", "alive"), [(NO_LEADER, (HERE, THERE)), (THERE, (HERE,)), (HERE, (HERE, THERE))])
def test_no_coordinator(world: World, leader: int, alive: tuple[int, ...]) -> None:
    world.lead_coordinator(leader, alive)
    with pytest.raises(NotEnoughReplicasError):
        world.check()


def test_a_new_producer_begins_with_sequence_0(world: World) -> None:
    with pytest.raises(OutOfOrderSequenceNumberError):
        world.check(4, operation=Operation.ADD)


def test_a_batch_that_could_not_be_verified_comes_before_later_ones(world: World) -> None:
    world.runtime.partitions, world.runtime.answer = {5}, NotCoordinatorError("moved")
    with pytest.raises(NotEnoughReplicasError):
        world.check(8, operation=Operation.VERIFY)
    world.runtime.answer = True
    with pytest.raises(OutOfOrderSequenceNumberError):
        world.check(9, operation=Operation.VERIFY)
    assert world.check(8, operation=Operation.VERIFY) is None
    assert world.check(9, operation=Operation.VERIFY) is None, "its state may have expired"


@async_test
async def test_local_coordinator_that_waits_for_its_replicas(tmp_path: Path) -> None:
    world = World(tmp_path)
    with world.replicas:
        world.runtime.partitions, world.runtime.is_silent = {5}, True
        append = world.start(world.check())
        await asyncio.sleep(0)
        assert not append.done()
        world.runtime.waiting.pop()()
        assert await append == "OK"
        assert world.is_clean()


# ---- a coordinator on another broker


def remote(test: Callable[[World], Any]) -> Callable[[Path], None]:
    """Runs a test with a world on an event loop. At the end nothing waits any more."""

    @async_test
    async def run(tmp_path: Path) -> None:
        world = World(tmp_path)
        with world.replicas:
            await test(world)
            assert world.is_clean()
            await world.verifier.close()

    return run


@remote
async def test_remote_coordinator(world: World) -> None:
    append = world.start(world.check())
    request, future = await world.asked()
    (transaction,) = request.transactions
    assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == ("id", *PRODUCER)
    assert not transaction.verify_only
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [(TP.topic, [0])]
    assert world.partition.log is not None
    assert world.partition.log.log_end_offset == 0
    future.set_result(response(request))
    assert await append == "OK"
    assert world.check(1) is None


@remote
async def test_old_producers_are_only_verified(world: World) -> None:
    append = world.start(world.check(operation=Operation.VERIFY))
    request, future = await world.asked()
    assert request.transactions[0].verify_only
    future.set_result(response(request, TransactionAbortableError))
    assert await append == "INVALID_TXN_STATE"


@remote
async def test_later_appends_of_the_producer_wait_in_order(world: World) -> None:
    appends = [world.start(world.check(sequence), sequence) for sequence in range(3)]
    request, future = await world.asked()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not any(append.done() for append in appends)
    future.set_result(response(request))
    assert await asyncio.gather(*appends) == ["OK"] * 3
    assert len(world.requests) == 1
    assert world.partition.log is not None
    assert world.partition.log.log_end_offset == 3


@remote
async def test_appends_behind_a_failure_fail(world: World) -> None:
    appends = [world.start(world.check(sequence, Operation.VERIFY), sequence) for sequence in range(3)]
    _, future = await world.asked()
    future.set_exception(KafkaConnectionError("killed"))
    assert await asyncio.gather(*appends) == ["NOT_ENOUGH_REPLICAS"] * 3
    assert len(world.requests) == 1
    with pytest.raises(OutOfOrderSequenceNumberError):
        world.check(3, Operation.VERIFY)
    retry = world.start(world.check(0, Operation.VERIFY))
    request, future = await world.asked(2)
    future.set_result(response(request))
    assert await retry == "OK"


@remote
async def test_other_producers_and_partitions_do_not_wait(world: World) -> None:
    slow = world.start(world.check())
    await world.asked()
    other = ProducerInfo(71, 0)
    world.runtime.partitions = {5}
    assert world.check(producer=other) is None
    assert world.check(partition=world.other) is None
    assert not slow.done()
    request, future = await world.asked()
    future.set_result(response(request))
    assert await slow == "OK"


@remote
async def test_questions_are_batched(world: World) -> None:
    first = world.start(world.check())
    request, future = await world.asked()
    second = world.check(partition=world.other)
    third = world.check(producer=ProducerInfo(71, 0), name="other")
    fourth = world.check(producer=ProducerInfo(71, 1), name="other")
    future.set_result(response(request))
    assert await first == "OK"
    request, future = await world.asked(2)
    assert [(each.transactional_id, each.producer_epoch) for each in request.transactions] == [("id", 3), ("other", 0)]
    future.set_result(response(request, None, ProducerFencedError))
    assert second is not None
    assert third is not None
    assert fourth is not None
    await second.wait()
    with pytest.raises(InvalidProducerEpochError):
        await third.wait()
    request, future = await world.asked(3)
    assert request.transactions[0].producer_epoch == 1
    future.set_result(response(request))
    await fourth.wait()
    for append in (second, third, fourth):
        append.finish()


@remote
async def test_marker_between_answer_and_append_refuses_it(world: World) -> None:
    append = world.check()
    assert append is not None
    request, future = await world.asked()
    future.set_result(response(request))
    await append.wait()
    world.mark()
    with pytest.raises(InvalidTxnStateError):
        append.check()
    append.finish()


@remote
async def test_marker_before_a_late_answer_refuses_the_append(world: World) -> None:
    """The answer is about the transaction that the marker ended."""
    append = world.start(world.check())
    request, future = await world.asked()
    world.mark()
    future.set_result(response(request))
    assert await append == "INVALID_TXN_STATE"


@remote
async def test_marker_while_an_append_of_the_open_transaction_waits(world: World) -> None:
    """As a large batch that is decompressed in a thread."""
    first = world.start(world.check())
    second = world.check(1)
    request, future = await world.asked()
    future.set_result(response(request))
    assert await first == "OK"
    assert second is not None
    await second.wait()
    second.check()
    world.mark()
    with pytest.raises(InvalidTxnStateError):
        second.check()
    second.finish()


@remote
async def test_marker_of_another_producer_changes_nothing(world: World) -> None:
    append = world.start(world.check())
    request, future = await world.asked()
    world.mark(ProducerInfo(71, 3))
    future.set_result(response(request))
    assert await append == "OK"


@remote
async def test_new_leader_epoch_refuses_the_append(world: World) -> None:
    append = world.check()
    assert append is not None
    request, future = await world.asked()
    world.replicas.lead(TP, leader_epoch=1)
    future.set_result(response(request))
    await append.wait()
    with pytest.raises(NotLeaderForPartitionError):
        append.check()
    append.finish()


@pytest.mark.parametrize(
    "failure", [KafkaConnectionError("killed"), RequestTimedOutError("slow"), UnsupportedVersionError("old")]
)
def test_failed_requests(failure: KafkaError, tmp_path: Path) -> None:
    @remote
    async def run(world: World) -> None:
        append = world.start(world.check())
        _, future = await world.asked()
        future.set_exception(failure)
        assert await append == "NOT_ENOUGH_REPLICAS"

    run(tmp_path)


@remote
async def test_an_old_coordinator_cannot_verify(world: World) -> None:
    append = world.start(world.check(operation=Operation.VERIFY))
    _, future = await world.asked()
    future.set_exception(UnsupportedVersionError("no version 4"))
    assert await append == "OK"


@remote
async def test_error_for_the_whole_request(world: World) -> None:
    append = world.start(world.check())
    request, future = await world.asked()
    future.set_result(response(request, whole=NotCoordinatorError.code))
    assert await append == "NOT_ENOUGH_REPLICAS"


@remote
async def test_a_cancelled_append_does_not_let_later_ones_pass(world: World) -> None:
    first = world.start(world.check())
    second = world.start(world.check(1), 1)
    request, future = await world.asked()
    first.cancel()
    assert await second == "NOT_ENOUGH_REPLICAS"
    future.set_result(response(request))
    await until(world.is_clean)


# ---- group coordinators


@remote
async def test_verifies_a_write_of_a_group_coordinator(world: World) -> None:
    verifying = asyncio.create_task(world.verifier.verify(world.partition, PRODUCER, "id", Operation.ADD))
    request, future = await world.asked()
    future.set_result(response(request))
    guard = await verifying
    assert guard is not None
    guard.check()
    world.mark()
    with pytest.raises(InvalidTxnStateError):
        guard.check()
    world.verifier.release(guard)
    world.append()
    assert await world.verifier.verify(world.partition, PRODUCER, "id", Operation.ADD) is None, "it is open"


@remote
async def test_refuses_a_write_of_a_group_coordinator(world: World) -> None:
    verifying = asyncio.create_task(world.verifier.verify(world.partition, PRODUCER, "id", Operation.VERIFY_ABORTABLE))
    request, future = await world.asked()
    future.set_result(response(request, TransactionAbortableError))
    with pytest.raises(TransactionAbortableError):
        await verifying
