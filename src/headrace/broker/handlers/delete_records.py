"""DeleteRecords: deletes the records before an offset (KIP-107). Offset -1 is the high watermark.

Behavior:
- Each partition succeeds or fails on its own. The response has the new low watermark: the smallest log start offset of
  the live replicas.
- The records cannot be read from now on. The next retention check deletes their segments.
- Responds when the live followers have deleted the records, too, which they learn with their next fetches. After the
  request's timeout it responds with REQUEST_TIMED_OUT.
- A topic whose cleanup.policy is only `compact` gets POLICY_VIOLATION.

Version notes (0 to 2): 2 is flexible.
"""

from headrace.broker.apis import HandlerResult, api
from headrace.broker.delayed_delete_records import UNKNOWN_OFFSET, DelayedDeleteRecords, PendingDeletion
from headrace.broker.dispatch import RequestContext
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.required_rights import on_topic, requires
from headrace.broker.rights import is_allowed_on_topic
from headrace.broker.yielding import InTurns
from headrace.cluster.topics import is_internal
from headrace.common.errors import (
    HeadraceError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    code_of,
)
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from headrace.security.acls import Operation

HIGH_WATERMARK = -1


@api(ApiKey.DELETE_RECORDS, 0, 2, needs=requires(on_topic(Operation.DELETE, "each topic")))
def handle(
    request: DeleteRecordsRequest, context: RequestContext, *, replicas: ReplicaManager
) -> InTurns[HandlerResult]:
    topics: list[DeleteRecordsTopicResult] = []
    pending: list[PendingDeletion] = []
    for topic in request.topics:
        if context.turn_is_over():
            yield
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=[]))
        is_denied = not is_allowed_on_topic(context, Operation.DELETE, topic.name)
        for partition in topic.partitions:
            if is_denied:
                topics[-1].partitions.append(_denied(partition))
            else:
                topics[-1].partitions.append(_delete(replicas, topic.name, partition, pending))
            if context.turn_is_over():
                yield
    response = DeleteRecordsResponse(topics=topics)
    if not pending:
        return response
    operation = DelayedDeleteRecords(pending, max(0, request.timeout_ms), lambda: context.reply(response))
    return context.wait(operation, replicas.deletes, [deletion.partition for deletion in pending])


def _denied(requested: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=requested.partition_index,
        low_watermark=UNKNOWN_OFFSET,
        error_code=TopicAuthorizationFailedError.code,
    )


def _delete(
    replicas: ReplicaManager, topic: str, requested: DeleteRecordsPartition, pending: list[PendingDeletion]
) -> DeleteRecordsPartitionResult:
    """Deletes the records of a partition on this broker. Adds it to `pending` if a follower still has them."""
    result = DeleteRecordsPartitionResult(partition_index=requested.partition_index, low_watermark=UNKNOWN_OFFSET)
    try:
        if is_internal(topic):
            raise InvalidTopicError(f"Records of the internal topic '{topic}' cannot be deleted")
        if requested.offset < HIGH_WATERMARK:
            raise OffsetOutOfRangeError(
                f"Partition {topic}-{requested.partition_index}: offset {requested.offset} is invalid"
            )
        partition = replicas.leader(topic, requested.partition_index)
        log_start_offset = partition.delete_records(requested.offset)
        result.low_watermark = partition.low_watermark()
    except HeadraceError as error:
        result.error_code = code_of(error)
        return result
    target = log_start_offset if requested.offset == HIGH_WATERMARK else requested.offset
    if result.low_watermark < target:
        pending.append(PendingDeletion(partition, target, result))
    return result
