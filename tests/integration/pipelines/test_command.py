"""`headrace pipeline run` as a separate process: its output and its exit."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.apache_kafka.jvm import KafkaUnavailable, require_java
from tests.support.spark.session import QUICK_JVM, worker_environment
from tests.support.spark.topic_rows import put, values

from headrace.testing import EmbeddedBroker

MINE = """
from headrace.pipelines import Topic, parse_json, pipeline


@pipeline("mine", sources={"orders": "command-orders"}, outputs={"large": Topic("command-large", key="id")})
def mine(orders):
    rows = parse_json(orders, "id string, amount bigint", required=["id"])
    return {"large": rows.good.select("data.*", "_at").where("amount >= 100"), "dead_letters": rows.bad}
"""
DEADLINE = 280


def start(broker: EmbeddedBroker, directory: Path, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "headrace", "pipeline", "run", str(directory / "mine.py")]
    command += ["--bootstrap-server", broker.bootstrap_servers, "--checkpoint", str(directory / "checkpoint")]
    command += ["--metrics", str(directory / "metrics"), "--master", "local[2]", *more]
    command += ["--conf", f"spark.driver.extraJavaOptions={QUICK_JVM}"]
    return subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, **worker_environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def without_worker_tracebacks(err: str) -> str:
    """Removes tracebacks of PySpark's daemon: it prints one if Spark stops while a Python worker starts."""
    traceback = r'Traceback \(most recent call last\):\n  File "[^"]*pyspark/(?:daemon|worker)\.py".*?\n(?=\S)[^\n]*\n'
    return re.sub(traceback, "", err, flags=re.DOTALL)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    try:
        require_java()
    except KafkaUnavailable as error:
        pytest.skip(f"Spark needs Java: {error}")
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def test_run_stops_gracefully_on_signal(broker: EmbeddedBroker, directory: Path) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("command-orders", 2)
    put(servers, "command-orders", [(f"o{n}", {"id": f"o{n}", "amount": n}) for n in range(95, 105)])
    put(servers, "command-orders", [(None, b"?")])

    running = start(broker, directory, "--trigger", "100 milliseconds", "--log-level", "INFO")
    try:
        deadline = time.monotonic() + DEADLINE
        metrics = directory / "metrics"
        while not (metrics.exists() and metrics.read_text()):
            assert running.poll() is None, running.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=DEADLINE)
    finally:
        running.kill()
    assert running.returncode == 0, err
    assert "Traceback" not in without_worker_tracebacks(err)
    assert " INFO " in err
    lines = out.splitlines()
    assert lines[0].startswith("mine: 11 rows read in ")
    assert [line.split() for line in lines[1:]] == [["command-large", "5"], ["mine_dead_letters", "1"]]
    batches = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert sum(each["rows"] for each in batches) == 11
    assert sorted(value["amount"] for value in values(servers, "command-large")) == [100, 101, 102, 103, 104]


def test_failure_is_reported_in_one_line(broker: EmbeddedBroker, directory: Path) -> None:
    broker.create_topic("command-wrong", 1)
    wrong = (directory / "mine.py").read_text().replace("amount >= 100", "amont >= 100")
    (directory / "mine.py").write_text(wrong.replace("command-orders", "command-wrong"))
    put(broker.bootstrap_servers, "command-wrong", [(None, b"{}")])
    running = start(broker, directory, "--available-now", "--quiet")
    out, err = running.communicate(timeout=DEADLINE)
    assert (running.returncode, out) == (1, "")
    assert err.count("\n") == 1, err
    message = err.strip()
    assert message.startswith("headrace: flow mine failed")
    assert "amont" in message
