"""The transaction coordinator shard: the transactions of one partition of `__transaction_state`.

    InitProducerId   assigns a producer id and epoch; fences producers with older epochs
    AddPartitions    starts a transaction, or adds partitions to it
    End              prepare ──► (committed) ──► markers to all partitions ──► (all written) ──► complete

The decision of a prepared transaction is final when its record is committed. The coordinator sends the markers then,
and again after each load. So a crash between two steps only repeats markers, and a repeated marker has no effect.

Timed-out transactions are aborted with a newer epoch, which fences their producer. Unused transactional ids expire.
"""

import logging
from collections.abc import Callable, Collection, Iterable

from headrace.common.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaError,
    NotCoordinatorError,
    ProducerFencedError,
)
from headrace.common.types import TopicPartition
from headrace.coordinator.result import CommitCallback, CoordinatorResult, ProducerInfo
from headrace.coordinator.shard import ShardContext
from headrace.coordinator.transaction.config import TransactionConfig
from headrace.coordinator.transaction.metadata import (
    EPOCH_PER_TRANSACTION,
    LAST_EPOCH,
    NO_PRODUCER,
    TransactionMetadata,
    TransactionState,
)
from headrace.coordinator.transaction.records import decode_key, decode_transaction, tombstone, transaction_record
from headrace.records import Record

_logger = logging.getLogger(__name__)

SendMarkers = Callable[[int, TransactionMetadata], None]
"""Writes the markers of a prepared transaction of this coordinator partition, then completes it."""
TakeId = Callable[[], int]
"""Returns a new producer id. Raises NeedsProducerId if none is available without waiting."""

_TIMEOUTS, _EXPIRY, _MARKERS = "timeouts", "expiry", "markers"
"""The keys of timers."""
_RETRY_MS = 1000
_MAX_TRANSACTIONS_PER_BATCH = 500
"""Limits the size of a batch."""


class NeedsProducerId(CoordinatorLoadInProgressError):
    """The operation needs a producer id. Retry it when an id is available."""


