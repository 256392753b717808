"""Tests on one event loop that wait for conditions, with a deadline that a busy machine needs."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

DEADLINE_SECONDS = 120.0


def cluster_test(function: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs a coroutine function as a test."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await function(*arguments, **options)

        asyncio.run(limited())

    return run


async def until(condition: Callable[[], object]) -> None:
    """Waits for a condition. The test's deadline limits the wait."""
    while not condition():
        await asyncio.sleep(0.01)
