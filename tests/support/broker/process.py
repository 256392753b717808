"""Brokers for tests: Headrace in its own process, or Apache Kafka.

Either can be stopped, killed, and started again on the same port and data.
"""

import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol

from tests.support.apache_kafka.broker import BrokerFailed, KafkaBroker

HOST = "127.0.0.1"
START_SECONDS = STOP_SECONDS = 60.0
# Below the ephemeral ports. A client that repeatedly connects to an ephemeral port while the broker is down may get
# that port as its own, connect to itself, and keep the broker from binding it.
PORTS = range(20_000, 32_000)
READY = re.compile(rb"\bready\b.*?" + re.escape(HOST).encode() + rb":(\d+)")


class Broker(Protocol):
    """The interface of a broker under test (see `under_test`)."""

    @property
    def data_dir(self) -> Path: ...
    @property
    def bootstrap(self) -> str: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def __enter__(self) -> "Broker": ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Headrace:
    """`headrace server` with its defaults, except for the address, the directory and *properties*."""

    def __init__(self, data_dir: Path, properties: Mapping[str, object] | None = None, port: int | None = None) -> None:
        self.data_dir = data_dir
        self.log_file = data_dir.with_name(data_dir.name + ".log")
        self._properties = dict(properties or {})
        self._port = port or free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def __enter__(self) -> "Headrace":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the broker and returns when it is ready."""
        assert self._process is None, "the broker is running"
        settings: dict[str, object] = {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": self.data_dir,
            **self._properties,
        }
        command = [sys.executable, "-m", "headrace", "server"]
        for key, value in settings.items():
            command += ["--override", f"{key}={value}"]
        with self.log_file.open("ab") as output:
            said = output.tell()
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        deadline = time.monotonic() + START_SECONDS
        while not READY.search(self.log_file.read_bytes()[said:]):
            status = self._process.poll()
            if status is not None or time.monotonic() > deadline:
                self.kill()
                raise BrokerFailed(f"the broker did not get ready (exit status {status})\n{self._log_tail()}")
            time.sleep(0.01)

    def stop(self) -> None:
        """Stops the broker cleanly (SIGTERM); fails if it had already exited."""
        process = self._process
        if process is None:
            return
        died = process.poll()
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(f"the broker did not stop\n{self._log_tail()}") from None
        self._process = None
        if died is not None or status != 0:
            raise BrokerFailed(f"the broker had died or ended badly: {died}, {status}\n{self._log_tail()}")

    def kill(self) -> None:
        """Kills the broker (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])


class Kafka(KafkaBroker):
    """Apache Kafka, which restarts on the same port."""

    def start(self) -> None:
        if self.port:
            self._launch(self._write_config())
        else:
            super().start()

    def _write_config(self) -> Path:
        if self.port not in PORTS:
            self.port = free_port()
        return super()._write_config()


def free_port() -> int:
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port


def eventually(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Waits for a condition: Kafka reports a change before every broker's metadata cache shows it."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in {seconds:.0f} s: {what}"
        time.sleep(0.02)
