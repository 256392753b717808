"""Transactions: the states of a transactional producer (KIP-98, 360, 447, 890).

    UNINITIALIZED ─init─▶ INITIALIZING ─▶ READY ◀───────────────────────────────┐
          ▲                                │ │                                  │
          └───────init with an id──────────┘ │                                  │
                                           ┌─┘begin                             │
                                           ▼          commit                    │
                                     IN_TRANSACTION ─────────▶ COMMITTING ──────┤
                                           │ │     ▲ abort        │             │
                                     error │ └─────┼──────▶ ABORTING ───────────┘
                                           ▼       │          ▲   │
                                    ABORTABLE_ERROR ──────────┘   └─▶ INITIALIZING (a new epoch is needed)
    from all states ─▶ FATAL_ERROR, which is final

*Fatal* errors end the producer: another producer with its transactional ID fenced it, or it is not authorized to use
the ID. After *abortable* errors, the user aborts the transaction and begins a new one.

Transaction version 1 adds each partition at the coordinator before the first write (AddPartitionsToTxn). Version 2, in
clusters with the feature `transaction.version` 2, leaves that to the partition leaders (KIP-890). Each transaction then
ends with a new epoch, so that late batches of a transaction cannot get into the next one.

Belongs to the event loop, except for `maybe_add_partition` and `check_open`, which run in the threads that send.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from enum import Enum
from typing import Any, TypeVar

from headrace.client.arguments import AnyPartition, OffsetLike, to_offsets
from headrace.client.coordinators import CoordinatorType
from headrace.client.errors import IllegalStateError
from headrace.client.producer._batch import ProducerBatch
from headrace.client.producer.idempotence import IdempotenceManager, retry_until_done
from headrace.client.producer.network_client import NetworkClient
from headrace.client.producer.sender_loop import SenderLoop
from headrace.client.producer.sequences import NO_PRODUCER, ProducerIdAndEpoch
from headrace.client.producer.transaction_requests import TRANSACTION_VERSION_2, TransactionRequests
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata
from headrace.common.backoff import Backoff
from headrace.common.errors import (
    ClusterAuthorizationFailedError,
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from headrace.common.types import TopicPartition

__all__ = ["TransactionManager", "TransactionState"]

_logger = logging.getLogger(__name__)

T = TypeVar("T")

_PRODUCE_VERSION_2 = 12
_SEND_OFFSETS = "send_offsets_to_transaction"
_COMMIT, _ABORT = "commit_transaction", "abort_transaction"
_CONCURRENT_SECONDS = 0.02
"""The retry interval while the coordinator still completes the previous transaction."""


class TransactionState(Enum):
    """The state of a transactional producer."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "abortable error"
    FATAL_ERROR = "fatal error"


_S = TransactionState
_FROM: dict[TransactionState, tuple[TransactionState, ...]] = {
    _S.UNINITIALIZED: (_S.UNINITIALIZED, _S.READY),
    _S.INITIALIZING: (_S.UNINITIALIZED, _S.ABORTING),
    _S.READY: (_S.INITIALIZING, _S.COMMITTING, _S.ABORTING),
    _S.IN_TRANSACTION: (_S.READY,),
    _S.COMMITTING: (_S.IN_TRANSACTION,),
    _S.ABORTING: (_S.IN_TRANSACTION, _S.ABORTABLE_ERROR),
    _S.ABORTABLE_ERROR: (_S.IN_TRANSACTION, _S.COMMITTING, _S.ABORTABLE_ERROR),
    _S.FATAL_ERROR: tuple(_S),
}
"""The valid previous states of each state."""

_FATAL = (
    ProducerFencedError,
    TransactionalIdAuthorizationFailedError,
    ClusterAuthorizationFailedError,
    UnsupportedVersionError,
    UnsupportedForMessageFormatError,
)


