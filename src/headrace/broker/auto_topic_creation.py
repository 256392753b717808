"""Creates topics that clients request and that do not exist yet, among them the internal topics."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from headrace.broker.config.coordinators import InternalTopic
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.topics import TopicAdmin, TopicSpec
from headrace.common.errors import LeaderNotAvailableError, TopicAlreadyExistsError

_READY_TIMEOUT_SECONDS = 2.0


class AutoTopicCreation:
    """Creates each topic once, however many requests need it at the same time. Owned by the broker's loop."""

    def __init__(self, topic_admin: TopicAdmin, image: MetadataImage, internal_topics: Mapping[str, InternalTopic]):
        self._topic_admin = topic_admin
        self._image = image
        self._internal_topics = internal_topics
        self._creations: dict[str, asyncio.Task[None]] = {}

    async def create(self, topic: str) -> None:
        """Creates a topic and waits briefly for its leaders. Raises LeaderNotAvailableError if it has none by then."""
        creation = self._creations.get(topic)
        if creation is None:
            creation = self._creations[topic] = asyncio.create_task(self._create(topic))
            creation.add_done_callback(lambda _: self._creations.pop(topic, None))
        await asyncio.shield(creation)

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

    async def close(self) -> None:
        """Cancels the creations that are in progress."""
        creations = list(self._creations.values())
        for creation in creations:
            creation.cancel()
        await asyncio.gather(*creations, return_exceptions=True)
