"""Reads many partitions for one fetch, and delays the fetch while there is too little to read.

A fetch limits the bytes over all its partitions. They are read in the order of the request until the limit is reached.
The first batch is returned whole even if it is larger, so that a consumer always makes progress. Record bytes are not
copied: a response holds slices of files.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace.broker.fetch_sessions import FetchedPartition
from headrace.broker.partition import Partition
from headrace.broker.purgatory import DelayedOperation
from headrace.broker.replica_manager import ReplicaManager
from headrace.common.errors import (
    InconsistentTopicIdError,
    KafkaError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnsupportedCompressionTypeError,
)
from headrace.storage.log import FetchIsolation, ReadResult

_logger = logging.getLogger(__name__)

CONSUMER = -1
"""The replica id of a consumer."""
READ_COMMITTED = 1
_FIRST_WITH_ZSTD = 10


def fetch_isolation(replica_id: int, isolation_level: int) -> FetchIsolation:
    """Returns the offset up to which a reader may read. A follower (`replica_id` >= 0) reads up to the log end."""
    if replica_id >= 0:
        return FetchIsolation.LOG_END
    return FetchIsolation.TXN_COMMITTED if isolation_level == READ_COMMITTED else FetchIsolation.HIGH_WATERMARK


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The parameters of a fetch: how many bytes, how long it waits for them, and how far it may read."""

    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    isolation: FetchIsolation
    replica_id: int = CONSUMER
    api_version: int = 18
    replica_epoch: int = -1
    """The broker epoch of a follower (KIP-903)."""
    client_rack: str | None = None
    """The rack of a consumer, empty if it has none. None if it can fetch only from leaders (before version 11)."""


class PartitionRead:
    """The outcome of reading one partition: a result, an error, or the epoch at which the reader's log diverges."""

    __slots__ = ("diverging_epoch", "error", "fetched", "partition", "preferred_replica", "result")

    def __init__(self, fetched: FetchedPartition):
        self.fetched = fetched
        self.partition: Partition | None = None
        self.result: ReadResult | None = None
        self.error: KafkaError | None = None
        self.diverging_epoch: tuple[int, int] | None = None
        self.preferred_replica: int | None = None
        """The broker from which the consumer should fetch instead (KIP-392)."""

    @property
    def size(self) -> int:
        return self.result.slice.size if self.result is not None and self.result.slice is not None else 0


class Reads:
    """The outcome of reading the partitions of a fetch."""

    __slots__ = ("_remaining_bytes", "partitions", "size", "urgent")

    def __init__(self, max_bytes: int) -> None:
        self._remaining_bytes = max_bytes
        self.partitions: list[PartitionRead] = []
        self.size = 0
        self.urgent = False
        """True if an error, a diverging epoch or a preferred replica must be sent to the client at once."""

    def add(
        self, replicas: ReplicaManager, fetched: Iterable[FetchedPartition], limits: FetchLimits, *, is_first: bool
    ) -> None:
        """Reads partitions in order until the byte limit is reached. The remaining partitions get no data.

        The first read of a fetch also notes how far the follower is. A delayed fetch reads again, at the same offsets.
        """
        for fetched_partition in fetched:
            read = PartitionRead(fetched_partition)
            self.partitions.append(read)
            try:
                _read(replicas, read, self._remaining_bytes, limits, first_batch_whole=self.size == 0)
                if is_first and limits.replica_id >= 0 and read.diverging_epoch is None:
                    _update_follower(replicas, read, limits)
            except KafkaError as error:
                read.error = error.with_traceback(None)  # the traceback would keep all of this in a reference cycle
                self.urgent = True
                continue
            except Exception:
                # One failing partition must fail neither the others nor the append that completed this fetch.
                _logger.exception(
                    "Partition %s-%d: a read failed, the client gets UNKNOWN_SERVER_ERROR",
                    fetched_partition.topic,
                    fetched_partition.partition,
                )
                read.error = KafkaError("The broker failed to read the partition; see its log")
                self.urgent = True
                continue
            if read.diverging_epoch is not None or read.preferred_replica is not None:
                self.urgent = True
            size = read.size
            if size and limits.replica_id >= 0:
                _record_throttled(replicas, read)
            self.size += size
            self._remaining_bytes = max(0, self._remaining_bytes - size)


def read_partitions(
    replicas: ReplicaManager, fetched: Iterable[FetchedPartition], limits: FetchLimits, *, is_first: bool = True
) -> Reads:
    """Reads all partitions at once."""
    reads = Reads(limits.max_bytes)
    reads.add(replicas, fetched, limits, is_first=is_first)
    return reads


