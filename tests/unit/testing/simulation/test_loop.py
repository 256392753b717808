"""The virtual loop: time jumps, and nodes can be killed and paused."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headrace.common.ids import make_random
from headrace.testing.simulation.loop import Node, NodeClock, SimulationError, VirtualLoop, VirtualRunner


def run(scenario: Callable[[VirtualLoop], Awaitable[object]], seed: int = 1) -> VirtualLoop:
    loop = VirtualLoop(make_random(seed))
    try:
        loop.run_until_complete(scenario(loop))  # type: ignore[arg-type]
    finally:
        loop.close()
    return loop


def test_an_hour_passes_at_once() -> None:
    async def scenario(loop: VirtualLoop) -> None:
        async with asyncio.timeout(7200):
            await asyncio.sleep(3600)
        assert loop.time() == pytest.approx(3600, abs=0.01)

    run(scenario)


def test_a_killed_node_runs_nothing_not_even_its_finally_blocks() -> None:
    ran: list[str] = []

    async def work(name: str) -> None:
        try:
            while True:
                await asyncio.sleep(1)
                ran.append(name)
        finally:
            ran.append("finally")

    async def scenario(loop: VirtualLoop) -> None:
        first, second = Node(loop, "first"), Node(loop, "second")
        first.run(work("first"))
        second.run(work("second"))
        await asyncio.sleep(1.5)
        first.kill()
        await asyncio.sleep(2)
        assert ran == ["first", "second", "second", "second"]

    run(scenario)


def test_a_paused_node_continues_where_it_stopped() -> None:
    async def scenario(loop: VirtualLoop) -> None:
        times: list[float] = []

        async def work() -> None:
            while True:
                await asyncio.sleep(1)
                times.append(loop.time())

        node = Node(loop, "node")
        node.run(work())
        await asyncio.sleep(2.5)
        node.pause()
        await asyncio.sleep(10)
        assert times == pytest.approx([1, 2], abs=0.01)
        node.resume()
        await asyncio.sleep(1.1)
        assert times == pytest.approx([1, 2, 12.5, 13.5], abs=0.01)

    run(scenario)


def test_work_for_threads_runs_later_on_the_same_thread() -> None:
    async def scenario(loop: VirtualLoop) -> None:
        done: list[str] = []
        assert await asyncio.to_thread(lambda: "result") == "result"
        runner = VirtualRunner(1, lambda: loop.call_soon(runner.drain) and None)
        runner.submit(lambda: "first", lambda result: done.append(str(result.value)))
        runner.submit(lambda: 1 / 0, lambda result: done.append(type(result.error).__name__))
        assert not done
        await asyncio.sleep(1)
        assert done == ["first", "ZeroDivisionError"]
        runner.submit(lambda: "last", lambda result: done.append(str(result.value)))
        runner.close()
        assert done[-1] == "last"

    run(scenario)


def test_a_wait_that_cannot_end_is_an_error() -> None:
    async def scenario(loop: VirtualLoop) -> None:
        await loop.create_future()

    with pytest.raises(SimulationError, match="Nothing is left to run"):
        run(scenario)


def test_clocks_of_nodes_may_be_wrong() -> None:
    async def scenario(loop: VirtualLoop) -> None:
        node = Node(loop, "node")
        clock = NodeClock(loop, node)
        before = clock.time_ms()
        node.clock_offset_ms = -5000
        await asyncio.sleep(1)
        assert abs(clock.time_ms() - (before - 4000)) <= 1
        assert clock.monotonic() == pytest.approx(1, abs=0.01)

    run(scenario)
