"""The controller's commands to brokers: LeaderAndIsr, StopReplica and UpdateMetadata.

Within one process they are passed as objects. Between processes they are Kafka's requests of the same names.

A broker rejects a command with an old controller epoch (STALE_CONTROLLER_EPOCH) or an old broker epoch
(STALE_BROKER_EPOCH), so a zombie controller can do no harm. The first commands may arrive before the broker knows its
own epoch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition

NO_LEADER = -1
LEADER_DURING_DELETE = -2
"""The leader id of a partition that is being deleted."""
EPOCH_DURING_DELETE = -2
"""The leader epoch in a StopReplica that deletes: it overrides every other epoch."""
RECOVERED = 0
"""The leader recovery state of a partition (KIP-704) whose leader was in the ISR."""
RECOVERING = 1
"""The leader recovery state after an unclean election, until the leader reports RECOVERED."""
NO_EPOCH = -1
"""The leader epoch in a StopReplica of an old controller, which does not send it."""


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """The advertised address of one listener of a broker."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A registered broker."""

    id: int
    endpoints: tuple[BrokerEndpoint, ...] = ()
    rack: str | None = None
    epoch: int = -1
    """The zxid of its registration: increases with each restart."""

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The metadata of a partition: leader, ISR, replicas and epochs."""

    tp: TopicPartition
    topic_id: Uuid
    leader: int
    """NO_LEADER if there is none, LEADER_DURING_DELETE if the partition is being deleted."""
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    """The version of the partition's state node. An ISR change must have the same version."""
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    is_new: bool = False
    """In a LeaderAndIsr: the replica does not exist yet, and the broker creates it."""
    offline_replicas: tuple[int, ...] = ()
    controller_epoch: int = 0
    """The epoch of the controller that last wrote leader and ISR."""
    leader_recovery_state: int = RECOVERED


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Tells a broker to become leader or follower of these partitions."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: Sequence[PartitionState]


class ReplicaToStop(NamedTuple):
    """A replica to stop. `delete` also deletes its log."""

    tp: TopicPartition
    leader_epoch: int
    delete: bool


@dataclass(frozen=True, slots=True)
class StopReplica:
    """Tells a broker to stop serving these replicas and, where `delete` is set, to delete their logs."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: Sequence[ReplicaToStop]


@dataclass(frozen=True, slots=True)
class UpdateMetadata:
    """Tells a broker all live brokers and the changed partitions."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    brokers: Sequence[BrokerInfo]
    partitions: Sequence[PartitionState]
    full: bool = False
    """True if `partitions` has all partitions that exist. The first UpdateMetadata of a new controller is full."""


Command: TypeAlias = LeaderAndIsr | StopReplica | UpdateMetadata


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A broker's response: an error code for the whole command (0 if accepted), and one for each failed partition."""

    error_code: int = 0
    partition_errors: Mapping[TopicPartition, int] = field(default_factory=dict)

    def error_of(self, tp: TopicPartition) -> int:
        return self.error_code or self.partition_errors.get(tp, 0)


class BrokerChannel(Protocol):
    """Sends the controller's commands to brokers. Each broker receives them in the order they were sent."""

    def send(self, broker_id: int, command: Command, done: Callable[[CommandResult], None]) -> None:
        """Sends a command without blocking. Calls `done` once, now or later, on the event loop. Retries an unreachable
        broker as long as it is registered."""
        ...

    def add_broker(self, broker: BrokerInfo) -> None:
        """Adds a broker, or updates its epoch or address."""
        ...

    def remove_broker(self, broker_id: int) -> None:
        """Removes a broker. Drops its pending commands without calling `done`."""
        ...
