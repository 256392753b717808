"""Kafka's own console tools, run as an operator would."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from tests.support.apache_kafka.broker import run_java
from tests.support.broker.clients import Confluent
from tests.support.broker.java_clients import Java
from tests.support.broker.process import Broker, eventually
from tests.support.broker.records import START_MS, Record, numbered


def test_kafka_topics(java: Java, new_name: Callable[[], str]) -> None:
    name = new_name()
    done = java.tool(
        "kafka-topics", "--create", "--topic", name, "--partitions", 2, "--replication-factor", 1,
        "--config", "retention.ms=1000",
    )  # fmt: skip
    assert (done.status, done.out.strip()) == (0, f"Created topic {name}.")
    assert name in java.tool("kafka-topics", "--list").out.split()
    described = java.tool("kafka-topics", "--describe", "--topic", name)
    assert described.status == 0
    head, *partitions = described.out.strip().splitlines()
    assert re.search(rf"Topic: {name}\b.*PartitionCount: 2\b.*ReplicationFactor: 1\b.*retention.ms=1000", head)
    assert len(partitions) == 2
    assert java.tool("kafka-topics", "--alter", "--topic", name, "--partitions", 3).status == 0
    assert "PartitionCount: 3" in java.tool("kafka-topics", "--describe", "--topic", name).out
    again = java.tool("kafka-topics", "--create", "--topic", name)
    assert (again.status, name in again.out + again.err) == (1, True)
    assert java.tool("kafka-topics", "--create", "--topic", name, "--if-not-exists").status == 0
    assert java.tool("kafka-topics", "--describe", "--unavailable-partitions").out.strip() == ""
    assert java.tool("kafka-topics", "--describe", "--under-replicated-partitions").out.strip() == ""
    assert java.tool("kafka-topics", "--delete", "--topic", name).status == 0
    assert java.tool("kafka-topics", "--delete", "--topic", name).status == 1


def test_kafka_configs(java: Java, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    node = min(java.call("cluster")["nodes"])

    def shows(text: str, *args: str) -> bool:
        return text in java.tool("kafka-configs", "--describe", *args).out

    one = ("--entity-type", "topics", "--entity-name", name)
    done = java.tool(
        "kafka-configs", "--alter", *one, "--add-config", "retention.ms=777,cleanup.policy=[compact,delete]"
    )
    assert (done.status, done.out.strip()) == (0, f"Completed updating config for topic {name}.")
    changed = "retention.ms=777 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=777"
    eventually(lambda: shows(changed, *one), "retention.ms is changed")
    eventually(lambda: shows("cleanup.policy=compact,delete", *one), "cleanup.policy is changed")
    assert java.tool("kafka-configs", "--alter", *one, "--delete-config", "retention.ms").status == 0
    eventually(lambda: not shows("retention.ms=", *one), "retention.ms is deleted")
    assert shows("segment.bytes=1073741824", *one, "--all")
    assert java.tool("kafka-configs", "--alter", *one, "--add-config", "retention.ms=soon").status == 1
    assert java.tool("kafka-configs", "--alter", *one, "--add-config", "no.such.setting=1").status == 1
    everybody = ("--entity-type", "brokers", "--entity-default")
    assert java.tool("kafka-configs", "--alter", *everybody, "--add-config", "log.cleaner.threads=2").status == 0
    eventually(lambda: shows("log.cleaner.threads=2", *everybody), "log.cleaner.threads is changed")
    assert java.tool("kafka-configs", "--alter", *everybody, "--delete-config", "log.cleaner.threads").status == 0
    broker = ("--entity-type", "brokers", "--entity-name", node)
    assert shows("log.dirs=", *broker, "--all")


def test_kafka_console_producer_and_consumer(java: Java, broker: Broker, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    properties = [
        "--reader-property", "parse.key=true", "--reader-property", "key.separator=|",
        "--reader-property", "parse.headers=true", "--reader-property", "null.marker=NULL",
    ]  # fmt: skip
    text = "h:1,g:2\tk1|größer 鍵\nNULL\tk2|NULL\nNULL\tNULL|last\n"
    done = java.tool(
        "kafka-console-producer", "--topic", name, *properties, "--compression-codec", "zstd",
        "--command-property", "enable.idempotence=false", stdin=text.encode(),
    )  # fmt: skip
    assert done.status == 0, done
    found = [row._replace(timestamp=None) for row in Confluent(broker.bootstrap).read(name, [0])]
    assert found == [
        Record(0, b"k1", "größer 鍵".encode(), (("h", b"1"), ("g", b"2")), offset=0),
        Record(0, b"k2", None, offset=1),
        Record(0, None, b"last", offset=2),
    ]
    shown = [f"--formatter-property=print.{each}=true" for each in ("key", "headers", "offset", "partition")]
    consumed = java.tool(
        "kafka-console-consumer", "--topic", name, "--partition", 0, "--offset", "earliest", "--max-messages", 3, *shown
    )
    assert consumed.status == 0, consumed
    assert consumed.out.splitlines() == [
        "Partition:0\tOffset:0\th:1,g:2\tk1\tgrößer 鍵",
        "Partition:0\tOffset:1\tNO_HEADERS\tk2\tnull",
        "Partition:0\tOffset:2\tNO_HEADERS\tnull\tlast",
    ]
    later = java.tool("kafka-console-consumer", "--topic", name, "--partition", 0, "--offset", 2, "--max-messages", 1)
    assert later.out == "last\n"


def test_kafka_get_offsets_and_delete_records(
    java: Java, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    name = new_topic(2)
    Confluent(broker.bootstrap).write(name, numbered(10) + numbered(4, partition=1))

    def offsets(*args: object) -> list[str]:
        done = java.tool("kafka-get-offsets", "--topic", name, *args)
        assert done.status == 0, done
        return done.out.split()

    assert offsets() == [f"{name}:0:10", f"{name}:1:4"]
    assert offsets("--time", "earliest") == [f"{name}:0:0", f"{name}:1:0"]
    assert offsets("--time", "max-timestamp") == [f"{name}:0:9", f"{name}:1:3"]
    assert offsets("--time", START_MS + 2500) == [f"{name}:0:3", f"{name}:1:3"]
    wanted = {"version": 1, "partitions": [{"topic": name, "partition": 0, "offset": 6}]}
    plan = tmp_path / "delete.json"
    plan.write_text(json.dumps(wanted))
    done = java.tool("kafka-delete-records", "--offset-json-file", plan)
    assert f"partition: {name}-0\tlow_watermark: 6" in done.out
    assert offsets("--time", "earliest") == [f"{name}:0:6", f"{name}:1:0"]


def test_kafka_log_dirs(java: Java, broker: Broker, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    Confluent(broker.bootstrap).write(name, numbered(10))
    done = java.tool("kafka-log-dirs", "--describe", "--topic-list", name)
    (answer,) = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
    (directory,) = min(answer["brokers"], key=lambda each: each["broker"])["logDirs"]
    (partition,) = directory["partitions"]
    assert (directory["logDir"], directory["error"]) == (str(broker.data_dir), None)
    assert (partition["partition"], partition["offsetLag"], partition["isFuture"]) == (f"{name}-0", 0, False)
    assert partition["size"] > 0


def test_kafka_broker_api_versions_and_cluster(java: Java, broker: Broker) -> None:
    done = java.tool("kafka-broker-api-versions")
    assert done.status == 0, done
    for address in broker.bootstrap.split(","):
        assert f"{address} (id: " in done.out
    for line in ("Fetch(1): 4 to 18", "CreateTopics(19): 2 to 7", "ApiVersions(18): 0 to "):
        assert line in done.out
    assert "UNSUPPORTED" not in re.findall(r"(?:Produce|Fetch|Metadata|ListOffsets)\(\d+\): (.*)", done.out)
    port = broker.bootstrap.rpartition(":")[2]
    for command, expected in (("cluster-id", "Cluster ID: "), ("list-endpoints", port)):
        told = java.tool("kafka-cluster", command)
        assert (told.status, expected in told.out) == (0, True), told


def test_kafka_verifiable_producer(
    apache_kafka: None, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    name = new_topic(3)
    settings = tmp_path / "producer.properties"
    settings.write_text("enable.idempotence=false\n")
    done = run_java(  # it prints from its own threads until the JVM exits
        "org.apache.kafka.tools.VerifiableProducer",
        [
            "--bootstrap-server",
            broker.bootstrap,
            "--topic",
            name,
            "--max-messages",
            "500",
            "--command-config",
            settings,
        ],
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    acknowledged = [int(each["value"]) for each in told if each["name"] == "producer_send_success"]
    found = Confluent(broker.bootstrap).read(name, range(3))
    assert sorted(acknowledged) == sorted(int(row.value or b"-1") for row in found) == list(range(500))
