"""`headrace doctor` finds problems that these tests create in real clusters."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.net.wire_calls import batch, produce_request
from tests.support.net.wire_client import WireClient

import headrace
from headrace.admin import Admin
from headrace.cli.main import main
from headrace.diagnosis import broker_checks
from headrace.testing import EmbeddedCluster

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """Three brokers whose settings differ, without automatic leader balance. Tests add their problems."""
    properties = {"auto.leader.rebalance.enable": False, "transaction.partition.verification.enable": False}
    own = {
        1: {"broker.rack": "a", "message.max.bytes": 2_000_000},
        2: {"log.dirs": ",".join(str(tmp_path_factory.mktemp(name)) for name in ("first", "second"))},
    }
    with EmbeddedCluster(3, properties, broker_properties=own) as running:
        yield running


def doctor(cluster: EmbeddedCluster, *arguments: str, status: int = 2) -> dict[str, list[dict[str, Any]]]:
    """Returns the findings by check."""
    servers = ",".join(broker.bootstrap_servers for broker in cluster.brokers.values() if broker.is_running)
    command = ["doctor", "--bootstrap-server", servers, "--json", *arguments]
    ran = CliRunner().invoke(main, command, prog_name="headrace")
    assert ran.exit_code == status, ran.output
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(ran.stdout)["findings"]:
        found.setdefault(finding["check"], []).append(finding)
    return found


def produce(cluster: EmbeddedCluster, topic: str, value: bytes = b"x", *, count: int = 1, timestamp: int) -> None:
    with headrace.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for _ in range(count):
            producer.send(topic, value, partition=0, timestamp_ms=timestamp)


def now_ms() -> int:
    return int(time.time() * 1000)


def test_healthy_cluster() -> None:
    with EmbeddedCluster(3, topics={"fine": 6}) as healthy:
        produce(healthy, "fine", timestamp=now_ms())
        ran = CliRunner().invoke(main, ["doctor", "--bootstrap-server", healthy.bootstrap_servers])
        assert ran.exit_code == 0, ran.output
        assert ran.stdout == "No problems in 3 brokers, 1 topic, 6 partitions, 0 groups.\n"


def test_settings_and_racks(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("contradiction", configs={"min.insync.replicas": 4})
    found = doctor(cluster, "--check", "topic-settings", "--check", "different-settings", "--check", "rack-placement")
    assert set(found) == {"topic-settings", "different-settings", "rack-placement"}
    (contradiction,) = [finding for finding in found["topic-settings"] if finding["severity"] == "error"]
    assert contradiction["items"] == ["contradiction"]
    assert "message.max.bytes differs between brokers: 2000000 on 1;" in found["different-settings"][0]["problem"]
    assert "Brokers 2 and 3 have no broker.rack" in found["rack-placement"][0]["problem"]


def test_lagging_group_and_lost_offsets(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("read")
    produce(cluster, "read", count=10, timestamp=now_ms() - HOUR_MS)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.alter_group_offsets("slow", {("read", 0): 4})
        admin.alter_group_offsets("ready", {("read", 0): 10})
        (lagging,) = doctor(cluster, "--check", "lagging-groups")["lagging-groups"]
        assert "Group slow lags in 1 partition: 6 records unread, some for more than 5 min." in lagging["problem"]
        assert doctor(cluster, "--check", "lagging-groups", "--max-lag-seconds", "7200", status=0) == {}
        admin.delete_records({("read", 0): 7})
    (lost,) = doctor(cluster, "--check", "lost-offsets")["lost-offsets"]
    assert "Group slow has not read 3 offsets in 1 partition" in lost["problem"]


def test_hanging_transaction(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("hangs", replication_factor=1)
    data = batch(
        b"hangs",
        timestamp=now_ms() - HOUR_MS,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=0,
        transactional=True,
    )
    request = produce_request(data, topic="hangs", acks=-1)
    request.transactional_id = "unknown"
    with WireClient(cluster.brokers[cluster.leader("hangs")].address) as client:
        ((reply,),) = (topic.partition_responses for topic in client.call(request, 11).responses)
    assert reply.error_code == 0
    (found,) = doctor(cluster, "--check", "hanging-transactions")["hanging-transactions"]
    assert "producer 4711 hangs in hangs-0 since offset 0, 60 min ago" in found["problem"]
    command = found["fix"].removeprefix("Abort it: ").rstrip(".").split()
    command[1:1] = ["--bootstrap-server", cluster.bootstrap_servers]
    command.remove("abort")
    command.insert(3, "abort")
    ran = CliRunner().invoke(main, command, prog_name="headrace")
    assert ran.exit_code == 0, ran.output
    assert doctor(cluster, "--check", "hanging-transactions", status=0) == {}


def test_clocks(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("future")
    produce(cluster, "future", timestamp=now_ms() + HOUR_MS)
    (found,) = doctor(cluster, "--check", "future-timestamps")["future-timestamps"]
    assert found["items"] == ["future-0"]
    configs = {"message.timestamp.type": "LogAppendTime"}
    cluster.create_topic("timed", assignment={0: [3]}, configs=configs)
    clock = cluster.brokers[3].call(lambda broker: broker.clock)
    clock.time_ms = lambda: now_ms() + HOUR_MS  # type: ignore[method-assign]
    produce(cluster, "timed", timestamp=0)
    del clock.time_ms
    (found,) = doctor(cluster, "--check", "clock-skew")["clock-skew"]
    assert "The clock of broker 3 is 60 min ahead of this machine's" in found["problem"]


def test_disk_skew(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_checks, "_LEAST_SKEW_BYTES", 100_000)
    cluster.create_topic("large", assignment={0: [1]})
    produce(cluster, "large", b"x" * 500_000, count=4, timestamp=now_ms())
    (found,) = doctor(cluster, "--check", "disk-skew")["disk-skew"]
    assert found["problem"].startswith("Broker 1 stores 2.0 MB")


def test_broken_brokers(cluster: EmbeddedCluster) -> None:
    """A broker is killed, and another one loses a log directory. Later, leaders stay away from the restarted broker."""
    cluster.create_topic("safe", 12)
    cluster.create_topic("strict", assignment={0: [1, 2, 3]}, configs={"min.insync.replicas": 3})
    cluster.create_topic("alone", assignment={0: [3]})
    cluster.kill(3)
    cluster.wait_until(lambda: all_know(cluster, {1, 2}))
    found = doctor(cluster)
    assert found["offline-partitions"][0]["items"][0] == "alone-0"
    assert "Start broker 3" in found["offline-partitions"][0]["fix"]
    assert "strict-0" in found["under-min-isr"][0]["items"]
    (missing,) = [finding for finding in found["under-replicated"] if finding["problem"].startswith("Broker 3 is not")]
    assert {"safe-0", "safe-11", "strict-0"} <= set(missing["items"])
    assert "Broker 3 is not in the cluster" in found["missing-brokers"][0]["problem"]

    cluster.restart(3)
    cluster.wait_until(lambda: all_know(cluster, {1, 2, 3}))
    (imbalance,) = doctor(cluster, "--check", "leader-imbalance")["leader-imbalance"]
    assert imbalance["problem"].startswith("Broker 3 should lead")

    def fail_directory(broker: Any) -> str:
        directory = broker.log_manager.directories[1]
        broker.log_manager.fail_directory(directory, "test")
        return str(directory.path)

    path = cluster.brokers[2].call(fail_directory)
    (offline,) = doctor(cluster, "--check", "offline-log-dirs")["offline-log-dirs"]
    assert f"Log directory {path} of broker 2 is offline" in offline["problem"]


def all_know(cluster: EmbeddedCluster, live: set[int]) -> bool:
    """Returns True if all brokers know that exactly these are live, and that of them all replicas are in sync."""

    def knows(broker: Any) -> bool:
        return set(broker.image.brokers) == live and all(
            set(state.isr) == set(state.replicas) & live for state in broker.image.partitions() if state.leader >= 0
        )

    return all(cluster.brokers[number].call(knows) for number in live)


def test_unreachable_cluster() -> None:
    ran = CliRunner().invoke(main, ["doctor", "--bootstrap-server", "127.0.0.1:1"], prog_name="headrace")
    assert ran.exit_code == 1
