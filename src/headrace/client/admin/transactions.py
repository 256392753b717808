"""The admin client's calls about transactions: list, describe, abort, fence producers. Owner: the loop."""

import asyncio
from collections.abc import Iterable

from headrace.client.admin.base import MOVED_COORDINATOR, AdminBase, gather
from headrace.client.admin.types import (
    AbortTransactionSpec,
    FencedProducer,
    Results,
    TransactionDescription,
    TransactionListing,
)
from headrace.client.arguments import to_partition
from headrace.client.coordinators import CoordinatorType
from headrace.client.errors import IllegalArgumentError, check, error_for
from headrace.common.errors import ConcurrentTransactionsError
from headrace.common.types import TopicPartition
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

TRANSACTION = CoordinatorType.TRANSACTION
_FENCING_TIMEOUT_MS = 1


class TransactionsAdmin(AdminBase):
    """The calls about transactions."""

    async def list_transactions(
        self,
        broker_ids: Iterable[int] | None = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[str] | None = None,
        duration_filter_ms: int | None = None,
        transactional_id_pattern: str | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> list[TransactionListing]:
        """Returns transactional ids. Filters select coordinators, producers, states, transactions that are open for
        longer than `duration_filter_ms`, or transactional ids that match a pattern."""
        request = ListTransactionsRequest(
            state_filters=list(state_filters or ()),
            producer_id_filters=list(producer_id_filters or ()),
            duration_filter=-1 if duration_filter_ms is None else duration_filter_ms,
            transactional_id_pattern=transactional_id_pattern,
        )
        least = 2 if transactional_id_pattern is not None else 1 if duration_filter_ms is not None else 0

        async def send(broker_id: int) -> list[TransactionListing]:
            response: ListTransactionsResponse = await self.core.pool.send(broker_id, request, min_version=least)
            check(response.error_code)
            if response.unknown_state_filters:
                raise IllegalArgumentError(f"unknown transaction state {response.unknown_state_filters[0]!r}")
            return [
                TransactionListing(
                    transaction.transactional_id, transaction.producer_id, transaction.transaction_state, broker_id
                )
                for transaction in response.transaction_states
            ]

        async def attempt() -> list[TransactionListing]:
            listings_by_broker = await asyncio.gather(
                *[send(broker_id) for broker_id in await self._broker_ids(broker_ids)]
            )
            return sorted(
                (listing for broker_listings in listings_by_broker for listing in broker_listings),
                key=lambda listing: listing.transactional_id,
            )

        return await self._call_with_retries(attempt, timeout_ms, "listing transactions")

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None, raise_errors: bool = True
    ) -> Results[str, TransactionDescription]:
        """Returns the transactions of transactional ids, and their partitions."""

        async def send(transactional_id: str) -> TransactionDescription:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            response: DescribeTransactionsResponse = await self._to_coordinator(
                TRANSACTION, transactional_id, request, self._timeout_ms(None)
            )
            transaction = response.transaction_states[0]
            error = error_for(transaction.error_code, about=f"Transactional id {transactional_id}")
            coordinator = self.core.coordinators.known(TRANSACTION, transactional_id)
            self._coordinator_moved(TRANSACTION, transactional_id, error)
            return TransactionDescription(
                transactional_id,
                transaction.transaction_state,
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.transaction_timeout_ms,
                None if transaction.transaction_start_time_ms < 0 else transaction.transaction_start_time_ms,
                frozenset(
                    TopicPartition(topic.topic, partition)
                    for topic in transaction.topics
                    for partition in topic.partitions
                ),
                -1 if coordinator is None else coordinator,
                error,
            )

        async def attempt(items: list[str]) -> dict[str, TransactionDescription]:
            return await gather(items, send, lambda item, error: TransactionDescription(item, error=error))

        return await self._call_for_items(
            transactional_ids, attempt, timeout_ms, "describing transactions", raise_errors, MOVED_COORDINATOR
        )

    async def abort_transaction(self, spec: AbortTransactionSpec, *, timeout_ms: float | None = None) -> None:
        """Aborts a hanging transaction on one partition (KIP-664)."""
        tp = to_partition(spec.topic_partition)

        async def attempt() -> None:
            leaders, errors = await self._by_leader([tp], self._timeout_ms(timeout_ms))
            if errors:
                raise errors[tp]
            (leader,) = leaders
            request = WriteTxnMarkersRequest(
                markers=[
                    WritableTxnMarker(
                        producer_id=spec.producer_id,
                        producer_epoch=spec.producer_epoch,
                        coordinator_epoch=spec.coordinator_epoch,
                        transaction_result=False,
                        topics=[WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
                    )
                ]
            )
            response: WriteTxnMarkersResponse = await self.core.pool.send(leader.id, request)
            for marker in response.markers:
                for topic in marker.topics:
                    for partition in topic.partitions:
                        check(partition.error_code)

        await self._call_with_retries(attempt, timeout_ms, f"aborting a transaction on {tp}")

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None, raise_errors: bool = True
    ) -> Results[str, FencedProducer]:
        """Fences the producers of transactional ids, and aborts their open transactions."""

        async def send(transactional_id: str) -> FencedProducer:
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS
            )
            response: InitProducerIdResponse = await self._to_coordinator(
                TRANSACTION, transactional_id, request, self._timeout_ms(None)
            )
            error = error_for(response.error_code, about=f"Transactional id {transactional_id}")
            self._coordinator_moved(TRANSACTION, transactional_id, error)
            return FencedProducer(response.producer_id, response.producer_epoch, error)

        async def attempt(items: list[str]) -> dict[str, FencedProducer]:
            return await gather(items, send, lambda _, error: FencedProducer(error=error))

        retried_errors = (*MOVED_COORDINATOR, ConcurrentTransactionsError)
        return await self._call_for_items(
            transactional_ids, attempt, timeout_ms, "fencing producers", raise_errors, retried_errors
        )
