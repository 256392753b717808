"""ListTransactions: the transactional ids that this broker coordinates (KIP-664).

Behavior:
- Patterns have RE2's syntax and must match the whole id, as in Kafka. RE2 matches in linear time. With Python's `re` a
  client could block the broker.

Version notes (0 to 2):
- 1 has a filter for the duration of the transaction (KIP-994)
- 2 has a pattern for transactional ids (KIP-1152)
"""

import re2

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_transactional_id, requires
from headrace.broker.rights import is_allowed
from headrace.broker.transactions import Transactions
from headrace.common.clock import Clock
from headrace.common.errors import CoordinatorLoadInProgressError, InvalidRegularExpressionError
from headrace.coordinator.transaction import metadata
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from headrace.security.acls import Operation, ResourceType

_STATES = {state.label for state in metadata.TransactionState}


@api(
    ApiKey.LIST_TRANSACTIONS,
    0,
    2,
    needs=requires(on_transactional_id(Operation.DESCRIBE, "each transactional id", "left out")),
)
async def handle(
    request: ListTransactionsRequest, context: RequestContext, *, clock: Clock, transactions: Transactions
) -> ListTransactionsResponse:
    runtime = transactions.runtime
    if runtime.is_loading():
        return ListTransactionsResponse(error_code=CoordinatorLoadInProgressError.code)
    matches = _Filter(request, clock.time_ms()).matches
    matching: list[metadata.TransactionMetadata] = []
    for shard in runtime.shards():
        matching += [transaction for transaction in shard.transactions.values() if matches(transaction)]
        await context.give_way()
    if request.transactional_id_pattern:
        try:
            pattern = _compile(request.transactional_id_pattern)
        except re2.error:
            return ListTransactionsResponse(error_code=InvalidRegularExpressionError.code)
        matching = [transaction for transaction in matching if pattern.fullmatch(transaction.transactional_id)]
    listed: list[TransactionState] = []
    for transaction in matching:
        if is_allowed(
            context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id, audited=False
        ):
            listed.append(
                TransactionState(
                    transactional_id=transaction.transactional_id,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.state.label,
                )
            )
        await context.give_way()
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in _STATES],
        transaction_states=listed,
    )


class _Filter:
    """The filters of a request, except for the pattern."""

    def __init__(self, request: ListTransactionsRequest, now_ms: int):
        self._states = frozenset(request.state_filters)
        self._producer_ids = frozenset(request.producer_id_filters)
        self._duration_ms = request.duration_filter
        self._now_ms = now_ms

    def matches(self, transaction: metadata.TransactionMetadata) -> bool:
        if self._states and transaction.state.label not in self._states:
            return False
        if self._producer_ids and transaction.producer_id not in self._producer_ids:
            return False
        if self._duration_ms < 0:
            return True
        # As in Kafka, an id without a transaction has start time -1 and so counts as very old.
        return self._now_ms - transaction.start_ms > self._duration_ms


def _compile(pattern: str) -> "re2._Regexp":
    """Compiles a client's pattern. Raises `re2.error` if it is not a valid one."""
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)
