"""A standalone Spark cluster on this machine: a master and workers, started from PySpark's jars.

Each runs in its own JVM. Executors get Python and the package from the environment, as on a machine where Headrace is
installed. Drivers also run in separate processes, because the test's process already has a local Spark.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.apache_kafka.jvm import require_java
from tests.support.broker.process import HOST, free_port
from tests.support.spark.session import worker_environment

START_SECONDS = 240.0
WORKER_CORES = 1
EXECUTOR_SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": str(WORKER_CORES),
    "spark.driver.host": HOST,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class ClusterFailed(Exception):
    """The cluster did not start; the message contains the end of its log."""


class SparkCluster:
    def __init__(self, directory: Path, workers: int = 2, *, executor_options: str = "") -> None:
        """`executor_options` are options for the JVMs of executors, in addition to those of the application."""
        self.directory = directory
        self._executor_options = executor_options
        self.port = free_port()
        self._web_port = free_port()
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://{HOST}:{self.port}"

    @property
    def log_file(self) -> Path:
        return self.directory / "cluster.log"

    def __enter__(self) -> "SparkCluster":
        require_java()
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            self._start(
                "org.apache.spark.deploy.master.Master",
                ["--host", HOST, "--port", str(self.port), "--webui-port", str(self._web_port)],
            )
            self._await(lambda: self.status() is not None, "the master answers")
            for number in range(self._workers):
                self.start_worker(number)
            self._await(lambda: self.alive_workers() == self._workers, f"{self._workers} workers are there")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            kill_tree(process.pid)
            process.wait()
        self._processes.clear()

    def start_worker(self, number: int) -> subprocess.Popen[bytes]:
        work = self.directory / f"worker-{number}"
        arguments = ["--host", HOST, "--cores", str(WORKER_CORES), "--memory", "1g", "--work-dir", str(work)]
        return self._start(
            "org.apache.spark.deploy.worker.Worker", [*arguments, "--webui-port", str(free_port()), self.master]
        )

    def _start(self, main_class: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = {**worker_environment(), "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"}
        if self._executor_options:  # the workers pass their environment on
            environment["JDK_JAVA_OPTIONS"] = self._executor_options
        command = ["java", *_JVM, "-cp", str(home / "jars" / "*"), main_class, *arguments]
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, **environment},
            )
        self._processes.append(process)
        return process

    def status(self) -> dict[str, Any] | None:
        """Returns the master's status, or None while it does not respond."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._web_port}/json/", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError:
            return None

    def alive_workers(self) -> int:
        return int((self.status() or {}).get("aliveworkers", 0))

    def _await(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            dead = [process.poll() for process in self._processes if process.poll() is not None]
            if dead or time.monotonic() > deadline:
                tail = "\n".join(self.log_file.read_text(errors="replace").splitlines()[-30:])
                raise ClusterFailed(f"not so: {what} (ended: {dead})\n{tail}")
            time.sleep(0.05)

    def executors(self) -> list[int]:
        """Returns the processes of executors."""
        return [
            child
            for process in self._processes[1:]
            for child in descendants(process.pid)
            if b"CoarseGrainedExecutorBackend" in _command_line(child)
        ]


def descendants(pid: int) -> list[int]:
    """Returns all descendants of a process."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for each in level for child in parents.get(each, ())]
        found += level
    return found


def processes_with(variable: str) -> list[str]:
    """Returns the command lines of all processes with this `NAME=value` in their environment, including orphans and
    processes in other sessions."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(f"{entry.name}: {_command_line(int(entry.name)).replace(bytes(1), b' ').decode()}")
    return found


def _command_line(pid: int) -> bytes:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def kill_tree(pid: int) -> None:
    """Kills a process and all its descendants at once, as if the machine had lost power."""
    processes = [pid, *descendants(pid)]
    for each in processes:
        _signal(each, signal.SIGSTOP)  # so that no process notices the end of another and cleans up
    for each in [*processes, *descendants(pid)]:
        _signal(each, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def start_headrace(
    arguments: Sequence[object], log_file: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Starts a `headrace` command with this Python; its output goes to a file."""
    return start_python(["-m", "headrace", *arguments], log_file, environment)


def start_python(
    arguments: Sequence[object], log_file: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    with log_file.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **worker_environment(), **(environment or {})},
        )


def python_workers(pid: int) -> list[int]:
    """Returns a driver's Python processes that run tasks: the children of a daemon. The driver has other Python
    processes; killing one of those ends the query."""
    found = []
    for each in descendants(pid):
        try:
            command = Path(f"/proc/{each}/cmdline").read_bytes()
        except OSError:
            continue
        if b"daemon" in command and b"pyspark.worker" in command.split(b"\0"):
            found += [child for child in descendants(each) if child not in found]
    return found
