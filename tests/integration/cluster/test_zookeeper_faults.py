"""The store on a real ZooKeeper whose connection is cut, whose server is killed or paused, or whose session expires."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import pytest
from tests.support.cluster.zookeeper import ZooKeeper
from tests.support.cluster.zookeeper_proxy import CREATE, DELETE, GET, MULTI, MULTI_READ, SET, ZooKeeperProxy
from tests.support.cluster.zookeeper_store import eventually, expire_session, new_chroot, open_store, slow_test

from headrace.cluster.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
    Set,
    Stat,
    WatchEvent,
)
from headrace.cluster.zookeeper.multi_read import MultiRead
from headrace.cluster.zookeeper.store import ZooKeeperStore

Write = Callable[[ZooKeeperStore], Awaitable[object]]
Expected = Callable[[ZooKeeperStore, object], Awaitable[None]]


async def _created(store: ZooKeeperStore, result: object) -> None:
    assert result == "/new"
    data, stat = await store.get("/new")
    assert (data, stat.version, stat.ephemeral_owner) == (b"x", 0, 0)


async def _created_ephemeral(store: ZooKeeperStore, result: object) -> None:
    assert result == "/new"
    assert (await store.get("/new"))[1].ephemeral_owner == store.session_id


async def _created_once(store: ZooKeeperStore, result: object) -> None:
    assert [result] == [f"/q/{name}" for name in await store.children("/q")]


async def _was_set(store: ZooKeeperStore, result: object) -> None:
    data, stat = await store.get("/a")
    assert (data, stat) == (b"x", result)
    assert stat.version == 1


async def _deleted(store: ZooKeeperStore, result: object) -> None:
    assert result is None
    assert await store.exists("/a") is None


async def _all_of_multi(store: ZooKeeperStore, result: object) -> None:
    assert isinstance(result, list)
    first, created, sequential, stat, deleted = result
    assert (first, created, deleted) == (None, "/new", None)
    assert sequential == f"/q/{(await store.children('/q'))[0]}"
    assert isinstance(stat, Stat)
    assert await store.get("/a") == (b"x", stat)
    assert await store.children("/") == ["a", "new", "q"]


WRITES: dict[str, tuple[int, Write, Expected]] = {
    "create": (CREATE, lambda store: store.create("/new", b"x"), _created),
    "ephemeral": (CREATE, lambda store: store.create("/new", b"x", ephemeral=True), _created_ephemeral),
    "sequential": (CREATE, lambda store: store.create("/q/n_", b"x", sequential=True), _created_once),
    "compare-and-set": (SET, lambda store: store.set("/a", b"x", 0), _was_set),
    "set": (SET, lambda store: store.set("/a", b"x"), _was_set),
    "delete": (DELETE, lambda store: store.delete("/a", 0), _deleted),
    "multi": (
        MULTI,
        lambda store: store.multi(
            [
                Check("/q", 0),
                Create("/new", b"y", ephemeral=True),
                Create("/q/n_", b"z", sequential=True),
                Set("/a", b"x", 0),
                Delete("/old"),
            ]
        ),
        _all_of_multi,
    ),
}


@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize("name", WRITES)
def test_write_is_executed_once(name: str, cut: str, zookeeper: ZooKeeper) -> None:
    operation, write, expected = WRITES[name]

    @slow_test
    async def run() -> None:
        with ZooKeeperProxy(zookeeper.connect) as proxy:
            store = await open_store(proxy.connect + new_chroot())
            session_id = store.session_id
            for path in ("/a", "/q", "/old"):
                await store.create(path)
            (proxy.cut_before if cut == "before" else proxy.cut_after)(operation)
            result = await write(store)
            assert proxy.cuts == 1
            await expected(store, result)
            assert store.session_id == session_id
            await store.close()

    run()


@pytest.mark.parametrize("cut", ["before", "after"])
def test_lost_write_that_fails(cut: str, zookeeper: ZooKeeper) -> None:
    @slow_test
    async def run() -> None:
        with ZooKeeperProxy(zookeeper.connect) as proxy:
            store = await open_store(proxy.connect + new_chroot())
            await store.create("/a", b"x")
            lose = proxy.cut_before if cut == "before" else proxy.cut_after
            lose(CREATE)
            with pytest.raises(NodeExists):
                await store.create("/a", b"x")
            lose(SET)
            with pytest.raises(BadVersion):
                await store.set("/a", b"x", 7)
            lose(MULTI)
            with pytest.raises(NodeExists) as raised:
                await store.multi([Create("/b"), Create("/a", b"x")])
            assert raised.value.index == 1
            assert proxy.cuts == 3
            await store.close()

    run()


@slow_test
async def _reads_are_repeated(zookeeper: ZooKeeper) -> None:
    with ZooKeeperProxy(zookeeper.connect) as proxy:
        store = await open_store(proxy.connect + new_chroot())
        await store.create("/a", b"x")
        for cut in (proxy.cut_before, proxy.cut_after):
            cut(GET)
            assert (await store.get("/a"))[0] == b"x"
            cut(MULTI_READ)
            assert [data for data, _ in await asyncio.gather(*(store.get("/a") for _ in range(30)))] == [b"x"] * 30
        assert proxy.cuts == 4
        await store.close()


def test_reads_are_repeated(zookeeper: ZooKeeper) -> None:
    _reads_are_repeated(zookeeper)


@slow_test
async def _reads_on_an_old_server(zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await open_store(zookeeper.connect + new_chroot())
    await store.create("/a", b"x")
    monkeypatch.setattr(MultiRead, "type", 1022)  # no server has such requests
    for _ in range(2):
        found = await asyncio.gather(*map(store.get, ("/a", "/missing", "/a")), return_exceptions=True)
        assert [each if isinstance(each, NoNode) else each[0] for each in found] == [b"x", found[1], b"x"]
        assert isinstance(found[1], NoNode)
    await store.close()


def test_reads_on_a_server_without_requests_for_several_nodes(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    _reads_on_an_old_server(zookeeper, monkeypatch)


@slow_test
async def _watches_survive(zookeeper: ZooKeeper) -> None:
    with ZooKeeperProxy(zookeeper.connect) as proxy:
        chroot = new_chroot()
        store = await open_store(proxy.connect + chroot, session_timeout_ms=30_000)
        other = await open_store(zookeeper.connect + chroot)
        await store.create("/a", b"old")
        await store.create("/unchanged")
        seen: list[WatchEvent] = []
        await store.get("/a", seen.append)
        await store.children("/", seen.append)
        await store.exists("/missing", seen.append)
        await store.get("/unchanged", seen.append)
        proxy.block()
        await other.set("/a", b"new")
        await other.create("/missing")
        assert seen == []
        proxy.unblock()
        await eventually(lambda: len(seen) == 4)
        assert {(event.kind, event.path) for event in seen} == {
            (EventKind.CHANGED, "/a"),
            (EventKind.CHANGED, "/missing"),
            (EventKind.CHANGED, "/unchanged"),
            (EventKind.CHILDREN, "/"),
        }
        assert (await store.get("/a", seen.append))[0] == b"new"
        await other.delete("/a")
        await eventually(lambda: len(seen) == 5)
        assert seen[-1] == WatchEvent(EventKind.DELETED, "/a")
        await other.close()
        await store.close()


def test_watches_survive_a_lost_connection(zookeeper: ZooKeeper) -> None:
    _watches_survive(zookeeper)


@slow_test
async def _expires_while_unreachable(zookeeper: ZooKeeper) -> None:
    with ZooKeeperProxy(zookeeper.connect) as proxy:
        chroot = new_chroot()
        store = await open_store(proxy.connect + chroot, session_timeout_ms=2_000)
        other = await open_store(zookeeper.connect + chroot)
        states: list[SessionState] = []
        store.add_session_listener(states.append)
        seen: list[WatchEvent] = []
        await store.create("/mine", ephemeral=True)
        await store.children("/", seen.append)
        first = store.session_id
        gone = asyncio.Event()
        await other.exists("/mine", lambda _: gone.set())
        proxy.block()
        reading = asyncio.create_task(store.get("/mine"))
        writing = asyncio.create_task(store.create("/never", b"x"))
        await gone.wait()
        assert not reading.done(), "the client cannot know yet"
        proxy.unblock()
        await eventually(lambda: SessionState.ESTABLISHED in states)
        assert states == [SessionState.LOST, SessionState.ESTABLISHED]
        for task in (reading, writing):
            with pytest.raises(SessionExpired):
                await task
        assert store.session_id != first
        await other.create("/after")
        await store.create("/mine", ephemeral=True)
        assert seen == [], "the watches of the old session are dropped"
        await other.close()
        await store.close()


def test_session_expires_while_zookeeper_is_unreachable(zookeeper: ZooKeeper) -> None:
    _expires_while_unreachable(zookeeper)


class Counter:
    """Increments a node by compare-and-set, and counts what the store reported."""

    def __init__(self, store: ZooKeeperStore, path: str = "/counter"):
        self.acknowledged = 0
        self.unknown = 0
        self.refused = 0
        self._store = store
        self._path = path
        self._is_stopped = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        with contextlib.suppress(NodeExists):
            await self._store.create(self._path)
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        number = 0
        while not self._is_stopped:
            number += 1
            try:
                _, stat = await self._store.get(self._path)
                # Unique data: otherwise the write of another client could not be told from the own.
                data = f"{self._store.session_id} {id(self)} {number}".encode()
                after = await self._store.set(self._path, data, stat.version)
                assert after.version == stat.version + 1
                self.acknowledged += 1
            except BadVersion:
                self.refused += 1
            except SessionExpired:
                self.unknown += 1
            await asyncio.sleep(0.001)

    async def progress(self, count: int = 5) -> None:
        """Waits for acknowledged increments."""
        goal = self.acknowledged + count
        await eventually(lambda: self.acknowledged >= goal)

    async def stop(self) -> None:
        self._is_stopped = True
        assert self._task is not None
        await self._task

    async def check_only_writer(self) -> None:
        """Each acknowledged increment has happened once, and no other."""
        _, stat = await self._store.get(self._path)
        assert self.refused == 0
        assert self.acknowledged <= stat.version <= self.acknowledged + self.unknown


@slow_test
async def _random_cuts(zookeeper: ZooKeeper, seed: int) -> None:
    dice = random.Random(seed)
    with ZooKeeperProxy(zookeeper.connect) as one, ZooKeeperProxy(zookeeper.connect) as two:
        chroot = new_chroot()
        stores = [await open_store(proxy.connect + chroot, session_timeout_ms=30_000) for proxy in (one, two)]
        own = [Counter(store, f"/own-{number}") for number, store in enumerate([*stores, *stores])]
        shared = [Counter(store, "/shared") for store in stores]
        for counter in (*own, *shared):
            await counter.start()
        for _ in range(15):
            proxy = dice.choice((one, two))
            cuts = proxy.cuts
            dice.choice((proxy.cut_before, proxy.cut_after))(dice.choice((SET, GET)))
            await eventually(lambda proxy=proxy, cuts=cuts: proxy.cuts > cuts)
            await dice.choice(own).progress(1)
        for counter in (*own, *shared):
            await counter.stop()
        for counter in own:
            assert counter.unknown == 0
            await counter.check_only_writer()
        # A write without a response is refused if another client has changed the node before it could be looked up.
        _, stat = await stores[0].get("/shared")
        acknowledged = sum(counter.acknowledged for counter in shared)
        assert acknowledged <= stat.version <= acknowledged + one.cuts + two.cuts
        for store in stores:
            await store.close()


def test_increments_under_random_cuts(zookeeper: ZooKeeper) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    _random_cuts(zookeeper, seed)


@slow_test
async def _restarted_server(zookeeper: ZooKeeper) -> None:
    (server,) = zookeeper.servers
    store = await open_store(zookeeper.connect, session_timeout_ms=60_000)
    first = store.session_id
    await store.create("/mine", ephemeral=True)
    counter = Counter(store)
    await counter.start()
    await counter.progress()
    server.kill()
    await asyncio.to_thread(server.start)
    await counter.progress()
    await counter.stop()
    await counter.check_only_writer()
    assert store.session_id == first
    stat = await store.exists("/mine")
    assert stat is not None
    assert stat.ephemeral_owner == first
    await store.close()


def test_session_survives_a_restart_of_zookeeper(own_zookeeper: ZooKeeper) -> None:
    _restarted_server(own_zookeeper)


@slow_test
async def _paused_server(zookeeper: ZooKeeper) -> None:
    (server,) = zookeeper.servers
    store = await open_store(zookeeper.connect, session_timeout_ms=3_000)
    states: list[SessionState] = []
    store.add_session_listener(states.append)
    counters = [Counter(store, f"/counter-{number}") for number in range(3)]
    for counter in counters:
        await counter.start()
    for _ in range(2):
        await counters[0].progress()
        server.pause()
        await eventually(lambda: not store.is_connected)
        server.resume()
        await counters[0].progress()
    for counter in counters:
        await counter.stop()
        await counter.check_only_writer()
    # ZooKeeper decides whether the session survives its own pause.
    assert states in ([], *([SessionState.LOST, SessionState.ESTABLISHED] * count for count in (1, 2)))
    await store.close()


def test_paused_zookeeper(own_zookeeper: ZooKeeper) -> None:
    _paused_server(own_zookeeper)


@slow_test
async def _ensemble_leader_killed(ensemble: ZooKeeper) -> None:
    chroot = new_chroot()
    stores = [await open_store(ensemble.connect + chroot, session_timeout_ms=30_000) for _ in range(2)]
    sessions = [store.session_id for store in stores]
    counters = [Counter(store, f"/counter-{number}") for number, store in enumerate(stores)]
    for number, store in enumerate(stores):
        await store.create(f"/live-{number}", ephemeral=True)
        await counters[number].start()
    for _ in range(2):
        leader = await asyncio.to_thread(ensemble.leader)
        leader.kill()
        for counter in counters:
            await counter.progress(10)
        await asyncio.to_thread(leader.start)
    for counter in counters:
        await counter.stop()
        assert counter.unknown == 0
        await counter.check_only_writer()
    assert [store.session_id for store in stores] == sessions
    assert {"live-0", "live-1"} <= set(await stores[0].children("/"))
    for store in stores:
        await store.close()


def test_leader_of_the_ensemble_is_killed(ensemble: ZooKeeper) -> None:
    _ensemble_leader_killed(ensemble)


@slow_test
async def _expires_often(zookeeper: ZooKeeper) -> None:
    store = await open_store(zookeeper.connect + new_chroot())
    states: list[SessionState] = []
    store.add_session_listener(states.append)
    for count in range(1, 4):
        await store.create("/mine", ephemeral=True)
        await asyncio.to_thread(expire_session, store)
        await eventually(lambda count=count: states == [SessionState.LOST, SessionState.ESTABLISHED] * count)
    await store.close()


def test_session_expires_several_times(zookeeper: ZooKeeper) -> None:
    _expires_often(zookeeper)
