"""`headrace pipeline audit FILE` on a broker: the report, examples and the exit code."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import headrace
from headrace.cli.main import main
from headrace.testing import EmbeddedBroker

FILE = """
from headrace.pipelines import pipeline
from headrace.pipelines.audit import Audit

@pipeline("mine", sources={"orders": "orders"}, outputs={"paid": "paid", "dead_letters": "dead"})
def mine(orders):
    return {"paid": orders}

audit = Audit(id="id", drops=lambda order: order["kind"] == "test")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def send(broker: EmbeddedBroker, topic: str, *values: object) -> None:
    with headrace.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value if isinstance(value, bytes) else json.dumps(value).encode(), partition=0)


def run(broker: EmbeddedBroker, name: object) -> Result:
    return CliRunner().invoke(main, ["pipeline", "audit", str(name), "--bootstrap-server", broker.bootstrap_servers])


def test_audits_a_pipeline_in_a_file(file: Path) -> None:
    with EmbeddedBroker(topics={"orders": 1, "paid": 1, "dead": 1}) as broker:
        send(
            broker, "orders", {"id": 1, "kind": "sale"}, {"id": 2, "kind": "test"}, b"broken", {"id": 3, "kind": "sale"}
        )
        send(broker, "paid", {"id": 1})
        send(broker, "dead", {"reason": "not JSON", "topic": "orders", "partition": 0, "offset": 2})
        ran = run(broker, file)
        assert ran.exit_code == 1, ran.output
        assert "missing: orders, partition 0, offset 3, id 3" in ran.output
        assert ran.output.endswith("audit FAILED: 1 missing\n")
        send(broker, "paid", {"id": 3})
        ran = run(broker, f"{file}:mine")
        assert ran.exit_code == 0, ran.output
        assert "4 input records: 2 in outputs, 1 dead letters, 1 dropped, 0 missing" in ran.output
        assert ran.output.endswith("audit passed: nothing missing, unexpected or duplicate\n")


def test_reports_what_it_cannot_audit(file: Path) -> None:
    with EmbeddedBroker({"auto.create.topics.enable": False}, topics={"orders": 1}) as broker:
        ran = run(broker, file)
        assert ran.exit_code == 1
        assert "topic dead does not exist" in ran.output or "topic paid does not exist" in ran.output
        file.write_text(FILE.partition("audit =")[0])
        ran = run(broker, file)
        assert ran.exit_code == 1
        assert "does not declare where its events have their ids" in ran.output
        assert run(broker, "dws-traffic").exit_code == 1
        assert ran.output.count("\n") == 1
