"""CreateTopics: makes topics, or only checks that they could be made.

Versions 2 to 7: 4 numbers of partitions and replicas may be left to the broker (KIP-464), 5 flexible,
and the reply tells numbers and settings (KIP-525), 6 quota errors (KIP-599, there are no quotas yet), 7 topic ids
(KIP-516).

Each topic fails or succeeds on its own. The reply waits until all partitions have leaders; after `timeout_ms` a topic
that is not there yet gets REQUEST_TIMED_OUT, and is made all the same. A name that comes twice in a request is refused.

Not done: creation policies (`create.topic.policy.class.name`).
"""

from collections import Counter

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.dynamic import DynamicConfig
from headrace.broker.config.entries import TopicEntries
from headrace.broker.dispatch import RequestContext, api
from headrace.broker.topic_waits import wait_for_image
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.topics import BROKER_DEFAULT, TopicAdmin, TopicSpec
from headrace.common.clock import Clock
from headrace.common.errors import (
    HeadraceError,
    InvalidConfigurationError,
    InvalidReplicationAssignmentError,
    InvalidRequestError,
    PolicyViolationError,
    RequestTimedOutError,
    code_of,
    message_of,
)
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

MOST_PARTITIONS = 10_000
"""Of one request, as in Kafka: more would keep the controller from everything else for too long."""


@api(ApiKey.CREATE_TOPICS, 2, 7)
async def handle(
    request: CreateTopicsRequest,
    _: RequestContext,
    *,
    clock: Clock,
    config: BrokerConfig,
    dynamic_config: DynamicConfig,
    image: MetadataImage,
    topic_admin: TopicAdmin,
) -> CreateTopicsResponse:
    deadline = clock.monotonic() + request.timeout_ms / 1000
    creation = _Creation(topic_admin, dynamic_config, config.num_partitions, request)
    for topic in request.topics:
        if topic.name not in creation.results:
            await creation.create(topic)
    results = creation.results
    if not request.validate_only:
        made = [(result.name, result.num_partitions) for result in results.values() if not result.error_code]
        late = await wait_for_image(image, clock, made, lambda image, topic: image.topic_is_ready(*topic), deadline)
        for name, _partitions in late:
            results[name] = CreatableTopicResult(
                name=name,
                error_code=RequestTimedOutError.code,
                error_message=f"topic {name} is being made, but is not ready yet",
            )
    return CreateTopicsResponse(topics=list(results.values()))


class _Creation:
    """The topics of one request, one after the other."""

    def __init__(
        self,
        topic_admin: TopicAdmin,
        dynamic_config: DynamicConfig,
        default_partitions: int,
        request: CreateTopicsRequest,
    ):
        self.results: dict[str, CreatableTopicResult] = {}
        self._topic_admin = topic_admin
        self._dynamic_config = dynamic_config
        self._default_partitions = default_partitions
        self._validate_only = request.validate_only
        self._times = Counter(topic.name for topic in request.topics)
        self._partitions = 0
        self._entries = TopicEntries(dynamic_config)

    async def create(self, topic: CreatableTopic) -> None:
        try:
            self.results[topic.name] = await self._create(topic)
        except HeadraceError as error:
            self.results[topic.name] = CreatableTopicResult(
                name=topic.name, error_code=code_of(error), error_message=message_of(error)
            )

    async def _create(self, topic: CreatableTopic) -> CreatableTopicResult:
        if self._times[topic.name] > 1:
            raise InvalidRequestError(f"topic {topic.name} comes more than once in the request")
        self._count(topic)
        configs = _configs_of(topic)
        made = await self._topic_admin.create_topic(
            TopicSpec(topic.name, topic.num_partitions, topic.replication_factor, _assignment_of(topic), configs),
            validate_only=self._validate_only,
        )
        result = CreatableTopicResult(
            name=topic.name,
            error_message=None,
            num_partitions=len(made.partitions),
            replication_factor=len(made.partitions[0].replicas),
            configs=[
                CreatableTopicConfigs(
                    name=entry.name, value=entry.value, read_only=entry.read_only, config_source=entry.source
                )
                for entry in self._entries.of(configs)
            ],
        )
        if not self._validate_only:
            result.topic_id = made.topic_id
            # The news of them is on its way; this spares the topic's logs a first moment with the defaults.
            self._dynamic_config.set_topic_overrides(topic.name, configs)
        return result

    def _count(self, topic: CreatableTopic) -> None:
        asked = len(topic.assignments) or topic.num_partitions
        if asked == BROKER_DEFAULT:
            asked = self._default_partitions
        if self._partitions + asked > MOST_PARTITIONS:
            raise PolicyViolationError(
                f"one request makes {MOST_PARTITIONS} partitions at most, with topic {topic.name} there would be more"
            )
        self._partitions += max(asked, 0)


def _configs_of(topic: CreatableTopic) -> dict[str, str]:
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise InvalidConfigurationError(f"{config.name} is null: a setting of a new topic needs a value")
        configs[config.name] = config.value
    return configs


def _assignment_of(topic: CreatableTopic) -> dict[int, list[int]] | None:
    if not topic.assignments:
        return None
    assignment: dict[int, list[int]] = {}
    for partition in topic.assignments:
        if partition.partition_index in assignment:
            raise InvalidReplicationAssignmentError(
                f"partition {partition.partition_index} of topic {topic.name} has its replicas given twice"
            )
        assignment[partition.partition_index] = list(partition.broker_ids)
    return assignment
