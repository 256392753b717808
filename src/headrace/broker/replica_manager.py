"""The partitions of this broker, and the controller's commands for them.

Creates partitions, makes this broker their leader or follower, deletes them, and completes the requests that wait for
them: fetches for data, produces for replication. Owned by the broker's loop.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from headrace.broker.config.dynamic import TopicConfig
from headrace.broker.partition import Partition, PartitionContext
from headrace.broker.purgatory import Purgatory
from headrace.broker.replication.throttle import ReplicationQuota
from headrace.cluster.commands import NO_LEADER, LeaderAndIsr, PartitionState, ReplicaToStop, StopReplica
from headrace.cluster.controller_requests import IsrChange
from headrace.cluster.metadata_image import MetadataImage, is_other_topic
from headrace.cluster.znodes import Leadership
from headrace.common.background import WorkResult
from headrace.common.errors import (
    FencedLeaderEpochError,
    KafkaError,
    KafkaStorageError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
    code_of,
)
from headrace.common.ids import ZERO_UUID
from headrace.common.timing_wheel import Timer
from headrace.common.types import TopicPartition
from headrace.protocol.messages.fetch import PartitionData
from headrace.storage.directory import LogDirectory
from headrace.storage.files import DISK_FULL, DiskFullError
from headrace.storage.log import Log
from headrace.storage.manager import LogManager

_logger = logging.getLogger(__name__)


class ReplicaManager:
    """All partitions of this broker by topic and index, with the requests that wait for them."""

    def __init__(
        self,
        node_id: int,
        logs: LogManager,
        config_of: Callable[[str], TopicConfig],
        timer: Timer,
        *,
        lag_time_max_ms: int = 30_000,
        is_alive: Callable[[int], bool] = lambda _: True,
    ):
        """`lag_time_max_ms` is `replica.lag.time.max.ms`. `is_alive` tells if a broker is in the metadata image."""
        self.node_id = node_id
        self.logs = logs
        self.context = PartitionContext(
            node_id,
            config_of,
            lambda: round(logs.clock.monotonic() * 1000),
            lag_time_max_ms=lag_time_max_ms,
            is_alive=is_alive,
            on_append_failed=self._append_as_leader_failed,
        )
        """Shared by all partitions. The broker adds the way of ISR changes to the controller at its start."""
        self.fetches = Purgatory("fetch", timer)
        """Fetches that wait for data, by partition."""
        self.produces = Purgatory("produce", timer)
        """Produces and coordinator writes that wait for replication, by partition."""
        self.deletes = Purgatory("delete-records", timer)
        """DeleteRecords that wait for followers, by partition."""
        self.on_role_changed: list[Callable[[Partition], None]] = []
        """Called with a partition whose leader or leader epoch changed, or that was removed."""
        self.on_role_assigned: Callable[[Partition], None] = lambda _: None
        """Called with a partition that has got a role from the controller, or was removed: for the fetchers."""
        self.on_replica_failed: Callable[[], None] = lambda: None
        """Tells the controller that this broker has lost a replica."""
        self._timer = timer
        self._failed_replicas: dict[TopicPartition, KafkaStorageError] = {}
        """The replicas that this broker gave up, because it could not write their logs."""
        self.leader_quota: ReplicationQuota | None = None
        """Limits the bytes for followers that are not in sync."""
        self.select_replica: Callable[[Partition, int, str], int | None] | None = None
        """Returns the replica from which a consumer at an offset and in a rack should fetch; None for this one."""
        self._topics: dict[str, dict[int, Partition]] = {}
        self._checkpointing: set[LogDirectory] = set()
        self._failed_creations: dict[str, dict[int, KafkaStorageError]] = {}
        """The partitions, by topic and index, whose logs could not be created; the controller retries them."""
        self._stopped_high_watermarks: dict[TopicPartition, int] = {}
        """The high watermarks of replicas that were stopped but not deleted. They may become replicas again."""

    # ---- finding

    def __iter__(self) -> Iterator[Partition]:
        return (partition for partitions in list(self._topics.values()) for partition in list(partitions.values()))

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def get(self, topic: str, index: int) -> Partition | None:
        partitions = self._topics.get(topic)
        return partitions.get(index) if partitions is not None else None

    def find(self, topic: str, index: int) -> Partition:
        """Returns a partition. Raises UnknownTopicOrPartitionError if this broker does not have it."""
        partition = self.get(topic, index)
        if partition is None:
            raise UnknownTopicOrPartitionError(f"This broker does not host partition {topic}-{index}")
        return partition

    def leader(self, topic: str, index: int, leader_epoch: int = -1) -> Partition:
        """Returns a partition that this broker leads."""
        partition = self.find(topic, index)
        partition.check_leader(leader_epoch)
        return partition

    # ---- completing requests

    def appended(self, partition: Partition) -> None:
        """Completes requests that wait for records of a partition, or for its high watermark."""
        self.fetches.check_and_complete(partition)
        self.produces.check_and_complete(partition)

    # ---- followers and in-sync replicas

    def follower_fetched(
        self, partition: Partition, replica_id: int, fetch_offset: int, log_start_offset: int, broker_epoch: int
    ) -> None:
        """Notes a validated fetch of a follower, and completes the requests that have waited for it."""
        if partition.follower_fetched(replica_id, fetch_offset, log_start_offset, broker_epoch):
            self.appended(partition)
        self.deletes.check_and_complete(partition)

    def check_isrs(self) -> None:
        """Proposes to remove followers that lag from the in-sync replicas. Called periodically."""
        for partition in self:
            if partition.followers:
                partition.shrink_isr()
        self.check_high_watermarks()

    def check_high_watermarks(self) -> None:
        """Advances high watermarks that no longer wait for a follower, which is dead or has lagged for too long."""
        for partition in self:
            if partition.followers and partition.update_high_watermark():
                self.appended(partition)

    def isr_change_answered(self, partition: Partition, change: IsrChange, answer: Leadership | KafkaError) -> bool:
        """Applies the controller's answer to an ISR change. Returns False if the change must be sent again."""
        is_done = partition.isr_change_answered(change, answer)
        if is_done:
            self.appended(partition)
            self.deletes.check_and_complete(partition)
        return is_done

    @property
    def under_replicated(self) -> int:
        """The number of partitions that this broker leads and that have replicas out of sync."""
        return sum(
            partition.is_leader and len(partition.isr) < len(partition.replicas) - len(partition.adding_replicas)
            for partition in self
        )

    @property
    def under_min_isr(self) -> int:
        """The number of partitions that this broker leads and that have fewer than `min.insync.replicas` in sync."""
        return sum(partition.is_leader and len(partition.isr) < partition.min_isr for partition in self)

    # ---- following

    def append_as_follower(self, partition: Partition, data: PartitionData) -> None:
        """Appends fetched records, and completes fetches of consumers that wait for the high watermark."""
        records = data.records if isinstance(data.records, bytes | bytearray | memoryview) else b""
        if partition.append_as_follower(records, data.high_watermark, data.log_start_offset):
            self.fetches.check_and_complete(partition)

    async def truncate(
        self, offsets: Mapping[TopicPartition, int], is_current: Callable[[TopicPartition], bool], *, fully: bool
    ) -> dict[TopicPartition, KafkaStorageError | None]:
        """Truncates logs to offsets, or restarts them there with `fully`. Returns those that were, with the error if
        one failed."""
        done: asyncio.Future[dict[TopicPartition, KafkaStorageError | None]] = (
            asyncio.get_running_loop().create_future()
        )

        def finish(results: dict[TopicPartition, KafkaStorageError | None]) -> None:
            if not done.done():
                done.set_result(results)

        self.logs.truncate_many(offsets, finish, fully=fully, is_current=is_current)
        return await done

    # ---- controller commands

    def lead_or_follow(self, command: LeaderAndIsr) -> dict[TopicPartition, int]:
        """Applies the assigned roles. Returns an error code for each partition."""
        return {state.tp: self._attempt(state.tp, partial(self._become, state)) for state in command.partitions}

    def _become(self, state: PartitionState) -> None:
        tp = state.tp
        if self.node_id not in state.replicas:
            raise ReplicaNotAvailableError(
                f"Broker {self.node_id} is not a replica of partition {tp}, which has replicas {state.replicas}"
            )
        partition = self.get(tp.topic, tp.partition)
        if partition is not None and is_other_topic(partition.topic_id or ZERO_UUID, state.topic_id):
            _logger.warning(
                "Partition %s: the topic was created again, replacing topic id %s by %s",
                tp,
                partition.topic_id,
                state.topic_id,
            )
            self._remove(tp)
            partition = None
        if partition is not None and _is_older(state, partition):
            _logger.info(
                "Partition %s: ignoring the controller's leader epoch %d and partition epoch %d, the current epochs "
                "are %d and %d",
                tp,
                state.leader_epoch,
                state.partition_epoch,
                partition.leader_epoch,
                partition.partition_epoch,
            )
            return
        log = self._create_log(state)
        if partition is None:
            partition = Partition(tp, self.context)
            self._topics.setdefault(tp.topic, {})[tp.partition] = partition
            log.update_high_watermark(self._last_high_watermark(tp))
        changed = partition.become(state, log)
        self.on_role_assigned(partition)
        if changed:
            self._role_changed(partition)
        else:
            self.appended(partition)  # fewer in-sync replicas may have advanced the high watermark

    def _last_high_watermark(self, tp: TopicPartition) -> int:
        """Returns the high watermark of a replica when it was stopped, or when it was last written to disk."""
        stopped = self._stopped_high_watermarks.pop(tp, None)
        if stopped is not None:
            return stopped
        directory = self.logs.directory_of(tp)
        return directory.high_watermarks.get(tp, 0) if directory is not None else 0

    def _role_changed(self, partition: Partition) -> None:
        """Completes requests that waited for the previous leader, and notifies the listeners."""
        self.appended(partition)
        self.deletes.check_and_complete(partition)
        for listener in self.on_role_changed:
            listener(partition)

    def _create_log(self, state: PartitionState) -> Log:
        topic, index = state.tp
        try:
            log = self._log_of(state)
        except KafkaStorageError as error:
            self._failed_creations.setdefault(topic, {})[index] = error
            raise
        if self._failed_creations:
            self._forget_failed_creation(state.tp)
        return log

    def _forget_failed_creation(self, tp: TopicPartition) -> None:
        failed = self._failed_creations.get(tp.topic, {})
        failed.pop(tp.partition, None)
        if not failed:
            self._failed_creations.pop(tp.topic, None)

    def creation_error(self, topic: str, first: int = 0) -> KafkaStorageError | None:
        """Returns why the log of a partition, from `first` on, could not be created; None if all logs exist."""
        failed = self._failed_creations.get(topic, {})
        return next((error for index, error in failed.items() if index >= first), None)

    @property
    def has_failed_creations(self) -> bool:
        """True if logs could not be created because the disk is full or the process has too many open files."""
        return any(
            isinstance(error, DiskFullError) for errors in self._failed_creations.values() for error in errors.values()
        )

    def _log_of(self, state: PartitionState) -> Log:
        if state.tp in self._failed_replicas:
            raise KafkaStorageError(f"The log of partition {state.tp} failed: {self._failed_replicas[state.tp]}")
        log = self.logs.get(state.tp)
        if log is None and not state.is_new and not all(directory.online for directory in self.logs.directories):
            # It may be in a failed directory; a new empty log elsewhere would lose its records for good.
            raise KafkaStorageError(f"The log of partition {state.tp} may be in a log directory that is offline")
        if log is not None and is_other_topic(log.topic_id or ZERO_UUID, state.topic_id):
            self._move_stray_log(log, f"it has topic id {log.topic_id}, the topic has {state.topic_id}")
        return self.logs.create(state.tp, None if state.topic_id == ZERO_UUID else state.topic_id)

    def unassigned_logs(self) -> list[TopicPartition]:
        """Returns the partitions that have a log, or only a future log, but no role on this broker."""
        tps = {log.tp for log in (*self.logs, *self.logs.futures)}
        return sorted(tp for tp in tps if self.get(tp.topic, tp.partition) is None)

    def move_stray_logs(self, exists: Callable[[TopicPartition], bool]) -> None:
        """Renames the directories of logs whose partitions do not exist in the cluster.

        A topic that is created later must not find them under its name, and retention must not delete from them.
        """
        for tp in self.unassigned_logs():
            log = self.logs.get(tp)
            if log is not None and not exists(tp):
                self._attempt(tp, partial(self._move_stray_log, log, "the cluster has no such partition"))
        for future in self.logs.futures:
            if self.logs.get(future.tp) is None and not exists(future.tp):
                path = self.logs.futures.move_stray_log(future.tp)
                _logger.warning("Partition %s: found a stray future log, keeping it unused in %s", future.tp, path)

    def drop_reassigned(self, image: MetadataImage) -> None:
        """Stops the replicas that were reassigned to other brokers, and moves their logs aside.

        For the metadata of a new controller: the StopReplica of the previous one may have been lost.
        """
        for partition in self:
            tp = partition.tp
            state = image.partition(*tp)
            if (
                state is None
                or self.node_id in state.replicas
                or state.leader_epoch < partition.leader_epoch
                or is_other_topic(partition.topic_id or ZERO_UUID, state.topic_id)
            ):
                continue
            self._remove(tp)
            log = self.logs.get(tp)
            if log is not None:
                self._attempt(tp, partial(self._move_stray_log, log, f"its replicas are on brokers {state.replicas}"))

    def _move_stray_log(self, log: Log, reason: str) -> None:
        self._stopped_high_watermarks.pop(log.tp, None)
        path = self.logs.move_stray_log(log.tp)
        _logger.warning("Partition %s: found a stray log, keeping it unused in %s: %s", log.tp, path, reason)

    def stop(self, command: StopReplica) -> dict[TopicPartition, int]:
        """Stops serving partitions and deletes their logs if requested. Returns an error code for each."""
        return {replica.tp: self._attempt(replica.tp, partial(self._stop, replica)) for replica in command.partitions}

    def _stop(self, replica: ReplicaToStop) -> None:
        tp = replica.tp
        partition = self.get(tp.topic, tp.partition)
        if partition is not None and 0 <= replica.leader_epoch < partition.leader_epoch:
            raise FencedLeaderEpochError(
                f"The controller stops partition {tp} in leader epoch {replica.leader_epoch}, but the current epoch is "
                f"{partition.leader_epoch}"
            )
        self._remove(tp)
        log = self.logs.get(tp)
        if replica.delete:
            self._forget_failed_creation(tp)
            self._stopped_high_watermarks.pop(tp, None)
            self._failed_replicas.pop(tp, None)
            if log is not None:
                self.logs.delete(tp)
        elif partition is not None and log is not None:
            self._stopped_high_watermarks[tp] = log.high_watermark

    def _remove(self, tp: TopicPartition) -> None:
        """Stops serving a partition. Its log stays."""
        partitions = self._topics.get(tp.topic, {})
        partition = partitions.pop(tp.partition, None)
        if not partitions and self._topics.pop(tp.topic, None) is not None:
            self.context.traffic.remove(tp.topic)
        if partition is not None:
            partition.resign()
            partition.leader_id = NO_LEADER
            self.on_role_assigned(partition)
            self._role_changed(partition)

    def _attempt(self, tp: TopicPartition, action: Callable[[], None]) -> int:
        try:
            action()
        except KafkaError as error:
            _logger.error("Partition %s: failed to apply the controller's command: %s", tp, error)
            return code_of(error)
        except Exception as error:
            # The other partitions of the command are not affected, and the controller gets an error code.
            _logger.exception("Partition %s: failed to apply the controller's command", tp)
            return code_of(error)
        return 0

    # ---- disks

    def _append_as_leader_failed(self, partition: Partition, error: KafkaStorageError) -> None:
        # Later: the caller may be a coordinator, which unloads when it loses the leadership.
        self._timer.add(0, partial(self._give_up, partition, partition.leader_epoch, error))

    def _give_up(self, partition: Partition, leader_epoch: int, error: KafkaStorageError) -> None:
        """Gives up a replica whose log cannot be written, so that another in-sync replica becomes leader."""
        if not partition.is_leader or partition.leader_epoch != leader_epoch:
            return
        _logger.error(
            "Partition %s: giving up the leadership and the replica until the next start, because its log cannot be "
            "written: %s",
            partition.tp,
            error,
        )
        self._failed_replicas[partition.tp] = error
        partition.go_offline()
        self.on_role_assigned(partition)
        self._role_changed(partition)
        self.on_replica_failed()

    def directory_failed(self, lost: list[TopicPartition]) -> None:
        """Takes the partitions offline whose log directory failed."""
        for tp in lost:
            partition = self.get(tp.topic, tp.partition)
            if partition is not None:
                partition.go_offline()
                self.on_role_assigned(partition)
                self._role_changed(partition)

    def checkpoint_high_watermarks(self) -> None:
        """Writes the high watermarks of all partitions to a checkpoint file in each log directory.

        Logs without a role keep their entries: they may get one again.
        """
        for directory, offsets in self._high_watermarks().items():
            # One write at a time for each directory, because they use the same temporary file.
            if directory not in self._checkpointing and offsets != directory.high_watermarks:
                self._checkpointing.add(directory)
                self.logs.runner.submit(
                    partial(directory.write_high_watermarks, offsets), partial(self._checkpointed, directory)
                )

    def _high_watermarks(self) -> dict[LogDirectory, dict[TopicPartition, int]]:
        checkpoints: dict[LogDirectory, dict[TopicPartition, int]] = {}
        for log in self.logs:
            tp = log.tp
            directory = self.logs.directory_of(tp)
            if directory is None or not directory.online:
                continue
            offset: int | None
            if self.get(tp.topic, tp.partition) is not None:
                offset = log.high_watermark
            else:
                offset = self._stopped_high_watermarks.get(tp, directory.high_watermarks.get(tp))
            if offset is not None:
                checkpoints.setdefault(directory, {})[tp] = offset
        futures = self.logs.futures
        for future in futures:
            directory = futures.directory_of(future.tp)
            if directory is not None:
                checkpoints.setdefault(directory, {})[future.tp] = future.high_watermark
        return checkpoints

    def _checkpointed(self, directory: LogDirectory, result: WorkResult) -> None:
        self._checkpointing.discard(directory)
        if isinstance(result.error, OSError) and result.error.errno in DISK_FULL:
            _logger.warning(
                "Log directory %s: no space for the high watermark checkpoint, will retry: %s", directory, result.error
            )
        elif result.error is not None:
            self.logs.fail_directory(directory, f"Cannot write the high watermark checkpoint: {result.error}")


def _is_older(state: PartitionState, partition: Partition) -> bool:
    """Returns True if the controller's state is older than the partition's. An ISR change increases only the partition
    epoch."""
    return (state.leader_epoch, state.partition_epoch) < (partition.leader_epoch, partition.partition_epoch)
