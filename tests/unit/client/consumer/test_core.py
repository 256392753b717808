"""The consumer's part in a rebalance, in virtual time."""

import asyncio

from tests.support.client.fake_logs import FakeLogs
from tests.support.net.virtual_loop import run

from headrace.common.types import TopicPartition


def test_rebalance_waits_until_the_user_polls():
    """Only then have the records of the last poll been processed, so that their offsets may be committed."""

    async def test():
        logs = FakeLogs()
        logs.create("t", 1)
        async with logs.consumer() as consumer:
            consumer.assign([TopicPartition("t", 0)])
            await consumer.poll(100)
            waiting = asyncio.create_task(consumer._core.wait_for_poll())
            await asyncio.sleep(60)
            assert not waiting.done()
            await consumer.poll(100)
            await waiting

    run(test())