def _read(
    replicas: ReplicaManager, read: PartitionRead, max_bytes: int, limits: FetchLimits, first_batch_whole: bool
) -> None:
    fetched = read.fetched
    if fetched.is_denied:
        raise TopicAuthorizationFailedError
    if fetched.topic is None:
        raise UnknownTopicIdError(f"This broker has no topic with id {fetched.topic_id}")
    partition = read.partition = replicas.find(fetched.topic, fetched.partition)
    if limits.client_rack is None:
        log = partition.check_leader(fetched.current_leader_epoch)
    else:
        log = partition.check_epoch(fetched.current_leader_epoch)
    if fetched.topic_id.int and partition.topic_id != fetched.topic_id:
        raise InconsistentTopicIdError(
            f"Partition {partition.tp} has topic id {partition.topic_id}, the request has {fetched.topic_id}"
        )
    if limits.api_version < _FIRST_WITH_ZSTD and log.config.compression_type == "zstd":
        raise UnsupportedCompressionTypeError(
            f"Partition {partition.tp} is compressed with zstd, which needs Fetch version {_FIRST_WITH_ZSTD}"
        )
    if limits.replica_id >= 0:
        partition.check_replica(limits.replica_id)
    if fetched.last_fetched_epoch >= 0:
        read.diverging_epoch = _diverging_epoch(partition, fetched)
    if read.diverging_epoch is not None:
        read.result = ReadResult(None, log.high_watermark, log.last_stable_offset, log.log_start_offset)
        return
    if limits.client_rack and partition.is_leader and replicas.select_replica is not None:
        read.preferred_replica = replicas.select_replica(partition, fetched.fetch_offset, limits.client_rack)
        if read.preferred_replica is not None:
            read.result = ReadResult(None, log.high_watermark, log.last_stable_offset, log.log_start_offset)
            return
    max_bytes = min(max_bytes, fetched.max_bytes)
    if limits.replica_id >= 0 and _must_throttle(replicas, partition, limits.replica_id):
        max_bytes, first_batch_whole = 0, False
    read.result = log.read(fetched.fetch_offset, max_bytes, limits.isolation, first_batch_whole)


def _must_throttle(replicas: ReplicaManager, partition: Partition, replica_id: int) -> bool:
    """Returns True if a follower gets no records now (`leader.replication.throttled.rate`)."""
    quota = replicas.leader_quota
    return (
        quota is not None and replica_id not in partition.isr and quota.is_exceeded and quota.is_throttled(partition.tp)
    )


def _record_throttled(replicas: ReplicaManager, read: PartitionRead) -> None:
    quota, partition = replicas.leader_quota, read.partition
    if quota is not None and partition is not None and quota.is_throttled(partition.tp):
        quota.record(read.size)


def _update_follower(replicas: ReplicaManager, read: PartitionRead, limits: FetchLimits) -> None:
    """Notes that a follower has everything below its fetch offset, which the read has validated. The follower learns
    the new high watermark at once."""
    partition, result = read.partition, read.result
    assert partition is not None
    assert result is not None
    fetched = read.fetched
    replicas.follower_fetched(
        partition, limits.replica_id, fetched.fetch_offset, fetched.log_start_offset, limits.replica_epoch
    )
    log = partition.check_leader()
    if log.high_watermark != result.high_watermark:
        read.result = result._replace(high_watermark=log.high_watermark, last_stable_offset=log.last_stable_offset)


def _diverging_epoch(partition: Partition, fetched: FetchedPartition) -> tuple[int, int] | None:
    """Returns the epoch and offset at which the reader's log diverges from this one, if it does (KIP-595)."""
    log = partition.check_epoch()
    epoch, end_offset = log.end_offset_for_epoch(fetched.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise OffsetOutOfRangeError(f"Partition {partition.tp} has no leader epoch {fetched.last_fetched_epoch}")
    if epoch < fetched.last_fetched_epoch or end_offset < fetched.fetch_offset:
        return epoch, end_offset
    return None


class DelayedFetch(DelayedOperation):
    """A fetch that waits for data. It completes in one of these cases:

    A. this broker no longer leads a partition, or the leader epoch changed, or the partition was deleted. A consumer
       may also wait at a follower.
    B. a partition was truncated below the fetch offset, or its log start moved past it
    C. at least `min_bytes` can be read
    D. `max_wait_ms` have passed

    It reads again only when a partition has new data, and responds with the result of the last read. So a fetch reads
    twice, unless data arrives in pieces smaller than `min_bytes`.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        reads: Reads,
        limits: FetchLimits,
        on_done: Callable[[Reads], None],
    ):
        super().__init__(limits.max_wait_ms)
        self._replicas = replicas
        self._fetched = [read.fetched for read in reads.partitions]
        self._waiting = [
            (read.partition, read.partition.is_leader, read.partition.leader_epoch, read.fetched.fetch_offset)
            for read in reads.partitions
            if read.partition is not None
        ]
        self._limits = limits
        self._on_done = on_done
        self._ends = [
            partition.log.readable_end(limits.isolation) if partition.log is not None else -1
            for partition, *_ in self._waiting
        ]
        """The readable ends when the partitions were last read."""
        self._reads: Reads | None = None
        """The read that completes this fetch."""

    def keys(self) -> list[Partition]:
        return [partition for partition, *_ in self._waiting]

    def try_complete(self) -> bool:
        ends: list[int] = []
        for partition, is_leader, leader_epoch, fetch_offset in self._waiting:
            log = partition.log
            if partition.is_leader != is_leader or partition.leader_epoch != leader_epoch or log is None:
                return self.force_complete()
            if not log.log_start_offset <= fetch_offset <= log.log_end_offset:
                return self.force_complete()
            ends.append(log.readable_end(self._limits.isolation))
        if ends == self._ends:
            return False
        self._ends = ends
        reads = read_partitions(self._replicas, self._fetched, self._limits, is_first=False)
        if self.completed or (reads.size < self._limits.min_bytes and not reads.urgent):
            return False
        self._reads = reads
        return self.force_complete()

    def on_complete(self) -> None:
        self._on_done(self._reads or read_partitions(self._replicas, self._fetched, self._limits, is_first=False))
