"""DescribeLogDirs: the log directories of this broker, their disk space, and the size of each partition (KIP-113).

Behavior:
- Null requests all partitions. Partitions that are not on this broker are omitted.
- An offline directory gets KAFKA_STORAGE_ERROR and no partitions.
- A replica that is being moved here from another directory is a future replica. Its offset lag is the number of offsets
  that it is behind the current one. The lag of a current replica is that behind its high watermark: 0. A log without a
  role on this broker has the lag -1.

Version notes (1 to 5):
- 2 is flexible
- 3 has an error for the whole response
- 4 has total and usable bytes of the disk (KIP-827)
- 5 has cordoned directories (KIP-1066; there are none here)
"""

import asyncio
import logging
import shutil

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.required_rights import on_cluster, requires
from headrace.broker.rights import is_allowed_on_cluster
from headrace.broker.yielding import parts
from headrace.common.errors import ClusterAuthorizationFailedError, KafkaStorageError
from headrace.common.types import TopicPartition
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from headrace.security.acls import Operation
from headrace.storage.directory import LogDirectory
from headrace.storage.manager import LogManager

_logger = logging.getLogger(__name__)

_UNKNOWN_BYTES = -1
_UNKNOWN_LAG = -1


@api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, needs=requires(on_cluster(Operation.DESCRIBE)))
async def handle(
    request: DescribeLogDirsRequest, context: RequestContext, *, log_manager: LogManager, replicas: ReplicaManager
) -> DescribeLogDirsResponse:
    if not is_allowed_on_cluster(context, Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ClusterAuthorizationFailedError.code)
    directories = list(log_manager.directories)
    # A network disk may block.
    spaces = await asyncio.to_thread(lambda: [_disk_space(directory) for directory in directories])
    tps = await _requested_partitions(log_manager, request, context)
    return DescribeLogDirsResponse(
        results=[
            await _describe(log_manager, replicas, directory, *space, tps, context)
            for directory, space in zip(directories, spaces, strict=True)
        ]
    )


def _disk_space(directory: LogDirectory) -> tuple[int, int]:
    """Returns total and usable bytes."""
    try:
        usage = shutil.disk_usage(directory.path)
    except OSError as error:
        _logger.warning("Log directory %s: cannot read its disk space, the client gets -1: %s", directory, error)
        return _UNKNOWN_BYTES, _UNKNOWN_BYTES
    return usage.total, usage.free


async def _requested_partitions(
    log_manager: LogManager, request: DescribeLogDirsRequest, context: RequestContext
) -> list[TopicPartition]:
    if request.topics is None:
        return sorted({log.tp for log in (*log_manager, *log_manager.futures)})
    tps: set[TopicPartition] = set()
    for topic in request.topics:
        for part in parts(topic.partitions):
            for partition in part:
                tp = TopicPartition(topic.topic, partition)
                if log_manager.get(tp) is not None or tp in log_manager.futures:
                    tps.add(tp)
            await context.give_way()
    return sorted(tps)


async def _describe(
    log_manager: LogManager,
    replicas: ReplicaManager,
    directory: LogDirectory,
    total_bytes: int,
    usable_bytes: int,
    tps: list[TopicPartition],
    context: RequestContext,
) -> DescribeLogDirsResult:
    if not directory.online:
        return DescribeLogDirsResult(error_code=KafkaStorageError.code, log_dir=str(directory.path))
    topics: dict[str, DescribeLogDirsTopic] = {}
    for tp in tps:
        described = _describe_partition(log_manager, replicas, directory, tp)
        if described is not None:
            topic = topics.setdefault(tp.topic, DescribeLogDirsTopic(name=tp.topic, partitions=[]))
            topic.partitions.append(described)
        await context.give_way()
    return DescribeLogDirsResult(
        log_dir=str(directory.path),
        topics=list(topics.values()),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )


def _describe_partition(
    log_manager: LogManager, replicas: ReplicaManager, directory: LogDirectory, tp: TopicPartition
) -> DescribeLogDirsPartition | None:
    """Returns the current or the future replica in a directory; None if neither is there."""
    partition = replicas.get(*tp)
    current = partition.log if partition is not None else None
    log, future = log_manager.get(tp), log_manager.futures.get(tp)
    if log is not None and log_manager.directory_of(tp) is directory:
        lag = _UNKNOWN_LAG if current is None else max(0, log.high_watermark - log.log_end_offset)
        return DescribeLogDirsPartition(
            partition_index=tp.partition, partition_size=log.size_in_bytes, offset_lag=lag, is_future_key=False
        )
    if future is not None and log_manager.futures.directory_of(tp) is directory:
        lag = _UNKNOWN_LAG if current is None else current.log_end_offset - future.log_end_offset
        return DescribeLogDirsPartition(
            partition_index=tp.partition, partition_size=future.size_in_bytes, offset_lag=lag, is_future_key=True
        )
    return None
