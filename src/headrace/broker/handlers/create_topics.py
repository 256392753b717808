"""CreateTopics: creates topics, or only validates them.

Behavior:
- Each topic succeeds or fails on its own. A topic that the request names twice gets INVALID_REQUEST.
- The response waits until all partitions have leaders. After `timeout_ms` the topic gets REQUEST_TIMED_OUT, but it is
  still created.

Not supported: creation policies (`create.topic.policy.class.name`).

Version notes (2 to 7):
- 4 can leave the number of partitions and replicas to the broker (KIP-464)
- 5 is flexible, and has these numbers and the configs in the response (KIP-525)
- 6 has quota errors (KIP-599; there are no quotas yet)
- 7 has topic ids (KIP-516)
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

MAX_PARTITIONS = 10_000
"""In one request, as in Kafka: more would block the controller for too long."""


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
        created = [(result.name, result.num_partitions) for result in results.values() if not result.error_code]
        late = await wait_for_image(image, clock, created, lambda image, topic: image.topic_is_ready(*topic), deadline)
        for name, _partitions in late:
            results[name] = CreatableTopicResult(
                name=name,
                error_code=RequestTimedOutError.code,
                error_message=f"Timed out: topic '{name}' has no leaders yet. It is still being created.",
            )
    return CreateTopicsResponse(topics=list(results.values()))


class _Creation:
    """Creates the topics of one request."""

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
        self._counts = Counter(topic.name for topic in request.topics)
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
        if self._counts[topic.name] > 1:
            raise InvalidRequestError("Duplicate topic name.")
        self._check_limit(topic)
        configs = _configs_of(topic)
        created = await self._topic_admin.create_topic(
            TopicSpec(topic.name, topic.num_partitions, topic.replication_factor, _assignment_of(topic), configs),
            validate_only=self._validate_only,
        )
        result = CreatableTopicResult(
            name=topic.name,
            error_message=None,
            num_partitions=len(created.partitions),
            replication_factor=len(created.partitions[0].replicas),
            configs=[
                CreatableTopicConfigs(
                    name=entry.name, value=entry.value, read_only=entry.read_only, config_source=entry.source
                )
                for entry in self._entries.of(configs)
            ],
        )
        if not self._validate_only:
            result.topic_id = created.topic_id
            # The store will notify this broker as well; this way the logs never use the defaults first.
            self._dynamic_config.set_topic_overrides(topic.name, configs)
        return result

    def _check_limit(self, topic: CreatableTopic) -> None:
        partitions = len(topic.assignments) or topic.num_partitions
        if partitions == BROKER_DEFAULT:
            partitions = self._default_partitions
        if self._partitions + partitions > MAX_PARTITIONS:
            raise PolicyViolationError(
                f"Excessively large number of partitions per request. (At most {MAX_PARTITIONS})"
            )
        self._partitions += max(partitions, 0)


def _configs_of(topic: CreatableTopic) -> dict[str, str]:
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise InvalidConfigurationError(f"Null value not supported for topic configs: {config.name}")
        configs[config.name] = config.value
    return configs


def _assignment_of(topic: CreatableTopic) -> dict[int, list[int]] | None:
    if not topic.assignments:
        return None
    assignment: dict[int, list[int]] = {}
    for partition in topic.assignments:
        if partition.partition_index in assignment:
            raise InvalidReplicationAssignmentError(
                f"Found multiple manual partition assignments for partition {partition.partition_index}"
            )
        assignment[partition.partition_index] = list(partition.broker_ids)
    return assignment
