"""Statistics have all fields of librdkafka's, with the same types, so that programs can read either."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from tests.support.broker.process import eventually

from headrace import Consumer, Producer
from headrace.testing import EmbeddedBroker

PATIENCE = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}, topics={"t": 2}
    ) as running:
        yield running


class Collector:
    """Keeps the last reported statistics."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}

    def __call__(self, text: str) -> None:
        self.last = json.loads(text)


def config(broker: EmbeddedBroker, collector: Collector) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "client.id": "me",
        "statistics.interval.ms": 50,
        "stats_cb": collector,
    }


def until(condition: Callable[[], Any], poll: Callable[[], object]) -> None:
    def check() -> bool:
        poll()
        return bool(condition())

    eventually(check, "the statistics show the expected values", PATIENCE)


def kinds(value: Any, path: str = "") -> dict[str, type]:
    """Returns the type of every field by its path. `*` stands for names of brokers, topics and partitions."""
    found: dict[str, type] = {}
    if isinstance(value, dict):
        for key, each in value.items():
            parent = path.rpartition(".")[2]
            if parent == "req":
                continue
            name = "*" if parent in ("brokers", "topics", "partitions", "toppars") else key
            found |= kinds(each, f"{path}.{name}" if path else name)
        return found
    return {path: type(value)}


def check(ours: dict[str, Any], theirs: dict[str, Any], but: tuple[str, ...] = ()) -> None:
    mine, expected = kinds(ours), kinds(theirs)
    missing = {name for name in expected if name not in mine and not name.startswith(but or ("-",))}
    assert not missing
    assert {name: mine[name] for name in expected if name in mine} == {
        name: expected[name] for name in expected if name in mine
    }


def test_consumer_statistics(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(10):
            producer.send("t", b"value", partition=number % 2)
    ours, theirs = Collector(), Collector()
    with Consumer({**config(broker, ours), "group.id": "ours", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["t"])
        until(lambda: ours.last.get("rxmsgs") == 10 and lags(ours.last) == [0, 0], lambda: consumer.poll(20))
        shown = ours.last
    other = confluent_kafka.Consumer(
        {**config(broker, theirs), "group.id": "theirs", "auto.offset.reset": "earliest", "log_level": 0}
    )
    other.subscribe(["t"])
    until(lambda: theirs.last.get("rxmsgs") == 10, lambda: other.poll(0.02))
    other.close()
    check(shown, theirs.last)
    assert shown["type"] == "consumer"
    assert shown["client_id"] == "me"
    assert shown["cgrp"]["assignment_size"] == 2
    row = shown["topics"]["t"]["partitions"]["0"]
    assert (row["app_offset"], row["hi_offset"], row["fetch_state"], row["rxmsgs"]) == (5, 5, "active", 5)
    name = f"{broker.bootstrap_servers}/{row['leader']}"
    assert shown["brokers"][name]["state"] == "UP"
    assert shown["brokers"][name]["req"]["Fetch"] > 0
    assert set(shown["brokers"][name]["toppars"]) == {"t-0", "t-1"}
    assert "GroupCoordinator" in shown["brokers"]


def lags(statistics: dict[str, Any]) -> list[int]:
    return [row["consumer_lag"] for row in statistics["topics"].get("t", {}).get("partitions", {}).values()]


def test_producer_statistics(broker: EmbeddedBroker) -> None:
    ours, theirs = Collector(), Collector()
    with Producer(config(broker, ours)) as producer:
        for _ in range(10):
            producer.send("t", b"value", partition=0)
        producer.flush()
        until(lambda: ours.last.get("txmsgs") == 10, lambda: None)
        shown = ours.last
    other = confluent_kafka.Producer({**config(broker, theirs), "enable.idempotence": True, "log_level": 0})
    for _ in range(10):
        other.produce("t", b"value", partition=0)
    until(lambda: theirs.last.get("txmsgs") == 10, lambda: other.poll(0.02))
    check(shown, theirs.last)
    assert shown["type"] == "producer"
    assert shown["topics"]["t"]["partitions"]["0"]["txmsgs"] == 10
    assert shown["eos"]["idemp_state"] == "Assigned"
