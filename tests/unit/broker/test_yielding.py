"""Turns: a handler gives way when its turn is over, and only one of those that wait runs in an iteration."""

import asyncio

from headrace.broker.yielding import TURN_SECONDS, Turn, TurnQueue, consumed_parts, parts
from headrace.testing.clock import ManualClock


def test_a_turn_begins_with_its_first_item() -> None:
    clock = ManualClock()
    turn = Turn(clock)
    assert not turn.is_over()
    clock.advance(TURN_SECONDS * 1000 - 1)
    assert not turn.is_over()
    assert not turn.given_way
    clock.advance(1)
    assert turn.is_over()
    assert turn.given_way
    clock.advance(10_000)  # it waits for its next turn
    assert not turn.is_over()
    clock.advance(TURN_SECONDS * 1000 + 1)
    assert turn.is_over()


def test_one_turn_in_each_iteration() -> None:
    async def scenario() -> None:
        queue = TurnQueue()
        ran: list[str] = []

        def work(name: str, turns: int) -> None:
            ran.append(name)
            if turns > 1:
                queue.add(lambda: work(name, turns - 1))

        queue.add(lambda: work("a", 2))
        queue.add(lambda: work("b", 1))
        seen: list[list[str]] = []
        for _ in range(4):
            await asyncio.sleep(0)
            seen.append(list(ran))
        assert seen == [["a"], ["a", "b"], ["a", "b", "a"], ["a", "b", "a"]]
        assert queue.turns == 3

    asyncio.run(scenario())


def test_work_that_fails_does_not_stop_the_queue() -> None:
    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
        queue = TurnQueue()
        queue.add(lambda: 1 // 0)
        await asyncio.wait_for(queue.wait(), 10)

    failures: list[Exception] = []
    asyncio.run(scenario())
    assert [type(failure) for failure in failures] == [ZeroDivisionError]


def test_closed_queue_drops_its_work() -> None:
    async def scenario() -> None:
        queue = TurnQueue()
        ran: list[int] = []
        queue.add(lambda: ran.append(1))
        queue.close()
        queue.add(lambda: ran.append(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert ran == []

    asyncio.run(scenario())


def test_cancelled_waiter_gives_its_turn_to_the_next() -> None:
    async def scenario() -> None:
        queue = TurnQueue()
        cancelled = asyncio.ensure_future(queue.wait())
        next_one = asyncio.ensure_future(queue.wait())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait_for(next_one, 10)

    asyncio.run(scenario())


def test_parts_of_a_list() -> None:
    assert list(parts([], 2)) == [[]]
    assert list(parts([1, 2], 2)) == [[1, 2]]
    assert list(parts([1, 2, 3], 2)) == [[1, 2], [3]]


def test_consumed_parts_are_removed() -> None:
    items = [1, 2, 3, 4, 5]
    seen = [(part, len(items)) for part in consumed_parts(items, 2)]
    assert seen == [([1, 2], 3), ([3, 4], 1), ([5], 0)]
