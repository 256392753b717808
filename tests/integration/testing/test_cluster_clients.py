"""A user's clients on an embedded cluster: producers and groups survive kills, pauses, partitions and restarts."""

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from tests.support.broker.process import eventually
from tests.support.records.other_clients import kafka

import headrace
from headrace.testing import EmbeddedCluster

RECORDS = 300
PATIENCE_SECONDS = 120

Send = Callable[[bytes], Any]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Silences the clients' logs about the missing broker, and their unclosed sockets."""
    for name in ("kafka", "aiokafka"):
        caplog.set_level(logging.CRITICAL, name)
    yield
    gc.collect()  # here, where its warnings are ignored


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    running.restore()
    yield running
    running.restore()


# ---- writers: each sends numbered records one after the other, until all are acknowledged


def write_with_headrace(servers: str, topic: str, meanwhile: Callable[[int], None]) -> list[int]:
    with headrace.Producer(bootstrap_servers=servers, acks="all", enable_idempotence=True) as producer:
        futures = []
        for number in range(RECORDS):
            futures.append(producer.send(topic, b"%d" % number))
            meanwhile(number)
        return [future.get(timeout_ms=PATIENCE_SECONDS * 1000).offset for future in futures]


def write_with_kafka_python(servers: str, topic: str, meanwhile: Callable[[int], None]) -> list[int]:
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers, acks="all", enable_idempotence=True, delivery_timeout_ms=PATIENCE_SECONDS * 1000
    )
    try:
        futures = []
        for number in range(RECORDS):
            futures.append(producer.send(topic, b"%d" % number))
            meanwhile(number)
        return [future.get(PATIENCE_SECONDS).offset for future in futures]
    finally:
        producer.close()


def write_with_confluent(servers: str, topic: str, meanwhile: Callable[[int], None]) -> list[int]:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
    )
    offsets: list[int] = []

    def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        assert error is None, error
        offsets.append(message.offset() or 0)

    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, on_delivery=delivered)
        producer.poll(0)
        meanwhile(number)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return offsets


def write_with_aiokafka(servers: str, topic: str, meanwhile: Callable[[int], None]) -> list[int]:
    async def write() -> list[int]:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, acks="all", enable_idempotence=True, request_timeout_ms=PATIENCE_SECONDS * 1000
        ) as producer:
            futures = []
            for number in range(RECORDS):
                futures.append(await producer.send(topic, b"%d" % number))
                await asyncio.to_thread(meanwhile, number)
            return [(await future).offset for future in futures]

    return asyncio.run(write())


WRITERS = {
    "headrace": write_with_headrace,
    "kafka-python": write_with_kafka_python,
    "confluent-kafka": write_with_confluent,
    "aiokafka": write_with_aiokafka,
}


def read_all(cluster: EmbeddedCluster, topic: str, count: int) -> list[tuple[int, bytes]]:
    """Returns offset and value of all records of partition 0."""
    with headrace.Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([headrace.TopicPartition(topic, 0)])
        found: list[tuple[int, bytes]] = []
        while len(found) < count:
            for records in consumer.poll(timeout_ms=1000).values():
                found += [(record.offset, record.value) for record in records]
        return found


def check(cluster: EmbeddedCluster, topic: str, offsets: list[int]) -> None:
    """Each record was acknowledged and is in the log once, in order, at its offset."""
    assert offsets == list(range(RECORDS))
    assert read_all(cluster, topic, RECORDS) == [(number, b"%d" % number) for number in range(RECORDS)]


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("client", WRITERS)
def test_producer_survives_the_kill_of_the_leader(cluster: EmbeddedCluster, client: str) -> None:
    topic = f"kill-{client}"
    cluster.create_topic(topic)
    leader = cluster.leader(topic)

    def kill(number: int) -> None:
        if number == RECORDS // 2:
            cluster.kill(leader)

    offsets = WRITERS[client](cluster.bootstrap_servers, topic, kill)
    assert cluster.leader(topic) != leader
    check(cluster, topic, offsets)
    cluster.restart(leader)
    cluster.wait_until_in_sync(topic)
    assert cluster.in_sync_replicas(topic) == {1, 2, 3}


@pytest.mark.parametrize("fault", ["pause", "partition from the store", "partition from the followers"])
def test_producer_survives_an_unreachable_leader(cluster: EmbeddedCluster, fault: str) -> None:
    topic = fault.replace(" ", "-")
    leader = cluster.controller()  # it can change the ISR without the others
    cluster.create_topic(topic, assignment={0: [leader, *({1, 2, 3} - {leader})]})

    def inject(number: int) -> None:
        if number != RECORDS // 2:
            return
        if fault == "pause":
            cluster.pause(leader)
            cluster.leader(topic, other_than=leader)
            cluster.resume(leader)
        elif fault == "partition from the store":
            cluster.partition(leader, "store")
            cluster.leader(topic, other_than=leader)
            cluster.heal()
        else:
            for follower in {1, 2, 3} - {leader}:
                cluster.partition(leader, follower)
            cluster.wait_until(lambda: cluster.in_sync_replicas(topic) == {leader})
            cluster.heal()

    offsets = write_with_confluent(cluster.bootstrap_servers, topic, inject)
    check(cluster, topic, offsets)


def test_rolling_restart_is_not_noticed(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("rolling")

    def restart(number: int) -> None:
        if number % 100 == 50:
            cluster.restart(number // 100 + 1)
            cluster.wait_until_in_sync()

    offsets = write_with_confluent(cluster.bootstrap_servers, "rolling", restart)
    check(cluster, "rolling", offsets)


def test_group_continues_after_the_kill_of_its_coordinator(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("read")
    write_with_confluent(cluster.bootstrap_servers, "read", lambda _: None)
    found: list[bytes] = []
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe(["read"])

    def read_until(count: int) -> None:
        while len(found) < count:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append(message.value() or b"")

    def commit() -> bool:
        try:
            consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException:
            return False
        return True

    read_until(100)
    eventually(commit, "the offsets are committed", PATIENCE_SECONDS)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    (described,) = admin.describe_consumer_groups(["readers"], request_timeout=PATIENCE_SECONDS).values()
    cluster.kill(described.result(PATIENCE_SECONDS).coordinator.id)
    read_until(200)
    eventually(commit, "the offsets are committed to the new coordinator", PATIENCE_SECONDS)
    committed = consumer.committed([confluent_kafka.TopicPartition("read", 0)], PATIENCE_SECONDS)
    assert committed[0].offset == len(found)
    read_until(RECORDS)
    consumer.close()
    assert found == [b"%d" % number for number in range(RECORDS)]
