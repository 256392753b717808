"""ListPartitionReassignments: the reassignments in progress (KIP-455).

Behavior:
- Any other broker than the active controller responds with NOT_CONTROLLER.
- Null topics request all. Partitions that are not being reassigned, or do not exist, are omitted.
"""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_cluster
from headrace.cluster.controller import Controller
from headrace.common.errors import KafkaError, message_of
from headrace.common.types import TopicPartition
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from headrace.security.acls import Operation


@api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, needs=requires_cluster(Operation.DESCRIBE))
async def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext, *, controller: Controller
) -> ListPartitionReassignmentsResponse:
    requested = None
    if request.topics is not None:
        requested = []
        for topic in request.topics:
            await context.give_way()
            for index in topic.partition_indexes:
                requested.append(TopicPartition(topic.name, index))
                await context.give_way()
    try:
        ongoing = await controller.list_reassignments(requested)
    except KafkaError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=message_of(error))
    topics: dict[str, OngoingTopicReassignment] = {}
    for tp, assignment in ongoing.items():
        topics.setdefault(tp.topic, OngoingTopicReassignment(name=tp.topic)).partitions.append(
            OngoingPartitionReassignment(
                partition_index=tp.partition,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
        )
        await context.give_way()
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))
