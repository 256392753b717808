"""Three brokers in a simulation: topics, records, kills and restarts of brokers and of the controller."""

import asyncio

import pytest

from headrace.admin import NewTopic
from headrace.testing.simulation.cluster import SimulatedCluster, run_simulation
from headrace.testing.simulation.store import SESSION_SECONDS

PROPERTIES: dict[str, object] = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
PARTITIONS = 6
RECORDS = 30


async def create_topic(cluster: SimulatedCluster) -> None:
    node = cluster.client_node("admin")

    async def work() -> None:
        async with cluster.admin(node) as admin:
            await admin.create_topics([NewTopic("t", PARTITIONS, 1)])

    await node.run(work())


async def produce(cluster: SimulatedCluster, first: int) -> None:
    node = cluster.client_node("producer")

    async def work() -> None:
        async with cluster.producer(node) as producer:
            for number in range(first, first + RECORDS):
                await producer.send_and_wait("t", b"%d" % number, partition=number % PARTITIONS)

    await node.run(work())


async def consume(cluster: SimulatedCluster, count: int) -> list[int]:
    node = cluster.client_node("consumer")

    async def work() -> list[int]:
        async with cluster.consumer(node, "t", auto_offset_reset="earliest", group_id="g") as consumer:
            return sorted([int((await anext(consumer)).value) for _ in range(count)])

    return await node.run(work())


def controller_of(cluster: SimulatedCluster) -> int:
    (found,) = [broker.id for broker in cluster.brokers.values() if broker.broker.controller.is_active]
    return found


async def kill_and_restart(cluster: SimulatedCluster, broker_id: int, down_seconds: float) -> None:
    cluster.brokers[broker_id].kill()
    await asyncio.sleep(down_seconds)
    await cluster.brokers[broker_id].start()


async def scenario(cluster: SimulatedCluster) -> None:
    await cluster.start()
    await create_topic(cluster)
    await produce(cluster, 0)
    first = controller_of(cluster)
    await kill_and_restart(cluster, first, SESSION_SECONDS + 2)
    assert controller_of(cluster) != first
    await produce(cluster, RECORDS)
    await kill_and_restart(cluster, next(number for number in range(3) if number != controller_of(cluster)), 20)
    await cluster.brokers[controller_of(cluster)].stop()
    await asyncio.gather(*(broker.start() for broker in cluster.brokers.values() if broker.node is None))
    assert await consume(cluster, 2 * RECORDS) == list(range(2 * RECORDS))
    assert not cluster.loop.errors


@pytest.mark.parametrize("seed", range(3))
def test_kills_and_restarts(seed: int) -> None:
    run_simulation(seed, scenario, properties=PROPERTIES)


def test_the_same_seed_gives_the_same_run() -> None:
    first, again = (run_simulation(17, scenario, properties=PROPERTIES) for _ in range(2))
    assert first.trace == again.trace
    assert (first.loop.callbacks, first.loop.time()) == (again.loop.callbacks, again.loop.time())
