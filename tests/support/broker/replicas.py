"""A ReplicaManager with real logs, a clock that tests advance, and the commands of a controller."""

from pathlib import Path
from typing import Any

from tests.support.storage.logs import new_manager

from headrace.broker.config.dynamic import TopicConfig
from headrace.broker.partition import Partition
from headrace.broker.replica_manager import ReplicaManager
from headrace.cluster.commands import LeaderAndIsr, PartitionState, ReplicaToStop, StopReplica
from headrace.cluster.controller_requests import IsrChange
from headrace.common.ids import Uuid
from headrace.common.timing_wheel import Timer
from headrace.common.types import TopicPartition
from headrace.testing.clock import ManualClock

NODE, FOLLOWER, SLOW_FOLLOWER, OTHER = 1, 2, 3, 4
"""This broker, two followers of its partitions, and a broker without replicas."""
TOPIC_ID = Uuid(int=7)
TP, TP_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def partition_state(tp: TopicPartition = TP, **changes: Any) -> PartitionState:
    """Returns the state of a partition that this broker leads, with one replica unless changed."""
    isr = changes.pop("isr", (NODE,))
    defaults: dict[str, Any] = {
        "topic_id": TOPIC_ID,
        "leader": NODE,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "replicas": isr,
    }
    return PartitionState(tp, isr=isr, **{**defaults, **changes})


def isr_change(leader_epoch: int, partition_epoch: int, isr: tuple[int, ...]) -> IsrChange:
    """Returns the change that a leader proposes, without the broker epochs of its followers."""
    return IsrChange(leader_epoch, partition_epoch, isr, (-1,) * len(isr), topic_id=TOPIC_ID)


class Replicas(ReplicaManager):
    """Use it in a `with` block, or call `close`."""

    def __init__(self, *directories: Path, node_id: int = NODE, **topic_properties: object):
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        properties = {key.replace("_", "."): value for key, value in topic_properties.items()}
        self.config = TopicConfig.from_properties(properties)
        self.manager = new_manager(list(directories), self.clock, node_id=node_id).start()
        super().__init__(node_id, self.manager, lambda _: self.config, self.timer)
        self.manager.on_directory_failed = lambda _, lost: self.directory_failed(lost)
        self.isr_changes: list[IsrChange] = []
        """The changes that were sent to the controller. Set `context.submit_isr_change` to `send_isr_change` first."""

    def __enter__(self) -> "Replicas":
        return self

    def __exit__(self, *_: object) -> None:
        self.manager.close()

    def apply(self, *states: PartitionState) -> dict[TopicPartition, int]:
        return self.lead_or_follow(LeaderAndIsr(NODE, 1, 1, states))

    def lead(self, tp: TopicPartition = TP, **changes: Any) -> Partition:
        """Makes this broker the leader, or another role with `changes`, and returns the partition."""
        assert self.apply(partition_state(tp, **changes)) == {tp: 0}
        return self.find(tp.topic, tp.partition)

    def stop_replica(self, tp: TopicPartition = TP, *, delete: bool, leader_epoch: int | None = None) -> int:
        """Stops a replica in its leader epoch, or in another one."""
        partition = self.get(tp.topic, tp.partition)
        if leader_epoch is None:
            leader_epoch = partition.leader_epoch if partition is not None else 0
        return self.stop(StopReplica(NODE, 1, 1, [ReplicaToStop(tp, leader_epoch, delete)]))[tp]

    def send_isr_change(self, _: Partition, change: IsrChange) -> bool:
        self.isr_changes.append(change)
        return True

    def pass_time(self, milliseconds: int) -> None:
        """Advances the clock and runs the timeouts that are due."""
        self.clock.advance(milliseconds)
        self.timer.advance()
