"""Markers on their way: what fails is sent again, until the transaction can be completed or belongs to another."""

from collections.abc import Callable

import pytest

from headrace.broker.transactions import _Ending
from headrace.common.errors import (
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    KafkaError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition
from headrace.coordinator.result import CoordinatorResponse, ProducerInfo
from headrace.coordinator.transaction.metadata import TransactionMetadata, TransactionState

EPOCH = 4
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class CoordinatorRuntime:
    def __init__(self) -> None:
        self.epoch: int | None = EPOCH
        self.completed = 0
        self.failures: list[KafkaError] = []

    def leader_epoch(self, index: int) -> int:
        if self.epoch is None:
            raise NotCoordinatorError("gone")
        return self.epoch

    def write(self, index: int, operation: object, done: Callable[[CoordinatorResponse[None]], None]) -> None:
        if self.failures:
            done(CoordinatorResponse(error=self.failures.pop(0)))
            return
        self.completed += 1
        done(CoordinatorResponse(None))


class Transactions:
    """Partitions that answer as the test says; without a word they take the marker."""

    def __init__(self) -> None:
        self.runtime = CoordinatorRuntime()
        self.errors: dict[TopicPartition, KafkaError] = {}
        self.gone: set[TopicPartition] = set()
        self.silent = False
        self.waiting: list[Callable[[KafkaError | None], None]] = []
        self.sent: list[tuple[TopicPartition, ProducerInfo, bool, int]] = []
        self.due: list[Callable[[], None]] = []

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

    def when_known(self, tp: TopicPartition, done: Callable[[bool], None]) -> None:
        done(tp in self.gone)

    def later(self, action: Callable[[], None]) -> None:
        self.due.append(action)

    def run(self) -> None:
        due, self.due = self.due, []
        for action in due:
            action()


def begin(made: Transactions, *partitions: TopicPartition, committed: bool = True) -> None:
    state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
    prepared = TransactionMetadata("id", 7, 3, 1000, state, frozenset(partitions))
    _Ending(made, 0, prepared, EPOCH).go_on()  # type: ignore[arg-type]


@pytest.mark.parametrize("committed", [True, False])
def test_all_partitions_get_a_marker(committed: bool) -> None:
    made = Transactions()
    begin(made, A, B, committed=committed)
    assert made.sent == [(tp, ProducerInfo(7, 3), committed, EPOCH) for tp in (A, B)]
    assert (made.runtime.completed, made.due) == (1, [])


def test_without_partitions_it_is_complete_at_once() -> None:
    made = Transactions()
    begin(made)
    assert (made.sent, made.runtime.completed) == ([], 1)


def test_only_what_failed_is_sent_again() -> None:
    made = Transactions()
    made.errors = {B: NotLeaderForPartitionError("an election")}
    begin(made, A, B)
    for _ in range(3):
        assert made.runtime.completed == 0
        made.run()
    assert [tp for tp, *_ in made.sent] == [A, B, B, B, B]
    made.errors = {}
    made.run()
    assert (made.runtime.completed, made.due) == (1, [])


def test_markers_that_take_their_time() -> None:
    made = Transactions()
    made.silent = True
    begin(made, A, B)
    first, second = made.waiting
    second(None)
    assert (made.runtime.completed, made.due) == (0, [])
    first(CoordinatorNotAvailableError("slow replicas"))
    assert (made.runtime.completed, len(made.due)) == (0, 1)
    made.run()
    made.waiting[-1](None)
    assert [tp for tp, *_ in made.sent] == [A, B, A]
    assert made.runtime.completed == 1


def test_deleted_partitions_need_none() -> None:
    made = Transactions()
    made.errors, made.gone = {B: UnknownTopicOrPartitionError("not here")}, {B}
    begin(made, A, B)
    assert made.runtime.completed == 1


def test_partitions_that_are_not_here_yet_are_tried_again() -> None:
    made = Transactions()
    made.errors = {A: UnknownTopicOrPartitionError("the broker has just started")}
    begin(made, A)
    assert (made.runtime.completed, len(made.due)) == (0, 1)
    made.errors = {}
    made.run()
    assert made.runtime.completed == 1


@pytest.mark.parametrize("epoch", [None, EPOCH + 1])
def test_another_coordinator_goes_on(epoch: int | None) -> None:
    made = Transactions()
    made.errors = {A: NotLeaderForPartitionError("an election")}
    begin(made, A)
    made.runtime.epoch = epoch
    made.run()
    assert (len(made.sent), made.due, made.runtime.completed) == (1, [], 0)


def test_who_is_fenced_gives_up() -> None:
    made = Transactions()
    made.errors = {A: TransactionCoordinatorFencedError("newer")}
    begin(made, A, B)
    assert (made.runtime.completed, made.due) == (0, [])


def test_partitions_that_are_past_the_transaction_need_no_marker() -> None:
    made = Transactions()
    made.errors = {A: InvalidProducerEpochError("newer")}
    begin(made, A, B)
    assert (made.runtime.completed, made.due) == (1, [])


def test_completion_is_tried_again() -> None:
    made = Transactions()
    made.runtime.failures = [CoordinatorNotAvailableError("too few replicas")]
    begin(made, A)
    assert made.runtime.completed == 0
    made.run()
    assert (made.runtime.completed, len(made.sent)) == (1, 1)
