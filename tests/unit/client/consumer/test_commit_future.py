"""The future of commit_async: kafka-python's methods on a future of a thread or of a loop."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.client.background import LoopThread
from headrace.client.consumer.commit_future import CommitFuture
from headrace.client.errors import CommitFailedError, IllegalStateError, KafkaTimeoutError
from headrace.client.types import OffsetAndMetadata
from headrace.common.errors import CoordinatorLoadInProgressError
from headrace.common.types import TopicPartition

OFFSETS = {TopicPartition("t", 0): OffsetAndMetadata(7)}


class Commit:
    """A commit that runs on the loop of a consumer until the test ends it."""

    def __init__(self, thread: LoopThread):
        self._thread = thread
        self._response = asyncio.Future(loop=thread.loop)  # type: ignore[var-annotated]
        self.future = thread.submit(self._wait())

    async def _wait(self) -> None:
        await self._response

    def set_result(self, result: None) -> None:
        self._end(lambda: self._response.set_result(result))

    def set_exception(self, error: Exception) -> None:
        self._end(lambda: self._response.set_exception(error))

    def cancel(self) -> None:
        self._end(self._response.cancel)

    def _end(self, end: Callable[[], object]) -> None:
        self._thread.call(end)
        assert self.future.wait(30)
        self._thread.run(asyncio.sleep(0))  # callbacks run after the waiting thread was woken


Make = Callable[[], tuple[Commit, CommitFuture, list[Any]]]


@pytest.fixture
def make() -> Iterator[Make]:
    thread = LoopThread("test-loop")

    def start() -> tuple[Commit, CommitFuture, list[Any]]:
        commit = Commit(thread)
        future, told = CommitFuture(commit.future, OFFSETS), []  # type: ignore[var-annotated]
        future.add_callback(told.append).add_errback(lambda text, error: told.append((text, error)), "failed")
        return commit, future, told

    yield start
    thread.stop()


def test_success(make: Make) -> None:
    inner, future, told = make()
    assert (future.is_done, future.done(), future.value, future.exception) == (False, False, None, None)
    assert not future.succeeded()
    assert not future.failed()
    with pytest.raises(KafkaTimeoutError, match="not committed within 1 ms"):
        future.get(timeout_ms=1)
    inner.set_result(None)
    assert future.is_done
    assert future.succeeded()
    assert future.value == future.get(timeout_ms=0) == future.result(0) == OFFSETS
    assert told == [OFFSETS]
    future.add_both(told.append)
    assert told == [OFFSETS, OFFSETS], "a callback that comes late runs at once"


@pytest.mark.parametrize(
    ("error", "retriable"), [(CommitFailedError("removed"), False), (CoordinatorLoadInProgressError("again"), True)]
)
def test_failure(make: Make, error: Exception, retriable: bool) -> None:
    inner, future, told = make()
    inner.set_exception(error)
    assert future.failed()
    assert future.exception is error
    assert future.value is None
    assert future.retriable() is retriable
    assert told == [("failed", error)]
    with pytest.raises(type(error)):
        future.get()


def test_cancelled_by_close(make: Make) -> None:
    inner, future, _ = make()
    inner.cancel()
    assert isinstance(future.exception, IllegalStateError)


def test_error_of_a_callback_is_logged(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    inner, future, told = make()
    future.add_callback(lambda _: 1 / 0).add_callback(told.append)
    inner.set_result(None)
    assert told == [OFFSETS, OFFSETS]
    assert "A callback of commit_async failed" in caplog.text


def test_futures_of_both_kinds_can_be_awaited(make: Make) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        inner: asyncio.Future[None] = loop.create_future()
        future = CommitFuture(inner, OFFSETS)
        with pytest.raises(IllegalStateError, match="await"):
            future.get()
        loop.call_soon(inner.set_result, None)
        assert await future == OFFSETS
        thread_future, future, _ = make()
        loop.call_soon(thread_future.set_exception, CommitFailedError("removed"))
        with pytest.raises(CommitFailedError):
            await future

    asyncio.run(main())
