"""The coordinators on this broker, and their access to the log.

A coordinator is a partition of an internal topic. Each internal topic has a `CoordinatorRuntime`. It loads a partition
when this broker becomes its leader, and unloads it when the broker stops leading it. FindCoordinator creates the
internal topics.

Owned by the broker's loop.
"""

import asyncio
import logging
from functools import partial
from typing import Any

from headrace.broker.auto_topic_creation import AutoTopicCreation
from headrace.broker.config.coordinators import GROUP_TOPIC, CoordinatorConfig
from headrace.broker.partition import ALL_IN_SYNC, Partition
from headrace.broker.purgatory import DelayedOperation
from headrace.broker.replica_manager import ReplicaManager
from headrace.cluster.commands import BrokerEndpoint
from headrace.cluster.metadata_image import ImageChange, MetadataImage
from headrace.common.clock import Clock
from headrace.common.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaError,
    KafkaStorageError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import Random
from headrace.common.timing_wheel import Timer
from headrace.coordinator.group.shard import GroupCoordinatorShard
from headrace.coordinator.partitioner import partition_for
from headrace.coordinator.result import CommitCallback, CoordinatorResponse
from headrace.coordinator.runtime import CoordinatorRuntime
from headrace.coordinator.shard import ShardContext
from headrace.records import RecordBatch
from headrace.storage.producer_state import AppendOrigin

_logger = logging.getLogger(__name__)

_MAX_LOAD_BYTES = 256 * 1024
"""The number of bytes of a partition that are loaded in one step. Other requests are handled between the steps."""
_LOAD_RETRY_MS = 100


class _DelayedCommit(DelayedOperation):
    """Waits for a coordinator's write. Completes when all in-sync replicas have the offset, when this broker stops
    leading the partition, or after the timeout."""

    def __init__(self, partition: Partition, offset: int, timeout_ms: int, done: CommitCallback):
        super().__init__(timeout_ms)
        self._partition = partition
        self._offset = offset
        self._done = done

    def try_complete(self) -> bool:
        if not self._partition.is_leader or self._partition.is_replicated(self._offset):
            return self.force_complete()
        return False

    def on_complete(self) -> None:
        tp = self._partition.tp
        if not self._partition.is_leader:
            self._done(NotCoordinatorError(f"This broker no longer leads {tp}"))
        elif self._partition.is_replicated(self._offset):
            self._done(None)
        else:
            self._done(
                CoordinatorNotAvailableError(f"The in-sync replicas of {tp} did not replicate the write in time")
            )


class CoordinatorLog:
    """The log of one partition of an internal topic, for the coordinator runtime."""

    def __init__(self, partition: Partition, replicas: ReplicaManager, timeout_ms: int):
        self._partition = partition
        self._replicas = replicas
        self._timeout_ms = timeout_ms

    def start_offset(self) -> int:
        log = self._partition.log
        return log.log_start_offset if log is not None else 0

    def end_offset(self) -> int:
        log = self._partition.log
        return log.log_end_offset if log is not None else 0

    def read(self, offset: int, max_bytes: int) -> list[RecordBatch]:
        log = self._partition.log
        if log is None:
            raise KafkaStorageError(f"The log directory of {self._partition.tp} is offline")
        data = log.read(offset, max_bytes).slice
        return data.batches() if data is not None else []

    def append(self, batch: bytearray) -> int:
        try:
            result = self._partition.append(batch, ALL_IN_SYNC, AppendOrigin.COORDINATOR)
        except (NotEnoughReplicasError, UnknownTopicOrPartitionError) as error:
            raise CoordinatorNotAvailableError(str(error)) from error
        except (NotLeaderForPartitionError, KafkaStorageError) as error:
            raise NotCoordinatorError(str(error)) from error
        self._replicas.appended(self._partition)
        return result.last_offset

    def is_committed(self, offset: int) -> bool:
        return self._partition.is_replicated(offset)

    def when_committed(self, offset: int, done: CommitCallback) -> None:
        operation = _DelayedCommit(self._partition, offset, self._timeout_ms, done)
        self._replicas.produces.try_complete_else_watch(operation, [self._partition])


