"""Creates topics that clients request and that do not exist yet, among them the internal topics.

- `create` is for internal topics: its caller waits for the topic.
- `request` is for the topics that Metadata requests name: the topic is created in the background, and the client finds
  it with a later request, as in Kafka. Limits protect the broker from a client that names thousands of topics: so many
  creations may be in flight, and so many may start per second. A topic beyond a limit is created when a later request
  names it.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from headrace.broker.config.coordinators import InternalTopic
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.topics import TopicAdmin, TopicSpec, check_topic_name
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError, LeaderNotAvailableError, TopicAlreadyExistsError

_logger = logging.getLogger(__name__)

_READY_TIMEOUT_SECONDS = 2.0
_LOG_INTERVAL_SECONDS = 10.0
"""The limits and failures of creations are logged at most this often: a client may repeat its request quickly."""


class CreationRate:
    """A token bucket: `per_second` creations on average, and `burst` at once after a quiet time."""

    def __init__(self, per_second: int, burst: int, clock: Clock):
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._refilled_at = clock.monotonic()

    def take(self) -> bool:
        """Returns True if a creation may start now."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._refilled_at) * self._per_second)
        self._refilled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class AutoTopicCreation:
    """Creates each topic once, however many requests need it at the same time. Owned by the broker's loop."""

    def __init__(
        self,
        topic_admin: TopicAdmin,
        image: MetadataImage,
        internal_topics: Mapping[str, InternalTopic],
        clock: Clock,
        *,
        per_second: int,
        max_in_flight: int,
    ):
        self._topic_admin = topic_admin
        self._image = image
        self._internal_topics = internal_topics
        self._clock = clock
        self._per_second = per_second
        self._max_in_flight = max_in_flight
        self._rate = CreationRate(per_second, max_in_flight, clock)
        self._creations: dict[str, asyncio.Task[None]] = {}
        self._limit_logged_at = self._failure_logged_at = float("-inf")

    async def create(self, topic: str) -> None:
        """Creates a topic and waits briefly for its leaders. Raises LeaderNotAvailableError if it has none by then."""
        creation = self._creations.get(topic)
        if creation is None:
            creation = self._start(topic)
            creation.add_done_callback(lambda creation: self._log_failure(topic, creation))
        await asyncio.shield(creation)

    def request(self, topic: str) -> bool:
        """Starts to create a topic, unless it is being created. Returns False if a limit does not allow it now.

        Raises InvalidTopicError for a name that no topic can have.
        """
        check_topic_name(topic)
        if topic in self._creations:
            return True
        if topic not in self._internal_topics and (
            len(self._creations) >= self._max_in_flight or not self._rate.take()
        ):
            return False
        self._start(topic).add_done_callback(lambda creation: self._log_failure(topic, creation))
        return True

    def log_postponed(self, client: object, postponed: int, requested: int) -> None:
        """Logs that a client requested more topics than may be created now."""
        now = self._clock.monotonic()
        if now - self._limit_logged_at < _LOG_INTERVAL_SECONDS:
            return
        self._limit_logged_at = now
        _logger.warning(
            "%s names %d topics that do not exist: %d of them are not created now and get UNKNOWN_TOPIC_OR_PARTITION "
            "(headrace.auto.create.topics.per.second=%d, headrace.auto.create.topics.max.in.flight=%d); later requests "
            "create them",
            client,
            requested,
            postponed,
            self._per_second,
            self._max_in_flight,
        )

    def _start(self, topic: str) -> "asyncio.Task[None]":
        creation = self._creations[topic] = asyncio.create_task(self._create(topic))
        creation.add_done_callback(lambda _: self._creations.pop(topic, None))
        return creation

    async def _create(self, topic: str) -> None:
        internal = self._internal_topics.get(topic)
        spec = internal.spec(len(self._image.brokers)) if internal is not None else TopicSpec(topic)
        with suppress(TopicAlreadyExistsError):  # another request was faster
            await self._topic_admin.create_topic(spec)
        partitions = internal.partitions if internal is not None else 1
        if not await self._image.wait_for(
            lambda image: image.topic_is_ready(topic, partitions), _READY_TIMEOUT_SECONDS
        ):
            raise LeaderNotAvailableError(f"Topic '{topic}' is being created and has no leader yet.")

    def _log_failure(self, topic: str, creation: "asyncio.Task[None]") -> None:
        error = None if creation.cancelled() else creation.exception()
        now = self._clock.monotonic()
        if error is None or isinstance(error, LeaderNotAvailableError):
            return
        if now - self._failure_logged_at >= _LOG_INTERVAL_SECONDS:
            self._failure_logged_at = now
            unexpected = None if isinstance(error, HeadraceError) else error
            _logger.warning(
                "Topic %s cannot be created automatically, clients get %s: %s",
                topic,
                "COORDINATOR_NOT_AVAILABLE" if topic in self._internal_topics else "UNKNOWN_TOPIC_OR_PARTITION",
                error,
                exc_info=unexpected,
            )

    async def close(self) -> None:
        """Cancels the creations that are in progress."""
        creations = list(self._creations.values())
        for creation in creations:
            creation.cancel()
        await asyncio.gather(*creations, return_exceptions=True)
