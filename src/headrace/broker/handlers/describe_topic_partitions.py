"""DescribeTopicPartitions: topics with their partitions, in pages (KIP-966). Version 0.

Behavior:
- Topics are sorted by name. A request without topics returns all topics.
- A page has at most `response_partition_limit` and `max.request.partition.size.limit` partitions. The response's cursor
  points to the next page.
- INVALID_REQUEST if the cursor has a negative partition, or a topic that the request does not list.

Not supported: eligible leader replicas (the lists are always empty).
"""

from headrace.broker.apis import api
from headrace.broker.authorized_operations import authorized_operations
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import DENIED_OR_LEFT_OUT, on_topic, requires
from headrace.broker.rights import TopicRights
from headrace.broker.yielding import InTurns, parts
from headrace.cluster.commands import PartitionState
from headrace.cluster.metadata_image import MetadataImage, TopicImage
from headrace.cluster.topics import check_topic_name, is_internal
from headrace.common.errors import (
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from headrace.security.acls import Operation, ResourceType


@api(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    0,
    0,
    needs=requires(on_topic(Operation.DESCRIBE, "each topic", DENIED_OR_LEFT_OUT)),
)
def handle(
    request: DescribeTopicPartitionsRequest, context: RequestContext, *, config: BrokerConfig, image: MetadataImage
) -> InTurns[DescribeTopicPartitionsResponse]:
    names = yield from _requested_names(image, request, context)
    rights = TopicRights(context, Operation.DESCRIBE)
    denied: list[str] = []
    if not _is_valid_cursor(request.cursor, names, all_topics=not request.topics):
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(error_code=InvalidRequestError.code, name=topic.name)
                for topic in request.topics
            ]
        )
    limit = min(request.response_partition_limit, config.max_request_partition_size_limit)
    if context.authorizer is not None:
        names, denied = yield from _divide(names, rights, context)
    page = _Page(image, context, max(limit, 1))
    yield from page.fill(names, request.cursor)
    if request.topics:
        page.topics += [_denied_topic(name) for name in denied]
    return DescribeTopicPartitionsResponse(topics=page.topics, next_cursor=page.next_cursor)


def _requested_names(
    image: MetadataImage, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> InTurns[list[str]]:
    first_topic = request.cursor.topic_name if request.cursor is not None else ""
    names: set[str] = set() if request.topics else {name for name in image.topics if name >= first_topic}
    for part in parts(request.topics):
        names.update(topic.name for topic in part if topic.name >= first_topic)
        if context.turn_is_over():
            yield
    return sorted(names)


def _is_valid_cursor(cursor: Cursor | None, names: list[str], all_topics: bool) -> bool:
    # In a request for all topics, the cursor's topic may have been deleted since the previous page.
    return cursor is None or (cursor.partition_index >= 0 and (all_topics or cursor.topic_name in names))


def _divide(names: list[str], rights: TopicRights, context: RequestContext) -> InTurns[tuple[list[str], list[str]]]:
    """Divides topics into those that the client may describe, and the others."""
    allowed: list[str] = []
    denied: list[str] = []
    for name in names:
        (allowed if rights.allows(name) else denied).append(name)
        if context.turn_is_over():
            yield
    return allowed, denied


class _Page:
    """The topics of one response."""

    def __init__(self, image: MetadataImage, context: RequestContext, limit: int):
        self.topics: list[DescribeTopicPartitionsResponseTopic] = []
        self.next_cursor: Cursor | None = None
        self._image = image
        self._endpoints = image.endpoints(context.connection.listener_name)
        self._remaining = limit
        self._context = context

    def fill(self, names: list[str], cursor: Cursor | None) -> InTurns[None]:
        for name in names:
            if self._context.turn_is_over():
                yield
            if self._remaining == 0:
                self.next_cursor = Cursor(topic_name=name, partition_index=0)
                return
            topic = self._image.topic(name)
            if topic is None:
                self.topics.append(_missing_topic(self._context, name))
                continue
            first_partition = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
            if not self._add(topic, first_partition):
                return

    def _add(self, topic: TopicImage, first_partition: int) -> bool:
        """Adds a topic with the partitions that fit on the page. Returns False if some did not fit."""
        partitions = sorted(partition for partition in topic.partitions if partition >= first_partition)
        included, omitted = partitions[: self._remaining], partitions[self._remaining :]
        self._remaining -= len(included)
        self.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=is_internal(topic.name),
                partitions=[self._partition(topic.partitions[partition]) for partition in included],
                topic_authorized_operations=authorized_operations(self._context, ResourceType.TOPIC, topic.name),
            )
        )
        if omitted:
            self.next_cursor = Cursor(topic_name=topic.name, partition_index=omitted[0])
        return not omitted

    def _partition(self, state: PartitionState) -> DescribeTopicPartitionsResponsePartition:
        error_code = 0
        if not self._image.is_alive(state.leader):
            error_code = LeaderNotAvailableError.code
        elif state.leader not in self._endpoints:
            error_code = ListenerNotFoundError.code
        return DescribeTopicPartitionsResponsePartition(
            error_code=error_code,
            partition_index=state.tp.partition,
            leader_id=-1 if error_code else state.leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=list(state.offline_replicas),
        )


def _denied_topic(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=TopicAuthorizationFailedError.code, name=name)


def _missing_topic(context: RequestContext, name: str) -> DescribeTopicPartitionsResponseTopic:
    error: type[KafkaError] = UnknownTopicOrPartitionError
    try:
        check_topic_name(name)
    except InvalidTopicError:
        error = InvalidTopicError
    return DescribeTopicPartitionsResponseTopic(
        error_code=error.code,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=authorized_operations(context, ResourceType.TOPIC, name),
    )
