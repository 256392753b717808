"""Transaction markers: failed ones are retried until the transaction is complete or has another coordinator."""

from collections.abc import Callable

import pytest

from headrace.broker.transactions import _MarkerWriter
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
    """Partitions that accept the marker, unless the test sets an error."""

    def __init__(self) -> None:
        self.runtime = CoordinatorRuntime()
        self.errors: dict[TopicPartition, KafkaError] = {}
        self.deleted: set[str] = set()
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

    def check_deleted(self, topic: str, done: Callable[[bool], None]) -> None:
        done(topic in self.deleted)

    def retry_later(self, action: Callable[[], None]) -> None:
        self.due.append(action)

    def run(self) -> None:
        due, self.due = self.due, []
        for action in due:
            action()


def begin(transactions: Transactions, *partitions: TopicPartition, committed: bool = True) -> None:
    state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
    prepared = TransactionMetadata("id", 7, 3, 1000, state, frozenset(partitions))
    _MarkerWriter(transactions, 0, prepared, EPOCH).write()  # type: ignore[arg-type]


@pytest.mark.parametrize("committed", [True, False])
def test_all_partitions_get_a_marker(committed: bool) -> None:
    transactions = Transactions()
    begin(transactions, A, B, committed=committed)
    assert transactions.sent == [(tp, ProducerInfo(7, 3), committed, EPOCH) for tp in (A, B)]
    assert (transactions.runtime.completed, transactions.due) == (1, [])


def test_transaction_without_partitions_completes_at_once() -> None:
    transactions = Transactions()
    begin(transactions)
    assert (transactions.sent, transactions.runtime.completed) == ([], 1)


def test_retries_only_failed_markers() -> None:
    transactions = Transactions()
    transactions.errors = {B: NotLeaderForPartitionError("an election")}
    begin(transactions, A, B)
    for _ in range(3):
        assert transactions.runtime.completed == 0
        transactions.run()
    assert [tp for tp, *_ in transactions.sent] == [A, B, B, B, B]
    transactions.errors = {}
    transactions.run()
    assert (transactions.runtime.completed, transactions.due) == (1, [])


def test_completes_after_slow_markers() -> None:
    transactions = Transactions()
    transactions.silent = True
    begin(transactions, A, B)
    first, second = transactions.waiting
    second(None)
    assert (transactions.runtime.completed, transactions.due) == (0, [])
    first(CoordinatorNotAvailableError("slow replicas"))
    assert (transactions.runtime.completed, len(transactions.due)) == (0, 1)
    transactions.run()
    transactions.waiting[-1](None)
    assert [tp for tp, *_ in transactions.sent] == [A, B, A]
    assert transactions.runtime.completed == 1


def test_deleted_partitions_need_no_marker() -> None:
    transactions = Transactions()
    transactions.errors, transactions.deleted = {B: UnknownTopicOrPartitionError("not here")}, {"t"}
    begin(transactions, A, B)
    assert transactions.runtime.completed == 1


def test_retries_partitions_that_are_not_loaded_yet() -> None:
    transactions = Transactions()
    transactions.errors = {A: UnknownTopicOrPartitionError("the broker has just started")}
    begin(transactions, A)
    assert (transactions.runtime.completed, len(transactions.due)) == (0, 1)
    transactions.errors = {}
    transactions.run()
    assert transactions.runtime.completed == 1


@pytest.mark.parametrize("epoch", [None, EPOCH + 1])
def test_stops_when_another_broker_is_coordinator(epoch: int | None) -> None:
    transactions = Transactions()
    transactions.errors = {A: NotLeaderForPartitionError("an election")}
    begin(transactions, A)
    transactions.runtime.epoch = epoch
    transactions.run()
    assert (len(transactions.sent), transactions.due, transactions.runtime.completed) == (1, [], 0)


def test_stops_when_fenced() -> None:
    transactions = Transactions()
    transactions.errors = {A: TransactionCoordinatorFencedError("newer")}
    begin(transactions, A, B)
    assert (transactions.runtime.completed, transactions.due) == (0, [])


def test_partitions_with_a_newer_epoch_need_no_marker() -> None:
    transactions = Transactions()
    transactions.errors = {A: InvalidProducerEpochError("newer")}
    begin(transactions, A, B)
    assert (transactions.runtime.completed, transactions.due) == (1, [])


def test_retries_the_completion() -> None:
    transactions = Transactions()
    transactions.runtime.failures = [CoordinatorNotAvailableError("too few replicas")]
    begin(transactions, A)
    assert transactions.runtime.completed == 0
    transactions.run()
    assert (transactions.runtime.completed, len(transactions.sent)) == (1, 1)
