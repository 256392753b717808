"""A real ZooKeeper for tests: one server, or an ensemble, on free ports of the loopback.

    with ZooKeeper(tmp_path) as zookeeper:                 # or ZooKeeper(tmp_path, servers=3)
        store = await ZooKeeperStore.open(zookeeper.connect)

Servers can be killed, paused and started again with their data. `cheap_sessions` configs allow short session timeouts.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support.broker.process import HOST, free_port

START_SECONDS = 90.0
_DEFAULTS = {"tickTime": 500, "minSessionTimeout": 500, "maxSessionTimeout": 60_000, "forceSync": "no"}


class ZooKeeperFailed(Exception):
    """A server did not start; the message ends with its log."""


class Server:
    """One server process."""

    def __init__(self, directory: Path, properties: Mapping[str, object]):
        self.port = free_port()
        self.log_file = directory.with_name(directory.name + ".log")
        self._directory = directory
        self._properties = {**_DEFAULTS, **properties, "dataDir": directory, "clientPort": self.port}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def launch(self) -> None:
        """Starts the process without waiting for it."""
        assert self._process is None, "the server is running"
        command = [sys.executable, "-m", "headrace", "zookeeper-server"]
        for key, value in self._properties.items():
            command += ["--override", f"{key}={value}"]
        with self.log_file.open("ab") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self.mode():
            assert self._process is not None
            status = self._process.poll()
            if status is not None or time.monotonic() > deadline:
                self.kill()
                raise ZooKeeperFailed(
                    f"ZooKeeper did not get ready (exit status {status})\n{self.log_file.read_text(errors='replace')}"
                )
            time.sleep(0.05)

    def mode(self) -> str:
        """Returns standalone, leader or follower; nothing if the server does not serve."""
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                answer = connection.makefile("rb").read().decode()
        except OSError:
            return ""
        _, found, rest = answer.partition("Mode: ")
        return rest.split()[0] if found else ""

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Stops the server with SIGTERM."""
        if self._process is not None:
            self.resume()
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGCONT)


class ZooKeeper:
    """A server or an ensemble."""

    def __init__(self, directory: Path, servers: int = 1, properties: Mapping[str, object] | None = None):
        settings = dict(properties or {})
        if servers > 1:
            for number in range(1, servers + 1):
                settings[f"server.{number}"] = f"{HOST}:{free_port()}:{free_port()}"
        self.servers = [Server(directory / f"zookeeper-{number}", settings) for number in range(1, servers + 1)]
        for number, server in enumerate(self.servers, 1):
            server._directory.mkdir(parents=True)
            (server._directory / "myid").write_text(str(number))

    @property
    def connect(self) -> str:
        """The value of `zookeeper.connect`."""
        return ",".join(server.address for server in self.servers)

    def leader(self) -> Server:
        """Returns the leader of the ensemble, or the only server."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            for server in self.servers:
                if server.mode() in ("leader", "standalone"):
                    return server
            assert time.monotonic() < deadline, "the ensemble has no leader"
            time.sleep(0.05)

    def __enter__(self) -> "ZooKeeper":
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for server in self.servers:
            server.resume()
            server.kill()
