"""A rolling restart under load: every broker stops cleanly and comes back, and clients see no failed request."""

import asyncio
from pathlib import Path

from tests.support.cluster.brokers import ClusterOfBrokers
from tests.support.cluster.waiting import cluster_test, until

from headrace import aio
from headrace.broker.server import Broker
from headrace.cluster.topics import TopicSpec

TOPIC = "rolling"
BROKERS = 3
PARTITIONS = 3


def is_fully_in_sync(broker: Broker) -> bool:
    topic = broker.image.topic(TOPIC)
    return (
        topic is not None
        and len(topic.partitions) == PARTITIONS
        and all(len(state.isr) == BROKERS and state.leader >= 0 for state in topic.partitions.values())
    )


async def until_in_sync(cluster: ClusterOfBrokers) -> None:
    await until(
        lambda: len(cluster.brokers) == BROKERS and all(is_fully_in_sync(broker) for broker in cluster.brokers.values())
    )


@cluster_test
async def test_producers_see_no_error_during_a_rolling_restart(tmp_path: Path) -> None:
    async with ClusterOfBrokers(tmp_path, BROKERS) as cluster:
        assignment = {index: [(index + offset) % BROKERS for offset in range(BROKERS)] for index in range(PARTITIONS)}
        spec = TopicSpec(TOPIC, assignment=assignment, configs={"min.insync.replicas": "2"})
        await until(lambda: all(len(broker.image.brokers) == BROKERS for broker in cluster.brokers.values()))
        (made,) = await cluster.brokers[0].topic_admin.create_topics([spec])
        assert not isinstance(made, Exception)
        await until_in_sync(cluster)
        sent: list[bytes] = []
        stopping = asyncio.Event()

        async def produce() -> None:
            async with aio.Producer(bootstrap_servers=cluster.bootstrap, acks="all", linger_ms=0) as producer:
                while not stopping.is_set():
                    value = str(len(sent)).encode()
                    # Raises if a request fails in a way that the client may not retry.
                    await producer.send_and_wait(TOPIC, value, partition=len(sent) % PARTITIONS)
                    sent.append(value)
                    await asyncio.sleep(0.005)

        producing = asyncio.create_task(produce())
        for node_id in range(BROKERS):
            before = len(sent)
            await cluster.stop(node_id)
            await until(lambda count=before: len(sent) > count + PARTITIONS or producing.done())
            await cluster.start(node_id)
            await until_in_sync(cluster)
        stopping.set()
        await producing
        received: list[bytes] = []
        async with aio.Consumer(
            TOPIC, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", group_id=None
        ) as consumer:
            async for record in consumer:
                received.append(record.value)
                if len(received) >= len(sent):
                    break
        assert sorted(received, key=int) == sent
