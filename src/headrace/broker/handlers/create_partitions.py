"""CreatePartitions: adds partitions to topics. `count` is the new total.

Behavior:
- Each topic succeeds or fails on its own. A topic that the request names twice gets INVALID_REQUEST.
- The quota `controller_mutation_rate` counts the added partitions. A client that has exceeded it gets
  THROTTLING_QUOTA_EXCEEDED, and before version 3 only a throttle time.
- The response waits until the new partitions have leaders, not for partitions that exist already. After `timeout_ms`
  the topic gets REQUEST_TIMED_OUT, but its partitions are still created.
- If a log cannot be created, the topic gets KAFKA_STORAGE_ERROR at once: see CreateTopics.

Version notes (0 to 3): 2 is flexible, 3 has quota errors (KIP-599).
"""

from collections import Counter

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.handlers.create_topics import MAX_PARTITIONS
from headrace.broker.quotas.client_quotas import ControllerMutation
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.required_rights import on_topic, requires
from headrace.broker.rights import check_topic
from headrace.broker.topic_waits import wait_for_leaders
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.topics import TopicAdmin
from headrace.common.clock import Clock
from headrace.common.errors import (
    HeadraceError,
    InvalidRequestError,
    PolicyViolationError,
    code_of,
    message_of,
)
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from headrace.security.acls import Operation
from headrace.storage.manager import LogManager

_FIRST_WITH_QUOTA_ERRORS = 3


@api(ApiKey.CREATE_PARTITIONS, 0, 3, needs=requires(on_topic(Operation.ALTER, "each topic")))
async def handle(
    request: CreatePartitionsRequest,
    context: RequestContext,
    *,
    clock: Clock,
    image: MetadataImage,
    log_manager: LogManager,
    replicas: ReplicaManager,
    topic_admin: TopicAdmin,
) -> CreatePartitionsResponse:
    deadline = clock.monotonic() + request.timeout_ms / 1000
    quota = context.controller_mutation(strict_since=_FIRST_WITH_QUOTA_ERRORS)
    problem = None if request.validate_only else log_manager.creation_problem()
    counts = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    created: list[tuple[str, int, int]] = []
    for topic in request.topics:
        await context.give_way()
        if topic.name in results:
            continue
        result = results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
        try:
            if counts[topic.name] > 1:
                raise InvalidRequestError("Duplicate topic name.")
            check_topic(context, Operation.ALTER, topic.name)
            if problem is not None:
                raise problem
            existing = await _create(image, topic_admin, topic, request.validate_only, quota)
            created.append((topic.name, topic.count, existing))
        except HeadraceError as error:
            result.error_code, result.error_message = code_of(error), message_of(error)
    if not request.validate_only:
        failures = await wait_for_leaders(image, replicas, clock, created, deadline)
        for name, failure in failures.items():
            results[name].error_code, results[name].error_message = code_of(failure), message_of(failure)
    context.throttle_ms = quota.throttle_ms()
    return CreatePartitionsResponse(results=list(results.values()))


async def _create(
    image: MetadataImage,
    topic_admin: TopicAdmin,
    topic: CreatePartitionsTopic,
    validate_only: bool,
    quota: ControllerMutation,
) -> int:
    """Adds partitions to a topic. Returns how many it had before."""
    existing = image.topic(topic.name)
    count = len(existing.partitions) if existing is not None else 0
    if topic.count - count > MAX_PARTITIONS:
        raise PolicyViolationError(f"Excessively large number of partitions per request. (At most {MAX_PARTITIONS})")
    assignments = None
    if topic.assignments is not None:
        assignments = [list(assignment.broker_ids) for assignment in topic.assignments]
    if not validate_only:
        # An invalid request uses nothing.
        await topic_admin.create_partitions(topic.name, topic.count, assignments, validate_only=True)
        quota.record(topic.count - count)
    await topic_admin.create_partitions(topic.name, topic.count, assignments, validate_only=validate_only)
    return count
