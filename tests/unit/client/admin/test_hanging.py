"""Detection of hanging transactions from the states of partitions and coordinators."""

import asyncio
from typing import Any

import pytest

from headrace.client.admin.hanging import HangingTransaction, HangingTransactionsAdmin
from headrace.client.admin.types import PartitionProducers, ProducerState, TransactionDescription, TransactionListing
from headrace.common.errors import CoordinatorNotAvailableError, KafkaError, TransactionalIdNotFoundError
from headrace.common.types import TopicPartition

TP = TopicPartition("t", 0)
OPEN = ProducerState(7, 0, 3, 1000, 0, 42)


class Cluster(HangingTransactionsAdmin):
    """A partition with an open transaction, and the coordinator's state of its producer."""

    def __init__(self, known: TransactionDescription | None):
        self._known = known

    async def describe_producers(self, partitions: Any, broker_id: Any = None, **_: Any) -> Any:  # type: ignore[override]
        idle = ProducerState(8, 0, 3, 1000, 0, -1)
        return {tp: PartitionProducers((OPEN, idle)) for tp in partitions}

    async def list_transactions(self, **filters: Any) -> Any:  # type: ignore[override]
        assert filters == {"producer_id_filters": {7}}
        return [] if self._known is None else [TransactionListing("id", 7, "Ongoing", 0)]

    async def describe_transactions(self, ids: Any, **options: Any) -> Any:  # type: ignore[override]
        assert list(ids) == ["id"]
        assert options == {"raise_errors": False}
        return {"id": self._known}


def found(known: TransactionDescription | None, before_ms: int = 2000) -> list[HangingTransaction]:
    return asyncio.run(Cluster(known).list_hanging_transactions([TP], before_ms))


def described(*partitions: TopicPartition, error: KafkaError | None = None) -> TransactionDescription:
    return TransactionDescription("id", "Ongoing", 7, partitions=frozenset(partitions), error=error)


@pytest.mark.parametrize(
    "known",
    [None, described(), described(TopicPartition("t", 1)), described(error=TransactionalIdNotFoundError("gone"))],
)
def test_transaction_unknown_to_coordinators_hangs(known: TransactionDescription | None) -> None:
    assert found(known) == [HangingTransaction(TP, OPEN, None if known is None else "id")]


def test_open_transaction_does_not_hang() -> None:
    assert found(described(TP)) == []


def test_recent_transaction_does_not_hang() -> None:
    assert found(None, before_ms=1000) == []


def test_raises_if_a_coordinator_fails() -> None:
    with pytest.raises(CoordinatorNotAvailableError):
        found(described(error=CoordinatorNotAvailableError("it is moving")))
