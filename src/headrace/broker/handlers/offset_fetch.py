"""OffsetFetch: the committed offsets of groups.

Behavior:
- A partition without a committed offset, and a group that does not exist, get offset -1 and no error.
- With `require_stable`, a partition with a pending transactional commit gets UNSTABLE_OFFSET_COMMIT.

Version notes (1 to 10):
- 2 can request all topics of a group with null, and has an error for the whole response
- 3 has the throttle time
- 5 has leader epochs (KIP-320)
- 6 is flexible
- 7 has `require_stable` (KIP-447)
- 8 has several groups (KIP-709)
- 9 has members of KIP-848 groups
- 10 has topic ids
"""

from collections.abc import Iterable, Iterator

from headrace.broker.apis import HandlerResult, api
from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import RequestContext
from headrace.broker.group_requests import PARTITIONS_PER_OPERATION, run_group_operations
from headrace.broker.required_rights import DENIED_OR_LEFT_OUT, on_group, on_topic, requires
from headrace.broker.rights import TopicRights
from headrace.broker.yielding import InTurns, parts
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import (
    CoordinatorNotAvailableError,
    KafkaError,
    NotCoordinatorError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
)
from headrace.coordinator.group.shard import GroupCoordinatorShard
from headrace.coordinator.result import CoordinatorResult
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from headrace.security.acls import Operation

_FIRST_WITH_GROUPS = 8
_FIRST_WITH_TOPIC_IDS = 10
_FIRST_WITH_ERROR = 2
NO_OFFSET = -1


@api(
    ApiKey.OFFSET_FETCH,
    1,
    10,
    needs=requires(
        on_group(Operation.DESCRIBE, "each group"),
        on_topic(Operation.DESCRIBE, "each topic", DENIED_OR_LEFT_OUT),
    ),
)
def handle(
    request: OffsetFetchRequest, context: RequestContext, *, coordinators: Coordinators, image: MetadataImage
) -> InTurns[HandlerResult]:
    version = context.api_version
    groups = request.groups if version >= _FIRST_WITH_GROUPS else [_as_group(request)]
    by_name = {group.group_id: group for group in groups}
    rights = TopicRights(context, Operation.DESCRIBE)
    reader = _Reader(image, request.require_stable, version >= _FIRST_WITH_TOPIC_IDS, rights)

    def read(
        shard: GroupCoordinatorShard, requested: OffsetFetchRequestGroup
    ) -> CoordinatorResult[OffsetFetchResponseGroup]:
        return CoordinatorResult((), reader.group(shard, requested))

    def failed(requested: OffsetFetchRequestGroup, error: KafkaError) -> OffsetFetchResponseGroup:
        # Consumers before 3.9 fail on COORDINATOR_NOT_AVAILABLE; on NOT_COORDINATOR they find the coordinator again.
        returned = NotCoordinatorError if isinstance(error, CoordinatorNotAvailableError) else error
        return OffsetFetchResponseGroup(group_id=requested.group_id, error_code=returned.code)

    def respond(responses: list[OffsetFetchResponseGroup]) -> InTurns[HandlerResult]:
        joined = yield from _join(responses, context)
        if version >= _FIRST_WITH_GROUPS:
            return OffsetFetchResponse(groups=joined)
        return (yield from _as_single(joined[0], groups[0], context))

    def reply(responses: list[OffsetFetchResponseGroup]) -> None:
        context.run_in_turns(respond(responses))

    pieces: list[OffsetFetchRequestGroup] = []
    for group in by_name.values():
        for piece in _split(group):
            pieces.append(piece)
            if context.turn_is_over():
                yield
    return (
        yield from run_group_operations(
            coordinators,
            context,
            pieces,
            lambda requested: requested.group_id,
            read,
            failed,
            reply,
            needed=Operation.DESCRIBE,
        )
    )


def _split(group: OffsetFetchRequestGroup) -> Iterator[OffsetFetchRequestGroup]:
    """Yields the request for a group in pieces of a limited number of partitions."""
    if group.topics is None:
        yield group
        return
    topics: list[OffsetFetchRequestTopics] = []
    room = PARTITIONS_PER_OPERATION
    for topic in group.topics:
        for part in parts(topic.partition_indexes, PARTITIONS_PER_OPERATION):
            topics.append(
                OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=list(part))
            )
            room -= 1 + len(part)
            if room <= 0:
                yield OffsetFetchRequestGroup(group_id=group.group_id, topics=topics)
                topics, room = [], PARTITIONS_PER_OPERATION
    if topics or not group.topics:
        yield OffsetFetchRequestGroup(group_id=group.group_id, topics=topics)


