"""A tour of the cluster: three brokers on ZooKeeper under load, while brokers are killed and restarted.

    python examples/cluster_tour.py [--rate 1000] [--seconds 3] [--directory DIR] [--embedded]

ZooKeeper is `headrace zookeeper-server`, each broker is a `headrace server` in its own process. A producer of
confluent-kafka writes to a topic with three replicas, with acks=all and idempotence, and a group of two consumers reads
it. Meanwhile the tour kills the leader with SIGKILL, brings it back, and restarts one broker after the other. At the
end it prints what the clients saw. The exit code is 1 if an acknowledged record is lost, duplicated or out of order.

`--embedded` runs the brokers in this process (`headrace.testing.EmbeddedCluster`), without Java and ZooKeeper.
"""

import argparse
import itertools
import logging
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Protocol

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing import EmbeddedCluster

HOST = "127.0.0.1"
TOPIC = "tour"
PARTITIONS = 3
BROKERS = (1, 2, 3)
SESSION_TIMEOUT_MS = 4_000
VALUE_BYTES = 100
PATIENCE_SECONDS = 120.0
PROPERTIES = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.replication.factor": 3,
    "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
    "group.initial.rebalance.delay.ms": 500,
}


class Cluster(Protocol):
    """Three brokers that can be killed, stopped and started."""

    @property
    def bootstrap_servers(self) -> str: ...
    def start_all(self) -> str: ...
    def start(self, broker: int) -> None: ...
    def kill(self, broker: int) -> None: ...
    def stop(self, broker: int) -> None: ...
    def close(self) -> None: ...


class Process:
    """A `headrace` command that prints a line when it is ready. Its log is in a file."""

    def __init__(self, name: str, arguments: list[str], log_file: Path):
        self._name = name
        self._log_file = log_file
        command = [sys.executable, "-m", "headrace", *arguments]
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline().startswith("ready"):
            log = "\n".join(self._log_file.read_text(errors="replace").splitlines()[-20:])
            sys.exit(f"{self._name} did not start. The end of its log ({self._log_file}):\n{log}")

    def end(self, signal_number: signal.Signals) -> None:
        self._process.send_signal(signal_number)
        self._process.communicate()


class ProcessCluster:
    """ZooKeeper and brokers as processes. A broker keeps its port and its data when it restarts."""

    def __init__(self, directory: Path):
        self._directory = directory
        ports = random.sample(range(20_000, 32_000), len(BROKERS) + 1)
        self._zookeeper_port, *broker_ports = [free_port(port) for port in ports]
        self._ports = dict(zip(BROKERS, broker_ports, strict=True))
        self._processes: dict[int | str, Process] = {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports.values())

    def start_all(self) -> str:
        overrides = {"dataDir": self._directory / "zookeeper", "clientPort": self._zookeeper_port, "tickTime": 500}
        self._launch("zookeeper", "zookeeper-server", overrides)
        self._processes["zookeeper"].wait_ready()
        for broker in BROKERS:
            self._launch_broker(broker)
        for broker in BROKERS:
            self._processes[broker].wait_ready()
        return f"ZooKeeper at {HOST}:{self._zookeeper_port}, brokers at {self.bootstrap_servers}"

    def _launch(self, name: int | str, tool: str, overrides: dict[str, object]) -> None:
        options = [text for key, value in overrides.items() for text in ("-o", f"{key}={value}")]
        file_name = f"broker-{name}.log" if isinstance(name, int) else f"{name}.log"
        self._processes[name] = Process(str(name), [tool, *options], self._directory / file_name)

    def _launch_broker(self, broker: int) -> None:
        own = {
            "broker.id": broker,
            "listeners": f"PLAINTEXT://{HOST}:{self._ports[broker]}",
            "log.dirs": self._directory / f"broker-{broker}",
            "zookeeper.connect": f"{HOST}:{self._zookeeper_port}",
        }
        self._launch(broker, "server", {**PROPERTIES, **own})

    def start(self, broker: int) -> None:
        self._launch_broker(broker)
        self._processes[broker].wait_ready()

    def kill(self, broker: int) -> None:
        self._processes.pop(broker).end(signal.SIGKILL)

    def stop(self, broker: int) -> None:
        self._processes.pop(broker).end(signal.SIGTERM)

    def close(self) -> None:
        for process in self._processes.values():
            process.end(signal.SIGKILL)
        self._processes.clear()


