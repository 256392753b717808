"""Events of real clients: errors, fatal ones, log lines, statistics, partition EOF."""

import json
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.broker.process import eventually

from headrace import Admin, Consumer, Producer, TopicPartition
from headrace.client.events import ClientEvents, LogEvent
from headrace.common.errors import FencedInstanceIdError, KafkaError
from headrace.net.broker_pool import Node
from headrace.testing import EmbeddedBroker

PATIENCE = 60.0


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    settings = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    with EmbeddedBroker(settings, topics={"t": 1}) as running:
        yield running


def test_error_cb_reports_a_lost_broker_once(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[KafkaError] = []
    failed: Counter[int] = Counter()
    report = ClientEvents.connect_failed

    def count(events: ClientEvents, node: Node, purpose: str, error: KafkaError) -> None:
        report(events, node, purpose, error)
        failed[node.id] += 1

    monkeypatch.setattr(ClientEvents, "connect_failed", count)
    with Consumer(bootstrap_servers=broker.bootstrap_servers, error_cb=errors.append) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        eventually(lambda: consumer.poll(20) is not None and consumer.bootstrap_connected(), "connected", PATIENCE)
        broker.stop()
        eventually(lambda: consumer.poll(20) is not None and max(failed.values(), default=0) > 3, "attempts", PATIENCE)
        broker.start()
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"value")
        eventually(lambda: consumer.poll(100), "it reads on", PATIENCE)
        assert all(error.retriable and not error.fatal for error in errors)
        assert sum("could not connect" in str(error) for error in errors) == len(failed), "once for each node"


def test_fenced_member_gets_a_fatal_error(broker: EmbeddedBroker) -> None:
    errors: list[KafkaError] = []
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": "g",
        "group_instance_id": "one",
        "heartbeat_interval_ms": 100,
    }
    with Consumer("t", error_cb=errors.append, **settings) as first:
        eventually(lambda: first.poll(20) is not None and first.assignment(), "it has partitions", PATIENCE)
        with Consumer("t", **settings) as second:
            eventually(lambda: second.poll(20) is not None and second.assignment(), "it has partitions", PATIENCE)

            def is_told() -> bool:
                try:
                    first.poll(20)
                except FencedInstanceIdError:
                    return True
                return False

            eventually(is_told, "the poll raises", PATIENCE)
            fatal = [error for error in errors if error.fatal]
            assert fatal
            assert isinstance(fatal[0], FencedInstanceIdError)


def test_log_cb_receives_log_lines(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    lines: list[LogEvent] = []
    with caplog.at_level(logging.INFO, "headrace.client"):
        with Consumer("t", bootstrap_servers=broker.bootstrap_servers, group_id="g", log_cb=lines.append) as consumer:
            eventually(lambda: consumer.poll(20) is not None and consumer.assignment(), "joined", PATIENCE)
        count = len(lines)
        with Consumer("t", bootstrap_servers=broker.bootstrap_servers, group_id="g") as other:
            eventually(lambda: other.poll(20) is not None and other.assignment(), "joined", PATIENCE)
    assert any(line.facility == "client.group.rebalance" and "generation" in line.text for line in lines)
    assert len(lines) == count, "lines of another client are not passed on"


def test_statistics_and_partition_eof(broker: EmbeddedBroker) -> None:
    texts: list[str] = []
    ends: list[tuple[TopicPartition, int]] = []
    with Admin(bootstrap_servers=broker.bootstrap_servers, statistics_interval_ms=20, stats_cb=texts.append) as admin:
        assert admin is not None
        eventually(lambda: texts, "statistics are told", PATIENCE)
    assert json.loads(texts[0])["type"] == "admin"
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        enable_partition_eof=True,
        auto_offset_reset="earliest",
        on_partition_eof=lambda tp, offset: ends.append((tp, offset)),
    ) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        eventually(lambda: consumer.poll(20) is not None and ends, "the end is told", PATIENCE)
    assert ends == [(TopicPartition("t", 0), 0)]
