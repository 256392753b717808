"""DeleteRecords: moves the start of partitions up to an offset; -1 stands for the high watermark.

Versions 0 to 2: 2 flexible (KIP-107 brought the API, KIP-482 flexible versions).

Each partition fails or succeeds on its own, and a reply tells where it starts now. What lies before can no longer be
read at once; the segments go with the next check of retention. A topic that is compacted only has no records to spare:
POLICY_VIOLATION.

Not done: waiting for followers, which are still to come; here the leader is the only replica.
"""

from headrace.broker.dispatch import RequestContext, api
from headrace.broker.replica_manager import ReplicaManager
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
def handle(request: DeleteRecordsRequest, _: RequestContext, *, replicas: ReplicaManager) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_delete(replicas, topic.name, partition) for partition in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _delete(replicas: ReplicaManager, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    index = asked.partition_index
    try:
        if is_internal(topic):
            raise InvalidTopicError(f"records of the internal topic {topic} cannot be deleted")
        if asked.offset < HIGH_WATERMARK:
            raise OffsetOutOfRangeError(f"offset {asked.offset} of {topic}-{index} cannot be")
        low_watermark = replicas.leader(topic, index).delete_records(asked.offset)
    except HeadraceError as error:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=_UNKNOWN_OFFSET, error_code=code_of(error)
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)
