"""Requests that name very many things let others have their turn in between."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.bulk_requests import _AT_ONCE, ask_shards, give_way
from headrace.common.errors import GroupIdNotFoundError
from headrace.coordinator.result import CoordinatorResponse, CoordinatorResult


class Groups:
    """A runtime whose answers come at once, or when the test says so."""

    def __init__(self, waits: bool = False) -> None:
        self.asked = 0
        self.waiting: list[Callable[[], None]] = []
        self._waits = waits

    def write(
        self,
        index: int,
        operation: Callable[[Any], CoordinatorResult[str]],
        done: Callable[[CoordinatorResponse[str]], None],
    ) -> None:
        self.asked += 1
        try:
            outcome = CoordinatorResponse(operation(index).response)
        except GroupIdNotFoundError as error:
            outcome = CoordinatorResponse(error=error)
        if self._waits:
            self.waiting.append(lambda: done(outcome))
        else:
            done(outcome)


def ask(groups: Groups, names: list[str]) -> list[list[str]]:
    """The list gets the reply when there is one."""
    replies: list[list[str]] = []
    broker: Any = SimpleNamespace(coordinators=SimpleNamespace(groups=groups, group_partition=len))

    def operation(shard: Any, name: str) -> CoordinatorResult[str]:
        if name == "not there":
            raise GroupIdNotFoundError("it is not there")
        return CoordinatorResult((), f"{name} of {shard}")

    ask_shards(broker, names, operation, lambda name, error: f"{name}: {error}", replies.append)
    return replies


def test_each_is_asked_of_its_own_and_answered_in_order() -> None:
    assert ask(Groups(), ["a", "not there", "bcd"]) == [["a of 1", "not there: it is not there", "bcd of 3"]]
    assert ask(Groups(), []) == [[]]
    groups = Groups(waits=True)
    replies = ask(groups, ["a", "bcd"])
    for answer in reversed(groups.waiting):
        assert replies == []
        answer()
    assert replies == [["a of 1", "bcd of 3"]]


@pytest.mark.parametrize("count", [_AT_ONCE + 1, 3 * _AT_ONCE])
def test_others_have_their_turn(count: int) -> None:
    async def run() -> None:
        groups, seen = Groups(), []
        asyncio.get_running_loop().call_soon(lambda: seen.append(groups.asked))
        replies = ask(groups, [str(number) for number in range(count)])
        assert groups.asked == _AT_ONCE
        while not replies:
            await asyncio.sleep(0)
        assert seen == [_AT_ONCE]
        assert len(replies[0]) == count

    asyncio.run(run())


def test_a_coroutine_gives_way_now_and_then() -> None:
    async def run() -> None:
        turns: list[int] = []
        done = 0
        asyncio.get_running_loop().call_soon(lambda: turns.append(done))
        for _ in range(_AT_ONCE + 10):
            done += 1
            await give_way(done)
        assert turns == [_AT_ONCE]

    asyncio.run(run())
