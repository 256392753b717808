"""A cluster of fake brokers that only record the controller's commands: no sockets, no logs, one store in memory."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from headrace.cluster import znodes
from headrace.cluster.commands import (
    EPOCH_DURING_DELETE,
    BrokerEndpoint,
    BrokerInfo,
    Command,
    CommandResult,
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
)
from headrace.cluster.controller import Controller
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.leader_balance import LeaderBalanceConfig
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.registration import prepare_cluster, register_broker
from headrace.cluster.store import ConnectionLoss, CoordinationStore, NoNode, Operation, OperationResult
from headrace.cluster.topics import TopicAdmin, TopicSpec
from headrace.cluster.znodes import Leadership, TopicAssignment
from headrace.common.errors import (
    FencedLeaderEpochError,
    KafkaStorageError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
)
from headrace.common.ids import make_random, random_uuid
from headrace.common.types import TopicPartition
from headrace.testing.clock import ManualClock

DEADLINE_SECONDS = 60.0


def async_test(function: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs a coroutine function as a test, with a deadline."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await function(*arguments, **options)

        asyncio.run(limited())

    return run


async def until(condition: Callable[[], object]) -> None:
    """Lets other tasks run until the condition holds. The test's deadline limits the wait."""
    while not condition():
        await asyncio.sleep(0)


def lose_response(store: CoordinationStore, *, executed: bool) -> None:
    """The next write gets no response."""
    multi = store.multi

    async def lost(operations: Sequence[Operation]) -> list[OperationResult]:
        store.multi = multi  # type: ignore[method-assign]
        if executed:
            await multi(operations)
        raise ConnectionLoss("the connection was lost")

    store.multi = lost  # type: ignore[method-assign]


class FakeBroker:
    """Records the commands it receives, and fences old controllers as a broker does."""

    def __init__(self, broker_id: int, session: EmbeddedStore, rack: str | None = None):
        self.id = broker_id
        self.session = session
        self.info = BrokerInfo(broker_id, (BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id),), rack)
        self.image = MetadataImage()
        self.commands: list[Command] = []
        self.hosted: dict[TopicPartition, tuple[int, int]] = {}
        """Partition → leader and leader epoch."""
        self.failed: set[TopicPartition] = set()
        """Partitions in a failed log directory."""
        self.undeletable: set[TopicPartition] = set()
        self.controller: Controller | None = None
        self.hangs = False
        """True if its controller is blocked in the middle of an event."""

    def handle(self, command: Command) -> CommandResult:
        self.commands.append(command)
        if command.broker_epoch < self.info.epoch:
            return CommandResult(StaleBrokerEpochError.code)
        try:
            self.image.check_controller_epoch(command.controller_id, command.controller_epoch)
        except StaleControllerEpochError as error:
            return CommandResult(error.code)
        match command:
            case LeaderAndIsr():
                return self._lead_or_follow(command)
            case StopReplica():
                return self._stop(command)
            case UpdateMetadata():
                self.image.apply(command)
                if command.full:
                    for tp in list(self.hosted):
                        state = self.image.partition(*tp)
                        if state is not None and self.id not in state.replicas:
                            del self.hosted[tp]
                return CommandResult()

    def _lead_or_follow(self, command: LeaderAndIsr) -> CommandResult:
        errors: dict[TopicPartition, int] = {}
        for state in command.partitions:
            if state.tp in self.failed:
                errors[state.tp] = KafkaStorageError.code
            elif state.tp in self.hosted and state.leader_epoch < self.hosted[state.tp][1]:
                errors[state.tp] = FencedLeaderEpochError.code
            else:
                self.hosted[state.tp] = (state.leader, state.leader_epoch)
        return CommandResult(0, errors)

    def _stop(self, command: StopReplica) -> CommandResult:
        errors: dict[TopicPartition, int] = {}
        for tp, leader_epoch, delete in command.partitions:
            if delete and tp in self.undeletable:
                errors[tp] = KafkaStorageError.code
            elif delete:
                self.hosted.pop(tp, None)
            else:
                assert leader_epoch == EPOCH_DURING_DELETE or leader_epoch >= self.hosted.get(tp, (0, 0))[1]
        return CommandResult(0, errors)

    def leads(self) -> set[TopicPartition]:
        return {tp for tp, (leader, _) in self.hosted.items() if leader == self.id}

    def received(self, kind: type[Command]) -> list[Command]:
        return [command for command in self.commands if isinstance(command, kind)]


class FakeChannel:
    """A controller's channel to the brokers. A paused broker gets its commands later."""

    def __init__(self, cluster: "FakeCluster"):
        self._cluster = cluster
        self.known: dict[int, BrokerInfo] = {}
        self.waiting: list[tuple[int, Command, Callable[[CommandResult], None]]] = []

    def add_broker(self, broker: BrokerInfo) -> None:
        self.known[broker.id] = broker

    def remove_broker(self, broker_id: int) -> None:
        del self.known[broker_id]
        self.waiting = [one for one in self.waiting if one[0] != broker_id]

    def send(self, broker_id: int, command: Command, done: Callable[[CommandResult], None]) -> None:
        assert broker_id in self.known
        if broker_id in self._cluster.paused:
            self.waiting.append((broker_id, command, done))
        elif broker_id in self._cluster.brokers:
            done(self._cluster.brokers[broker_id].handle(command))

    def deliver(self) -> None:
        waiting, self.waiting = self.waiting, []
        for broker_id, command, done in waiting:
            self.send(broker_id, command, done)


