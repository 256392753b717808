"""Reading many partitions for one fetch, and waiting while there is too little to read.

A fetch has a limit of bytes over all its partitions, which are read in the order they are given until it is used up;
the first batch that is found comes whole even if it is larger, so that a consumer can always go on. Record bytes are
not touched: a reply holds slices of files.
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
    UnknownTopicIdError,
    UnsupportedCompressionTypeError,
)
from headrace.storage.log import FetchIsolation, ReadResult

_logger = logging.getLogger(__name__)

CONSUMER = -1
"""The replica id of a consumer."""
_FIRST_WITH_ZSTD = 10


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How a fetch reads: how much, how long it waits for it, and how far it may see."""

    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    isolation: FetchIsolation
    replica_id: int = CONSUMER
    api_version: int = 18


class PartitionRead:
    """What reading one partition came to: a result, or an error, or the epoch at which the reader's log parts."""

    __slots__ = ("diverging_epoch", "error", "fetched", "partition", "result")

    def __init__(self, fetched: FetchedPartition):
        self.fetched = fetched
        self.partition: Partition | None = None
        self.result: ReadResult | None = None
        self.error: KafkaError | None = None
        self.diverging_epoch: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        return self.result.slice.size if self.result is not None and self.result.slice is not None else 0


class Reads:
    """What reading all partitions of a fetch came to."""

    __slots__ = ("partitions", "size", "urgent")

    def __init__(self) -> None:
        self.partitions: list[PartitionRead] = []
        self.size = 0
        self.urgent = False
        """Whether there is something that the client must know at once."""


def read_partitions(replicas: ReplicaManager, fetched: Iterable[FetchedPartition], limits: FetchLimits) -> Reads:
    """Reads in order, until the limit of bytes is used up; the partitions behind that have no data in the reply."""
    reads = Reads()
    left = limits.max_bytes
    for one in fetched:
        read = PartitionRead(one)
        reads.partitions.append(read)
        try:
            _read(replicas, read, left, limits, first_batch_whole=reads.size == 0)
        except KafkaError as error:
            read.error = error
            reads.urgent = True
            continue
        except Exception:
            # Not for the others of the request, nor for whoever's append woke it.
            _logger.exception("a read of %s-%d failed", one.topic, one.partition)
            read.error = KafkaError("the broker failed on this read; its log says why")
            reads.urgent = True
            continue
        if read.diverging_epoch is not None:
            reads.urgent = True
        size = read.size
        reads.size += size
        left = max(0, left - size)
    return reads


def _read(
    replicas: ReplicaManager, read: PartitionRead, left: int, limits: FetchLimits, first_batch_whole: bool
) -> None:
    fetched = read.fetched
    if fetched.topic is None:
        raise UnknownTopicIdError(f"this broker knows no topic of id {fetched.topic_id}")
    partition = read.partition = replicas.find(fetched.topic, fetched.partition)
    log = partition.check_leader(fetched.current_leader_epoch)
    if fetched.topic_id.int and partition.topic_id != fetched.topic_id:
        raise InconsistentTopicIdError(f"{partition.tp} has id {partition.topic_id}, not {fetched.topic_id}")
    if limits.api_version < _FIRST_WITH_ZSTD and log.config.compression_type == "zstd":
        raise UnsupportedCompressionTypeError(f"zstd needs Fetch version {_FIRST_WITH_ZSTD}")
    if fetched.last_fetched_epoch >= 0:
        read.diverging_epoch = _diverging_epoch(partition, fetched)
    if read.diverging_epoch is not None:
        read.result = ReadResult(None, log.high_watermark, log.last_stable_offset, log.log_start_offset)
        return
    if limits.replica_id >= 0 and partition.follower_fetched(limits.replica_id, fetched.fetch_offset):
        replicas.appended(partition)
    read.result = log.read(fetched.fetch_offset, min(left, fetched.max_bytes), limits.isolation, first_batch_whole)


def _diverging_epoch(partition: Partition, fetched: FetchedPartition) -> tuple[int, int] | None:
    """Where the reader's log parts from this one, if it does (KIP-595)."""
    log = partition.check_leader()
    epoch, end_offset = log.end_offset_for_epoch(fetched.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise OffsetOutOfRangeError(f"{partition.tp} knows nothing of leader epoch {fetched.last_fetched_epoch}")
    if epoch < fetched.last_fetched_epoch or end_offset < fetched.fetch_offset:
        return epoch, end_offset
    return None


class DelayedFetch(DelayedOperation):
    """A fetch that waits for data. Completes when one of these is so:

    A. a partition is not led by this broker any more, or has another leader epoch, or is gone;
    B. a partition was truncated, or its start was moved, past the offset asked for;
    C. there are at least `min_bytes` to read;
    D. `max_wait_ms` are over.

    In every case the partitions are read again then: the reply tells what is so at that moment.
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
            (read.partition, read.partition.leader_epoch, read.fetched.fetch_offset)
            for read in reads.partitions
            if read.partition is not None
        ]
        self._limits = limits
        self._on_done = on_done

    def keys(self) -> list[Partition]:
        return [partition for partition, _, _ in self._waiting]

    def try_complete(self) -> bool:
        isolation = self._limits.isolation
        readable = False
        for partition, leader_epoch, fetch_offset in self._waiting:
            if not partition.is_leader or partition.leader_epoch != leader_epoch:
                return self.force_complete()
            end = partition.readable_end(isolation)
            if end > fetch_offset:
                readable = True
            log = partition.log
            if log is None or not log.log_start_offset <= fetch_offset <= log.log_end_offset:
                return self.force_complete()
        if not readable:
            return False
        if self._limits.min_bytes <= 1 or self._readable_bytes() >= self._limits.min_bytes:
            return self.force_complete()
        return False

    def _readable_bytes(self) -> int:
        return read_partitions(self._replicas, self._fetched, self._limits).size

    def on_complete(self) -> None:
        self._on_done(read_partitions(self._replicas, self._fetched, self._limits))
