"""A group in virtual time: real members of this client and the broker's group coordinator, in an unreliable network.

Members believe their `SubscriptionState`. `Group.check` verifies an invariant: two members that the coordinator knows
never own the same partition.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.support.client.fake_logs import LoopClock
from tests.support.coordinator.groups import GROUP, GroupBench

from headrace.client.config.consumer import CONSUMER_KEYS
from headrace.client.consumer.subscription_state import SubscriptionState
from headrace.client.errors import KafkaConnectionError
from headrace.client.events import ClientEvents
from headrace.client.group.consumer_coordinator import ConsumerCoordinator
from headrace.client.group.member import MemberState
from headrace.client.metadata_cache import ClusterView, PartitionInfo, TopicInfo
from headrace.common.backoff import Backoff
from headrace.common.errors import KafkaError, NotCoordinatorError, RequestTimedOutError
from headrace.common.types import TopicPartition
from headrace.coordinator.group.config import GroupConfig
from headrace.coordinator.group.joining import ClientInfo
from headrace.coordinator.group.shard import CommitRequest
from headrace.coordinator.result import CoordinatorResponse
from headrace.net.nodes import Node
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

TICK_SECONDS = 0.02


class Coordinator:
    """The broker's group coordinator, called with protocol messages."""

    def __init__(self, **config: Any) -> None:
        self.bench = GroupBench(GroupConfig(**{"initial_rebalance_delay_ms": 100, **config}))
        self._started = asyncio.get_running_loop().time()
        self.is_moved = False
        """True while another broker is the coordinator; requests get NOT_COORDINATOR."""
        self.seen: Counter[str] = Counter()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.tick()

    def tick(self) -> None:
        now_ms = 1_700_000_000_000 + int((asyncio.get_running_loop().time() - self._started) * 1000)
        self.bench.clock.advance(max(0, now_ms - self.bench.clock.now_ms))
        self.bench.timer.advance()
        self.bench.steps.run()

    @property
    def members(self) -> list[str]:
        group = self.bench.shard.groups.get(GROUP)
        return list(group.members) if group is not None else []

    def handle(self, request: Any, reply: Callable[[Any], None]) -> None:
        self.tick()
        self.seen[type(request).__name__] += 1
        getattr(self, f"_{type(request).__name__}")(request, reply)

    def _JoinGroupRequest(self, request: JoinGroupRequest, reply: Callable[[Any], None]) -> None:  # noqa: N802
        if self.is_moved:
            reply(JoinGroupResponse(error_code=NotCoordinatorError.code))
            return
        client = ClientInfo("client", "/host")
        self.bench.runtime.write(0, lambda shard: shard.members.join(request, client, 9, reply), _ignore)

    def _SyncGroupRequest(self, request: SyncGroupRequest, reply: Callable[[Any], None]) -> None:  # noqa: N802
        if self.is_moved:
            reply(SyncGroupResponse(error_code=NotCoordinatorError.code))
            return
        self.bench.runtime.write(0, lambda shard: shard.members.sync(request, reply), _ignore)

    def _HeartbeatRequest(self, request: HeartbeatRequest, reply: Callable[[Any], None]) -> None:  # noqa: N802
        code = NotCoordinatorError.code if self.is_moved else 0
        if not code:
            try:
                self.bench.shard.members.heartbeat(request)
            except KafkaError as error:
                code = error.code
        reply(HeartbeatResponse(error_code=code))

    def _LeaveGroupRequest(self, request: LeaveGroupRequest, reply: Callable[[Any], None]) -> None:  # noqa: N802
        def done(outcome: CoordinatorResponse[Any]) -> None:
            code = outcome.error.code if isinstance(outcome.error, KafkaError) else 0
            reply(LeaveGroupResponse(error_code=code, members=[] if code else outcome.result()))

        self.bench.runtime.write(0, lambda shard: shard.members.leave(request.group_id, request.members), done)

    def _OffsetCommitRequest(self, request: OffsetCommitRequest, reply: Callable[[Any], None]) -> None:  # noqa: N802
        offsets = [
            (TopicPartition(topic.name, each.partition_index), each.committed_offset, -1, each.committed_metadata)
            for topic in request.topics
            for each in topic.partitions
        ]

        def done(outcome: CoordinatorResponse[dict[TopicPartition, int]]) -> None:
            failed = outcome.error.code if isinstance(outcome.error, KafkaError) else 0
            if self.is_moved:
                failed = NotCoordinatorError.code
            codes = {entry[0]: failed for entry in offsets} if failed else outcome.result()
            parts = [
                OffsetCommitResponseTopic(
                    name=tp.topic,
                    partitions=[OffsetCommitResponsePartition(partition_index=tp.partition, error_code=code)],
                )
                for tp, code in codes.items()
            ]
            reply(OffsetCommitResponse(topics=parts))

        commit = CommitRequest(
            request.group_id,
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            offsets,
        )
        self.bench.runtime.write(0, lambda shard: shard.commit(commit), done)

    def _OffsetFetchRequest(self, request: OffsetFetchRequest, reply: Callable[[Any], None]) -> None:  # noqa: N802
        found = []
        for topic in request.groups[0].topics or []:
            parts = []
            for index in topic.partition_indexes:
                offset = self.bench.committed(topic.name, index) if self.bench.shard.groups.get(GROUP) else None
                parts.append(
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=-1 if offset is None else offset,
                        metadata="",
                        error_code=0,
                    )
                )
            found.append(OffsetFetchResponseTopics(name=topic.name, partitions=parts))
        code = NotCoordinatorError.code if self.is_moved else 0
        group = OffsetFetchResponseGroup(group_id=GROUP, topics=found, error_code=code)
        reply(OffsetFetchResponse(groups=[group]))


