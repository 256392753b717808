"""OffsetDelete: deletes committed offsets of single partitions (KIP-496). Version 0.

Behavior:
- An empty group can lose any offset.
- A consumer group with members can lose offsets of topics that no member subscribes to. Offsets of other topics get
  GROUP_SUBSCRIBED_TO_TOPIC.
- Other groups with members get NON_EMPTY_GROUP.
"""

from collections.abc import Sequence

from headrace.broker.apis import HandlerResult, api
from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import RequestContext
from headrace.broker.group_requests import PARTITIONS_PER_OPERATION, run_group_operations
from headrace.broker.required_rights import on_group, on_topic, requires
from headrace.broker.rights import is_allowed, is_allowed_on_topic
from headrace.broker.yielding import InTurns, parts
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import (
    GroupAuthorizationFailedError,
    InvalidGroupIdError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition
from headrace.coordinator.group.shard import GroupCoordinatorShard
from headrace.coordinator.result import CoordinatorResult
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from headrace.security.acls import Operation, ResourceType


@api(ApiKey.OFFSET_DELETE, 0, 0, needs=requires(on_group(Operation.DELETE), on_topic(Operation.READ, "each topic")))
def handle(
    request: OffsetDeleteRequest, context: RequestContext, *, coordinators: Coordinators, image: MetadataImage
) -> InTurns[HandlerResult]:
    if not is_allowed(context, Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=GroupAuthorizationFailedError.code)
    if not request.group_id:
        return OffsetDeleteResponse(error_code=InvalidGroupIdError.code)
    codes: dict[TopicPartition, int] = {}
    existing: list[TopicPartition] = []
    for topic in request.topics:
        if context.turn_is_over():
            yield
        is_denied = not is_allowed_on_topic(context, Operation.READ, topic.name)
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            if is_denied:
                codes[tp] = TopicAuthorizationFailedError.code
            elif tp not in codes:
                codes[tp] = UnknownTopicOrPartitionError.code
                if image.partition(tp.topic, tp.partition) is not None:
                    existing.append(tp)
            if context.turn_is_over():
                yield

    def delete(
        shard: GroupCoordinatorShard, part: Sequence[TopicPartition]
    ) -> CoordinatorResult[dict[TopicPartition, int] | KafkaError]:
        result = shard.delete_offsets(request.group_id, part)
        return CoordinatorResult(result.records, result.response)

    def reply(results: list[dict[TopicPartition, int] | KafkaError]) -> None:
        for result in results:
            if isinstance(result, KafkaError):
                context.reply(OffsetDeleteResponse(error_code=result.code))
                return
            codes.update(result)
        context.run_in_turns(_response(request, context, codes))

    return (
        yield from run_group_operations(
            coordinators,
            context,
            list(parts(existing, PARTITIONS_PER_OPERATION)),  # one operation at least: it checks the group
            lambda _: request.group_id,
            delete,
            lambda _, error: error,
            reply,
        )
    )


def _response(
    request: OffsetDeleteRequest, context: RequestContext, codes: dict[TopicPartition, int]
) -> InTurns[OffsetDeleteResponse]:
    topics: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=[]))
        for part in parts(topic.partitions):
            topics[-1].partitions += [
                OffsetDeleteResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=codes[TopicPartition(topic.name, partition.partition_index)],
                )
                for partition in part
            ]
            if context.turn_is_over():
                yield
    return OffsetDeleteResponse(topics=topics)
