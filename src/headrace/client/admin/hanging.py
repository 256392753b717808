"""Finds hanging transactions: open in a partition, but not open according to any transaction coordinator (KIP-664)."""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.client.admin.partitions import PartitionsAdmin
from headrace.client.admin.transactions import TransactionsAdmin
from headrace.client.admin.types import ProducerState
from headrace.common.errors import TransactionalIdNotFoundError
from headrace.common.types import TopicPartition

__all__ = ["HangingTransaction", "HangingTransactionsAdmin"]


@dataclass(frozen=True)
class HangingTransaction:
    """The partition in which a transaction is open, and its producer."""

    tp: TopicPartition
    producer: ProducerState
    transactional_id: str | None = None
    """The id that has the producer id now, if any."""


class HangingTransactionsAdmin(PartitionsAdmin, TransactionsAdmin):
    """The call that compares partitions with transaction coordinators."""

    async def list_hanging_transactions(
        self,
        partitions: Sequence[TopicPartition],
        before_ms: int,
        broker_id: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> list[HangingTransaction]:
        """Returns the transactions that opened in one of the partitions before a time and that no coordinator has as
        open, as the leaders or one broker know them. Without `raise_errors`, partitions that cannot be asked are left
        out."""
        if not partitions:
            return []
        states = await self.describe_producers(partitions, broker_id, raise_errors=raise_errors)
        suspects = [
            (tp, producer)
            for tp, state in sorted(states.items())
            for producer in state.producers
            if producer.current_txn_start_offset >= 0 and producer.last_timestamp < before_ms
        ]
        if not suspects:
            return []
        listed = await self.list_transactions(producer_id_filters={producer.producer_id for _, producer in suspects})
        ids = {transaction.producer_id: transaction.transactional_id for transaction in listed}
        open_in: set[tuple[int, TopicPartition]] = set()
        if ids:
            described = await self.describe_transactions(ids.values(), raise_errors=False)
            for transaction in described.values():
                # An id that has expired in the meantime has no open transaction. Any other error leaves the state
                # unknown.
                if transaction.error is None:
                    open_in.update((transaction.producer_id, tp) for tp in transaction.partitions)
                elif not isinstance(transaction.error, TransactionalIdNotFoundError):
                    raise transaction.error
        return [
            HangingTransaction(tp, producer, ids.get(producer.producer_id))
            for tp, producer in suspects
            if (producer.producer_id, tp) not in open_in
        ]
