"""The partitions of this broker, and what the controller tells about them.

Knows which partitions are here, makes them leaders and followers, deletes them, and wakes the requests that wait for
them: fetches for data, produces for replication. Owned by the broker's loop.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial

from headrace.broker.config.dynamic import TopicConfig
from headrace.broker.partition import Partition
from headrace.broker.purgatory import Purgatory
from headrace.cluster.commands import LeaderAndIsr, PartitionState, StopReplica
from headrace.common.background import WorkResult
from headrace.common.errors import (
    KafkaError,
    KafkaStorageError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
    code_of,
)
from headrace.common.timing_wheel import Timer
from headrace.common.types import TopicPartition
from headrace.storage.directory import LogDirectory
from headrace.storage.files import DISK_FULL
from headrace.storage.log import Log
from headrace.storage.manager import LogManager

_logger = logging.getLogger(__name__)


class ReplicaManager:
    def __init__(self, node_id: int, logs: LogManager, config_of: Callable[[str], TopicConfig], timer: Timer):
        self.node_id = node_id
        self.logs = logs
        self.fetches = Purgatory("fetch", timer)
        """Waiting for data, by partition."""
        self.produces = Purgatory("produce", timer)
        """Waiting for replication, by partition."""
        self.on_role_changed: list[Callable[[Partition], None]] = []
        """Told of a partition whose leader or epoch is another now, or that is here no more."""
        self._config_of = config_of
        self._topics: dict[str, dict[int, Partition]] = {}
        self._checkpointing: set[LogDirectory] = set()

    # ---- finding

    def __iter__(self) -> Iterator[Partition]:
        return (partition for partitions in list(self._topics.values()) for partition in list(partitions.values()))

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def get(self, topic: str, index: int) -> Partition | None:
        partitions = self._topics.get(topic)
        return partitions.get(index) if partitions is not None else None

    def find(self, topic: str, index: int) -> Partition:
        """The partition, or the error that a client gets which asks for it here."""
        partition = self.get(topic, index)
        if partition is None:
            raise UnknownTopicOrPartitionError(f"this broker has no partition {topic}-{index}")
        return partition

    def leader(self, topic: str, index: int, leader_epoch: int = -1) -> Partition:
        """The partition, if this broker leads it."""
        partition = self.find(topic, index)
        partition.check_leader(leader_epoch)
        return partition

    # ---- waking

    def appended(self, partition: Partition) -> None:
        """Wakes who waits for records of a partition, or for its high watermark."""
        self.fetches.check_and_complete(partition)
        self.produces.check_and_complete(partition)

    # ---- what the controller says

    def lead_or_follow(self, command: LeaderAndIsr) -> dict[TopicPartition, int]:
        """Takes up the given roles. Returns an error code for each partition."""
        return {state.tp: self._attempt(state.tp, partial(self._become, state)) for state in command.partitions}

    def _become(self, state: PartitionState) -> None:
        tp = state.tp
        if self.node_id not in state.replicas:
            raise ReplicaNotAvailableError(f"broker {self.node_id} is not a replica of {tp}: {state.replicas}")
        partition = self.get(tp.topic, tp.partition)
        if partition is not None and state.leader_epoch < partition.leader_epoch:
            _logger.info("%s: leader epoch %d is older than the current one", partition, state.leader_epoch)
            return
        log = self._log_of(state)
        if partition is None:
            partition = Partition(tp, self.node_id, self._config_of)
            self._topics.setdefault(tp.topic, {})[tp.partition] = partition
            directory = self.logs.directory_of(tp)
            log.update_high_watermark(directory.high_watermarks.get(tp, 0) if directory is not None else 0)
        if partition.become(state, log):
            self._role_changed(partition)

    def _role_changed(self, partition: Partition) -> None:
        """Who waited did so for another leader."""
        self.fetches.check_and_complete(partition)
        self.produces.check_and_complete(partition)
        for listener in self.on_role_changed:
            listener(partition)

    def _log_of(self, state: PartitionState) -> Log:
        log = self.logs.get(state.tp)
        if log is None and not state.is_new and not all(directory.online for directory in self.logs.directories):
            # It may be in a directory that failed; an empty one elsewhere would lose its records for good.
            raise KafkaStorageError(f"the log of {state.tp} may be in a log directory that is offline")
        if log is not None and log.topic_id is not None and log.topic_id != state.topic_id:
            self._set_aside(log, f"it is of a topic with id {log.topic_id}, not {state.topic_id}")
        return self.logs.create(state.tp, state.topic_id)

    def move_stray_logs(self, is_known: Callable[[TopicPartition], bool]) -> None:
        """Takes away the logs of partitions that the cluster does not have: a topic made later must not find them under
        its name, and retention must not delete from them."""
        for log in self.logs:
            if self.get(log.tp.topic, log.tp.partition) is None and not is_known(log.tp):
                self._attempt(log.tp, partial(self._set_aside, log, "the cluster has no such partition"))

    def _set_aside(self, log: Log, reason: str) -> None:
        kept = self.logs.move_stray_log(log.tp)
        _logger.warning("the log of %s is not used, and kept in %s: %s", log.tp, kept, reason)

    def stop(self, command: StopReplica) -> dict[TopicPartition, int]:
        """Stops serving partitions and, where asked to, deletes their logs. Returns an error code for each."""
        return {tp: self._attempt(tp, partial(self._stop, tp, delete)) for tp, _, delete in command.partitions}

    def _stop(self, tp: TopicPartition, delete: bool) -> None:
        partitions = self._topics.get(tp.topic, {})
        partition = partitions.pop(tp.partition, None)
        if not partitions:
            self._topics.pop(tp.topic, None)
        if partition is not None:
            partition.is_leader = False
            self._role_changed(partition)
        if delete and self.logs.get(tp) is not None:
            self.logs.delete(tp)

    def _attempt(self, tp: TopicPartition, action: Callable[[], None]) -> int:
        try:
            action()
        except KafkaError as error:
            _logger.error("%s: %s", tp, error)
            return code_of(error)
        except Exception as error:
            # The others of the command go on, and the controller gets an answer.
            _logger.exception("%s: what the controller said could not be done", tp)
            return code_of(error)
        return 0

    # ---- disks

    def directory_failed(self, lost: list[TopicPartition]) -> None:
        """The logs of these partitions are gone with their directory."""
        for tp in lost:
            partition = self.get(tp.topic, tp.partition)
            if partition is not None:
                partition.go_offline()
                self._role_changed(partition)

    def checkpoint_high_watermarks(self) -> None:
        """Writes down how far each partition is replicated, in each log directory."""
        marks: dict[LogDirectory, dict[TopicPartition, int]] = {}
        for partition in self:
            directory = self.logs.directory_of(partition.tp)
            if partition.log is not None and directory is not None and directory.online:
                marks.setdefault(directory, {})[partition.tp] = partition.log.high_watermark
        for directory, offsets in marks.items():
            # One at a time for each directory: they go through the same temporary file.
            if directory not in self._checkpointing and offsets != directory.high_watermarks:
                self._checkpointing.add(directory)
                self.logs.runner.submit(
                    partial(directory.write_high_watermarks, offsets), partial(self._checkpointed, directory)
                )

    def _checkpointed(self, directory: LogDirectory, outcome: WorkResult) -> None:
        self._checkpointing.discard(directory)
        if isinstance(outcome.error, OSError) and outcome.error.errno in DISK_FULL:
            _logger.warning("cannot write the high watermarks to %s: %s", directory, outcome.error)
        elif outcome.error is not None:
            self.logs.fail_directory(directory, f"cannot write the high watermarks: {outcome.error}")
