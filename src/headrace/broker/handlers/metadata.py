"""Metadata: the brokers, and topics with their partitions and leaders.

Behavior:
- An empty list in version 0, null in later versions, requests all topics.
- A missing topic is created if the client and `auto.create.topics.enable` allow it. This response has
  UNKNOWN_TOPIC_OR_PARTITION, and a later one has the topic, as in Kafka. `auto_topic_creation` limits how many topics
  are created.
- A topic that the request names twice is in the response once.

Version notes (0 to 13):
- 1 has the controller, racks and internal topics
- 2 has the cluster id
- 4 has a flag for topic creation (KIP-204)
- 5 has offline replicas
- 7 has leader epochs (KIP-320)
- 8 has authorized operations (KIP-430)
- 9 is flexible
- 10 has topic ids (KIP-516)
- 12 can request topics by id
- 13 has an error for the whole response (KIP-1102)
"""

from functools import cached_property

from headrace.broker.apis import api
from headrace.broker.authorized_operations import NOT_REQUESTED, authorized_operations, cluster_operations
from headrace.broker.auto_topic_creation import AutoTopicCreation
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import DENIED_OR_LEFT_OUT, on_cluster, on_topic, requires
from headrace.broker.rights import check_topic, is_allowed_on_cluster, is_allowed_on_topic
from headrace.cluster.commands import PartitionState
from headrace.cluster.metadata_image import MetadataImage, TopicImage
from headrace.cluster.topics import INTERNAL_TOPICS, check_topic_name
from headrace.common.errors import (
    HeadraceError,
    InvalidRequestError,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    code_of,
)
from headrace.common.ids import Uuid
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.security.acls import Operation, ResourceType

_FIRST_WITH_LISTENER_ERROR = 6
_FIRST_WITH_IDS = 12


@api(
    ApiKey.METADATA,
    0,
    13,
    needs=requires(
        on_topic(Operation.DESCRIBE, "each topic", DENIED_OR_LEFT_OUT),
        on_cluster(Operation.CREATE, "to create missing topics")
        | on_topic(Operation.CREATE, "each missing topic that would be created"),
        on_cluster(
            Operation.DESCRIBE, "if it asks for authorized operations of the cluster", "no authorized operations"
        ),
    ),
)
async def handle(
    request: MetadataRequest,
    context: RequestContext,
    *,
    auto_topic_creation: AutoTopicCreation,
    cluster_id: str,
    config: BrokerConfig,
    image: MetadataImage,
) -> MetadataResponse:
    may_create = request.allow_auto_topic_creation and config.auto_create_topics_enable
    response = _Response(image, auto_topic_creation if may_create else None, request, context)
    if request.topics is None or (context.api_version == 0 and not request.topics):
        topics = await _describe_all(image, response, context)
    else:
        topics = await _requested_topics(response, request.topics, context)
        if response.postponed:
            auto_topic_creation.log_postponed(context, response.postponed, response.missing)
    return MetadataResponse(
        brokers=response.brokers(),
        cluster_id=cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations(
            context, is_requested=request.include_cluster_authorized_operations
        ),
    )


async def _requested_topics(
    response: "_Response", requested: list[MetadataRequestTopic], context: RequestContext
) -> list[MetadataResponseTopic]:
    topics: dict[tuple[str | None, Uuid], MetadataResponseTopic] = {}
    for topic in requested:
        key = (topic.name, topic.topic_id)
        if key not in topics:
            topics[key] = response.topic(topic)
        await context.give_way()
    return list(topics.values())


async def _describe_all(
    image: MetadataImage, response: "_Response", context: RequestContext
) -> list[MetadataResponseTopic]:
    topics: list[MetadataResponseTopic] = []
    for topic in list(image.topics.values()):
        if is_allowed_on_topic(context, Operation.DESCRIBE, topic.name, audited=False):
            topics.append(response.describe(topic))
        await context.give_way()
    return topics


