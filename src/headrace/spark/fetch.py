"""Reads an offset range of a partition as Arrow record batches.

Runs in Spark's Python workers, which are forked and reused for other tasks. They have no access to the driver's reader,
so a task gets everything that it needs from its `RangePartition` and the options.

Invariants:
- Every record of the range is returned once and in order, except records that compaction or aborted transactions
  removed.
- Lost records fail the task (`DataLossError`). With `failOnDataLoss=false` they are skipped and logged.
"""

import contextlib
import logging
import os
import socket
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from headrace.client.errors import KafkaTimeoutError
from headrace.common.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from headrace.common.types import TopicPartition
from headrace.spark.garbage import freeze_imports
from headrace.spark.metadata import Cluster, DataLossError
from headrace.spark.options import SourceOptions
from headrace.spark.planning import OffsetRange
from headrace.spark.schema import RowsBuilder

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RangePartition", "quick_ack", "read_range", "report_loss"]

_logger = logging.getLogger(__name__)
_BATCH_BYTES = 2 * 1024 * 1024


class RangePartition(InputPartition):
    """The offset range that one task reads."""

    def __init__(self, topic: str, partition: int, start: int, end: int):
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end

    @classmethod
    def of(cls, offset_range: OffsetRange) -> "RangePartition":
        tp, start, end = offset_range
        return cls(tp.topic, tp.partition, start, end)


def read_range(options: SourceOptions, schema: StructType, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
    """Yields the records of a range. Any other partition is empty: Spark adds one to an empty plan."""
    if not isinstance(partition, RangePartition):
        return
    tp = TopicPartition(partition.topic, partition.partition)
    builder = RowsBuilder(schema, tp)
    cluster = Cluster(options)
    position, end = partition.start, partition.end
    while position < end:
        try:
            for columns in cluster.client.read(
                tp, position, end, patience_ms=options.poll_timeout_ms, target_bytes=_BATCH_BYTES
            ):
                rows = builder.build(columns)
                freeze_imports()
                yield rows
            return
        except OffsetOutOfRangeError as error:
            position = getattr(error, "offset", position)
            position = _next_position(options, cluster, tp, position, end)
        except UnknownTopicOrPartitionError as error:
            report_loss(options, f"{tp} no longer exists; offsets {position} to {end - 1} were not read", error)
            return
        except KafkaTimeoutError as error:
            latest = cluster.latest([tp])[tp]
            if latest >= end:
                raise
            report_loss(options, f"{tp} ends at offset {latest}; expected offsets up to {end - 1}", error)
            return


def _next_position(options: SourceOptions, cluster: Cluster, tp: TopicPartition, position: int, end: int) -> int:
    """Returns the offset to continue at, after offsets that do not exist."""
    earliest, latest = cluster.earliest([tp])[tp], cluster.latest([tp])[tp]
    if position < earliest:
        report_loss(options, f"{tp} now begins at offset {earliest}; expected offsets from {position} on")
        return min(earliest, end)
    if position > latest:
        report_loss(options, f"{tp} ends at offset {latest}; expected offsets {position} to {end - 1}")
        return end
    return position


def report_loss(options: SourceOptions, what: str, cause: Exception | None = None) -> None:
    """Raises `DataLossError`, or logs a warning if `failOnDataLoss` is false."""
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{what}. Records were deleted before they were read, by retention or with their topic. To continue "
            "without them, set the option 'failOnDataLoss' to 'false'"
        ) from cause
    _logger.warning("Spark source: %s. Skipping the lost records because failOnDataLoss is false", what)


def quick_ack() -> None:
    """Disables delayed TCP acknowledgements on this worker's connection to the JVM. They cost 40 ms per task."""
    if not hasattr(socket, "TCP_QUICKACK"):
        return
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    with socket.socket(fileno=os.dup(int(name))) as sock:
                        if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM:
                            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
