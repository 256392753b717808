"""A client's metadata cache: immutable views of the cluster, and how a Metadata response yields the next view.

A view never changes, so any thread may read it without a lock and sees a consistent cluster. `Metadata` replaces the
current view with the next one, on the loop.

The leader epoch of a partition never goes back while its topic has the same id (KIP-320): a broker that lags, or is
cut off from the controller, names a former leader. A topic with another id is another topic, with epochs of its own.
Brokers before Kafka 2.1 return no epochs; their metadata is always accepted.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from headrace.common.errors import (
    NO_ERROR,
    KafkaError,
    LeaderNotAvailableError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition
from headrace.net.nodes import Node
from headrace.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

__all__ = ["ClusterView", "PartitionInfo", "TopicInfo", "merge"]

NO_LEADER = -1


class PartitionInfo(NamedTuple):
    """A partition's leader and replicas."""

    topic: str
    partition: int
    leader: int
    """The leader's node id. -1 if there is no leader, or if only its epoch is known."""
    leader_epoch: int
    """-1 from brokers before Kafka 2.1."""
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


class TopicInfo(NamedTuple):
    """A topic's metadata, or the error that the brokers returned for it."""

    name: str
    id: Uuid = ZERO_UUID
    """Zero from brokers before Kafka 2.8."""
    partitions: tuple[PartitionInfo, ...] = ()
    """Sorted by partition number."""
    is_internal: bool = False
    error: type[KafkaError] | None = None
    """The error that the brokers returned for the topic. `partitions` is then the last known state, if any."""
    authorized_operations: int = -(2**31)
    before_error: "TopicInfo | None" = None
    """The topic before the brokers said that it does not exist. A broker that lags may say so, too: if the topic
    reappears with the same id, its leader epochs are still valid."""

    def partition(self, number: int) -> PartitionInfo | None:
        """Returns a partition by its number, or None."""
        partitions = self.partitions
        if 0 <= number < len(partitions) and partitions[number].partition == number:
            return partitions[number]
        return next((partition for partition in partitions if partition.partition == number), None)


class ClusterView:
    """The metadata of a cluster at a moment. `version` grows with each change."""

    __slots__ = ("_names", "_topics", "cluster_id", "controller_id", "nodes", "topics", "version")

    def __init__(
        self,
        nodes: Mapping[int, Node] | None = None,
        topics: dict[str, TopicInfo] | None = None,
        cluster_id: str | None = None,
        controller_id: int = -1,
        version: int = 0,
    ):
        self.nodes: Mapping[int, Node] = MappingProxyType(dict(nodes or {}))
        self._topics = topics or {}
        self.topics: Mapping[str, TopicInfo] = MappingProxyType(self._topics)
        """The requested topics, including those with an `error`."""
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.version = version
        self._names: dict[Uuid, str] | None = None

    def topic(self, name: str) -> TopicInfo | None:
        """Returns a topic's metadata, possibly with an error, or None if it is unknown."""
        return self._topics.get(name)

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        topic = self._topics.get(tp.topic)
        return None if topic is None else topic.partition(tp.partition)

    def partition_count(self, topic: str) -> int | None:
        """Returns the number of partitions, or None if the topic is unknown or does not exist."""
        info = self._topics.get(topic)
        return len(info.partitions) if info is not None and info.partitions else None

    def leader(self, tp: TopicPartition) -> Node | None:
        """Returns the leader, or None if the partition has none or it is unknown."""
        info = self.partition(tp)
        return None if info is None else self.nodes.get(info.leader)

    def leader_epoch(self, tp: TopicPartition) -> int:
        info = self.partition(tp)
        return -1 if info is None else info.leader_epoch

    def topic_id(self, name: str) -> Uuid:
        """Returns the topic's id, or zero if it is unknown."""
        info = self._topics.get(name)
        return ZERO_UUID if info is None else info.id

    def topic_name(self, topic_id: Uuid) -> str | None:
        names = self._names
        if names is None:
            names = {topic.id: topic.name for topic in self._topics.values() if topic.id != ZERO_UUID}
            self._names = names
        return names.get(topic_id)

    @property
    def controller(self) -> Node | None:
        return self.nodes.get(self.controller_id)

    def names(self, include_internal: bool = True) -> Iterator[str]:
        """Yields the names of existing topics."""
        for topic in self._topics.values():
            if topic.error is None and (include_internal or not topic.is_internal):
                yield topic.name

    def lacks_leader(self, topic: TopicInfo) -> bool:
        """Returns True if a partition has no leader, or an unknown broker as its leader."""
        if topic.error is LeaderNotAvailableError:
            return True
        return any(partition.leader not in self.nodes for partition in topic.partitions)

    # ---- the next view

    def without(self, names: Collection[str]) -> "ClusterView":
        topics = {name: topic for name, topic in self._topics.items() if name not in names}
        return ClusterView(self.nodes, topics, self.cluster_id, self.controller_id, self.version + 1)

    def with_topic(self, topic: TopicInfo) -> "ClusterView":
        topics = {**self._topics, topic.name: topic}
        return ClusterView(self.nodes, topics, self.cluster_id, self.controller_id, self.version + 1)

    def with_leader(self, tp: TopicPartition, leader: int, leader_epoch: int, node: Node | None) -> "ClusterView":
        """Returns a view with a newer leader that a Produce or Fetch response named (KIP-951). Returns this view if the
        leader is not newer."""
        old = self.partition(tp)
        if old is None or (leader_epoch, leader != NO_LEADER) <= (old.leader_epoch, old.leader != NO_LEADER):
            return self
        nodes = dict(self.nodes)
        if node is not None:
            nodes[node.id] = node
        return self._with_partition(old, old._replace(leader=leader, leader_epoch=leader_epoch), nodes)

    def with_leader_epoch(self, tp: TopicPartition, leader_epoch: int) -> "ClusterView":
        """Returns a view without the leader of a partition, because a later epoch has another one. Returns this view if
        its epoch is not older."""
        old = self.partition(tp)
        if old is None or not -1 < old.leader_epoch < leader_epoch:
            return self
        return self._with_partition(old, old._replace(leader=NO_LEADER, leader_epoch=leader_epoch), self.nodes)

    def _with_partition(self, old: PartitionInfo, new: PartitionInfo, nodes: Mapping[int, Node]) -> "ClusterView":
        topic = self._topics[old.topic]
        partitions = tuple(new if partition is old else partition for partition in topic.partitions)
        topics = {**self._topics, topic.name: topic._replace(partitions=partitions)}
        return ClusterView(nodes, topics, self.cluster_id, self.controller_id, self.version + 1)


