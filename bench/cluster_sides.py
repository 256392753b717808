"""The two clusters of the benchmark as processes: three brokers and one ZooKeeper each, measured from outside.

Apache Kafka is the last version with ZooKeeper mode. `COMMON` has the configuration of both; Headrace's other configs
are its defaults, Kafka's are those of its distribution.
"""

import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.apache_kafka.broker import BrokerFailed, KafkaOnZooKeeper
from tests.support.apache_kafka.jvm import LAST_WITH_ZOOKEEPER
from tests.support.broker.process import free_port
from tests.support.cluster.zookeeper import ZooKeeper
from tests.support.net.wire_client import WireClient

from bench.broker_sides import COMMON as COMMON_OF_BROKERS
from bench.broker_sides import KAFKA_JVM_ARGS, Headrace, Kafka, Side
from bench.broker_wire import HOST, await_condition
from headrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse

BROKERS = (1, 2, 3)
REPLICATION_FACTOR = 3
SECONDS = 600.0
SESSION_TIMEOUT_MS = 6_000
PARTITIONS_PER_TOPIC = 500
COMMON: dict[str, object] = {
    **COMMON_OF_BROKERS,
    "default.replication.factor": REPLICATION_FACTOR,
    "min.insync.replicas": 2,
    # Leaders move only when the benchmark stops a broker.
    "auto.leader.rebalance.enable": "false",
}
HEAP_MB = 1024
"""The largest heap of Kafka's brokers, as in its distribution. With 512 MB they cannot have 10,000 partitions."""
_KAFKA_PROPERTIES = {
    "num.network.threads": 3,
    "num.io.threads": 8,
    "socket.send.buffer.bytes": 102400,
    "socket.receive.buffer.bytes": 102400,
    "log.cleaner.dedupe.buffer.size": 128 * 1024 * 1024,
}
_JVM_ARGS = tuple(argument for argument in KAFKA_JVM_ARGS if not argument.startswith("-Xm"))

Assignment = dict[tuple[str, int], list[int]]
"""The replicas of each partition; the first one is the preferred leader."""


class _KafkaBroker(KafkaOnZooKeeper):
    def __init__(self, data_dir: Path, port: int, properties: Mapping[str, object]):
        super().__init__(data_dir, port, properties)
        self._jvm_args = (f"-Xmx{HEAP_MB}m", f"-Xms{HEAP_MB // 4}m", *_JVM_ARGS)


class KafkaWithZooKeeper(Kafka):
    """A broker of Apache Kafka in ZooKeeper mode."""

    name = LAST_WITH_ZOOKEEPER.title

    def __init__(self, directory: Path, properties: Mapping[str, object] | None = None):
        self.data_dir = directory / "kafka-data"
        self.port = free_port()
        self._broker = _KafkaBroker(self.data_dir, self.port, {**_KAFKA_PROPERTIES, **(properties or {})})
        self._config = self._broker.prepare(self.port, 0)