class TransactionManager(IdempotenceManager):
    """The transactions of a producer: checks and changes states, and retries the requests to coordinators."""

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        network: NetworkClient,
        backoff: Backoff,
        sender_loop: SenderLoop,
        on_fatal_error: Callable[[BaseException], None],
        complete_batches: Callable[[bool], Awaitable[None]],
    ):
        """`complete_batches(drop_queued)` waits until no batch is left. With `drop_queued`, it fails queued batches
        first."""
        super().__init__(network, backoff, sender_loop, on_fatal_error, transactional=True)
        self.transactional_id: str = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.error: BaseException | None = None
        self.version = 1
        self._timeout_ms = timeout_ms
        self._complete_batches = complete_batches
        self._partitions: set[TopicPartition] = set()
        """Partitions that were added to the transaction."""
        self._new_partitions: dict[TopicPartition, None] = {}
        """Partitions to add to the transaction (version 1)."""
        self._add_partitions_task: asyncio.Task[None] | None = None
        self._is_started = False
        """True if the coordinator knows about the transaction, or may know."""
        self._needs_epoch_bump = False
        self._pending: tuple[str, asyncio.Task[Any]] | None = None

    @property
    def must_abort(self) -> bool:
        """True if the transaction can only be aborted."""
        return self.state is _S.ABORTABLE_ERROR

    @property
    def is_open(self) -> bool:
        """True if there is a transaction that can be aborted."""
        return self.state in (_S.IN_TRANSACTION, _S.ABORTABLE_ERROR)

    # ---- threads that send

    def check_open(self) -> None:
        """Raises an error unless a transaction is in progress."""
        if self.state is TransactionState.IN_TRANSACTION:
            return
        if self.error is not None:
            raise self._error_for_later_calls(self.error)
        raise IllegalStateError(
            f"Cannot send records while the transactional producer is in state {self.state.value!r}: call "
            "init_transactions() once, and begin_transaction() before sending"
        )

    def maybe_add_partition(self, tp: TopicPartition) -> None:
        self.check_open()
        if self.version >= TRANSACTION_VERSION_2:
            self._is_started = True
        elif tp not in self._partitions:
            self._new_partitions[tp] = None

    def _error_for_later_calls(self, error: BaseException) -> BaseException:
        """Returns the error to raise for calls after an error: of the same class, so that it is handled alike."""
        if not isinstance(error, KafkaError):
            return error
        state = "The producer failed with a fatal error" if error.fatal else "The transaction must be aborted"
        repeated = type(error)(f"{state}: {error}")
        repeated.fatal, repeated.abortable = error.fatal, error.abortable
        repeated.__cause__ = error
        return repeated

    # ---- the accumulator and the sender

    def prepare(self) -> None:
        for tp in self.sequences.resolve():
            self._require_abort(KafkaError(f"Records for partition {tp} may be missing after a failed batch"))
        if self._new_partitions and self._add_partitions_task is None and self._is_sending:
            self._add_partitions_task = self._sender_loop.create_task(self._add_partitions())

    @property
    def _is_sending(self) -> bool:
        """True while batches of the transaction may be sent."""
        return self.state in (_S.IN_TRANSACTION, _S.COMMITTING)

    def produce_versions(self) -> tuple[int | None, int | None]:
        return (_PRODUCE_VERSION_2, None) if self.version >= TRANSACTION_VERSION_2 else (None, _PRODUCE_VERSION_2 - 1)

    def may_drain(self, batch: ProducerBatch) -> bool:
        if not self._is_sending:
            return False
        if self.version < TRANSACTION_VERSION_2 and batch.tp not in self._partitions:
            return False
        return self.sequences.may_drain(batch)

    def handle_failed_batch(self, batch: ProducerBatch, error: BaseException) -> None:
        self.sequences.handle_failed_batch(batch)
        if self._is_sending:
            if isinstance(error, _FATAL):
                self.fail(error)
            else:
                self._require_abort(error)
        elif batch.has_sequence:
            self._needs_epoch_bump = True

    def may_retry(self) -> bool:
        return self._is_sending

    def reset_sequence(self, tp: TopicPartition) -> bool:  # noqa: ARG002
        return False

    def record_failed(self, error: BaseException) -> None:
        """Requires an abort because `send` returned a failed future: the transaction would lack that record."""
        if self.state is _S.IN_TRANSACTION:
            self._require_abort(error)

    def _require_abort(self, error: BaseException) -> None:
        if self._is_sending:
            if isinstance(error, KafkaError):
                error.abortable = True
            self._needs_epoch_bump = True
            self.error = error
            self._enter(_S.ABORTABLE_ERROR)
            _logger.info("Transactional ID %s: the transaction must be aborted: %r", self.transactional_id, error)
            self._sender_loop.wake()

    def fail(self, error: BaseException) -> None:
        """Enters FATAL_ERROR: the producer cannot continue."""
        if self.state is _S.FATAL_ERROR:
            return
        if isinstance(error, KafkaError):
            error.fatal = True
        self.error = error
        self._enter(_S.FATAL_ERROR)
        self._on_fatal_error(error)

    def _fail(self, error: KafkaError) -> KafkaError:
        error = _to_fenced_error(error)
        self.fail(error)
        return error

    def _enter(self, state: TransactionState) -> None:
        if self.state not in _FROM[state]:
            raise IllegalStateError(
                f"Invalid transition of transactional ID {self.transactional_id!r} from state {self.state.value!r} to "
                f"{state.value!r}"
            )
        _logger.debug(
            "Transactional ID %s: transition from %s to %s", self.transactional_id, self.state.value, state.value
        )
        self.state = state

    # ---- the user

    async def init(self, transactional_id: str | None = None) -> None:
        """Gets the producer ID and epoch, which fences other producers with the transactional ID and completes their
        transactions. With the argument `transactional_id`, the producer continues with that ID. This is possible only
        between transactions."""
        if transactional_id is not None and self._pending is None:
            self._expect("init_transactions", (_S.UNINITIALIZED, _S.READY))
            self.transactional_id = transactional_id
            self._enter(_S.UNINITIALIZED)
        await self._operation("init_transactions", (_S.UNINITIALIZED,), self._init)

    def begin(self) -> None:
        """Begins a transaction. This sends no request."""
        self._expect("begin_transaction", (_S.READY,))
        self._pending = None
        self._enter(_S.IN_TRANSACTION)

    async def send_offsets(
        self, offsets: Mapping[AnyPartition, OffsetLike], group: ConsumerGroupMetadata | str
    ) -> None:
        """Adds offsets of a consumer group to the transaction (KIP-447)."""
        if not offsets:
            self._expect(_SEND_OFFSETS, (_S.IN_TRANSACTION,))
            return
        metadata = ConsumerGroupMetadata(group) if isinstance(group, str) else group
        if not hasattr(metadata, "group_id"):
            raise TypeError(
                f"group_metadata must be consumer.group_metadata() or a group ID (str), not {type(group).__name__}"
            )
        to_commit = to_offsets(offsets)
        await self._operation(_SEND_OFFSETS, (_S.IN_TRANSACTION,), lambda: self._send_offsets(to_commit, metadata))

    async def commit(self) -> None:
        """Commits the transaction. Returns when all its records and the commit are written."""
        await self._operation(_COMMIT, (_S.IN_TRANSACTION,), self._commit)

    async def abort(self) -> None:
        """Aborts the transaction."""
        if self._pending is not None and self._pending[0] == _SEND_OFFSETS:
            await asyncio.wait([self._pending[1]])  # the caller timed out; late offsets would belong to no transaction
        await self._operation(_ABORT, (_S.IN_TRANSACTION, _S.ABORTABLE_ERROR), self._abort)

    async def close(self) -> None:
        """Completes a commit or abort whose caller timed out. Aborts the transaction if it is still open afterwards."""
        if self._pending is not None and self._pending[0] in (_COMMIT, _ABORT):
            await asyncio.wait([self._pending[1]])
        if self.is_open:
            await self.abort()

    def _expect(self, method: str, states: tuple[TransactionState, ...]) -> None:
        if self.error is not None and self.state not in states:
            raise self._error_for_later_calls(self.error)
        if self.state not in states:
            raise IllegalStateError(
                f"Cannot call {method}() while the transactional producer is in state {self.state.value!r}: expected "
                + " or ".join(repr(state.value) for state in states)
            )

    async def _operation(
        self, method: str, states: tuple[TransactionState, ...], run: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Runs one operation at a time. A caller that timed out may call again to wait for the same operation."""
        if self._pending is not None and self._pending[0] != method:
            if not self._pending[1].done():
                raise IllegalStateError(
                    f"Cannot call {method}() while {self._pending[0]}() is in progress: call that again first"
                )
            self._pending = None
        if self._pending is not None and method == _SEND_OFFSETS:
            # These may be other offsets: they are sent after the ones in progress.
            await asyncio.wait([self._pending[1]])
            self._pending = None
        if self._pending is None:
            self._pending = method, self._sender_loop.create_task(self._run(method, states, run))
        task = self._pending[1]
        await asyncio.wait([task])
        self._pending = None
        task.result()

    async def _run(
        self, method: str, states: tuple[TransactionState, ...], run: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._expect(method, states)  # in the step that starts it: an error may have occurred since the call
        await run()

    # ---- the operations

    async def _init(self) -> None:
        self._enter(_S.INITIALIZING)
        await self._init_epoch(NO_PRODUCER)

    async def _init_epoch(self, current: ProducerIdAndEpoch) -> None:
        """Gets a new epoch, and with NO_PRODUCER the producer ID, from the transaction coordinator."""
        requests = TransactionRequests(self._network, self.transactional_id, current, self.version)
        try:
            identity = await self._retry(lambda: requests.init_producer_id(self._timeout_ms))
            self.version = min(await self._network.transaction_version(self.transactional_id), TRANSACTION_VERSION_2)
        except KafkaError as error:
            raise self._fail(error) from None
        self.sequences.set_identity(identity)
        self._needs_epoch_bump = False
        self.error = None
        self._enter(_S.READY)

    def _requests(self) -> TransactionRequests:
        return TransactionRequests(self._network, self.transactional_id, self.sequences.identity, self.version)

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeats a request to the transaction coordinator until it succeeds or fails for good."""

        async def wait_for_previous_transaction() -> T:
            while True:
                try:
                    return await attempt()
                except ConcurrentTransactionsError:
                    await self._network.sleep(_CONCURRENT_SECONDS)

        coordinator = (CoordinatorType.TRANSACTION, self.transactional_id)
        return await retry_until_done(self._network, self._backoff, wait_for_previous_transaction, coordinator)

    async def _add_partitions(self) -> None:
        """Version 1: adds the new partitions at the coordinator, before batches are sent to them."""
        try:
            while self._new_partitions and self._is_sending:
                partitions, self._new_partitions = self._new_partitions, {}
                self._is_started = True
                await self._retry(functools.partial(self._requests().add_partitions, partitions))
                self._partitions.update(partitions)
                self._sender_loop.wake()
        except KafkaError as error:
            self._handle_coordinator_error(error)
        finally:
            self._add_partitions_task = None
        self._sender_loop.wake()

    def _handle_coordinator_error(self, error: KafkaError) -> KafkaError:
        """Fails the producer or requires an abort after a non-retriable error. Returns the error to raise."""
        error = _to_fenced_error(error)
        if isinstance(error, (InvalidTxnStateError, InvalidProducerIdMappingError, *_FATAL)):
            self.fail(error)
        else:
            self._require_abort(error)
        return error

    async def _send_offsets(
        self, uncommitted: dict[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        requests = self._requests()
        self._is_started = True
        try:
            if self.version < TRANSACTION_VERSION_2:
                await self._retry(lambda: requests.add_offsets(group.group_id))
            await retry_until_done(
                self._network,
                self._backoff,
                lambda: requests.commit_offsets(uncommitted, group),
                (CoordinatorType.GROUP, group.group_id),
            )
        except KafkaError as error:
            raise self._handle_coordinator_error(error) from None

    async def _commit(self) -> None:
        self._enter(_S.COMMITTING)
        await self._complete_batches(False)
        if self.state is not _S.COMMITTING:
            assert self.error is not None
            raise self._error_for_later_calls(self.error)
        await self._end_transaction(committed=True)
        self._enter(_S.READY)

    async def _abort(self) -> None:
        self._enter(_S.ABORTING)
        self._new_partitions.clear()
        await self._complete_batches(True)
        if self._add_partitions_task is not None:
            await asyncio.wait([self._add_partitions_task])
        if self.state is not _S.ABORTING:
            assert self.error is not None
            raise self._error_for_later_calls(self.error)
        if isinstance(self.error, InvalidProducerIdMappingError):
            self._is_started = False
        await self._end_transaction(committed=False)
        if self._needs_epoch_bump and self.version < TRANSACTION_VERSION_2:
            self._enter(_S.INITIALIZING)
            await self._init_epoch(self.sequences.identity)
        else:
            self._needs_epoch_bump = False
            self.error = None
            self._enter(_S.READY)

    async def _end_transaction(self, committed: bool) -> None:
        """Sends EndTxn, if the coordinator knows about the transaction."""
        started, self._is_started = self._is_started, False
        self._partitions.clear()
        self._new_partitions.clear()
        if not started:
            return
        requests = self._requests()
        try:
            next_epoch = await self._retry(lambda: requests.end(committed))
        except TransactionAbortableError as error:
            self._is_started = True
            self._require_abort(error)
            raise
        except KafkaError as error:
            raise self._fail(error) from None
        if next_epoch is not None and next_epoch.is_valid:
            self.sequences.set_identity(next_epoch)


def _to_fenced_error(error: KafkaError) -> KafkaError:
    """Coordinators report an old epoch with either of two errors (KIP-588). Returns ProducerFencedError for both."""
    if isinstance(error, InvalidProducerEpochError):
        return ProducerFencedError(
            "There is a newer producer with the same transactionalId, or the transaction took longer than "
            "transaction.timeout.ms"
        )
    return error
