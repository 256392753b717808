"""What `make run` runs: all the way with few events, and what it says when the audit fails."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.support.apache_kafka_jvm import KafkaUnavailable, require_java
from tests.support.spark_session import worker_environment

from headrace.pipelines.audit.report import Output, Report

DEMO = Path(__file__).parents[3] / "examples" / "shop_demo.py"


def test_the_demo_runs(tmp_path: Path) -> None:
    try:
        require_java()
    except KafkaUnavailable as error:
        pytest.skip(f"Spark needs Java: {error}")
    chart, data = tmp_path / "charts" / "traffic.html", tmp_path / "data"
    options = ["--events", "1500", "--rate", "1000", "--chart", str(chart), "--directory", str(data)]
    ran = subprocess.run(
        [sys.executable, str(DEMO), *options, "--master", "local[2]"],
        env={**os.environ, **worker_environment()},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "audit passed: nothing lost, nothing doubled, order per key intact" in ran.stdout
    assert "1,500 events became" in ran.stdout
    assert "minutes, which add up" in ran.stdout
    assert "page views (a minute" in ran.stdout
    assert "<svg" in chart.read_text()
    assert list((data / "warehouse" / "dws_traffic").rglob("*.parquet"))
    left = subprocess.run(["pgrep", "-f", str(data)], capture_output=True, text=True)
    assert left.stdout == "", "something is still running"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shop_demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    return demo


@pytest.mark.parametrize(("lost", "code"), [(0, 0), (1, 1)])
def test_the_exit_code_is_that_of_the_audit(
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
    assert "everything is stopped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "named"), [(["--events", "0"], "expected at least 1"), (["--dance"], "unrecognized arguments")]
)
def test_command_lines_that_make_no_sense(options: list[str], named: str) -> None:
    ran = subprocess.run([sys.executable, str(DEMO), *options], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 2
    assert named in ran.stderr
