"""OffsetDelete: takes back committed offsets of single partitions (KIP-496). Version 0.

An empty group can lose any; of a consumer group with members only topics that none of them reads
(GROUP_SUBSCRIBED_TO_TOPIC for the others); of other groups with members none (NON_EMPTY_GROUP).
"""

from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import DEFERRED, HandlerResult, RequestContext, api
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import InvalidGroupIdError, KafkaError, UnknownTopicOrPartitionError
from headrace.common.types import TopicPartition
from headrace.coordinator.result import CoordinatorResponse
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@api(ApiKey.OFFSET_DELETE, 0, 0)
def handle(
    request: OffsetDeleteRequest, context: RequestContext, *, coordinators: Coordinators, image: MetadataImage
) -> HandlerResult:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=InvalidGroupIdError.code)
    asked = [TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    known = [tp for tp in asked if image.partition(tp.topic, tp.partition) is not None]
    codes = dict.fromkeys(asked, UnknownTopicOrPartitionError.code)

    def done(outcome: CoordinatorResponse[dict[TopicPartition, int]]) -> None:
        try:
            codes.update(outcome.result())
        except KafkaError as error:
            context.reply(OffsetDeleteResponse(error_code=error.code))
            return
        context.reply(
            OffsetDeleteResponse(
                topics=[
                    OffsetDeleteResponseTopic(
                        name=topic.name,
                        partitions=[
                            OffsetDeleteResponsePartition(
                                partition_index=each.partition_index,
                                error_code=codes[TopicPartition(topic.name, each.partition_index)],
                            )
                            for each in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        )

    index = coordinators.group_partition(request.group_id)
    coordinators.groups.write(index, lambda shard: shard.delete_offsets(request.group_id, known), done)
    return DEFERRED
