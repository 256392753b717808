"""DescribeLogDirs: the log directories of this broker, their disk space, and the size of each partition (KIP-113).

Behavior:
- Null requests all partitions. Partitions that are not on this broker are omitted.
- An offline directory gets KAFKA_STORAGE_ERROR and no partitions.

Not supported: moving partitions between directories, so there are no future replicas and no offset lag.

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
from headrace.storage.log import Log
from headrace.storage.manager import LogManager

_logger = logging.getLogger(__name__)

_UNKNOWN_BYTES = -1


@api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, needs=requires(on_cluster(Operation.DESCRIBE)))
async def handle(
    request: DescribeLogDirsRequest, context: RequestContext, *, log_manager: LogManager
) -> DescribeLogDirsResponse:
    if not is_allowed_on_cluster(context, Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ClusterAuthorizationFailedError.code)
    directories = list(log_manager.directories)
    # A network disk may block.
    spaces = await asyncio.to_thread(lambda: [_disk_space(directory) for directory in directories])
    logs = await _requested_logs(log_manager, request, context)
    return DescribeLogDirsResponse(
        results=[
            await _describe(log_manager, directory, *space, logs, context)
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


async def _requested_logs(
    log_manager: LogManager, request: DescribeLogDirsRequest, context: RequestContext
) -> list[Log]:
    if request.topics is None:
        return sorted(log_manager, key=lambda log: log.tp)
    logs: dict[TopicPartition, Log] = {}
    for topic in request.topics:
        for part in parts(topic.partitions):
            for partition in part:
                tp = TopicPartition(topic.topic, partition)
                if (log := log_manager.get(tp)) is not None:
                    logs[tp] = log
            await context.give_way()
    return [logs[tp] for tp in sorted(logs)]


async def _describe(
    log_manager: LogManager,
    directory: LogDirectory,
    total_bytes: int,
    usable_bytes: int,
    logs: list[Log],
    context: RequestContext,
) -> DescribeLogDirsResult:
    if not directory.online:
        return DescribeLogDirsResult(error_code=KafkaStorageError.code, log_dir=str(directory.path))
    topics: dict[str, DescribeLogDirsTopic] = {}
    for log in logs:
        if log_manager.directory_of(log.tp) is directory:
            topic = topics.setdefault(log.tp.topic, DescribeLogDirsTopic(name=log.tp.topic, partitions=[]))
            topic.partitions.append(
                DescribeLogDirsPartition(partition_index=log.tp.partition, partition_size=log.size_in_bytes)
            )
        await context.give_way()
    return DescribeLogDirsResult(
        log_dir=str(directory.path),
        topics=list(topics.values()),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
