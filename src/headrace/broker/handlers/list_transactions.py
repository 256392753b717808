"""ListTransactions: the transactional ids that this broker coordinates (KIP-664).

Versions 0 to 2: 1 only those that have been open for so long (KIP-994), 2 only ids that match a pattern (KIP-1152).
Patterns are Python's regular expressions, which agree with RE2's in what is common; the whole id must match.
"""

import re
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
def handle(
    broker: "Broker",
    request: ListTransactionsRequest,
    context: RequestContext,
) -> ListTransactionsResponse:
    runtime = broker.transactions.runtime
    if runtime.is_loading():
        return ListTransactionsResponse(error_code=CoordinatorLoadInProgressError.code)
    unknown = [name for name in request.state_filters if name not in _STATES]
    try:
        pattern = re.compile(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except re.error:
        return ListTransactionsResponse(error_code=InvalidRegularExpressionError.code)
    wanted = {name for name in request.state_filters if name in _STATES}
    producers = set(request.producer_id_filters)
    now_ms = broker.clock.time_ms()

    def is_wanted(transaction: states.Transaction) -> bool:
        if request.state_filters and transaction.state.label not in wanted:
            return False
        if producers and transaction.producer_id not in producers:
            return False
        if pattern is not None and pattern.fullmatch(transaction.transactional_id) is None:
            return False
        if request.duration_filter < 0:
            return True
        return transaction.start_ms >= 0 and now_ms - transaction.start_ms > request.duration_filter

    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.label,
            )
            for shard in runtime.shards()
            for each in shard.transactions.values()
            if is_wanted(each)
        ],
    )