class BrokersInThisProcess:
    """An `EmbeddedCluster`."""

    def __init__(self) -> None:
        logging.getLogger("headrace").addHandler(logging.NullHandler())  # the brokers log to files otherwise
        properties = {key: value for key, value in PROPERTIES.items() if not key.startswith("zookeeper")}
        self._cluster = EmbeddedCluster(len(BROKERS), properties, session_timeout_ms=SESSION_TIMEOUT_MS)

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.bootstrap_servers

    def start_all(self) -> str:
        self._cluster.start()
        return f"three brokers in this process at {self.bootstrap_servers}"

    def start(self, broker: int) -> None:
        self._cluster.brokers[broker].start()

    def kill(self, broker: int) -> None:
        self._cluster.kill(broker)

    def stop(self, broker: int) -> None:
        self._cluster.stop(broker)

    def close(self) -> None:
        self._cluster.close()


class Pauses:
    """The longest time without progress, by step of the tour. The progress of each partition counts separately."""

    def __init__(self) -> None:
        self.step = ""
        self.longest: dict[str, float] = {}
        self._last: dict[int, float] = {}

    def progress(self, partition: int) -> None:
        now = time.monotonic()
        pause = now - self._last.get(partition, now)
        self.longest[self.step] = max(self.longest.get(self.step, 0.0), pause)
        self._last[partition] = now

    @property
    def worst(self) -> float:
        return max(self.longest.values(), default=0.0)


class Writer(threading.Thread):
    """Sends numbered records at a steady rate, and remembers the acknowledged ones."""

    def __init__(self, bootstrap_servers: str, rate: int):
        super().__init__(name="writer", daemon=True)
        self._rate = rate
        self._done = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,  # retries neither duplicate nor reorder records
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": round(PATIENCE_SECONDS * 1000),
                "log_level": 0,
            }
        )
        self.sent = 0
        self.acknowledged: dict[tuple[int, int], int] = {}
        """Numbers by partition and offset."""
        self.failures: Counter[str] = Counter()
        self.pauses = Pauses()

    def run(self) -> None:
        start = time.monotonic()
        while not self._done.is_set():
            while self.sent < (time.monotonic() - start) * self._rate:
                value = b"%0*d" % (VALUE_BYTES, self.sent)
                try:
                    self._producer.produce(
                        TOPIC, value, partition=self.sent % PARTITIONS, on_delivery=self._acknowledged
                    )
                except BufferError:
                    self._producer.poll(0.1)
                else:
                    self.sent += 1
            self._producer.poll(0.005)

    def _acknowledged(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failures[str(error)] += 1
            return
        partition, offset = message.partition() or 0, message.offset() or 0
        self.acknowledged[partition, offset] = int(message.value() or b"")
        self.pauses.progress(partition)

    def finish(self) -> None:
        self._done.set()
        self.join()
        if self._producer.flush(PATIENCE_SECONDS):
            self.failures["not acknowledged within two minutes"] += 1

    def wait_for_progress(self) -> None:
        """Waits until a record of each partition is acknowledged that was sent after this call."""
        first = self.sent
        wait_until(
            "records of all partitions are acknowledged",
            lambda: (
                {number % PARTITIONS for number in tuple(self.acknowledged.values())[-self._rate :] if number >= first}
                == set(range(PARTITIONS))
            ),
        )


class GroupMember(threading.Thread):
    """A consumer of a group. It commits its offsets."""

    def __init__(self, bootstrap_servers: str, number: int):
        super().__init__(name=f"reader-{number}", daemon=True)
        self._done = threading.Event()
        self._settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "tour-readers",
            "client.id": f"reader-{number}",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "log_level": 0,
        }
        self.found: Counter[tuple[int, int]] = Counter()
        self.pauses = Pauses()

    def run(self) -> None:
        consumer = confluent_kafka.Consumer(self._settings)
        consumer.subscribe([TOPIC])
        while not self._done.is_set():
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    partition = message.partition() or 0
                    self.found[partition, message.offset() or 0] += 1
                    self.pauses.progress(partition)
        consumer.close()

    def finish(self) -> None:
        self._done.set()
        self.join()


