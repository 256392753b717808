"""`headrace doctor` inspects a broker of Apache Kafka, and finds problems that the test creates there."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.apache_kafka.broker import KafkaBroker, KafkaUnavailable

import headrace
from headrace.admin import Admin, NewTopic
from headrace.cli.main import main

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        with KafkaBroker(tmp_path_factory.mktemp("doctor") / "data") as broker:
            yield broker.bootstrap
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")


def doctor(servers: str, *arguments: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    command = ["doctor", "--bootstrap-server", servers, "--json", *arguments]
    ran = CliRunner().invoke(main, command, prog_name="headrace")
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(ran.stdout)["findings"]:
        found.setdefault(finding["check"], []).append(finding)
    return ran.exit_code, found


def test_inspects_all_parts(kafka: str) -> None:
    now_ms = int(time.time() * 1000)
    with Admin(bootstrap_servers=kafka) as admin:
        admin.create_topics(
            [NewTopic("read", 1, 1), NewTopic("contradiction", 1, 1, topic_configs={"min.insync.replicas": 2})]
        )
        with headrace.Producer(bootstrap_servers=kafka, transactional_id="doctor") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("read", b"old", timestamp_ms=now_ms - HOUR_MS)
            producer.send("read", b"new", timestamp_ms=now_ms)
            producer.commit_transaction()
        admin.alter_group_offsets("slow", {("read", 0): 0})
    code, found = doctor(kafka)
    assert code == 2
    assert "not-inspected" not in found, found["not-inspected"]
    (lagging,) = found["lagging-groups"]
    assert "Group slow lags in 1 partition" in lagging["problem"]
    errors = [finding for findings in found.values() for finding in findings if finding["severity"] == "error"]
    assert [error["items"] for error in errors] == [["contradiction"]]
    healthy = ["--skip", "lagging-groups", "--skip", "topic-settings", "--skip", "broker-settings"]
    # The disk of this machine may be full.
    assert doctor(kafka, *healthy, "--skip", "disk-space") == (0, {})
