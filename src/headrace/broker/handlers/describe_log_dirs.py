"""DescribeLogDirs: the log directories of this broker, their room, and the size of each partition in them.

Versions 1 to 5: 2 flexible, 3 an error for the whole reply, 4 total and usable bytes of the disk (KIP-827), 5 whether
new partitions are kept out of a directory (KIP-1066; never here). Version 0 came with KIP-113.

Null asks for all partitions. A directory that is offline has KAFKA_STORAGE_ERROR and no partitions. Partitions that are
not here are left out.

Not done: moving partitions between directories, so no replica is ever a future one and there is no lag to tell.
"""

import asyncio
import logging
import shutil

from headrace.broker.dispatch import RequestContext, api
from headrace.common.errors import KafkaStorageError
from headrace.common.types import TopicPartition
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from headrace.storage.directory import LogDirectory
from headrace.storage.log import Log
from headrace.storage.manager import LogManager

_logger = logging.getLogger(__name__)

_UNKNOWN_BYTES = -1


@api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5)
async def handle(
    request: DescribeLogDirsRequest, _: RequestContext, *, log_manager: LogManager
) -> DescribeLogDirsResponse:
    directories = list(log_manager.directories)
    # Asking a disk may block, if it is one on the network.
    room = await asyncio.to_thread(lambda: [_room_of(directory) for directory in directories])
    logs = _logs_asked_for(log_manager, request)
    return DescribeLogDirsResponse(
        results=[
            _describe(log_manager, directory, *bytes_of_disk, logs)
            for directory, bytes_of_disk in zip(directories, room, strict=True)
        ]
    )


def _room_of(directory: LogDirectory) -> tuple[int, int]:
    """Total and usable bytes."""
    try:
        usage = shutil.disk_usage(directory.path)
    except OSError as error:
        _logger.warning("cannot tell the room in %s: %s", directory, error)
        return _UNKNOWN_BYTES, _UNKNOWN_BYTES
    return usage.total, usage.free


def _logs_asked_for(log_manager: LogManager, request: DescribeLogDirsRequest) -> list[Log]:
    if request.topics is None:
        logs = list(log_manager)
    else:
        asked = {TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions}
        logs = [log for tp in asked if (log := log_manager.get(tp)) is not None]
    return sorted(logs, key=lambda log: log.tp)


def _describe(
    log_manager: LogManager, directory: LogDirectory, total_bytes: int, usable_bytes: int, logs: list[Log]
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
    return DescribeLogDirsResult(
        log_dir=str(directory.path),
        topics=list(topics.values()),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
