import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.cluster.fake_cluster import async_test, until
from tests.unit.cluster.store_contract import IMPLEMENTATIONS, Harness

from headrace.cluster.store import (
    BadVersion,
    Check,
    CoordinationStore,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionExpired,
    SessionState,
    Set,
    Stat,
    StoreError,
    WatchEvent,
    delete_tree,
)

ContractTest = Callable[[Harness, CoordinationStore], Awaitable[None]]
CONTRACT: dict[str, ContractTest] = {}
"""All tests by name, for implementations that need a server."""


def contract(test: ContractTest) -> Callable[..., None]:
    """Runs a test for each implementation, with a new store and session."""
    CONTRACT[test.__name__] = test

    @pytest.mark.parametrize("make", IMPLEMENTATIONS, ids=lambda make: make.__name__)
    def run(make: Callable[[Path], Awaitable[Harness]], tmp_path: Path) -> None:
        async def body() -> None:
            harness = await make(tmp_path)
            store = await harness.session()
            try:
                await test(harness, store)
            finally:
                await store.close()
                await harness.close()

        async_test(body)()

    return run


class Seen(list[WatchEvent]):
    """Records the events of watches."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __call__(self, event: WatchEvent) -> None:
        self.append(event)


async def let_watches_run(store: CoordinationStore) -> None:
    """Waits for watches: they are called before the next change is acknowledged."""
    await store.create("/marker-", sequential=True)
    await asyncio.sleep(0)


# ---- nodes


@contract
async def test_concurrent_reads(harness: Harness, store: CoordinationStore) -> None:
    names = [f"/node-{number}" for number in range(1_200)]
    for first in range(0, len(names), 400):
        await store.multi([Create(name, name.encode()) for name in names[first : first + 400]])
    wanted = [*names, "/missing"]
    found = await asyncio.gather(*map(store.get, wanted), return_exceptions=True)
    missing = found.pop()
    assert isinstance(missing, NoNode)
    assert missing.path == "/missing"
    assert [each[0] for each in found if not isinstance(each, BaseException)] == [name.encode() for name in names]
    last = found[-1]
    assert not isinstance(last, BaseException)
    assert last[1] == await store.exists(names[-1])


@contract
async def test_create_get_set_delete(harness: Harness, store: CoordinationStore) -> None:
    assert await store.create("/a", b"one") == "/a"
    data, stat = await store.get("/a")
    assert data == b"one"
    assert (stat.version, stat.ephemeral_owner, stat.num_children) == (0, 0, 0)
    assert stat.czxid == stat.mzxid > 0
    after = await store.set("/a", b"two")
    assert (after.version, after.czxid) == (1, stat.czxid)
    assert after.mzxid > stat.mzxid
    assert await store.get("/a") == (b"two", after)
    assert await store.exists("/a") == after
    await store.delete("/a")
    assert await store.exists("/a") is None
    with pytest.raises(NoNode, match="/a"):
        await store.get("/a")


@contract
async def test_timestamps(harness: Harness, store: CoordinationStore) -> None:
    await store.create("/a")
    first = await store.exists("/a")
    assert first is not None
    assert first.ctime_ms == first.mtime_ms
    harness.clock.advance(5)
    second = await store.set("/a", b"x")
    assert second.ctime_ms == first.ctime_ms
    assert second.mtime_ms >= first.mtime_ms


@contract
async def test_create_errors(harness: Harness, store: CoordinationStore) -> None:
    await store.create("/a")
    with pytest.raises(NodeExists, match="/a"):
        await store.create("/a")
    with pytest.raises(NoNode, match="/b"):
        await store.create("/b/c")
    await store.create("/e", ephemeral=True)
    with pytest.raises(NoChildrenForEphemerals):
        await store.create("/e/child")


@contract
async def test_missing_nodes(harness: Harness, store: CoordinationStore) -> None:
    for call in (store.get("/x"), store.set("/x", b""), store.delete("/x"), store.children("/x")):
        with pytest.raises(NoNode):
            await call


@contract
async def test_versions(harness: Harness, store: CoordinationStore) -> None:
    await store.create("/a", b"0")
    assert (await store.set("/a", b"1", 0)).version == 1
    with pytest.raises(BadVersion) as raised:
        await store.set("/a", b"2", 0)
    assert raised.value.path == "/a"
    with pytest.raises(BadVersion):
        await store.delete("/a", 0)
    assert (await store.set("/a", b"3")).version == 2
    await store.delete("/a", 2)
    await store.create("/a")
    stat = await store.exists("/a")
    assert stat is not None
    assert stat.version == 0


@contract
async def test_children(harness: Harness, store: CoordinationStore) -> None:
    await store.create("/a")
    for name in ("c", "a", "b"):
        await store.create(f"/a/{name}")
    assert await store.children("/a") == ["a", "b", "c"]
    stat = await store.exists("/a")
    assert stat is not None
    assert (stat.num_children, stat.version) == (3, 0)
    with pytest.raises(NotEmpty, match="/a"):
        await store.delete("/a")
    await store.delete("/a/b")
    assert await store.children("/a") == ["a", "c"]
    assert "a" in await store.children("/")


@contract
async def test_sequential_names_are_never_reused(harness: Harness, store: CoordinationStore) -> None:
    await store.create("/q")
    made = [await store.create("/q/n_", sequential=True) for _ in range(3)]
    assert made == sorted(set(made))
    assert all(len(path) == len("/q/n_") + 10 for path in made)
    for path in made:
        await store.delete(path)
    assert await store.create("/q/n_", sequential=True) > made[-1]


@contract
async def test_rejects_invalid_paths(harness: Harness, store: CoordinationStore) -> None:
    for path in ("", "a", "a/b", "/a/", "//a", "/a//b", "/a/../b", "/./a", "/a\x00b"):
        with pytest.raises(StoreError):
            await store.create(path)


@contract
async def test_large_and_binary_data(harness: Harness, store: CoordinationStore) -> None:
    await store.create("/big", bytes(range(256)) * 2000)
    assert (await store.get("/big"))[0] == bytes(range(256)) * 2000
    await store.create("/empty")
    assert (await store.get("/empty"))[0] == b""


@contract
async def test_delete_tree(harness: Harness, store: CoordinationStore) -> None:
    await store.create("/a")
    for path in ("/a/b", "/a/b/c", "/a/d"):
        await store.create(path)
    await delete_tree(store, "/a")
    assert await store.exists("/a") is None
    await delete_tree(store, "/a")


# ---- multi


@contract
async def test_multi_executes_all_operations(harness: Harness, store: CoordinationStore) -> None:
    await store.create("/a", b"0")
    results = await store.multi(
        [Check("/a", 0), Set("/a", b"1", 0), Create("/a/b", b"x"), Create("/a/s_", sequential=True), Delete("/a/b")]
    )
    assert results[0] is None
    assert isinstance(results[1], Stat)
    assert results[1].version == 1
    assert results[2] == "/a/b"
    assert str(results[3]).startswith("/a/s_")
    assert results[4] is None
    assert await store.children("/a") == [str(results[3]).removeprefix("/a/")]


@contract
async def test_multi_changes_nothing_if_one_operation_fails(harness: Harness, store: CoordinationStore) -> None:
    await store.create("/a", b"0")
    cases: list[tuple[Operation, type[StoreError]]] = [
        (Check("/a", 7), BadVersion),
        (Check("/none"), NoNode),
        (Create("/a"), NodeExists),
        (Set("/a", b"", 7), BadVersion),
        (Delete("/none"), NoNode),
    ]
    before = await store.get("/a")
    for operation, error in cases:
        with pytest.raises(error) as raised:
            await store.multi([Check("/a", 0), Create("/made"), operation, Create("/never")])
        assert raised.value.index == 2
        assert await store.exists("/made") is None
        assert await store.get("/a") == before


@contract
async def test_multi_sees_its_own_changes(harness: Harness, store: CoordinationStore) -> None:
    await store.multi([Create("/a"), Create("/a/b"), Set("/a/b", b"1"), Set("/a/b", b"2", 1)])
    assert (await store.get("/a/b"))[0] == b"2"
    with pytest.raises(NotEmpty):
        await store.multi([Delete("/a")])
    await store.multi([Set("/a", b"x"), Delete("/a/b"), Delete("/a"), Create("/a", b"new"), Create("/a/c")])
    assert (await store.get("/a"))[0] == b"new"
    assert await store.children("/a") == ["c"]
    await store.multi([Set("/a", b"x"), Delete("/a/c"), Delete("/a")])
    assert await store.exists("/a") is None


# ---- watches


@contract
async def test_data_watch_triggers_once(harness: Harness, store: CoordinationStore) -> None:
    seen = Seen()
    await store.create("/a")
    await store.get("/a", seen)
    await store.set("/a", b"1")
    await store.set("/a", b"2")
    await let_watches_run(store)
    assert seen == [WatchEvent(EventKind.CHANGED, "/a")]


@contract
async def test_data_watch_triggers_on_deletion(harness: Harness, store: CoordinationStore) -> None:
    seen = Seen()
    await store.create("/a")
    await store.get("/a", seen)
    await store.delete("/a")
    await store.create("/a")
    await let_watches_run(store)
    assert seen == [WatchEvent(EventKind.DELETED, "/a")]


@contract
async def test_exists_watch_on_missing_node(harness: Harness, store: CoordinationStore) -> None:
    seen, never = Seen(), Seen()
    assert await store.exists("/a", seen) is None
    with pytest.raises(NoNode):
        await store.get("/a", never)
    with pytest.raises(NoNode):
        await store.children("/a", never)
    await store.create("/a")
    await let_watches_run(store)
    assert seen == [WatchEvent(EventKind.CREATED, "/a")]
    assert never == []


@contract
async def test_child_watch(harness: Harness, store: CoordinationStore) -> None:
    await store.create("/a")
    seen = Seen()
    await store.children("/a", seen)
    await store.set("/a", b"not a child")
    await store.create("/a/b")
    await store.create("/a/c")
    await let_watches_run(store)
    assert seen == [WatchEvent(EventKind.CHILDREN, "/a")]
    await store.children("/a", seen)
    await store.set("/a/b", b"not of the list")
    await store.delete("/a/c")
    await let_watches_run(store)
    assert seen == [WatchEvent(EventKind.CHILDREN, "/a")] * 2


@contract
async def test_duplicate_watch_is_called_once(harness: Harness, store: CoordinationStore) -> None:
    seen = Seen()
    await store.create("/a")
    await store.get("/a", seen)
    await store.get("/a", seen)
    await store.set("/a", b"1")
    await let_watches_run(store)
    assert len(seen) == 1


@contract
async def test_watches_of_several_sessions(harness: Harness, store: CoordinationStore) -> None:
    other = await harness.session()
    seen = Seen()
    await store.children("/", seen)
    await other.create("/a")
    await until(lambda: seen)
    assert "a" in await store.children("/", seen)
    await other.close()


@contract
async def test_change_is_visible_when_watch_is_called(harness: Harness, store: CoordinationStore) -> None:
    await store.create("/a", b"0")
    found: list[asyncio.Task[tuple[bytes, Stat]]] = []
    await store.get("/a", lambda _: found.append(asyncio.ensure_future(store.get("/a"))))
    await store.set("/a", b"1")
    await until(lambda: found)
    assert (await found[0])[0] == b"1"


@contract
async def test_failed_multi_triggers_no_watch(harness: Harness, store: CoordinationStore) -> None:
    seen = Seen()
    await store.create("/a")
    await store.get("/a", seen)
    with pytest.raises(NoNode):
        await store.multi([Set("/a", b"1"), Delete("/none")])
    await let_watches_run(store)
    assert seen == []


# ---- sessions


@contract
async def test_ephemeral_nodes_are_deleted_with_session(harness: Harness, store: CoordinationStore) -> None:
    other = await harness.session()
    assert other.session_id != store.session_id
    await store.create("/live")
    await other.create("/live/1", b"me", ephemeral=True)
    await other.create("/stays")
    stat = await store.exists("/live/1")
    assert stat is not None
    assert stat.ephemeral_owner == other.session_id
    seen = Seen()
    await store.exists("/live/1", seen)
    await other.close()
    await until(lambda: seen)
    assert seen == [WatchEvent(EventKind.DELETED, "/live/1")]
    assert await store.children("/live") == []
    assert await store.exists("/stays") is not None


@contract
async def test_closed_session_rejects_calls(harness: Harness, store: CoordinationStore) -> None:
    other = await harness.session()
    seen = Seen()
    await other.children("/", seen)
    await other.close()
    await other.close()
    for call in (other.create("/x"), other.exists("/x"), other.get("/"), other.children("/"), other.delete("/x")):
        with pytest.raises(SessionExpired):
            await call
    await store.create("/a")
    await let_watches_run(store)
    assert seen == []


@contract
async def test_expired_session(harness: Harness, store: CoordinationStore) -> None:
    other = await harness.session()
    states: list[SessionState] = []
    seen = Seen()
    other.add_session_listener(states.append)
    first = other.session_id
    await other.create("/mine", ephemeral=True)
    await other.children("/", seen)
    await harness.expire(other)
    await until(lambda: SessionState.ESTABLISHED in states)
    assert states == [SessionState.LOST, SessionState.ESTABLISHED]
    assert other.session_id != first
    assert await store.exists("/mine") is None
    seen.clear()  # a lost connection may have triggered the watch before the session expired
    await store.create("/a")
    await let_watches_run(store)
    assert seen == []
    await other.create("/mine", ephemeral=True)
    await other.close()


# ---- order


@contract
async def test_only_one_of_many_compare_and_sets_wins(harness: Harness, store: CoordinationStore) -> None:
    await store.create("/a", b"")

    async def try_to(number: int) -> bool:
        try:
            await store.set("/a", b"%d" % number, 0)
        except BadVersion:
            return False
        return True

    won = await asyncio.gather(*(try_to(number) for number in range(20)))
    assert sum(won) == 1
    assert (await store.get("/a"))[0] == b"%d" % won.index(True)


@contract
async def test_cancelled_change_is_atomic(harness: Harness, store: CoordinationStore) -> None:
    await store.create("/n")
    tasks = [asyncio.create_task(store.create(f"/n/{number:02}")) for number in range(20)]
    for task in tasks[::2]:
        await asyncio.sleep(0)
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    await store.create("/after")
    names = await store.children("/n")
    for number, outcome in enumerate(outcomes):
        if isinstance(outcome, str):
            assert f"{number:02}" in names
    for name in names:
        assert (await store.get(f"/n/{name}"))[1].version == 0
