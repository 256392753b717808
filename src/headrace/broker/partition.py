"""One partition on this broker: its log, and this broker's role in it.

The controller makes this broker leader or follower of the partition with a `PartitionState`. The leader accepts appends
and maintains the high watermark: the smallest log end offset of the in-sync replicas. In a cluster of one broker that
is its own log end offset.

The leader proposes changes of the in-sync replicas (ISR), and the controller decides:

    committed ISR ── a follower has caught up ──→ pending expansion ─┬─ accepted ─→ new committed ISR
                  ── a follower lags too long ──→ pending shrinkage ─┴─ rejected ─→ see `_ROLLED_BACK`

- While a change is pending, the high watermark waits for the **maximal ISR**: all replicas that are in sync before or
  after the change. Nobody knows yet which of the two the controller will elect a leader from.
- A pending change ends only with the controller's answer to it, or with a newer partition epoch. An expansion that the
  controller has accepted, but that its leader has forgotten, would lose acknowledged records in the next election.
- The high watermark also waits for a follower outside of the ISR that has caught up recently: it is about to join.
- The high watermark stays where it is while fewer than `min.insync.replicas` are in sync (KIP-966).

Owned by the broker's loop.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.broker._fast_produce import PartitionFields
from headrace.broker.config.dynamic import TopicConfig
from headrace.broker.replication.remote_replica import RemoteReplica
from headrace.broker.traffic import Traffic
from headrace.cluster.commands import PartitionState
from headrace.cluster.controller_requests import IsrChange
from headrace.cluster.znodes import Leadership
from headrace.common.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    KafkaError,
    KafkaStorageError,
    NewLeaderElectedError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OperationNotAttemptedError,
    PolicyViolationError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import Uuid
from headrace.common.types import Buffer, TopicPartition
from headrace.records import split_batches
from headrace.storage.files import DiskFullError
from headrace.storage.log import AppendResult, Log
from headrace.storage.producer_state import AppendOrigin
from headrace.storage.validation import ValidatedBatches

_logger = logging.getLogger(__name__)

ALL_IN_SYNC = -1
"""The `acks` of a producer that waits for all in-sync replicas."""


_ROLLED_BACK = (IneligibleReplicaError, OperationNotAttemptedError)
"""The controller has certainly not made the change, and the committed ISR is current."""
_GIVEN_UP = (
    FencedLeaderEpochError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NewLeaderElectedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
"""The controller knows a newer state of the partition, and sends it. The change stays pending until then."""


@dataclass(slots=True)
class PartitionContext:
    """What all partitions of a broker share."""

    node_id: int
    config_of: Callable[[str], TopicConfig]
    now_ms: Callable[[], int] = lambda: 0
    """Monotonic time."""
    lag_time_max_ms: int = 30_000
    is_alive: Callable[[int], bool] = lambda _: True
    """Returns True if a broker is alive according to the metadata image."""
    broker_epoch: Callable[[], int] = lambda: -1
    """Returns the epoch of this broker."""
    submit_isr_change: "Callable[[Partition, IsrChange], bool]" = lambda *_: False
    """Sends an ISR change to the controller. Returns False if another one of the partition is in flight."""
    on_append_failed: "Callable[[Partition, KafkaStorageError], None]" = lambda *_: None
    """Called by a leader that cannot write its log, and that other replicas can replace."""
    traffic: Traffic = field(default_factory=Traffic)
    isr_shrinks: int = 0
    """How many replicas of led partitions have fallen out of sync, and have got in sync again."""
    isr_expands: int = 0


def appendable_bytes(records: Buffer, leader_epoch: int) -> int:
    """Returns the size of the batches that a follower may append in a leader epoch.

    A response is cut at its maximum size, also within a batch. And it may contain batches of a newer leader: the old
    one may have truncated and overwritten its file while it sent the response.
    """
    batches = split_batches(records, allow_partial=True)
    if any(batch.leader_epoch > leader_epoch for batch in batches):
        return next(batch.position for batch in batches if batch.leader_epoch > leader_epoch)
    return batches[-1].position + batches[-1].size_in_bytes if batches else 0


class Partition(PartitionFields):
    """A replica of a partition: leadership, in-sync replicas, high watermark. Purgatories use it as a key."""

    __slots__ = (
        "_context",
        "adding_replicas",
        "followers",
        "leader_epoch_start",
        "leader_id",
        "partition_epoch",
        "pending_isr",
        "topic_id",
        "tp",
    )
    log: Log | None

    def __init__(self, tp: TopicPartition, context: PartitionContext):
        self.tp = tp
        self.topic_id: Uuid | None = None
        self.log = None
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.is_leader = False
        self.isr = []
        """The committed in-sync replicas."""
        self.replicas = []
        self.adding_replicas: tuple[int, ...] = ()
        """The replicas that a reassignment adds. They do not count as out of sync."""
        self.pending_isr: IsrChange | None = None
        """The change of the ISR that the controller has not answered yet."""
        self.followers: dict[int, RemoteReplica] = {}
        """The other replicas by broker id, on the leader."""
        self.leader_epoch_start: int | None = None
        """The log end offset when this broker became leader in this epoch; None on a follower."""
        self._context = context
        self.traffic = context.traffic.of(tp.topic)
        self._append_failing = False
        """True if the last append failed with a storage error."""

    def __repr__(self) -> str:
        return f"Partition({self.tp}, leader {self.leader_id}, epoch {self.leader_epoch})"

    @property
    def node_id(self) -> int:
        return self._context.node_id

    # ---- roles

    def become(self, state: PartitionState, log: Log) -> bool:
        """Applies the role that the controller assigned. Returns True if the leader or its epoch changed."""
        changed = state.leader_epoch != self.leader_epoch or state.leader != self.leader_id
        if changed or state.partition_epoch != self.partition_epoch:
            self.pending_isr = None  # it was based on an older state, so the controller rejects it
        self.topic_id = state.topic_id
        self.log = log
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.isr = list(state.isr)
        self.replicas = list(state.replicas)
        self.adding_replicas = state.adding
        self.is_leader = state.leader == self.node_id
        if self.is_leader:
            self._set_followers(restart=changed)
            if changed:
                self.leader_epoch_start = log.log_end_offset
                log.start_leader_epoch(state.leader_epoch)
            self.update_high_watermark()
        else:
            self.leader_epoch_start = None
            self.followers.clear()
        return changed

    def _set_followers(self, restart: bool) -> None:
        """Makes `followers` match the assignment. With `restart`, a new leader epoch begins."""
        ids = {*self.replicas, *self.isr} - {self.node_id}
        for removed in self.followers.keys() - ids:
            del self.followers[removed]
        for broker_id in sorted(ids):
            follower = self.followers.get(broker_id)
            if follower is None or restart:
                follower = self.followers[broker_id] = RemoteReplica(broker_id)
                follower.reset(broker_id in self.isr, self._context.now_ms())

    def go_offline(self) -> None:
        """Gives up the log, whose directory has failed."""
        self.log = None
        self.resign()

    def resign(self) -> None:
        """Stops leading: the replica is stopped, or cannot be written."""
        self.is_leader = False
        self.pending_isr = None
        self.leader_epoch_start = None
        self.followers.clear()

    def check_leader(self, current_leader_epoch: int = -1) -> Log:
        """Returns the log if this broker leads the partition, and the client's leader epoch, if given, is current."""
        log = self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise NotLeaderForPartitionError(
                f"This broker is not the leader of partition {self.tp}, broker {self.leader_id} is"
            )
        return log

    def check_epoch(self, current_leader_epoch: int = -1) -> Log:
        """Returns the log if the client's leader epoch, if given, is current. Followers serve consumers, too."""
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
            if len(self.isr) > 1 and not isinstance(error, DiskFullError):
                self._context.on_append_failed(self, error)
            raise
        if self._append_failing:
            self._append_failing = False
            _logger.info("Partition %s: appends succeed again", self.tp)
        if not result.duplicate:
            self.traffic.messages_in += result.last_offset - result.base_offset + 1
            self.traffic.bytes_in += len(records.data if isinstance(records, ValidatedBatches) else records)
        self.update_high_watermark()
        return result

    def append_as_follower(self, records: Buffer, high_watermark: int, log_start_offset: int) -> bool:
        """Appends the leader's batches, except an incomplete last one and those of newer leaders, and adopts its high
        watermark and log start offset. Returns True if the high watermark advanced."""
        log = self.log
        if log is None or self.is_leader:
            raise NotLeaderForPartitionError(f"This broker does not follow partition {self.tp}")
        size = appendable_bytes(records, self.leader_epoch) if records else 0
        if size:
            log.append_as_follower(memoryview(records)[:size])
            self.traffic.replication_bytes_in += size
        before = log.high_watermark
        # It never goes back: a new leader may not know yet that its predecessor has committed these records.
        if before < log.log_end_offset and before < high_watermark:
            log.update_high_watermark(high_watermark)
        if log_start_offset > log.log_start_offset:
            log.increment_log_start_offset(min(log_start_offset, log.high_watermark))
        return log.high_watermark > before

    def _check_enough_replicas(self) -> None:
        required = self.min_isr
        if len(self.isr) < required:
            raise NotEnoughReplicasError(
                f"The size of the current ISR {self.isr} is insufficient to satisfy the min.isr requirement of "
                f"{required} for partition {self.tp}"
            )

    @property
    def min_isr(self) -> int:
        """The `min.insync.replicas` of the topic, at most the number of replicas, as in Kafka."""
        if len(self.replicas) == 1:
            return 1
        return min(self._context.config_of(self.tp.topic).min_insync_replicas, len(self.replicas))

    @property
    def has_enough_replicas(self) -> bool:
        """True if `min.insync.replicas` are in sync. A replica that is about to leave or to join counts."""
        return len(self.maximal_isr) >= self.min_isr

    def is_replicated(self, last_offset: int) -> bool:
        """Returns True if all in-sync replicas have the record at an offset."""
        return self.log is not None and self.log.high_watermark > last_offset

    def update_high_watermark(self) -> bool:
        """Advances the high watermark to the smallest log end of the replicas that count (see the module). Returns True
        if it advanced."""
        log = self.log
        if log is None:
            return False
        before, end = log.high_watermark, log.log_end_offset
        if end <= before:
            return False
        if self.followers:
            if len(self.isr) < self.min_isr:
                return False
            end = self._replicated_end(end)
            if end <= before:
                return False
        try:
            log.flush_if_overdue()
        except KafkaStorageError as error:
            _logger.debug("Partition %s: the high watermark stays at %d: %s", self.tp, before, error)
            return False
        return log.update_high_watermark(end) > before

    def _replicated_end(self, leader_end: int) -> int:
        end = leader_end
        maximal_isr = self.maximal_isr
        for broker_id, follower in self.followers.items():
            if follower.log_end_offset < end and (
                broker_id in maximal_isr or self._is_about_to_join(follower, leader_end)
            ):
                end = follower.log_end_offset
        return end

    def _is_about_to_join(self, follower: RemoteReplica, leader_end: int) -> bool:
        context = self._context
        return follower.is_caught_up(leader_end, context.now_ms(), context.lag_time_max_ms) and context.is_alive(
            follower.broker_id
        )

    # ---- followers

    def check_replica(self, broker_id: int) -> None:
        """Raises NotLeaderForPartitionError if a broker has no replica of this partition."""
        if broker_id not in self.replicas:
            raise NotLeaderForPartitionError(f"Broker {broker_id} is not a replica of partition {self.tp}")

    def follower_fetched(
        self, replica_id: int, fetch_offset: int, log_start_offset: int = -1, broker_epoch: int = -1
    ) -> bool:
        """Notes that a follower has everything below an offset of this log, adds it to the ISR if it has caught up.
        Returns True if the high watermark advanced."""
        follower, log = self.followers.get(replica_id), self.log
        if follower is None or log is None:
            return False
        follower.fetched(fetch_offset, log_start_offset, log.log_end_offset, broker_epoch, self._context.now_ms())
        self._expand_isr(follower, log)
        return self.update_high_watermark()

    def low_watermark(self) -> int:
        """Returns the smallest log start offset of the live replicas. All of them have deleted the records below it."""
        log = self.check_leader()
        return min(
            (
                follower.log_start_offset
                for follower in self.followers.values()
                if self._context.is_alive(follower.broker_id) and follower.log_start_offset < log.log_start_offset
            ),
            default=log.log_start_offset,
        )

    # ---- in-sync replicas

    @property
    def maximal_isr(self) -> "list[int] | set[int]":
        """The in-sync replicas before and after the pending change."""
        return self.isr if self.pending_isr is None else {*self.isr, *self.pending_isr.isr}

    def _expand_isr(self, follower: RemoteReplica, log: Log) -> None:
        """Proposes to add a follower to the ISR if it has all committed records and those before this epoch."""
        if (
            follower.broker_id not in self.isr
            and self.pending_isr is None
            and self.leader_epoch_start is not None
            and follower.log_end_offset >= max(log.high_watermark, self.leader_epoch_start)
            and self._context.is_alive(follower.broker_id)
        ):
            self._propose((*self.isr, follower.broker_id))

    def shrink_isr(self) -> None:
        """Proposes to remove the followers from the ISR that have not caught up for `replica.lag.time.max.ms`."""
        log, context = self.log, self._context
        if not self.is_leader or log is None or self.pending_isr is not None or len(self.isr) < 2:
            return
        now_ms = context.now_ms()
        lagging = [
            follower
            for follower in self.followers.values()
            if follower.broker_id in self.isr
            and not follower.is_caught_up(log.log_end_offset, now_ms, context.lag_time_max_ms)
        ]
        if not lagging:
            return
        out_of_sync = {follower.broker_id for follower in lagging}
        isr = tuple(broker_id for broker_id in self.isr if broker_id not in out_of_sync)
        if self._propose(isr):
            _logger.warning(
                "Partition %s: shrinking the ISR from %s to %s: the other replicas have not caught up for %d ms (high "
                "watermark %d, log end %d, out of sync: %s)",
                self.tp,
                self.isr,
                list(isr),
                context.lag_time_max_ms,
                log.high_watermark,
                log.log_end_offset,
                ", ".join(f"broker {follower.broker_id} at {follower.log_end_offset}" for follower in lagging),
            )

    def _propose(self, isr: tuple[int, ...]) -> bool:
        change = IsrChange(
            self.leader_epoch, self.partition_epoch, isr, self._broker_epochs(isr), topic_id=self.topic_id
        )
        # Pending before it is sent: the high watermark must not pass the maximal ISR at any time.
        self.pending_isr = change
        if not self._context.submit_isr_change(self, change):
            self.pending_isr = None
            return False
        if len(isr) > len(self.isr):
            _logger.info("Partition %s: expanding the ISR from %s to %s", self.tp, self.isr, list(isr))
        return True

    def _broker_epochs(self, isr: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the broker epochs of an ISR, as known from fetches: the controller rejects a replica that has
        restarted since, because it may have lost records (KIP-903)."""
        return tuple(
            self._context.broker_epoch() if broker_id == self.node_id else self.followers[broker_id].broker_epoch
            for broker_id in isr
        )

    def isr_change_answered(self, change: IsrChange, answer: Leadership | KafkaError) -> bool:
        """Applies the controller's answer to a pending change, unless the partition's state has changed meanwhile.

        Returns False if the change must be sent again.
        """
        if self.pending_isr is not change:
            return True
        if isinstance(answer, KafkaError):
            if isinstance(answer, _ROLLED_BACK):
                self.pending_isr = None
            elif not isinstance(answer, _GIVEN_UP):
                return False
            _logger.warning(
                "Partition %s: the controller rejected ISR %s in leader epoch %d and partition epoch %d: %s",
                self.tp,
                list(change.isr),
                change.leader_epoch,
                change.partition_epoch,
                answer,
            )
            return True
        if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
            return True  # the controller sends the newer state
        self.pending_isr = None
        self._context.isr_shrinks += len(set(self.isr) - set(answer.isr))
        self._context.isr_expands += len(set(answer.isr) - set(self.isr))
        self.isr = list(answer.isr)
        self.partition_epoch = answer.partition_epoch
        _logger.info("Partition %s: the ISR is %s in partition epoch %d", self.tp, self.isr, self.partition_epoch)
        self.update_high_watermark()
        return True

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
