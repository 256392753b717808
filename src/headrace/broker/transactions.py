"""The broker's part in transactions: it writes markers to partitions, and checks transactional appends.

A prepared transaction sends a marker to each of its partitions. A failed marker is retried until it is written, until
the topic is deleted, or until another broker becomes the coordinator. Then the coordinator completes the transaction.
Owned by the broker's loop.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.coordinators import GROUP_TOPIC, TRANSACTION_TOPIC
from headrace.broker.config.dynamic import DynamicConfig
from headrace.broker.config.transactions import VERIFICATION
from headrace.broker.coordinators import CoordinatorLog, Coordinators
from headrace.broker.partition import ALL_IN_SYNC, Partition
from headrace.broker.replica_manager import ReplicaManager
from headrace.cluster import znodes
from headrace.cluster.producer_id_manager import ProducerIdManager
from headrace.cluster.store import CoordinationStore
from headrace.common.clock import Clock
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
from headrace.common.timing_wheel import Timer
from headrace.common.types import TopicPartition
from headrace.coordinator.result import CoordinatorResponse, ProducerInfo
from headrace.coordinator.runtime import CoordinatorRuntime
from headrace.coordinator.shard import ShardContext
from headrace.coordinator.transaction.metadata import EPOCH_PER_TRANSACTION, TransactionMetadata, TransactionState
from headrace.coordinator.transaction.shard import NeedsProducerId, TransactionCoordinatorShard
from headrace.records import BatchHeader, ControlType, encode_marker
from headrace.storage.log import Log
from headrace.storage.producer_state import AppendOrigin

_logger = logging.getLogger(__name__)

_RETRY_MS = 100
_FIRST_THAT_ABORTS = 11
"""The first version of Produce whose clients know TRANSACTION_ABORTABLE."""
_FIRST_THAT_ADDS = 12
"""The first version of Produce that adds its partitions to the transaction itself."""

Written = Callable[[KafkaError | None], None]


class Transactions:
    """The broker's side of the transaction coordinator. `runtime` has the shards of `__transaction_state`."""

    def __init__(
        self,
        config: BrokerConfig,
        dynamic_config: DynamicConfig,
        coordinators: Coordinators,
        replicas: ReplicaManager,
        producer_ids: ProducerIdManager,
        store: CoordinationStore,
        clock: Clock,
        timer: Timer,
    ):
        self._config = config
        self._dynamic_config = dynamic_config
        self._coordinators = coordinators
        self._replicas = replicas
        self._producer_ids = producer_ids
        self._store = store
        self._clock = clock
        self._timer = timer
        self._lookups: set[asyncio.Task[bool]] = set()
        self.runtime: CoordinatorRuntime[TransactionCoordinatorShard] = coordinators.create_runtime(
            TRANSACTION_TOPIC, self._create_shard
        )

    def _create_shard(self, context: ShardContext) -> TransactionCoordinatorShard:
        return TransactionCoordinatorShard(context, lambda: self._config.transactions, self.send_markers)

    def partition_of(self, transactional_id: str) -> int:
        return self._coordinators.partition_of(TRANSACTION_TOPIC, transactional_id)

    @property
    def verifies(self) -> bool:
        """Returns True if transactional appends are verified; a dynamic config."""
        return bool(self._dynamic_config.broker(VERIFICATION))

    def take_id(self) -> int:
        """Returns a producer id from the current block. Raises NeedsProducerId if the block is used up."""
        producer_id = self._producer_ids.take()
        if producer_id is None:
            raise NeedsProducerId("The next block of producer ids is being fetched")
        return producer_id

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
        if version >= EPOCH_PER_TRANSACTION and self._has_open(tp, producer):
            done(InvalidProducerEpochError(f"producer {producer.producer_id} is in its next transaction in {tp}"))
            return
        if tp.topic == GROUP_TOPIC:
            groups = self._coordinators.groups
            groups.end_transaction(
                tp.partition, producer, committed, coordinator_epoch, lambda outcome: done(outcome.error)
            )
            return
        try:
            partition = self._replicas.find(tp.topic, tp.partition)
            marker = encode_marker(
                ControlType.COMMIT if committed else ControlType.ABORT,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp=self._clock.time_ms(),
            )
            result = partition.append(marker, ALL_IN_SYNC, AppendOrigin.COORDINATOR)
        except KafkaError as error:
            done(error)
            return
        self._replicas.appended(partition)
        if partition.is_replicated(result.last_offset):
            done(None)
            return
        log = CoordinatorLog(partition, self._replicas, self._config.coordinators.commit_timeout_ms)
        log.when_committed(result.last_offset, done)

    def _has_open(self, tp: TopicPartition, producer: ProducerInfo) -> bool:
        """Whether a producer has a transaction of this very epoch open in a partition that is led here."""
        partition = self._replicas.get(tp.topic, tp.partition)
        return partition is not None and partition.log is not None and _is_open(partition.log, producer)

    def when_known(self, tp: TopicPartition, done: Callable[[bool], None]) -> None:
        """Asks the store whether a topic was deleted. What this broker believes is not enough: while it starts, it
        knows few topics."""
        task = asyncio.get_running_loop().create_task(self._is_deleted(tp.topic))
        self._lookups.add(task)

        def answered(task: "asyncio.Task[bool]") -> None:
            self._lookups.discard(task)
            if not task.cancelled():
                done(task.exception() is None and task.result())

        task.add_done_callback(answered)

    async def _is_deleted(self, topic: str) -> bool:
        return await self._store.exists(znodes.topic_path(topic)) is None

    async def close(self) -> None:
        """Leaves what is unanswered to the next start."""
        for task in self._lookups:
            task.cancel()
        await asyncio.gather(*self._lookups, return_exceptions=True)

    def later(self, action: Callable[[], None]) -> None:
        self._timer.add(_RETRY_MS, action)

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
