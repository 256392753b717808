"""A cluster of processes for tests: `headrace server` several times, on a real ZooKeeper, on loopback.

    with ProcessCluster(tmp_path) as cluster:
        cluster.brokers[cluster.leader("t")].kill()

Brokers and ZooKeeper can be killed (SIGKILL), stopped (SIGTERM) and paused (SIGSTOP). They keep their ports and data.
"""

import os
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import confluent_kafka as confluent
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata
from tests.support.apache_kafka.broker import BrokerFailed
from tests.support.broker.process import Broker, Headrace, eventually
from tests.support.cluster.zookeeper import ZooKeeper

PATIENCE_SECONDS = 240.0
SESSION_TIMEOUT_MS = 3_000


class ClusterBroker(Broker, Protocol):
    """One broker of a cluster."""

    @property
    def is_running(self) -> bool: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Pausable:
    """Adds SIGSTOP and SIGCONT to a broker."""

    @property
    def pid(self) -> int | None:
        raise NotImplementedError

    def pause(self) -> None:
        assert self.pid is not None, "the broker is not running"
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self.pid is not None:
            os.kill(self.pid, signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        return self.pid is not None


class BrokerProcess(Headrace, Pausable):
    """One broker."""

    def check_alive(self) -> None:
        """Fails if the process ended without a call of `stop` or `kill`."""
        status = None if self._process is None else self._process.poll()
        if status is not None:
            raise BrokerFailed(f"the broker ended with status {status}\n{self._log_tail()}")


class ProcessCluster:
    """Brokers with the ids 1, 2, 3 and so on, and one ZooKeeper."""

    def __init__(self, directory: Path, brokers: int = 3, properties: Mapping[str, object] | None = None):
        directory.mkdir(parents=True, exist_ok=True)
        self.zookeeper = ZooKeeper(directory)
        replicas, in_sync = min(3, brokers), min(2, brokers)
        self.properties: dict[str, object] = {
            "zookeeper.connect": self.zookeeper.connect,
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": 5,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "transaction.state.log.num.partitions": 5,
            "group.initial.rebalance.delay.ms": 0,
            **(properties or {}),
        }
        self._directory = directory
        self.brokers = {number: self._make_broker(number) for number in range(1, brokers + 1)}

    def _make_broker(self, number: int) -> ClusterBroker:
        return BrokerProcess(self._directory / f"broker-{number}", {**self.properties, "broker.id": number})

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def __enter__(self) -> Self:
        try:
            self.zookeeper.__enter__()
            with ThreadPoolExecutor(len(self.brokers)) as threads:
                list(threads.map(lambda broker: broker.start(), self.brokers.values()))
        except BaseException:
            self.close()
            raise
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self.zookeeper.close()

    # ---- the cluster, as a client sees it

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        (future,) = self._admin.create_topics(
            [NewTopic(name, partitions, min(3, len(self.brokers)), config=dict(configs or {}))], request_timeout=60
        ).values()
        future.result(60)
        self.wait_until_in_sync(name, partitions)

    def partitions(self, topic: str) -> dict[int, PartitionMetadata]:
        with suppress(confluent.KafkaException, KeyError):
            return self._admin.list_topics(topic, 5).topics[topic].partitions
        return {}

    def leader(self, topic: str, partition: int = 0) -> int:
        return self._wait_for_broker(
            f"{topic}-{partition} has a leader",
            lambda: found.leader if (found := self.partitions(topic).get(partition)) else -1,
        )

    def controller(self) -> int:
        def find() -> int:
            with suppress(confluent.KafkaException):
                return int(self._admin.list_topics(timeout=5).controller_id)
            return -1

        return self._wait_for_broker("a broker is the controller", find)

    def _wait_for_broker(self, what: str, find: Callable[[], int]) -> int:
        found: list[int] = []

        def is_there() -> bool:
            found[:] = [find()]
            return found[0] in self.brokers and self.brokers[found[0]].is_running

        eventually(is_there, what, PATIENCE_SECONDS)
        return found[0]

    def wait_until_broker_is_in_sync(self, number: int) -> None:
        """Waits until a broker is in sync in all partitions of which it has a replica."""

        def in_sync() -> bool:
            with suppress(confluent.KafkaException):
                topics = self._admin.list_topics(timeout=5).topics.values()
                states = [state for topic in topics for state in topic.partitions.values()]
                return all(number in state.isrs for state in states if number in state.replicas)
            return False

        eventually(in_sync, f"broker {number} is in sync", PATIENCE_SECONDS)

    def wait_until_in_sync(self, topic: str, partitions: int) -> None:
        """Waits until all partitions have a leader and all replicas are in sync."""

        def in_sync() -> bool:
            states = self.partitions(topic).values()
            return len(states) == partitions and all(
                state.leader in self.brokers and set(state.isrs) == set(state.replicas) for state in states
            )

        eventually(in_sync, f"all replicas of {topic} are in sync", PATIENCE_SECONDS)
