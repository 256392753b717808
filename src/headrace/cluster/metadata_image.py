"""The metadata image: a broker's view of the cluster, built from the controller's UpdateMetadata commands.

A single mutable object, owned by the event loop. `apply` changes it in one step without an await. Its values
(BrokerInfo, PartitionState) are immutable. Readers on hot paths do one or two dictionary lookups.
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
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition

NO_CONTROLLER = -1


def is_other_topic(known: Uuid, named: Uuid) -> bool:
    """Returns True if two topics with the same name have different ids. Before Kafka 2.8 topics had none."""
    return known != named and ZERO_UUID not in (known, named)


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
    """The changes that one `apply` made."""

    changed_partitions: tuple[PartitionState, ...]
    deleted_partitions: tuple[TopicPartition, ...]
    new_topics: tuple[str, ...]
    deleted_topics: tuple[str, ...]
    brokers_changed: bool


ImageListener: TypeAlias = Callable[[ImageChange], None]


class MetadataImage:
    """A broker's view of brokers, topics and partitions."""

    def __init__(self) -> None:
        self.controller_id = NO_CONTROLLER
        self.controller_epoch = 0
        self._brokers: dict[int, BrokerInfo] = {}
        self._topics: dict[str, TopicImage] = {}
        self._names: dict[Uuid, str] = {}
        self._listeners: list[ImageListener] = []

    # ---- reading

    def partition(self, topic: str, index: int) -> PartitionState | None:
        image = self._topics.get(topic)
        return image.partitions.get(index) if image is not None else None

    def topic(self, name: str) -> TopicImage | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        name = self._names.get(topic_id)
        return self._topics[name] if name is not None else None

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)

    def topic_id(self, name: str) -> Uuid | None:
        topic = self._topics.get(name)
        return topic.topic_id if topic is not None else None

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
        """Returns the endpoints of a listener, by broker id. Brokers without that listener are left out."""
        return {
            broker.id: endpoint
            for broker in self._brokers.values()
            if (endpoint := broker.endpoint(listener)) is not None
        }

    # ---- updating

    def check_controller_epoch(self, controller_id: int, controller_epoch: int) -> None:
        """Raises StaleControllerEpochError for an old controller. Records a newer one. Call it for every command."""
        if controller_epoch < self.controller_epoch:
            raise StaleControllerEpochError(
                f"Controller {controller_id} sent epoch {controller_epoch}, but controller {self.controller_id} has "
                f"the newer epoch {self.controller_epoch}."
            )
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch

    def apply(self, command: UpdateMetadata) -> ImageChange:
        """Applies an UpdateMetadata and calls the listeners. Raises StaleControllerEpochError for an old controller."""
        self.check_controller_epoch(command.controller_id, command.controller_epoch)
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
                    self._remove_topic(topic)
                    deleted_topics[topic.name] = None
                continue
            if topic is not None and is_other_topic(topic.topic_id, state.topic_id):
                # Deleted and recreated without this broker learning of the deletion: drop the old topic.
                deleted += [old.tp for old in topic.partitions.values()]
                self._remove_topic(topic)
                deleted_topics[topic.name] = None
                topic = None
            if topic is None:
                topic = TopicImage(state.tp.topic, state.topic_id)
                self._topics[topic.name] = topic
                new_topics[topic.name] = None
            elif topic.topic_id == ZERO_UUID:
                topic.topic_id = state.topic_id
            if topic.topic_id != ZERO_UUID:
                self._names[topic.topic_id] = topic.name
            if topic.partitions.get(state.tp.partition) != state:
                topic.partitions[state.tp.partition] = state
                changed.append(state)
        if command.full:
            present = {state.tp for state in command.partitions}
            for topic in list(self._topics.values()):
                for tp in [state.tp for state in topic.partitions.values() if state.tp not in present]:
                    del topic.partitions[tp.partition]
                    deleted.append(tp)
                if not topic.partitions:
                    self._remove_topic(topic)
                    deleted_topics[topic.name] = None
        change = ImageChange(tuple(changed), tuple(deleted), tuple(new_topics), tuple(deleted_topics), brokers_changed)
        for listener in tuple(self._listeners):
            listener(change)
        return change

    def _remove_topic(self, topic: TopicImage) -> None:
        del self._topics[topic.name]
        self._names.pop(topic.topic_id, None)

    # ---- waiting

    def add_listener(self, listener: ImageListener) -> None:
        """Adds a listener that is called after each `apply`, when the image is consistent. Must not block."""
        self._listeners.append(listener)

    def remove_listener(self, listener: ImageListener) -> None:
        self._listeners.remove(listener)

    async def wait_for(self, predicate: Callable[["MetadataImage"], bool], timeout_seconds: float) -> bool:
        """Waits until the predicate holds. Returns False on timeout."""
        if predicate(self):
            return True
        met: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def check(_: ImageChange) -> None:
            if not met.done() and predicate(self):
                met.set_result(None)

        self.add_listener(check)
        try:
            async with asyncio.timeout(timeout_seconds):
                await met
        except TimeoutError:
            return False
        finally:
            self.remove_listener(check)
        return True

    def topic_is_ready(self, name: str, partitions: int, first: int = 0) -> bool:
        """Returns True if the image has all partitions of a topic, from `first` on with leaders. CreateTopics waits for
        this, and CreatePartitions for the new partitions."""
        topic = self._topics.get(name)
        return (
            topic is not None
            and len(topic.partitions) >= partitions
            and all(state.leader != NO_LEADER for index, state in topic.partitions.items() if index >= first)
        )
