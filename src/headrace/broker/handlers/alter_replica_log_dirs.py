"""AlterReplicaLogDirs: moves replicas of this broker to other log directories (KIP-113).

Behavior:
- The response means that a move has begun, not that it is done: DescribeLogDirs has the future replicas and their lag.
- The current directory of a replica cancels its move. Another one than that of its future replica starts over.
- A directory that is not in `log.dirs` gets LOG_DIR_NOT_FOUND. An offline directory, or any offline one if a future
  replica must be created, gets KAFKA_STORAGE_ERROR.
- A partition of which this broker has no replica gets REPLICA_NOT_AVAILABLE, and its replica will be created in that
  directory, if that happens before the next start. A partition that does not exist gets UNKNOWN_TOPIC_OR_PARTITION.

Version notes (1 to 2): 2 is flexible.
"""

import logging

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.replication.log_dir_moves import LogDirMoves
from headrace.broker.required_rights import on_cluster, requires
from headrace.broker.rights import is_allowed_on_cluster
from headrace.common.errors import NO_ERROR, ClusterAuthorizationFailedError, KafkaError
from headrace.common.types import TopicPartition
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from headrace.security.acls import Operation

_logger = logging.getLogger(__name__)


@api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, needs=requires(on_cluster(Operation.ALTER)))
async def handle(
    request: AlterReplicaLogDirsRequest, context: RequestContext, *, log_dir_moves: LogDirMoves
) -> AlterReplicaLogDirsResponse:
    allowed = is_allowed_on_cluster(context, Operation.ALTER)
    paths: dict[TopicPartition, str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                paths[TopicPartition(topic.name, index)] = directory.path  # Kafka takes the last one, too
        await context.give_way()
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for tp, path in paths.items():
        code = _alter(log_dir_moves, tp, path) if allowed else ClusterAuthorizationFailedError.code
        result = results.setdefault(tp.topic, AlterReplicaLogDirTopicResult(topic_name=tp.topic, partitions=[]))
        result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=tp.partition, error_code=code))
        await context.give_way()
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _alter(moves: LogDirMoves, tp: TopicPartition, path: str) -> int:
    try:
        moves.alter(tp, path)
    except KafkaError as error:
        _logger.warning("Partition %s: the replica cannot be moved to log directory %s: %s", tp, path, error)
        return error.code
    return NO_ERROR
