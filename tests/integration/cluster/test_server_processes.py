"""`headrace server --processes`: brokers of one cluster on one machine, with faults of processes."""

import re
import signal
import socket
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.support.apache_kafka.broker import BrokerFailed
from tests.support.broker.process import HOST, eventually
from tests.support.cluster.server_processes import PATIENCE_SECONDS, ServerProcesses, wait_for_line
from tests.support.cluster.zookeeper import ZooKeeper

import headrace
from headrace.admin import Admin, NewTopic

_LINE = re.compile(r"\S+ \S+ (DEBUG|INFO |WARN |ERROR) (\[parent\]|\[broker [12]\]) [a-z_.]+  .+")


def create_topic(server: ServerProcesses, name: str = "t", partitions: int = 4) -> None:
    with Admin(bootstrap_servers=server.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions, 2)])


def wait_until_in_sync(server: ServerProcesses, replicas: int = 2, name: str = "t") -> None:
    with Admin(bootstrap_servers=server.bootstrap) as admin:

        def in_sync() -> bool:
            # A broker that has not heard of the topic yet responds with an error and no partitions.
            found = admin.describe_topics([name], raise_errors=False)[name].partitions
            return bool(found) and all(partition.leader >= 0 and len(partition.isr) == replicas for partition in found)

        eventually(in_sync, f"all partitions have {replicas} replicas in sync", PATIENCE_SECONDS)


def produce(server: ServerProcesses, values: Iterable[int]) -> None:
    with headrace.Producer(bootstrap_servers=server.bootstrap, acks="all") as producer:
        futures = [producer.send("t", b"%d" % value) for value in values]
        for future in futures:
            future.get(timeout_ms=1000 * PATIENCE_SECONDS)


def read_all(server: ServerProcesses) -> list[int]:
    with headrace.Consumer(bootstrap_servers=server.bootstrap, enable_partition_eof=False) as consumer:
        tps = [headrace.TopicPartition("t", number) for number in range(4)]
        consumer.assign(tps)
        ends = consumer.end_offsets(tps)
        consumer.seek_to_beginning(*tps)
        values: list[int] = []
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            values += [int(record.value) for records in consumer.poll(1_000).values() for record in records]
    return sorted(values)


def test_killed_broker_is_restarted_and_loses_nothing(tmp_path: Path) -> None:
    with ServerProcesses(tmp_path) as server:
        ready = server.start()
        assert ready == f"ready PLAINTEXT://{HOST}:{server.ports[0]}, PLAINTEXT://{HOST}:{server.ports[1]}\n"
        create_topic(server)
        produce(server, range(100))
        with headrace.Producer(bootstrap_servers=server.bootstrap, acks="all") as producer:
            futures = [producer.send("t", b"%d" % value) for value in range(100, 200)]
            server.signal(2, signal.SIGKILL)
            futures += [producer.send("t", b"%d" % value) for value in range(200, 300)]
            for future in futures:
                future.get(timeout_ms=1000 * PATIENCE_SECONDS)
        wait_for_line(server, "Broker 2 has ended (SIGKILL), starting it again in")
        wait_until_in_sync(server)
        assert server.log.count("Started broker 2 as process") == 2
        assert read_all(server) == list(range(300))
        assert server.stop() == 0
        assert server.log.count("has stopped") == 2
        assert server.log.index("Stopping broker 1") < server.log.index("Stopping broker 2")
        assert "Broker 1: controlled shutdown succeeded" in server.log
        for line in server.log.splitlines():
            assert _LINE.fullmatch(line), line

        server.start()
        assert read_all(server) == list(range(300))
        assert server.stop() == 0


def test_brokers_end_with_their_parent_and_keep_what_they_acknowledged(tmp_path: Path) -> None:
    with ServerProcesses(tmp_path) as server:
        server.start()
        create_topic(server)
        produce(server, range(100))
        server.kill_parent()
        assert server.log.count("The parent process has ended, so this broker stops") == 2
        server.start()
        wait_until_in_sync(server)
        produce(server, range(100, 200))
        assert read_all(server) == list(range(200))
        assert server.stop() == 0


def test_hanging_broker_loses_its_session_and_returns(tmp_path: Path) -> None:
    with ServerProcesses(tmp_path) as server:
        server.start()
        create_topic(server)
        wait_until_in_sync(server)
        server.signal(2, signal.SIGSTOP)
        wait_for_line(server, "of broker 2 has expired: nothing received for")
        server.signal(2, signal.SIGCONT)
        wait_for_line(server, "[broker 2] cluster.registration  Registered broker 2", 2)
        wait_until_in_sync(server)
        produce(server, range(100))
        assert read_all(server) == list(range(100))
        assert server.stop() == 0


def test_broker_that_cannot_start_stops_all(tmp_path: Path) -> None:
    server = ServerProcesses(tmp_path)
    with socket.socket() as taken, server:
        taken.bind((HOST, server.ports[1]))
        taken.listen()
        with pytest.raises(BrokerFailed, match="exit status 1"):
            server.start()
        assert f"cannot listen on PLAINTEXT://{HOST}:{server.ports[1]}".lower() in server.log.lower(), server.log
        assert "headrace: Broker 2 did not start (exit code 1)" in server.log
        eventually(lambda: _ended(server), "no broker is left", PATIENCE_SECONDS)


def _ended(server: ServerProcesses) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in server.pids)


def test_brokers_on_zookeeper(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    properties = {"zookeeper.connect": f"{zookeeper.connect}/processes", "broker.rack": "here"}
    with ServerProcesses(tmp_path, 2, properties) as server:
        server.start()
        create_topic(server)
        with Admin(bootstrap_servers=server.bootstrap) as admin:
            brokers = admin.describe_cluster().brokers
        assert [(broker.id, broker.rack) for broker in brokers] == [(1, "here"), (2, "here")]
        produce(server, range(10))
        assert read_all(server) == list(range(10))
        assert not (tmp_path / "d" / "coordination.sqlite").exists()
        assert server.stop() == 0
