"""Transaction markers: to partitions of this and of other brokers, retried until the transaction is complete."""

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.cluster.fake_cluster import async_test, until

from headrace.broker.marker_sender import MarkerSender
from headrace.cluster.commands import NO_LEADER, BrokerInfo, PartitionState, UpdateMetadata
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import (
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    KafkaError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import Uuid
from headrace.common.timing_wheel import Timer
from headrace.common.types import TopicPartition
from headrace.coordinator.result import CoordinatorResponse, ProducerInfo
from headrace.coordinator.transaction.metadata import TransactionMetadata, TransactionState
from headrace.net.errors import KafkaConnectionError
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headrace.testing.clock import ManualClock

EPOCH = 4
HERE, THERE, ELSEWHERE = 1, 2, 3
A, B, C = (TopicPartition("t", index) for index in range(3))


class Runtime:
    """The coordinator, with the given prepared transactions."""

    def __init__(self) -> None:
        self.epoch: int | None = EPOCH
        self.transactions: dict[str, TransactionMetadata] = {}
        self.completed: list[str] = []
        self.failures: list[KafkaError] = []

    def leader_epoch(self, index: int) -> int:
        self.shard(index)
        assert self.epoch is not None
        return self.epoch

    def shard(self, index: int) -> Any:
        if self.epoch is None:
            raise NotCoordinatorError("gone")
        return SimpleNamespace(transactions=self.transactions, complete=lambda prepared: prepared.transactional_id)

    def write(self, index: int, operation: Any, done: Callable[[CoordinatorResponse[None]], None]) -> None:
        if self.epoch is None:
            done(CoordinatorResponse(error=NotCoordinatorError("gone")))
        elif self.failures:
            done(CoordinatorResponse(error=self.failures.pop(0)))
        else:
            name = operation(self.shard(index))
            self.completed.append(name)
            self.transactions.pop(name, None)
            done(CoordinatorResponse(None))


class World:
    """Partitions on this broker that accept the marker unless the test sets an error, and two other brokers."""

    def __init__(self) -> None:
        self.runtime = Runtime()
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.image = MetadataImage()
        self.lead(HERE, A, B)
        self.errors: dict[TopicPartition, KafkaError] = {}
        self.deleted: set[str] = set()
        self.silent = False
        self.waiting: list[Callable[[KafkaError | None], None]] = []
        self.sent: list[tuple[TopicPartition, ProducerInfo, bool, int]] = []
        self.requests: list[tuple[int, WriteTxnMarkersRequest, asyncio.Future[Any]]] = []
        runtime: Any = self.runtime
        self.sender = MarkerSender(HERE, self.image, runtime, self, self, self.timer)

    # ---- the cluster

    def lead(self, leader: int, *tps: TopicPartition, alive: Iterable[int] = (HERE, THERE, ELSEWHERE)) -> None:
        states = [PartitionState(tp, Uuid(int=7), leader, 0, (leader,), 0, (leader,)) for tp in tps]
        self.image.apply(UpdateMetadata(HERE, 1, 1, [BrokerInfo(broker) for broker in alive], states))

    async def send(self, broker_id: int, request: Any, *, purpose: str = "", **_: object) -> Any:
        assert purpose == "markers"
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.requests.append((broker_id, request, future))
        return await future

    # ---- this broker

    def leads(self, tp: TopicPartition) -> bool:
        return False

    def write_marker(
        self,
        tp: TopicPartition,
        producer: ProducerInfo,
        committed: bool,
        coordinator_epoch: int,
        version: int,
        done: Callable[[KafkaError | None], None],
    ) -> None:
        self.sent.append((tp, producer, committed, coordinator_epoch))
        if self.silent:
            self.waiting.append(done)
        else:
            done(self.errors.get(tp))

    def check_deleted(self, topic: str, done: Callable[[bool], None]) -> None:
        done(topic in self.deleted)

    # ---- the test

    def begin(self, *tps: TopicPartition, committed: bool = True, name: str = "id", producer_id: int = 7) -> None:
        state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        prepared = TransactionMetadata(name, producer_id, 3, 1000, state, frozenset(tps))
        self.runtime.transactions[name] = prepared
        self.sender.send(0, prepared)

    def pass_time(self, ms: int = 1_000) -> None:
        self.clock.advance(ms)
        self.timer.advance()

    @property
    def completed(self) -> int:
        return len(self.runtime.completed)


@pytest.fixture
def world() -> World:
    return World()


# ---- partitions of this broker


@pytest.mark.parametrize("committed", [True, False])
def test_all_partitions_get_a_marker(world: World, committed: bool) -> None:
    world.begin(A, B, committed=committed)
    assert world.sent == [(tp, ProducerInfo(7, 3), committed, EPOCH) for tp in (A, B)]
    assert (world.completed, len(world.timer), len(world.sender)) == (1, 0, 0)


def test_transaction_without_partitions_completes_at_once(world: World) -> None:
    world.begin()
    assert (world.sent, world.completed) == ([], 1)


def test_retries_only_failed_markers(world: World) -> None:
    world.errors = {B: NotLeaderForPartitionError("an election")}
    world.begin(A, B)
    for _ in range(3):
        assert world.completed == 0
        world.pass_time()
    assert [tp for tp, *_ in world.sent] == [A, B, B, B, B]
    world.errors = {}
    world.pass_time()
    assert (world.completed, len(world.timer)) == (1, 0)


def test_back_off_grows_to_a_second(world: World) -> None:
    world.errors = {A: NotLeaderForPartitionError("an election")}
    world.begin(A)
    times = []
    for ms in range(6_000):
        before = len(world.sent)
        world.pass_time(1)
        if len(world.sent) > before:
            times.append(ms + 1)
    assert [later - earlier for earlier, later in zip([0, *times], times, strict=False)] == [
        100,
        200,
        400,
        800,
        *[1_000] * 4,
    ]


def test_completes_after_slow_markers(world: World) -> None:
    world.silent = True
    world.begin(A, B)
    first, second = world.waiting
    second(None)
    assert (world.completed, len(world.timer)) == (0, 0)
    first(CoordinatorNotAvailableError("slow replicas"))
    assert (world.completed, len(world.timer)) == (0, 1)
    world.pass_time()
    world.waiting[-1](None)
    assert [tp for tp, *_ in world.sent] == [A, B, A]
    assert world.completed == 1


def test_deleted_partitions_need_no_marker(world: World) -> None:
    world.errors, world.deleted = {B: UnknownTopicOrPartitionError("not here")}, {"t"}
    world.begin(A, B)
    assert world.completed == 1


def test_retries_partitions_that_are_not_loaded_yet(world: World) -> None:
    world.errors = {C: UnknownTopicOrPartitionError("the broker has just started")}
    world.begin(C)  # the image does not have it
    assert (world.completed, len(world.timer)) == (0, 1)
    world.errors = {}
    world.pass_time()
    assert world.completed == 1


def test_stops_when_another_broker_is_coordinator(world: World) -> None:
    world.errors = {A: NotLeaderForPartitionError("an election")}
    world.begin(A)
    world.runtime.epoch = None
    world.pass_time()
    assert (len(world.sent), len(world.timer), world.completed, len(world.sender)) == (1, 0, 0, 0)


def test_continues_in_a_newer_coordinator_epoch_of_this_broker(world: World) -> None:
    world.errors = {A: NotLeaderForPartitionError("an election")}
    world.begin(A)
    world.runtime.epoch = EPOCH + 1
    world.errors = {}
    world.pass_time()
    assert [epoch for *_, epoch in world.sent] == [EPOCH, EPOCH + 1]
    assert world.completed == 1


def test_fenced_coordinator_stays_without_effect(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.errors = {A: TransactionCoordinatorFencedError("newer")}
    world.begin(A, B)
    world.pass_time()
    assert world.completed == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    world.runtime.epoch = None  # it learns of the new coordinator
    world.pass_time()
    assert (world.completed, len(world.timer), len(world.sender)) == (0, 0, 0)


def test_partitions_with_a_newer_epoch_need_no_marker(world: World) -> None:
    world.errors = {A: InvalidProducerEpochError("newer")}
    world.begin(A, B)
    assert (world.completed, len(world.timer)) == (1, 0)


def test_retries_the_completion(world: World) -> None:
    world.runtime.failures = [CoordinatorNotAvailableError("too few replicas")]
    world.begin(A)
    assert world.completed == 0
    world.pass_time()
    assert (world.completed, len(world.sent)) == (1, 1)


def test_retries_the_completion_after_a_full_disk(world: World) -> None:
    """The coordinator's log turns its error into NOT_COORDINATOR, although this broker is still the coordinator."""
    world.runtime.failures = [NotCoordinatorError("Cannot append: No space left on device")]
    world.begin(A)
    assert (world.completed, len(world.sender)) == (0, 1)
    world.pass_time()
    assert (world.completed, len(world.sender)) == (1, 0)


def test_a_new_sending_replaces_the_previous_one(world: World) -> None:
    """As after a reload: a late marker of the first one could end the producer's next transaction."""
    world.errors = {A: NotLeaderForPartitionError("an election")}
    world.begin(A)
    world.errors = {}
    world.begin(A)
    assert world.completed == 1
    world.pass_time(5_000)
    assert (len(world.sent), world.completed) == (2, 1)


# ---- partitions of other brokers


def response(request: WriteTxnMarkersRequest, errors: dict[TopicPartition, type[KafkaError]] | None = None) -> Any:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=error.code
                                if (error := (errors or {}).get(TopicPartition(topic.name, index)))
                                else 0,
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in reversed(request.markers)
        ]
    )


