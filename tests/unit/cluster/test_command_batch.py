"""The batch of the controller's commands."""

import asyncio

from tests.support.cluster.state_machines import StateMachines


def test_closed_batch_sends_nothing() -> None:
    async def run() -> None:
        machines = await StateMachines.make()
        machines.batch.add_full_metadata([1, 2])
        machines.batch.close()
        await machines.batch.send()
        assert machines.sent == []

    asyncio.run(run())