class TransactionCoordinatorShard:
    """The transactional ids of one partition of `__transaction_state`. Only `replay` changes `transactions`."""

    def __init__(self, context: ShardContext, config: Callable[[], TransactionConfig], send_markers: SendMarkers):
        self.transactions: dict[str, TransactionMetadata] = {}
        self._context = context
        self._config = config
        self._send_markers = send_markers
        self._bumped: dict[str, tuple[ProducerInfo, ProducerInfo]] = {}
        """Transactional id → the last epoch bump of its producer: from, and to. If the response was lost, a retry with
        the old epoch gets the same result. Not durable: after a crash the retry is fenced instead."""

    # ---- replaying

    def replay(self, record: Record, producer: ProducerInfo | None) -> None:  # noqa: ARG002 - never in a transaction
        transactional_id = decode_key(record.key or b"")
        if transactional_id is None:
            _logger.warning("Skipping a record of an unknown type in __transaction_state-%d", self._context.partition)
        elif record.value is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = decode_transaction(transactional_id, record.value)

    def replay_end(self, producer: ProducerInfo, committed: bool) -> None:
        """Does nothing: records of this topic are never transactional."""

    def on_loaded(self) -> None:
        self._schedule()
        prepared = [transaction for transaction in self.transactions.values() if transaction.state.is_prepared]
        if prepared:
            # A decision above the high watermark is not final yet: another leader may not have it.
            self._context.run(lambda: self._send_again(prepared))

    def on_unloaded(self) -> None:
        """Does nothing: the runtime cancels timers, and marker senders fail when they complete."""

    # ---- producers

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerInfo | None, take_id: TakeId
    ) -> CoordinatorResult[ProducerInfo | None]:
        """Returns the id and epoch for a producer. With `expected`, the producer requests a bump of that epoch.

        The response is None if an ongoing transaction must be aborted first: the client retries.
        """
        _check_id(transactional_id)
        max_timeout_ms = self._config().max_timeout_ms
        if not 0 < timeout_ms <= max_timeout_ms:
            raise InvalidTransactionTimeoutError(
                f"Transaction timeout {timeout_ms} ms is not between 1 and transaction.max.timeout.ms={max_timeout_ms}."
            )
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return self._init_result(
                TransactionMetadata(transactional_id, take_id(), 0, timeout_ms, updated_ms=self._now())
            )
        if expected is not None and expected.producer_id not in (
            transaction.producer_id,
            transaction.previous_producer_id,
        ):
            raise ProducerFencedError(
                f"Transactional id {transactional_id!r} now belongs to producer id {transaction.producer_id}."
            )
        if transaction.state.is_prepared:
            raise _concurrent(transaction)
        current = _producer_of(transaction)
        if transaction.state is TransactionState.ONGOING:
            if expected is not None and expected != current:
                raise _fenced(transaction, expected.producer_epoch)
            aborted = self._abort_fenced(transaction)
            if expected is not None:
                self._bumped[transactional_id] = (expected, _producer_of(aborted))
            return CoordinatorResult([transaction_record(aborted)], None, self._when_written([aborted]))
        if expected is not None and expected != current:
            if self._bumped.get(transactional_id) != (expected, current):
                raise _fenced(transaction, expected.producer_epoch)
            if transaction.producer_epoch < LAST_EPOCH:
                return self._init_result(self._reset(transaction, timeout_ms), expected)  # a retry
        if transaction.is_exhausted:
            changes = {"producer_id": take_id(), "producer_epoch": 0, "previous_producer_id": transaction.producer_id}
        else:
            changes = {"producer_epoch": transaction.producer_epoch + 1, "previous_producer_id": NO_PRODUCER}
        return self._init_result(self._reset(transaction, timeout_ms, **changes), expected)

    def _reset(self, transaction: TransactionMetadata, timeout_ms: int, **changes: int) -> TransactionMetadata:
        return transaction.to(
            TransactionState.EMPTY,
            self._now(),
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=-1,
            next_producer_id=NO_PRODUCER,
            **changes,
        )

    def _init_result(
        self, transaction: TransactionMetadata, previous: ProducerInfo | None = None
    ) -> CoordinatorResult[ProducerInfo | None]:
        current = _producer_of(transaction)
        if previous is None:
            self._bumped.pop(transaction.transactional_id, None)
        elif previous != current:
            self._bumped[transaction.transactional_id] = (previous, current)
        return CoordinatorResult([transaction_record(transaction)], current)

    # ---- partitions

    def add_partitions(
        self, transactional_id: str, producer: ProducerInfo, partitions: Collection[TopicPartition], version: int = 0
    ) -> CoordinatorResult[None]:
        transaction = self._find(transactional_id, producer)
        if transaction.state.is_prepared:
            raise _concurrent(transaction)
        ongoing = transaction.state is TransactionState.ONGOING
        if ongoing and transaction.partitions.issuperset(partitions):
            return CoordinatorResult((), None)
        now_ms = self._now()
        added = transaction.to(
            TransactionState.ONGOING,
            now_ms,
            partitions=transaction.partitions.union(partitions) if ongoing else frozenset(partitions),
            start_ms=transaction.start_ms if ongoing else now_ms,
            version=version,
        )
        return CoordinatorResult([transaction_record(added)], None)

    def verify(
        self, transactional_id: str, producer: ProducerInfo, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, bool]:
        """Returns which partitions belong to the producer's ongoing transaction (KIP-890)."""
        transaction = self._find(transactional_id, producer)
        if transaction.state.is_prepared:
            raise _concurrent(transaction)
        ongoing = transaction.state is TransactionState.ONGOING
        return {tp: ongoing and tp in transaction.partitions for tp in partitions}

    # ---- ending transactions

    def end(
        self, transactional_id: str, producer: ProducerInfo, commit: bool, version: int, take_id: TakeId
    ) -> CoordinatorResult[ProducerInfo]:
        """Commits or aborts a transaction.

        The response is the producer's id and epoch for its next transaction. It is sent when the decision is committed.
        """
        _check_id(transactional_id)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise _unknown(transactional_id)
        prepared = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        complete = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        has_own_epoch = version >= EPOCH_PER_TRANSACTION
        repeated = has_own_epoch and _was_bumped_from(transaction, producer)
        if not repeated:
            self._find(transactional_id, producer)
        if transaction.state is prepared or (has_own_epoch and not repeated and transaction.state.is_prepared):
            # With an own epoch this is the next transaction, whose predecessor still waits for its markers.
            raise _concurrent(transaction)
        if transaction.state is complete and (repeated or not has_own_epoch):
            return CoordinatorResult((), _producer_of(transaction))
        if transaction.state is not TransactionState.ONGOING and (commit or repeated or not has_own_epoch):
            raise InvalidTxnStateError(
                f"Transaction of {transactional_id!r} is in state {transaction.state.label} and cannot be "
                f"{'committed' if commit else 'aborted'}."
            )
        ended = self._prepare(transaction, prepared, version, take_id)
        response = _producer_of(ended) if ended.next_producer_id < 0 else ProducerInfo(ended.next_producer_id, 0)
        if response != producer:
            self._bumped[transactional_id] = (producer, response)
        return CoordinatorResult([transaction_record(ended)], response, self._when_written([ended]))

    def _prepare(
        self, transaction: TransactionMetadata, state: TransactionState, version: int, take_id: TakeId
    ) -> TransactionMetadata:
        now_ms = self._now()
        if version < EPOCH_PER_TRANSACTION:
            return transaction.to(state, now_ms, version=version)  # its markers have the same epoch as its records
        if transaction.is_exhausted:
            return transaction.to(
                state, now_ms, producer_epoch=LAST_EPOCH, next_producer_id=take_id(), version=EPOCH_PER_TRANSACTION
            )
        return transaction.to(
            state,
            now_ms,
            producer_epoch=transaction.producer_epoch + 1,
            previous_producer_id=NO_PRODUCER,
            version=EPOCH_PER_TRANSACTION,
        )

    def complete(self, prepared: TransactionMetadata) -> CoordinatorResult[None]:
        """Completes a transaction whose markers are all written. Does nothing if the state has changed meanwhile."""
        if self.transactions.get(prepared.transactional_id) != prepared:
            return CoordinatorResult((), None)
        committed = prepared.state is TransactionState.PREPARE_COMMIT
        changes: dict[str, int] = {}
        if prepared.next_producer_id >= 0:
            changes = {
                "producer_id": prepared.next_producer_id,
                "producer_epoch": 0,
                "previous_producer_id": prepared.producer_id,
                "next_producer_id": NO_PRODUCER,
            }
        completed = prepared.to(
            TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
            self._now(),
            partitions=frozenset(),
            **changes,
        )
        return CoordinatorResult([transaction_record(completed)], None)

    def _when_written(self, prepared: list[TransactionMetadata]) -> CommitCallback:
        def send(error: KafkaError | None) -> None:
            if error is None:
                for transaction in prepared:
                    self._send_markers(self._context.partition, transaction)
            elif not isinstance(error, NotCoordinatorError):
                # The record may still be in the log and be replicated later; then the decision is valid. Try again.
                self._context.schedule(
                    (_MARKERS, prepared[0].transactional_id), _RETRY_MS, lambda: self._send_again(prepared)
                )

        return send

    def _send_again(self, prepared: list[TransactionMetadata]) -> CoordinatorResult[None]:
        unchanged = [
            transaction
            for transaction in prepared
            if self.transactions.get(transaction.transactional_id) == transaction
        ]
        return CoordinatorResult((), None, self._when_written(unchanged) if unchanged else None)

    # ---- timeouts and expiration

    def _schedule(self) -> None:
        config = self._config()
        self._context.schedule(_TIMEOUTS, config.abort_interval_ms, self._abort_timed_out)
        self._context.schedule(_EXPIRY, config.remove_interval_ms, self._remove_expired)

    def _abort_timed_out(self) -> CoordinatorResult[None]:
        now_ms = self._now()
        timed_out = [transaction for transaction in self.transactions.values() if transaction.has_timed_out(now_ms)]
        delay_ms = self._config().abort_interval_ms if len(timed_out) <= _MAX_TRANSACTIONS_PER_BATCH else 1
        self._context.schedule(_TIMEOUTS, delay_ms, self._abort_timed_out)
        del timed_out[_MAX_TRANSACTIONS_PER_BATCH:]
        for transaction in timed_out:
            _logger.info(
                "Aborting the transaction of transactional id %r: it exceeded its timeout of %d ms",
                transaction.transactional_id,
                transaction.timeout_ms,
            )
        aborted = [self._abort_fenced(transaction) for transaction in timed_out]
        on_completion = self._when_written(aborted) if aborted else None
        return CoordinatorResult([transaction_record(transaction) for transaction in aborted], None, on_completion)

    def _abort_fenced(self, transaction: TransactionMetadata) -> TransactionMetadata:
        """Returns the prepared abort of a transaction, with a newer epoch that fences its producer.

        Its version is 0: the producer did not request this abort, so a later EndTxn of it must not count as a retry.
        """
        return transaction.to(
            TransactionState.PREPARE_ABORT, self._now(), producer_epoch=transaction.producer_epoch + 1, version=0
        )

    def _remove_expired(self) -> CoordinatorResult[None]:
        config = self._config()
        oldest_ms = self._now() - config.id_expiration_ms
        unused = [
            transaction.transactional_id
            for transaction in self.transactions.values()
            if transaction.updated_ms <= oldest_ms
            and (transaction.state is TransactionState.EMPTY or transaction.state.is_complete)
        ]
        delay_ms = config.remove_interval_ms if len(unused) <= _MAX_TRANSACTIONS_PER_BATCH else 1
        self._context.schedule(_EXPIRY, delay_ms, self._remove_expired)
        del unused[_MAX_TRANSACTIONS_PER_BATCH:]
        for transactional_id in unused:
            _logger.info("Removing transactional id %r: unused for transactional.id.expiration.ms", transactional_id)
            self._bumped.pop(transactional_id, None)
        return CoordinatorResult([tombstone(transactional_id) for transactional_id in unused], None)

    # ---- lookup

    def _find(self, transactional_id: str, producer: ProducerInfo) -> TransactionMetadata:
        _check_id(transactional_id)
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.producer_id != producer.producer_id:
            raise _unknown(transactional_id)
        if transaction.producer_epoch != producer.producer_epoch:
            raise _fenced(transaction, producer.producer_epoch)
        return transaction

    def _now(self) -> int:
        return self._context.now_ms()


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise InvalidRequestError("transactional.id must not be empty")


