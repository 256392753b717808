"""Controllers die, hang and lose their sessions at every step, and other brokers take over.

`HEADRACE_CONTROLLER_SEEDS` sets the number of random histories, `HEADRACE_SEED` the first seed.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import pytest
from tests.support.cluster.fake_cluster import FakeBroker, FakeCluster, async_test

from headrace.cluster import controller as controller_module
from headrace.cluster import znodes
from headrace.cluster.controller import Controller
from headrace.cluster.controller_requests import IsrChange
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.leader_election import Election
from headrace.cluster.node_tree import Change
from headrace.cluster.registration import register_broker
from headrace.cluster.store import (
    ANY_VERSION,
    ConnectionLoss,
    Operation,
    OperationResult,
    SessionListener,
    Stat,
    Watch,
    WatchEvent,
)
from headrace.cluster.topics import TopicSpec
from headrace.cluster.znodes import Leadership
from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition

SEEDS = int(os.environ.get("HEADRACE_CONTROLLER_SEEDS", "40"))
FIRST_SEED = int(os.environ.get("HEADRACE_SEED", "0"))
MOST_STEPS = 400


class FaultyStore:
    """A store that blocks its caller, forever or until released, before or after one operation."""

    def __init__(self, inner: EmbeddedStore, on_hang: Callable[[], None]):
        self._inner = inner
        self._on_hang = on_hang
        self._left: int | None = None
        self._before = False
        self._fault: Callable[[], Awaitable[None]] | None = None
        self._released = asyncio.Event()
        self.hung = False

    def arm(self, operations: int, *, before: bool = False, fault: Callable[[], Awaitable[None]] | None = None) -> None:
        """Blocks after (or before) the operation with this number, counted from now; or calls `fault` instead."""
        self._left, self._before, self._fault = operations, before, fault

    def disarm(self) -> None:
        self._left = None

    def release(self) -> None:
        self._released.set()

    async def _step(self, work: Callable[[], Awaitable[object]]) -> object:
        if self._left is not None and self._before and self._left == 0:
            await self._hang()
        result = await work()
        if self._left is not None:
            if self._left == 0 and not self._before:
                await self._hang()
            self._left -= 1
        return result

    async def _hang(self) -> None:
        self.hung = True
        self._left = None
        if self._fault is not None:
            await self._fault()
            return
        self._on_hang()
        await self._released.wait()

    @property
    def session_id(self) -> int:
        return self._inner.session_id

    def add_session_listener(self, listener: SessionListener) -> None:
        self._inner.add_session_listener(listener)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        return await self._step(lambda: self._inner.create(path, data, ephemeral=ephemeral, sequential=sequential))  # type: ignore[return-value]

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        return await self._step(lambda: self._inner.get(path, watch))  # type: ignore[return-value]

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self._step(lambda: self._inner.exists(path, watch))  # type: ignore[return-value]

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self._step(lambda: self._inner.children(path, watch))  # type: ignore[return-value]

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return await self._step(lambda: self._inner.set(path, data, version))  # type: ignore[return-value]

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._step(lambda: self._inner.delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        return await self._step(lambda: self._inner.multi(operations))  # type: ignore[return-value]

    async def close(self) -> None:
        await self._inner.close()


class Watched(FakeCluster):
    """A cluster that checks every leader change when it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.faulty: dict[int, FaultyStore] = {}
        self._seen: dict[str, Leadership] = {}
        tree = self.store._shared.tree
        apply = tree.apply

        def checked(change: Change) -> list[tuple[int, Watch, WatchEvent]]:
            self._check_change(change)
            return apply(change)

        tree.apply = checked  # type: ignore[method-assign]

    def _check_change(self, change: Change) -> None:
        for path, node in change.nodes.items():
            if not path.endswith("/state"):
                continue
            if node is None:
                self._seen.pop(path, None)
                continue
            after = znodes.decode_leadership(TopicPartition("", 0), node.data, node.version)
            before = self._seen.get(path)
            assert after.leader == -1 or after.leader in after.isr, f"{path}: {after}"
            assert after.isr, f"{path} has an empty ISR"
            if before is not None:
                assert after.leader_epoch >= before.leader_epoch, f"{path}: {before} -> {after}"
                assert after.controller_epoch >= before.controller_epoch, f"{path}: {before} -> {after}"
                assert after.leader == before.leader or after.leader_epoch > before.leader_epoch, f"{path}: {after}"
            self._seen[path] = after

    async def start_faulty(self, broker_id: int, keeps: FakeBroker | None = None) -> FaultyStore:
        """Starts a broker whose controller can be blocked."""
        made: list[FaultyStore] = []

        def hang() -> None:
            if broker_id in self.brokers:
                self.brokers[broker_id].hangs = True

        def wrap(store: object) -> FaultyStore:
            assert isinstance(store, EmbeddedStore)
            made.append(FaultyStore(store, hang))
            return made[0]

        await self.start(broker_id, wrap=wrap, keeps=keeps)
        self.faulty[broker_id] = made[0]
        return made[0]

    async def lose_session_unnoticed(self, broker_id: int) -> None:
        """Expires the session of a blocked broker, which does not notice it."""
        session = self.brokers[broker_id].session
        await session._shared.end_session(session.session_id)
        session._session_id = session._shared.open_session(session)
        await self.settle()

    def working_controller(self) -> Controller | None:
        """Returns the active controller that is not blocked."""
        for broker in self.brokers.values():
            if broker.controller is not None and broker.controller.is_active and not broker.hangs:
                return broker.controller
        return None

    # ---- invariants when the cluster is idle

    async def check(self) -> None:
        topics = await self.store.children(znodes.TOPICS)
        marked = set(await self.store.children(znodes.DELETE_TOPICS))
        configs = await self.store.children("/config/topics")
        registered = {int(name) for name in await self.store.children(znodes.BROKER_IDS)}
        live = {one for one in self.brokers if one in registered and not self.brokers[one].hangs}
        assert configs == topics, "a topic and its settings come and go together"
        assert marked <= set(topics)
        for topic in topics:
            data, _ = await self.store.get(znodes.topic_path(topic))
            assignment = znodes.decode_topic(topic, data)
            if topic in marked:
                replicas = {replica for one in assignment.partitions.values() for replica in one.replicas}
                assert replicas - live, f"nothing keeps {topic} from being deleted"
                assert not any(self.brokers[one].image.has_topic(topic) for one in live)
                continue
            for index, one in assignment.partitions.items():
                await self._check_partition(TopicPartition(topic, index), one.replicas, live)
        for broker_id in live:
            broker = self.brokers[broker_id]
            assert set(broker.image.topics) == set(topics) - marked
            assert set(broker.image.brokers) == registered
            gone = {tp for tp in broker.hosted if tp.topic not in topics}
            assert not gone, f"broker {broker_id} still has {gone}"

    async def _check_partition(self, tp: TopicPartition, replicas: tuple[int, ...], live: set[int]) -> None:
        if await self.store.exists(znodes.state_path(tp)) is None:
            # Created while none of its replicas was online.
            assert not set(replicas) & live, f"{tp} could have a leader"
            return
        state = await self.state(tp.topic, tp.partition)
        if set(state.isr) & live:
            assert state.leader in state.isr, f"{tp} has no leader: {state}, alive {live}"
            assert state.leader in live
        for broker_id in live:
            broker = self.brokers[broker_id]
            shown = broker.image.partition(tp.topic, tp.partition)
            assert shown is not None, f"broker {broker_id} does not know {tp}"
            assert (shown.leader, shown.leader_epoch, shown.isr, shown.partition_epoch) == (
                state.leader,
                state.leader_epoch,
                state.isr,
                state.partition_epoch,
            ), f"broker {broker_id} knows {shown}, it is {state}"
            if broker_id not in replicas:
                assert tp not in broker.hosted, f"broker {broker_id} still has {tp}"
            elif state.leader in live:
                assert broker.hosted.get(tp) == (state.leader, state.leader_epoch), f"{tp} on broker {broker_id}"


