"""Runs Apache Kafka for the tests: its broker, its tools, its clients.

Everything a test needs is importable from here.  :class:`KafkaUnavailable` is raised if Kafka is not available, so that
a fixture can skip with the reason.
"""

from __future__ import annotations

import atexit
import re
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.support.apache_kafka.clients import JavaClient, LibrdkafkaProducer, SampleRecord, read_back, read_back_all
from tests.support.apache_kafka.dump_log import DumpBatch, DumpProblem, DumpRecord, DumpResult, dump_log
from tests.support.apache_kafka.jvm import (
    KAFKA_VERSION,
    LAST_WITH_ZOOKEEPER,
    NEWEST,
    TOOL_JVM_ARGS,
    JavaFailed,
    KafkaRelease,
    KafkaUnavailable,
    kafka_classpath,
    run_java,
    start_java,
)
from tests.support.apache_kafka.samples import CODECS, SampleData, sample_topic_configs, write_sample_data

__all__ = [
    "CODECS",
    "KAFKA_VERSION",
    "LAST_WITH_ZOOKEEPER",
    "BrokerFailed",
    "DumpBatch",
    "DumpProblem",
    "DumpRecord",
    "DumpResult",
    "JavaClient",
    "JavaFailed",
    "KafkaBroker",
    "KafkaOnZooKeeper",
    "KafkaUnavailable",
    "LibrdkafkaProducer",
    "SampleData",
    "SampleRecord",
    "answers_metadata",
    "dump_log",
    "kafka_classpath",
    "read_back",
    "read_back_all",
    "run_java",
    "sample_topic_configs",
    "start_java",
    "write_sample_data",
]

HOST = "127.0.0.1"
CLUSTER_ID = "aGVhZHJhY2UtdGVzdHMtMQ"
_PORT_ATTEMPTS = 3
_ERROR_LINE = re.compile(r"\] (ERROR|FATAL) |Exception\b|OutOfMemory")
_BROKER_JVM_ARGS = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC")


class BrokerFailed(Exception):
    """The broker did not start, or crashed; the message ends with the tail of its log."""


