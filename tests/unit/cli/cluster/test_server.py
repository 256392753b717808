import errno
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headrace.cli.cluster.server import EMBEDDED_DEFAULTS, collect_properties, raise_file_limit
from headrace.cli.main import TOOLS, main
from headrace.common.errors import ConfigError


def test_uses_defaults_without_file() -> None:
    assert collect_properties(None, ()) == EMBEDDED_DEFAULTS
    assert collect_properties(None, ("log.dirs = /data=1", "num.partitions=3")) == {
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "log.dirs": "/data=1",
        "num.partitions": "3",
    }


def test_overrides_take_precedence_over_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\nlog.dirs=a\n")
    assert collect_properties(str(file), ("num.partitions=2", "num.partitions=3")) == {
        "num.partitions": "3",
        "log.dirs": "a",
    }
    with pytest.raises(ConfigError, match="Cannot read"):
        collect_properties(str(tmp_path / "missing"), ())


@pytest.mark.parametrize("override", ["num.partitions", "=3", " =3"])
def test_rejects_override_without_key_or_value(override: str) -> None:
    with pytest.raises(click.BadParameter, match="expected KEY=VALUE"):
        collect_properties(None, (override,))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-o", "num.partitions"], 2, "'num.partitions': expected KEY=VALUE"),
        (["a", "b"], 2, "unexpected extra argument"),
        (["--nonsense"], 2, "No such option"),
        (["missing.properties"], 1, "headrace: Cannot read missing.properties: No such file or directory\n"),
        (["-o", "num.partition=1"], 1, "unknown configuration key 'num.partition', did you mean 'num.partitions'?\n"),
        (["-o", "num.partitions=x"], 1, "Invalid value x for configuration num.partitions: Not a number of type INT"),
        (
            ["-o", "listeners=SSL://:1"],
            1,
            "security.inter.broker.protocol=PLAINTEXT must be the protocol of a listener",
        ),
        (["--log-level", "loud"], 1, "Invalid log level 'loud'"),
    ],
)
def test_startup_errors_are_one_line(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headrace.cli.cluster.server.set_up_logging", _check_levels)
    ran = CliRunner().invoke(main, ["server", *arguments], prog_name="headrace")
    assert ran.exit_code == code
    assert message in ran.stderr
    assert ran.stdout == ""
    assert code == 2 or len(ran.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def _check_levels(levels: tuple[str, ...], source: str = "") -> None:
    """Runs in a subprocess because logging configuration is global."""
    if "loud" in levels:
        raise ConfigError("Invalid log level 'loud'")


def test_help_imports_no_tool() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from headrace.cli.main import main\n"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0\n"
        "assert not {'headrace.cli.cluster.server', 'headrace.broker', 'asyncio'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_help() -> None:
    ran = CliRunner().invoke(main, ["server", "--help"], prog_name="headrace")
    assert ran.exit_code == 0
    assert "server.properties" in ran.output
    shown = CliRunner().invoke(main, ["--help"], prog_name="headrace").output
    for name, (_, text) in TOOLS.items():
        assert re.search(rf"^  {name} +{re.escape(text)}$", shown, re.MULTILINE)


def test_raises_limit_of_open_files() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 256 + len(os.listdir("/proc/self/fd"))), before[1]))
    try:
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_print_config_prints_a_valid_file(tmp_path: Path) -> None:
    printed = CliRunner().invoke(main, ["server", "--print-config", "-o", "num.partitions=3"])
    assert printed.exit_code == 0
    file = tmp_path / "server.properties"
    file.write_text(printed.output)
    assert collect_properties(str(file), ()) == {**EMBEDDED_DEFAULTS, "num.partitions": "3"}


def test_print_config_rejects_unknown_configs() -> None:
    printed = CliRunner().invoke(main, ["server", "--print-config", "-o", "num.partitons=3"])
    assert printed.exit_code == 1
    assert "num.partitions" in printed.output


def test_unreadable_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object, source: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "data/meta.properties")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headrace.cli.cluster.server.set_up_logging", fail)
    ran = CliRunner().invoke(main, ["server"])
    assert ran.exit_code == 1
    assert ran.stderr == "headrace: Cannot access data/meta.properties: Permission denied\n"
