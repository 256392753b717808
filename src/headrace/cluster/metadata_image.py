"""The metadata image: what a broker believes of the cluster, as the controller told it.

One mutable object, owned by the event loop: `apply` changes it in one step without an await, and what it hands out
(BrokerInfo, PartitionState) is immutable. Readers on hot paths do one or two dictionary look-ups.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headrace.cluster.commands import (
    LEADER_DURING_DELETE,
    NO_LEADER,
    BrokerEndpoint,
    BrokerInfo,
    PartitionState,
    UpdateMetadata,
)
from headrace.common.errors import StaleControllerEpochError
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition

NO_CONTROLLER = -1


class TopicImage:
    """A topic and its partitions."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: Uuid):
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, PartitionState] = {}

    def __repr__(self) -> str:
        return f"TopicImage({self.name!r}, {self.topic_id}, {len(self.partitions)} partitions)"


@dataclass(frozen=True, slots=True)
class ImageChange:
    """What an `apply` did."""

    changed_partitions: tuple[PartitionState, ...]
    deleted_partitions: tuple[TopicPartition, ...]
    new_topics: tuple[str, ...]
    deleted_topics: tuple[str, ...]
    brokers_changed: bool


ImageListener: TypeAlias = Callable[[ImageChange], None]


class MetadataImage:
    def __init__(self) -> None:
        self.controller_id = NO_CONTROLLER
        self.controller_epoch = 0
        self._brokers: dict[int, BrokerInfo] = {}
        self._topics: dict[str, TopicImage] = {}
        self._names: dict[Uuid, str] = {}
        self._listeners: list[ImageListener] = []

    # ---- reading

    def partition(self, topic: str, index: int) -> PartitionState | None:
        found = self._topics.get(topic)
        return found.partitions.get(index) if found is not None else None

    def topic(self, name: str) -> TopicImage | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        name = self._names.get(topic_id)
        return self._topics[name] if name is not None else None

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)

    def topic_id(self, name: str) -> Uuid | None:
        found = self._topics.get(name)
        return found.topic_id if found is not None else None

    def has_topic(self, name: str) -> bool:
        return name in self._topics

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        return self._topics

    def partitions(self) -> Iterator[PartitionState]:
        for topic in self._topics.values():
            yield from topic.partitions.values()

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self._topics.values())

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """The live brokers by id."""
        return self._brokers

    def broker(self, broker_id: int) -> BrokerInfo | None:
        return self._brokers.get(broker_id)

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self._brokers

    def endpoints(self, listener: str) -> dict[int, BrokerEndpoint]:
        """The live brokers that have this listener, and where they have it."""
        return {
            broker.id: endpoint
            for broker in self._brokers.values()
            if (endpoint := broker.endpoint(listener)) is not None
        }

    # ---- changing

    def fence(self, controller_id: int, controller_epoch: int) -> None:
        """Refuses a controller that was replaced; takes note of a newer one. For every command, not only `apply`."""
        if controller_epoch < self.controller_epoch:
            raise StaleControllerEpochError(
                f"controller {controller_id} has epoch {controller_epoch}, but controller {self.controller_id} has "
                f"epoch {self.controller_epoch}"
            )
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch

    def apply(self, command: UpdateMetadata) -> ImageChange:
        """Raises StaleControllerEpochError, and changes nothing, if the controller was replaced."""
        self.fence(command.controller_id, command.controller_epoch)
        brokers = {broker.id: broker for broker in command.brokers}
        brokers_changed = brokers != self._brokers
        self._brokers = brokers
        changed: list[PartitionState] = []
        deleted: list[TopicPartition] = []
        new_topics: dict[str, None] = {}
        deleted_topics: dict[str, None] = {}
        for state in command.partitions:
            topic = self._topics.get(state.tp.topic)
            if state.leader == LEADER_DURING_DELETE:
                if topic is None or topic.partitions.pop(state.tp.partition, None) is None:
                    continue
                deleted.append(state.tp)
                if not topic.partitions:
                    self._forget_topic(topic)
                    deleted_topics[topic.name] = None
                continue
            if topic is not None and topic.topic_id != state.topic_id:
                # Deleted and made again while this broker was not told: nothing of the old one is true.
                deleted += [old.tp for old in topic.partitions.values()]
                self._forget_topic(topic)
                deleted_topics[topic.name] = None
                topic = None
            if topic is None:
                topic = TopicImage(state.tp.topic, state.topic_id)
                self._topics[topic.name] = topic
                self._names[topic.topic_id] = topic.name
                new_topics[topic.name] = None
            if topic.partitions.get(state.tp.partition) != state:
                topic.partitions[state.tp.partition] = state
                changed.append(state)
        if command.full:
            told = {state.tp for state in command.partitions}
            for topic in list(self._topics.values()):
                for tp in [state.tp for state in topic.partitions.values() if state.tp not in told]:
                    del topic.partitions[tp.partition]
                    deleted.append(tp)
                if not topic.partitions:
                    self._forget_topic(topic)
                    deleted_topics[topic.name] = None
        change = ImageChange(tuple(changed), tuple(deleted), tuple(new_topics), tuple(deleted_topics), brokers_changed)
        for listener in tuple(self._listeners):
            listener(change)
        return change

    def _forget_topic(self, topic: TopicImage) -> None:
        del self._topics[topic.name]
        self._names.pop(topic.topic_id, None)

    # ---- waiting

    def add_listener(self, listener: ImageListener) -> None:
        """Called after each `apply`, when the image is whole again. Must not block."""
        self._listeners.append(listener)

    def remove_listener(self, listener: ImageListener) -> None:
        self._listeners.remove(listener)

    async def wait_for(self, predicate: Callable[["MetadataImage"], bool], timeout_seconds: float) -> bool:
        """Until the image is as asked for; False if that does not come about in time."""
        if predicate(self):
            return True
        met: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def look(_: ImageChange) -> None:
            if not met.done() and predicate(self):
                met.set_result(None)

        self.add_listener(look)
        try:
            async with asyncio.timeout(timeout_seconds):
                await met
        except TimeoutError:
            return False
        finally:
            self.remove_listener(look)
        return True

    def topic_is_ready(self, name: str, partitions: int) -> bool:
        """Whether all partitions of a topic are here and have leaders: what the maker of a topic waits for."""
        topic = self._topics.get(name)
        return (
            topic is not None
            and len(topic.partitions) >= partitions
            and all(state.leader != NO_LEADER for state in topic.partitions.values())
        )
