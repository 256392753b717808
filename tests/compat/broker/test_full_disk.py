"""Idempotent producers survive a full disk: every record is stored once, in order, after there is space again.

A limit of the file size stands for the full disk.
"""

import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer as LibrdkafkaProducer
from tests.support.broker.process import Headrace

import headrace
from headrace.admin import NewTopic

SECONDS = 120.0
RECORDS = 400
VALUE_BYTES = 10_000
FULL_BYTES = 1_000_000
TOPIC = "t"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Headrace]:
    with Headrace(tmp_path / "data") as running:
        with headrace.Admin(bootstrap_servers=running.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1)])
        yield running


def limit_file_size(broker: Headrace, size: int) -> None:
    assert broker.pid is not None
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def await_line(broker: Headrace, text: str) -> None:
    deadline = time.monotonic() + SECONDS
    while text not in broker.log_file.read_text():
        assert time.monotonic() < deadline, f"the broker did not log {text!r}"
        time.sleep(0.05)


def value(number: int) -> bytes:
    return b"%08d" % number + b"x" * VALUE_BYTES


def produce_with_librdkafka(bootstrap: str, disk_is_full: Callable[[], None]) -> None:
    producer = LibrdkafkaProducer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "batch.size": 30_000}
    )
    errors: list[object] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            errors.append(error)

    for number in range(RECORDS):
        producer.produce(TOPIC, value(number), partition=0, on_delivery=on_delivery)
        producer.poll(0)
    disk_is_full()
    assert producer.flush(SECONDS) == 0
    assert errors == []


def produce_with_headrace(bootstrap: str, disk_is_full: Callable[[], None]) -> None:
    with headrace.Producer(bootstrap_servers=bootstrap, enable_idempotence=True, batch_size=30_000) as producer:
        futures = [producer.send(TOPIC, value(number), partition=0) for number in range(RECORDS)]
        disk_is_full()
        for future in futures:
            future.get(timeout_ms=SECONDS * 1000)


@pytest.mark.parametrize("produce", [produce_with_librdkafka, produce_with_headrace])
def test_no_record_is_lost_or_written_twice(
    broker: Headrace, produce: Callable[[str, Callable[[], None]], None]
) -> None:
    limit_file_size(broker, FULL_BYTES)

    def free_space() -> None:
        await_line(broker, "appends fail, producers get KAFKA_STORAGE_ERROR")
        limit_file_size(broker, resource.RLIM_INFINITY)

    produce(broker.bootstrap, free_space)
    await_line(broker, "appends succeed again")
    with headrace.Consumer(TOPIC, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        found: list[int] = []
        deadline = time.monotonic() + SECONDS
        while len(found) < RECORDS and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=500).values():
                found += [int(record.value[:8]) for record in records]
        found += [int(record.value[:8]) for records in consumer.poll(timeout_ms=500).values() for record in records]
    assert found == list(range(RECORDS))