class Cluster:
    """Brokers of one kind with the ids 1 to 3, and their ZooKeeper."""

    def __init__(self, kind: type[Side], directory: Path, session_timeout_ms: int = SESSION_TIMEOUT_MS):
        self.name = kind.name
        self.directory = directory
        directory.mkdir(parents=True)
        self.zookeeper = ZooKeeper(directory)
        self.brokers: dict[int, Side] = {}
        for number in BROKERS:
            properties = {
                **COMMON,
                "zookeeper.connect": self.zookeeper.connect,
                "zookeeper.session.timeout.ms": session_timeout_ms,
                "broker.id": number,
            }
            self.brokers[number] = kind(directory / f"broker-{number}", properties)
        self.running: set[int] = set()

    def __enter__(self) -> "Cluster":
        try:
            self.zookeeper.__enter__()
            for side in self.brokers.values():
                side.spawn()
            self.running = set(BROKERS)
            await_condition(f"the start of three brokers of {self.name}", self._sees_all_brokers, SECONDS)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _kill(self) -> None:
        for side in self.brokers.values():
            side.kill()
        self.zookeeper.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(self.brokers[number].bootstrap for number in sorted(self.running))

    def connect(self, number: int) -> WireClient:
        return WireClient((HOST, self.brokers[number].port), timeout=SECONDS)

    # ---- measured from outside

    def cpu_seconds(self) -> float:
        """Returns the CPU time of the brokers so far, without ZooKeeper."""
        return sum(self.brokers[number].cpu_seconds() for number in self.running)

    def memory_mb(self) -> tuple[float, float]:
        """Returns the resident and the proportional set size of all brokers."""
        sizes = [self.brokers[number].memory_mb() for number in self.running]
        return sum(size[0] for size in sizes), sum(size[1] for size in sizes)

    # ---- brokers

    def kill(self, number: int) -> None:
        """Kills a broker with SIGKILL."""
        self.running.remove(number)
        self.brokers[number].kill()

    def begin_stop(self, number: int) -> None:
        """Sends SIGTERM to a broker, for a controlled shutdown."""
        os.kill(self.brokers[number].process_id(), signal.SIGTERM)

    def await_stop(self, number: int) -> None:
        self.brokers[number].wait(SECONDS)
        self.brokers[number].stop()
        self.running.remove(number)

    def restart(self, number: int, assignment: Assignment) -> None:
        """Starts a stopped broker, and waits until all replicas are in sync."""
        self.brokers[number].spawn()
        self.running.add(number)
        self.await_in_sync(assignment)

    # ---- metadata and topics

    def metadata(self, number: int, *, topics: bool = True) -> MetadataResponse:
        with self.connect(number) as client:
            response: MetadataResponse = client.call(MetadataRequest(topics=None if topics else []), 8)
            return response

    def controller(self) -> int:
        """Waits until a running broker is the controller. Returns its id."""
        found = -1

        def is_there() -> bool:
            nonlocal found
            found = self.metadata(min(self.running), topics=False).controller_id
            return found in self.running

        await_condition("the election of a controller", is_there, SECONDS)
        return found

    def _sees_all_brokers(self) -> bool:
        for number in self.running:
            try:
                if len(self.metadata(number, topics=False).brokers) < len(self.running):
                    return False
            except OSError:
                if self.brokers[number].has_exited():
                    raise BrokerFailed(f"{self.name} exited during startup; see {self.directory}") from None
                return False
        return True

    def create_partitions(
        self, prefix: str, partitions: int, order: list[int], replication_factor: int = REPLICATION_FACTOR
    ) -> Assignment:
        """Creates topics with so many partitions in total; their leaders are spread evenly over the brokers."""
        assignment: Assignment = {}
        topics = []
        for first in range(0, partitions, PARTITIONS_PER_TOPIC):
            name = f"{prefix}-{first // PARTITIONS_PER_TOPIC}"
            count = min(PARTITIONS_PER_TOPIC, partitions - first)
            replicas = {
                number: [order[(number + place) % len(order)] for place in range(replication_factor)]
                for number in range(count)
            }
            assignment |= {(name, number): brokers for number, brokers in replicas.items()}
            assignments = [
                CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
                for number, brokers in replicas.items()
            ]
            topics.append(CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments))
        with self.connect(self.controller()) as client:
            response = client.call(CreateTopicsRequest(topics=topics, timeout_ms=int(SECONDS * 1000)), 4)
        errors = [(topic.name, topic.error_code, topic.error_message) for topic in response.topics if topic.error_code]
        assert not errors, errors[:3]
        self.await_in_sync(assignment)
        return assignment

    def await_in_sync(self, assignment: Assignment) -> None:
        """Waits until every running broker reports a leader for each partition, and all its replicas as in sync."""

        def in_sync() -> bool:
            try:
                return all(self._in_sync(self.metadata(number), assignment) for number in self.running)
            except OSError:  # a broker that is still starting
                return False

        await_condition(f"{self.name}: all replicas are in sync", in_sync, SECONDS, pause=0.5)

    def _in_sync(self, metadata: MetadataResponse, assignment: Assignment) -> bool:
        states = {
            (topic.name or "", state.partition_index): state for topic in metadata.topics for state in topic.partitions
        }
        return all(
            (state := states.get(partition)) is not None
            and state.leader_id in self.running
            and set(state.isr_nodes) == set(replicas)
            for partition, replicas in assignment.items()
        )

    def leaders(self, number: int) -> dict[tuple[str, int], int]:
        """Returns the leader of each partition, as a broker reports it."""
        return {
            (topic.name or "", state.partition_index): state.leader_id
            for topic in self.metadata(number).topics
            for state in topic.partitions
        }

    def drop_topic(self, name: str) -> None:
        """Deletes a topic and waits until its files are deleted, before they are written back during the next case."""
        with self.connect(self.controller()) as client:
            response = client.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 3)
        assert not response.responses[0].error_code, response
        await_condition(
            f"deleting the files of {name}",
            lambda: not any(any(side.data_dir.glob(f"{name}-*")) for side in self.brokers.values()),
            SECONDS,
        )


KINDS: tuple[type[Side], type[Side]] = (Headrace, KafkaWithZooKeeper)


def settle(seconds: float) -> None:
    """Writes dirty pages back, and lets the brokers finish what they started. With 0 seconds it does nothing."""
    if seconds:
        os.sync()
        time.sleep(seconds)
