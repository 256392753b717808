"""Requests that only the Java admin client supports: topic ids, pages, config synonyms, log directories."""

from collections.abc import Callable

import pytest
from tests.support.broker.clients import Confluent
from tests.support.broker.java_clients import Java, JavaError
from tests.support.broker.process import Broker, eventually
from tests.support.broker.records import numbered
from tests.support.broker.under_test import REPLICAS
from tests.support.records.other_clients import kafka

UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID, INVALID_PARTITIONS = 3, 100, 37


def test_create_topics_returns_counts_and_configs(java: Java, new_name: Callable[[], str]) -> None:
    name = new_name()
    told = java.call("create", topic=name, configs={"retention.ms": "1000"})
    assert (told["partitions"], told["replicas"]) == (1, REPLICAS)
    assert told["configs"]["retention.ms"] == "1000"
    assert told["configs"]["segment.bytes"] == str(1 << 30)
    assert java.call("describe", topic=name)["id"] == told["id"]


def test_describes_topics_by_id(java: Java, new_topic: Callable[..., str]) -> None:
    name = new_topic(3)
    number = java.call("describe", topic=name)["id"]
    found = java.call("describe", id=number)
    assert (found["name"], found["internal"], len(found["partitions"])) == (name, False, 3)
    java.call("delete", id=number)
    with pytest.raises(JavaError) as caught:
        java.call("delete", id=number)
    assert caught.value.code == UNKNOWN_TOPIC_ID


def test_describes_topics_in_pages(java: Java, new_topic: Callable[..., str]) -> None:
    """DescribeTopicPartitions returns the requested number of partitions and a cursor."""
    name = new_topic(10)
    found = java.call("describe", topic=name, limit=3)
    assert [number for number, *_ in found["partitions"]] == list(range(10))
    with pytest.raises(JavaError) as caught:
        java.call("describe", topic=name + "-missing")
    assert caught.value.code == UNKNOWN_TOPIC


def test_pages_of_partitions(broker: Broker, new_topic: Callable[..., str]) -> None:
    """The same with kafka-python, whose user requests each page."""
    first, second = sorted((new_topic(4), new_topic(4)))
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        seen, cursor = [], None
        for _ in range(3):
            page = admin.describe_topic_partitions([second, first], response_partition_limit=3, cursor=cursor)
            cursor = page["next_cursor"]
            for topic in page["topics"]:
                assert topic["error_code"] == 0
                seen += [(topic["name"], each["partition_index"]) for each in topic["partitions"]]
        assert cursor is None
        assert seen == [(name, number) for name in (first, second) for number in range(4)]
    finally:
        admin.close()


