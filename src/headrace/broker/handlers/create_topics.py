"""CreateTopics: creates topics, or only validates them.

Behavior:
- Each topic succeeds or fails on its own. A topic that the request names twice gets INVALID_REQUEST.
- The response waits until all partitions have leaders. After `timeout_ms` the topic gets REQUEST_TIMED_OUT, but it is
  still created.
- The quota `controller_mutation_rate` counts the partitions of valid topics. A client that has exceeded it gets
  THROTTLING_QUOTA_EXCEEDED, and before version 6 only a throttle time.
- If the process has no file descriptors left, or no log directory is online, no topic is created: KAFKA_STORAGE_ERROR.
  If a log cannot be created later, because the disk is full, its topic gets this error at once; the broker creates the
  log as soon as it can.

Not supported: creation policies (`create.topic.policy.class.name`).

Version notes (2 to 7):
- 4 can leave the number of partitions and replicas to the broker (KIP-464)
- 5 is flexible, and has these numbers and the configs in the response (KIP-525)
- 6 has quota errors (KIP-599)
- 7 has topic ids (KIP-516)
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from headrace.broker.apis import api
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.dynamic import DynamicConfig
from headrace.broker.config.entries import TopicEntries
from headrace.broker.dispatch import RequestContext
from headrace.broker.quotas.client_quotas import ControllerMutation
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.required_rights import on_cluster, on_topic, requires
from headrace.broker.rights import is_allowed_on_cluster, is_allowed_on_topic
from headrace.broker.topic_waits import wait_for_leaders
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.topics import BROKER_DEFAULT, TopicAdmin, TopicSpec
from headrace.cluster.znodes import TopicAssignment
from headrace.common.clock import Clock
from headrace.common.errors import (
    HeadraceError,
    InvalidConfigurationError,
    InvalidReplicationAssignmentError,
    InvalidRequestError,
    PolicyViolationError,
    TopicAuthorizationFailedError,
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
from headrace.security.acls import Operation
from headrace.storage.manager import LogManager

MAX_PARTITIONS = 10_000
"""In one request, as in Kafka: more would block the controller for too long."""
_FIRST_WITH_QUOTA_ERRORS = 6


@api(
    ApiKey.CREATE_TOPICS,
    2,
    7,
    needs=requires(
        on_cluster(Operation.CREATE) | on_topic(Operation.CREATE, "each topic"),
        on_topic(
            Operation.DESCRIBE_CONFIGS,
            "each topic whose configs, partitions and id the response has",
            "TOPIC_AUTHORIZATION_FAILED in `topic_config_error_code`",
        ),
    ),
)
async def handle(
    request: CreateTopicsRequest,
    context: RequestContext,
    *,
    clock: Clock,
    config: BrokerConfig,
    dynamic_config: DynamicConfig,
    image: MetadataImage,
    log_manager: LogManager,
    replicas: ReplicaManager,
    topic_admin: TopicAdmin,
) -> CreateTopicsResponse:
    deadline = clock.monotonic() + request.timeout_ms / 1000
    quota = context.controller_mutation(strict_since=_FIRST_WITH_QUOTA_ERRORS)
    creation = _Creation(topic_admin, dynamic_config, log_manager, config.num_partitions, request, context, quota)
    await creation.create(request.topics)
    results = creation.results
    if not request.validate_only:
        created = [(result.name, result.num_partitions, 0) for result in results.values() if not result.error_code]
        failures = await wait_for_leaders(image, replicas, clock, created, deadline)
        for name, error in failures.items():
            results[name] = _failed(name, error)
    context.throttle_ms = quota.throttle_ms()
    return CreateTopicsResponse(topics=list(results.values()))


class _Creation:
    """Creates the topics of one request."""

    def __init__(
        self,
        topic_admin: TopicAdmin,
        dynamic_config: DynamicConfig,
        log_manager: LogManager,
        default_partitions: int,
        request: CreateTopicsRequest,
        context: RequestContext,
        quota: ControllerMutation,
    ):
        self.results: dict[str, CreatableTopicResult] = {}
        """The results in the order of the request."""
        self._topic_admin = topic_admin
        self._dynamic_config = dynamic_config
        self._quota = quota
        self._problem = None if request.validate_only else log_manager.creation_problem()
        self._default_partitions = default_partitions
        self._validate_only = request.validate_only
        self._context = context
        self._creates_all = is_allowed_on_cluster(context, Operation.CREATE, audited=False)
        self._counts = Counter(topic.name for topic in request.topics)
        self._partitions = 0
        self._entries = TopicEntries(dynamic_config)
        self._inherited = self._describe_configs({})

    async def create(self, topics: Iterable[CreatableTopic]) -> None:
        context = self._context
        specs: list[TopicSpec] = []
        for topic in topics:
            if topic.name not in self.results:
                self.results[topic.name] = CreatableTopicResult(name=topic.name)
                try:
                    specs.append(self._spec_of(topic))
                except HeadraceError as error:
                    failed = self.results[topic.name] = _failed(topic.name, error)
                    if isinstance(error, TopicAuthorizationFailedError) and not self._may_describe(topic.name):
                        failed.topic_config_error_code = TopicAuthorizationFailedError.code
            await context.give_way()
        created = await self._topic_admin.create_topics(
            specs,
            validate_only=self._validate_only,
            on_planned=lambda topic: self._quota.record(len(topic.partitions)),
            on_created=self._apply_configs,
        )
        for spec, result in zip(specs, created, strict=True):
            self.results[spec.name] = (
                _failed(spec.name, result) if isinstance(result, HeadraceError) else self._describe(spec, result)
            )
            await context.give_way()

    def _spec_of(self, topic: CreatableTopic) -> TopicSpec:
        if self._counts[topic.name] > 1:
            raise InvalidRequestError("Duplicate topic name.")
        if not self._creates_all and not is_allowed_on_topic(self._context, Operation.CREATE, topic.name):
            raise TopicAuthorizationFailedError("Authorization failed.")
        self._check_limit(topic)
        spec = TopicSpec(
            topic.name, topic.num_partitions, topic.replication_factor, _assignment_of(topic), _configs_of(topic)
        )
        if self._problem is not None:
            raise self._problem
        return spec

    def _may_describe(self, name: str) -> bool:
        return is_allowed_on_topic(self._context, Operation.DESCRIBE_CONFIGS, name, audited=False)

    def _apply_configs(self, spec: TopicSpec) -> None:
        # The store will notify this broker as well; this way the logs never use the defaults first.
        self._dynamic_config.set_topic_overrides(spec.name, spec.configs)

    def _describe(self, spec: TopicSpec, created: TopicAssignment) -> CreatableTopicResult:
        if not self._may_describe(spec.name):
            return CreatableTopicResult(
                name=spec.name,
                error_message=None,
                configs=[],
                topic_config_error_code=TopicAuthorizationFailedError.code,
            )
        result = CreatableTopicResult(
            name=spec.name,
            error_message=None,
            num_partitions=len(created.partitions),
            replication_factor=len(created.partitions[0].replicas),
            configs=self._describe_configs(spec.configs) if spec.configs else self._inherited,
        )
        if not self._validate_only:
            result.topic_id = created.topic_id
        return result

    def _describe_configs(self, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        return [
            CreatableTopicConfigs(
                name=entry.name, value=entry.value, read_only=entry.read_only, config_source=entry.source
            )
            for entry in self._entries.of(overrides)
        ]

    def _check_limit(self, topic: CreatableTopic) -> None:
        partitions = len(topic.assignments) or topic.num_partitions
        if partitions == BROKER_DEFAULT:
            partitions = self._default_partitions
        if self._partitions + partitions > MAX_PARTITIONS:
            raise PolicyViolationError(
                f"Excessively large number of partitions per request. (At most {MAX_PARTITIONS})"
            )
        self._partitions += max(partitions, 0)


def _failed(name: str, error: HeadraceError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code_of(error), error_message=message_of(error))


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