async def make_cluster() -> tuple[Watched, FaultyStore]:
    """Broker 1 is the controller and can be blocked. There are two topics; one has lost a follower."""
    cluster = await Watched.make(())
    assert isinstance(cluster, Watched)
    faulty = await cluster.start_faulty(1)
    for broker_id in (2, 3, 4):
        await cluster.start(broker_id)
    await cluster.create("old", {0: [2, 3, 4], 1: [3, 4, 2], 2: [1, 2, 3]})
    await cluster.create("pair", {0: [4, 3], 1: [3, 4]})
    await cluster.check()
    return cluster, faulty


# ---- events during which the controller dies


async def creates_a_topic(cluster: Watched) -> None:
    await cluster.create("new", {0: [2, 3], 1: [3, 4], 2: [4, 1]})


async def adds_partitions(cluster: Watched) -> None:
    await cluster.admin.create_partitions("old", 5)
    await cluster.settle()


async def deletes_a_topic(cluster: Watched) -> None:
    await cluster.admin.delete_topic("old")
    await cluster.settle()


async def makes_a_topic_again(cluster: Watched) -> None:
    await cluster.admin.delete_topic("pair")
    await cluster.settle()
    if await cluster.store.exists(znodes.topic_path("pair")) is None:
        await cluster.create("pair", {0: [3, 2]})