def test_validates_new_partitions(java: Java, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    java.call("grow", topic=name, partitions=5, validate_only=True)
    assert len(java.call("describe", topic=name)["partitions"]) == 1
    with pytest.raises(JavaError) as caught:
        java.call("grow", topic=name, partitions=1, validate_only=True)
    assert caught.value.code == INVALID_PARTITIONS


def test_config_sources_of_topics(java: Java, new_topic: Callable[..., str]) -> None:
    name = new_topic(retention_ms=1000)
    found = java.call("configs", kind="topic", name=name)
    retention = found["retention.ms"]
    assert (retention["value"], retention["source"], retention["type"]) == ("1000", "DYNAMIC_TOPIC_CONFIG", "LONG")
    assert retention["synonyms"][0] == ["retention.ms", "1000", "DYNAMIC_TOPIC_CONFIG"]
    assert retention["documentation"]
    assert not retention["read_only"]
    size = found["max.message.bytes"]
    assert (size["source"], size["type"]) == ("DEFAULT_CONFIG", "INT")
    assert size["synonyms"] == [["message.max.bytes", "1048588", "DEFAULT_CONFIG"]]
    types = {key: found[key]["type"] for key in ("cleanup.policy", "preallocate", "min.cleanable.dirty.ratio")}
    assert types == {"cleanup.policy": "LIST", "preallocate": "BOOLEAN", "min.cleanable.dirty.ratio": "DOUBLE"}
    assert not any(each["sensitive"] for each in found.values())


def test_has_every_topic_config_of_kafka(java: Java, new_topic: Callable[..., str]) -> None:
    expected = {
        *("cleanup.policy", "compression.gzip.level", "compression.lz4.level", "compression.type"),
        *("compression.zstd.level", "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms"),
        *("index.interval.bytes", "max.compaction.lag.ms", "max.message.bytes", "message.timestamp.after.max.ms"),
        *("message.timestamp.before.max.ms", "message.timestamp.type", "min.cleanable.dirty.ratio"),
        *("min.compaction.lag.ms", "min.insync.replicas", "preallocate", "retention.bytes", "retention.ms"),
        *("segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms"),
        "unclean.leader.election.enable",
    }
    assert expected <= set(java.call("configs", kind="topic", name=new_topic()))


def test_config_sources_of_brokers(java: Java, broker: Broker) -> None:
    node = min(java.call("cluster")["nodes"])
    found = java.call("configs", kind="broker", name=node)
    assert (found["log.dirs"]["value"], found["log.dirs"]["source"]) == (str(broker.data_dir), "STATIC_BROKER_CONFIG")
    assert found["log.retention.ms"]["value"] is None
    assert found["log.segment.bytes"]["source"] == "DEFAULT_CONFIG"
    try:
        java.call("alter", kind="broker", name=node, operations=[["set", "log.segment.bytes", "5000000"]])
        java.call("alter", kind="broker", name="", operations=[["set", "log.segment.bytes", "6000000"]])
        expected = [
            ["log.segment.bytes", "5000000", "DYNAMIC_BROKER_CONFIG"],
            ["log.segment.bytes", "6000000", "DYNAMIC_DEFAULT_BROKER_CONFIG"],
            ["log.segment.bytes", str(1 << 30), "DEFAULT_CONFIG"],
        ]

        def size() -> dict[str, object]:
            return java.call("configs", kind="broker", name=node)["log.segment.bytes"]

        eventually(lambda: size()["synonyms"] == expected, "both settings are there")
        assert (size()["value"], size()["source"]) == ("5000000", "DYNAMIC_BROKER_CONFIG")
        assert java.call("configs", kind="broker", name="")["log.segment.bytes"]["value"] == "6000000"
    finally:
        for name in (node, ""):
            java.call("alter", kind="broker", name=name, operations=[["delete", "log.segment.bytes", None]])


def test_lists_config_resources(java: Java, new_topic: Callable[..., str]) -> None:
    name = new_topic(retention_ms=1000)
    node = min(java.call("cluster")["nodes"])
    assert ["topic", name] in java.call("config_resources", kinds=["topic"])
    assert ["broker", node] in java.call("config_resources", kinds=["broker"])
    everything = java.call("config_resources", kinds=[])
    assert ["topic", name] in everything
    assert ["broker", node] in everything


def test_describes_log_dirs(java: Java, broker: Broker, new_topic: Callable[..., str]) -> None:
    name = new_topic(2)
    Confluent(broker.bootstrap).write(name, numbered(100))
    found = java.call("log_dirs")[str(broker.data_dir)]
    sizes = {tp: size for tp, size in found["partitions"].items() if tp.startswith(f"{name}-")}
    assert sizes[f"{name}-0"] == (broker.data_dir / f"{name}-0" / f"{0:020}.log").stat().st_size > 0
    assert sizes[f"{name}-1"] == 0
    assert found["total"] > found["usable"] > 0


def test_no_producers_without_idempotence(java: Java, broker: Broker, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    Confluent(broker.bootstrap).write(name, numbered(3))
    assert java.call("producers", topic=name, partition=0) == 0


def test_offsets_have_leader_epochs(java: Java, broker: Broker, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    Confluent(broker.bootstrap).write(name, numbered(3))
    assert java.call("offset", topic=name, partition=0, spec="latest") == [3, -1, 0]
    assert java.call("offset", topic=name, partition=0, spec="max_timestamp")[2] == 0


def test_serves_the_versions_that_clients_need(broker: Broker) -> None:
    """Compares the ApiVersions response that kafka-python gets with that of Apache Kafka 4.3."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        told = {key.name.upper(): versions for key, versions in admin.api_versions().items()}
    finally:
        admin.close()
    expected = {
        "PRODUCE": (0, 13),
        "FETCH": (4, 18),
        "LIST_OFFSETS": (1, 11),
        "METADATA": (0, 13),
        "API_VERSIONS": (0, 4),
        "CREATE_TOPICS": (2, 7),
        "DELETE_TOPICS": (1, 6),
        "DELETE_RECORDS": (0, 2),
        "OFFSET_FOR_LEADER_EPOCH": (2, 4),
        "DESCRIBE_CONFIGS": (1, 4),
        "ALTER_CONFIGS": (0, 2),
        "DESCRIBE_LOG_DIRS": (1, 5),
        "CREATE_PARTITIONS": (0, 3),
        "INCREMENTAL_ALTER_CONFIGS": (0, 1),
        "DESCRIBE_CLUSTER": (0, 2),
        "DESCRIBE_PRODUCERS": (0, 0),
        "LIST_CONFIG_RESOURCES": (0, 1),
        "DESCRIBE_TOPIC_PARTITIONS": (0, 0),
    }
    names = {key.replace("_", ""): versions for key, versions in told.items()}
    assert {key: tuple(names.get(key.replace("_", ""), ())) for key in expected} == expected
