"""The controller's view of the cluster: brokers, topics, leaders, and the state of each partition and replica.

It is a cache of the coordination store. Only the controller's task uses it. Each election creates a new one.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
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
    """A partition's replica on one broker."""

    tp: TopicPartition
    broker_id: int

    def __str__(self) -> str:
        return f"{self.tp} on broker {self.broker_id}"


class PartitionStatus(Enum):
    """The state of a partition. `predecessors` are its valid previous states."""

    NON_EXISTENT = "NonExistent"
    """Not created yet, or deleted."""
    NEW = "New"
    """Has replicas, but never had a leader."""
    ONLINE = "Online"
    """Has a leader."""
    OFFLINE = "Offline"
    """Lost its leader, and no other replica is eligible."""

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
    """The state of a replica. `predecessors` are its valid previous states."""

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    """Just assigned. It can become a follower."""
    ONLINE = "Online"
    """Its broker is alive. It can be leader or follower."""
    OFFLINE = "Offline"
    """Its broker or its log directory is offline, or it was stopped."""
    DELETION_STARTED = "ReplicaDeletionStarted"
    """The broker has received the command to delete it, but has not responded yet."""
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    """Cannot be deleted now: its broker is offline, or failed to delete it."""

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
    """The controller's cache of the cluster state."""

    def __init__(self, controller_id: int) -> None:
        self.controller_id = controller_id
        self.epoch = 0
        self.leaders_write_isr = False
        """True below `inter.broker.protocol.version` 2.7: leaders change ISRs in the store themselves, and notify the
        controller seconds later. Then it reads the state of a partition before it decides."""
        self.brokers: dict[int, BrokerInfo] = {}
        """Registered brokers, including brokers that are shutting down."""
        self.shutting_down: set[int] = set()
        self.topics: dict[str, TopicAssignment] = {}
        self.leaderships: dict[TopicPartition, Leadership] = {}
        self.partition_status: dict[TopicPartition, PartitionStatus] = {}
        self.replica_status: dict[Replica, ReplicaStatus] = {}
        self.damaged_topics: set[str] = set()
        """Topics whose assignment is unreadable in the store. They exist, but the controller cannot serve them."""
        self.damaged_partitions: set[TopicPartition] = set()
        """Partitions whose leader and ISR are unreadable in the store."""
        self.replicas_on_offline_dirs: dict[int, set[TopicPartition]] = {}
        """Broker id → partitions whose replica is in a failed log directory of that broker."""
        self.reassigned_partitions: set[TopicPartition] = set()
        """Partitions whose reassignment is in progress."""
        self.topics_to_be_deleted: set[str] = set()
        """Topics marked for deletion."""
        self.topics_ineligible_for_deletion: set[str] = set()
        """Topics marked for deletion that wait for an offline replica."""
        self.topics_with_deletion_started: set[str] = set()
        """Topics marked for deletion whose partitions are already Offline or NonExistent."""

    # ---- brokers

    @property
    def live_broker_ids(self) -> list[int]:
        """The brokers that can become leaders."""
        return sorted(self.brokers.keys() - self.shutting_down)

    def is_replica_online(self, broker_id: int, tp: TopicPartition, *, include_shutting_down: bool = False) -> bool:
        """Returns True if the broker is alive and the log directory of its replica is online."""
        return (
            broker_id in self.brokers
            and (include_shutting_down or broker_id not in self.shutting_down)
            and tp not in self.replicas_on_offline_dirs.get(broker_id, ())
        )

    def online_replicas(self, tp: TopicPartition, *, include_shutting_down: bool = False) -> set[int]:
        replicas = self.assignment(tp).replicas
        return {
            broker_id
            for broker_id in replicas
            if self.is_replica_online(broker_id, tp, include_shutting_down=include_shutting_down)
        }

    # ---- topics

    def assignment(self, tp: TopicPartition) -> ReplicaAssignment:
        topic = self.topics.get(tp.topic)
        assignment = topic.partitions.get(tp.partition) if topic is not None else None
        return assignment if assignment is not None else ReplicaAssignment(())

    def update_assignments(self, assignments: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        """Changes the replicas of existing partitions."""
        by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
        for tp, assignment in assignments.items():
            by_topic.setdefault(tp.topic, {})[tp.partition] = assignment
        for name, partitions in by_topic.items():
            topic = self.topics[name]
            self.topics[name] = replace(topic, partitions={**topic.partitions, **partitions})

    def has_partition(self, tp: TopicPartition) -> bool:
        topic = self.topics.get(tp.topic)
        return topic is not None and tp.partition in topic.partitions

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        assignment = self.topics.get(topic)
        return (
            [TopicPartition(topic, partition) for partition in assignment.partitions] if assignment is not None else []
        )

    def partitions(self) -> Iterator[TopicPartition]:
        for topic in self.topics:
            yield from self.partitions_of(topic)

    def replicas_of(self, tps: Iterable[TopicPartition]) -> list[Replica]:
        return [Replica(tp, broker_id) for tp in tps for broker_id in self.assignment(tp).replicas]

    def replicas_on(self, broker_ids: Iterable[int]) -> list[Replica]:
        brokers = set(broker_ids)
        return [replica for replica in self.replicas_of(self.partitions()) if replica.broker_id in brokers]

    def is_queued_for_deletion(self, tp: TopicPartition) -> bool:
        return tp.topic in self.topics_to_be_deleted

    def replicas_in_state(self, topic: str, status: ReplicaStatus) -> list[Replica]:
        return [
            replica
            for replica in self.replicas_of(self.partitions_of(topic))
            if self.replica_status.get(replica) is status
        ]

    def remove_topic(self, topic: str) -> None:
        for replica in self.replicas_of(self.partitions_of(topic)):
            self.replica_status.pop(replica, None)
        for tp in self.partitions_of(topic):
            self.partition_status.pop(tp, None)
            self.leaderships.pop(tp, None)
            self.damaged_partitions.discard(tp)
            self.reassigned_partitions.discard(tp)
            for failed in self.replicas_on_offline_dirs.values():
                failed.discard(tp)
        self.topics.pop(topic, None)
        self.topics_to_be_deleted.discard(topic)
        self.topics_ineligible_for_deletion.discard(topic)
        self.topics_with_deletion_started.discard(topic)

    # ---- commands

    def partition_state(self, tp: TopicPartition, *, is_new: bool = False, deleting: bool = False) -> PartitionState:
        """Returns a partition's state for a command. A partition that never had a leader has leader -1 and epoch -1."""
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
                broker_id
                for broker_id in assignment.replicas
                if not self.is_replica_online(broker_id, tp, include_shutting_down=True)
            ),
            controller_epoch=state.controller_epoch,
            leader_recovery_state=state.leader_recovery_state,
        )
