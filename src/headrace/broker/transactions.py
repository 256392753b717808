"""Transactions on this broker: markers on their way to partitions, and the check of what claims to belong to one.

A marker goes to each partition of a transaction that was prepared; those that fail are tried again until they are
written, until the topic is gone, or until another broker coordinates. Then the coordinator is told that it is complete.
Owned by the broker's loop.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.config.coordinators import GROUP_TOPIC, TRANSACTION_TOPIC
from headrace.broker.config.transactions import VERIFICATION
from headrace.broker.coordinators import CoordinatorLog
from headrace.broker.partition import ALL_IN_SYNC, Partition
from headrace.cluster import znodes
from headrace.common.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition
from headrace.coordinator.result import CoordinatorResponse, ProducerInfo
from headrace.coordinator.runtime import CoordinatorRuntime
from headrace.coordinator.shard import ShardContext
from headrace.coordinator.transaction.metadata import EPOCH_PER_TRANSACTION, TransactionMetadata, TransactionState
from headrace.coordinator.transaction.shard import NeedsProducerId, TransactionCoordinatorShard
from headrace.records import BatchHeader, ControlType, encode_marker
from headrace.storage.log import Log
from headrace.storage.producer_state import AppendOrigin

if TYPE_CHECKING:
    from headrace.broker.server import Broker

_logger = logging.getLogger(__name__)

_RETRY_MS = 100
_FIRST_THAT_ABORTS = 11
"""The first version of Produce whose clients know TRANSACTION_ABORTABLE."""
_FIRST_THAT_ADDS = 12
"""The first version of Produce that adds its partitions to the transaction itself."""

Written = Callable[[KafkaError | None], None]


class Transactions:
    """The broker's side of the transaction coordinator. `runtime` is that of `__transaction_state`."""

    def __init__(self, broker: "Broker"):
        self._broker = broker
        self._questions: set[asyncio.Task[bool]] = set()
        self.runtime: CoordinatorRuntime[TransactionCoordinatorShard] = broker.coordinators.make_runtime(
            TRANSACTION_TOPIC, self._make_shard
        )

    def _make_shard(self, context: ShardContext) -> TransactionCoordinatorShard:
        return TransactionCoordinatorShard(context, lambda: self._broker.config.transactions, self.send_markers)

    def partition_of(self, transactional_id: str) -> int:
        return self._broker.coordinators.partition_of(TRANSACTION_TOPIC, transactional_id)

    @property
    def verifies(self) -> bool:
        """Whether what claims to belong to a transaction is checked; can be changed at run time."""
        return bool(self._broker.configs.broker(VERIFICATION))

    def take_id(self) -> int:
        """A producer id, if one is at hand."""
        taken = self._broker.producer_ids.take()
        if taken is None:
            raise NeedsProducerId("producer ids are on their way")
        return taken

    # ---- markers

    def send_markers(self, index: int, transaction: TransactionMetadata) -> None:
        """Writes the markers of a prepared transaction of a partition, and then has it completed."""
        _Ending(self, index, transaction, self.runtime.leader_epoch(index)).go_on()

    def write_marker(
        self,
        tp: TopicPartition,
        producer: ProducerInfo,
        committed: bool,
        coordinator_epoch: int,
        version: int,
        done: Written,
    ) -> None:
        """Ends a producer's transaction in a partition. `done` is called once, when the marker is committed.

        `version` is that of the client's transactions. From EPOCH_PER_TRANSACTION on the marker has the epoch of the
        producer's next transaction: if that has written already, the marker is a late one, and must not end it.
        """
        broker = self._broker
        if version >= EPOCH_PER_TRANSACTION and self._has_open(tp, producer):
            done(InvalidProducerEpochError(f"producer {producer.producer_id} is in its next transaction in {tp}"))
            return
        if tp.topic == GROUP_TOPIC:
            groups = broker.coordinators.groups
            groups.end_transaction(
                tp.partition, producer, committed, coordinator_epoch, lambda outcome: done(outcome.error)
            )
            return
        try:
            partition = broker.replicas.find(tp.topic, tp.partition)
            marker = encode_marker(
                ControlType.COMMIT if committed else ControlType.ABORT,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp=broker.clock.time_ms(),
            )
            result = partition.append(marker, ALL_IN_SYNC, AppendOrigin.COORDINATOR)
        except KafkaError as error:
            done(error)
            return
        broker.replicas.appended(partition)
        if partition.is_replicated(result.last_offset):
            done(None)
            return
        log = CoordinatorLog(partition, broker.replicas, broker.config.coordinators.commit_timeout_ms)
        log.when_committed(result.last_offset, done)

    def _has_open(self, tp: TopicPartition, producer: ProducerInfo) -> bool:
        """Whether a producer has a transaction of this very epoch open in a partition that is led here."""
        partition = self._broker.replicas.get(tp.topic, tp.partition)
        return partition is not None and partition.log is not None and _is_open(partition.log, producer)

    def when_known(self, tp: TopicPartition, done: Callable[[bool], None]) -> None:
        """Asks the store whether a topic was deleted. What this broker believes is not enough: while it starts, it
        knows few topics."""
        task = asyncio.get_running_loop().create_task(self._is_deleted(tp.topic))
        self._questions.add(task)

        def answered(task: "asyncio.Task[bool]") -> None:
            self._questions.discard(task)
            if not task.cancelled():
                done(task.exception() is None and task.result())

        task.add_done_callback(answered)

    async def _is_deleted(self, topic: str) -> bool:
        return await self._broker.store.exists(znodes.topic_path(topic)) is None

    async def close(self) -> None:
        """Leaves what is unanswered to the next start."""
        for task in self._questions:
            task.cancel()
        await asyncio.gather(*self._questions, return_exceptions=True)

    def later(self, action: Callable[[], None]) -> None:
        self._broker.driver.timer.add(_RETRY_MS, action)

    # ---- appends

    def check_append(
        self, partition: Partition, header: BatchHeader, transactional_id: str | None, version: int
    ) -> None:
        """Refuses records for a transaction that they do not belong to (KIP-890).

        Without this a late batch could open a transaction that nobody ends. A partition in which the producer has
        written in this transaction is known to belong to it. Newer producers do not add partitions; this does it.
        """
        producer = ProducerInfo(header.producer_id, header.producer_epoch)
        log = partition.check_leader()
        if transactional_id is None:
            raise TransactionalIdAuthorizationFailedError("records of a transaction need a transactional id")
        if _is_open(log, producer):
            return
        adds = version >= _FIRST_THAT_ADDS
        if not adds and not self.verifies:
            return
        if adds and producer.producer_id not in log.producers.entries and header.base_sequence:
            # Each transaction has an epoch of its own and so begins with 0: what comes first here is on its way yet.
            raise OutOfOrderSequenceNumberError(f"producer {producer.producer_id} begins in {partition.tp} without 0")
        try:
            self._check_or_add(partition.tp, producer, transactional_id, version)
        except ProducerFencedError as error:
            raise InvalidProducerEpochError(str(error)) from error
        except ConcurrentTransactionsError as error:
            if adds:
                raise
            raise NotEnoughReplicasError(str(error)) from error
        except (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError) as error:
            # An error that producers answer with another try.
            raise NotEnoughReplicasError(f"the transaction cannot be looked up just now: {error}") from error

    def _check_or_add(self, tp: TopicPartition, producer: ProducerInfo, transactional_id: str, version: int) -> None:
        index = self.partition_of(transactional_id)
        if version < _FIRST_THAT_ADDS:
            if not self.runtime.shard(index).verify(transactional_id, producer, [tp])[tp]:
                kind = TransactionAbortableError if version >= _FIRST_THAT_ABORTS else InvalidTxnStateError
                raise kind(f"{tp} was not added to the transaction of {transactional_id!r}")
            return
        added: list[CoordinatorResponse[None]] = []
        self.runtime.write(
            index,
            lambda shard: shard.add_partitions(transactional_id, producer, [tp], EPOCH_PER_TRANSACTION),
            added.append,
        )
        if not added:
            raise NotEnoughReplicasError(f"{tp} is being added to the transaction of {transactional_id!r}")
        added[0].result()


