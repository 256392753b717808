"""The broker's part in transactions: its transaction coordinators, and the markers in its partitions.

`marker_sender` sends the markers of prepared transactions, `transaction_verification` checks transactional appends.
Owned by the broker's loop.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from headrace.broker.broker_queues import BrokerClient
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.coordinators import GROUP_TOPIC, TRANSACTION_TOPIC
from headrace.broker.config.dynamic import DynamicConfig
from headrace.broker.coordinators import CoordinatorLog, Coordinators
from headrace.broker.marker_sender import MarkerSender, Written
from headrace.broker.partition import ALL_IN_SYNC, Partition
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.transaction_verification import UnverifiedAppend, Verifier, is_open, produce_operation
from headrace.cluster import znodes
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.producer_id_manager import ProducerIdManager
from headrace.cluster.store import CoordinationStore
from headrace.common.clock import Clock
from headrace.common.errors import (
    InvalidProducerEpochError,
    KafkaError,
    ProducerFencedError,
    TransactionalIdAuthorizationFailedError,
)
from headrace.common.timing_wheel import Timer
from headrace.common.types import TopicPartition
from headrace.coordinator.result import CoordinatorResult, ProducerInfo
from headrace.coordinator.runtime import CoordinatorRuntime
from headrace.coordinator.shard import ShardContext
from headrace.coordinator.transaction.config import VERIFICATION
from headrace.coordinator.transaction.metadata import EPOCH_PER_TRANSACTION, TransactionMetadata
from headrace.coordinator.transaction.shard import NeedsProducerId, TakeId, TransactionCoordinatorShard
from headrace.records import BatchHeader, ControlType, encode_marker
from headrace.storage.producer_state import AppendOrigin

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
        image: MetadataImage,
        client: BrokerClient,
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
        self._lookups: set[asyncio.Task[bool]] = set()
        self.runtime: CoordinatorRuntime[TransactionCoordinatorShard] = coordinators.create_runtime(
            TRANSACTION_TOPIC, self._create_shard
        )
        self.markers = MarkerSender(replicas.node_id, image, self.runtime, self, client, timer)
        self.verifier = Verifier(
            replicas.node_id, image, self.runtime, self.partition_of, client, lambda: self.verifies
        )

    def _create_shard(self, context: ShardContext) -> TransactionCoordinatorShard:
        return TransactionCoordinatorShard(context, lambda: self._config.transactions, self._send_markers)

    def _send_markers(self, coordinator_partition: int, prepared: TransactionMetadata) -> None:
        self.markers.send(coordinator_partition, prepared)

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

    def find_partition(self, tp: TopicPartition) -> Partition:
        """Returns a partition. Raises UnknownTopicOrPartitionError if this broker does not have it."""
        return self._replicas.find(tp.topic, tp.partition)

    def leads(self, tp: TopicPartition) -> bool:
        """Returns True if this broker leads a partition."""
        partition = self._replicas.get(tp.topic, tp.partition)
        return partition is not None and partition.is_leader

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
        self.verifier.marker_written(tp, producer)
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
        return partition is not None and partition.log is not None and is_open(partition.log, producer)

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
        """Cancels lookups and requests to other brokers. The next coordinator repeats them."""
        await self.markers.close()
        await self.verifier.close()
        for task in self._lookups:
            task.cancel()
        await asyncio.gather(*self._lookups, return_exceptions=True)

    # ---- appends

    def check_append(
        self, partition: Partition, header: BatchHeader, transactional_id: str | None, version: int
    ) -> UnverifiedAppend | None:
        """Checks that a producer's batch belongs to its transaction. Returns None if it may be appended at once, or the
        append that has to wait for the transaction coordinator. Raises KafkaError if the batch must not be appended."""
        if transactional_id is None:
            partition.check_leader()
            raise TransactionalIdAuthorizationFailedError("Transactional records require a transactional id")
        producer = ProducerInfo(header.producer_id, header.producer_epoch)
        return self.verifier.check_append(
            partition, producer, header.base_sequence, transactional_id, produce_operation(version)
        )


def producer_error_code(error: KafkaError, has_producer_fenced: bool) -> int:
    """Returns the error code for a producer. Clients of older versions know only INVALID_PRODUCER_EPOCH (KIP-588)."""
    if isinstance(error, ProducerFencedError) and not has_producer_fenced:
        return InvalidProducerEpochError.code
    return error.code
