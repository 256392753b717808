"""OffsetDelete: deletes committed offsets of single partitions (KIP-496). Version 0.

Behavior:
- An empty group can lose any offset.
- A consumer group with members can lose offsets of topics that no member subscribes to. Offsets of other topics get
  GROUP_SUBSCRIBED_TO_TOPIC.
- Other groups with members get NON_EMPTY_GROUP.
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
    requested = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    existing = [tp for tp in requested if image.partition(tp.topic, tp.partition) is not None]
    codes = dict.fromkeys(requested, UnknownTopicOrPartitionError.code)

    def done(response: CoordinatorResponse[dict[TopicPartition, int]]) -> None:
        try:
            codes.update(response.result())
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
                                partition_index=partition.partition_index,
                                error_code=codes[TopicPartition(topic.name, partition.partition_index)],
                            )
                            for partition in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        )

    partition = coordinators.group_partition(request.group_id)
    coordinators.groups.write(partition, lambda shard: shard.delete_offsets(request.group_id, existing), done)
    return DEFERRED
