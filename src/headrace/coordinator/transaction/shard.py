"""The transactions of one partition of `__transaction_state`: a synchronous state machine.

    InitProducerId   gives an id and an epoch of its own to a producer; whoever had an older epoch is fenced
    AddPartitions    begins a transaction, or widens it
    End              prepares its end ──► (written) ──► markers to all its partitions ──► (all written) ──► complete

What was prepared is decided. Markers are sent when the record that says so is committed, and again after each load, so
a crash between any two steps only repeats some of them; a marker that a partition has twice changes nothing there.

Transactions that take longer than they may are aborted with a newer epoch, which fences their producer. Ids that
nobody has used for long are forgotten.
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
"""Writes the markers of a prepared transaction of a partition, and then has it completed."""
TakeId = Callable[[], int]
"""A new producer id; raises NeedsProducerId if none is at hand."""

_TIMEOUTS, _EXPIRY, _MARKERS = "timeouts", "expiry", "markers"
"""What timers are for."""
_RETRY_MS = 1000
_MOST_AT_ONCE = 500
"""Transactions that one batch is about, so that it does not become too large."""


class NeedsProducerId(CoordinatorLoadInProgressError):
    """The operation is to be repeated when there are producer ids."""


class TransactionCoordinatorShard:
    """`transactions` is changed by `replay` alone."""

    def __init__(self, context: ShardContext, config: Callable[[], TransactionConfig], send_markers: SendMarkers):
        self.transactions: dict[str, TransactionMetadata] = {}
        self._context = context
        self._config = config
        self._send_markers = send_markers
        self._bumped: dict[str, tuple[ProducerInfo, ProducerInfo]] = {}
        """The last newer epoch that a producer was given for the one that it had, as it asked for it or ended a
        transaction: from, and to. Its reply may be lost and asked for again; after a crash it is fenced instead."""

    # ---- replaying

    def replay(self, record: Record, producer: ProducerInfo | None) -> None:  # noqa: ARG002 - never in a transaction
        transactional_id = decode_key(record.key or b"")
        if transactional_id is None:
            _logger.warning("a record of an unknown kind in %s is passed over", self._context.index)
        elif record.value is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = decode_transaction(transactional_id, record.value)

    def replay_end(self, producer: ProducerInfo, committed: bool) -> None:
        """Nothing here is written in a transaction."""

    def on_loaded(self) -> None:
        self._schedule()
        for transaction in list(self.transactions.values()):
            if transaction.state.is_prepared:
                self._send_markers(self._context.index, transaction)

    def on_unloaded(self) -> None:
        """Timers are cancelled by the runtime; who sends markers finds out when he wants to complete."""

    # ---- producers

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerInfo | None, take_id: TakeId
    ) -> CoordinatorResult[ProducerInfo | None]:
        """Id and epoch for a producer. With `expected` it asks for a newer epoch than the one that it has.

        None if its transaction had to be aborted first: it is to ask again.
        """
        _check_id(transactional_id)
        longest_ms = self._config().max_timeout_ms
        if not 0 < timeout_ms <= longest_ms:
            raise InvalidTransactionTimeoutError(
                f"a transaction timeout of {timeout_ms} ms; transaction.max.timeout.ms is {longest_ms}"
            )
        known = self.transactions.get(transactional_id)
        if known is None:
            return self._begin(TransactionMetadata(transactional_id, take_id(), 0, timeout_ms, updated_ms=self._now()))
        if expected is not None and expected.producer_id not in (known.producer_id, known.previous_producer_id):
            raise ProducerFencedError(f"{transactional_id!r} belongs to producer {known.producer_id} now")
        if known.state.is_prepared:
            raise _concurrent(known)
        current = _producer_of(known)
        if known.state is TransactionState.ONGOING:
            if expected is not None and expected != current:
                raise _fenced(known, expected.producer_epoch)
            aborted = self._abort_fenced(known)
            if expected is not None:
                self._bumped[transactional_id] = (expected, _producer_of(aborted))
            return CoordinatorResult([transaction_record(aborted)], None, self._when_written([aborted]))
        if expected is not None and expected != current:
            if self._bumped.get(transactional_id) != (expected, current):
                raise _fenced(known, expected.producer_epoch)
            if known.producer_epoch < LAST_EPOCH:
                return self._begin(self._emptied(known, timeout_ms), expected)  # asked for again
        if known.is_exhausted:
            changes = {"producer_id": take_id(), "producer_epoch": 0, "previous_producer_id": known.producer_id}
        else:
            changes = {"producer_epoch": known.producer_epoch + 1, "previous_producer_id": NO_PRODUCER}
        return self._begin(self._emptied(known, timeout_ms, **changes), expected)

    def _emptied(self, known: TransactionMetadata, timeout_ms: int, **changes: int) -> TransactionMetadata:
        return known.to(
            TransactionState.EMPTY,
            self._now(),
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=-1,
            next_producer_id=NO_PRODUCER,
            **changes,
        )

    def _begin(
        self, transaction: TransactionMetadata, had: ProducerInfo | None = None
    ) -> CoordinatorResult[ProducerInfo | None]:
        given = _producer_of(transaction)
        if had is None:
            self._bumped.pop(transaction.transactional_id, None)
        elif had != given:
            self._bumped[transaction.transactional_id] = (had, given)
        return CoordinatorResult([transaction_record(transaction)], given)

    # ---- partitions

    def add_partitions(
        self, transactional_id: str, producer: ProducerInfo, partitions: Collection[TopicPartition], version: int = 0
    ) -> CoordinatorResult[None]:
        known = self._find(transactional_id, producer)
        if known.state.is_prepared:
            raise _concurrent(known)
        ongoing = known.state is TransactionState.ONGOING
        if ongoing and known.partitions.issuperset(partitions):
            return CoordinatorResult((), None)
        now_ms = self._now()
        added = known.to(
            TransactionState.ONGOING,
            now_ms,
            partitions=known.partitions.union(partitions) if ongoing else frozenset(partitions),
            start_ms=known.start_ms if ongoing else now_ms,
            version=version,
        )
        return CoordinatorResult([transaction_record(added)], None)

    def verify(
        self, transactional_id: str, producer: ProducerInfo, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, bool]:
        """Whether partitions belong to the producer's open transaction (KIP-890)."""
        known = self._find(transactional_id, producer)
        if known.state.is_prepared:
            raise _concurrent(known)
        ongoing = known.state is TransactionState.ONGOING
        return {tp: ongoing and tp in known.partitions for tp in partitions}

    # ---- the end

    def end(
        self, transactional_id: str, producer: ProducerInfo, commit: bool, version: int, take_id: TakeId
    ) -> CoordinatorResult[ProducerInfo]:
        """Commits or aborts. Answered with the producer's id and epoch from now on when the decision is written."""
        _check_id(transactional_id)
        known = self.transactions.get(transactional_id)
        if known is None:
            raise _unknown(transactional_id)
        prepared = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        complete = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        own_epochs = version >= EPOCH_PER_TRANSACTION
        repeated = own_epochs and _was_bumped_from(known, producer)
        if not repeated:
            self._find(transactional_id, producer)
        if known.state is prepared:
            raise _concurrent(known)
        if known.state is complete and (repeated or not own_epochs):
            return CoordinatorResult((), _producer_of(known))
        if known.state is not TransactionState.ONGOING and (
            commit or repeated or not own_epochs or known.state.is_prepared
        ):
            raise InvalidTxnStateError(
                f"the transaction of {transactional_id!r} is {known.state.label} and cannot be "
                f"{'committed' if commit else 'aborted'}"
            )
        ended = self._prepare(known, prepared, version, take_id)
        reply = _producer_of(ended) if ended.next_producer_id < 0 else ProducerInfo(ended.next_producer_id, 0)
        if reply != producer:
            self._bumped[transactional_id] = (producer, reply)
        return CoordinatorResult([transaction_record(ended)], reply, self._when_written([ended]))

    def _prepare(
        self, known: TransactionMetadata, state: TransactionState, version: int, take_id: TakeId
    ) -> TransactionMetadata:
        now_ms = self._now()
        if version < EPOCH_PER_TRANSACTION:
            return known.to(state, now_ms, version=version)  # its markers have the epoch that it has written with
        if known.is_exhausted:
            return known.to(
                state, now_ms, producer_epoch=LAST_EPOCH, next_producer_id=take_id(), version=EPOCH_PER_TRANSACTION
            )
        return known.to(
            state,
            now_ms,
            producer_epoch=known.producer_epoch + 1,
            previous_producer_id=NO_PRODUCER,
            version=EPOCH_PER_TRANSACTION,
        )

    def complete(self, prepared: TransactionMetadata) -> CoordinatorResult[None]:
        """All partitions have their markers. Does nothing if the transaction is another by now."""
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
        done = prepared.to(
            TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
            self._now(),
            partitions=frozenset(),
            **changes,
        )
        return CoordinatorResult([transaction_record(done)], None)

    def _when_written(self, prepared: list[TransactionMetadata]) -> CommitCallback:
        def send(error: KafkaError | None) -> None:
            if error is None:
                for transaction in prepared:
                    self._send_markers(self._context.index, transaction)
            elif not isinstance(error, NotCoordinatorError):
                # The record may be in the log all the same, to be replicated later: then it is the decision.
                self._context.schedule(
                    (_MARKERS, prepared[0].transactional_id), _RETRY_MS, lambda: self._send_again(prepared)
                )

        return send

    def _send_again(self, prepared: list[TransactionMetadata]) -> CoordinatorResult[None]:
        still = [each for each in prepared if self.transactions.get(each.transactional_id) == each]
        return CoordinatorResult((), None, self._when_written(still) if still else None)

    # ---- time

    def _schedule(self) -> None:
        config = self._config()
        self._context.schedule(_TIMEOUTS, config.abort_interval_ms, self._abort_timed_out)
        self._context.schedule(_EXPIRY, config.remove_interval_ms, self._remove_expired)

    def _abort_timed_out(self) -> CoordinatorResult[None]:
        now_ms = self._now()
        late = [each for each in self.transactions.values() if each.has_timed_out(now_ms)]
        delay_ms = self._config().abort_interval_ms if len(late) <= _MOST_AT_ONCE else 1
        self._context.schedule(_TIMEOUTS, delay_ms, self._abort_timed_out)
        del late[_MOST_AT_ONCE:]
        for each in late:
            _logger.info("the transaction of %r took too long and is aborted", each.transactional_id)
        aborted = [self._abort_fenced(each) for each in late]
        after = self._when_written(aborted) if aborted else None
        return CoordinatorResult([transaction_record(each) for each in aborted], None, after)

    def _abort_fenced(self, known: TransactionMetadata) -> TransactionMetadata:
        """The abort of a transaction whose producer is not to write again with its epoch.

        Version 0: the producer did not ask for this end, and so must not be taken for one that asks again.
        """
        return known.to(TransactionState.PREPARE_ABORT, self._now(), producer_epoch=known.producer_epoch + 1, version=0)

    def _remove_expired(self) -> CoordinatorResult[None]:
        config = self._config()
        oldest_ms = self._now() - config.id_expiration_ms
        unused = [
            each.transactional_id
            for each in self.transactions.values()
            if each.updated_ms <= oldest_ms and (each.state is TransactionState.EMPTY or each.state.is_complete)
        ]
        delay_ms = config.remove_interval_ms if len(unused) <= _MOST_AT_ONCE else 1
        self._context.schedule(_EXPIRY, delay_ms, self._remove_expired)
        del unused[_MOST_AT_ONCE:]
        for transactional_id in unused:
            _logger.info("transactional id %r has not been used for long and is forgotten", transactional_id)
            self._bumped.pop(transactional_id, None)
        return CoordinatorResult([tombstone(transactional_id) for transactional_id in unused], None)

    # ---- looking

    def _find(self, transactional_id: str, producer: ProducerInfo) -> TransactionMetadata:
        _check_id(transactional_id)
        known = self.transactions.get(transactional_id)
        if known is None or known.producer_id != producer.producer_id:
            raise _unknown(transactional_id)
        if known.producer_epoch != producer.producer_epoch:
            raise _fenced(known, producer.producer_epoch)
        return known

    def _now(self) -> int:
        return self._context.now_ms()


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise InvalidRequestError("a transactional id cannot be empty")


