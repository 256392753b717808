"""OffsetCommit: stores the committed offsets of a group.

Behavior:
- A member's commit needs its current generation. A commit without a member (generation -1) is for groups without
  members.
- All accepted offsets of a request are written as one batch, unless there are more than 500. If the request names a
  partition more than once, the last offset counts.
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

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

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
    GroupIdNotFoundError,
    IllegalGenerationError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition
from headrace.coordinator.group.shard import CommitRequest, GroupCoordinatorShard, Offset, commit_error
from headrace.coordinator.result import CoordinatorResult
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.security.acls import Operation, ResourceType

_FIRST_WITH_NOT_FOUND = 9
_FIRST_WITH_TOPIC_IDS = 10


@api(ApiKey.OFFSET_COMMIT, 2, 10, needs=requires(on_group(Operation.READ), on_topic(Operation.READ, "each topic")))
def handle(
    request: OffsetCommitRequest, context: RequestContext, *, coordinators: Coordinators, image: MetadataImage
) -> InTurns[HandlerResult]:
    by_id = context.api_version >= _FIRST_WITH_TOPIC_IDS
    if not is_allowed(context, Operation.READ, ResourceType.GROUP, request.group_id):
        denied = GroupAuthorizationFailedError.code
        return (yield from _response(request, context, repeat(None), lambda *_: denied))
    offsets: dict[TopicPartition, Offset] = {}
    codes: dict[TopicPartition, int] = {}
    """Error codes of partitions that are refused before the group sees them."""
    names: list[str | None] = []
    for topic in request.topics:
        if context.turn_is_over():
            yield
        name = image.topic_name(topic.topic_id) if by_id else topic.name
        names.append(name)
        if name is None:
            continue
        is_denied = not is_allowed_on_topic(context, Operation.READ, name)
        for requested in topic.partitions:
            tp = TopicPartition(name, requested.partition_index)
            if is_denied:
                codes[tp] = TopicAuthorizationFailedError.code
            elif image.partition(name, requested.partition_index) is None:
                codes[tp] = UnknownTopicOrPartitionError.code
            else:
                offsets[tp] = (
                    tp,
                    requested.committed_offset,
                    requested.committed_leader_epoch,
                    requested.committed_metadata,
                )
            if context.turn_is_over():
                yield

    def commit(shard: GroupCoordinatorShard, part: Sequence[Offset]) -> CoordinatorResult[dict[TopicPartition, int]]:
        return shard.commit(
            CommitRequest(
                request.group_id,
                request.generation_id_or_member_epoch,
                request.member_id,
                request.group_instance_id,
                part,
                request.retention_time_ms,
            )
        )

    def failed(part: Sequence[Offset], error: KafkaError) -> dict[TopicPartition, int]:
        code = commit_error(error)
        if isinstance(error, GroupIdNotFoundError) and context.api_version < _FIRST_WITH_NOT_FOUND:
            code = IllegalGenerationError.code
        return dict.fromkeys((tp for tp, *_ in part), code)

    def code_of(name: str | None, index: int) -> int:
        return UnknownTopicIdError.code if name is None else codes[TopicPartition(name, index)]

    def reply(results: list[dict[TopicPartition, int]]) -> None:
        for result in results:
            codes.update(result)
        context.run_in_turns(_response(request, context, names, code_of))

    return (
        yield from run_group_operations(
            coordinators,
            context,
            list(parts(list(offsets.values()), PARTITIONS_PER_OPERATION)) if offsets else [],
            lambda _: request.group_id,
            commit,
            failed,
            reply,
        )
    )


def _response(
    request: OffsetCommitRequest,
    context: RequestContext,
    names: Iterable[str | None],
    code_of: Callable[[str | None, int], int],
) -> InTurns[OffsetCommitResponse]:
    """Builds the response. `code_of` returns the error code of a partition of a topic, whose name may be unknown."""
    topics: list[OffsetCommitResponseTopic] = []
    for topic, name in zip(request.topics, names, strict=False):
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[]))
        for part in parts(topic.partitions):
            topics[-1].partitions += [
                OffsetCommitResponsePartition(
                    partition_index=requested.partition_index,
                    error_code=code_of(name, requested.partition_index),
                )
                for requested in part
            ]
            if context.turn_is_over():
                yield
    return OffsetCommitResponse(topics=topics)
