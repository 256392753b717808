"""Every case: the write was executed, was not, or was executed and followed by a change of another client."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.cluster.fake_cluster import async_test

from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.store import (
    Check,
    CoordinationStore,
    Create,
    Delete,
    NoNode,
    Operation,
    OperationResult,
    Set,
    Stat,
)
from headrace.cluster.zookeeper.lost_writes import Node, find_results
from headrace.testing.clock import ManualClock

Change = Callable[[CoordinationStore], Awaitable[object]]


class Scene:
    """A store with nodes `/a` (version 0) and `/q`, and a write whose response is lost."""

    def __init__(self) -> None:
        self.store = EmbeddedStore(None, ManualClock())
        self.other = self.store.new_session()
        self.before = 0

    async def set_up(self) -> None:
        await self.other.create("/a", b"old")
        await self.other.create("/q")
        self.before = (await self.other.set("/q", b"")).mzxid

    async def find(self, operations: list[Operation]) -> list[OperationResult] | None:
        async def get(path: str) -> Node:
            try:
                return await self.store.get(path)
            except NoNode:
                return None

        return await find_results(operations, self.before, self.store.session_id, get, self.store.children)


EXECUTED_OR_NOT: list[list[Operation]] = [
    [Create("/new", b"x")],
    [Create("/new")],
    [Create("/new", b"x", ephemeral=True)],
    [Create("/q/n_", b"x", sequential=True)],
    [Create("/q/n_", b"x", ephemeral=True, sequential=True)],
    [Set("/a", b"x", 0)],
    [Set("/a", b"x")],
    [Delete("/a", 0)],
    [Delete("/a")],
    [Check("/q"), Set("/a", b"x", 0), Create("/new", b"y"), Create("/q/n_", b"z", sequential=True)],
    [Delete("/a"), Create("/new")],
    [Create("/new"), Create("/new/child"), Delete("/a", 0)],
]


@pytest.mark.parametrize("operations", EXECUTED_OR_NOT, ids=str)
def test_recognizes_own_write(operations: list[Operation]) -> None:
    @async_test
    async def run() -> None:
        scene = Scene()
        await scene.set_up()
        assert await scene.find(operations) is None, "not executed"
        results = await scene.store.multi(operations)
        assert await scene.find(operations) == results

    run()


@pytest.mark.parametrize(
    ("operations", "change"),
    [
        ([Create("/new", b"mine")], lambda other: other.create("/new", b"other's")),
        ([Create("/new", b"mine", ephemeral=True)], lambda other: other.create("/new", b"mine", ephemeral=True)),
        ([Create("/new", b"mine", ephemeral=True)], lambda other: other.create("/new", b"mine")),
        (  # an election that another broker has won: it wrote the same controller epoch
            [Create("/new", b"mine", ephemeral=True), Set("/a", b"1", 0)],
            lambda other: other.multi([Create("/new", b"other", ephemeral=True), Set("/a", b"1", 0)]),
        ),
        ([Create("/q/n_", b"mine", sequential=True)], lambda other: other.create("/q/n_", b"x", sequential=True)),
        ([Set("/a", b"mine", 0)], lambda other: other.set("/a", b"other's", 0)),
        ([Set("/a", b"mine", 3)], lambda other: other.set("/a", b"mine")),
        ([Create("/new", b"x"), Set("/a", b"mine", 0)], lambda other: other.create("/new", b"x")),
        ([Set("/a", b"mine", 0), Delete("/q")], lambda other: other.set("/a", b"mine", 0)),
        ([Delete("/a"), Delete("/q")], lambda other: other.delete("/a")),
    ],
)
def test_write_of_another_client(operations: list[Operation], change: Change) -> None:
    @async_test
    async def run() -> None:
        scene = Scene()
        await scene.set_up()
        await change(scene.other)
        assert await scene.find(operations) is None

    run()


@async_test
async def test_own_write_with_a_later_change() -> None:
    scene = Scene()
    await scene.set_up()
    operations: list[Operation] = [Set("/a", b"x", 0), Create("/new", b"y")]
    await scene.store.multi(operations)
    await scene.other.set("/a", b"later")
    results = await scene.find(operations)
    assert results is not None
    assert isinstance(results[0], Stat)
    assert (results[0].version, results[1]) == (1, "/new")
    await scene.other.delete("/a")
    results = await scene.find(operations)
    assert results is not None
    assert isinstance(results[0], Stat)
    assert results[0].version == 1


@async_test
async def test_deleted_node_that_was_created_again() -> None:
    scene = Scene()
    await scene.set_up()
    await scene.store.delete("/a")
    await scene.other.create("/a", b"new")
    assert await scene.find([Delete("/a")]) == [None]


@async_test
async def test_sequential_node_among_others() -> None:
    scene = Scene()
    await scene.set_up()
    await scene.other.create("/q/n_other")
    path = await scene.store.create("/q/n_", b"mine", sequential=True)
    await asyncio.gather(*(scene.other.create("/q/n_", b"x", sequential=True) for _ in range(5)))
    assert await scene.find([Create("/q/n_", b"mine", sequential=True)]) == [path]
