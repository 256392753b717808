"""DeleteRecords: deletes the records before an offset (KIP-107). Offset -1 is the high watermark.

Behavior:
- Each partition succeeds or fails on its own. The response has the new log start offset.
- The records cannot be read from now on. The next retention check deletes their segments.
- A topic whose cleanup.policy is only `compact` gets POLICY_VIOLATION.

Not supported: waiting for followers. The leader is the only replica so far.

Version notes (0 to 2): 2 is flexible.
"""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.yielding import InTurns
from headrace.cluster.topics import is_internal
from headrace.common.errors import HeadraceError, InvalidTopicError, OffsetOutOfRangeError, code_of
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1
_UNKNOWN_OFFSET = -1


@api(ApiKey.DELETE_RECORDS, 0, 2)
def handle(
    request: DeleteRecordsRequest, context: RequestContext, *, replicas: ReplicaManager
) -> InTurns[DeleteRecordsResponse]:
    topics: list[DeleteRecordsTopicResult] = []
    for topic in request.topics:
        if context.turn_is_over():
            yield
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=[]))
        for partition in topic.partitions:
            topics[-1].partitions.append(_delete(replicas, topic.name, partition))
            if context.turn_is_over():
                yield
    return DeleteRecordsResponse(topics=topics)


def _delete(replicas: ReplicaManager, topic: str, requested: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    partition = requested.partition_index
    try:
        if is_internal(topic):
            raise InvalidTopicError(f"Records of the internal topic '{topic}' cannot be deleted")
        if requested.offset < HIGH_WATERMARK:
            raise OffsetOutOfRangeError(f"Partition {topic}-{partition}: offset {requested.offset} is invalid")
        low_watermark = replicas.leader(topic, partition).delete_records(requested.offset)
    except HeadraceError as error:
        return DeleteRecordsPartitionResult(
            partition_index=partition, low_watermark=_UNKNOWN_OFFSET, error_code=code_of(error)
        )
    return DeleteRecordsPartitionResult(partition_index=partition, low_watermark=low_watermark)
