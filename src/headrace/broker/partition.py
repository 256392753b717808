"""One partition on this broker: its log, and the part that this broker plays in it.

The controller makes a partition leader or follower with a `PartitionState`. As leader it takes appends, and keeps the
high watermark: the smallest log end of all replicas in sync. In a cluster of one that is its own log end.

Owned by the broker's loop.
"""

import logging
from collections.abc import Callable

from headrace.broker.config.dynamic import TopicConfig
from headrace.cluster.commands import PartitionState
from headrace.common.errors import (
    FencedLeaderEpochError,
    KafkaStorageError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    PolicyViolationError,
    UnknownLeaderEpochError,
)
from headrace.common.ids import Uuid
from headrace.common.types import Buffer, TopicPartition
from headrace.storage.log import AppendResult, Log
from headrace.storage.producer_state import AppendOrigin

_logger = logging.getLogger(__name__)

ALL_IN_SYNC = -1
"""The `acks` of a producer that waits for every replica in sync."""


class Partition:
    """Hashable by identity: it is itself the key that waiting operations are kept under."""

    __slots__ = (
        "_config_of",
        "_disk_refuses",
        "_follower_ends",
        "is_leader",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "node_id",
        "partition_epoch",
        "replicas",
        "topic_id",
        "tp",
    )

    def __init__(self, tp: TopicPartition, node_id: int, config_of: Callable[[str], TopicConfig]):
        self.tp = tp
        self.node_id = node_id
        self.topic_id: Uuid | None = None
        self.log: Log | None = None
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.is_leader = False
        self.isr: list[int] = []
        self.replicas: list[int] = []
        self._config_of = config_of
        self._disk_refuses = False
        """Whether the last append failed for the disk's sake."""
        self._follower_ends: dict[int, int] = {}
        """Where the logs of the other replicas end, as far as this leader knows."""

    def __repr__(self) -> str:
        return f"Partition({self.tp}, leader {self.leader_id}, epoch {self.leader_epoch})"

    # ---- roles

    def become(self, state: PartitionState, log: Log) -> bool:
        """Takes up the role that the controller gives. Returns whether the leader or its epoch is another now."""
        changed = state.leader_epoch != self.leader_epoch or state.leader != self.leader_id
        self.topic_id = state.topic_id
        self.log = log
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.isr = list(state.isr)
        self.replicas = list(state.replicas)
        self.is_leader = state.leader == self.node_id
        if self.is_leader:
            if changed:
                self._follower_ends.clear()
                log.epochs.assign(state.leader_epoch, log.log_end_offset)
            self.update_high_watermark()
        return changed

    def go_offline(self) -> None:
        """The log's directory has failed."""
        self.log = None
        self.is_leader = False

    def check_leader(self, current_leader_epoch: int = -1) -> Log:
        """The log, if this broker leads and the client's idea of the epoch, where it has one, is the current one."""
        if self.log is None:
            raise KafkaStorageError(f"the log directory of {self.tp} is offline")
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise FencedLeaderEpochError(
                    f"{self.tp} has leader epoch {self.leader_epoch}, the request is of {current_leader_epoch}"
                )
            raise UnknownLeaderEpochError(
                f"{self.tp} has leader epoch {self.leader_epoch} here, the request is of {current_leader_epoch}"
            )
        if not self.is_leader:
            raise NotLeaderForPartitionError(f"the leader of {self.tp} is broker {self.leader_id}")
        return self.log

    # ---- writing

    def append(self, records: Buffer, acks: int, origin: AppendOrigin = AppendOrigin.CLIENT) -> AppendResult:
        """Appends what a producer or coordinator sent. The high watermark has moved when this returns, if it could."""
        log = self.log
        if log is None or not self.is_leader:
            log = self.check_leader()
        if acks == ALL_IN_SYNC:
            self._check_enough_replicas()
        try:
            result = log.append_as_leader(records, self.leader_epoch, origin)
        except KafkaStorageError as error:
            if not self._disk_refuses:  # once: producers try again and again
                self._disk_refuses = True
                _logger.error("appends to %s fail: %s", self.tp, error)
            raise
        if self._disk_refuses:
            self._disk_refuses = False
            _logger.info("appends to %s work again", self.tp)
        self.update_high_watermark()
        return result

    def _check_enough_replicas(self) -> None:
        # No more than there are: a topic with one replica can be written to whatever is asked for, as in Kafka.
        needed = min(self._config_of(self.tp.topic).min_insync_replicas, len(self.replicas))
        if len(self.isr) < needed:
            raise NotEnoughReplicasError(f"{self.tp} has {len(self.isr)} replicas in sync, {needed} are needed")

    def is_replicated(self, last_offset: int) -> bool:
        """Whether every replica in sync has a record."""
        return self.log is not None and self.log.high_watermark > last_offset

    def update_high_watermark(self) -> bool:
        """Moves the high watermark to the smallest end of the replicas in sync. Returns whether it moved."""
        log = self.log
        if log is None:
            return False
        end = log.log_end_offset
        if len(self.isr) > 1:
            # A replica that has not fetched yet in this epoch holds it where it is.
            others = (replica for replica in self.isr if replica != self.node_id)
            end = min(end, *(self._follower_ends.get(replica, log.high_watermark) for replica in others))
        before = log.high_watermark
        if end <= before:
            return False
        return log.update_high_watermark(end) > before

    def follower_fetched(self, replica_id: int, fetch_offset: int) -> bool:
        """A follower asks for what comes from an offset on: it has all before. Returns whether that moved the mark."""
        if replica_id not in self.replicas:
            raise NotLeaderForPartitionError(f"broker {replica_id} is not a replica of {self.tp}")
        self._follower_ends[replica_id] = fetch_offset
        return self.update_high_watermark()

    # ---- reading

    def delete_records(self, before_offset: int) -> int:
        """Moves the log's start; -1 stands for the high watermark. Returns the new low watermark."""
        log = self.check_leader()
        if not log.config.delete:
            raise PolicyViolationError(f"records of {self.tp} cannot be deleted: its cleanup.policy has no delete")
        return log.delete_records(log.high_watermark if before_offset == -1 else before_offset)
