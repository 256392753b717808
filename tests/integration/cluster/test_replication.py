"""Replication between real brokers on one loop: acknowledged records survive, and all replicas become equal."""

from pathlib import Path

import pytest
from tests.support.cluster.brokers import ClusterOfBrokers
from tests.support.cluster.waiting import cluster_test, until
from tests.support.storage.logs import make_batch

from headrace import aio
from headrace.broker.partition import Partition
from headrace.broker.server import Broker
from headrace.cluster.topics import TopicSpec
from headrace.common.types import TopicPartition
from headrace.storage.log import Log

TP = TopicPartition("orders", 0)


async def create(cluster: ClusterOfBrokers, *replicas: int, **configs: str) -> None:
    """Creates a topic with one partition, and waits until all replicas are in sync."""
    await until(lambda: all(len(broker.image.brokers) == len(cluster.brokers) for broker in cluster.brokers.values()))
    overrides = {name.replace("_", "."): value for name, value in configs.items()}
    spec = TopicSpec(TP.topic, assignment={0: list(replicas)}, configs=overrides)
    (made,) = await next(iter(cluster.brokers.values())).topic_admin.create_topics([spec])
    if isinstance(made, Exception):
        raise made
    await until(lambda: all(partition_of(broker) is not None for broker in cluster.brokers.values()))
    await until(lambda: leader_of(cluster) is not None)


def partition_of(broker: Broker) -> Partition | None:
    return broker.replicas.get(*TP)


def leader_of(cluster: ClusterOfBrokers) -> Broker | None:
    """Returns the broker that leads in the highest epoch."""
    leading = [
        (partition.leader_epoch, broker.node_id)
        for broker in cluster.brokers.values()
        if (partition := partition_of(broker)) is not None and partition.is_leader
    ]
    return cluster.brokers[max(leading)[1]] if leading else None


def log_of(broker: Broker) -> Log:
    partition = partition_of(broker)
    assert partition is not None
    assert partition.log is not None
    return partition.log


def stored(log: Log) -> bytes:
    return b"".join(segment.path().read_bytes() for segment in log.segments)


async def until_in_sync(cluster: ClusterOfBrokers) -> None:
    """Waits until all running brokers are in sync, and have the same bytes and high watermark."""

    def is_in_sync() -> bool:
        leader = leader_of(cluster)
        partition = partition_of(leader) if leader is not None else None
        if partition is None or set(partition.isr) != cluster.brokers.keys() or partition.log is None:
            return False
        logs = [found.log for broker in cluster.brokers.values() if (found := partition_of(broker)) is not None]
        end = partition.log.log_end_offset
        return all(log is not None and log.log_end_offset == log.high_watermark == end for log in logs)

    await until(is_in_sync)
    assert len({stored(log_of(broker)) for broker in cluster.brokers.values()}) == 1


async def produce(cluster: ClusterOfBrokers, first: int, count: int) -> None:
    """Writes numbers with acks=all."""
    async with aio.Producer(bootstrap_servers=cluster.bootstrap, acks="all", linger_ms=0) as producer:
        for number in range(first, first + count):
            await producer.send_and_wait(TP.topic, b"%d" % number)


async def consume(cluster: ClusterOfBrokers, count: int) -> list[int]:
    values: list[int] = []
    async with aio.Consumer(
        TP.topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", group_id=None
    ) as consumer:
        async for record in consumer:
            assert record.value is not None
            values.append(int(record.value))
            if len(values) == count:
                return values
    raise AssertionError("unreachable")


@cluster_test
async def test_replicas_become_equal(tmp_path: Path) -> None:
    async with ClusterOfBrokers(tmp_path, 3) as cluster:
        await create(cluster, 1, 0, 2, min_insync_replicas="3")
        await produce(cluster, 0, 20)
        await until_in_sync(cluster)
        assert await consume(cluster, 20) == list(range(20))


@cluster_test
async def test_acknowledged_records_survive_the_leader(tmp_path: Path) -> None:
    async with ClusterOfBrokers(tmp_path, 3) as cluster:
        await create(cluster, 1, 0, 2, min_insync_replicas="2")
        await produce(cluster, 0, 10)
        leader = leader_of(cluster)
        assert leader is not None
        assert leader.node_id == 1
        await cluster.kill(1)
        await until(lambda: leader_of(cluster) is not None)
        await produce(cluster, 10, 10)
        assert await consume(cluster, 20) == list(range(20))
        await until_in_sync(cluster)
        await cluster.start(1)
        await until_in_sync(cluster)
        await produce(cluster, 20, 5)
        assert await consume(cluster, 25) == list(range(25))


@cluster_test
async def test_restarted_follower_catches_up(tmp_path: Path) -> None:
    async with ClusterOfBrokers(tmp_path, 3) as cluster:
        await create(cluster, 1, 0, 2, min_insync_replicas="2")
        await cluster.stop(2)
        await produce(cluster, 0, 10)
        await cluster.start(2)
        await until_in_sync(cluster)


@pytest.mark.parametrize("protocol", ["3.9", "2.6"])
@cluster_test
async def test_diverging_leader_truncates(tmp_path: Path, protocol: str) -> None:
    """The old leader has records that no follower has. The protocol before 2.7 asks for leader epochs separately, and
    changes the ISR in the store."""
    async with ClusterOfBrokers(tmp_path, 3, inter_broker_protocol_version=protocol) as cluster:
        await create(cluster, 1, 0, 2, min_insync_replicas="2")
        await produce(cluster, 0, 3)
        for follower in 0, 2:
            await cluster.brokers[follower].replication.fetchers.close()
        old = partition_of(cluster.brokers[1])
        assert old is not None
        for _ in range(4):
            old.append(make_batch(), 1)
        assert log_of(cluster.brokers[1]).log_end_offset == 7
        await cluster.kill(1)
        await until(lambda: leader_of(cluster) is not None)
        for follower in 0, 2:
            await cluster.stop(follower)
            await cluster.start(follower)
            await until(lambda: leader_of(cluster) is not None)
        await until_in_sync(cluster)
        await produce(cluster, 3, 2)
        await cluster.start(1)
        await until_in_sync(cluster)
        assert await consume(cluster, 5) == list(range(5))
