"""The examples of docs/tools.md, run in a shell in order; `...` on the page matches anything."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.security.sasl_broker import jaas, sasl_properties

from headrace.cli.main import TOOLS
from headrace.testing import EmbeddedBroker

PAGE = Path(__file__).parents[3] / "docs" / "tools.md"
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


def examples() -> list[tuple[str, str]]:
    """Returns commands and their output."""
    found: list[tuple[str, str]] = []
    for block in _BLOCK.findall(PAGE.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def pattern(text: str) -> str:
    lines = [re.escape(line.rstrip()).replace(r"\.\.\.", r"[\s\S]*") for line in text.rstrip().splitlines()]
    return "\n".join(lines) + r"\s*"


def test_examples_run(tmp_path: Path) -> None:
    settings = sasl_properties() | {
        "group.initial.rebalance.delay.ms": 0,
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "authorizer.class.name": "headrace",
        "super.users": "User:ANONYMOUS;User:broker",
        "delegation.token.secret.key": "secret",
    }
    with EmbeddedBroker(settings, data_dir=tmp_path / "data") as broker:
        with_sasl = broker.call(lambda running: running.endpoints[1].port)
        login = jaas(user="alice", users=False)
        (tmp_path / "alice.properties").write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n"
        )
        (tmp_path / "headrace").write_text(f'#!/bin/sh\nexec {sys.executable} -m headrace "$@"\n')
        (tmp_path / "headrace").chmod(0o755)
        (tmp_path / "server.properties").write_text(f"log.dirs={tmp_path}/new\n")
        for command, output in examples():
            ran = subprocess.run(
                [
                    "bash",
                    "-o",
                    "pipefail",
                    "-c",
                    command.replace("localhost:9092", broker.bootstrap_servers)
                    .replace("localhost:9093", f"127.0.0.1:{with_sasl}")
                    .replace("data/", f"{tmp_path}/data/"),
                ],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=120,
                env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
                check=False,
            )
            printed = ran.stdout.replace(broker.bootstrap_servers, "127.0.0.1:9092").replace(f"{tmp_path}/", "")
            assert ran.returncode in (0, 141), f"{command}\n{printed}"  # 141: head has seen enough
            printed = "\n".join(line.rstrip() for line in printed.rstrip().splitlines())
            assert re.fullmatch(pattern(output), printed), f"{command}\n--- printed\n{printed}\n--- expected\n{output}"


def test_every_tool_has_an_example() -> None:
    run = " ".join(command for command, _ in examples())
    missing = [name for name in TOOLS if f"headrace {name} " not in run]
    assert [
        name for name in missing if name not in ("console", "datagen", "pipeline", "server", "zookeeper-server")
    ] == []
