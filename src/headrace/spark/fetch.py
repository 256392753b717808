"""The task's side: a range of a partition becomes Arrow record batches.

Runs in Spark's Python workers, which are forked, used again for other tasks, and know nothing of the driver's reader:
everything that a task needs is in its `RangePartition` and in the options.

Invariants: every record of the range comes once and in order, those that compaction or transactions took out excepted.
Records that the log has lost fail the task (`DataLossError`), or with `failOnDataLoss=false` are passed over with a
line in the log.
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
    """What one task reads."""

    def __init__(self, topic: str, partition: int, start: int, end: int):
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end

    @classmethod
    def of(cls, each: OffsetRange) -> "RangePartition":
        return cls(each.tp.topic, each.tp.partition, each.start, each.end)


def read_range(options: SourceOptions, schema: StructType, wanted: InputPartition) -> "Iterator[pa.RecordBatch]":
    """The records of a range. A partition of Spark's that is no range has none: an empty plan has one such."""
    if not isinstance(wanted, RangePartition):
        return
    tp = TopicPartition(wanted.topic, wanted.partition)
    builder = RowsBuilder(schema, tp)
    cluster = Cluster(options)
    position, end = wanted.start, wanted.end
    while position < end:
        try:
            for columns in cluster.client.read(
                tp, position, end, patience_ms=options.poll_timeout_ms, target_bytes=_BATCH_BYTES
            ):
                yield builder.build(columns)
            return
        except OffsetOutOfRangeError as error:
            position = getattr(error, "offset", position)
            position = _go_on(options, cluster, tp, position, end)
        except UnknownTopicOrPartitionError as error:
            report_loss(options, f"{tp} is gone, of which offsets from {position} to {end - 1} were to be read", error)
            return
        except KafkaTimeoutError as error:
            latest = cluster.latest([tp])[tp]
            if latest >= end:
                raise
            report_loss(options, f"{tp} ends at offset {latest}, and was to be read up to {end - 1}", error)
            return


def _go_on(options: SourceOptions, cluster: Cluster, tp: TopicPartition, position: int, end: int) -> int:
    """Where to go on after offsets that are not there."""
    earliest, latest = cluster.earliest([tp])[tp], cluster.latest([tp])[tp]
    if position < earliest:
        report_loss(options, f"{tp} begins at offset {earliest} by now, and was to be read from {position} on")
        return min(earliest, end)
    if position > latest:
        report_loss(options, f"{tp} ends at offset {latest}, and was to be read from {position} to {end - 1}")
        return end
    return position


def report_loss(options: SourceOptions, what: str, cause: Exception | None = None) -> None:
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{what}. Records were deleted before they were read: by retention, or with their topic. To go on without "
            "them, set the option 'failOnDataLoss' to 'false'"
        ) from cause
    _logger.warning("%s. Records that are lost are passed over, as failOnDataLoss is false", what)


def quick_ack() -> None:
    """Has this worker's connection to the JVM acknowledge at once: to delay it costs 40 ms for each task."""
    if not hasattr(socket, "TCP_QUICKACK"):
        return
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    with socket.socket(fileno=os.dup(int(name))) as each:
                        if each.family in (socket.AF_INET, socket.AF_INET6) and each.type == socket.SOCK_STREAM:
                            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
