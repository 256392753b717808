"""One partition on this broker: its log, and this broker's role in it.

The controller makes this broker leader or follower of the partition with a `PartitionState`. The leader accepts appends
and maintains the high watermark: the smallest log end offset of the in-sync replicas. In a cluster of one broker that
is its own log end offset.

Owned by the broker's loop.
"""

import logging
from collections.abc import Callable

from headrace.broker._fast_produce import PartitionFields
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
from headrace.storage.validation import ValidatedBatches

_logger = logging.getLogger(__name__)

ALL_IN_SYNC = -1
"""The `acks` of a producer that waits for all in-sync replicas."""


class Partition(PartitionFields):
    """A replica of a partition: leadership, in-sync replicas, high watermark. Purgatories use it as a key."""

    __slots__ = (
        "_config_of",
        "_follower_ends",
        "leader_id",
        "node_id",
        "partition_epoch",
        "topic_id",
        "tp",
    )
    log: Log | None

    def __init__(self, tp: TopicPartition, node_id: int, config_of: Callable[[str], TopicConfig]):
        self.tp = tp
        self.node_id = node_id
        self.topic_id: Uuid | None = None
        self.log = None
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.is_leader = False
        self.isr = []
        self.replicas = []
        self._config_of = config_of
        self._append_failing = False
        """True if the last append failed with a storage error."""
        self._follower_ends: dict[int, int] = {}
        """The log end offsets of the followers, as known from their fetches in this leader epoch."""

    def __repr__(self) -> str:
        return f"Partition({self.tp}, leader {self.leader_id}, epoch {self.leader_epoch})"

    # ---- roles

    def become(self, state: PartitionState, log: Log) -> bool:
        """Applies the role that the controller assigned. Returns True if the leader or its epoch changed."""
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
        """Gives up the log, whose directory has failed."""
        self.log = None
        self.is_leader = False

    def check_leader(self, current_leader_epoch: int = -1) -> Log:
        """Returns the log if this broker leads the partition, and the client's leader epoch, if given, is current."""
        if self.log is None:
            raise KafkaStorageError(f"The log directory of partition {self.tp} is offline")
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise FencedLeaderEpochError(
                    f"Partition {self.tp} has leader epoch {self.leader_epoch}, the request has the older epoch "
                    f"{current_leader_epoch}"
                )
            raise UnknownLeaderEpochError(
                f"Partition {self.tp} has leader epoch {self.leader_epoch} on this broker, the request has the newer "
                f"epoch {current_leader_epoch}"
            )
        if not self.is_leader:
            raise NotLeaderForPartitionError(
                f"This broker is not the leader of partition {self.tp}, broker {self.leader_id} is"
            )
        return self.log

    # ---- writing

    def append(
        self,
        records: Buffer | ValidatedBatches,
        acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        max_inline_bytes: int | None = None,
    ) -> AppendResult:
        """Appends a batch of a producer or coordinator, and advances the high watermark if possible.

        Raises LargeBatchError, and appends nothing, if the batch is larger than `max_inline_bytes` uncompressed.
        """
        log = self.log
        if log is None or not self.is_leader:
            log = self.check_leader()
        if acks == ALL_IN_SYNC:
            self._check_enough_replicas()
        try:
            result = log.append_as_leader(records, self.leader_epoch, origin, max_inline_bytes)
        except KafkaStorageError as error:
            if not self._append_failing:  # log it once: producers retry
                self._append_failing = True
                _logger.error("Partition %s: appends fail, producers get KAFKA_STORAGE_ERROR: %s", self.tp, error)
            raise
        if self._append_failing:
            self._append_failing = False
            _logger.info("Partition %s: appends succeed again", self.tp)
        self.update_high_watermark()
        return result

    def _check_enough_replicas(self) -> None:
        # At most the number of replicas, as in Kafka: a topic with one replica stays writable.
        required = min(self._config_of(self.tp.topic).min_insync_replicas, len(self.replicas))
        if len(self.isr) < required:
            raise NotEnoughReplicasError(
                f"The size of the current ISR {self.isr} is insufficient to satisfy the min.isr requirement of "
                f"{required} for partition {self.tp}"
            )

    def is_replicated(self, last_offset: int) -> bool:
        """Returns True if all in-sync replicas have the record at an offset."""
        return self.log is not None and self.log.high_watermark > last_offset

    def update_high_watermark(self) -> bool:
        """Advances the high watermark to the smallest log end of the in-sync replicas. Returns True if it advanced."""
        log = self.log
        if log is None:
            return False
        end = log.log_end_offset
        if len(self.isr) > 1:
            # A follower that has not fetched in this epoch yet keeps the high watermark where it is.
            others = (replica for replica in self.isr if replica != self.node_id)
            end = min(end, *(self._follower_ends.get(replica, log.high_watermark) for replica in others))
        before = log.high_watermark
        if end <= before:
            return False
        return log.update_high_watermark(end) > before

    def check_replica(self, broker_id: int) -> None:
        """Raises NotLeaderForPartitionError if a broker has no replica of this partition."""
        if broker_id not in self.replicas:
            raise NotLeaderForPartitionError(f"Broker {broker_id} is not a replica of partition {self.tp}")

    def follower_fetched(self, replica_id: int, fetch_offset: int) -> bool:
        """Notes that a follower has everything below an offset of this log. Returns True if the high watermark
        advanced."""
        self._follower_ends[replica_id] = fetch_offset
        return self.update_high_watermark()

    # ---- deleting

    def delete_records(self, before_offset: int) -> int:
        """Deletes the records before an offset (-1: the high watermark). Returns the new log start offset."""
        log = self.check_leader()
        if log.config.compact and not log.config.delete:
            raise PolicyViolationError(
                f"Records of partition {self.tp} can not be deleted due to the configured policy: its cleanup.policy "
                "is compact"
            )
        return log.delete_records(log.high_watermark if before_offset == -1 else before_offset)
