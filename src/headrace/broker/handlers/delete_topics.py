"""DeleteTopics: deletes topics and their records.

Behavior:
- Each topic succeeds or fails on its own. A topic that the request names twice gets INVALID_REQUEST.
- The quota `controller_mutation_rate` counts the partitions of the topics. A client that has exceeded it gets
  THROTTLING_QUOTA_EXCEEDED, and before version 5 only a throttle time.
- The response waits until the topic is deleted, so that its name can be used again at once. After `timeout_ms` the
  topic gets REQUEST_TIMED_OUT, but it is still deleted.

Version notes (1 to 6):
- 3 has an error code for `delete.topic.enable=false` (KIP-322)
- 4 is flexible
- 5 has error messages, and quota errors (KIP-599)
- 6 has topic ids (KIP-516)
"""

from collections import Counter

from headrace.broker.apis import api
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_topic, requires
from headrace.broker.rights import check_topic
from headrace.broker.topic_waits import wait_for_deletion, wait_for_image
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.store import CoordinationStore
from headrace.cluster.topics import TopicAdmin
from headrace.common.clock import Clock
from headrace.common.errors import (
    HeadraceError,
    InvalidRequestError,
    RequestTimedOutError,
    TopicDeletionDisabledError,
    UnknownTopicIdError,
    code_of,
    message_of,
)
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.security.acls import Operation

_FIRST_WITH_IDS = 6
_FIRST_WITH_QUOTA_ERRORS = 5
_FIRST_WITH_DISABLED_ERROR = 3
_DISABLED = "Topic deletion is disabled: delete.topic.enable=false"


@api(
    ApiKey.DELETE_TOPICS,
    1,
    6,
    needs=requires(
        on_topic(Operation.DELETE, "each topic"),
        on_topic(
            Operation.DESCRIBE, "each topic named by its id", "TOPIC_AUTHORIZATION_FAILED, and no name in the response"
        ),
    ),
)
async def handle(
    request: DeleteTopicsRequest,
    context: RequestContext,
    *,
    clock: Clock,
    config: BrokerConfig,
    image: MetadataImage,
    store: CoordinationStore,
    topic_admin: TopicAdmin,
) -> DeleteTopicsResponse:
    deadline = clock.monotonic() + request.timeout_ms / 1000
    quota = context.controller_mutation(strict_since=_FIRST_WITH_QUOTA_ERRORS)
    if context.api_version >= _FIRST_WITH_IDS:
        requested = request.topics
    else:
        requested = [DeleteTopicState(name=name) for name in request.topic_names]
    named = Counter((topic.name, topic.topic_id) for topic in requested)
    counts = Counter(_identity(image, topic) for topic in requested)
    results: dict[tuple[str | None, Uuid], DeletableTopicResult] = {}
    deleted: list[tuple[str, Uuid]] = []
    for topic in requested:
        await context.give_way()
        key = (topic.name, topic.topic_id)
        if key in results:
            continue
        result = results[key] = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
        try:
            _check(config, topic, named[key], context.api_version)
            name, topic_id = _find(image, topic)
            _check_rights(context, topic, result, name)
            if counts[_identity(image, topic)] > 1:
                raise InvalidRequestError(_duplicate(topic))
            existing = image.topic(name)
            if existing is not None:
                quota.record(len(existing.partitions))
            await topic_admin.delete_topic(name)
        except HeadraceError as error:
            result.error_code, result.error_message = code_of(error), message_of(error)
            continue
        result.name, result.topic_id = name, topic_id
        deleted.append((name, topic_id))
    late = set(
        await wait_for_image(image, clock, deleted, lambda image, topic: image.topic_id(topic[0]) != topic[1], deadline)
    )
    for name, topic_id in deleted:
        if (name, topic_id) not in late and not await wait_for_deletion(store, clock, name, deadline):
            late.add((name, topic_id))
    for result in results.values():
        if not result.error_code and (result.name, result.topic_id) in late:
            result.error_code = RequestTimedOutError.code
            result.error_message = f"Timed out: topic '{result.name}' is still being deleted."
    context.throttle_ms = quota.throttle_ms()
    return DeleteTopicsResponse(responses=list(results.values()))


def _identity(image: MetadataImage, topic: DeleteTopicState) -> object:
    """Returns the same key for a topic by name and by id."""
    if topic.name is None:
        return topic.topic_id
    existing_id = image.topic_id(topic.name)
    return topic.name if existing_id is None else existing_id


def _check(config: BrokerConfig, topic: DeleteTopicState, count: int, api_version: int) -> None:
    if topic.name is not None and topic.topic_id != ZERO_UUID:
        raise InvalidRequestError("You may not specify both topic name and topic id.")
    if topic.name is None and topic.topic_id == ZERO_UUID:
        raise InvalidRequestError("Neither topic name nor id were specified.")
    if count > 1:
        raise InvalidRequestError(_duplicate(topic))
    if not config.delete_topic_enable:
        if api_version < _FIRST_WITH_DISABLED_ERROR:
            raise InvalidRequestError(_DISABLED)
        raise TopicDeletionDisabledError(_DISABLED)


def _duplicate(topic: DeleteTopicState) -> str:
    return "Duplicate topic id." if topic.name is None else "Duplicate topic name."


def _check_rights(
    context: RequestContext, requested: DeleteTopicState, result: DeletableTopicResult, name: str
) -> None:
    """Raises an error if the client may not delete a topic. Who may not describe it does not learn its name."""
    if requested.name is None:
        check_topic(context, Operation.DESCRIBE, name)
        result.name = name
    check_topic(context, Operation.DELETE, name)


def _find(image: MetadataImage, topic: DeleteTopicState) -> tuple[str, Uuid]:
    if topic.name is not None:
        return topic.name, image.topic_id(topic.name) or ZERO_UUID
    name = image.topic_name(topic.topic_id)
    if name is None:
        raise UnknownTopicIdError(f"This server does not host this topic ID. ({topic.topic_id})")
    return name, topic.topic_id
