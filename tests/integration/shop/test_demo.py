"""`make run`: the whole demo with few events, and its exit code when the audit fails."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import ModuleType

import pytest
from tests.support.apache_kafka.jvm import KafkaUnavailable, require_java
from tests.support.broker.process import eventually
from tests.support.spark.cluster import processes_with
from tests.support.spark.session import worker_environment
from tests.support.spark.topic_rows import records

import headrace
from headrace.admin import Admin
from headrace.pipelines.status import STATUS_TOPIC, FlowStatus
from headrace.shop.audit import DEAD_LETTERS
from headrace.shop.audit.report import Output, Report
from headrace.testing import EmbeddedBroker

DEMO = Path(__file__).parents[3] / "examples" / "shop_demo.py"
FLOWS = {"ods-dwd/events", "dws-traffic/traffic"}


def test_demo_runs(tmp_path: Path) -> None:
    try:
        require_java()
    except KafkaUnavailable as error:
        pytest.skip(f"Spark needs Java: {error}")
    chart, data = tmp_path / "charts" / "traffic.html", tmp_path / "data"
    options = ["--events", "1500", "--rate", "1000", "--chart", str(chart), "--directory", str(data)]
    mark = f"HEADRACE_DEMO={data}"  # in the environment of all processes that the demo starts
    with subprocess.Popen(
        [sys.executable, str(DEMO), *options, "--master", "local[2]"],
        env={**os.environ, **worker_environment(), "HEADRACE_DEMO": str(data)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        out = process.stdout.readline()
        assert out == "starting a broker and Spark\n", "progress from the first second"
        while "console at" not in out:
            line = process.stdout.readline()
            assert line, out
            out += line
        running = "\n".join(processes_with(mark))
        servers, console = re.findall(r"broker at (\S+)", out)[0], re.findall(r"console at (\S+),", out)[0]
        with urllib.request.urlopen(f"{console}/api/clusters/default/overview", timeout=60) as response:
            assert json.load(response)["reachable"], "the console shows the broker"
        eventually(lambda: ran(servers) == FLOWS or process.poll() is not None, "the pipelines' status", 300)
        assert process.poll() is None, out
        try:
            more, errors = process.communicate(timeout=580)
        except subprocess.TimeoutExpired:
            process.terminate()
            raise
    out += more
    assert process.returncode == 0, out + errors
    assert "headrace server" in running
    assert "headrace console" in running
    assert "org.apache.spark.deploy.SparkSubmit" in running
    assert "audit passed: nothing lost, nothing doubled, order per key intact" in out
    assert "1,500 events became" in out
    assert "minutes; their page views match dwd_page" in out
    assert "page views (per minute" in out
    assert "waiting for the first batches" in out
    assert "lag 0" in out
    drawn = chart.read_text()
    assert drawn.count("<svg") == 8
    assert "audit passed" in drawn
    assert list((data / "warehouse" / "dws_traffic").rglob("*.parquet"))
    eventually(lambda: not processes_with(mark), f"nothing is left of {running}", 60)


def ran(servers: str) -> set[str]:
    """Returns the flows that have published that they run, where the console reads it."""
    with Admin(bootstrap_servers=servers) as admin:
        if STATUS_TOPIC not in admin.list_topics():  # a consumer would create it
            return set()
    statuses = [FlowStatus.from_json(record.value) for record in records(servers, STATUS_TOPIC)]
    return {status.key for status in statuses if status.state == "running"}


def test_ignores_aborted_records() -> None:
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        broker.create_topic(DEAD_LETTERS, 1)
        with headrace.Producer(bootstrap_servers=servers, transactional_id="task") as producer:
            producer.init_transactions()
            for reason in ("given up", "no ts"):
                producer.begin_transaction()
                producer.send(DEAD_LETTERS, json.dumps({"reason": reason}).encode()).get(timeout_ms=60_000)
                if reason == "given up":
                    producer.flush()
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
        assert load().read_reasons(servers) == [("no ts", 1)]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shop_demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    return demo


@pytest.mark.parametrize(("lost", "code"), [(0, 0), (1, 1)])
def test_exit_code_is_the_audits(
    lost: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = load()
    report = Report([], [Output("dwd_page", 10 - lost, 10, lost=lost)], [])
    monkeypatch.setattr(demo, "demo", lambda *_: report)
    monkeypatch.setattr(demo.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["shop_demo.py"])
    with pytest.raises(SystemExit) as ended:
        demo.main()
    assert ended.value.code == code
    assert "everything stopped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "named"), [(["--events", "0"], "expected at least 1"), (["--dance"], "unrecognized arguments")]
)
def test_rejects_invalid_options(options: list[str], named: str) -> None:
    ran = subprocess.run([sys.executable, str(DEMO), *options], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 2
    assert named in ran.stderr