def _producer_of(transaction: TransactionMetadata) -> ProducerInfo:
    return ProducerInfo(transaction.producer_id, transaction.producer_epoch)


def _was_bumped_from(known: TransactionMetadata, producer: ProducerInfo) -> bool:
    """Whether a producer's request to end its transaction, which gave it a new epoch, has come once before."""
    if known.version < EPOCH_PER_TRANSACTION or not (known.state.is_prepared or known.state.is_complete):
        return False
    if producer.producer_id == known.producer_id:
        return producer.producer_epoch == known.producer_epoch - 1
    return (
        producer.producer_id == known.previous_producer_id
        and producer.producer_epoch == LAST_EPOCH - 1
        and known.producer_epoch == 0
    )


def _unknown(transactional_id: str) -> KafkaError:
    return InvalidProducerIdMappingError(f"{transactional_id!r} does not belong to this producer id")


def _fenced(known: TransactionMetadata, epoch: int) -> KafkaError:
    return ProducerFencedError(
        f"{known.transactional_id!r} has epoch {known.producer_epoch} of producer {known.producer_id}, not {epoch}"
    )


def _concurrent(known: TransactionMetadata) -> KafkaError:
    return ConcurrentTransactionsError(
        f"the last transaction of {known.transactional_id!r} is still ending: {known.state.label}"
    )
