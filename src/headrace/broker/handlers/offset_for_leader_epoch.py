"""OffsetForLeaderEpoch: where the records of a leader epoch end, for readers that look for truncation.

Versions 2 to 4: 2 the client's own epoch (KIP-320), 3 the replica's id, 4 flexible.
"""

from headrace.broker.dispatch import HandlerResult, RequestContext, api
from headrace.broker.replica_manager import ReplicaManager
from headrace.common.errors import KafkaError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


@api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4)
def handle(request: OffsetForLeaderEpochRequest, context: RequestContext, *, replicas: ReplicaManager) -> HandlerResult:
    topics: list[OffsetForLeaderTopicResult] = []
    for topic in request.topics:
        replies: list[EpochEndOffset] = []
        for asked in topic.partitions:
            reply = EpochEndOffset(partition=asked.partition, leader_epoch=-1, end_offset=-1)
            try:
                log = replicas.find(topic.topic, asked.partition).check_leader(asked.current_leader_epoch)
                reply.leader_epoch, reply.end_offset = log.end_offset_for_epoch(asked.leader_epoch)
            except KafkaError as error:
                reply.error_code = error.code
            replies.append(reply)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=replies))
    return OffsetForLeaderEpochResponse(topics=topics)
