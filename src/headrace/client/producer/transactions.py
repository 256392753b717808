"""Transactions: the states of a transactional producer, and its requests to the coordinators (KIP-98, 360, 447, 890).

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
    from everywhere ─▶ FATAL_ERROR, which nothing leads out of

Errors are told apart: *fatal* ones end the producer (it was fenced by another one of its transactional id, or may not
use it); *abortable* ones spoil the transaction, which the user aborts and begins again.

Version 1 of transactions tells the coordinator each partition before it writes there (AddPartitionsToTxn). Version 2,
where the cluster has the feature `transaction.version` 2, leaves that to the leaders, and each transaction ends with a
new epoch, so that nothing late of an old one can get into the next.

Owned by the loop, but for `admit` and `check_open`, which the threads that send call.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from enum import Enum
from typing import Any

from headrace.client.coordinators import CoordinatorType
from headrace.client.errors import CommitFailedError, IllegalStateError, check, error_for
from headrace.client.producer._batch import ProducerBatch
from headrace.client.producer.idempotence import Calls, Idempotence, persist
from headrace.client.producer.sequences import NO_PRODUCER, ProducerIdentity
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata
from headrace.common.backoff import Backoff
from headrace.common.errors import (
    ClusterAuthorizationFailedError,
    ConcurrentTransactionsError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    NotCoordinatorError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from headrace.common.types import TopicPartition
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

__all__ = ["TransactionManager", "TransactionState"]

_logger = logging.getLogger(__name__)

_VERSION_2 = 2
_PRODUCE_VERSION_2 = 12
_ADD_PARTITIONS_LAST = 3
"""Later versions of AddPartitionsToTxn are for brokers."""
_ADD_OFFSETS_LAST = 3
_END_TXN_VERSION_2 = 5
_OFFSET_COMMIT_VERSION_2 = 5
_OFFSET_COMMIT_WITH_MEMBER = 3
_SEND_OFFSETS = "send_offsets_to_transaction"
_CONCURRENT_SECONDS = 0.02
"""How soon the coordinator is asked again that is still busy with the transaction before."""


class TransactionState(Enum):
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
"""The states that each may be entered from."""

_FATAL = (
    ProducerFencedError,
    TransactionalIdAuthorizationFailedError,
    ClusterAuthorizationFailedError,
    UnsupportedVersionError,
    UnsupportedForMessageFormatError,
)

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]


class TransactionManager(Idempotence):
    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        calls: Calls,
        backoff: Backoff,
        start: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        wake: Callable[[], None],
        on_fatal: Callable[[BaseException], None],
        settle: Callable[[bool], Awaitable[None]],
    ):
        """`settle(drop)` returns when all batches are done; with `drop` those that were not sent are failed first."""
        super().__init__(calls, backoff, start, wake, on_fatal, transactional=True)
        self.transactional_id: str = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.error: BaseException | None = None
        self.version = 1
        self._timeout_ms = timeout_ms
        self._settle = settle
        self._partitions: set[TopicPartition] = set()
        """That the transaction has."""
        self._new: dict[TopicPartition, None] = {}
        """That it is to get (version 1)."""
        self._adding: asyncio.Task[None] | None = None
        self._is_started = False
        """Whether the coordinator knows of the transaction, or may."""
        self._needs_epoch = False
        self._pending: tuple[str, asyncio.Task[Any]] | None = None

    @property
    def is_spoilt(self) -> bool:
        """Whether nothing of the transaction is worth sending any more."""
        return self.state is _S.ABORTABLE_ERROR

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that can be aborted."""
        return self.state in (_S.IN_TRANSACTION, _S.ABORTABLE_ERROR)

    # ---- threads that send

    def check_open(self) -> None:
        """Raises what keeps records from being sent now."""
        if self.state is TransactionState.IN_TRANSACTION:
            return
        if self.error is not None:
            raise self._again(self.error)
        raise IllegalStateError(
            f"records are sent within a transaction, and this producer's state is {self.state.value!r}: "
            "expected init_transactions() once and begin_transaction() before"
        )

    def admit(self, tp: TopicPartition) -> None:
        """A batch is opened for a partition."""
        self.check_open()
        if self.version >= _VERSION_2:
            self._is_started = True
        elif tp not in self._partitions:
            self._new[tp] = None

    def _again(self, error: BaseException) -> BaseException:
        """The error to raise for what happens after one: of the same class, so that it can be handled alike."""
        if not isinstance(error, KafkaError):
            return error
        after = "this producer cannot be used any more" if error.fatal else "the transaction must be aborted"
        made = type(error)(f"{after}: {error}")
        made.fatal, made.abortable = error.fatal, error.abortable
        made.__cause__ = error
        return made

    # ---- the sender's

    def prepare(self) -> None:
        for tp in self.sequences.resolve():
            self._spoil(KafkaError(f"records for {tp} may be missing"))
        if self._new and self._adding is None and self.state in (_S.IN_TRANSACTION, _S.COMMITTING):
            self._adding = self._start(self._add_partitions())

    def versions(self) -> tuple[int | None, int | None]:
        return (_PRODUCE_VERSION_2, None) if self.version >= _VERSION_2 else (None, _PRODUCE_VERSION_2 - 1)

    def may_drain(self, batch: ProducerBatch) -> bool:
        if self.state not in (_S.IN_TRANSACTION, _S.COMMITTING):
            return False
        if self.version < _VERSION_2 and batch.tp not in self._partitions:
            return False
        return self.sequences.may_drain(batch)

    def failed(self, batch: ProducerBatch, error: BaseException, known_unwritten: bool) -> None:
        self.sequences.failed(batch, known_unwritten)
        if self.state in (_S.IN_TRANSACTION, _S.COMMITTING):
            self._judge(error)
        elif batch.has_sequence and not known_unwritten:
            self._needs_epoch = True

    def may_retry(self) -> bool:
        return self.state in (_S.IN_TRANSACTION, _S.COMMITTING)

    def lost_sequence(self, tp: TopicPartition) -> bool:  # noqa: ARG002
        return False

    def _judge(self, error: BaseException) -> None:
        """An error that spoils the transaction, or everything."""
        if isinstance(error, _FATAL):
            self.fail(error)
        else:
            self._spoil(error)

    def refused(self, error: BaseException) -> None:
        """A record was not taken, and only its future tells: without it the transaction is not whole."""
        if self.state is _S.IN_TRANSACTION:
            self._spoil(error)

    def _spoil(self, error: BaseException) -> None:
        if self.state in (_S.IN_TRANSACTION, _S.COMMITTING):
            if isinstance(error, KafkaError):
                error.abortable = True
            self._needs_epoch = True
            self.error = error
            self._enter(_S.ABORTABLE_ERROR)
            _logger.info("the transaction of %r must be aborted: %r", self.transactional_id, error)
            self._wake()

    def fail(self, error: BaseException) -> None:
        """The end of this producer."""
        if self.state is _S.FATAL_ERROR:
            return
        if isinstance(error, KafkaError):
            error.fatal = True
        self.error = error
        self._enter(_S.FATAL_ERROR)
        self._on_fatal(error)

    def _fail(self, error: KafkaError) -> KafkaError:
        error = _fenced(error)
        self.fail(error)
        return error

    def _enter(self, state: TransactionState) -> None:
        if self.state not in _FROM[state]:
            raise IllegalStateError(
                f"a transactional producer does not go from {self.state.value!r} to {state.value!r}"
            )
        _logger.debug("%s: %s to %s", self.transactional_id, self.state.value, state.value)
        self.state = state

    # ---- the user's

    async def init(self, transactional_id: str | None = None) -> None:
        """Gets the identity, which fences other producers of this transactional id and ends what they left open. With
        another id, the producer goes on under that one; between transactions it may."""
        if transactional_id is not None and self._pending is None:
            self._expect("init_transactions", (_S.UNINITIALIZED, _S.READY))
            self.transactional_id = transactional_id
            self._enter(_S.UNINITIALIZED)
        await self._operation("init_transactions", (_S.UNINITIALIZED,), self._init)

    def begin(self) -> None:
        self._expect("begin_transaction", (_S.READY,))
        self._pending = None
        self._enter(_S.IN_TRANSACTION)

    async def send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata | str) -> None:
        """Makes offsets of a consumer group part of the transaction (KIP-447)."""
        if not offsets:
            self._expect(_SEND_OFFSETS, (_S.IN_TRANSACTION,))
            return
        metadata = ConsumerGroupMetadata(group) if isinstance(group, str) else group
        if not hasattr(metadata, "group_id"):
            raise TypeError(f"a group is consumer.group_metadata() or its id, a str, not {type(group).__name__}")
        given = {tp: _as_offset(tp, value) for tp, value in offsets.items()}
        await self._operation(_SEND_OFFSETS, (_S.IN_TRANSACTION,), lambda: self._send_offsets(given, metadata))

    async def commit(self) -> None:
        """Returns when the decision is written; all records of the transaction are then."""
        await self._operation("commit_transaction", (_S.IN_TRANSACTION,), self._commit)

    async def abort(self) -> None:
        if self._pending is not None and self._pending[0] == "send_offsets_to_transaction":
            await asyncio.wait([self._pending[1]])  # the caller gave up; offsets that come late belong to nothing
        await self._operation("abort_transaction", (_S.IN_TRANSACTION, _S.ABORTABLE_ERROR), self._abort)

    def _expect(self, what: str, states: tuple[TransactionState, ...]) -> None:
        if self.error is not None and self.state not in states:
            raise self._again(self.error)
        if self.state not in states:
            raise IllegalStateError(
                f"{what}() does not fit a producer whose state is {self.state.value!r}: expected "
                + " or ".join(repr(state.value) for state in states)
            )

    async def _operation(
        self, what: str, states: tuple[TransactionState, ...], run: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Runs one at a time. A caller that gave up waiting may call again, and waits for the same one then."""
        if self._pending is not None and self._pending[0] != what:
            if not self._pending[1].done():
                raise IllegalStateError(
                    f"{self._pending[0]}() is still under way: expected it to be called again first"
                )
            self._pending = None
        if self._pending is not None and what == _SEND_OFFSETS:
            # These may be other offsets: they follow those that are still under way.
            await asyncio.wait([self._pending[1]])
            self._pending = None
        if self._pending is None:
            self._pending = what, self._start(self._run(what, states, run))
        task = self._pending[1]
        await asyncio.wait([task])
        self._pending = None
        task.result()

    async def _run(
        self, what: str, states: tuple[TransactionState, ...], run: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._expect(what, states)  # here, in the step in which it begins: an error may have come since it was called
        await run()

    # ---- requests

    async def _init(self) -> None:
        self._enter(_S.INITIALIZING)
        await self._ask_epoch(NO_PRODUCER)

    async def _ask_epoch(self, current: ProducerIdentity) -> None:
        async def attempt() -> ProducerIdentity:
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=current.producer_id,
                producer_epoch=current.epoch,
            )
            reply = await self._ask(request, 3 if current.is_valid else None, 5)
            check(reply.error_code)
            return ProducerIdentity(reply.producer_id, reply.producer_epoch)

        try:
            identity = await self._persist(attempt)
            self.version = min(await self._calls.transaction_version(self.transactional_id), _VERSION_2)
        except KafkaError as error:
            raise self._fail(error) from None
        self.sequences.set_identity(identity)
        self._needs_epoch = False
        self.error = None
        self._enter(_S.READY)

    async def _ask(self, request: Any, min_version: int | None = None, max_version: int | None = None) -> Any:
        return await self._calls.coordinator(
            CoordinatorType.TRANSACTION, self.transactional_id, request, min_version, max_version
        )

    async def _persist(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        async def quick() -> Any:
            while True:
                try:
                    return await attempt()
                except ConcurrentTransactionsError:
                    await self._calls.sleep(_CONCURRENT_SECONDS)

        return await persist(self._calls, self._backoff, quick, (CoordinatorType.TRANSACTION, self.transactional_id))

    async def _add_partitions(self) -> None:
        """Version 1: the coordinator must know of a partition before it is written to."""
        try:
            while self._new and self.state in (_S.IN_TRANSACTION, _S.COMMITTING):
                adding, self._new = self._new, {}
                await self._persist(lambda adding=adding: self._add_once(adding))  # type: ignore[misc]
                self._partitions.update(adding)
                self._wake()
        except KafkaError as error:
            self._judge_reply(error)
        finally:
            self._adding = None
        self._wake()

    async def _add_once(self, partitions: dict[TopicPartition, None]) -> None:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, AddPartitionsToTxnTopic(name=tp.topic)).partitions.append(tp.partition)
        self._is_started = True
        identity = self.sequences.identity
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=list(topics.values()),
        )
        reply = await self._ask(request, None, _ADD_PARTITIONS_LAST)
        errors = [
            error
            for topic in reply.results_by_topic_v3_and_below
            for result in topic.results_by_partition
            if (error := error_for(result.partition_error_code)) is not None
        ]
        # The others of the request only say that they were not tried.
        errors.sort(key=lambda error: (error.name == "OPERATION_NOT_ATTEMPTED", error.retriable))
        if errors:
            raise errors[0]

    def _judge_reply(self, error: KafkaError) -> KafkaError:
        """What a coordinator said for good; returns the error to raise."""
        error = _fenced(error)
        if isinstance(error, (InvalidTxnStateError, InvalidProducerIdMappingError, *_FATAL)):
            self.fail(error)
        else:
            self._spoil(error)
        return error

    async def _send_offsets(self, left: dict[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata) -> None:
        try:
            if self.version < _VERSION_2:
                await self._persist(lambda: self._add_offsets(group.group_id))
            self._is_started = True
            await persist(
                self._calls,
                self._backoff,
                lambda: self._commit_offsets(left, group),
                (CoordinatorType.GROUP, group.group_id),
            )
        except KafkaError as error:
            raise self._judge_reply(error) from None

    async def _add_offsets(self, group_id: str) -> None:
        identity = self.sequences.identity
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group_id,
        )
        self._is_started = True
        check((await self._ask(request, None, _ADD_OFFSETS_LAST)).error_code)

    async def _commit_offsets(
        self, left: dict[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """One attempt for the offsets that are left; takes those out that were taken."""
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for tp, offset in left.items():
            topics.setdefault(tp.topic, TxnOffsetCommitRequestTopic(name=tp.topic)).partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=tp.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        identity = self.sequences.identity
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=list(topics.values()),
        )
        low = _OFFSET_COMMIT_WITH_MEMBER if group.member_id or group.generation_id >= 0 else None
        high = _OFFSET_COMMIT_VERSION_2 - 1
        if self.version >= _VERSION_2:
            low = high = _OFFSET_COMMIT_VERSION_2
        reply = await self._calls.coordinator(CoordinatorType.GROUP, group.group_id, request, low, high)
        failures: list[KafkaError] = []
        for topic in reply.topics:
            for part in topic.partitions:
                error = error_for(part.error_code)
                if error is None:
                    left.pop(TopicPartition(topic.name, part.partition_index), None)
                else:
                    failures.append(error)
        if not failures:
            return
        failures.sort(key=lambda error: error.retriable)
        error = failures[0]
        if isinstance(error, UnknownMemberIdError | IllegalGenerationError):
            raise CommitFailedError(f"the group has gone on without this consumer: {error}")
        if isinstance(error, UnknownTopicOrPartitionError):
            raise NotCoordinatorError(str(error))
        raise error

    async def _commit(self) -> None:
        self._enter(_S.COMMITTING)
        await self._settle(False)
        if self.state is not _S.COMMITTING:
            assert self.error is not None
            raise self._again(self.error)
        await self._end(True)
        self._enter(_S.READY)

    async def _abort(self) -> None:
        self._enter(_S.ABORTING)
        self._new.clear()
        await self._settle(True)
        if self._adding is not None:
            await asyncio.wait([self._adding])
        if self.state is not _S.ABORTING:
            assert self.error is not None
            raise self._again(self.error)
        if isinstance(self.error, InvalidProducerIdMappingError):
            self._is_started = False
        await self._end(False)
        if self._needs_epoch and self.version < _VERSION_2:
            self._enter(_S.INITIALIZING)
            await self._ask_epoch(self.sequences.identity)
        else:
            self._needs_epoch = False
            self.error = None
            self._enter(_S.READY)

    async def _end(self, committed: bool) -> None:
        """Tells the coordinator, if it knows of the transaction at all."""
        started, self._is_started = self._is_started, False
        self._partitions.clear()
        self._new.clear()
        if not started:
            return
        identity = self.sequences.identity

        async def attempt() -> Any:
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=committed,
            )
            low, high = (_END_TXN_VERSION_2, None) if self.version >= _VERSION_2 else (None, _END_TXN_VERSION_2 - 1)
            reply = await self._ask(request, low, high)
            check(reply.error_code)
            return reply

        try:
            reply = await self._persist(attempt)
        except TransactionAbortableError as error:
            self._is_started = True
            self._spoil(error)
            raise
        except KafkaError as error:
            raise self._fail(error) from None
        if self.version >= _VERSION_2 and reply.producer_id >= 0:
            self.sequences.set_identity(ProducerIdentity(reply.producer_id, reply.producer_epoch))


def _fenced(error: KafkaError) -> KafkaError:
    """From coordinators an old epoch means the same under two names (KIP-588)."""
    if isinstance(error, InvalidProducerEpochError):
        return ProducerFencedError(
            "a newer producer has the same transactional id, or the transaction took longer than its timeout"
        )
    return error


def _as_offset(tp: TopicPartition, value: OffsetAndMetadata | int) -> OffsetAndMetadata:
    if not isinstance(tp, TopicPartition):
        raise TypeError(f"offsets are committed for a TopicPartition, not for {type(tp).__name__}")
    given = OffsetAndMetadata(value) if isinstance(value, int) else OffsetAndMetadata(*value)
    if given.offset < 0:
        raise ValueError(f"{tp}: an offset to commit is at least 0, not {given.offset}")
    return given
