"""A simulated cluster with one broker and clients."""

import asyncio
import gc
import logging

import pytest

from headrace.admin import NewTopic
from headrace.common.ids import make_random
from headrace.testing.simulation.cluster import SimulatedCluster, run_simulation
from headrace.testing.simulation.store import SESSION_SECONDS


async def produce(cluster: SimulatedCluster, name: str, count: int) -> None:
    node = cluster.client_node(name)

    async def work() -> None:
        async with cluster.producer(node) as producer:
            for number in range(count):
                await producer.send_and_wait("t", f"{name}-{number}".encode())

    await node.run(work())


async def create_topic(cluster: SimulatedCluster) -> None:
    node = cluster.client_node("admin")

    async def work() -> None:
        async with cluster.admin(node) as admin:
            await admin.create_topics([NewTopic("t", 1)])

    await node.run(work())


async def consume(cluster: SimulatedCluster, count: int) -> list[bytes]:
    node = cluster.client_node("consumer")

    async def work() -> list[bytes]:
        async with cluster.consumer(node, "t", auto_offset_reset="earliest", group_id="g") as consumer:
            return [(await anext(consumer)).value for _ in range(count)]

    return await node.run(work())


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_broker_is_killed_and_comes_back_with_its_records(power_loss: bool) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.start()
        await create_topic(cluster)
        await produce(cluster, "first", 5)
        cluster.brokers[0].kill(power_loss=make_random(1) if power_loss else None)
        await asyncio.sleep(SESSION_SECONDS + 1)
        await cluster.brokers[0].start()
        await produce(cluster, "second", 5)
        values = await consume(cluster, 10)
        assert values == [f"{name}-{number}".encode() for name in ("first", "second") for number in range(5)]

    run_simulation(5, scenario, brokers=1, properties={"log.flush.interval.messages": 1})


def test_the_same_seed_gives_the_same_run() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.start()
        await create_topic(cluster)
        await asyncio.gather(*(produce(cluster, f"client-{number}", 10) for number in range(3)))
        await cluster.brokers[0].stop()
        await cluster.brokers[0].start()
        await consume(cluster, 30)

    first, again, other = (run_simulation(seed, scenario, brokers=1) for seed in (5, 5, 6))
    assert first.trace == again.trace
    assert (first.loop.callbacks, first.loop.time()) == (again.loop.callbacks, again.loop.time())
    assert first.loop.time() != other.loop.time()


def test_a_failed_scenario_has_its_trace() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.start()
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken") as caught:
        run_simulation(5, scenario, brokers=1)
    assert any("Broker 0 is the active controller" in line for line in caught.value.trace)  # type: ignore[attr-defined]


def test_garbage_of_an_earlier_run_does_not_reach_a_run() -> None:
    """A killed process leaves tasks. Their `finally` blocks run when they are collected."""
    logger = logging.getLogger("headrace.test")

    async def leave_garbage(cluster: SimulatedCluster) -> None:
        async def work() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                logger.error("a task of a killed process ends")

        node = cluster.client_node("client")
        node.run(work())
        await asyncio.sleep(1)
        node.kill()

    async def collect(cluster: SimulatedCluster) -> None:
        assert not gc.isenabled()
        gc.collect()
        logger.error("another error")
        assert [line.partition(": ")[2] for line in cluster.trace] == ["ERROR test: another error"]

    run_simulation(1, leave_garbage, brokers=1)
    run_simulation(1, collect, brokers=1)
    assert gc.isenabled()
