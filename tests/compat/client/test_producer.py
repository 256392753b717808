"""The producer with other projects' clients: they read its records, choose the same partitions, and fence by
transactional ID.

Runs against Headrace, and with HEADRACE_COMPAT_BROKER=kafka against Apache Kafka.
"""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import aiokafka.errors
import confluent_kafka as confluent
import pyarrow as pa
import pytest
from tests.support.broker.admin_clients import ConfluentAdmin
from tests.support.broker.clients import Aiokafka, Client, Confluent, JavaKafkaClients, KafkaPython
from tests.support.broker.java_clients import Java, JavaError
from tests.support.broker.process import Broker, eventually
from tests.support.broker.records import CODECS, START_MS, Record, assert_same, sample_records, with_offsets
from tests.support.broker.transactional_producers import IN_PROCESS, JavaTransactional, Transactional
from tests.support.broker.under_test import IS_KAFKA, make_broker
from tests.support.records.other_clients import kafka

from headrace.aio.producer import Producer as AsyncProducer
from headrace.client.errors import KafkaTimeoutError
from headrace.client.producer.producer import Producer
from headrace.common.errors import (
    InvalidProducerEpochError,
    KafkaError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition

PATIENCE = 60.0
PATIENCE_MS = 60_000
READERS = ("confluent-kafka", "kafka-python", "aiokafka", "kafka-clients")
NewTopic = Callable[..., str]
_numbers = itertools.count()

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with make_broker(tmp_path_factory.mktemp("producer") / "data", {"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture(scope="module")
def java(apache_kafka: None, broker: Broker) -> Iterator[Java]:
    with Java(broker.bootstrap) as running:
        yield running


@pytest.fixture(scope="module")
def new_topic(broker: Broker) -> Iterator[NewTopic]:
    admin = ConfluentAdmin(broker.bootstrap)

    def make(partitions: int = 1, **configs: object) -> str:
        name = f"producer-{next(_numbers)}"
        admin.create(name, partitions, configs={key.replace("_", "."): str(value) for key, value in configs.items()})
        eventually(lambda: name in admin.topics(), f"{name} is listed")
        return name

    yield make
    admin.close()


@pytest.fixture
def other(request: pytest.FixtureRequest, broker: Broker) -> Client:
    """Returns another project's client by name."""
    if request.param == JavaKafkaClients.name:
        return JavaKafkaClients(request.getfixturevalue("java"))
    return {each.name: each for each in (Confluent, KafkaPython, Aiokafka)}[request.param](broker.bootstrap)


def make(broker: Broker, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, **settings})


# ---- record formats and partitions


@pytest.mark.parametrize(
    ("codec", "other"), [*zip(CODECS, itertools.cycle(READERS)), ("none", "kafka-clients")], indirect=["other"]
)
def test_other_clients_read_records(broker: Broker, new_topic: NewTopic, codec: str, other: Client) -> None:
    topic = new_topic(2)
    rows = [row for partition in range(2) for row in sample_records(partition)]
    with make(broker, compression_type=codec, max_request_size=4_000_000) as producer:
        futures = [
            producer.send(topic, row.value, row.key, list(row.headers), row.partition, row.timestamp) for row in rows
        ]
        producer.flush(timeout_ms=PATIENCE_MS)
        expected = with_offsets(rows)
        places = [
            (future.get(timeout_ms=0).partition, future.get(timeout_ms=0).offset, future.get(timeout_ms=0).timestamp)
            for future in futures
        ]
    assert places == [(row.partition, row.offset, row.timestamp) for row in expected]
    assert_same(other.read(topic, range(2)), expected)


@pytest.mark.parametrize("other", ["confluent-kafka", "kafka-clients"], indirect=True)
def test_other_clients_read_arrow_tables(broker: Broker, new_topic: NewTopic, other: Client) -> None:
    topic = new_topic(3)
    rows = [row._replace(partition=number % 3) for number, row in enumerate(sample_records(0)) if row.value]
    headers_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
            "headers": pa.array(
                [[{"key": name, "value": value} for name, value in row.headers] for row in rows], headers_type
            ),
            "partition": pa.array([row.partition for row in rows]),
            "timestamp": pa.array([row.timestamp for row in rows], pa.int64()),
        }
    )
    with make(broker, max_request_size=4_000_000, compression_type="lz4") as producer:
        assert producer.send_arrow(topic, table).get(timeout_ms=PATIENCE_MS).rows == len(rows)
    assert_same(other.read(topic, range(3)), with_offsets(rows))