def merge(
    view: ClusterView,
    response: MetadataResponse,
    *,
    is_full: bool,
    keep: Collection[str] = (),
    is_excluded: Callable[[str], bool] = lambda _: False,
) -> ClusterView:
    """Returns the next view.

    A full response drops the topics that it does not contain. The topics in `keep`, which are in use, stay as unknown
    topics. Excluded topics are left out.
    """
    nodes = {broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers}
    topics = dict(view.topics)
    received: set[str] = set()
    for topic in response.topics:
        if topic.name is None or is_excluded(topic.name):
            continue  # an unknown topic id, or an excluded topic
        received.add(topic.name)
        topics[topic.name] = _next_topic(view.topic(topic.name), topic, topic.name)
    if is_full:
        for name in topics.keys() - received:
            if name in keep:
                topics[name] = _missing_topic(topics[name], ZERO_UUID, UnknownTopicOrPartitionError)
            else:
                del topics[name]
    return ClusterView(nodes, topics, response.cluster_id, response.controller_id, view.version + 1)


_GONE = (UnknownTopicOrPartitionError, UnknownTopicIdError)


def _next_topic(old: TopicInfo | None, response: MetadataResponseTopic, name: str) -> TopicInfo:
    error = None if response.error_code == NO_ERROR else for_code(response.error_code)
    if error is not None and not response.partitions:
        if old is None:
            return TopicInfo(name, response.topic_id, error=error)
        if error in _GONE or not error.retriable:
            return _missing_topic(old, response.topic_id, error)
        return old._replace(error=error)
    known = _same_topic(old, response.topic_id)
    old_partitions = {partition.partition: partition for partition in known.partitions} if known is not None else {}
    partitions = [
        _next_partition(old_partitions.get(partition.partition_index), partition, name)
        for partition in response.partitions
    ]
    partitions.sort(key=lambda partition: partition.partition)
    return TopicInfo(
        name, response.topic_id, tuple(partitions), response.is_internal, error, response.topic_authorized_operations
    )


def _missing_topic(old: TopicInfo, topic_id: Uuid, error: type[KafkaError]) -> TopicInfo:
    before = old.before_error or old
    # Without an id, a new topic of this name could not be told from the old one.
    return TopicInfo(old.name, topic_id, error=error, before_error=before if before.id != ZERO_UUID else None)


def _same_topic(old: TopicInfo | None, topic_id: Uuid) -> TopicInfo | None:
    """Returns what is known of the topic with this id."""
    if old is None:
        return None
    if old.before_error is not None:
        return old.before_error if old.before_error.id == topic_id else None
    return old if old.id == topic_id or ZERO_UUID in (old.id, topic_id) else None


def _next_partition(old: PartitionInfo | None, response: MetadataResponsePartition, topic: str) -> PartitionInfo:
    """Keeps the old state if its leader epoch is newer."""
    if old is not None and -1 < response.leader_epoch < old.leader_epoch:
        return old
    return PartitionInfo(
        topic,
        response.partition_index,
        response.leader_id,
        response.leader_epoch,
        tuple(response.replica_nodes),
        tuple(response.isr_nodes),
        tuple(response.offline_replicas),
    )


def changed_topics(old: ClusterView, new: ClusterView) -> Iterable[str]:
    """Yields the names of topics whose metadata differs between two views."""
    for name in old.topics.keys() | new.topics.keys():
        if old.topic(name) != new.topic(name):
            yield name