def _is_open(log: Log, producer: ProducerInfo) -> bool:
    entry = log.producers.entries.get(producer.producer_id)
    return entry is not None and entry.transaction_first_offset is not None and entry.epoch == producer.producer_epoch


class _Ending:
    """One prepared transaction, until all its partitions have their markers."""

    def __init__(self, transactions: Transactions, index: int, prepared: TransactionMetadata, coordinator_epoch: int):
        self._transactions = transactions
        self._index = index
        self._prepared = prepared
        self._coordinator_epoch = coordinator_epoch
        self._left = set(prepared.partitions)
        self._on_the_way = 0
        self._failed = False
        """Whether any of this round is to be sent again."""
        self._given_up = False

    def go_on(self) -> None:
        """Sends what is still to be sent."""
        if not self._coordinates():
            return
        self._failed = False
        prepared = self._prepared
        producer = ProducerInfo(prepared.producer_id, prepared.producer_epoch)
        committed = prepared.state is TransactionState.PREPARE_COMMIT
        if not self._left:
            self._complete()
            return
        self._on_the_way = len(self._left)
        for tp in sorted(self._left):
            self._transactions.write_marker(
                tp, producer, committed, self._coordinator_epoch, prepared.version, partial(self._written, tp)
            )

    def _coordinates(self) -> bool:
        """Whether this broker still coordinates, in the epoch in which it began."""
        try:
            return self._transactions.runtime.leader_epoch(self._index) == self._coordinator_epoch
        except KafkaError:
            return False

    def _written(self, tp: TopicPartition, error: KafkaError | None) -> None:
        if isinstance(error, UnknownTopicOrPartitionError):
            self._transactions.when_known(tp, lambda deleted: self._settled(tp, None if deleted else error))
        else:
            self._settled(tp, error)

    def _settled(self, tp: TopicPartition, error: KafkaError | None) -> None:
        self._on_the_way -= 1
        if error is None:
            self._left.discard(tp)
        elif isinstance(error, InvalidProducerEpochError):
            # Nobody writes with a newer epoch before this transaction is complete. So it was once, and the log of the
            # coordinator has lost that with the power.
            _logger.warning("no marker of %r is needed in %s: %s", self._prepared.transactional_id, tp, error)
            self._left.discard(tp)
        elif isinstance(error, TransactionCoordinatorFencedError):
            _logger.error("a marker of %r for %s was refused: %s", self._prepared.transactional_id, tp, error)
            self._given_up = True
        else:
            _logger.info("a marker of %r for %s is tried again: %s", self._prepared.transactional_id, tp, error)
            self._failed = True
        if self._on_the_way == 0 and not self._given_up:
            if self._failed:
                self._transactions.later(self.go_on)
            else:
                self._complete()

    def _complete(self) -> None:
        self._transactions.runtime.write(self._index, lambda shard: shard.complete(self._prepared), self._completed)

    def _completed(self, outcome: CoordinatorResponse[None]) -> None:
        if outcome.error is not None and not isinstance(outcome.error, NotCoordinatorError):
            _logger.warning("cannot write that %r is complete: %s", self._prepared.transactional_id, outcome.error)
            self._transactions.later(self.go_on)