@pytest.mark.parametrize("other", READERS, indirect=True)
def test_other_clients_choose_same_partitions_for_keys(broker: Broker, new_topic: NewTopic, other: Client) -> None:
    topic = new_topic(7)
    keys = [b"", b"a", b"key", *(f"schlüssel-{n}".encode() * (n % 5 + 1) for n in range(200)), bytes(range(256))]
    unassigned: Any = -1 if other.name == "confluent-kafka" else None
    settings = {"partitioner": "murmur2_random"} if other.name == "confluent-kafka" else {}
    records = [Record(unassigned, key, b"theirs", (), START_MS) for key in keys]
    assert not [ack for ack in other.write(topic, records, **settings) if ack.error]
    with make(broker) as producer:
        ours = {key: producer.send(topic, b"ours", key=key) for key in keys}
        places = {key: future.get(timeout_ms=PATIENCE_MS).partition for key, future in ours.items()}
        table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array([b"rows"] * len(keys), pa.binary())})
        producer.send_arrow(topic, table).get(timeout_ms=PATIENCE_MS)
    found: dict[bytes | None, set[int]] = {}
    for record in Confluent(broker.bootstrap).read(topic, range(7)):
        found.setdefault(record.key, set()).add(record.partition)
    assert found == {key: {partition} for key, partition in places.items()}


def test_asyncio_producer(broker: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(1)

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap) as producer:
            metadata = await producer.send_and_wait(topic, b"0", key=b"k")
            assert (metadata.partition, metadata.offset) == (0, 0)
            futures = [await producer.send(topic, b"%d" % n) for n in range(1, 1000)]
            await producer.flush(timeout_ms=PATIENCE_MS)
            assert [(await future).offset for future in futures] == list(range(1, 1000))
            rows = await producer.send_arrow(topic, pa.table({"value": pa.array([b"row"] * 10, pa.binary())}))
            assert (await rows).ranges[0].base_offset == 1000

    asyncio.run(main())
    values = [record.value for record in Confluent(broker.bootstrap).read(topic, [0])]
    assert values == [b"%d" % n for n in range(1000)] + [b"row"] * 10


# ---- behavior


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_acks_configs(broker: Broker, new_topic: NewTopic, acks: str) -> None:
    topic = new_topic(1)
    with make(broker, acks=acks) as producer:
        futures = [producer.send(topic, b"%d" % n) for n in range(100)]
        producer.flush(timeout_ms=PATIENCE_MS)
        assert [future.get(timeout_ms=0).offset for future in futures] == (
            [-1] * 100 if acks == "0" else list(range(100))
        )
    reader = Confluent(broker.bootstrap)
    eventually(lambda: len(reader.read(topic, [0])) == 100, "all records are written")


