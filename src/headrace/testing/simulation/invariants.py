"""The guarantees of the cluster, checked against the logs and the memory of all brokers.

At every change of the store: see `store_invariants`. At every check (`check`), several times a second:

- a broker that leads a partition is the leader of that epoch, according to the store
- a broker has only states of a partition that the store had, and never goes back to an older one: stale controllers
  change nothing
- equal epoch and offset means an equal batch, on all brokers and at all times
- the high watermark of a leader is at most the log end of every in-sync replica
- a batch below a high watermark stays at its offset on every later leader
- an acknowledged record is at its offset on every current leader
- a log is never truncated below its high watermark
- the current group coordinator has every committed offset that was acknowledged, or a later one

Brokers learn topic ids from `inter.broker.protocol.version` 2.8 on. Below, nothing tells a topic from a deleted one
with the same name, in Kafka either: partitions of such topics are checked only at the end.

At the end (`unsettled`), when all faults are over: every partition has a leader, all its replicas are in sync and
equal, and every broker's metadata match the store.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from headrace.broker.config.coordinators import GROUP_TOPIC
from headrace.broker.partition import Partition
from headrace.cluster import znodes
from headrace.cluster.znodes import Leadership
from headrace.common.errors import HeadraceError
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition
from headrace.records import RecordBatch
from headrace.storage.leader_epoch_cache import EpochEntry
from headrace.storage.log import Log
from headrace.testing.simulation.cluster import SimulatedBroker, SimulatedCluster
from headrace.testing.simulation.history import History, InvariantViolation
from headrace.testing.simulation.store_invariants import StoreInvariants

_Batch = tuple[int, int, int]
"""Next offset, leader epoch and checksum of a batch; its key is its base offset."""


@dataclass(eq=False)
class _Replica:
    """What is known of a log of one process."""

    log: Log
    batches: dict[int, _Batch] = field(default_factory=dict)
    values: dict[int, bytes | None] = field(default_factory=dict)
    """The values of records by offset, of the topics that clients write to."""
    end: int = 0
    epochs: tuple[EpochEntry, ...] = ()
    high_watermark: int = 0
    verified: int = 0
    """The number of committed batches that the log is known to contain."""
    acknowledged: int = 0
    """The number of acknowledged records that the log is known to contain."""
    state: tuple[int, int] = (-1, -1)
    """Leader epoch and partition epoch."""

    def forget_batches(self) -> None:
        self.batches.clear()
        self.values.clear()
        self.verified = self.acknowledged = 0
        self.end = self.log.log_start_offset


@dataclass(eq=False)
class _Committed:
    """The batches of a partition below the highest high watermark that a leader had."""

    batches: dict[int, _Batch] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    end: int = 0
    epoch: int = 0
    """The leader epoch in which the last batch was committed."""
    by_epoch: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """Every batch that was ever seen: by epoch and base offset."""


class Invariants:
    """The checks of one run. `check` is called repeatedly."""

    def __init__(self, cluster: SimulatedCluster, history: History | None = None):
        self._cluster = cluster
        self._history = history if history is not None else History()
        self.store = StoreInvariants(cluster)
        self._replicas: dict[Log, _Replica] = {}
        self._committed: dict[tuple[str, str, int], _Committed] = {}
        self.truncations = 0
        self.allow_truncation = False
        """True while a log may lose committed records: unclean election, or disks that lose synced data."""

    # ---- brokers

    def check(self) -> None:
        """Raises InvariantViolation if a guarantee is broken."""
        if self.store.violation is not None:
            raise self.store.violation
        partitions = [(broker, self._partitions(broker)) for broker in self._running()]
        for broker, found in partitions:
            for partition in found:
                self._check_replica(broker, partition)
        for broker, found in partitions:
            for partition in found:
                if partition.is_leader and partition.log is not None:
                    self._check_leader(broker, partition, partition.log)
            self._check_group_offsets(broker)

    def _running(self) -> list[SimulatedBroker]:
        return [broker for broker in self._cluster.brokers.values() if broker.node is not None and broker.is_running]

    def _partitions(self, broker: SimulatedBroker) -> list[Partition]:
        partitions = [partition for partition in broker.broker.replicas if self._topic_id(partition)]
        return sorted(partitions, key=lambda partition: partition.tp)

    def _topic_id(self, partition: Partition) -> str:
        """Returns the topic id of a partition, or an empty text if nobody knows it."""
        if partition.topic_id is not None and partition.topic_id != ZERO_UUID:
            return str(partition.topic_id)
        known = self.store.topic_ids.get(partition.tp.topic, {})
        return next(iter(known)) if len(known) == 1 else ""

    def _committed_of(self, partition: Partition) -> _Committed:
        return self._committed.setdefault((self._topic_id(partition), *partition.tp), _Committed())

    def _check_replica(self, broker: SimulatedBroker, partition: Partition) -> None:
        log = partition.log
        if log is None:
            return
        replica = self._replicas.get(log)
        if replica is None:
            replica = self._replicas[log] = _Replica(log)
        where = f"{partition.tp} on {broker.name}"
        self._check_state(partition, replica, where)
        if log.log_end_offset < replica.high_watermark and not self.allow_truncation:
            raise InvariantViolation(
                f"{where} was truncated to {log.log_end_offset}, below its high watermark {replica.high_watermark}"
            )
        if log.high_watermark > log.log_end_offset:
            raise InvariantViolation(f"{where}: high watermark {log.high_watermark} > log end {log.log_end_offset}")
        replica.high_watermark = max(replica.high_watermark, log.high_watermark)
        self._scan(partition, replica, where)

    def _check_state(self, partition: Partition, replica: _Replica, where: str) -> None:
        """Compares the state that the broker got from a controller with the states that the store had."""
        epochs = partition.leader_epoch, partition.partition_epoch
        if epochs < replica.state:
            raise InvariantViolation(
                f"{where} went back from leader epoch and partition epoch {replica.state} to {epochs}"
            )
        replica.state = epochs
        path = znodes.state_path(partition.tp)
        state = self.store.states.get((self._topic_id(partition), path, partition.partition_epoch))
        if state is None:
            return  # the topic was deleted before the store's change was checked
        if (state.leader, state.leader_epoch) != (partition.leader_id, partition.leader_epoch):
            raise InvariantViolation(f"{where} has {partition!r}, the store never had it: {state}")
        if partition.is_leader and set(partition.isr) != set(state.isr):
            raise InvariantViolation(f"{where} has ISR {partition.isr}, the store never had it: {state}")

    def _scan(self, partition: Partition, replica: _Replica, where: str) -> None:
        """Reads the batches that are new since the last check. Reads everything again after a truncation."""
        log = replica.log
        epochs = tuple(log.epochs.entries)
        if log.log_end_offset == replica.end and epochs == replica.epochs:
            return
        known = len(replica.epochs)
        is_rewritten = epochs[:known] != replica.epochs or any(new.start_offset < replica.end for new in epochs[known:])
        if log.log_end_offset < replica.end or is_rewritten:
            self.truncations += 1
            replica.forget_batches()
        seen = self._committed_of(partition).by_epoch
        has_values = partition.tp in self._history.sent
        try:
            for batch in log.batches(max(replica.end, log.log_start_offset)):
                found = (batch.next_offset, batch.crc)
                key = (batch.leader_epoch, batch.base_offset)
                if seen.setdefault(key, found) != found:
                    raise InvariantViolation(
                        f"{where}: offset {batch.base_offset} of epoch {batch.leader_epoch} differs between brokers: "
                        f"{found} and {seen[key]}"
                    )
                replica.batches[batch.base_offset] = (batch.next_offset, batch.leader_epoch, batch.crc)
                if has_values:
                    replica.values.update(_values(batch))
        except (OSError, HeadraceError) as error:
            self._cluster.note(f"cannot check {where}: {error}")
            return
        replica.end = log.log_end_offset
        replica.epochs = epochs

    def _check_leader(self, broker: SimulatedBroker, partition: Partition, log: Log) -> None:
        replica = self._replicas[log]
        committed = self._committed_of(partition)
        where = f"{partition.tp} on its leader {broker.name} in epoch {partition.leader_epoch}"
        self._check_is_leader(broker, partition, where)
        self._check_in_sync_replicas(partition, log, where)
        is_scanned = replica.end == log.log_end_offset
        if partition.leader_epoch >= committed.epoch and is_scanned:
            self._check_committed(replica, committed, where)
        if is_scanned and self._leads_now(broker, partition):
            self._check_acknowledged(partition.tp, replica, where)
        if log.high_watermark > committed.end and replica.end >= log.high_watermark:
            for base in sorted(base for base in replica.batches if committed.end <= base < log.high_watermark):
                committed.batches[base] = replica.batches[base]
                committed.order.append(base)
            committed.end = log.high_watermark
            committed.epoch = max(committed.epoch, partition.leader_epoch)

    def _check_is_leader(self, broker: SimulatedBroker, partition: Partition, where: str) -> None:
        path = znodes.state_path(partition.tp)
        leader = self.store.leader_of(self._topic_id(partition), path, partition.leader_epoch, broker.id)
        if leader != broker.id:
            raise InvariantViolation(f"{where}: the store has broker {leader} as leader of this epoch")

    def _leads_now(self, broker: SimulatedBroker, partition: Partition) -> bool:
        """Returns True if a broker is the leader of the newest epoch, and knows it."""
        state = self.store.leaderships.get(znodes.state_path(partition.tp))
        return (
            partition.is_leader
            and state is not None
            and (state.leader, state.leader_epoch) == (broker.id, partition.leader_epoch)
        )

    def _check_in_sync_replicas(self, partition: Partition, log: Log, where: str) -> None:
        state = self.store.leaderships.get(znodes.state_path(partition.tp))
        if state is None or state.leader_epoch != partition.leader_epoch:
            return
        for other in self._running():
            found = other.broker.replicas.get(*partition.tp)
            if other.id not in state.isr or found is None or found.log is None:
                continue
            if found.topic_id == partition.topic_id and found.log.log_end_offset < log.high_watermark:
                raise InvariantViolation(
                    f"{where}: high watermark {log.high_watermark}, but the log of broker {other.id} ends at "
                    f"{found.log.log_end_offset}, and it is in the ISR {state.isr}"
                )

    def _check_committed(self, replica: _Replica, committed: _Committed, where: str) -> None:
        while replica.verified < len(committed.order):
            base = committed.order[replica.verified]
            if base >= replica.log.log_start_offset and replica.batches.get(base) != committed.batches[base]:
                raise InvariantViolation(
                    f"{where}: the committed batch at offset {base} was {committed.batches[base]} (next offset, epoch, "
                    f"checksum), and is {replica.batches.get(base)}; the log ends at {replica.log.log_end_offset}"
                )
            replica.verified += 1

    def _check_acknowledged(self, tp: TopicPartition, replica: _Replica, where: str) -> None:
        acknowledged = self._history.acknowledged.get(tp, {})
        for offset, value in islice(acknowledged.items(), replica.acknowledged, None):
            if offset >= replica.log.log_start_offset and replica.values.get(offset) != value:
                raise InvariantViolation(
                    f"{where}: {value!r} was acknowledged at offset {offset}, where the log has "
                    f"{replica.values.get(offset)!r}; it ends at {replica.log.log_end_offset}"
                )
            replica.acknowledged += 1

    def _check_group_offsets(self, broker: SimulatedBroker) -> None:
        """Only of the current leader: a coordinator that was replaced may not know it, and answers with old offsets."""
        partition = broker.broker.replicas.get(GROUP_TOPIC, 0)
        if partition is None or not self._leads_now(broker, partition):
            return
        for shard in broker.broker.coordinators.groups.shards():
            for (group, tp), expected in self._history.committed_offsets.items():
                found = shard.offsets_of(group).get(*tp)
                if found is None or found.offset < expected:
                    raise InvariantViolation(
                        f"The coordinator {broker.name} has {found} as committed offset of group {group} in {tp}, "
                        f"but {expected} was committed"
                    )

    # ---- the end

    def unsettled(self) -> str | None:
        """Returns what still differs from a healthy, idle cluster; None if nothing does."""
        brokers = self._running()
        if len(brokers) < len(self._cluster.brokers):
            return "a broker is not running"
        for topic in self.store.topics():
            for partition, replicas in sorted(topic.partitions.items()):
                reason = self._unsettled_partition(TopicPartition(topic.name, partition), topic.id, replicas)
                if reason is not None:
                    return reason
        return None

    def _unsettled_partition(self, tp: TopicPartition, topic_id: str, replicas: tuple[int, ...]) -> str | None:
        state = self.store.leaderships.get(znodes.state_path(tp))
        if state is None or state.leader == -1:
            return f"{tp} has no leader: {state}"
        if set(state.isr) != set(replicas):
            return f"{tp} is not in sync: {state}, assigned to {replicas}"
        ends = set()
        for broker_id in replicas:
            partition = self._cluster.brokers[broker_id].broker.replicas.get(*tp)
            if partition is None or partition.log is None or not _is_same(partition.topic_id, topic_id):
                return f"{tp} is missing on broker {broker_id}"
            if (partition.leader_id, partition.leader_epoch) != (state.leader, state.leader_epoch):
                return f"{tp}: broker {broker_id} has {partition!r}, the store has {state}"
            ends.add((partition.log.log_start_offset, partition.log.high_watermark, partition.log.log_end_offset))
        if len(ends) > 1 or any(high != end for _, high, end in ends):
            return f"{tp}: the replicas differ (log start, high watermark, log end): {sorted(ends)}"
        return self._unsettled_metadata(tp, topic_id, state)

    def _unsettled_metadata(self, tp: TopicPartition, topic_id: str, state: Leadership) -> str | None:
        for broker in self._running():
            image = broker.broker.image
            if not _is_same(image.topic_id(tp.topic), topic_id):
                return f"{tp}: broker {broker.id} has topic id {image.topic_id(tp.topic)}, the store has {topic_id}"
            found = image.partition(*tp)
            if found is None or (found.leader, found.leader_epoch, set(found.isr)) != (
                state.leader,
                state.leader_epoch,
                set(state.isr),
            ):
                return f"{tp}: the metadata of broker {broker.id} have {found}, the store has {state}"
        return None


def _is_same(found: Uuid | None, topic_id: str) -> bool:
    """Returns True if a broker has this topic id, or none because the protocol between brokers has no ids."""
    return found is not None and (found == ZERO_UUID or str(found) == topic_id)


def _values(batch: RecordBatch) -> Iterable[tuple[int, bytes | None]]:
    """Returns the values of a batch by offset; none of a transaction marker."""
    if batch.is_control:
        return ()
    records = batch.records()
    return [(offset, records.value(index)) for index, offset in enumerate(records.offsets())]