class Coordinators:
    """The coordinator runtimes by internal topic.

    `groups` is the runtime of the group coordinators. The module `transactions` adds its own with `create_runtime`.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        replicas: ReplicaManager,
        image: MetadataImage,
        auto_topic_creation: AutoTopicCreation,
        clock: Clock,
        timer: Timer,
        random: Random,
    ):
        self._config = config
        self._replicas = replicas
        self._image = image
        self._auto_topic_creation = auto_topic_creation
        self._clock = clock
        self._timer = timer
        self._random = random
        self._runtimes: dict[str, CoordinatorRuntime[Any]] = {}
        self.groups: CoordinatorRuntime[GroupCoordinatorShard] = self.create_runtime(
            GROUP_TOPIC, self._create_group_shard
        )
        replicas.on_role_changed.append(self._role_changed)
        image.add_listener(self._image_changed)

    def create_runtime(self, topic: str, create_shard: Any) -> CoordinatorRuntime[Any]:
        """Creates a runtime that loads and unloads partitions of `topic` when their leadership changes."""
        runtime: CoordinatorRuntime[Any] = CoordinatorRuntime(
            topic,
            create_shard,
            self._clock,
            self._timer,
            asyncio.get_running_loop().call_soon,
            min(self._config.load_buffer_bytes, _MAX_LOAD_BYTES),
        )
        self._runtimes[topic] = runtime
        return runtime

    def _create_group_shard(self, context: ShardContext) -> GroupCoordinatorShard:
        return GroupCoordinatorShard(context, lambda: self._config.groups, self._random)

    def _role_changed(self, partition: Partition) -> None:
        runtime = self._runtimes.get(partition.tp.topic)
        if runtime is None:
            return
        if partition.is_leader:
            log = CoordinatorLog(partition, self._replicas, self._config.commit_timeout_ms)
            runtime.load(partition.tp.partition, partition.leader_epoch, log)
        else:
            runtime.unload(partition.tp.partition)

    def _image_changed(self, change: ImageChange) -> None:
        if not change.deleted_topics:
            return
        for partition in self.groups.partitions():
            self._delete_offsets(partition, set(change.deleted_topics))

    def _delete_offsets(self, partition: int, topics: set[str]) -> None:
        """Deletes the committed offsets of deleted topics in one partition, in steps. Retries while the partition is
        loading."""

        def done(result: CoordinatorResponse[bool]) -> None:
            try:
                if not result.result():
                    self._timer.add(0, partial(self._delete_offsets, partition, topics))
            except CoordinatorLoadInProgressError:
                self._timer.add(_LOAD_RETRY_MS, partial(self._delete_offsets, partition, topics))
            except NotCoordinatorError:
                pass  # the new coordinator also learns of the deletion
            except KafkaError as error:
                _logger.warning(
                    "Partition %s-%d: failed to delete the committed offsets of the deleted topics %s: %s",
                    GROUP_TOPIC,
                    partition,
                    ", ".join(sorted(topics)),
                    error,
                )

        self.groups.write(partition, lambda shard: shard.delete_offsets_of_topics(topics), done)

    # ---- lookup

    def partition_of(self, topic: str, key: str) -> int:
        """Returns the partition of a group or transactional id, or -1 if the metadata image lacks the internal topic.

        During startup a broker leads partitions before its image has the topic. The configured number of partitions
        cannot be used then: it may differ from the topic's real number, which would lead to the wrong coordinator.
        """
        topic_image = self._image.topic(topic)
        return partition_for(key, len(topic_image.partitions)) if topic_image is not None else -1

    def group_partition(self, group_id: str) -> int:
        return self.partition_of(GROUP_TOPIC, group_id)

    def group_shard(self, group_id: str) -> GroupCoordinatorShard:
        """Returns the shard of a group, for operations that only read. Raises the coordinator error to return to the
        client if the shard is not active on this broker."""
        return self.groups.shard(self.group_partition(group_id))

    async def find(self, topic: str, key: str, listener: str) -> tuple[int, BrokerEndpoint]:
        """Returns the id and endpoint of the coordinator. Creates the internal topic if it does not exist."""
        image = self._image
        await self.ensure_topic(topic)
        state = image.partition(topic, self.partition_of(topic, key))
        broker = image.broker(state.leader) if state is not None else None
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is None or endpoint is None:
            raise CoordinatorNotAvailableError(f"The partition of '{topic}' for {key!r} has no leader")
        return broker.id, endpoint

    async def ensure_topic(self, topic: str) -> None:
        """Creates an internal topic if it does not exist."""
        if not self._image.has_topic(topic):
            try:
                await self._auto_topic_creation.create(topic)
            except KafkaError as error:
                raise CoordinatorNotAvailableError(f"Topic '{topic}' could not be created: {error}") from error

    # ---- stopping

    def close(self) -> None:
        """Unloads all partitions. Waiting requests get NOT_COORDINATOR."""
        for runtime in self._runtimes.values():
            runtime.close()
