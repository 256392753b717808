"""`headrace server --processes N` for tests: the parent, its brokers and its log."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support.apache_kafka.broker import BrokerFailed
from tests.support.broker.process import HOST, eventually, free_port

PATIENCE_SECONDS = 120.0
SESSION_TIMEOUT_MS = 3_000
_STARTED = re.compile(r"Started broker (\d+) as process (\d+)")


class ServerProcesses:
    """The parent process. Its brokers have the ids 1, 2 and so on, and keep their ports over restarts."""

    def __init__(self, directory: Path, processes: int = 2, properties: Mapping[str, object] | None = None):
        self.directory = directory
        self.log_file = directory / "server.log"
        self.ports = free_ports(processes)
        self._processes = processes
        self._properties = {
            "broker.id": 1,
            "listeners": f"PLAINTEXT://{HOST}:{self.ports[0]}",
            "log.dirs": directory / "d",
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
            "replica.lag.time.max.ms": 5_000,
            "controlled.shutdown.retry.backoff.ms": 100,
            "group.initial.rebalance.delay.ms": 0,
            **(properties or {}),
        }
        self._parent: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    @property
    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    def pid(self, broker: int) -> int:
        """Returns the process id of a broker's latest process."""
        return [int(pid) for number, pid in _STARTED.findall(self.log) if int(number) == broker][-1]

    @property
    def pids(self) -> list[int]:
        """The process ids of all brokers that have ever run."""
        return [int(pid) for _, pid in _STARTED.findall(self.log)]

    def start(self) -> str:
        """Starts the parent. Returns its ready line."""
        command = [sys.executable, "-m", "headrace", "server", "--processes", str(self._processes)]
        for key, value in self._properties.items():
            command += ["--override", f"{key}={value}"]
        with self.log_file.open("a") as log:
            self._parent = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._parent.stdout is not None
        line = self._parent.stdout.readline()
        if not line.startswith("ready "):
            code = self._parent.wait(PATIENCE_SECONDS)
            self._close()
            raise BrokerFailed(f"the brokers did not get ready (exit status {code})\n{self.log}")
        return line

    def stop(self) -> int:
        """Sends SIGTERM and returns the exit code."""
        assert self._parent is not None
        self._parent.send_signal(signal.SIGTERM)
        code = self._parent.wait(PATIENCE_SECONDS)
        self._close()
        return code

    def _close(self) -> None:
        assert self._parent is not None
        assert self._parent.stdout is not None
        self._parent.stdout.close()
        self._parent = None

    def kill_parent(self) -> None:
        """Kills the parent and waits until its brokers have ended by themselves."""
        assert self._parent is not None
        self._parent.kill()
        self._parent.wait()
        self._close()
        eventually(lambda: not any(map(_is_running, self.pids)), "all brokers have ended", PATIENCE_SECONDS)

    def signal(self, broker: int, number: signal.Signals) -> None:
        os.kill(self.pid(broker), number)

    def __enter__(self) -> "ServerProcesses":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._parent is not None:
            for pid in filter(_is_running, self.pids):
                os.kill(pid, signal.SIGCONT)
            self.kill_parent()


def free_ports(count: int) -> list[int]:
    """Returns ports in a row that are free."""
    while True:
        ports = [free_port()]
        ports += range(ports[0] + 1, ports[0] + count)
        if all(_is_free(port) for port in ports):
            return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _is_running(pid: int) -> bool:
    """Returns True if this is a broker's process: its number may have been given to another program since."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"--supervised" in arguments


def wait_for_line(server: ServerProcesses, text: str, count: int = 1) -> None:
    """Waits until the log has as many lines with a text."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while server.log.count(text) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{text!r} is not {count} times in the log:\n{server.log[-5000:]}")
        time.sleep(0.02)
