"""OffsetCommit: stores the committed offsets of a group.

Behavior:
- A member's commit needs its current generation. A commit without a member (generation -1) is for groups without
  members.
- All accepted offsets of a request are written as one batch.
- The group id may be empty: old consumers without a group share the empty id.

Version notes (2 to 10):
- 3 has the throttle time
- 5 has no retention time (KIP-211)
- 6 has leader epochs (KIP-320)
- 7 has static members (KIP-345)
- 8 is flexible
- 9 has members of KIP-848 groups, and GROUP_ID_NOT_FOUND for a missing group (before: ILLEGAL_GENERATION)
- 10 has topic ids (KIP-848)
"""

from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import DEFERRED, HandlerResult, RequestContext, api
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    KafkaError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition
from headrace.coordinator.group.shard import CommitRequest, commit_error
from headrace.coordinator.result import CoordinatorResponse
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_FIRST_WITH_NOT_FOUND = 9
_FIRST_WITH_TOPIC_IDS = 10


@api(ApiKey.OFFSET_COMMIT, 2, 10)
def handle(
    request: OffsetCommitRequest, context: RequestContext, *, coordinators: Coordinators, image: MetadataImage
) -> HandlerResult:
    by_id = context.api_version >= _FIRST_WITH_TOPIC_IDS
    offsets: list[tuple[TopicPartition, int, int, str | None]] = []
    codes: dict[TopicPartition, int] = {}
    """Error codes of partitions that are refused before the group sees them."""
    names: list[str | None] = []
    for topic in request.topics:
        name = image.topic_name(topic.topic_id) if by_id else topic.name
        names.append(name)
        if name is None:
            continue
        for requested in topic.partitions:
            tp = TopicPartition(name, requested.partition_index)
            if image.partition(name, requested.partition_index) is None:
                codes[tp] = UnknownTopicOrPartitionError.code
            else:
                offsets.append(
                    (tp, requested.committed_offset, requested.committed_leader_epoch, requested.committed_metadata)
                )
    if not offsets:
        return _response(request, names, codes, by_id)

    def done(response: CoordinatorResponse[dict[TopicPartition, int]]) -> None:
        try:
            codes.update(response.result())
        except KafkaError as error:
            code = commit_error(error)
            if isinstance(error, GroupIdNotFoundError) and context.api_version < _FIRST_WITH_NOT_FOUND:
                code = IllegalGenerationError.code
            codes.update(dict.fromkeys((entry[0] for entry in offsets), code))
        context.reply(_response(request, names, codes, by_id))

    commit = CommitRequest(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        offsets,
        request.retention_time_ms,
    )
    partition = coordinators.group_partition(request.group_id)
    coordinators.groups.write(partition, lambda shard: shard.commit(commit), done)
    return DEFERRED


def _response(
    request: OffsetCommitRequest, names: list[str | None], codes: dict[TopicPartition, int], by_id: bool
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[_topic(topic, name, codes, by_id) for topic, name in zip(request.topics, names, strict=True)]
    )


def _topic(
    topic: OffsetCommitRequestTopic, name: str | None, codes: dict[TopicPartition, int], by_id: bool
) -> OffsetCommitResponseTopic:
    unknown = UnknownTopicIdError.code if by_id else UnknownTopicOrPartitionError.code
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(
                partition_index=requested.partition_index,
                error_code=unknown if name is None else codes[TopicPartition(name, requested.partition_index)],
            )
            for requested in topic.partitions
        ],
    )
