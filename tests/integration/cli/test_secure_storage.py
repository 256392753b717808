"""`headrace storage secure`: the five commands of docs/security.md, and what the users may do after them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.broker.process import free_port

from headrace.cli.main import main

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
SECONDS = 240


def commands(port: int) -> list[str]:
    """Returns the commands of the page, with another port."""
    (block,) = re.findall(r"```console\n(\$ headrace storage secure .*?)```", PAGE.read_text(), re.DOTALL)
    found = [line.removeprefix("$ ") for line in block.splitlines()]
    assert len(found) == 5
    found[0] += f" --port {port}"
    return [command.replace(":9093", f":{port}") for command in found]


def bash(script: list[str], directory: Path) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def test_five_commands(tmp_path: Path) -> None:
    port = free_port()
    secure, server, *others = commands(port)
    server = server.partition("#")[0]
    tool = f"--bootstrap-server localhost:{port} --topic orders --command-config demo"
    shown = bash(
        [
            "set -e",
            secure,
            f"{server} > server.log 2>&1 &",
            "trap 'kill $!; wait $! || true' EXIT",
            "until grep -q ^ready server.log; do kill -0 $! && sleep 0.1; done",
            *others,
            "set +e",
            # What the users may not do.
            f"echo two | headrace console-producer {tool}/bob.properties && echo bob-may-write",
            f"headrace console-consumer {tool}/alice.properties --from-beginning --timeout-ms 60000"
            " --max-messages 1 && echo alice-may-read",
            "exit 0",
        ],
        tmp_path,
    )
    assert "Made a broker in demo with the users admin, alice, bob." in shown
    assert "Created topic orders." in shown
    assert re.search(r"^one$", shown, re.MULTILINE)
    assert "bob-may-write" not in shown
    assert "alice-may-read" not in shown
    for file in (tmp_path / "demo").iterdir():
        assert file.is_dir() or file.stat().st_mode & 0o077 == 0, file
    passwords = re.findall(r'password="(.*?)"', (tmp_path / "demo" / "alice.properties").read_text())
    assert passwords[0] not in shown + (tmp_path / "server.log").read_text()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--producer", "alice"], "'alice': expected USER:TOPIC"),
        (["--consumer", 'a"b:t'], "expected USER:TOPIC"),
        (["--consumer", "admin:t"], "choose another user"),
        (["--port", "0"], "1<=x<=65535"),
    ],
)
def test_wrong_input(tmp_path: Path, arguments: list[str], problem: str) -> None:
    ran = CliRunner().invoke(main, ["storage", "secure", str(tmp_path / "demo"), *arguments])
    assert ran.exit_code != 0
    assert problem in ran.output
    assert not (tmp_path / "demo").exists()


def test_directory_must_be_new(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = CliRunner().invoke(main, ["storage", "secure", str(tmp_path)])
    assert ran.exit_code == 1
    assert "is not empty: choose a new one" in ran.output