class KafkaBroker:
    """A single Kafka node, broker and controller in one, on free ports of the loopback.

    *data_dir* becomes Kafka's log directory and is formatted when it is empty;
    an existing one is kept, so a stopped or killed broker can be started again. The configuration and the broker's
    output are in ``<data_dir>.broker/``. *properties* override the configuration.
    """

    release: KafkaRelease = NEWEST

    def __init__(
        self,
        data_dir: Path | str,
        properties: Mapping[str, object] | None = None,
        *,
        jvm_args: Sequence[str] = _BROKER_JVM_ARGS,
        format_args: Sequence[str] = (),
        start_timeout: float = 90.0,
        stop_timeout: float = 60.0,
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.properties = dict(properties or {})
        self.work_dir = self.data_dir.with_name(self.data_dir.name + ".broker")
        self.log_file = self.work_dir / "server.log"
        self.port = 0
        self.controller_port = 0
        self._jvm_args = tuple(jvm_args)
        self._format_args = tuple(format_args)
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients, ``host:port``."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the broker and returns when it answers a metadata request."""
        if self._process is not None:
            raise RuntimeError("the broker is running")
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            config = self.prepare(*_free_ports(2))
            try:
                self._launch(config)
            except BrokerFailed:
                # Another process took the port before the broker bound it.
                if "Address already in use" in self._log_text() and attempt < _PORT_ATTEMPTS:
                    continue
                raise
            return

    def prepare(self, port: int, controller_port: int) -> Path:
        """Writes the configuration and formats the directory if it is empty. Returns the argument of :meth:`spawn`."""
        self.port, self.controller_port = port, controller_port
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.work_dir.mkdir(parents=True, exist_ok=True)
        config = self._write_config()
        self._format(config)
        return config

    def stop(self) -> None:
        """Shuts the broker down cleanly (SIGTERM). Does nothing if it is not running."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(self._stop_timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise BrokerFailed(
                    f"the broker did not stop within {self._stop_timeout:.0f} s{self._log_tail()}"
                ) from None
        elif process.returncode not in (0, 128 + signal.SIGTERM, -signal.SIGTERM):
            self._forget()
            raise BrokerFailed(f"the broker had already exited with status {process.returncode}{self._log_tail()}")
        self._forget()

    def kill(self) -> None:
        """Kills the broker (SIGKILL), like a crash."""
        process = self._process
        if process is None:
            return
        process.kill()
        process.wait()
        self._forget()

    def wait(self, seconds: float) -> int:
        """Waits until the broker ends by itself. Returns its exit status."""
        assert self._process is not None
        return self._process.wait(seconds)

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        return self.data_dir / f"{topic}-{partition}"

    def _forget(self) -> None:
        self._process = None
        atexit.unregister(self.kill)

    def _write_config(self) -> Path:
        config = self.work_dir / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in {**self._settings(), **self.properties}.items()))
        return config

    def _settings(self) -> dict[str, object]:
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{HOST}:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self.data_dir,
            "num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.backoff.ms": 200,
            "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
            "log.cleaner.threads": 1,
            "num.io.threads": 4,
            "num.network.threads": 2,
            # A killed broker can register again only after its session has expired at the controller.
            "broker.session.timeout.ms": 4000,
            "broker.heartbeat.interval.ms": 1000,
        }

    def _format(self, config: Path) -> None:
        if (self.data_dir / "meta.properties").exists():
            return
        run_java(
            "kafka.tools.StorageTool",
            ["format", "--config", config, "--cluster-id", CLUSTER_ID, *self._format_args],
        )

    def _launch(self, config: Path) -> None:
        self.spawn(config)
        self._await_answer()

    def spawn(self, config: Path) -> None:
        """Starts the process without waiting for it."""
        if self.log_file.exists():
            shutil.move(self.log_file, self.log_file.with_suffix(".log.previous"))
        temporary = self.work_dir / "tmp"  # a killed JVM leaves its native libraries there
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        with self.log_file.open("wb") as output:
            process = start_java(
                "kafka.Kafka",
                [config],
                release=self.release,
                jvm_args=[*self._jvm_args, f"-Djava.io.tmpdir={temporary}"],
                log_level="INFO",
                stdout=output,
                stderr=output,
                cwd=self.work_dir,
            )
        self._process = process
        atexit.register(self.kill)

    def _await_answer(self) -> None:
        process = self._process
        assert process is not None
        deadline = time.monotonic() + self._start_timeout
        while not answers_metadata(self.port):
            if process.poll() is not None:
                self._forget()
                raise BrokerFailed(f"the broker exited with status {process.returncode}{self._log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerFailed(f"no response from the broker within {self._start_timeout:.0f} s{self._log_tail()}")
            time.sleep(0.05)

    def _log_text(self) -> str:
        try:
            return self.log_file.read_text(errors="replace")
        except OSError:
            return ""

    def _log_tail(self, lines: int = 20) -> str:
        """Returns the lines that look like errors (a long shutdown may follow them), and the last lines."""
        log = self._log_text().splitlines()
        errors = [line for line in log if _ERROR_LINE.search(line)]
        return "\n".join(["", "--- errors in the broker's log ---", *errors[:lines], "--- its end ---", *log[-lines:]])


class KafkaOnZooKeeper(KafkaBroker):
    """A broker of Apache Kafka 3.9 in a cluster with ZooKeeper, on a fixed port. *properties* name id and ZooKeeper."""

    release = LAST_WITH_ZOOKEEPER

    def __init__(self, data_dir: Path, port: int, properties: Mapping[str, object]) -> None:
        super().__init__(data_dir, properties, jvm_args=TOOL_JVM_ARGS, start_timeout=180.0, stop_timeout=180.0)
        self.port = port

    def start(self) -> None:
        if self._process is not None:
            raise RuntimeError("the broker is running")
        self._launch(self.prepare(self.port, 0))

    def _settings(self) -> dict[str, object]:
        return {
            "inter.broker.protocol.version": "3.9",
            "listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "log.dirs": self.data_dir,
            "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
            "log.cleaner.threads": 1,
            "num.io.threads": 4,
            "num.network.threads": 2,
        }

    def _format(self, config: Path) -> None:
        """The first start writes `meta.properties`."""


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def answers_metadata(port: int) -> bool:
    """Returns True if the response to a Metadata request (version 1, no topics) contains a broker."""
    request = struct.pack(">hhihi", 3, 1, 1, -1, 0)
    try:
        with socket.create_connection((HOST, port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as stream:
                answer = stream.read(12)  # size, correlation id, number of brokers
    except OSError:
        return False
    if len(answer) < 12:
        return False
    _, correlation, brokers = struct.unpack(">iii", answer)
    return bool(correlation == 1 and brokers > 0)
