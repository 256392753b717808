"""The broker's part in transactions: it writes markers to partitions, and checks transactional appends.

A prepared transaction sends a marker to each of its partitions. A failed marker is retried until it is written, until
the topic is deleted, or until another broker becomes the coordinator. Then the coordinator completes the transaction.
Owned by the broker's loop.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.coordinators import GROUP_TOPIC, TRANSACTION_TOPIC
from headrace.broker.config.dynamic import DynamicConfig
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
from headrace.coordinator.result import CoordinatorResponse, CoordinatorResult, ProducerInfo
from headrace.coordinator.runtime import CoordinatorRuntime
from headrace.coordinator.shard import ShardContext
from headrace.coordinator.transaction.config import VERIFICATION
from headrace.coordinator.transaction.metadata import EPOCH_PER_TRANSACTION, TransactionMetadata, TransactionState
from headrace.coordinator.transaction.shard import NeedsProducerId, TakeId, TransactionCoordinatorShard
from headrace.records import BatchHeader, ControlType, encode_marker
from headrace.storage.log import Log
from headrace.storage.producer_state import AppendOrigin

_logger = logging.getLogger(__name__)

_RETRY_MS = 100
_FIRST_WITH_ABORTABLE = 11
"""The first Produce version whose clients know TRANSACTION_ABORTABLE."""
_FIRST_THAT_ADDS_PARTITIONS = 12
"""The first Produce version that adds its partitions to the transaction."""

Written = Callable[[KafkaError | None], None]

T = TypeVar("T")


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
        """Returns True if transactional appends are verified. This is a dynamic config."""
        return bool(self._dynamic_config.broker(VERIFICATION))

    async def call(
        self,
        transactional_id: str,
        operation: Callable[[TransactionCoordinatorShard, TakeId], CoordinatorResult[T]],
    ) -> T:
        """Runs an operation that may take a producer id. Repeats it if no id was available at once."""
        try:
            return await self._call(transactional_id, operation, self._take_id)
        except NeedsProducerId:
            producer_id = await self._producer_ids.next()
            return await self._call(transactional_id, operation, lambda: producer_id)

    async def _call(
        self,
        transactional_id: str,
        operation: Callable[[TransactionCoordinatorShard, TakeId], CoordinatorResult[T]],
        take_id: TakeId,
    ) -> T:
        return await self.runtime.call(self.partition_of(transactional_id), lambda shard: operation(shard, take_id))

    def _take_id(self) -> int:
        """Returns a producer id from the current block. Raises NeedsProducerId if the block is used up."""
        producer_id = self._producer_ids.take()
        if producer_id is None:
            raise NeedsProducerId("The next block of producer ids is being fetched")
        return producer_id

    # ---- markers

    def send_markers(self, coordinator_partition: int, transaction: TransactionMetadata) -> None:
        """Writes the markers of a prepared transaction and then completes it."""
        _MarkerWriter(
            self, coordinator_partition, transaction, self.runtime.leader_epoch(coordinator_partition)
        ).write()

    def write_marker(
        self,
        tp: TopicPartition,
        producer: ProducerInfo,
        committed: bool,
        coordinator_epoch: int,
        version: int,
        done: Written,
    ) -> None:
        """Ends a producer's transaction in a partition. Calls `done` once, when the marker is committed or failed.

        `version` is the client's transaction version. From EPOCH_PER_TRANSACTION on, the marker has the epoch of the
        producer's next transaction: if that transaction has written already, the marker is late and must not end it.
        """
        if version >= EPOCH_PER_TRANSACTION and self._has_open_transaction(tp, producer):
            done(
                InvalidProducerEpochError(
                    f"Producer {producer.producer_id} has already begun its next transaction in {tp}"
                )
            )
            return
        if tp.topic == GROUP_TOPIC:
            groups = self._coordinators.groups
            groups.end_transaction(
                tp.partition, producer, committed, coordinator_epoch, lambda response: done(response.error)
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

    def _has_open_transaction(self, tp: TopicPartition, producer: ProducerInfo) -> bool:
        """Returns True if the producer has an open transaction with this epoch in a partition on this broker."""
        partition = self._replicas.get(tp.topic, tp.partition)
        return partition is not None and partition.log is not None and _is_open(partition.log, producer)

    def check_deleted(self, topic: str, done: Callable[[bool], None]) -> None:
        """Calls `done` with True if the store no longer has a topic. The image is incomplete during a start."""
        task = asyncio.get_running_loop().create_task(self._is_deleted(topic))
        self._lookups.add(task)

        def looked_up(task: "asyncio.Task[bool]") -> None:
            self._lookups.discard(task)
            if not task.cancelled():
                done(task.exception() is None and task.result())

        task.add_done_callback(looked_up)

    async def _is_deleted(self, topic: str) -> bool:
        return await self._store.exists(znodes.topic_path(topic)) is None

    async def close(self) -> None:
        """Cancels the lookups. The next start repeats them."""
        for task in self._lookups:
            task.cancel()
        await asyncio.gather(*self._lookups, return_exceptions=True)

    def retry_later(self, action: Callable[[], None]) -> None:
        self._timer.add(_RETRY_MS, action)

    # ---- appends

    def check_append(
        self, partition: Partition, header: BatchHeader, transactional_id: str | None, version: int
    ) -> None:
        """Refuses records whose partition does not belong to the transaction (KIP-890).

        Otherwise a late batch could open a transaction that never ends. A partition to which the producer has written
        in this transaction belongs to it. For newer producers this method adds the partition to the transaction.
        """
        producer = ProducerInfo(header.producer_id, header.producer_epoch)
        log = partition.check_leader()
        if transactional_id is None:
            raise TransactionalIdAuthorizationFailedError("Transactional records require a transactional id")
        if _is_open(log, producer):
            return
        adds_partitions = version >= _FIRST_THAT_ADDS_PARTITIONS
        if not adds_partitions and not self.verifies:
            return
        if adds_partitions and producer.producer_id not in log.producers.entries and header.base_sequence:
            # Each transaction has its own epoch and begins with sequence 0: the first batch has not arrived yet.
            raise OutOfOrderSequenceNumberError(
                f"Producer {producer.producer_id} begins its transaction in {partition.tp} with sequence "
                f"{header.base_sequence}, expected 0"
            )
        try:
            self._check_or_add(partition.tp, producer, transactional_id, version)
        except ProducerFencedError as error:
            raise InvalidProducerEpochError(str(error)) from error
        except ConcurrentTransactionsError as error:
            if adds_partitions:
                raise
            raise NotEnoughReplicasError(str(error)) from error
        except (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError) as error:
            # Producers retry this error.
            raise NotEnoughReplicasError(f"The transaction cannot be verified at the moment: {error}") from error

    def _check_or_add(self, tp: TopicPartition, producer: ProducerInfo, transactional_id: str, version: int) -> None:
        coordinator_partition = self.partition_of(transactional_id)
        if version < _FIRST_THAT_ADDS_PARTITIONS:
            if not self.runtime.shard(coordinator_partition).verify(transactional_id, producer, [tp])[tp]:
                kind = TransactionAbortableError if version >= _FIRST_WITH_ABORTABLE else InvalidTxnStateError
                raise kind(f"Partition {tp} was not added to the transaction of {transactional_id!r}")
            return
        added: list[CoordinatorResponse[None]] = []
        self.runtime.write(
            coordinator_partition,
            lambda shard: shard.add_partitions(transactional_id, producer, [tp], EPOCH_PER_TRANSACTION),
            added.append,
        )
        if not added:
            raise NotEnoughReplicasError(f"Partition {tp} is being added to the transaction of {transactional_id!r}")
        added[0].result()


def producer_error_code(error: KafkaError, has_producer_fenced: bool) -> int:
    """Returns the error code for a producer. Clients of older versions know only INVALID_PRODUCER_EPOCH (KIP-588)."""
    if isinstance(error, ProducerFencedError) and not has_producer_fenced:
        return InvalidProducerEpochError.code
    return error.code


def _is_open(log: Log, producer: ProducerInfo) -> bool:
    entry = log.producers.entries.get(producer.producer_id)
    return entry is not None and entry.transaction_first_offset is not None and entry.epoch == producer.producer_epoch


class _MarkerWriter:
    """Writes the markers of one prepared transaction, in rounds, until all its partitions have one."""

    def __init__(
        self,
        transactions: Transactions,
        coordinator_partition: int,
        prepared: TransactionMetadata,
        coordinator_epoch: int,
    ):
        self._transactions = transactions
        self._coordinator_partition = coordinator_partition
        self._prepared = prepared
        self._coordinator_epoch = coordinator_epoch
        self._remaining = set(prepared.partitions)
        self._in_flight = 0
        self._failed = False
        """True if a marker of this round must be retried."""
        self._fenced = False

    def write(self) -> None:
        """Writes the remaining markers."""
        if not self._is_coordinator():
            return
        self._failed = False
        prepared = self._prepared
        producer = ProducerInfo(prepared.producer_id, prepared.producer_epoch)
        committed = prepared.state is TransactionState.PREPARE_COMMIT
        if not self._remaining:
            self._complete()
            return
        self._in_flight = len(self._remaining)
        for tp in sorted(self._remaining):
            self._transactions.write_marker(
                tp, producer, committed, self._coordinator_epoch, prepared.version, partial(self._written, tp)
            )

    def _is_coordinator(self) -> bool:
        """Returns True if this broker is still the coordinator, in the same epoch."""
        try:
            return self._transactions.runtime.leader_epoch(self._coordinator_partition) == self._coordinator_epoch
        except KafkaError:
            return False

    def _written(self, tp: TopicPartition, error: KafkaError | None) -> None:
        if isinstance(error, UnknownTopicOrPartitionError):
            self._transactions.check_deleted(tp.topic, lambda deleted: self._finished(tp, None if deleted else error))
        else:
            self._finished(tp, error)

    def _finished(self, tp: TopicPartition, error: KafkaError | None) -> None:
        transactional_id = self._prepared.transactional_id
        self._in_flight -= 1
        if error is None:
            self._remaining.discard(tp)
        elif isinstance(error, InvalidProducerEpochError):
            # A producer gets a newer epoch only after this transaction is complete. So the marker was written before,
            # and the coordinator's log lost the completion in a power failure.
            _logger.warning("Transaction %r: partition %s needs no marker: %s", transactional_id, tp, error)
            self._remaining.discard(tp)
        elif isinstance(error, TransactionCoordinatorFencedError):
            _logger.error(
                "Transaction %r: partition %s refused the marker, a newer coordinator has to write it: %s",
                transactional_id,
                tp,
                error,
            )
            self._fenced = True
        else:
            _logger.info("Transaction %r: retrying the marker for partition %s: %s", transactional_id, tp, error)
            self._failed = True
        if self._in_flight == 0 and not self._fenced:
            if self._failed:
                self._transactions.retry_later(self.write)
            else:
                self._complete()

    def _complete(self) -> None:
        self._transactions.runtime.write(
            self._coordinator_partition, lambda shard: shard.complete(self._prepared), self._completed
        )

    def _completed(self, response: CoordinatorResponse[None]) -> None:
        if response.error is not None and not isinstance(response.error, NotCoordinatorError):
            _logger.warning(
                "Transaction %r: cannot write its completion, will retry: %s",
                self._prepared.transactional_id,
                response.error,
            )
            self._transactions.retry_later(self.write)
