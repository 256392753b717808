"""ZooKeeper and brokers, of Headrace or Apache Kafka 3.9, each on a machine of its own.

A broker's data is on a small file system of its own, which can be filled up. If the run has clock faults, the offset of
a broker's clock is in a file. Headrace runs with `skewed_clock`, Kafka with libfaketime; both read the file again and
again.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import confluent_kafka as confluent
from confluent_kafka.admin import AdminClient, NewTopic
from tests.jepsen.run.network import Network
from tests.support.apache_kafka.broker import KafkaOnZooKeeper
from tests.support.apache_kafka.jvm import apt_lock

ROOT = Path(__file__).parents[3]
PORT = 9092
ZOOKEEPER_PORT = 2181
DISK_BYTES = 256 << 20
PATIENCE_SECONDS = 300.0
SESSION_TIMEOUT_MS = {"headrace": 4_000, "kafka": 10_000}
KINDS = ("headrace", "kafka")
_FAKETIME = "faketime/libfaketime.so.1"


class FaketimeUnavailable(Exception):
    """libfaketime is not installed, and cannot be."""


def faketime_library() -> str:
    for attempt in range(2):
        found = next(Path("/usr/lib").glob(f"*/{_FAKETIME}"), None)
        if found is not None:
            return str(found)
        if attempt == 0 and shutil.which("apt-get"):
            with apt_lock():
                command = ["apt-get", "-qy", "install", "faketime"]
                subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=600, check=False)
    raise FaketimeUnavailable("faketime is not installed and apt-get could not install it")


class Machine(ABC):
    """One process in a namespace. Its log survives restarts."""

    def __init__(self, name: str, network: Network, directory: Path):
        self.name = name
        self.network = network
        self.directory = directory / name
        self.directory.mkdir(parents=True)
        self.address = network.add(name)
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def start_process(self) -> "subprocess.Popen[bytes]":
        """Starts the process, within the namespace."""

    @property
    def log_file(self) -> Path:
        return self.directory / "server.log"

    def launch(self) -> None:
        """Starts the process without waiting for it."""
        with self.network.inside(self.name):
            self.process = self.start_process()

    @property
    def status(self) -> int | None:
        """The exit status, or None while the process runs."""
        return None if self.process is None else self.process.poll()

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self, seconds: float = 60.0) -> None:
        """Ends the process with SIGTERM, and with SIGKILL if it takes too long."""
        self.signal(signal.SIGTERM)
        if self.process is not None:
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def log_tail(self, lines: int = 15) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])


class ZooKeeperMachine(Machine):
    def start_process(self) -> "subprocess.Popen[bytes]":
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        settings: dict[str, object] = {
            "dataDir": data,
            "clientPort": ZOOKEEPER_PORT,
            "clientPortAddress": self.address,
            "tickTime": 500,
            "minSessionTimeout": 500,
            "maxSessionTimeout": 60_000,
            "forceSync": "no",
        }
        return _start_python(["headrace", "zookeeper-server"], settings, self.log_file)

    @property
    def connect(self) -> str:
        return f"{self.address}:{ZOOKEEPER_PORT}"

    def serves(self) -> bool:
        with suppress(OSError), socket.create_connection((self.address, ZOOKEEPER_PORT), timeout=2) as connection:
            connection.settimeout(2)
            connection.sendall(b"srvr")
            return b"Mode: " in connection.makefile("rb").read()
        return False


class BrokerMachine(Machine):
    def __init__(
        self, number: int, network: Network, directory: Path, properties: Mapping[str, object], *, has_own_clock: bool
    ):
        super().__init__(f"b{number}", network, directory)
        self.number = number
        self.disk = self.directory / "disk"
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", self.disk], check=True)
        self.properties: dict[str, object] = {
            "listeners": f"PLAINTEXT://{self.address}:{PORT}",
            "broker.id": number,
            "log.dirs": self.disk / "data",
            **properties,
        }
        self.clock_file = self.directory / "clock"
        self.has_own_clock = has_own_clock
        self.set_clock(0)

    @property
    def bootstrap(self) -> str:
        return f"{self.address}:{PORT}"

    def set_clock(self, offset_seconds: int) -> None:
        temporary = self.clock_file.with_suffix(".new")
        temporary.write_text(f"{offset_seconds:+d}s\n")
        temporary.replace(self.clock_file)

    def fill_disk(self) -> None:
        """Takes all the space that is left."""
        with suppress(OSError), (self.disk / "filler").open("ab", buffering=0) as filler:
            while True:
                filler.write(bytes(65_536))

    def free_disk(self) -> None:
        (self.disk / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        self.resume()
        self.kill()
        subprocess.run(["umount", "-l", self.disk], check=False)


class HeadraceMachine(BrokerMachine):
    def start_process(self) -> "subprocess.Popen[bytes]":
        module = ["tests.jepsen.run.skewed_clock", str(self.clock_file)] if self.has_own_clock else ["headrace"]
        return _start_python([*module, "server"], self.properties, self.log_file)


class KafkaMachine(BrokerMachine):
    """A broker of Apache Kafka 3.9."""

    def start_process(self) -> "subprocess.Popen[bytes]":
        broker = _KafkaProcess(self.disk / "data", self.properties)
        broker.work_dir = self.directory / "work"
        broker.log_file = self.log_file
        if not self.has_own_clock:
            return broker.begin()
        settings = {
            "LD_PRELOAD": faketime_library(),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock_file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
        }
        with _environment_lock:
            os.environ.update(settings)
            try:
                return broker.begin()
            finally:
                for name in settings:
                    del os.environ[name]


_environment_lock = threading.Lock()
"""The JVM inherits the environment of this process."""


class _KafkaProcess(KafkaOnZooKeeper):
    def __init__(self, data_dir: Path, properties: Mapping[str, object]):
        super().__init__(data_dir, PORT, properties)

    def begin(self) -> "subprocess.Popen[bytes]":
        self.spawn(self.prepare(PORT, 0))
        assert self._process is not None
        return self._process


def _start_python(module: list[str], settings: Mapping[str, object], log_file: Path) -> "subprocess.Popen[bytes]":
    arguments = [sys.executable, "-m", *module]
    for key, value in settings.items():
        arguments += ["--override", f"{key}={value}"]
    with log_file.open("ab") as output:
        return subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT)


class Cluster:
    """ZooKeeper and brokers with the ids 1, 2, 3 and so on."""

    def __init__(self, kind: str, brokers: int, network: Network, directory: Path, *, has_clock_faults: bool):
        self.zookeeper = ZooKeeperMachine("zk", network, directory)
        properties: dict[str, object] = {
            "zookeeper.connect": self.zookeeper.connect,
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS[kind],
            "default.replication.factor": 3,
            "min.insync.replicas": 2,
            "offsets.topic.replication.factor": 3,
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.replication.factor": 3,
            "transaction.state.log.min.isr": 2,
            "transaction.state.log.num.partitions": 3,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 2_000,
            "replica.lag.time.max.ms": 5_000,
            "group.initial.rebalance.delay.ms": 0,
            "controlled.shutdown.retry.backoff.ms": 500,
            "auto.create.topics.enable": "false",
            "log.segment.bytes": 1 << 20,
        }
        make = HeadraceMachine if kind == "headrace" else KafkaMachine
        self.brokers: dict[int, BrokerMachine] = {}
        self._directory = directory
        self._network = network
        try:
            for number in range(1, brokers + 1):
                self.brokers[number] = make(number, network, directory, properties, has_own_clock=has_clock_faults)
        except BaseException:
            self.close()
            raise

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def __enter__(self) -> Self:
        try:
            self.zookeeper.launch()
            self._wait(self.zookeeper.serves, "ZooKeeper serves")
            with ThreadPoolExecutor(len(self.brokers)) as threads:
                list(threads.map(lambda broker: broker.launch(), self.brokers.values()))
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            self._wait(lambda: self._has_all_brokers(), "all brokers are registered")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()
        self.zookeeper.resume()
        self.zookeeper.kill()

    def create_topics(self, names: list[str], partitions: int) -> None:
        topics = [NewTopic(name, partitions, 3) for name in names]
        for future in self._admin.create_topics(topics, request_timeout=60).values():
            future.result(60)
        self.wait_until_in_sync()

    def wait_until_in_sync(self) -> None:
        """Waits until all brokers are there, and all replicas of all partitions are in sync."""
        self._wait(lambda: not self.unhealthy(), "all replicas are in sync")

    def unhealthy(self) -> str:
        """Returns what is not well, as a client sees it; nothing if all is well."""
        try:
            found = self._admin.list_topics(timeout=5)
        except confluent.KafkaException as error:
            return str(error)
        if set(found.brokers) != set(self.brokers):
            return f"brokers {sorted(found.brokers)}"
        for name, topic in found.topics.items():
            for partition in topic.partitions.values():
                if partition.leader not in self.brokers or set(partition.isrs) != set(partition.replicas):
                    return f"{name}-{partition.id}: leader {partition.leader}, ISR {partition.isrs}"
        return ""

    def _has_all_brokers(self) -> bool:
        with suppress(confluent.KafkaException):
            return set(self._admin.list_topics(timeout=5).brokers) == set(self.brokers)
        return False

    def _wait(self, condition, what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {each.name}\n{each.log_tail()}" for each in self.brokers.values())
                raise ClusterFailed(f"not in {PATIENCE_SECONDS:.0f} s: {what}; {self._state()}\n{logs}")
            time.sleep(0.2)

    def _state(self) -> str:
        return self.unhealthy() if hasattr(self, "_admin") else ""


class ClusterFailed(Exception):
    """The cluster did not start, or did not recover after the last fault."""
