"""Coroutines of the blocking producer, which run without an event loop."""

import asyncio

import pytest

from headrace.client.errors import KafkaTimeoutError
from headrace.client.producer.base import run_blocking


def test_run_blocking_returns_result() -> None:
    async def inner() -> int:
        return 7

    async def outer() -> int:
        return await inner() + 1

    assert run_blocking(outer()) == 8


def test_run_blocking_raises_error_of_coroutine() -> None:
    async def fail() -> None:
        raise KafkaTimeoutError("no memory")

    with pytest.raises(KafkaTimeoutError, match="no memory"):
        run_blocking(fail())


def test_run_blocking_rejects_coroutine_that_suspends() -> None:
    with pytest.raises(AssertionError, match="suspended"):
        run_blocking(asyncio.sleep(0))