class Tour:
    """The steps of the tour, and what the clients saw meanwhile."""

    def __init__(self, cluster: Cluster, rate: int, seconds: float):
        self._cluster = cluster
        self._rate = rate
        self._seconds = seconds
        self._writer: Writer | None = None
        self._readers: list[GroupMember] = []
        self._admin: AdminClient | None = None

    def run(self) -> bool:
        """Returns True if no acknowledged record is lost, duplicated or out of order."""
        self._step("start three brokers", self._cluster.start_all)
        self._step("create a topic", self._create_topic)
        self._step("write and read", self._start_clients)
        leader = self._leader()
        self._step(f"kill broker {leader}, a leader", lambda: self._kill(leader))
        self._step(f"start broker {leader} again", lambda: self._bring_back(leader))
        for broker in BROKERS:
            self._step(f"restart broker {broker}", lambda broker=broker: self._restart(broker))
        self._step("stop writing, read the rest", self._finish)
        return self._report()

    def _step(self, title: str, action: Callable[[], str]) -> None:
        start = time.monotonic()
        for worker in (self._writer, *self._readers):
            if worker is not None:
                worker.pauses.step = title
        print(f"{title:<30}", end="", flush=True)
        outcome = action()
        print(f"{time.monotonic() - start:6.1f} s   {outcome}", flush=True)

    # ---- steps

    def _create_topic(self) -> str:
        self._admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers, "log_level": 0})
        topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        for future in self._admin.create_topics([topic], request_timeout=60).values():
            future.result(60)
        self._wait_until_in_sync()
        return f"{TOPIC}: {PARTITIONS} partitions, three replicas each, min.insync.replicas=2"

    def _start_clients(self) -> str:
        self._writer = Writer(self._cluster.bootstrap_servers, self._rate)
        self._readers = [GroupMember(self._cluster.bootstrap_servers, number) for number in (1, 2)]
        workers: list[Writer | GroupMember] = [self._writer, *self._readers]
        for worker in workers:
            worker.pauses.step = "write and read"
            worker.start()
        self._writer.wait_for_progress()
        wait_until("the group reads", lambda: any(reader.found for reader in self._readers))
        self._let_it_run()
        return f"{self._rate:,} records/s, acks=all, idempotent; a group of {len(self._readers)} consumers"

    def _kill(self, leader: int) -> str:
        assert self._writer is not None
        self._cluster.kill(leader)
        self._writer.wait_for_progress()
        self._let_it_run()
        return f"SIGKILL; broker {self._leader()} has taken over, writes continue"

    def _bring_back(self, broker: int) -> str:
        self._cluster.start(broker)
        self._wait_until_in_sync()
        return "all replicas are in sync"

    def _restart(self, broker: int) -> str:
        assert self._writer is not None
        self._cluster.stop(broker)
        self._writer.wait_for_progress()
        self._cluster.start(broker)
        self._wait_until_in_sync()
        return "SIGTERM, start; all replicas are in sync"

    def _finish(self) -> str:
        assert self._writer is not None
        self._writer.finish()
        acknowledged = set(self._writer.acknowledged)
        wait_until("the group has read everything", lambda: acknowledged <= self._read_by_group())
        for reader in self._readers:
            reader.finish()
        return "all acknowledged records were read by the group"

    def _let_it_run(self) -> None:
        time.sleep(self._seconds)

    # ---- the cluster, as a client sees it

    def _partitions(self) -> dict[int, confluent_kafka.admin.PartitionMetadata]:
        assert self._admin is not None
        try:
            return self._admin.list_topics(TOPIC, 10).topics[TOPIC].partitions
        except confluent_kafka.KafkaException:
            return {}

    def _leader(self) -> int:
        """Returns the leader of partition 0."""
        found: list[int] = []

        def is_there() -> bool:
            partition = self._partitions().get(0)
            found[:] = [] if partition is None else [partition.leader]
            return bool(found) and found[0] in BROKERS

        wait_until("partition 0 has a leader", is_there)
        return found[0]

    def _wait_until_in_sync(self) -> None:
        def in_sync() -> bool:
            partitions = self._partitions().values()
            return len(partitions) == PARTITIONS and all(
                len(partition.isrs) == len(BROKERS) and partition.leader in BROKERS for partition in partitions
            )

        wait_until("all replicas are in sync", in_sync)

    def _read_by_group(self) -> set[tuple[int, int]]:
        return {place for reader in self._readers for place in tuple(reader.found)}

    def _read_log(self) -> dict[int, list[tuple[int, int]]]:
        """Returns offset and number of all records by partition."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap_servers,
                "group.id": "tour-check",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        found: dict[int, list[tuple[int, int]]] = {number: [] for number in range(PARTITIONS)}
        unread = set(found)
        while unread:
            for message in consumer.consume(5_000, 1.0):
                error = message.error()
                if error is None:
                    found[message.partition() or 0].append((message.offset() or 0, int(message.value() or b"")))
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    unread.discard(message.partition() or 0)
        consumer.close()
        return found

    # ---- the report

    def _report(self) -> bool:
        assert self._writer is not None
        log = self._read_log()
        places = {(partition, offset): number for partition, rows in log.items() for offset, number in rows}
        lost = sum(places.get(place) != number for place, number in self._writer.acknowledged.items())
        counts = Counter(places.values())
        duplicated = sum(count - 1 for count in counts.values())
        disordered = sum(
            later < earlier for rows in log.values() for (_, earlier), (_, later) in itertools.pairwise(rows)
        )
        read = sum((reader.found for reader in self._readers), Counter[tuple[int, int]]())
        print("\nWhat the clients saw")
        for name, value in [
            ("records acknowledged", f"{len(self._writer.acknowledged):,}"),
            ("failed writes", ", ".join(f"{count:,} × {why}" for why, count in self._writer.failures.items()) or "0"),
            ("records lost", f"{lost:,}"),
            ("records duplicated", f"{duplicated:,}"),
            ("records out of order", f"{disordered:,}"),
            ("records read by the group", f"{len(read):,}; {read.total() - len(read):,} again after a rebalance"),
            ("longest pause of writes", f"{self._writer.pauses.worst:.2f} s"),
            ("longest pause of reads", f"{max(reader.pauses.worst for reader in self._readers):.2f} s"),
        ]:
            print(f"  {name:<28}{value}")
        print("\nLongest pause of writes, by step")
        for step, seconds in self._writer.pauses.longest.items():
            print(f"  {step:<28}{seconds:5.2f} s")
        print(f"\nA killed broker is detected when its session expires, after {SESSION_TIMEOUT_MS / 1000:g} s.")
        return not (lost or duplicated or disordered or self._writer.failures)


def free_port(port: int) -> int:
    """Returns this port or a free one above it. Below the ephemeral ports, so that no client connects to itself."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                port += 1
                continue
            return port


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"\nwaited {PATIENCE_SECONDS:.0f} s in vain until {what}")
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rate", type=int, default=1_000, help="records per second (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="time between the steps, for the clients (default: %(default)s)"
    )
    parser.add_argument("--directory", type=Path, help="directory for data and logs (default: a temporary directory)")
    parser.add_argument("--embedded", action="store_true", help="run the brokers in this process, without ZooKeeper")
    arguments = parser.parse_args()
    if arguments.rate < PARTITIONS:
        parser.error(f"--rate: expected at least {PARTITIONS}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also ends the brokers
    with ExitStack() as cleanup:
        cluster = make_cluster(arguments.embedded, arguments.directory, cleanup)
        cleanup.callback(cluster.close)
        store = "a shared store, in this process" if arguments.embedded else "ZooKeeper"
        print(f"Three brokers with {store}, while clients write and read. Each step with its time and its result:\n")
        ok = Tour(cluster, arguments.rate, arguments.seconds).run()
        if arguments.directory:
            print(f"Data and logs are in {arguments.directory}.")
        elif not arguments.embedded:
            print("To keep data and logs: python examples/cluster_tour.py --directory DIR")
    sys.exit(0 if ok else 1)


def make_cluster(embedded: bool, directory: Path | None, cleanup: ExitStack) -> Cluster:
    if embedded:
        return BrokersInThisProcess()
    place: AbstractContextManager[Path | str]
    if directory is None:
        place = tempfile.TemporaryDirectory(prefix="headrace-cluster-")
    else:
        directory.mkdir(parents=True, exist_ok=True)
        place = nullcontext(directory)
    return ProcessCluster(Path(cleanup.enter_context(place)))


if __name__ == "__main__":
    main()
