"""Kafka's `kafka-reassign-partitions` and `kafka-leader-election`, and ours, on a cluster: the same output."""

import json
import re
from pathlib import Path
from typing import Any

from tests.compat.cli.conftest import bare
from tests.support.broker.java_clients import Java

from headrace import Admin, Producer
from headrace.testing import EmbeddedCluster


def plain(text: str) -> str:
    """Removes what only Kafka 4 does: it names log directories, and forgets a line break in the output of --cancel."""
    text = text.replace("moves are active.Clearing", "moves are active.\nClearing")
    return re.sub(r'"log_dirs":\[[^]]*\]', '"log_dirs":[]', text)


def test_same_reassignment(apache_kafka: None, tmp_path: Path) -> None:
    with EmbeddedCluster(3, replication_factor=1) as cluster, Java(cluster.bootstrap_servers) as java:
        cluster.create_topic("t", assignment={0: [1], 1: [2]})
        file = tmp_path / "plan.json"

        def plan(*replicas: int) -> None:
            entries = [{"topic": "t", "partition": index, "replicas": list(replicas)} for index in range(2)]
            file.write_text(json.dumps({"version": 1, "partitions": entries}))

        def both(*args: str, lines: int | None = None) -> None:
            """Compares all lines, or the first ones."""
            kafka = java.tool("kafka-reassign-partitions", *args)
            ours = bare("reassign-partitions", "--bootstrap-server", cluster.bootstrap_servers, *args)
            printed = [plain(ran.out).splitlines()[:lines] for ran in (ours, kafka)]
            assert (ours.status, printed[0]) == (kafka.status, printed[1]), kafka.err

        on_file = ("--reassignment-json-file", str(file))
        plan(3, 1)
        both("--list")
        both("--cancel", *on_file)
        both("--verify", *on_file)
        both("--verify", *on_file, "--preserve-throttles")
        topics = tmp_path / "topics.json"
        topics.write_text('{"version": 1, "topics": [{"topic": "t"}]}')
        both("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1,2,3", lines=4)
        executed = java.tool("kafka-reassign-partitions", "--execute", *on_file, "--throttle", "50000000")
        assert "Successfully started partition reassignments for t-0,t-1" in executed.out, executed.err
        listed = ("reassign-partitions", "--bootstrap-server", cluster.bootstrap_servers, "--list")
        cluster.wait_until(lambda: bare(*listed).out == "No partition reassignments found.\n")
        both("--verify", *on_file)
        election = ("--election-type", "preferred", "--all-topic-partitions")
        assert java.tool("kafka-leader-election", *election).status == 0
        assert (cluster.leader("t", 0), cluster.leader("t", 1)) == (3, 3)


def test_same_moves_between_log_directories(apache_kafka: None, tmp_path: Path) -> None:
    disks = [str(tmp_path / name) for name in ("disk1", "disk2")]
    log_dirs = {"log.dirs": ",".join(disks), "replica.alter.log.dirs.io.max.bytes.per.second": 1}
    with EmbeddedCluster(1, log_dirs) as cluster, Java(cluster.bootstrap_servers) as java:
        cluster.create_topic("t", 1)
        server = ("--bootstrap-server", cluster.bootstrap_servers)
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for _ in range(30):
                producer.send("t", b"%-100000d" % 0)
            producer.flush()
        replica = ("t", 0, 1)
        file = tmp_path / "plan.json"
        on_file = ("--reassignment-json-file", str(file))

        def both(*args: str) -> str:
            kafka = java.tool("kafka-reassign-partitions", *args)
            ours = bare("reassign-partitions", *server, *args)
            printed = [plain(ran.out).splitlines() for ran in (ours, kafka)]
            assert (ours.status, printed[0]) == (kafka.status, printed[1]), kafka.err
            return ours.out

        def shown() -> list[Any]:
            """Returns the JSON of both tools."""
            kafka = java.tool("kafka-log-dirs", "--describe", "--topic-list", "t")
            ours = bare("log-dirs", *server, "--describe", "--topic-list", "t")
            return [json.loads(ran.out.splitlines()[-1]) for ran in (ours, kafka)]

        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            home = admin.describe_replica_log_dirs([replica])[replica].current_path
            (target,) = set(disks) - {home}

            def plan(directory: str) -> None:
                entry = {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [directory]}
                file.write_text(json.dumps({"version": 1, "partitions": [entry]}))

            plan(target)
            assert "is not being moved from log dir" in both("--verify", *on_file, "--preserve-throttles")
            both("--cancel", *on_file, "--preserve-throttles")
            # Kafka 3.9 prints this line, Kafka 4 another one.
            ours = bare("reassign-partitions", *server, "--execute", *on_file)
            assert ours.out.splitlines()[-1] == "Successfully started log directory move for: t-0-1"
            cluster.wait_until(lambda: admin.describe_replica_log_dirs([replica])[replica].future_offset_lag > 0)
            assert "Reassignment of replica t-0-1 is still in progress." in both(
                "--verify", *on_file, "--preserve-throttles"
            )
            documents = shown()
            assert documents[0] == documents[1]
            (moving,) = documents[0]["brokers"][0]["logDirs"][disks.index(target)]["partitions"]
            assert moving["isFuture"]
            assert moving["offsetLag"] > 0
            plan(str(home))
            assert "is being moved to log dir" in both("--verify", *on_file, "--preserve-throttles")
            plan(target)
            cancelled = java.tool("kafka-reassign-partitions", "--cancel", *on_file, "--preserve-throttles")
            assert "Successfully started" in cancelled.out, cancelled.err
            assert admin.describe_replica_log_dirs([replica])[replica].future_path is None
            throttle = ("--replica-alter-log-dirs-throttle", "100000000")
            executed = java.tool("kafka-reassign-partitions", "--execute", *on_file, *throttle)
            assert "The replica-alter-dir throttle limit was set to 100000000 B/s" in executed.out, executed.err
            cluster.wait_until(lambda: admin.describe_replica_log_dirs([replica])[replica].current_path == target)
            assert "Reassignment of replica t-0-1 completed successfully." in both("--verify", *on_file)
            plan("/nowhere")
            failed = [
                bare("reassign-partitions", *server, "--execute", *on_file),
                java.tool("kafka-reassign-partitions", "--execute", *on_file),
            ]
            assert [ran.status for ran in failed] == [1, 1]
