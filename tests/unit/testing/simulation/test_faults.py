"""Every fault starts and ends, and the broker is back at the end."""

import asyncio

import pytest

from headrace.common.ids import make_random
from headrace.testing.simulation.cluster import SimulatedCluster, run_simulation
from headrace.testing.simulation.faults import Faults

KINDS = [
    "break_connections",
    "clock_jump",
    "failing_sync",
    "full_disk",
    "isolate",
    "kill",
    "kill_controller",
    "one_way",
    "partition",
    "pause",
    "power_loss",
    "rolling_restart",
    "slow_disk",
    "slow_link",
    "store_partition",
    "store_write",
]


@pytest.mark.parametrize("kind", KINDS)
def test_fault(kind: str) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.start()
        faults = Faults(cluster, make_random(1), power_loss=True)
        assert sorted(faults.kinds) == KINDS
        supervisor = asyncio.create_task(faults.supervise(cluster.brokers[0]))
        await faults.run(3, [kind])
        await faults.heal()
        assert faults.injected[kind] > 0
        assert any("FAULT" in line for line in cluster.trace)
        while not cluster.brokers[0].is_running:
            await asyncio.sleep(0.5)
        assert not supervisor.done()

    run_simulation(1, scenario, brokers=1)