def _join(
    responses: list[OffsetFetchResponseGroup], context: RequestContext
) -> InTurns[list[OffsetFetchResponseGroup]]:
    """Joins the responses to the pieces of each group."""
    joined: list[OffsetFetchResponseGroup] = []
    for response in responses:
        if not joined or joined[-1].group_id != response.group_id:
            joined.append(response)
        elif response.error_code or joined[-1].error_code:
            joined[-1] = OffsetFetchResponseGroup(
                group_id=response.group_id, error_code=joined[-1].error_code or response.error_code
            )
        else:
            _join_topics(joined[-1].topics, response.topics)
        if context.turn_is_over():
            yield
    return joined


def _join_topics(topics: list[OffsetFetchResponseTopics], more: list[OffsetFetchResponseTopics]) -> None:
    for topic in more:
        if topics and (topics[-1].name, topics[-1].topic_id) == (topic.name, topic.topic_id):
            topics[-1].partitions += topic.partitions
        else:
            topics.append(topic)


class _Reader:
    """Builds the responses of one request."""

    def __init__(self, image: MetadataImage, require_stable: bool, by_id: bool, rights: TopicRights):
        self._image = image
        self._require_stable = require_stable
        self._by_id = by_id
        self._rights = rights

    def group(self, shard: GroupCoordinatorShard, requested: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        topics = requested.topics if requested.topics is not None else self._all_topics(shard, requested.group_id)
        return OffsetFetchResponseGroup(
            group_id=requested.group_id, topics=[self._topic(shard, requested.group_id, topic) for topic in topics]
        )

    def _all_topics(self, shard: GroupCoordinatorShard, group_id: str) -> Iterable[OffsetFetchRequestTopics]:
        for name, partitions in shard.offsets_of(group_id).committed.items():
            if not self._rights.allows(name):
                continue
            topic_id = self._image.topic_id(name)
            if topic_id is not None:
                yield OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=list(partitions))
            elif not self._by_id:
                yield OffsetFetchRequestTopics(name=name, partition_indexes=list(partitions))

    def _topic(
        self, shard: GroupCoordinatorShard, group_id: str, requested: OffsetFetchRequestTopics
    ) -> OffsetFetchResponseTopics:
        name = requested.name
        if self._by_id and not name:
            name = self._image.topic_name(requested.topic_id) or ""
        error: type[KafkaError] | None = None
        if not name and self._by_id:
            error = UnknownTopicIdError
        elif not self._rights.allows(name):
            error = TopicAuthorizationFailedError
        if error is not None:
            partitions = [
                OffsetFetchResponsePartitions(
                    partition_index=partition, committed_offset=NO_OFFSET, error_code=error.code, metadata=""
                )
                for partition in requested.partition_indexes
            ]
        else:
            partitions = [
                self._partition(shard, group_id, name, partition) for partition in requested.partition_indexes
            ]
        return OffsetFetchResponseTopics(name=name, topic_id=requested.topic_id, partitions=partitions)

    def _partition(
        self, shard: GroupCoordinatorShard, group_id: str, topic: str, partition: int
    ) -> OffsetFetchResponsePartitions:
        committed, code = shard.fetch_offset(shard.offsets_of(group_id), topic, partition, self._require_stable)
        if committed is None:
            return OffsetFetchResponsePartitions(
                partition_index=partition, committed_offset=NO_OFFSET, metadata="", error_code=code
            )
        return OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
        )


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _as_single(
    group: OffsetFetchResponseGroup, requested: OffsetFetchRequestGroup, context: RequestContext
) -> InTurns[OffsetFetchResponse]:
    """Converts the response to the form with one group. Version 1 has error codes for partitions only."""
    topics: list[OffsetFetchResponseTopic] = []
    if group.error_code and context.api_version < _FIRST_WITH_ERROR:
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition, committed_offset=NO_OFFSET, metadata="", error_code=group.error_code
                    )
                    for partition in topic.partition_indexes
                ],
            )
            for topic in requested.topics or ()
        ]
        return OffsetFetchResponse(topics=topics, error_code=group.error_code)
    for found in group.topics:
        topics.append(OffsetFetchResponseTopic(name=found.name, partitions=[]))
        for part in parts(found.partitions):
            topics[-1].partitions += [
                OffsetFetchResponsePartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
                for partition in part
            ]
            if context.turn_is_over():
                yield
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)
