"""What the controller knows: brokers, topics, leaders, and where each partition and replica stands. A cache of the
store that only the controller's task touches, and that is built anew at each election.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from headrace.cluster.commands import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    NO_LEADER,
    BrokerInfo,
    PartitionState,
)
from headrace.cluster.znodes import Leadership, ReplicaAssignment, TopicAssignment
from headrace.common.types import TopicPartition


class Replica(NamedTuple):
    tp: TopicPartition
    broker_id: int

    def __str__(self) -> str:
        return f"{self.tp} on broker {self.broker_id}"


class PartitionStatus(Enum):
    """Where a partition stands. `predecessors` are the only states it may come from."""

    NON_EXISTENT = "NonExistent"
    """Not made yet, or deleted."""
    NEW = "New"
    """It has replicas, but never had a leader."""
    ONLINE = "Online"
    """It has a leader."""
    OFFLINE = "Offline"
    """Its leader is gone, and no other was found."""

    @property
    def predecessors(self) -> frozenset["PartitionStatus"]:
        return _PARTITION_PREDECESSORS[self]


_PARTITION_PREDECESSORS = {
    PartitionStatus.NON_EXISTENT: frozenset({PartitionStatus.OFFLINE}),
    PartitionStatus.NEW: frozenset({PartitionStatus.NON_EXISTENT}),
    PartitionStatus.ONLINE: frozenset({PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}),
    PartitionStatus.OFFLINE: frozenset({PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}),
}


class ReplicaStatus(Enum):
    """Where a replica stands. `predecessors` are the only states it may come from."""

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    """Just assigned; may become a follower."""
    ONLINE = "Online"
    """Its broker is up; it may lead or follow."""
    OFFLINE = "Offline"
    """Its broker, or its log directory, is down; or it was told to stop."""
    DELETION_STARTED = "ReplicaDeletionStarted"
    """Its broker was told to delete it."""
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    """It cannot be deleted now, as its broker is down or failed to."""

    @property
    def predecessors(self) -> frozenset["ReplicaStatus"]:
        return _REPLICA_PREDECESSORS[self]


_REPLICA_PREDECESSORS = {
    ReplicaStatus.NON_EXISTENT: frozenset({ReplicaStatus.DELETION_SUCCESSFUL}),
    ReplicaStatus.NEW: frozenset({ReplicaStatus.NON_EXISTENT}),
    ReplicaStatus.ONLINE: frozenset(
        {ReplicaStatus.NEW, ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_INELIGIBLE}
    ),
    ReplicaStatus.OFFLINE: frozenset(
        {ReplicaStatus.NEW, ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_INELIGIBLE}
    ),
    ReplicaStatus.DELETION_STARTED: frozenset({ReplicaStatus.OFFLINE}),
    ReplicaStatus.DELETION_SUCCESSFUL: frozenset({ReplicaStatus.DELETION_STARTED}),
    ReplicaStatus.DELETION_INELIGIBLE: frozenset({ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED}),
}


class ControllerContext:
    def __init__(self, controller_id: int) -> None:
        self.controller_id = controller_id
        self.epoch = 0
        self.brokers: dict[int, BrokerInfo] = {}
        """The registered ones, also those that are shutting down."""
        self.shutting_down: set[int] = set()
        self.topics: dict[str, TopicAssignment] = {}
        self.leaderships: dict[TopicPartition, Leadership] = {}
        self.partition_status: dict[TopicPartition, PartitionStatus] = {}
        self.replica_status: dict[Replica, ReplicaStatus] = {}
        self.unreadable: set[TopicPartition] = set()
        """Partitions whose leader and ISR are damaged in the store."""
        self.failed_replicas: dict[int, set[TopicPartition]] = {}
        """By broker: replicas in log directories that failed."""
        self.to_delete: set[str] = set()
        """Topics that are marked for deletion."""
        self.deletion_halted: set[str] = set()
        """Those of them that wait for a broker to come back."""
        self.deletion_begun: set[str] = set()
        """Those of them that brokers were told about."""

    # ---- brokers

    @property
    def live_ids(self) -> list[int]:
        """Brokers that may become leaders."""
        return sorted(self.brokers.keys() - self.shutting_down)

    def is_online(self, broker_id: int, tp: TopicPartition, *, or_shutting_down: bool = False) -> bool:
        """Whether a broker is up and has the partition's log at hand."""
        return (
            broker_id in self.brokers
            and (or_shutting_down or broker_id not in self.shutting_down)
            and tp not in self.failed_replicas.get(broker_id, ())
        )

    def online_replicas(self, tp: TopicPartition, *, or_shutting_down: bool = False) -> set[int]:
        replicas = self.assignment(tp).replicas
        return {one for one in replicas if self.is_online(one, tp, or_shutting_down=or_shutting_down)}

    # ---- topics

    def assignment(self, tp: TopicPartition) -> ReplicaAssignment:
        topic = self.topics.get(tp.topic)
        found = topic.partitions.get(tp.partition) if topic is not None else None
        return found if found is not None else ReplicaAssignment(())

    def has_partition(self, tp: TopicPartition) -> bool:
        topic = self.topics.get(tp.topic)
        return topic is not None and tp.partition in topic.partitions

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        found = self.topics.get(topic)
        return [TopicPartition(topic, index) for index in found.partitions] if found is not None else []

    def partitions(self) -> Iterator[TopicPartition]:
        for topic in self.topics:
            yield from self.partitions_of(topic)

    def replicas_of(self, tps: Iterable[TopicPartition]) -> list[Replica]:
        return [Replica(tp, broker_id) for tp in tps for broker_id in self.assignment(tp).replicas]

    def replicas_on(self, broker_ids: Iterable[int]) -> list[Replica]:
        wanted = set(broker_ids)
        return [replica for replica in self.replicas_of(self.partitions()) if replica.broker_id in wanted]

    def is_to_delete(self, tp: TopicPartition) -> bool:
        return tp.topic in self.to_delete

    def replicas_in(self, topic: str, status: ReplicaStatus) -> list[Replica]:
        return [
            replica
            for replica in self.replicas_of(self.partitions_of(topic))
            if self.replica_status.get(replica) is status
        ]

    def forget_topic(self, topic: str) -> None:
        for replica in self.replicas_of(self.partitions_of(topic)):
            self.replica_status.pop(replica, None)
        for tp in self.partitions_of(topic):
            self.partition_status.pop(tp, None)
            self.leaderships.pop(tp, None)
            self.unreadable.discard(tp)
            for failed in self.failed_replicas.values():
                failed.discard(tp)
        self.topics.pop(topic, None)
        self.to_delete.discard(topic)
        self.deletion_halted.discard(topic)
        self.deletion_begun.discard(topic)

    # ---- what brokers are told

    def describe(self, tp: TopicPartition, *, is_new: bool = False, deleting: bool = False) -> PartitionState:
        """A partition as commands show it; a partition that never had a leader has none, in epoch -1."""
        assignment = self.assignment(tp)
        state = self.leaderships.get(tp) or Leadership(NO_LEADER, -1, (), self.epoch, -1)
        return PartitionState(
            tp=tp,
            topic_id=self.topics[tp.topic].topic_id,
            leader=LEADER_DURING_DELETE if deleting else state.leader,
            leader_epoch=EPOCH_DURING_DELETE if deleting else state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.partition_epoch,
            replicas=assignment.replicas,
            adding=assignment.adding,
            removing=assignment.removing,
            is_new=is_new,
            offline_replicas=tuple(
                one for one in assignment.replicas if not self.is_online(one, tp, or_shutting_down=True)
            ),
            controller_epoch=state.controller_epoch,
        )
