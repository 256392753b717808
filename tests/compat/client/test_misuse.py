"""Invalid arguments raise the same errors as in kafka-python, with other messages. Its serializers can be used here."""

from collections.abc import Callable, Iterator
from typing import Any

import kafka
import pytest
from kafka.serializer import DefaultSerializer, JsonSerializer
from tests.support.broker.admin_clients import ConfluentAdmin
from tests.support.broker.process import Broker
from tests.support.broker.under_test import make_broker

import headrace
import headrace.errors

TOPIC = "misuse"
PATIENCE_MS = 60_000
HERE, ELSEWHERE = (TOPIC, 0), (TOPIC, 1)

PRODUCER: dict[str, Callable[[Any], object]] = {
    "a topic of bytes": lambda producer: producer.send(b"misuse", b"v"),
    "no topic": lambda producer: producer.send(None, b"v"),
    "text": lambda producer: producer.send(TOPIC, "v"),
    "a number as key": lambda producer: producer.send(TOPIC, b"v", key=5),
    "headers that are none": lambda producer: producer.send(TOPIC, b"v", headers=5),
    "a header of text": lambda producer: producer.send(TOPIC, b"v", headers=[("h", "text")]),
    "a header without a value": lambda producer: producer.send(TOPIC, b"v", headers=["h"]),
    "a partition below 0": lambda producer: producer.send(TOPIC, b"v", partition=-1),
    "no time to close in": lambda producer: (
        producer.close(timeout=-1) if isinstance(producer, kafka.KafkaProducer) else producer.close(timeout_ms=-1)
    ),
}
CONSUMER: dict[str, Callable[[Any, Callable[..., Any]], object]] = {
    "poll: no timeout": lambda consumer, tp: consumer.poll(timeout_ms=None),
    "poll: a text": lambda consumer, tp: consumer.poll(timeout_ms="5"),
    "poll: below 0": lambda consumer, tp: consumer.poll(timeout_ms=-1),
    "poll: records as text": lambda consumer, tp: consumer.poll(max_records="5"),
    "poll: no records": lambda consumer, tp: consumer.poll(max_records=0),
    "seek: a topic": lambda consumer, tp: consumer.seek(TOPIC, 0),
    "seek: below 0": lambda consumer, tp: consumer.seek(tp(*HERE), -1),
    "seek: text": lambda consumer, tp: consumer.seek(tp(*HERE), "0"),
    "seek: elsewhere": lambda consumer, tp: consumer.seek(tp(*ELSEWHERE), 0),
    "to the beginning: a topic": lambda consumer, tp: consumer.seek_to_beginning(TOPIC),
    "to the beginning: elsewhere": lambda consumer, tp: consumer.seek_to_beginning(tp(*ELSEWHERE)),
    "to the end: elsewhere": lambda consumer, tp: consumer.seek_to_end(tp(*ELSEWHERE)),
    "position: a topic": lambda consumer, tp: consumer.position(TOPIC),
    "position: elsewhere": lambda consumer, tp: consumer.position(tp(*ELSEWHERE)),
    "highwater: a topic": lambda consumer, tp: consumer.highwater(TOPIC),
    "pause: a topic": lambda consumer, tp: consumer.pause(TOPIC),
    "committed: a topic": lambda consumer, tp: consumer.committed(TOPIC),
    "times: below 0": lambda consumer, tp: consumer.offsets_for_times({tp(*HERE): -1}),
    "times: text": lambda consumer, tp: consumer.offsets_for_times({tp(*HERE): "5"}),
    "times: none": lambda consumer, tp: consumer.offsets_for_times({tp(*HERE): None}),
    "times: a list": lambda consumer, tp: consumer.offsets_for_times([tp(*HERE)]),
    "times: a topic": lambda consumer, tp: consumer.offsets_for_times({TOPIC: 5}),
    "times: no such partition": lambda consumer, tp: consumer.offsets_for_times({tp(TOPIC, 9): 5}, timeout_ms=300),
    "times: an invalid name": lambda consumer, tp: consumer.offsets_for_times({tp("a b", 0): 5}, timeout_ms=300),
    "times: no time": lambda consumer, tp: consumer.offsets_for_times({tp(*HERE): 5}, timeout_ms=0),
    "beginning: no such partition": lambda consumer, tp: consumer.beginning_offsets([tp(TOPIC, 9)], timeout_ms=300),
    "end: no such partition": lambda consumer, tp: consumer.end_offsets([tp(TOPIC, 9)], timeout_ms=300),
    "end: an invalid name": lambda consumer, tp: consumer.end_offsets([tp("a b", 0)], timeout_ms=300),
    "subscribe: nothing": lambda consumer, tp: consumer.subscribe(),
    "subscribe: both": lambda consumer, tp: consumer.subscribe([TOPIC], pattern="x"),
    "subscribe: after assign": lambda consumer, tp: consumer.subscribe([TOPIC]),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with make_broker(tmp_path_factory.mktemp("misuse") / "data") as running:
        admin = ConfluentAdmin(running.bootstrap)
        admin.create(TOPIC, 2)
        admin.close()
        yield running


@pytest.fixture(scope="module")
def producers(broker: Broker) -> Iterator[tuple[Any, Any]]:
    theirs = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap)
    with headrace.Producer(bootstrap_servers=broker.bootstrap) as ours:
        yield theirs, ours
    theirs.close()


