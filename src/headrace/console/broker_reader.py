"""Reads what brokers have: log directories, reassignments, versions, open transactions, and their metrics endpoints.

Part of the collector; owner: the loop.
"""

import asyncio
import heapq
import logging
from array import array

from headrace.aio.admin import Admin
from headrace.client.admin.types import LogDirDescription
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError
from headrace.common.types import TopicPartition
from headrace.console.broker_metrics import BrokerMetrics
from headrace.console.snapshot import UNKNOWN, LogDirState, Snapshot

_logger = logging.getLogger(__name__)

_TIMEOUT_MS = 10_000
_VERSION_TIMEOUT_MS = 5_000
_LARGEST = 10
_OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


class BrokerReader:
    """Reads brokers."""

    def __init__(self, admin: Admin, clock: Clock, metrics: BrokerMetrics):
        self._admin = admin
        self._clock = clock
        self.metrics = metrics

    async def read_log_dirs(self, snapshot: Snapshot) -> None:
        """Reads the log directories of all brokers, and from them the sizes of topics."""
        ids = sorted(snapshot.live)
        answers = await asyncio.gather(
            *[self._admin.describe_log_dirs(brokers=[number], timeout_ms=_TIMEOUT_MS) for number in ids],
            return_exceptions=True,
        )
        totals: dict[str, int] = {}
        failure: HeadraceError | None = None
        for topic in snapshot.topics.values():
            topic.sizes = array("q", [UNKNOWN] * len(topic.partitions))
        for number, answer in zip(ids, answers, strict=True):
            broker = snapshot.brokers.get(number)
            if isinstance(answer, HeadraceError):
                failure = answer
                if broker is not None:
                    broker.log_dirs = None
                continue
            if isinstance(answer, BaseException):
                raise answer
            found = answer.get(number, [])
            if broker is not None:
                broker.log_dirs = tuple(_log_dir(description) for description in found)
            for description in found:
                for tp, replica in description.replicas.items():
                    totals[tp.topic] = totals.get(tp.topic, 0) + replica.size
                    if not replica.is_future:
                        _note_size(snapshot, tp, number, replica.size)
        for name, topic in snapshot.topics.items():
            topic.size_bytes = totals.get(name, UNKNOWN)
        if failure is not None:
            raise failure

    async def read_reassignments(self, snapshot: Snapshot) -> None:
        found = await self._admin.list_partition_reassignments(timeout_ms=_TIMEOUT_MS)
        if found.keys() != snapshot.reassignments.keys():
            snapshot.generation["brokers"] += 1
        snapshot.reassignments = dict(found)

    async def read_transactions(self, snapshot: Snapshot) -> None:
        listed = await self._admin.list_transactions(state_filters=_OPEN_STATES, timeout_ms=_TIMEOUT_MS)
        ids = [transaction.transactional_id for transaction in listed]
        described = (
            await self._admin.describe_transactions(ids, timeout_ms=_TIMEOUT_MS, raise_errors=False) if ids else {}
        )
        snapshot.transactions = tuple(found for found in described.values() if found.error is None)

    async def read_versions(self, snapshot: Snapshot) -> None:
        """Notes brokers that this console cannot reach."""
        for number in sorted(snapshot.live & snapshot.brokers.keys()):
            try:
                await self._admin.api_versions(number, timeout_ms=_VERSION_TIMEOUT_MS)
            except HeadraceError as error:
                snapshot.brokers[number].error = " ".join(str(error).split())

    async def read_metrics(self, snapshot: Snapshot) -> None:
        """Reads the metrics endpoints of the brokers, and computes the cluster's traffic."""
        await self.metrics.read(snapshot.live)
        bytes_in: float | None = None
        bytes_out: float | None = None
        for number, broker in snapshot.brokers.items():
            figures = self.metrics.figures.get(number)
            broker.metrics_error = self.metrics.errors.get(number)
            broker.bytes_in = None if figures is None else figures.bytes_in
            broker.bytes_out = None if figures is None else figures.bytes_out
            broker.messages_in = None if figures is None else figures.messages_in
            broker.connections = None if figures is None else figures.connections
            broker.version = None if figures is None else figures.version
            if broker.bytes_in is not None:
                bytes_in = (bytes_in or 0.0) + broker.bytes_in
            if broker.bytes_out is not None:
                bytes_out = (bytes_out or 0.0) + broker.bytes_out
        snapshot.bytes_in = bytes_in if bytes_in is not None else _estimated_bytes_in(snapshot)
        snapshot.bytes_out = bytes_out


def _note_size(snapshot: Snapshot, tp: TopicPartition, broker: int, size: int) -> None:
    topic = snapshot.topics.get(tp.topic)
    if topic is not None and tp.partition < len(topic.partitions) and topic.partitions[tp.partition].leader == broker:
        topic.sizes[tp.partition] = size


def _log_dir(description: LogDirDescription) -> LogDirState:
    sizes = ((replica.size, tp) for tp, replica in description.replicas.items())
    largest = heapq.nlargest(_LARGEST, sizes)
    return LogDirState(
        description.path,
        sum(replica.size for replica in description.replicas.values()),
        len(description.replicas),
        description.total_bytes,
        description.usable_bytes,
        description.is_cordoned,
        None if description.error is None else " ".join(str(description.error).split()),
        tuple((tp.topic, tp.partition, size) for size, tp in largest),
    )


def _estimated_bytes_in(snapshot: Snapshot) -> float | None:
    """Returns the traffic that follows from rates and the average size of the records that are stored."""
    total: float | None = None
    for topic in snapshot.topics.values():
        if topic.internal or topic.messages_in is None:
            continue
        size = sum(size for size in topic.sizes if size >= 0)
        records = topic.records
        if records > 0:
            total = (total or 0.0) + topic.messages_in * size / records
    return total
