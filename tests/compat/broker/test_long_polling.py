"""Consumers that wait: the broker delays their fetch until there is data, or until the timeout.

No durations are asserted. The consumers wait for minutes, so a fetch that the broker does not complete would exceed the
test's deadline.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import aiokafka
import confluent_kafka as confluent
import pytest
from tests.support.broker.admin_clients import Admin, BrokerError
from tests.support.broker.clients import Aiokafka, Confluent, KafkaPython, confluent_record, python_record, run
from tests.support.broker.java_clients import Java, to_record
from tests.support.broker.process import Broker, eventually
from tests.support.broker.records import Record, numbered
from tests.support.records.other_clients import kafka

WAIT_MS = 120_000
LIMIT_SECONDS = 60.0

Wait = Callable[[Broker, str, int, threading.Event], list[Record]]


def confluent_waits(broker: Broker, topic: str, min_bytes: int, waiting: threading.Event) -> list[Record]:
    settings = {"fetch_wait_max_ms": WAIT_MS, "fetch_min_bytes": min_bytes, "socket_timeout_ms": WAIT_MS + 2000}
    consumer = Confluent(broker.bootstrap).consumer(**settings, enable_partition_eof=False)
    try:
        consumer.assign([confluent.TopicPartition(topic, 0, 0)])
        consumer.poll(0.2)
        waiting.set()
        message = consumer.poll(LIMIT_SECONDS)
        return [] if message is None else [confluent_record(message)]
    finally:
        consumer.close()


def kafka_python_waits(broker: Broker, topic: str, min_bytes: int, waiting: threading.Event) -> list[Record]:
    settings = {"fetch_max_wait_ms": WAIT_MS, "fetch_min_bytes": min_bytes, "request_timeout_ms": WAIT_MS + 5000}
    with KafkaPython(broker.bootstrap).consumer(**settings) as consumer:
        tp = kafka.TopicPartition(topic, 0)
        consumer.assign([tp])
        consumer.seek(tp, 0)
        consumer.poll(timeout_ms=200)
        waiting.set()
        found = consumer.poll(timeout_ms=LIMIT_SECONDS * 1000)
        return [python_record(each) for messages in found.values() for each in messages]


def aiokafka_waits(broker: Broker, topic: str, min_bytes: int, waiting: threading.Event) -> list[Record]:
    async def wait() -> list[Record]:
        settings = {"fetch_max_wait_ms": WAIT_MS, "fetch_min_bytes": min_bytes, "request_timeout_ms": WAIT_MS + 5000}
        async with Aiokafka(broker.bootstrap).consumer(**settings) as consumer:
            tp = aiokafka.TopicPartition(topic, 0)
            consumer.assign([tp])
            consumer.seek(tp, 0)
            await consumer.getmany(timeout_ms=200)
            waiting.set()
            found = await consumer.getmany(timeout_ms=int(LIMIT_SECONDS * 1000))
            return [python_record(each) for messages in found.values() for each in messages]

    return run(wait(), LIMIT_SECONDS + 10)


def in_a_thread(wait: Wait, *args: Any) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []

    def work() -> None:
        try:
            results.append(wait(*args))
        except Exception as error:  # noqa: BLE001 - it is looked at where the thread is joined
            results.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, results


@pytest.mark.parametrize("wait", [confluent_waits, kafka_python_waits, aiokafka_waits])
def test_record_completes_a_delayed_fetch(broker: Broker, new_topic: Callable[..., str], wait: Wait) -> None:
    topic = new_topic()
    waiting = threading.Event()
    thread, results = in_a_thread(wait, broker, topic, 1, waiting)
    assert waiting.wait(LIMIT_SECONDS)
    Confluent(broker.bootstrap).write(topic, numbered(1))
    thread.join(LIMIT_SECONDS + 20)
    assert results == [numbered(1)]


@pytest.mark.parametrize("wait", [confluent_waits, kafka_python_waits, aiokafka_waits])
def test_fetch_waits_for_min_bytes(broker: Broker, new_topic: Callable[..., str], wait: Wait) -> None:
    """Records arrive one by one. The first response has all of them, because only all of them have enough bytes."""
    topic = new_topic()
    waiting = threading.Event()
    thread, results = in_a_thread(wait, broker, topic, 5_000, waiting)
    assert waiting.wait(LIMIT_SECONDS)
    rows = [row._replace(value=bytes(1000)) for row in numbered(5)]
    producer = Confluent(broker.bootstrap)
    for row in rows:
        producer.write(topic, [row])
    thread.join(LIMIT_SECONDS + 20)
    (found,) = results
    assert found == (rows if wait is not confluent_waits else rows[:1])  # confluent-kafka returns them one by one


def test_record_completes_the_java_consumers_fetch(java: Java, broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    settings = {"fetch.max.wait.ms": WAIT_MS, "request.timeout.ms": WAIT_MS + 5000}
    java.start("first", topic=topic, partitions=[0], settings=settings)
    assert set(java.answer()) == {"id"}  # it waits
    Confluent(broker.bootstrap).write(topic, numbered(1))
    assert to_record(java.result()) == numbered(1)[0]


def test_record_of_any_partition_completes_the_fetch(broker: Broker, new_topic: Callable[..., str]) -> None:
    """One fetch waits for many partitions of several topics, as part of a fetch session."""
    topics = [new_topic(20), new_topic(20)]
    with KafkaPython(broker.bootstrap).consumer(
        fetch_max_wait_ms=WAIT_MS, request_timeout_ms=WAIT_MS + 5000
    ) as consumer:
        tps = [kafka.TopicPartition(topic, number) for topic in topics for number in range(20)]
        consumer.assign(tps)
        for tp in tps:
            consumer.seek(tp, 0)
        consumer.poll(timeout_ms=100)
        for turn in range(3):
            for topic in topics:
                row = numbered(1, partition=7 + turn)
                Confluent(broker.bootstrap).write(topic, row)
                found = consumer.poll(timeout_ms=LIMIT_SECONDS * 1000)
                assert {tp: [each.value for each in rows] for tp, rows in found.items()} == {
                    kafka.TopicPartition(topic, 7 + turn): [b"v0"]
                }


def test_fetch_without_data_times_out(broker: Broker, new_topic: Callable[..., str]) -> None:
    """Short waits time out many times, and a record that follows is still received."""
    topic = new_topic()
    with KafkaPython(broker.bootstrap).consumer(fetch_max_wait_ms=20) as consumer:
        tp = kafka.TopicPartition(topic, 0)
        consumer.assign([tp])
        consumer.seek(tp, 0)
        assert consumer.poll(timeout_ms=500) == {}
        Confluent(broker.bootstrap).write(topic, numbered(1))
        assert [each.value for each in consumer.poll(timeout_ms=60_000)[tp]] == [b"v0"]


@pytest.mark.parametrize("wait", [confluent_waits, kafka_python_waits, aiokafka_waits])
def test_deleting_the_topic_completes_a_delayed_fetch(
    broker: Broker, get_admin: Callable[[str], Admin], new_topic: Callable[..., str], wait: Wait
) -> None:
    """The fetch completes at once, so that the consumer finds the new topic of the same name."""
    topic = new_topic()
    admin = get_admin("confluent-kafka")
    waiting = threading.Event()
    thread, results = in_a_thread(wait, broker, topic, 1, waiting)
    assert waiting.wait(LIMIT_SECONDS)
    admin.delete(topic)
    # aiokafka's metadata request may create the topic earlier.
    with suppress(BrokerError):
        admin.create(topic)
    eventually(lambda: topic in admin.topics(), "the topic is there again")
    Confluent(broker.bootstrap).write(topic, numbered(1))
    thread.join(LIMIT_SECONDS + 20)
    assert results == [numbered(1)]
