"""Kafka's `kafka-reassign-partitions` and `kafka-leader-election`, and ours, on a cluster: the same output."""

import json
import re
from pathlib import Path

from tests.compat.cli.conftest import bare
from tests.support.broker.java_clients import Java

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