async def asked(world: World, number: int) -> tuple[int, WriteTxnMarkersRequest, asyncio.Future[Any]]:
    await until(lambda: len(world.requests) >= number)
    assert len(world.requests) == number
    return world.requests[-1]


@async_test
async def test_one_request_for_each_broker() -> None:
    world = World()
    world.lead(THERE, B, C)
    world.begin(A, B, C, committed=False)
    broker_id, request, future = await asked(world, 1)
    (marker,) = request.markers
    assert broker_id == THERE
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 3, False)
    assert (marker.coordinator_epoch, marker.transaction_version) == (EPOCH, 0)
    assert [(topic.name, sorted(topic.partition_indexes)) for topic in marker.topics] == [("t", [1, 2])]
    assert ([tp for tp, *_ in world.sent], world.completed) == ([A], 0)
    future.set_result(response(request))
    await until(lambda: world.completed)


@async_test
async def test_markers_are_batched_while_a_request_is_in_flight() -> None:
    world = World()
    world.lead(THERE, A, B)
    world.lead(ELSEWHERE, C)
    world.begin(A, name="a", producer_id=1)
    _, first, first_future = await asked(world, 1)
    for number in range(2, 12):
        world.begin(A, B, name=str(number), producer_id=number)
    world.begin(C, name="c", producer_id=50)
    broker_id, _, _ = await asked(world, 2)
    assert broker_id == ELSEWHERE, "another broker does not wait"
    first_future.set_result(response(first))
    broker_id, request, future = await asked(world, 3)
    assert (broker_id, len(request.markers)) == (THERE, 10)
    future.set_result(response(request))
    await until(lambda: world.completed == 11)
    await world.sender.close()


