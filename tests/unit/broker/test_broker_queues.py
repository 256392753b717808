"""Batches for other brokers: one request in flight for each, order kept, failures without effect on later items."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.support.cluster.fake_cluster import async_test, until

from headrace.broker.broker_queues import MAX_ITEMS, BrokerQueues


class Network:
    """Requests that the test answers."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, list[int], asyncio.Future[list[int]]]] = []
        self.queues = BrokerQueues(self._send)

    async def _send(self, broker_id: int, items: Sequence[int]) -> list[int]:
        future: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self.requests.append((broker_id, list(items), future))
        return await future

    async def request(self, number: int) -> tuple[int, list[int], "asyncio.Future[list[int]]"]:
        await until(lambda: len(self.requests) >= number)
        assert len(self.requests) == number
        return self.requests[-1]


@async_test
async def test_items_wait_for_the_request_in_flight() -> None:
    network = Network()
    network.queues.add(1, 10)
    _, items, first = await network.request(1)
    assert items == [10]
    network.queues.add(1, 11)
    network.queues.add(2, 20)
    network.queues.add(1, 12)
    broker_id, items, _ = await network.request(2)
    assert (broker_id, items) == (2, [20])
    first.set_result([])
    broker_id, items, _ = await network.request(3)
    assert (broker_id, items) == (1, [11, 12])
    await network.queues.close()


@async_test
async def test_unsent_items_come_first() -> None:
    network = Network()
    for item in (1, 2, 3):
        network.queues.add(1, item)
    _, items, future = await network.request(1)
    assert items == [1, 2, 3]
    network.queues.add(1, 4)
    future.set_result([2, 3])
    _, items, _ = await network.request(2)
    assert items == [2, 3, 4]
    await network.queues.close()


@async_test
async def test_requests_are_limited() -> None:
    network = Network()
    for item in range(MAX_ITEMS + 1):
        network.queues.add(1, item)
    _, items, future = await network.request(1)
    assert len(items) == MAX_ITEMS
    future.set_result([])
    _, items, _ = await network.request(2)
    assert items == [MAX_ITEMS]
    await network.queues.close()


@async_test
async def test_an_internal_error_does_not_stop_the_queue() -> None:
    network = Network()
    network.queues.add(1, 1)
    _, _, future = await network.request(1)
    network.queues.add(1, 2)
    future.set_exception(ZeroDivisionError())
    _, items, future = await network.request(2)
    assert items == [2]
    future.set_result([])
    await asyncio.sleep(0)
    network.queues.add(1, 3)
    await network.request(3)
    await network.queues.close()


@async_test
async def test_close_cancels_requests() -> None:
    network = Network()
    network.queues.add(1, 1)
    _, _, future = await network.request(1)
    await network.queues.close()
    with pytest.raises(asyncio.CancelledError):
        future.result()