async def deletes_with_a_broker_down(cluster: Watched) -> None:
    four = await cluster.kill(4)
    await cluster.admin.delete_topic("pair")
    await cluster.settle()
    await cluster.start(4, keeps=four)


async def loses_a_broker(cluster: Watched) -> None:
    await cluster.kill(3)


async def loses_two_brokers(cluster: Watched) -> None:
    await cluster.kill(3)
    await cluster.kill(4)


async def gets_a_broker_back(cluster: Watched) -> None:
    three, four = await cluster.kill(3), await cluster.kill(4)
    await cluster.start(4, keeps=four)
    await cluster.start(3, keeps=three)


async def gets_a_new_broker(cluster: Watched) -> None:
    await cluster.start(5)
    await cluster.create("on-five", {0: [5, 2]})


async def does_much_at_once(cluster: Watched) -> None:
    await cluster.admin.create_topic(TopicSpec("a", 3, 2))
    await cluster.admin.delete_topic("pair")
    await cluster.admin.create_topic(TopicSpec("b", 2, 3))
    await cluster.admin.create_partitions("a", 5)
    await cluster.kill(2)


async def moves_partitions(cluster: Watched) -> None:
    await reassign(cluster, {("old", 0): [1, 2], ("old", 1): [1, 4], ("old", 2): [4], ("pair", 0): [1, 2]})
    await join_targets(cluster)


async def cancels_a_reassignment(cluster: Watched) -> None:
    await reassign(cluster, {("old", 0): [1, 2], ("pair", 0): [1, 2]})
    await join_targets(cluster, topic="old")
    await reassign(cluster, {("old", 0): None, ("pair", 0): None})


async def changes_the_target(cluster: Watched) -> None:
    await reassign(cluster, {("pair", 0): [1, 3], ("pair", 1): [1, 2]})
    await reassign(cluster, {("pair", 0): [2, 4], ("pair", 1): [1]})
    await join_targets(cluster)


async def moves_to_a_broker_that_dies(cluster: Watched) -> None:
    await reassign(cluster, {("old", 0): [4, 1], ("pair", 0): [2, 3]})
    two = await cluster.kill(2)
    await join_targets(cluster)
    await cluster.start(2, keeps=two)
    await join_targets(cluster)


async def moves_as_an_older_tool_requests(cluster: Watched) -> None:
    targets = {TopicPartition("old", 0): [1, 2], TopicPartition("pair", 0): [4, 1]}
    await cluster.store.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments(targets))
    await cluster.settle()
    await join_targets(cluster)


async def deletes_a_moving_topic(cluster: Watched) -> None:
    await reassign(cluster, {("old", 0): [1, 2], ("pair", 0): [1, 2]})
    await cluster.admin.delete_topic("pair")
    await cluster.settle()


async def reassign(cluster: Watched, targets: dict[tuple[str, int], list[int] | None]) -> None:
    await ask(
        cluster, lambda active: active.alter_reassignments({TopicPartition(*tp): to for tp, to in targets.items()})
    )


async def join_targets(cluster: Watched, topic: str | None = None) -> None:
    """The leaders report that all live replicas are in sync."""
    registered = {int(name) for name in await cluster.store.children(znodes.BROKER_IDS)}
    for tp, state in (await cluster.states()).items():
        if topic not in (None, tp.topic) or state.leader not in cluster.brokers:
            continue
        data, _ = await cluster.store.get(znodes.topic_path(tp.topic))
        replicas = znodes.decode_topic(tp.topic, data).partitions[tp.partition].replicas
        isr = tuple(one for one in replicas if one in registered or one in state.isr)
        await propose(cluster, tp, state, isr)


async def propose(cluster: Watched, tp: TopicPartition, state: Leadership, isr: tuple[int, ...]) -> None:
    change = IsrChange(state.leader_epoch, state.partition_epoch, isr)
    epoch = cluster.brokers[state.leader].info.epoch
    await ask(cluster, lambda active: active.alter_isr(state.leader, epoch, {tp: change}))


