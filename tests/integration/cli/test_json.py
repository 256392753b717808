"""`--json` prints JSON and nothing else."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

import headrace
from headrace.cli.main import main
from headrace.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": 0}, topics={"there": 1}) as broker:
        with headrace.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for _ in range(100):
                producer.send("there", b"x")
        yield broker.bootstrap_servers


def document(servers: str, line: str, status: int = 0) -> Any:
    tool, *args = line.split()
    ran = CliRunner().invoke(main, [tool, "--bootstrap-server", servers, *args, "--json"], prog_name="headrace")
    assert ran.exit_code == status, ran.stderr
    return json.loads(ran.stdout)


def test_topics_create(servers: str) -> None:
    assert document(servers, "topics --create --topic new") == {"topic": "new", "created": True}
    again = document(servers, "topics --create --topic new --if-not-exists")
    assert again == {"topic": "new", "created": False}


def test_end_to_end_latency_in_new_topic(servers: str) -> None:
    line = "end-to-end-latency --topic made-for-it --num-records 3 --producer-acks 1 --record-size 10"
    assert document(servers, line)["records"] == 3


def test_consumer_perf_test(servers: str) -> None:
    line = "consumer-perf-test --topic there --num-records 100 --show-detailed-stats --reporting-interval 1"
    found = document(servers, line + " --print-metrics")
    assert found["data.consumed.in.nMsg"] == "100"
    assert {"time", "nMsg.sec"} <= set(found["intervals"][0])
    assert isinstance(found["metrics"], dict)


def test_producer_perf_test(servers: str) -> None:
    line = "producer-perf-test --topic new-too --num-records 50 --record-size 10 --throughput -1 --print-metrics"
    found = document(servers, line)
    assert found["records"] == 50
    assert {"p99.9_ms", "records_per_second", "metrics"} <= set(found)


def test_transactions(servers: str) -> None:
    with headrace.Producer(bootstrap_servers=servers, transactional_id="json") as producer:
        producer.init_transactions()
        (idle,) = document(servers, "transactions describe --transactional-id json")
        assert (idle["start_time_ms"], idle["duration_ms"], idle["partitions"]) == (None, None, [])
        producer.begin_transaction()
        producer.send("there", b"open").get(timeout_ms=30_000)
        (found,) = document(servers, "transactions describe --transactional-id json")
        assert found["partitions"] == [{"topic": "there", "partition": 0}]
        assert found["start_time_ms"] > 0
        producers = document(servers, "transactions describe-producers --topic there --partition 0")
        assert {each["transaction_start_offset"] for each in producers} == {None, 100}
        producer.abort_transaction()


def test_delete_records_of_unknown_topic(servers: str, tmp_path: Any) -> None:
    """Exit codes are Kafka's, with and without `--json`."""
    file = tmp_path / "offsets.json"
    file.write_text('{"partitions": [{"topic": "nowhere", "partition": 0, "offset": 1}], "version": 1}')
    (found,) = document(servers, f"delete-records --offset-json-file {file}")
    assert found["low_watermark"] is None
    assert found["error"]
