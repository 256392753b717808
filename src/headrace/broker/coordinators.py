"""Coordinators on this broker: which partitions of internal topics it leads, and their way to the log.

A partition of an internal topic that this broker comes to lead is loaded into the topic's runtime; one that it leads no
more is unloaded. The topics are made when somebody first asks who coordinates.
Owned by the broker's loop.
"""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.broker.config.coordinators import GROUP_TOPIC
from headrace.broker.partition import ALL_IN_SYNC, Partition
from headrace.broker.purgatory import DelayedOperation
from headrace.broker.replica_manager import ReplicaManager
from headrace.cluster.commands import BrokerEndpoint
from headrace.cluster.metadata_image import ImageChange
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
from headrace.coordinator.group.shard import GroupCoordinatorShard
from headrace.coordinator.partitioner import partition_for
from headrace.coordinator.result import CommitCallback, CoordinatorResponse
from headrace.coordinator.runtime import CoordinatorRuntime
from headrace.coordinator.shard import ShardContext
from headrace.records import RecordBatch
from headrace.storage.producer_state import AppendOrigin

if TYPE_CHECKING:
    from headrace.broker.server import Broker

_logger = logging.getLogger(__name__)

_LOAD_SLICE_BYTES = 256 * 1024
_LOAD_PAUSE_MS = 100


class _DelayedCommit(DelayedOperation):
    """Completes when all replicas in sync have an offset, when this broker leads no more, or when its time is over."""

    def __init__(self, partition: Partition, offset: int, timeout_ms: int, done: CommitCallback):
        super().__init__(timeout_ms)
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._offset = offset
        self._done = done

    def try_complete(self) -> bool:
        if self._is_gone() or self._partition.is_replicated(self._offset):
            return self.force_complete()
        return False

    def _is_gone(self) -> bool:
        return not self._partition.is_leader or self._partition.leader_epoch != self._leader_epoch

    def on_complete(self) -> None:
        tp = self._partition.tp
        if self._is_gone():
            self._done(NotCoordinatorError(f"this broker leads {tp} no more"))
        elif self._partition.is_replicated(self._offset):
            self._done(None)
        else:
            self._done(CoordinatorNotAvailableError(f"the replicas of {tp} did not follow in time"))


class CoordinatorLog:
    """A partition as its coordinator sees it."""

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
            raise KafkaStorageError(f"the log directory of {self._partition.tp} is offline")
        found = log.read(offset, max_bytes).slice
        return found.batches() if found is not None else []

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
    """`groups` is the runtime of `__consumer_offsets`."""

    def __init__(self, broker: "Broker"):
        self._broker = broker
        self._config = broker.config.coordinators
        self._runtimes: dict[str, CoordinatorRuntime[Any]] = {}
        self.groups: CoordinatorRuntime[GroupCoordinatorShard] = self.make_runtime(GROUP_TOPIC, self._make_group_shard)
        broker.replicas.on_role_changed.append(self._role_changed)
        broker.image.add_listener(self._image_changed)

    def make_runtime(self, topic: str, make_shard: Any) -> CoordinatorRuntime[Any]:
        """A runtime that follows the leadership of a topic's partitions from now on."""
        runtime: CoordinatorRuntime[Any] = CoordinatorRuntime(
            topic,
            make_shard,
            self._broker.clock,
            self._broker.driver.timer,
            asyncio.get_running_loop().call_soon,
            min(self._config.load_buffer_bytes, _LOAD_SLICE_BYTES),
        )
        self._runtimes[topic] = runtime
        return runtime

    def _make_group_shard(self, context: ShardContext) -> GroupCoordinatorShard:
        return GroupCoordinatorShard(context, lambda: self._config.groups, self._broker.random)

    def _role_changed(self, partition: Partition) -> None:
        runtime = self._runtimes.get(partition.tp.topic)
        if runtime is None:
            return
        if partition.is_leader:
            log = CoordinatorLog(partition, self._broker.replicas, self._config.commit_timeout_ms)
            runtime.load(partition.tp.partition, partition.leader_epoch, log)
        else:
            runtime.unload(partition.tp.partition)

    def _image_changed(self, change: ImageChange) -> None:
        if not change.deleted_topics:
            return
        for index in self.groups.indexes():
            self._forget_topics(index, set(change.deleted_topics))

    def _forget_topics(self, index: int, topics: set[str]) -> None:
        """In steps; when the partition is loaded, if it is not yet."""

        def done(outcome: CoordinatorResponse[bool]) -> None:
            try:
                if not outcome.result():
                    self._broker.driver.timer.add(0, partial(self._forget_topics, index, topics))
            except CoordinatorLoadInProgressError:
                self._broker.driver.timer.add(_LOAD_PAUSE_MS, partial(self._forget_topics, index, topics))
            except NotCoordinatorError:
                pass  # its next coordinator is told as well
            except KafkaError as error:
                _logger.warning("offsets of deleted topics are left in partition %d: %s", index, error)

        self.groups.write(index, lambda shard: shard.forget_topics(topics), done)

    # ---- who coordinates

    def partition_of(self, topic: str, key: str) -> int:
        """The partition that a group or transactional id belongs to; -1, which nobody leads, as long as the topic is
        not known. While a broker starts it leads partitions already, and what its settings say of their number may be
        wrong: then another partition would answer, which knows nothing of the id."""
        found = self._broker.image.topic(topic)
        return partition_for(key, len(found.partitions)) if found is not None else -1

    def group_partition(self, group_id: str) -> int:
        return self.partition_of(GROUP_TOPIC, group_id)

    def group_shard(self, group_id: str) -> GroupCoordinatorShard:
        """For what writes nothing; raises what a client gets that asks the wrong broker, or too early."""
        return self.groups.shard(self.group_partition(group_id))

    async def find(self, topic: str, key: str, listener: str) -> tuple[int, BrokerEndpoint]:
        """The broker that coordinates, and its address. The topic is made if it is not there."""
        image = self._broker.image
        if not image.has_topic(topic):
            try:
                await self._broker.auto_create_topic(topic)
            except KafkaError as error:
                raise CoordinatorNotAvailableError(f"{topic} could not be made: {error}") from error
        state = image.partition(topic, self.partition_of(topic, key))
        broker = image.broker(state.leader) if state is not None else None
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is None or endpoint is None:
            raise CoordinatorNotAvailableError(f"the partition of {topic} that {key!r} belongs to has no leader")
        return broker.id, endpoint

    # ---- going

    def close(self) -> None:
        """Who waits gets NOT_COORDINATOR."""
        for runtime in self._runtimes.values():
            runtime.close()
