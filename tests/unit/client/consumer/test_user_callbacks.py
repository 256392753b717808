"""User callbacks: waiting for them, and withdrawing them."""

import asyncio

import pytest

from headrace.client.consumer.user_callbacks import UserCallbacks


def test_waits_for_callback():
    async def main():
        notes = []
        turns = UserCallbacks(asyncio.get_running_loop(), lambda: notes.append("notified"))
        task = asyncio.create_task(turns.wait(lambda: notes.append("ran")))
        await asyncio.sleep(0)
        assert notes == ["notified"]
        assert not task.done()
        turn = turns.take()
        turn.function()
        turns.finish(turn)
        await task
        assert notes == ["notified", "ran"]
        assert turns.take() is None
        turns.finish(turn)

    asyncio.run(main())


def test_callback_without_waiter():
    async def main():
        turns = UserCallbacks(asyncio.get_running_loop(), lambda: None)
        turns.add(lambda: None)
        assert len(turns) == 1
        turns.finish(turns.take())

    asyncio.run(main())


def test_cancelled_wait_withdraws_callback():
    async def main():
        turns = UserCallbacks(asyncio.get_running_loop(), lambda: None)
        task = asyncio.create_task(turns.wait(None))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(turns) == 0

    asyncio.run(main())


def test_finish_after_loop_stopped():
    async def make():
        turns = UserCallbacks(asyncio.get_running_loop(), lambda: None)
        task = asyncio.create_task(turns.wait(None))
        await asyncio.sleep(0)
        turn = turns.take()
        task.cancel()
        return turns, turn

    turns, turn = asyncio.run(make())
    turns.finish(turn)
