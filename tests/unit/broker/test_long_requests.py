"""Long requests: few are in progress at a time, in the order of their arrival, and full collections wait."""

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from headrace.broker.long_requests import MAX_IN_PROGRESS, LongRequests
from headrace.net.connection import ServerConnection


class Connection:
    def __init__(self) -> None:
        self.released = 0

    def keep_frame(self, frame: memoryview) -> memoryview:
        return frame

    def release_frame(self) -> None:
        self.released += 1


class Setup:
    def __init__(self) -> None:
        self.requests = LongRequests()
        self.connection = Connection()
        self.started: list[int] = []
        self.finish: list[Callable[[], None]] = []

    def add(self, number: int) -> None:
        def handle(frame: memoryview, finished: Callable[[], None]) -> None:
            self.started.append(frame[0])
            self.finish.append(finished)

        connection = cast(ServerConnection, self.connection)
        self.requests.add(connection, memoryview(bytes([number])), handle)


def test_few_are_in_progress() -> None:
    setup = Setup()
    for number in range(MAX_IN_PROGRESS + 2):
        setup.add(number)
    assert setup.started == list(range(MAX_IN_PROGRESS))
    assert (setup.requests.in_progress, setup.requests.waiting) == (MAX_IN_PROGRESS, 2)
    setup.finish[1]()
    assert setup.started == list(range(MAX_IN_PROGRESS + 1))
    assert setup.connection.released == 1
    for finish in [setup.finish[0], *setup.finish[2:]]:
        finish()
    setup.finish[-1]()
    assert (setup.requests.in_progress, setup.requests.waiting) == (0, 0)


def test_no_full_collection_while_one_is_in_progress() -> None:
    before = gc.get_threshold()
    setup = Setup()
    setup.add(1)
    setup.add(2)
    assert gc.get_threshold()[:2] == before[:2]
    assert gc.get_threshold()[2] > 10**9
    setup.finish[0]()
    assert gc.get_threshold() != before
    setup.finish[1]()
    assert gc.get_threshold() == before


def test_closing_drops_those_that_wait() -> None:
    before = gc.get_threshold()
    setup = Setup()
    for number in range(MAX_IN_PROGRESS + 1):
        setup.add(number)
    setup.requests.close()
    assert gc.get_threshold() == before
    for finish in list(setup.finish):
        finish()
    assert len(setup.started) == MAX_IN_PROGRESS


@pytest.mark.parametrize("fails", [False, True])
def test_work_runs_in_a_thread(fails: bool) -> None:
    async def scenario() -> tuple[Any, ...]:
        requests = LongRequests()
        done: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()

        def work() -> threading.Thread:
            if fails:
                raise ValueError("bad")
            return threading.current_thread()

        requests.run_in_thread(
            work, lambda result: done.set_result((result.value, result.error, threading.current_thread()))
        )
        try:
            return await asyncio.wait_for(done, 10)
        finally:
            requests.close()

    worker, error, loop_thread = asyncio.run(scenario())
    assert loop_thread is threading.current_thread()
    assert worker is not loop_thread
    assert isinstance(error, ValueError) == fails
