"""The future of commit_async: kafka-python's methods on a future of a thread or of a loop."""

import asyncio
import concurrent.futures
from typing import Any

import pytest

from headrace.client.consumer.commit_future import CommitFuture
from headrace.client.errors import CommitFailedError, IllegalStateError, KafkaTimeoutError
from headrace.client.types import OffsetAndMetadata
from headrace.common.errors import CoordinatorLoadInProgressError
from headrace.common.types import TopicPartition

OFFSETS = {TopicPartition("t", 0): OffsetAndMetadata(7)}


def make() -> tuple[Any, CommitFuture, list[Any]]:
    inner: concurrent.futures.Future[None] = concurrent.futures.Future()
    future, told = CommitFuture(inner, OFFSETS), []
    future.add_callback(told.append).add_errback(lambda text, error: told.append((text, error)), "failed")
    return inner, future, told


def test_success() -> None:
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
def test_failure(error: Exception, retriable: bool) -> None:
    inner, future, told = make()
    inner.set_exception(error)
    assert future.failed()
    assert future.exception is error
    assert future.value is None
    assert future.retriable() is retriable
    assert told == [("failed", error)]
    with pytest.raises(type(error)):
        future.get()


def test_cancelled_by_close() -> None:
    inner, future, _ = make()
    inner.cancel()
    assert isinstance(future.exception, IllegalStateError)


def test_error_of_a_callback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    inner, future, told = make()
    future.add_callback(lambda _: 1 / 0).add_callback(told.append)
    inner.set_result(None)
    assert told == [OFFSETS, OFFSETS]
    assert "A callback of commit_async failed" in caplog.text


def test_futures_of_both_kinds_can_be_awaited() -> None:
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
