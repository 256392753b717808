import asyncio
import threading

import pytest

from headrace.client.background import LoopThread
from headrace.client.errors import IllegalStateError


@pytest.fixture
def thread():  # type: ignore[no-untyped-def]
    made = LoopThread("test-loop")
    yield made
    made.stop()


async def name_of_thread() -> str:
    return threading.current_thread().name


def test_run_executes_coroutine_on_the_thread(thread: LoopThread) -> None:
    assert thread.run(name_of_thread()) == "test-loop"
    assert thread.is_alive
    assert not thread.is_current


def test_run_raises_the_coroutines_error(thread: LoopThread) -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        thread.run(fail())


def test_call_schedules_a_function(thread: LoopThread) -> None:
    seen = threading.Event()
    thread.call(seen.set)
    assert seen.wait(30)


def test_calls_after_stop_raise(thread: LoopThread) -> None:
    thread.stop()
    thread.stop()
    assert not thread.is_alive
    with pytest.raises(IllegalStateError, match="This client is closed"):
        thread.run(name_of_thread())
    thread.call(lambda: None)


def test_stop_cancels_running_tasks(thread: LoopThread) -> None:
    begun = threading.Event()
    outcome: list[BaseException] = []

    async def forever() -> None:
        begun.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            thread.run(forever())
        except BaseException as error:  # noqa: BLE001
            outcome.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert begun.wait(30)
    thread.stop()
    waiter.join(30)
    assert isinstance(outcome[0], IllegalStateError)


def test_run_on_the_loops_own_thread_raises(thread: LoopThread) -> None:
    async def misuse() -> None:
        thread.run(name_of_thread())

    with pytest.raises(IllegalStateError, match="would wait for itself"):
        thread.run(misuse())