@async_test
async def test_one_transaction_of_a_producer_in_a_request() -> None:
    """The response names only the producer id."""
    world = World()
    world.lead(THERE, A, B)
    world.begin(A, name="a", producer_id=1)
    world.begin(B, name="b", producer_id=1)
    _, request, future = await asked(world, 1)
    assert len(request.markers) == 1
    future.set_result(response(request))
    _, request, future = await asked(world, 2)
    future.set_result(response(request))
    await until(lambda: world.completed == 2)
    assert world.runtime.completed == ["a", "b"]


@async_test
async def test_retries_at_the_new_leader() -> None:
    world = World()
    world.lead(THERE, A, B)
    world.begin(A, B)
    _, request, future = await asked(world, 1)
    future.set_result(response(request, {B: NotLeaderForPartitionError}))
    await until(lambda: len(world.timer))
    world.lead(ELSEWHERE, B)
    world.pass_time()
    broker_id, request, future = await asked(world, 2)
    assert (broker_id, request.markers[0].topics[0].partition_indexes) == (ELSEWHERE, [1])
    future.set_exception(KafkaConnectionError("killed"))
    await until(lambda: len(world.timer))
    world.lead(HERE, B)
    world.pass_time()
    assert ([tp for tp, *_ in world.sent], world.completed) == ([B], 1)


@async_test
async def test_waits_for_a_leader() -> None:
    world = World()
    world.lead(NO_LEADER, A)
    world.begin(A)
    world.lead(THERE, A, alive=[HERE])  # the controller has not elected another leader yet
    world.pass_time()
    assert (world.requests, len(world.timer)) == ([], 1)
    world.lead(THERE, A)
    world.pass_time()
    _, request, future = await asked(world, 1)
    future.set_result(response(request))
    await until(lambda: world.completed)


@async_test
async def test_queued_markers_of_a_replaced_coordinator_are_dropped() -> None:
    world = World()
    world.lead(THERE, A)
    world.begin(A, name="a", producer_id=1)
    _, request, future = await asked(world, 1)
    world.begin(A, name="b", producer_id=2)
    world.runtime.epoch = None
    future.set_result(response(request))
    await until(lambda: not len(world.sender))
    assert (len(world.requests), world.completed) == (1, 0)


@async_test
async def test_response_without_a_result_is_a_failure() -> None:
    world = World()
    world.lead(THERE, A)
    world.begin(A)
    _, _, future = await asked(world, 1)
    future.set_result(WriteTxnMarkersResponse(markers=[]))
    await until(lambda: len(world.timer))
    assert world.completed == 0


@async_test
async def test_deleted_topic_of_another_broker() -> None:
    world = World()
    world.lead(THERE, A)
    world.begin(A)
    _, request, future = await asked(world, 1)
    world.deleted = {"t"}
    future.set_result(response(request, {A: UnknownTopicOrPartitionError}))
    await until(lambda: world.completed)