@pytest.fixture(scope="module")
def consumers(broker: Broker) -> Iterator[tuple[Any, Any]]:
    theirs = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id="theirs")
    theirs.assign([kafka.TopicPartition(*HERE)])
    with headrace.Consumer(bootstrap_servers=broker.bootstrap, group_id="ours") as ours:
        ours.assign([headrace.TopicPartition(*HERE)])
        yield theirs, ours
    theirs.close()


def check_same(theirs: Callable[[], object], ours: Callable[[], object]) -> None:
    with pytest.raises(Exception) as raised:
        theirs()
    expected: Any = raised.type
    if issubclass(expected, kafka.errors.KafkaError):
        expected = getattr(headrace.errors, expected.__name__)
    elif issubclass(expected, AttributeError | KeyError):  # accidental errors of kafka-python
        expected = (TypeError, ValueError)
    with pytest.raises(expected) as raised:
        ours()
    assert str(raised.value)


@pytest.mark.parametrize("what", PRODUCER)
def test_invalid_producer_arguments(producers: tuple[Any, Any], what: str) -> None:
    theirs, ours = producers
    check_same(lambda: PRODUCER[what](theirs), lambda: PRODUCER[what](ours))


@pytest.mark.parametrize("what", CONSUMER)
def test_invalid_consumer_arguments(consumers: tuple[Any, Any], what: str) -> None:
    theirs, ours = consumers
    check_same(
        lambda: CONSUMER[what](theirs, kafka.TopicPartition), lambda: CONSUMER[what](ours, headrace.TopicPartition)
    )


def test_serializers_of_kafka_python(broker: Broker) -> None:
    config: dict[str, Any] = {"bootstrap_servers": broker.bootstrap}
    tp = headrace.TopicPartition(TOPIC, 1)
    with headrace.Producer(key_serializer=DefaultSerializer(), value_serializer=JsonSerializer(), **config) as producer:
        for key, value in (("Schlüssel", {"a": [1, None]}), (None, "text"), ("deleted", None)):
            producer.send(TOPIC, value, key=key, partition=1).get(timeout_ms=60_000)
    with headrace.Consumer(
        key_deserializer=DefaultSerializer(),
        value_deserializer=JsonSerializer(),
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE_MS,
        **config,
    ) as consumer:
        consumer.assign([tp])
        found = [next(consumer) for _ in range(3)]
    assert [(record.key, record.value) for record in found] == [
        ("Schlüssel", {"a": [1, None]}),
        (None, "text"),
        ("deleted", None),
    ]
