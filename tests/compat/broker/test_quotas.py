"""Clients of other projects, and our own, see throttle times and still get everything done."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import kafka
import pytest

import headrace
from headrace.admin import ClientQuotaAlteration, ClientQuotaEntity
from headrace.testing import EmbeddedBroker

VALUE = b"x" * 100_000
RATE = 9_900
"""One value is a little more than this rate allows in the first ten seconds: the throttle time is about 100 ms. The
first response to a consumer is empty."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": 0}) as broker:
        with headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics(["filled", "target"])
        with headrace.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
            producer.send("filled", VALUE).get(timeout_ms=30_000)
        yield broker


def limit(broker: EmbeddedBroker, client_id: str, **quotas: float) -> dict[str, Any]:
    with headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_client_quotas([ClientQuotaAlteration(ClientQuotaEntity({"client-id": client_id}), quotas)])
    return {"bootstrap.servers": broker.bootstrap_servers, "client.id": client_id}


def wait_until(condition: Callable[[], object], poll: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        poll()


def test_confluent_producer(broker: EmbeddedBroker) -> None:
    events: list[Any] = []
    config = limit(broker, "confluent-producer", producer_byte_rate=RATE)
    producer = confluent_kafka.Producer({**config, "throttle_cb": events.append})
    delivered: list[Any] = []
    producer.produce("target", VALUE, on_delivery=lambda error, _: delivered.append(error))
    wait_until(lambda: delivered and events, lambda: producer.poll(0.05))
    assert delivered == [None]
    assert events[0].throttle_time > 0
    producer.produce("target", b"later", on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(30) == 0
    assert delivered == [None, None]


def test_confluent_consumer(broker: EmbeddedBroker) -> None:
    events: list[Any] = []
    config = limit(broker, "confluent-consumer", consumer_byte_rate=RATE)
    consumer = confluent_kafka.Consumer({**config, "group.id": "g", "throttle_cb": events.append})
    consumer.assign([confluent_kafka.TopicPartition("filled", 0, 0)])
    values: list[bytes] = []

    def poll() -> None:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None
            values.append(message.value())

    wait_until(lambda: values and events, poll)
    consumer.close()
    assert values == [VALUE]
    assert events[0].throttle_time > 0


def test_kafka_python_producer(broker: EmbeddedBroker) -> None:
    limit(broker, "kafka-python-producer", producer_byte_rate=RATE)
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, client_id="kafka-python-producer", max_request_size=1 << 20
    )
    producer.send("target", VALUE).get(30)
    producer.send("target", b"later").get(30)
    assert producer.metrics()["producer-metrics"]["throttle-time-max"] > 0
    producer.close()


def test_kafka_python_consumer(broker: EmbeddedBroker) -> None:
    limit(broker, "kafka-python-consumer", consumer_byte_rate=RATE)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        client_id="kafka-python-consumer",
    )
    consumer.assign([kafka.TopicPartition("filled", 0)])
    consumer.seek_to_beginning()
    values: list[bytes] = []

    def poll() -> None:
        for records in consumer.poll(100).values():
            values.extend(record.value for record in records)

    wait_until(lambda: values, poll)
    assert values == [VALUE]
    assert any(each.get("throttle-time-max", 0) > 0 for each in consumer.metrics().values())
    consumer.close()


def test_our_producer(broker: EmbeddedBroker) -> None:
    events: list[Any] = []
    limit(broker, "our-producer", producer_byte_rate=RATE)
    with headrace.Producer(
        bootstrap_servers=broker.bootstrap_servers, client_id="our-producer", throttle_cb=events.append
    ) as producer:
        producer.send("target", VALUE).get(timeout_ms=30_000)
        producer.send("target", b"later").get(timeout_ms=30_000)
    assert events[0].throttle_time > 0


def test_our_consumer(broker: EmbeddedBroker) -> None:
    events: list[Any] = []
    limit(broker, "our-consumer", consumer_byte_rate=RATE)
    with headrace.Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        client_id="our-consumer",
        throttle_cb=events.append,
    ) as consumer:
        consumer.assign([headrace.TopicPartition("filled", 0)])
        consumer.seek_to_beginning()
        values: list[bytes | None] = []

        def poll() -> None:
            for records in consumer.poll(100).values():
                values.extend(record.value for record in records)

        wait_until(lambda: values, poll)
    assert values == [VALUE]
    assert events[0].throttle_time > 0
