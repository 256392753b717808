"""Detection of hanging transactions from the states of partitions and coordinators."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.cli.cluster.transactions import Hanging, hanging
from headrace.client.admin.types import (
    PartitionDescription,
    PartitionProducers,
    ProducerState,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)
from headrace.common.errors import CoordinatorNotAvailableError, KafkaError, TransactionalIdNotFoundError
from headrace.common.types import TopicPartition

TP = TopicPartition("t", 0)
OPEN = ProducerState(7, 0, 3, 1000, 0, 42)


class Cluster:
    """A partition with an open transaction, and the coordinator's state of its producer."""

    def __init__(self, known: TransactionDescription | None):
        self._known = known

    def describe_cluster(self) -> Any:
        return SimpleNamespace(brokers=[SimpleNamespace(id=0)])

    def describe_topics(self, names: Any, raise_errors: bool) -> Any:
        assert not raise_errors
        return {"t": TopicDescription("t", partitions=(PartitionDescription(0, 0, replicas=(0,)),))}

    def describe_producers(self, partitions: Any, broker_id: int | None) -> Any:
        idle = ProducerState(8, 0, 3, 1000, 0, -1)
        return {tp: PartitionProducers((OPEN, idle)) for tp in partitions}

    def list_transactions(self, producer_id_filters: set[int]) -> Any:
        assert producer_id_filters == {7}
        return [] if self._known is None else [TransactionListing("id", 7, "Ongoing", 0)]

    def describe_transactions(self, ids: list[str], raise_errors: bool) -> Any:
        assert ids == ["id"]
        assert not raise_errors
        return {"id": self._known}


def found(known: TransactionDescription | None, before_ms: int = 2000) -> list[Hanging]:
    return hanging(Cluster(known), before_ms, None, "t", None)  # type: ignore[arg-type]


def described(*partitions: TopicPartition, error: KafkaError | None = None) -> TransactionDescription:
    return TransactionDescription("id", "Ongoing", 7, partitions=frozenset(partitions), error=error)


@pytest.mark.parametrize(
    "known",
    [None, described(), described(TopicPartition("t", 1)), described(error=TransactionalIdNotFoundError("gone"))],
)
def test_transaction_unknown_to_coordinators_hangs(known: TransactionDescription | None) -> None:
    assert found(known) == [Hanging(TP, OPEN)]


def test_open_transaction_does_not_hang() -> None:
    assert found(described(TP)) == []


def test_recent_transaction_does_not_hang() -> None:
    assert found(None, before_ms=1000) == []


def test_raises_if_a_coordinator_fails() -> None:
    with pytest.raises(CoordinatorNotAvailableError):
        found(described(error=CoordinatorNotAvailableError("it is moving")))
