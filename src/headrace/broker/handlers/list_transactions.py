"""ListTransactions: the transactional ids that this broker coordinates (KIP-664).

Versions 0 to 2: 1 only those that have been open for so long (KIP-994), 2 only ids that match a pattern (KIP-1152).
Patterns are RE2's, as with Kafka, which takes its time in proportion to the text: Python's own could be made to stand
still by a client. Arrow has RE2 inside. The whole id must match.
"""

import asyncio
import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.broker.dispatch import RequestContext, api
from headrace.common.errors import CoordinatorLoadInProgressError, InvalidRegularExpressionError
from headrace.coordinator.transaction import states
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from headrace.broker.server import Broker

_STATES = {state.label for state in states.TransactionState}


@api(ApiKey.LIST_TRANSACTIONS, 0, 2)
async def handle(
    broker: "Broker", request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    runtime = broker.transactions.runtime
    if runtime.is_loading():
        return ListTransactionsResponse(error_code=CoordinatorLoadInProgressError.code)
    now_ms = broker.clock.time_ms()
    found = [
        each for shard in runtime.shards() for each in shard.transactions.values() if _is_wanted(each, request, now_ms)
    ]
    if request.transactional_id_pattern:
        try:
            matching = await _matching(request.transactional_id_pattern, (each.transactional_id for each in found))
        except ValueError:
            return ListTransactionsResponse(error_code=InvalidRegularExpressionError.code)
        found = [each for each in found if each.transactional_id in matching]
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in _STATES],
        transaction_states=[
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.label,
            )
            for each in found
        ],
    )


def _is_wanted(transaction: states.Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    if request.state_filters and transaction.state.label not in request.state_filters:
        return False
    if request.producer_id_filters and transaction.producer_id not in request.producer_id_filters:
        return False
    if request.duration_filter < 0:
        return True
    return transaction.start_ms >= 0 and now_ms - transaction.start_ms > request.duration_filter


async def _matching(pattern: str, names: Iterable[str]) -> set[str]:
    """The names that match. Raises ValueError for a pattern that is none."""
    compute = await asyncio.to_thread(importlib.import_module, "pyarrow.compute")  # slow, the first time
    arrow = importlib.import_module("pyarrow")
    compute.match_substring_regex(arrow.array([""]), pattern)  # it must be one by itself, not only in brackets
    array = arrow.array(names, arrow.string())
    matches = compute.match_substring_regex(array, rf"\A(?:{pattern})\z")
    return set(array.filter(matches).to_pylist())
