"""DeleteTopics: deletes topics with all their records.

Versions 1 to 6: 3 an error of its own where `delete.topic.enable` is off (KIP-322), 4 flexible, 5 error messages and
quota errors (KIP-599, there are no quotas yet), 6 topics by id (KIP-516).

Each topic fails or succeeds on its own. The reply waits until the topic is gone, so that one of its name can be made at
once; after `timeout_ms` it gets REQUEST_TIMED_OUT, and is deleted all the same. What comes twice in a request is
refused.
"""

from collections import Counter

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.dispatch import RequestContext, api
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

_FIRST_WITH_IDS = 6
_FIRST_WITH_DISABLED_ERROR = 3
_DISABLED = "no topic can be deleted here: delete.topic.enable=false"


@api(ApiKey.DELETE_TOPICS, 1, 6)
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
    if context.api_version >= _FIRST_WITH_IDS:
        asked = request.topics
    else:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    times = Counter(_identity(image, topic) for topic in asked)
    results: dict[tuple[str | None, Uuid], DeletableTopicResult] = {}
    deleted: list[tuple[str, Uuid]] = []
    for topic in asked:
        key = (topic.name, topic.topic_id)
        if key in results:
            continue
        result = results[key] = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
        try:
            _check(config, topic, times[_identity(image, topic)], context.api_version)
            name, topic_id = _find(image, topic)
            await topic_admin.delete_topic(name)
        except HeadraceError as error:
            result.error_code, result.error_message = code_of(error), message_of(error)
            continue
        result.name, result.topic_id = name, topic_id
        deleted.append((name, topic_id))
    late = await wait_for_image(
        image, clock, deleted, lambda image, topic: image.topic_id(topic[0]) != topic[1], deadline
    )
    late += [
        topic
        for topic in deleted
        if topic not in late and not await wait_for_deletion(store, clock, topic[0], deadline)
    ]
    for result in results.values():
        if not result.error_code and (result.name, result.topic_id) in late:
            result.error_code = RequestTimedOutError.code
            result.error_message = f"topic {result.name} is being deleted, but is still there"
    return DeleteTopicsResponse(responses=list(results.values()))


def _identity(image: MetadataImage, topic: DeleteTopicState) -> object:
    """The same for a topic by its name and by its id."""
    if topic.name is None:
        return topic.topic_id
    known = image.topic_id(topic.name)
    return topic.name if known is None else known


def _check(config: BrokerConfig, topic: DeleteTopicState, times: int, api_version: int) -> None:
    if topic.name is not None and topic.topic_id != ZERO_UUID:
        raise InvalidRequestError(f"a topic is given by name or by id, not by both: {topic.name}, {topic.topic_id}")
    if topic.name is None and topic.topic_id == ZERO_UUID:
        raise InvalidRequestError("a topic is given by name or by id, this one by neither")
    if times > 1:
        raise InvalidRequestError(f"topic {topic.name or topic.topic_id} comes {times} times in the request")
    if not config.delete_topic_enable:
        if api_version < _FIRST_WITH_DISABLED_ERROR:
            raise InvalidRequestError(_DISABLED)
        raise TopicDeletionDisabledError(_DISABLED)


def _find(image: MetadataImage, topic: DeleteTopicState) -> tuple[str, Uuid]:
    if topic.name is not None:
        return topic.name, image.topic_id(topic.name) or ZERO_UUID
    name = image.topic_name(topic.topic_id)
    if name is None:
        raise UnknownTopicIdError(f"there is no topic with id {topic.topic_id}")
    return name, topic.topic_id