async def ask(cluster: Watched, request: Callable[[Controller], Awaitable[object]]) -> None:
    """Sends the controller a request, and does not wait longer for the response than until the cluster is idle."""
    active = cluster.working_controller()
    if active is not None:
        asked = asyncio.ensure_future(request(active))
        await cluster.settle()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)


SCENARIOS = [
    creates_a_topic,
    adds_partitions,
    deletes_a_topic,
    makes_a_topic_again,
    deletes_with_a_broker_down,
    loses_a_broker,
    loses_two_brokers,
    gets_a_broker_back,
    gets_a_new_broker,
    does_much_at_once,
    moves_partitions,
    cancels_a_reassignment,
    changes_the_target,
    moves_to_a_broker_that_dies,
    moves_as_an_older_tool_requests,
    deletes_a_moving_topic,
]


@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_controller_dies_at_every_store_write(scenario: Callable[[Watched], Awaitable[None]], before: bool) -> None:
    async def run(step: int) -> bool:
        cluster, faulty = await make_cluster()
        faulty.arm(step, before=before)
        await scenario(cluster)
        died = faulty.hung
        one = await cluster.kill(1)
        await cluster.check()
        await cluster.start(1, keeps=one)
        await cluster.check()
        await cluster.close()
        return died

    steps = 0
    while steps < MOST_STEPS:
        died: list[bool] = []

        async def once(step: int = steps, died: list[bool] = died) -> None:
            died.append(await run(step))

        async_test(once)()
        if not died[0]:
            break
        steps += 1
    assert 0 < steps < MOST_STEPS


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_controller_pauses_at_every_store_write_and_resumes_as_zombie(
    scenario: Callable[[Watched], Awaitable[None]],
) -> None:
    async def run(step: int) -> bool:
        cluster, faulty = await make_cluster()
        faulty.arm(step, before=True)
        await scenario(cluster)
        if not faulty.hung:
            await cluster.close()
            return False
        await cluster.lose_session_unnoticed(1)
        successor = cluster.working_controller()
        assert successor is not None
        assert successor.epoch == 2
        await cluster.check()
        cluster.brokers[1].hangs = False
        faulty.release()
        await cluster.settle()
        cluster.brokers[1].hangs = True  # it is not registered; only the others count
        await cluster.check()
        assert successor.is_active
        assert successor.epoch == 2
        await cluster.close()
        return True

    for step in range(MOST_STEPS):
        hung: list[bool] = []

        async def once(step: int = step, hung: list[bool] = hung) -> None:
            hung.append(await run(step))

        async_test(once)()
        if not hung[0]:
            assert step > 0
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("before", [False, True], ids=["executed", "not-executed"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_controller_loses_the_response_to_every_store_call(
    scenario: Callable[[Watched], Awaitable[None]], before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_module, "RETRY_SECONDS", 0.0)

    async def lose_response() -> None:
        raise ConnectionLoss("the connection was lost")

    async def run(step: int) -> bool:
        cluster, faulty = await make_cluster()
        faulty.arm(step, before=before, fault=lose_response)
        await scenario(cluster)
        await cluster.settle()
        await cluster.check()
        await cluster.close()
        return faulty.hung

    run_at_every_step(run)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_session_of_controller_expires_at_every_store_call(scenario: Callable[[Watched], Awaitable[None]]) -> None:
    """The process lives on: the broker registers again with a new epoch, and stands for election again."""

    async def run(step: int) -> bool:
        cluster, faulty = await make_cluster()
        one = cluster.brokers[1]

        async def expire() -> None:
            await one.session.expire_session()
            one.info = await register_broker(one.session, one.info, cluster.clock)

        faulty.arm(step, fault=expire)
        await scenario(cluster)
        await cluster.settle()
        await cluster.check()
        await cluster.close()
        return faulty.hung

    run_at_every_step(run)


def run_at_every_step(run: Callable[[int], Awaitable[bool]]) -> None:
    """Calls `run` with 0, 1, ... until it returns False: the fault came too late."""
    for step in range(MOST_STEPS):
        happened: list[bool] = []

        async def once(step: int = step, happened: list[bool] = happened) -> None:
            happened.append(await run(step))

        try:
            async_test(once)()
        except Exception as error:
            error.add_note(f"at step {step}")
            raise
        if not happened[0]:
            assert step > 0
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_random_histories(seed: int) -> None:
    print(f"HEADRACE_SEED={seed} HEADRACE_CONTROLLER_SEEDS=1")
    async_test(lambda: random_history(Random(seed)))()


async def random_history(random: Random) -> None:
    cluster = await Watched.make(())
    assert isinstance(cluster, Watched)
    down: dict[int, FakeBroker | None] = dict.fromkeys(range(1, 6))
    for _ in range(3):
        await bring_up(cluster, random, down)
    for _ in range(40):
        if random.random() < 0.3 and cluster.faulty:
            random.choice(list(cluster.faulty.values())).arm(random.randrange(60), before=random.random() < 0.5)
        for _ in range(random.randint(1, 3)):
            await random.choice(ACTIONS)(cluster, random, down)
        await cluster.settle()
        while hanging := [one for one, broker in cluster.brokers.items() if broker.hangs]:
            down[hanging[0]] = await cluster.kill(hanging[0])
            cluster.faulty.pop(hanging[0], None)
        await cluster.check()
    for faulty in cluster.faulty.values():
        faulty.disarm()
    while down:
        await bring_up(cluster, random, down)
    await cluster.settle()
    await cluster.check()
    assert await cluster.store.children(znodes.DELETE_TOPICS) == []
    await cluster.close()


Down = dict[int, FakeBroker | None]


async def bring_up(cluster: Watched, random: Random, down: Down) -> None:
    if down:
        broker_id = random.choice(list(down))
        await cluster.start_faulty(broker_id, keeps=down.pop(broker_id))


async def take_down(cluster: Watched, random: Random, down: Down) -> None:
    if len(cluster.brokers) > 1:
        broker_id = random.choice(list(cluster.brokers))
        broker = cluster.brokers[broker_id]
        if random.random() < 0.5 and not broker.hangs:
            if broker_id in cluster.faulty:
                cluster.faulty[broker_id].disarm()
            down[broker_id] = await cluster.stop(broker_id)
        else:
            down[broker_id] = await cluster.kill(broker_id)
        cluster.faulty.pop(broker_id, None)


async def make_topic(cluster: Watched, random: Random, down: Down) -> None:
    live = len(await cluster.store.children(znodes.BROKER_IDS))
    factor = random.randint(1, max(1, min(3, live)))
    await attempt(cluster.admin.create_topic(TopicSpec(f"t{random.randrange(6)}", random.randint(1, 4), factor)))


async def drop_topic(cluster: Watched, random: Random, down: Down) -> None:
    await attempt(cluster.admin.delete_topic(f"t{random.randrange(6)}"))


async def grow_topic(cluster: Watched, random: Random, down: Down) -> None:
    await attempt(cluster.admin.create_partitions(f"t{random.randrange(6)}", random.randint(2, 7)))


async def change_isr(cluster: Watched, random: Random, down: Down) -> None:
    states = [(tp, state) for tp, state in (await cluster.states()).items() if state.leader in cluster.brokers]
    if not states:
        return
    tp, state = random.choice(states)
    data, _ = await cluster.store.get(znodes.topic_path(tp.topic))
    replicas = znodes.decode_topic(tp.topic, data).partitions[tp.partition].replicas
    isr = tuple(one for one in replicas if one == state.leader or random.random() < 0.6)
    await propose(cluster, tp, state, isr)


async def elect_preferred(cluster: Watched, random: Random, down: Down) -> None:
    await ask(cluster, lambda active: active.elect_leaders(Election.PREFERRED_REPLICA))


async def move_partitions(cluster: Watched, random: Random, down: Down) -> None:
    """Starts, changes or cancels the reassignment of some partitions."""
    tps = list(await cluster.states())
    brokers = sorted(cluster.brokers)
    if not brokers:
        return
    chosen = random.sample(tps, min(len(tps), random.randint(1, 4)))
    targets: dict[tuple[str, int], list[int] | None] = {
        (tp.topic, tp.partition): None
        if random.random() < 0.2
        else random.sample(brokers, random.randint(1, min(3, len(brokers))))
        for tp in chosen
    }
    await reassign(cluster, targets)
    if random.random() < 0.7:
        await join_targets(cluster)


async def attempt(work: Awaitable[object]) -> None:
    try:
        await work
    except KafkaError:
        return


ACTIONS = [
    bring_up,
    bring_up,
    take_down,
    make_topic,
    make_topic,
    drop_topic,
    grow_topic,
    change_isr,
    elect_preferred,
    move_partitions,
]