def _producer_of(transaction: TransactionMetadata) -> ProducerInfo:
    return ProducerInfo(transaction.producer_id, transaction.producer_epoch)


def _was_bumped_from(transaction: TransactionMetadata, producer: ProducerInfo) -> bool:
    """Returns True if this EndTxn is a retry: the first one already gave the producer a new epoch."""
    if transaction.version < EPOCH_PER_TRANSACTION or not (
        transaction.state.is_prepared or transaction.state.is_complete
    ):
        return False
    if producer.producer_id == transaction.producer_id:
        return producer.producer_epoch == transaction.producer_epoch - 1
    return (
        producer.producer_id == transaction.previous_producer_id
        and producer.producer_epoch == LAST_EPOCH - 1
        and transaction.producer_epoch == 0
    )


def _unknown(transactional_id: str) -> KafkaError:
    return InvalidProducerIdMappingError(
        f"The producer id is not the current one of transactional id {transactional_id!r}."
    )


def _fenced(transaction: TransactionMetadata, epoch: int) -> KafkaError:
    return ProducerFencedError(
        f"Producer of transactional id {transaction.transactional_id!r} sent epoch {epoch}, but the current epoch of "
        f"producer id {transaction.producer_id} is {transaction.producer_epoch}."
    )


def _concurrent(transaction: TransactionMetadata) -> KafkaError:
    return ConcurrentTransactionsError(
        f"The previous transaction of {transaction.transactional_id!r} is still completing: {transaction.state.label}."
    )