def test_log_append_time(broker: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(1, message_timestamp_type="LogAppendTime")
    with make(broker) as producer:
        metadata = producer.send(topic, b"v", timestamp_ms=1_000).get(timeout_ms=PATIENCE_MS)
    (record,) = Confluent(broker.bootstrap).read(topic, [0])
    assert metadata.timestamp == record.timestamp
    assert metadata.timestamp > START_MS


def test_splits_too_large_batches(broker: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(1, max_message_bytes=2000)
    with make(broker, linger_ms=100) as producer:
        futures = [producer.send(topic, b"%03d" % n + b"v" * 100) for n in range(300)]
        large = producer.send(topic, b"v" * 5000)
        after = producer.send(topic, b"after")
        assert [future.get(timeout_ms=PATIENCE_MS).offset for future in futures] == list(range(300))
        with pytest.raises(MessageSizeTooLargeError):
            large.get(timeout_ms=PATIENCE_MS)
        assert after.get(timeout_ms=PATIENCE_MS).offset == 300


def test_unknown_topics_and_partitions_time_out(broker: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    with make(broker, max_block_ms=500) as producer:
        with pytest.raises((UnknownTopicOrPartitionError, KafkaTimeoutError)):
            producer.send("nowhere-at-all", b"v")
        with pytest.raises(KafkaTimeoutError):
            producer.send(topic, b"v", partition=3)


def test_many_partitions_and_threads(broker: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(20)
    with make(broker, batch_size=4000) as producer:

        def write(number: int) -> None:
            for n in range(1000):
                producer.send(topic, b"%d" % n, key=b"%d-%d" % (number, n % 10))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush(timeout_ms=PATIENCE_MS)
    seen: dict[bytes | None, list[int]] = {}
    for record in Confluent(broker.bootstrap).read(topic, range(20)):
        seen.setdefault(record.key, []).append(int(record.value or b""))
    assert len(seen) == 40
    for key, numbers in seen.items():
        assert numbers == sorted(numbers), key
        assert len(numbers) == 100


def test_acknowledged_records_survive_killed_broker(tmp_path_factory: pytest.TempPathFactory) -> None:
    with make_broker(tmp_path_factory.mktemp("killed") / "data", {"log.flush.interval.messages": 1}) as broker:
        admin = ConfluentAdmin(broker.bootstrap)
        admin.create("killed", 1)
        admin.close()
        with make(broker, batch_size=500, retry_backoff_ms=20, reconnect_backoff_max_ms=200) as producer:
            futures = [producer.send("killed", b"%d" % n) for n in range(500)]
            futures[0].get(timeout_ms=PATIENCE_MS)
            broker.kill()
            futures += [producer.send("killed", b"%d" % n) for n in range(500, 1000)]
            broker.start()
            assert [future.get(timeout_ms=PATIENCE_MS).offset for future in futures] == list(range(1000))
        values = [record.value for record in Confluent(broker.bootstrap).read("killed", [0])]
        assert values == [b"%d" % n for n in range(1000)]


# ---- transactions


def transactional(broker: Broker, name: str) -> Producer:
    producer = make(broker, transactional_id=name)
    producer.init_transactions()
    return producer


def committed(broker: Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in Confluent(broker.bootstrap).read(topic, [0], isolation_level="read_committed")]


def test_other_clients_read_committed_records(broker: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    with transactional(broker, topic) as producer:
        if IS_KAFKA:
            assert producer._core.transactions is not None
            assert producer._core.transactions.version == 2
        for number in range(10):
            producer.begin_transaction()
            futures = [producer.send(topic, b"%d" % number) for _ in range(3)]
            if number % 2:
                for future in futures:
                    future.get(timeout_ms=PATIENCE_MS)
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    assert committed(broker, topic) == [b"%d" % number for number in range(0, 10, 2) for _ in range(3)]


def test_commits_offsets_and_records_together(broker: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    group = f"group-{topic}"

    def offset() -> int:
        consumer = confluent.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
        try:
            return consumer.committed([confluent.TopicPartition(topic, 0)], timeout=PATIENCE)[0].offset
        finally:
            consumer.close()

    with transactional(broker, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"v")
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): 12}, group)
        producer.commit_transaction()
        eventually(lambda: offset() == 12, "the offset is committed")
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): 13}, group)
        producer.abort_transaction()
        assert offset() == 12
    assert committed(broker, topic) == [b"v"]


class Fenced(NamedTuple):
    """The error of a client whose transactional id another producer has taken over."""

    error: type[Exception]
    message: str | None = None


FENCED = {
    "confluent-kafka": Fenced(confluent.KafkaException, "code=_FENCED"),
    "kafka-python": Fenced(kafka.errors.ProducerFencedError),
    "aiokafka": Fenced(aiokafka.errors.ProducerFenced),
    "kafka-clients": Fenced(JavaError, "ProducerFencedException"),
}


@pytest.mark.parametrize("name", [*IN_PROCESS, "kafka-clients"])
def test_producers_with_same_transactional_id_fence_each_other(
    broker: Broker, new_topic: NewTopic, name: str, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(1)

    def others() -> Transactional:
        if name == "kafka-clients":
            return JavaTransactional(request.getfixturevalue("java"), topic)
        return IN_PROCESS[name](broker.bootstrap, topic)

    with transactional(broker, topic) as ours:
        ours.begin_transaction()
        ours.send(topic, b"ours, lost").get(timeout_ms=PATIENCE_MS)
        theirs = others()
        try:
            with pytest.raises(KafkaError) as caught:
                ours.send(topic, b"late").get(timeout_ms=PATIENCE_MS)
            assert isinstance(caught.value, ProducerFencedError | InvalidProducerEpochError)
            theirs.begin()
            theirs.send(topic, [Record(0, None, b"theirs", (), START_MS)])
            theirs.commit()
            theirs.begin()
            theirs.send(topic, [Record(0, None, b"theirs, lost", (), START_MS)])
            with transactional(broker, topic) as again:
                again.begin_transaction()
                again.send(topic, b"ours")
                again.commit_transaction()
                with pytest.raises(FENCED[name].error, match=FENCED[name].message):
                    theirs.commit()
        finally:
            with contextlib.suppress(Exception):  # it was fenced
                theirs.close()
    assert committed(broker, topic) == [b"theirs", b"ours"]
