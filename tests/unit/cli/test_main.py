import subprocess
import sys

import pytest
from click.testing import CliRunner

from headrace import __version__
from headrace.cli.main import main


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version(option: str) -> None:
    ran = CliRunner().invoke(main, [option])
    assert (ran.exit_code, ran.output) == (0, f"headrace {__version__}\n")


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help(option: str) -> None:
    ran = CliRunner().invoke(main, [option], prog_name="headrace")
    assert ran.exit_code == 0
    assert ran.output.startswith("Usage: headrace [OPTIONS] COMMAND [ARGS]...")
    assert "Apache Kafka's system in Python" in ran.output


@pytest.mark.parametrize(("arguments", "named"), [(["dance"], "No such command 'dance'"), (["--dance"], "--dance")])
def test_names_unknown_command(arguments: list[str], named: str) -> None:
    ran = CliRunner().invoke(main, arguments)
    assert ran.exit_code == 2
    assert named in ran.output


def test_prints_help_without_command() -> None:
    ran = CliRunner().invoke(main, [], prog_name="headrace")
    assert ran.exit_code == 2
    assert "Usage: headrace" in ran.output


def run_module(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_runs_as_module() -> None:
    ran = run_module("--version")
    assert (ran.returncode, ran.stdout) == (0, f"headrace {__version__}\n")
    ran = run_module("dance")
    assert ran.returncode == 2
    assert "No such command 'dance'" in ran.stderr


def test_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "headrace.shop.datagen", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name in [name for name in sys.modules if name.startswith(("headrace.shop.datagen.", "headrace.records.arrow"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "headrace.shop.datagen")
    ran = CliRunner().invoke(main, ["datagen", "--bootstrap-server", "127.0.0.1:1"])
    assert ran.exit_code == 1
    assert ran.stderr.splitlines() == [
        "headrace: This feature needs pyarrow, which is not installed. Run: pip install 'headrace[arrow]'"
    ]


def test_hints_for_users_of_kafkas_tools() -> None:
    ran = CliRunner().invoke(main, ["kafka-topics.sh", "--list"])
    assert (ran.exit_code, "Did you mean 'headrace topics'?" in ran.output) == (2, True)
    ran = CliRunner().invoke(main, ["topics", "--zookeeper", "localhost:2181", "--list"])
    assert ran.exit_code == 1
    assert "No such option --zookeeper: " in ran.output
    assert "use --bootstrap-server HOST:PORT of a broker" in ran.output
