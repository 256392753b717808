"""A cluster of Apache Kafka 3.9 and Headrace brokers on one ZooKeeper, on loopback.

    with MixedCluster(tmp_path, {1: KAFKA, 2: KAFKA, 3: HEADRACE}) as cluster:
        cluster.replace(1, HEADRACE)

Kafka's brokers have 512 MB of heap each and start within seconds.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka.admin import NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.support.apache_kafka.broker import KafkaOnZooKeeper
from tests.support.broker.process import eventually, free_port
from tests.support.cluster.processes import (
    PATIENCE_SECONDS,
    BrokerProcess,
    ClusterBroker,
    Pausable,
    ProcessCluster,
)

KAFKA, HEADRACE = "kafka", "headrace"


class KafkaProcess(KafkaOnZooKeeper, Pausable):
    """One broker of Apache Kafka."""


class MixedCluster(ProcessCluster):
    """Brokers with the ids 1, 2, 3 and so on, each of a kind: KAFKA or HEADRACE."""

    def __init__(self, directory: Path, kinds: Mapping[int, str], properties: Mapping[str, object] | None = None):
        self.kinds = dict(kinds)
        self._ports = {number: free_port() for number in kinds}
        super().__init__(directory, len(kinds), {"controlled.shutdown.retry.backoff.ms": 500, **(properties or {})})

    def _make_broker(self, number: int) -> ClusterBroker:
        directory, port = self._directory / f"broker-{number}", self._ports[number]
        properties = {**self.properties, "broker.id": number}
        if self.kinds[number] == KAFKA:
            return KafkaProcess(directory, port, properties)
        return BrokerProcess(directory, properties, port)

    def replace(self, number: int, kind: str) -> None:
        """Stops a broker, and starts one of another kind with its id, its port and its data."""
        self.brokers[number].stop()
        self.kinds[number] = kind
        self.brokers[number] = self._make_broker(number)
        self.brokers[number].start()

    def of_kind(self, kind: str) -> list[int]:
        return [number for number, found in self.kinds.items() if found == kind]

    # ---- the controller

    def make_controller(self, kind: str) -> int:
        """Deletes the controller's node until a broker of this kind has won the election. Returns its id."""
        with self.zookeeper_client() as client:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while True:
                controller = self.controller()
                if self.kinds[controller] == kind:
                    return controller
                assert time.monotonic() < deadline, f"no broker of kind {kind} becomes the controller"
                with suppress(NoNodeError):
                    client.delete("/controller")
                eventually(
                    lambda: self.controller() == _controller_node(client),
                    "the brokers know the new controller",
                    PATIENCE_SECONDS,
                )

    # ---- the files

    def segments(self, number: int, topic: str, partition: int) -> bytes:
        """Returns the records that a broker has on disk, in their format."""
        directory = self.brokers[number].data_dir / f"{topic}-{partition}"
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))

    def check_equal_replicas(self, topic: str, partitions: int) -> None:
        """Waits until all replicas have the same bytes, and some."""
        self.wait_until_in_sync(topic, partitions)
        for partition, state in sorted(self.partitions(topic).items()):
            eventually(
                lambda partition=partition, state=state: (
                    len({self.segments(number, topic, partition) for number in state.replicas}) == 1
                ),
                f"the replicas of {topic}-{partition} on brokers {state.replicas} are equal byte for byte",
                PATIENCE_SECONDS,
            )
            assert self.segments(state.replicas[0], topic, partition), f"{topic}-{partition} is empty"

    # ---- topics and leaders

    def create_assigned(self, name: str, assignment: list[list[int]], configs: Mapping[str, str] | None = None) -> None:
        """Creates a topic with these replicas of its partitions, and waits until they are in sync."""
        (future,) = self._admin.create_topics(
            [NewTopic(name, len(assignment), replica_assignment=assignment, config=dict(configs or {}))],
            request_timeout=PATIENCE_SECONDS,
        ).values()
        future.result(PATIENCE_SECONDS)
        self.wait_until_in_sync(name, len(assignment))

    def wait_for_isr(self, topic: str, partition: int, isr: set[int]) -> None:
        eventually(
            lambda: (state := self.partitions(topic).get(partition)) is not None and set(state.isrs) == isr,
            f"the ISR of {topic}-{partition} is {isr}",
            PATIENCE_SECONDS,
        )

    def wait_for_leader(self, topic: str, partition: int, broker: int) -> None:
        eventually(
            lambda: (state := self.partitions(topic).get(partition)) is not None and state.leader == broker,
            f"broker {broker} leads {topic}-{partition}",
            PATIENCE_SECONDS,
        )

    def elect_preferred(self, *topics: str) -> None:
        """Makes the first replicas leaders again, as Kafka's old tool did: with a node in ZooKeeper."""
        node = "/admin/preferred_replica_election"
        wanted = [{"topic": topic, "partition": index} for topic in topics for index in self.partitions(topic)]
        with self.zookeeper_client() as client:
            client.create(node, json.dumps({"version": 1, "partitions": wanted}).encode())
            eventually(lambda: client.exists(node) is None, "the election has ended", PATIENCE_SECONDS)
        eventually(
            lambda: all(
                state.leader == state.replicas[0] for topic in topics for state in self.partitions(topic).values()
            ),
            "the preferred replicas lead",
            PATIENCE_SECONDS,
        )

    @contextmanager
    def zookeeper_client(self) -> Iterator[KazooClient]:
        client = KazooClient(self.zookeeper.connect)
        client.start(PATIENCE_SECONDS)
        try:
            yield client
        finally:
            client.stop()
            client.close()


def _controller_node(client: KazooClient) -> int | None:
    with suppress(NoNodeError):
        return int(json.loads(client.get("/controller")[0])["brokerid"])
    return None
