"""Large batches are decompressed one at a time."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.support.cluster.fake_cluster import async_test

from headrace.broker.batch_inflater import BatchInflater
from headrace.testing.clock import ManualClock


@async_test
async def test_one_batch_at_a_time() -> None:
    running: list[int] = []

    async def run(work: Callable[[], Any], /) -> Any:
        running.append(1)
        await asyncio.sleep(0)
        most.append(len(running))
        running.pop()
        return work()

    most: list[int] = []
    inflater = BatchInflater(ManualClock(), run)
    assert await asyncio.gather(*(inflater.run(lambda number=number: number) for number in range(5))) == list(range(5))
    assert max(most) == 1
