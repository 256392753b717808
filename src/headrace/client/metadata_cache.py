"""What a client knows of the cluster: an immutable view, and how a reply makes the next view of it.

A view never changes, so any thread may read one without a lock; whoever holds one sees a cluster that fits together.
`Metadata` swaps the current one for the next, on the loop.
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
    topic: str
    partition: int
    leader: int
    """The leader's id; -1 if there is none just now."""
    leader_epoch: int
    """-1 if the broker does not tell (before Kafka 2.1)."""
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


class TopicInfo(NamedTuple):
    name: str
    id: Uuid = ZERO_UUID
    """Zero if the broker does not tell (before Kafka 2.8)."""
    partitions: tuple[PartitionInfo, ...] = ()
    """In order of their numbers."""
    is_internal: bool = False
    error: type[KafkaError] | None = None
    """What the brokers said instead of an answer; the partitions are then what was known before, if anything."""
    authorized_operations: int = -(2**31)

    def partition(self, number: int) -> PartitionInfo | None:
        partitions = self.partitions
        if 0 <= number < len(partitions) and partitions[number].partition == number:
            return partitions[number]
        return next((each for each in partitions if each.partition == number), None)


class ClusterView:
    """A cluster at a moment. `version` grows with each change."""

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
        """Everything that was asked for and answered; look at `error`."""
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.version = version
        self._names: dict[Uuid, str] | None = None

    def topic(self, name: str) -> TopicInfo | None:
        """None if nothing is known. With an error set, brokers could not tell."""
        return self._topics.get(name)

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        topic = self._topics.get(tp.topic)
        return None if topic is None else topic.partition(tp.partition)

    def partition_count(self, topic: str) -> int | None:
        """None if the topic is not known, or not to exist."""
        found = self._topics.get(topic)
        return len(found.partitions) if found is not None and found.partitions else None

    def leader(self, tp: TopicPartition) -> Node | None:
        """None if there is no leader, or it is not known."""
        found = self.partition(tp)
        return None if found is None else self.nodes.get(found.leader)

    def leader_epoch(self, tp: TopicPartition) -> int:
        found = self.partition(tp)
        return -1 if found is None else found.leader_epoch

    def topic_id(self, name: str) -> Uuid:
        """Zero if it is not known."""
        found = self._topics.get(name)
        return ZERO_UUID if found is None else found.id

    def topic_name(self, topic_id: Uuid) -> str | None:
        names = self._names
        if names is None:
            names = {each.id: each.name for each in self._topics.values() if each.id != ZERO_UUID}
            self._names = names
        return names.get(topic_id)

    @property
    def controller(self) -> Node | None:
        return self.nodes.get(self.controller_id)

    def names(self, include_internal: bool = True) -> Iterator[str]:
        """The topics that exist."""
        for each in self._topics.values():
            if each.error is None and (include_internal or not each.is_internal):
                yield each.name

    def lacks_leader(self, topic: TopicInfo) -> bool:
        """Whether a partition has no leader, or one that is no broker we know."""
        if topic.error is LeaderNotAvailableError:
            return True
        return any(each.leader not in self.nodes for each in topic.partitions)

    # ---- the next view

    def without(self, names: Collection[str]) -> "ClusterView":
        topics = {name: topic for name, topic in self._topics.items() if name not in names}
        return ClusterView(self.nodes, topics, self.cluster_id, self.controller_id, self.version + 1)

    def with_topic(self, topic: TopicInfo) -> "ClusterView":
        topics = {**self._topics, topic.name: topic}
        return ClusterView(self.nodes, topics, self.cluster_id, self.controller_id, self.version + 1)

    def with_leader(self, tp: TopicPartition, leader: int, leader_epoch: int, node: Node | None) -> "ClusterView":
        """As this one with a newer leader, of which a reply of another kind has told (KIP-951). Itself if it is not
        newer."""
        topic, old = self.topic(tp.topic), self.partition(tp)
        if topic is None or old is None or leader_epoch <= old.leader_epoch:
            return self
        nodes = dict(self.nodes)
        if node is not None:
            nodes[node.id] = node
        new = old._replace(leader=leader, leader_epoch=leader_epoch)
        partitions = tuple(new if each is old else each for each in topic.partitions)
        topics = {**self._topics, topic.name: topic._replace(partitions=partitions)}
        return ClusterView(nodes, topics, self.cluster_id, self.controller_id, self.version + 1)


def merge(
    view: ClusterView,
    reply: MetadataResponse,
    *,
    is_full: bool,
    keep: Collection[str] = (),
    is_excluded: Callable[[str], bool] = lambda _: False,
) -> ClusterView:
    """The next view.

    Of a full reply, topics that are not in it are gone; those in `keep`, which somebody still wants, stay as unknown
    ones. Excluded topics are passed over.
    """
    nodes = {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in reply.brokers}
    topics = dict(view.topics)
    answered: set[str] = set()
    for topic in reply.topics:
        if topic.name is None or is_excluded(topic.name):
            continue  # an id that nobody knows, or what the user does not want to see
        answered.add(topic.name)
        topics[topic.name] = _next_topic(view.topic(topic.name), topic, topic.name)
    if is_full:
        for name in topics.keys() - answered:
            if name in keep:
                topics[name] = TopicInfo(name, error=UnknownTopicOrPartitionError)
            else:
                del topics[name]
    return ClusterView(nodes, topics, reply.cluster_id, reply.controller_id, view.version + 1)


_GONE = (UnknownTopicOrPartitionError, UnknownTopicIdError)


def _next_topic(old: TopicInfo | None, reply: MetadataResponseTopic, name: str) -> TopicInfo:
    error = None if reply.error_code == NO_ERROR else for_code(reply.error_code)
    if error is not None and not reply.partitions:
        if old is None or error in _GONE or not error.retriable:
            return TopicInfo(name, reply.topic_id, error=error)
        return old._replace(error=error)
    same = old is not None and (old.id == reply.topic_id or ZERO_UUID in (old.id, reply.topic_id))
    before = {each.partition: each for each in old.partitions} if old is not None and same else {}
    partitions = [_next_partition(before.get(each.partition_index), each, name) for each in reply.partitions]
    partitions.sort(key=lambda each: each.partition)
    return TopicInfo(
        name, reply.topic_id, tuple(partitions), reply.is_internal, error, reply.topic_authorized_operations
    )


def _next_partition(old: PartitionInfo | None, reply: MetadataResponsePartition, topic: str) -> PartitionInfo:
    """A broker that is behind may tell of a leader that has been replaced: the epoch shows it (KIP-320)."""
    if old is not None and -1 < reply.leader_epoch < old.leader_epoch:
        return old
    return PartitionInfo(
        topic,
        reply.partition_index,
        reply.leader_id,
        reply.leader_epoch,
        tuple(reply.replica_nodes),
        tuple(reply.isr_nodes),
        tuple(reply.offline_replicas),
    )


def changed_topics(old: ClusterView, new: ClusterView) -> Iterable[str]:
    """Names of topics about which the views differ."""
    for name in old.topics.keys() | new.topics.keys():
        if old.topic(name) != new.topic(name):
            yield name