class Network:
    """The network between one member and the coordinator: delays and loses requests and responses."""

    def __init__(self, coordinator: Coordinator, chance: random.Random):
        self.coordinator = coordinator
        self.chance = chance
        self.loss = 0.0
        self.is_cut = False
        self.forgotten = 0
        self.node_id = 1

    async def send(self, request: Any, *, timeout_ms: float | None = None, max_version: int | None = None) -> Any:
        await self._travel("the request was lost")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def reply(message: Any) -> None:
            if not future.done():
                future.set_result(message)

        self.coordinator.handle(request, reply)
        try:
            async with asyncio.timeout((30_000 if timeout_ms is None else timeout_ms) / 1000):
                answer = await future
        except TimeoutError:
            raise RequestTimedOutError("no reply in time") from None
        await self._travel("the reply was lost")
        return answer

    async def _travel(self, failure: str) -> None:
        await asyncio.sleep(self.chance.choice((0.001, 0.01, 0.1)) * self.chance.random())
        while self.is_cut:
            await asyncio.sleep(1)
            if self.chance.random() < 0.1:
                raise KafkaConnectionError(failure)
        if self.chance.random() < self.loss:
            raise KafkaConnectionError(failure)

    def forget(self, reason: str) -> None:
        self.forgotten += 1

    def interrupt(self) -> None:
        pass