class _Response:
    """The parts of one response, with the addresses of the request's listener."""

    def __init__(
        self,
        image: MetadataImage,
        auto_topic_creation: AutoTopicCreation | None,
        request: MetadataRequest,
        context: RequestContext,
    ):
        self._image = image
        self._auto_topic_creation = auto_topic_creation
        self.missing = 0
        """How many requested topics do not exist."""
        self.postponed = 0
        """How many of them may not be created now."""
        self._alive = image.brokers
        self._endpoints = image.endpoints(context.connection.listener_name)
        self._has_ids = context.api_version >= _FIRST_WITH_IDS
        self._context = context
        self._with_operations = request.include_topic_authorized_operations
        self._no_listener = (
            ListenerNotFoundError if context.api_version >= _FIRST_WITH_LISTENER_ERROR else LeaderNotAvailableError
        ).code

    def brokers(self) -> list[MetadataResponseBroker]:
        return [
            MetadataResponseBroker(
                node_id=node_id, host=endpoint.host, port=endpoint.port, rack=self._alive[node_id].rack
            )
            for node_id, endpoint in self._endpoints.items()
        ]

    def topic(self, requested: MetadataRequestTopic) -> MetadataResponseTopic:
        image = self._image
        # If the request has an id, the name may be empty or null.
        name = requested.name if not requested.topic_id.int else None
        try:
            if name is None:
                if not self._has_ids:
                    raise InvalidRequestError(f"Topic ids require Metadata version {_FIRST_WITH_IDS} or newer")
                topic = image.topic_by_id(requested.topic_id)
                if topic is None:
                    raise UnknownTopicIdError(f"No topic has the id {requested.topic_id}")
                check_topic(self._context, Operation.DESCRIBE, topic.name)
                return self.describe(topic)
            check_topic(self._context, Operation.DESCRIBE, name)
            topic = image.topic(name)
            if topic is None:
                raise self._missing_topic(name)
            return self.describe(topic)
        except HeadraceError as error:
            is_denied = isinstance(error, TopicAuthorizationFailedError)
            return MetadataResponseTopic(
                error_code=code_of(error),
                name=name if name is not None or self._has_ids else "",
                topic_id=requested.topic_id,
                is_internal=name in INTERNAL_TOPICS,
                topic_authorized_operations=NOT_REQUESTED if is_denied or not name else self._operations_on(name),
            )

    def _operations_on(self, name: str) -> int:
        if not self._with_operations:
            return NOT_REQUESTED
        return authorized_operations(self._context, ResourceType.TOPIC, name)

    @cached_property
    def _creates_all(self) -> bool:
        return is_allowed_on_cluster(self._context, Operation.CREATE, audited=False)

    def _missing_topic(self, name: str) -> UnknownTopicOrPartitionError:
        """Starts to create a topic if that is allowed. Returns the error of this response."""
        if self._auto_topic_creation is None:
            check_topic_name(name)
        else:
            if not self._creates_all:
                check_topic(self._context, Operation.CREATE, name)
            self.missing += 1
            self.postponed += not self._auto_topic_creation.request(name)
        return UnknownTopicOrPartitionError(f"Topic '{name}' does not exist.")

    def describe(self, topic: TopicImage) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[self._partition(state) for _, state in sorted(topic.partitions.items())],
            topic_authorized_operations=self._operations_on(topic.name),
        )

    def _partition(self, state: PartitionState) -> MetadataResponsePartition:
        error_code = 0
        if state.leader < 0:
            error_code = LeaderNotAvailableError.code
        elif state.leader not in self._endpoints:
            error_code = self._no_listener if self._image.is_alive(state.leader) else LeaderNotAvailableError.code
        return MetadataResponsePartition(
            error_code=error_code,
            partition_index=state.tp.partition,
            leader_id=state.leader if not error_code else -1,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            offline_replicas=list(state.offline_replicas),
        )
