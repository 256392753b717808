"""What the controller tells brokers. In one process they are handed over as they are; between processes they travel as
Kafka's LeaderAndIsr, StopReplica and UpdateMetadata requests.

A broker refuses a command whose controller epoch is older than one it has seen (STALE_CONTROLLER_EPOCH), and one meant
for an earlier life of it (a lower broker epoch: STALE_BROKER_EPOCH): a controller that was replaced and does not know
it can do no harm. The first commands may come before the broker has learnt its own epoch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition

NO_LEADER = -1
LEADER_DURING_DELETE = -2
"""Stands for the leader of a partition that is being deleted."""
EPOCH_DURING_DELETE = -2
"""The leader epoch in a StopReplica that deletes: it beats every other."""


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    id: int
    endpoints: tuple[BrokerEndpoint, ...] = ()
    rack: str | None = None
    epoch: int = -1
    """The zxid of its registration: grows with each life of the broker."""

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """All there is to know of a partition at one moment."""

    tp: TopicPartition
    topic_id: Uuid
    leader: int
    """NO_LEADER if there is none, LEADER_DURING_DELETE if the partition is going."""
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    """The version of the partition's state in the store: what a change of the ISR is compared with."""
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    is_new: bool = False
    """In a LeaderAndIsr: the replica does not exist yet and is to be made."""
    offline_replicas: tuple[int, ...] = ()
    controller_epoch: int = 0
    """The epoch of the controller that wrote leader and ISR."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Become leader or follower of these partitions."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: Sequence[PartitionState]


class ReplicaToStop(NamedTuple):
    tp: TopicPartition
    leader_epoch: int
    delete: bool


@dataclass(frozen=True, slots=True)
class StopReplica:
    """Stop serving these replicas, and delete their logs where it says so."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: Sequence[ReplicaToStop]


@dataclass(frozen=True, slots=True)
class UpdateMetadata:
    """The live brokers, all of them, and the partitions that changed."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    brokers: Sequence[BrokerInfo]
    partitions: Sequence[PartitionState]
    full: bool = False
    """All partitions are here, and what is not here does not exist: the first that a broker gets from a controller."""


Command: TypeAlias = LeaderAndIsr | StopReplica | UpdateMetadata


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A broker's answer: a code for the whole command (0: it was taken), and one for each partition that failed."""

    error_code: int = 0
    partition_errors: Mapping[TopicPartition, int] = field(default_factory=dict)

    def error_of(self, tp: TopicPartition) -> int:
        return self.error_code or self.partition_errors.get(tp, 0)


class BrokerChannel(Protocol):
    """The controller's way to brokers. Commands to one broker arrive in the order they were sent."""

    def send(self, broker_id: int, command: Command, done: Callable[[CommandResult], None]) -> None:
        """Does not block. `done` is called once, at once or later, on the event loop; a broker that cannot be reached
        is sent to again as long as it is registered."""
        ...

    def add_broker(self, broker: BrokerInfo) -> None:
        """A broker has come, or has come back with another epoch or address."""
        ...

    def remove_broker(self, broker_id: int) -> None:
        """A broker has gone; what waits for it is dropped, without a call of `done`."""
        ...