class FakeMetadata:
    def __init__(self) -> None:
        self.view = ClusterView()
        self._listeners: list[Callable[[ClusterView, ClusterView], None]] = []

    def set_topics(self, racks: dict[int, str] | None = None, **counts: int) -> None:
        """Cluster metadata: partition n is on broker n, which may have a rack."""
        topics = {
            name: TopicInfo(name, partitions=tuple(PartitionInfo(name, n, n, 0, (n,)) for n in range(count)))
            for name, count in counts.items()
        }
        nodes = {number: Node(number, "host", 9092, rack) for number, rack in (racks or {}).items()}
        old, self.view = self.view, ClusterView(nodes, topics, version=self.view.version + 1)
        for listener in self._listeners:
            listener(old, self.view)

    def on_change(self, listener: Callable[[ClusterView, ClusterView], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def track(self, topics: Any) -> None:
        pass

    async def update(self, topics: Any = None, timeout_ms: float = 0) -> ClusterView:
        return self.view


class User:
    """A program with a consumer: polls and processes. Records listener calls and received records."""

    def __init__(self, group: "Group", name: str, config: dict[str, Any], chance: random.Random):
        self.group = group
        self.name = name
        self.chance = chance
        self.network = Network(group.coordinator, chance)
        self.subscription = SubscriptionState()
        self.config = CONSUMER_KEYS.load(
            {
                "group.id": GROUP,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "max.poll.interval.ms": 10_000,
                "auto.commit.interval.ms": 700,
                **config,
            },
        )
        core = SimpleNamespace(
            clock=LoopClock(),
            backoff=Backoff(100, 1000, chance),
            metadata=group.metadata,
            config=self.config,
            events=ClientEvents(self.config),
        )
        self.consumer_coordinator = ConsumerCoordinator(core, self.config, self.subscription, self, sender=self.network)  # type: ignore[arg-type]
        self.told: list[tuple[str, frozenset[TopicPartition]]] = []
        self.read: list[tuple[TopicPartition, int]] = []
        self.errors: list[Exception] = []
        self.work_seconds = 0.3
        self.is_hanging = False
        self._polls = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # ---- hooks

    async def wait_for_poll(self) -> None:
        await self._polls.wait()

    async def revoked(self, tps: frozenset[TopicPartition]) -> None:
        assert tps
        assert tps <= self.subscription.assigned
        self.told.append(("revoked", tps))

    async def assigned(self, tps: frozenset[TopicPartition]) -> None:
        assert tps <= self.subscription.assigned
        self.told.append(("assigned", tps))

    async def lost(self, tps: frozenset[TopicPartition]) -> None:
        assert tps
        self.told.append(("lost", tps))

    def failed(self, error: Exception) -> None:
        self.errors.append(error)

    # ---- application

    async def start(self, *topics: str) -> None:
        self.subscription.subscribe(topics)
        await self.consumer_coordinator.start()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            self.consumer_coordinator.poll_began()
            self.subscription.mark_processed()
            self._polls.set()
            await asyncio.sleep(self.chance.random() * 0.3)
            self._polls.clear()
            await self._poll()
            self.consumer_coordinator.poll_ended()
            await asyncio.sleep(self.chance.random() * self.work_seconds)
            while self.is_hanging:
                await asyncio.sleep(0.5)

    async def _poll(self) -> None:
        unknown = [state.tp for state in self.subscription.states() if not state.has_position and not state.is_stopped]
        if unknown:
            try:
                offsets = await self.consumer_coordinator.commits.committed(unknown, timeout_ms=300)
            except KafkaError:
                return
            for tp, found in offsets.items():
                state = self.subscription.find(tp)
                if state is not None and not state.is_stopped and not state.has_position:
                    self.subscription.seek(tp, 0 if found is None else found.offset)
        for state in list(self.subscription.states()):
            if state.is_fetchable and state.position < self.group.records:
                self.read.append((state.tp, state.position))
                self.subscription.consumed(state, state.position + 1, -1)

    async def stop(self) -> None:
        """Closes the consumer cleanly."""
        await self.crash_program()
        self.subscription.mark_processed()
        self._polls.set()
        await self.consumer_coordinator.close(timeout_ms=20_000)

    async def crash_program(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def crash(self) -> None:
        """Stops the program as if killed, without leaving the group."""
        await self.crash_program()
        await self.consumer_coordinator.commits.abandon()
        for task in self.consumer_coordinator._tasks:
            task.cancel()
        await asyncio.wait(self.consumer_coordinator._tasks)

    @property
    def owns(self) -> frozenset[TopicPartition]:
        return self.subscription.assigned

    @property
    def is_stable(self) -> bool:
        return (
            self.consumer_coordinator.member.state is MemberState.STABLE and self.consumer_coordinator.member.is_member
        )


class Group:
    def __init__(self, seed: int = 0, **config: Any):
        self.seed = seed
        self.chance = random.Random(seed)
        self.coordinator = Coordinator(**config)
        self.metadata = FakeMetadata()
        self.users: dict[str, User] = {}
        self.gone: list[User] = []
        self.records = 1 << 40
        self._names = 0
        self._task = asyncio.create_task(self.coordinator.run())

    async def add(self, *topics: str, name: str | None = None, **config: Any) -> User:
        self._names += 1
        name = name or f"user-{self._names}"
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        user = self.users[name] = User(self, name, dotted, random.Random(self.chance.random()))
        await user.start(*topics)
        return user

    async def remove(self, user: User, crash: bool = False) -> None:
        del self.users[user.name]
        self.gone.append(user)
        await (user.crash() if crash else user.stop())

    def check(self) -> None:
        known = set(self.coordinator.members)
        owner: dict[TopicPartition, str] = {}
        for user in self.users.values():
            if user.consumer_coordinator.member.member_id in known and user.consumer_coordinator.member.is_member:
                for tp in user.owns:
                    assert tp not in owner, f"seed {self.seed}: {tp} is {owner[tp]}'s and {user.name}'s"
                    owner[tp] = user.name

    async def run(self, seconds: float) -> None:
        """Advances time and checks the invariant throughout."""
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.013)
            self.check()

    async def until(self, condition: Callable[[], object], seconds: float = 120) -> None:
        end = asyncio.get_running_loop().time() + seconds
        while not condition():
            assert asyncio.get_running_loop().time() < end, f"seed {self.seed}: timed out: {self.describe()}"
            await asyncio.sleep(0.013)
            self.check()

    def describe(self) -> str:
        return "; ".join(
            f"{name} {user.consumer_coordinator.member.state.value} {user.consumer_coordinator.member.generation} "
            f"{sorted(map(str, user.owns))} {user.errors}"
            for name, user in self.users.items()
        )

    def is_settled(self, *tps: TopicPartition) -> bool:
        """Returns True if all are members of one generation, and every partition has one owner."""
        members = [user.consumer_coordinator.member for user in self.users.values()]
        if not all(user.is_stable for user in self.users.values()):
            return False
        if len({member.generation for member in members}) > 1 or len(self.coordinator.members) != len(members):
            return False
        owned = [tp for user in self.users.values() for tp in user.owns]
        return sorted(owned) == sorted(tps) and not any(
            user.consumer_coordinator.rebalancing or user.consumer_coordinator._needs_join.is_set()
            for user in self.users.values()
        )

    async def close(self) -> None:
        for user in list(self.users.values()):
            await self.remove(user, crash=True)
        self._task.cancel()
        await asyncio.wait([self._task])


def partitions(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(count)]


def _ignore(_: CoordinatorResponse[Any]) -> None:
    """Ignores a response: the group delivers it to the waiting request."""
