"""OffsetForLeaderEpoch: the end offset of a leader epoch, for readers that detect truncation.

Version notes (2 to 4): 2 has the client's leader epoch (KIP-320), 3 the replica id, 4 is flexible.
"""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.required_rights import on_cluster, on_topic, requires
from headrace.broker.rights import is_allowed_on_cluster, is_allowed_on_topic
from headrace.broker.yielding import InTurns
from headrace.common.errors import KafkaError, TopicAuthorizationFailedError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from headrace.security.acls import Operation


@api(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    2,
    4,
    needs=requires(on_cluster(Operation.CLUSTER_ACTION) | on_topic(Operation.DESCRIBE, "each topic")),
)
def handle(
    request: OffsetForLeaderEpochRequest, context: RequestContext, *, replicas: ReplicaManager
) -> InTurns[OffsetForLeaderEpochResponse]:
    topics: list[OffsetForLeaderTopicResult] = []
    is_broker = is_allowed_on_cluster(context, Operation.CLUSTER_ACTION, audited=False)
    for topic in request.topics:
        if context.turn_is_over():
            yield
        responses: list[EpochEndOffset] = []
        is_denied = not is_broker and not is_allowed_on_topic(context, Operation.DESCRIBE, topic.topic)
        for requested in topic.partitions:
            response = EpochEndOffset(partition=requested.partition, leader_epoch=-1, end_offset=-1)
            try:
                if is_denied:
                    raise TopicAuthorizationFailedError
                log = replicas.find(topic.topic, requested.partition).check_leader(requested.current_leader_epoch)
                response.leader_epoch, response.end_offset = log.end_offset_for_epoch(requested.leader_epoch)
            except KafkaError as error:
                response.error_code = error.code
            responses.append(response)
            if context.turn_is_over():
                yield
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=responses))
    return OffsetForLeaderEpochResponse(topics=topics)
