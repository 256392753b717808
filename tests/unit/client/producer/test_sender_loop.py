"""The timer of the sender, in virtual time."""

import asyncio

from tests.support.client.fake_logs import LoopClock
from tests.support.net.virtual_loop import run

from headrace.client.producer.sender_loop import SenderLoop


def test_polls_at_the_requested_times_only() -> None:
    async def test() -> None:
        clock = LoopClock()
        sender_loop = SenderLoop(asyncio.get_running_loop(), clock)
        polls: list[float] = []
        start = clock.monotonic()

        def poll() -> float:
            assert len(polls) < 100, "it polls all the time"
            polls.append(clock.monotonic() - start)
            return clock.monotonic() + 5

        sender_loop.start(poll)
        sender_loop.wake()
        await asyncio.sleep(12)
        assert [round(time) for time in polls] == [0, 5, 10]
        sender_loop.stop_polling()
        await asyncio.sleep(10)
        assert len(polls) == 3

    run(test())
