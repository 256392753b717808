"""AlterPartitionReassignments: moves partitions to other replicas, or cancels that (KIP-455).

Behavior:
- Any other broker than the active controller responds with NOT_CONTROLLER.
- The response says which reassignments have started. ListPartitionReassignments tells when they are done.
- Null replicas cancel a reassignment, and replicas of an ongoing reassignment replace its target. Both delete the
  replicas that the partition does not need any more. They get INVALID_REPLICA_ASSIGNMENT if no in-sync replica would be
  left. The ZooKeeper controller of Kafka loses the records then. Its KRaft controller refuses such a cancellation as
  this one does, unless unclean leader election is enabled.

Version notes (0 to 1): 1 can refuse changes of the replication factor (KIP-860).
"""

from collections.abc import Sequence

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_cluster
from headrace.cluster.controller import Controller
from headrace.common.errors import KafkaError, message_of
from headrace.common.types import TopicPartition
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from headrace.security.acls import Operation


@api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, needs=requires_cluster(Operation.ALTER))
async def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext, *, controller: Controller
) -> AlterPartitionReassignmentsResponse:
    allow_change = request.allow_replication_factor_change
    targets: dict[TopicPartition, Sequence[int] | None] = {}
    for requested in request.topics:
        await context.give_way()
        for partition in requested.partitions:
            targets[TopicPartition(requested.name, partition.partition_index)] = partition.replicas
            await context.give_way()
    try:
        results = await controller.alter_reassignments(targets, allow_replication_factor_change=allow_change)
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=allow_change, error_code=error.code, error_message=message_of(error)
        )
    responses: dict[str, ReassignableTopicResponse] = {}
    for tp, result in results.items():
        topic = responses.setdefault(tp.topic, ReassignableTopicResponse(name=tp.topic))
        topic.partitions.append(
            ReassignablePartitionResponse(partition_index=tp.partition)
            if result is None
            else ReassignablePartitionResponse(
                partition_index=tp.partition, error_code=result.code, error_message=message_of(result)
            )
        )
        await context.give_way()
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allow_change, responses=list(responses.values())
    )