class FakeCluster:
    """Brokers with one controller each. `start` can wrap the store of a controller."""

    def __init__(self) -> None:
        self.balance: LeaderBalanceConfig | None = None
        self.clock = ManualClock()
        self.store = EmbeddedStore(None, self.clock)
        self.random = make_random(7)
        self.admin = TopicAdmin(self.store, self.random)
        self.brokers: dict[int, FakeBroker] = {}
        self.channels: dict[int, FakeChannel] = {}
        self.paused: set[int] = set()
        self.unclean = False
        self.has_topic_ids = True
        self.leaders_write_isr = False

    @classmethod
    async def make(
        cls, broker_ids: Iterable[int] = (1, 2, 3), balance: LeaderBalanceConfig | None = None
    ) -> "FakeCluster":
        cluster = cls()
        cluster.balance = balance
        await prepare_cluster(cluster.store, cluster.random)
        for broker_id in broker_ids:
            await cluster.start(broker_id)
        return cluster

    async def start(
        self,
        broker_id: int,
        rack: str | None = None,
        wrap: Callable[[CoordinationStore], CoordinationStore] = lambda store: store,
        keeps: FakeBroker | None = None,
    ) -> FakeBroker:
        """`keeps` is the previous instance of the broker, whose logs are still on its disk."""
        broker = FakeBroker(broker_id, self.store.new_session(), rack)
        if keeps is not None:
            broker.hosted = {
                tp: (-1, epoch) for tp, (_, epoch) in keeps.hosted.items() if await self._is_replica(tp, broker_id)
            }
        channel = FakeChannel(self)
        self.brokers[broker_id] = broker
        self.channels[broker_id] = channel
        broker.info = await register_broker(broker.session, broker.info, self.clock)
        broker.controller = Controller(
            wrap(broker.session),
            broker_id,
            channel,
            self.clock,
            unclean_default=lambda: self.unclean,
            balance=self.balance,
            new_topic_id=functools.partial(random_uuid, self.random) if self.has_topic_ids else None,
            leaders_write_isr=self.leaders_write_isr,
        )
        await broker.controller.start()
        await self.settle()
        return broker

    async def _is_replica(self, tp: TopicPartition, broker_id: int) -> bool:
        """A broker moves its other logs aside when it starts."""
        try:
            data, _ = await self.store.get(znodes.topic_path(tp.topic))
        except NoNode:
            return False
        replicas = znodes.decode_topic(tp.topic, data).partitions.get(tp.partition)
        return replicas is not None and broker_id in replicas.replicas

    async def stop(self, broker_id: int) -> FakeBroker:
        """Stops a broker cleanly."""
        broker = self.brokers.pop(broker_id)
        assert broker.controller is not None
        await broker.controller.stop()
        await broker.session.close()
        await self.settle()
        return broker

    async def kill(self, broker_id: int) -> FakeBroker:
        """Kills a broker: its task is cancelled and its session expires."""
        broker = self.brokers.pop(broker_id)
        assert broker.controller is not None
        task = broker.controller._task
        assert task is not None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await broker.session.close()
        await self.settle()
        return broker

    async def close(self) -> None:
        for broker_id in list(self.brokers):
            await self.kill(broker_id)
        await self.store.close()

    async def settle(self) -> None:
        """Waits until all controllers and brokers are idle."""
        quiet = 0
        while quiet < 10:
            await asyncio.sleep(0)
            controllers = [one.controller for one in self.brokers.values() if one.controller and not one.hangs]
            quiet = quiet + 1 if all(one._idle.is_set() for one in controllers) else 0

    # ---- inspecting

    @property
    def controller(self) -> Controller:
        (active,) = (one.controller for one in self.brokers.values() if one.controller and one.controller.is_active)
        return active

    async def create(self, name: str, assignment: dict[int, list[int]], **configs: str) -> TopicAssignment:
        made = await self.admin.create_topic(TopicSpec(name, assignment=assignment, configs=configs))
        await self.settle()
        return made

    async def state(self, topic: str, partition: int = 0) -> Leadership:
        tp = TopicPartition(topic, partition)
        data, stat = await self.store.get(znodes.state_path(tp))
        return znodes.decode_leadership(tp, data, stat.version)

    async def states(self) -> dict[TopicPartition, Leadership]:
        found: dict[TopicPartition, Leadership] = {}
        for topic in await self.store.children(znodes.TOPICS):
            try:
                for name in await self.store.children(znodes.partitions_path(topic)):
                    found[TopicPartition(topic, int(name))] = await self.state(topic, int(name))
            except NoNode:
                continue
        return found
