import asyncio

import pytest
from tests.support.cluster.fake_cluster import async_test

from headrace.cluster.bulk_reads import READERS, give_way, read_many
from headrace.cluster.store import ConnectionLoss


@async_test
async def test_reads_at_the_same_time_and_keeps_the_order() -> None:
    in_flight = most_in_flight = 0

    async def read(key: int) -> int:
        nonlocal in_flight, most_in_flight
        in_flight += 1
        most_in_flight = max(most_in_flight, in_flight)
        for _ in range(key % 7 + 1):
            await asyncio.sleep(0)
        in_flight -= 1
        return key * 2

    results = await read_many(range(1000), read)
    assert list(results.items()) == [(key, key * 2) for key in range(1000)]
    assert most_in_flight == READERS
    assert await read_many([], read) == {}
    assert await read_many([3], read) == {3: 6}


@async_test
async def test_failed_read_cancels_the_others() -> None:
    cancelled = 0

    async def read(key: int) -> None:
        nonlocal cancelled
        if key == 0:
            await asyncio.sleep(0)
            return
        if key == 5:
            raise ConnectionLoss("no response")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
            raise

    with pytest.raises(ConnectionLoss, match="no response"):
        await read_many(range(10), read)
    await asyncio.sleep(0)
    assert cancelled == 8


@async_test
async def test_gives_way_to_other_tasks() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def read(key: int) -> int:
        return key

    task = asyncio.create_task(other())
    await read_many(range(2000), read)
    assert turns >= 5
    before = turns
    for count in range(1, 2001):
        await give_way(count)
    assert turns >= before + 5
    task.cancel()
