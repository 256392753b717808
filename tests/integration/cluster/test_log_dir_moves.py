"""Replicas move between log directories while clients write, and while brokers are killed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headrace
from headrace.admin import ConfigResource, ReplicaLogDirs
from headrace.common.errors import HeadraceError, LogDirNotFoundError
from headrace.common.types import TopicPartition
from headrace.testing import EmbeddedCluster

WAIT_MS = 120_000
TOPIC = "orders"
TP = TopicPartition(TOPIC, 0)
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    directories = {
        number: {"log.dirs": ",".join(str(tmp_path / f"{number}-{name}") for name in "ab")} for number in (1, 2)
    }
    with EmbeddedCluster(2, broker_properties=directories, replication_factor=2) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[headrace.Admin]:
    with headrace.Admin(bootstrap_servers=cluster.bootstrap_servers, default_api_timeout_ms=WAIT_MS) as admin:
        admin.create_topics({TOPIC: {"num_partitions": 1, "replication_factor": 2}})
        yield admin


@contextmanager
def writing(cluster: EmbeddedCluster) -> Iterator[list[int]]:
    """Sends numbers. At the end, reads everything and compares."""
    acknowledged: list[int] = []
    enough = threading.Event()
    failures: list[Exception] = []

    def write() -> None:
        try:
            with headrace.Producer(
                bootstrap_servers=cluster.bootstrap_servers, delivery_timeout_ms=WAIT_MS, retries=10**6
            ) as producer:
                while not enough.is_set():
                    number = len(acknowledged)
                    producer.send(TOPIC, b"%d" % number, partition=0).get(timeout_ms=WAIT_MS)
                    acknowledged.append(number)
        except (HeadraceError, TimeoutError) as error:
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield acknowledged
    finally:
        enough.set()
        thread.join()
    assert not failures, failures
    with headrace.Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TP])
        end = consumer.end_offsets([TP])[TP]
        found: list[int] = []
        while consumer.position(TP) < end:
            found += [int(record.value) for record in consumer.poll(1000).get(TP, [])]
    first = len(found) - len(acknowledged)
    assert found[first:] == acknowledged


def fill(cluster: EmbeddedCluster, size: int = 3_000_000) -> None:
    with headrace.Producer(bootstrap_servers=cluster.bootstrap_servers, delivery_timeout_ms=WAIT_MS) as producer:
        for _ in range(size // 100_000):
            producer.send(TOPIC, b"%-99999d" % 0, partition=0)
        producer.flush()


def where(admin: headrace.Admin, broker: int) -> ReplicaLogDirs:
    return admin.describe_replica_log_dirs([(TOPIC, 0, broker)])[TOPIC, 0, broker]


def other(admin: headrace.Admin, broker: int) -> str:
    current = where(admin, broker).current_path
    (path,) = [
        directory.path for directory in admin.describe_log_dirs(brokers=[broker])[broker] if directory.path != current
    ]
    return path


def set_rate(admin: headrace.Admin, broker: int, rate: int) -> None:
    admin.alter_configs([ConfigResource("broker", str(broker), {RATE: rate})])


def test_leader_and_follower_move_under_load(cluster: EmbeddedCluster, admin: headrace.Admin) -> None:
    fill(cluster)
    with writing(cluster) as acknowledged:
        for _ in range(2):  # there and back
            targets = {(TOPIC, 0, broker): other(admin, broker) for broker in (1, 2)}
            admin.alter_replica_log_dirs(targets)
            for (_, _, broker), path in targets.items():
                cluster.wait_until(lambda b=broker, p=path: where(admin, b) == ReplicaLogDirs(p, 0), WAIT_MS)
            count = len(acknowledged)
            cluster.wait_until(lambda count=count: len(acknowledged) > count, WAIT_MS)


def test_a_throttled_move_continues_after_a_kill_and_is_cancelled(
    cluster: EmbeddedCluster, admin: headrace.Admin
) -> None:
    fill(cluster)
    broker = cluster.leader(TOPIC, 0)
    target, home = other(admin, broker), where(admin, broker).current_path
    assert home is not None
    with writing(cluster):
        set_rate(admin, broker, 1)
        admin.alter_replica_log_dirs({(TOPIC, 0, broker): target})
        # The first read passes the throttle.
        cluster.wait_until(lambda: where(admin, broker).future_offset_lag > 0, WAIT_MS)
        assert where(admin, broker).future_path == target
        cluster.kill(broker)
        cluster.restart(broker)
        cluster.wait_until(lambda: where(admin, broker).future_path == target, WAIT_MS)
        admin.alter_replica_log_dirs({(TOPIC, 0, broker): home})
        assert where(admin, broker).future_path is None
        set_rate(admin, broker, 10**9)
        admin.alter_replica_log_dirs({(TOPIC, 0, broker): target})
        cluster.wait_until(lambda: where(admin, broker).current_path == target, WAIT_MS)


def test_errors_of_the_admin_client(cluster: EmbeddedCluster, admin: headrace.Admin) -> None:
    results = admin.alter_replica_log_dirs(
        {(TOPIC, 0, 1): "/nowhere", (TOPIC, 0, 2): other(admin, 2)}, raise_errors=False
    )
    assert [type(result.error) for result in results.values()] == [LogDirNotFoundError, type(None)]
    with pytest.raises(LogDirNotFoundError):
        admin.alter_replica_log_dirs({(TOPIC, 0, 1): "/nowhere"})
    with pytest.raises(TypeError, match="a replica must be"):
        admin.alter_replica_log_dirs({(TOPIC, 0): "/nowhere"})  # type: ignore[dict-item]
    assert where(admin, 1).future_path is None
    assert admin.describe_replica_log_dirs([("nope", 0, 1)])["nope", 0, 1] == ReplicaLogDirs()
