"""`headrace zookeeper-server` as a process."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.broker.process import free_port
from tests.support.cluster.zookeeper import ZooKeeper

SECONDS = 90.0


def command(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "headrace", "zookeeper-server", *arguments],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_runs_until_signal(tmp_path: Path, signum: int) -> None:
    port = free_port()
    (tmp_path / "zoo.cfg").write_text(
        f"dataDir=data\nclientPort=1\nclientPortAddress=127.0.0.1\ntickTime={port % 999}\n"
    )
    with command(tmp_path, "zoo.cfg", "-o", f"clientPort={port}") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready 127.0.0.1:{port}\n"
        assert (tmp_path / "data" / "version-2").is_dir()
        process.send_signal(signum)
        assert process.wait(SECONDS) == 128 + signum


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "clientPort=none"), "clientPort=none is invalid"),
        (("missing.properties",), "Cannot read missing.properties"),
        (("-o", "server.1=127.0.0.1:1:2"), "myid does not exist"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    process = command(tmp_path, "-o", f"clientPort={free_port()}", *arguments)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert message in errors
    assert errors.count("\n") == 1


def test_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = command(tmp_path, "-o", f"clientPort={taken.getsockname()[1]}")
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "Address already in use" in errors


def test_ensemble_elects_a_leader(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path, servers=3) as ensemble:
        first = ensemble.leader()
        assert sorted(server.mode() for server in ensemble.servers) == ["follower", "follower", "leader"]
        first.kill()
        assert ensemble.leader() is not first
        first.start()
        assert first.mode() == "follower"
