"""The controller's state machines with one partition and no controller around them."""

from headrace.cluster import znodes
from headrace.cluster.command_batch import CommandBatch
from headrace.cluster.commands import BrokerInfo, Command
from headrace.cluster.controller_context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.fenced_store import FencedStore
from headrace.cluster.partition_state_machine import PartitionStateMachine
from headrace.cluster.registration import prepare_cluster
from headrace.cluster.replica_state_machine import ReplicaStateMachine
from headrace.cluster.store import CoordinationStore
from headrace.cluster.znodes import Leadership, ReplicaAssignment, TopicAssignment
from headrace.common.ids import Uuid, make_random
from headrace.common.types import TopicPartition
from headrace.testing.clock import ManualClock

TP = TopicPartition("orders", 0)
ID = Uuid.parse("L4tkSDvtSWyV2FJpQYyZlA")


class StateMachines:
    """Both state machines with one partition: replicas 1, 2 and 3 on live brokers, leader 1."""

    def __init__(self, store: CoordinationStore):
        self.store = store
        self.sent: list[tuple[int, Command]] = []
        self.context = ControllerContext(1)
        self.context.epoch = 1
        self.context.brokers = {broker_id: BrokerInfo(broker_id, epoch=100 + broker_id) for broker_id in (1, 2, 3)}
        self.context.topics = {"orders": TopicAssignment("orders", ID, {0: ReplicaAssignment((1, 2, 3))})}
        self.batch = CommandBatch(self.context, self, lambda *_: None)
        self.fenced = FencedStore(store, 1, 0)
        self.unclean = False
        self.partitions = PartitionStateMachine(self.context, self.fenced, self.batch, self.unclean_allowed)
        self.replicas = ReplicaStateMachine(self.context, self.fenced, self.batch)

    @classmethod
    async def make(cls, *, isr: tuple[int, ...] = (1, 2, 3), leader: int = 1) -> "StateMachines":
        store = EmbeddedStore(None, ManualClock())
        await prepare_cluster(store, make_random(1))
        machines = cls(store)
        await store.create(znodes.topic_path("orders"))
        machines.context.partition_status[TP] = PartitionStatus.ONLINE
        machines.context.leaderships[TP] = Leadership(leader, 0, isr, 1)
        await machines.fenced.create_leaderships(machines.context.leaderships)
        for broker_id in (1, 2, 3):
            machines.context.replica_status[Replica(TP, broker_id)] = ReplicaStatus.ONLINE
        return machines

    async def unclean_allowed(self, topic: str) -> bool:
        return self.unclean

    def send(self, broker_id: int, command: Command, done: object) -> None:
        self.sent.append((broker_id, command))

    def add_broker(self, broker: BrokerInfo) -> None: ...

    def remove_broker(self, broker_id: int) -> None: ...

    async def commands(self, kind: type[Command]) -> dict[int, Command]:
        await self.batch.send()
        return {broker_id: command for broker_id, command in self.sent if isinstance(command, kind)}

    async def written(self) -> Leadership | None:
        return await self.fenced.read_leadership(TP)
