"""CreatePartitions: gives topics more partitions; `count` is how many the topic has then.

Versions 0 to 3: 2 flexible, 3 quota errors (KIP-599, there are no quotas yet).

Each topic fails or succeeds on its own. The reply waits until the new partitions have leaders; after `timeout_ms` the
topic gets REQUEST_TIMED_OUT, and they are made all the same. A name that comes twice in a request is refused.
"""

from collections import Counter

from headrace.broker.dispatch import RequestContext, api
from headrace.broker.handlers.create_topics import MOST_PARTITIONS
from headrace.broker.topic_waits import wait_for_image
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.topics import TopicAdmin
from headrace.common.clock import Clock
from headrace.common.errors import (
    HeadraceError,
    InvalidRequestError,
    PolicyViolationError,
    RequestTimedOutError,
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


@api(ApiKey.CREATE_PARTITIONS, 0, 3)
async def handle(
    request: CreatePartitionsRequest, _: RequestContext, *, clock: Clock, image: MetadataImage, topic_admin: TopicAdmin
) -> CreatePartitionsResponse:
    deadline = clock.monotonic() + request.timeout_ms / 1000
    times = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    for topic in request.topics:
        if topic.name in results:
            continue
        result = results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
        try:
            if times[topic.name] > 1:
                raise InvalidRequestError(f"topic {topic.name} comes more than once in the request")
            await _create(image, topic_admin, topic, request.validate_only)
        except HeadraceError as error:
            result.error_code, result.error_message = code_of(error), message_of(error)
    if not request.validate_only:
        grown = [(topic.name, topic.count) for topic in request.topics if not results[topic.name].error_code]
        late = await wait_for_image(image, clock, grown, lambda image, topic: image.topic_is_ready(*topic), deadline)
        for name, count in late:
            results[name].error_code = RequestTimedOutError.code
            results[name].error_message = f"topic {name} will have {count} partitions, but not all are ready yet"
    return CreatePartitionsResponse(results=list(results.values()))


async def _create(
    image: MetadataImage, topic_admin: TopicAdmin, topic: CreatePartitionsTopic, validate_only: bool
) -> None:
    known = image.topic(topic.name)
    if topic.count - (len(known.partitions) if known is not None else 0) > MOST_PARTITIONS:
        raise PolicyViolationError(f"one request makes {MOST_PARTITIONS} partitions at most")
    assignments = None
    if topic.assignments is not None:
        assignments = [list(assignment.broker_ids) for assignment in topic.assignments]
    await topic_admin.create_partitions(topic.name, topic.count, assignments, validate_only=validate_only)
