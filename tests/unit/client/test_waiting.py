import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any

import pytest

from headrace.client.background import LoopThread
from headrace.client.errors import IllegalStateError
from headrace.client.waiting import InterruptibleEvent, LoopFuture

PATIENCE = 30.0


class Interrupted(BaseException):
    """Raised like KeyboardInterrupt, at a chosen step of the code."""


def interrupt_after(steps: int, function: Callable[[], object]) -> bool:
    """Calls a function and raises `Interrupted` after this many steps of it and the functions that it calls. Returns
    False if the function ended before."""
    left = steps

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_name == "_remove":  # a weak reference's callback, where Python only prints errors
            return None
        frame.f_trace_opcodes = True
        if event in ("opcode", "line", "return"):  # Python 3.12 reports no instructions here, but lines and returns
            left -= 1
            if left < 0:
                raise Interrupted
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except Interrupted:
        return True
    finally:
        sys.settrace(previous)
    return False


def in_thread(function: Callable[[], object]) -> None:
    """Calls a function in another thread. Fails if it blocks."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "blocked"


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread("test-loop")
    yield made
    made.stop()


class TestEvent:
    def test_set_and_clear(self) -> None:
        event = InterruptibleEvent()
        assert not event.wait(0)
        event.set()
        event.set()
        assert event.is_set()
        assert event.wait()
        assert event.wait(0)
        event.clear()
        event.clear()
        assert not event.is_set()
        assert not event.wait(0)
        assert not event.wait(-1)

    def test_set_wakes_all_waiting_threads(self) -> None:
        event = InterruptibleEvent()
        results: list[bool] = []
        waiters = [threading.Thread(target=lambda: results.append(event.wait(PATIENCE))) for _ in range(5)]
        for waiter in waiters:
            waiter.start()
        event.set()
        for waiter in waiters:
            waiter.join(PATIENCE)
        assert results == [True] * 5

    def test_wait_without_end(self) -> None:
        event = InterruptibleEvent()
        timer = threading.Timer(0.01, event.set)
        timer.start()
        assert event.wait(float("inf"))
        timer.join()

    def test_every_step_may_be_interrupted(self) -> None:
        """`threading.Event` fails this test."""

        def use(event: InterruptibleEvent) -> None:
            event.clear()
            event.wait(0)
            event.set()
            event.wait()

        steps = 0
        interrupted = True
        while interrupted:
            event = InterruptibleEvent()
            interrupted = interrupt_after(steps, lambda event=event: use(event))  # type: ignore[misc]
            in_thread(event.clear)
            in_thread(event.set)
            assert event.wait(0)
            steps += 1
        assert steps > 10


class TestFuture:
    def test_result(self, thread: LoopThread) -> None:
        async def answer() -> int:
            return 42

        future = thread.submit(answer())
        assert future.wait(PATIENCE)
        assert (future.result(), future.done(), future.cancelled(), future.exception()) == (42, True, False, None)

    def test_error(self, thread: LoopThread) -> None:
        async def fail() -> None:
            raise KeyError("x")

        future = thread.submit(fail())
        assert future.wait(PATIENCE)
        assert isinstance(future.exception(), KeyError)
        with pytest.raises(KeyError):
            future.result()

    def test_cancel(self, thread: LoopThread) -> None:
        future = thread.submit(asyncio.sleep(PATIENCE))
        future.cancel()
        with pytest.raises(IllegalStateError, match="closed during the call"):
            future.result()
        assert future.cancelled()
        assert future.exception() is None

    def test_callbacks_run_once_each(self, thread: LoopThread) -> None:
        async def wait(begin: asyncio.Event) -> None:
            await begin.wait()

        begin = asyncio.Event()
        future = thread.submit(wait(begin))
        called: list[tuple[str, str]] = []

        def note(name: str) -> Callable[[object], None]:
            return lambda _: called.append((name, threading.current_thread().name))

        future.add_done_callback(note("before"))
        thread.call(begin.set)
        assert future.wait(PATIENCE)
        thread.run(asyncio.sleep(0))  # callbacks run after the waiting thread was woken
        future.add_done_callback(note("after"))
        assert called == [("before", "test-loop"), ("after", threading.current_thread().name)]

    def test_a_closed_loop_is_an_error(self) -> None:
        loop = asyncio.new_event_loop()
        loop.close()
        coroutine = asyncio.sleep(0)
        with pytest.raises(RuntimeError):
            LoopFuture(loop, coroutine)
        coroutine.close()

    def test_every_step_of_a_call_may_be_interrupted(self, thread: LoopThread) -> None:
        """With `concurrent.futures.Future`, the loop's thread would wait forever for the future's lock."""

        async def answer() -> int:
            return 42

        def use(coroutine: Coroutine[Any, Any, int]) -> None:
            future = LoopFuture(thread.loop, coroutine)
            future.add_done_callback(lambda _: None)
            future.done()
            future.result()

        steps = 0
        interrupted = True
        while interrupted:
            coroutine = answer()
            interrupted = interrupt_after(steps, lambda coroutine=coroutine: use(coroutine))  # type: ignore[misc]
            in_thread(lambda: thread.run(asyncio.sleep(0)))
            coroutine.close()  # if it was interrupted before it was scheduled
            steps += 1
        assert steps > 10
