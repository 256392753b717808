"""Config entries as clients see them."""

import pytest

from headrace.broker.config.broker import BROKER_KEYS, TOPIC_KEYS
from headrace.broker.config.dynamic import ConfigSource, DynamicConfig
from headrace.broker.config.entries import (
    ConfigEntry,
    TopicEntries,
    all_brokers_entries,
    broker_entries,
    show_value,
)
from headrace.cluster.znodes import DEFAULT_ENTITY


def _topic_entry(dynamic_config: DynamicConfig, name: str, **overrides: str) -> ConfigEntry:
    given = {key.replace("_", "."): value for key, value in overrides.items()}
    return next(entry for entry in TopicEntries(dynamic_config).of(given) if entry.name == name)


def _broker_entry(dynamic_config: DynamicConfig, name: str) -> ConfigEntry:
    return next(entry for entry in broker_entries(dynamic_config) if entry.name == name)


def test_lists_all_topic_keys_in_order() -> None:
    entries = TopicEntries(DynamicConfig({})).of({})
    assert [entry.name for entry in entries] == sorted(TOPIC_KEYS.keys)
    assert all(entry.documentation and not entry.read_only and entry.value is not None for entry in entries)
    assert {entry.source for entry in entries} == {ConfigSource.DEFAULT}


def test_synonyms_are_in_order_of_precedence() -> None:
    dynamic_config = DynamicConfig({"log.segment.bytes": "4096"}, node_id=1)
    dynamic_config.set_broker_overrides(DEFAULT_ENTITY, {"log.segment.bytes": "5000"})
    dynamic_config.set_broker_overrides("1", {"log.segment.bytes": "6000"})
    entry = _topic_entry(dynamic_config, "segment.bytes", segment_bytes="7000")
    assert (entry.value, entry.source, entry.type) == ("7000", ConfigSource.TOPIC, 3)
    assert entry.synonyms == (
        ("segment.bytes", "7000", 1),
        ("log.segment.bytes", "6000", 2),
        ("log.segment.bytes", "5000", 3),
        ("log.segment.bytes", "4096", 4),
        ("log.segment.bytes", str(1024**3), 5),
    )
    assert _topic_entry(dynamic_config, "segment.bytes").synonyms == entry.synonyms[1:]


def test_shows_a_default_in_hours_in_milliseconds() -> None:
    entry = _topic_entry(DynamicConfig({"log.retention.hours": "100"}), "retention.ms")
    assert (entry.value, entry.source) == ("360000000", ConfigSource.SERVER)
    assert entry.synonyms == (("log.retention.hours", "100", 4), ("log.retention.hours", "168", 5))


def test_topic_key_without_broker_key() -> None:
    entry = _topic_entry(DynamicConfig({}), "leader.replication.throttled.replicas")
    assert (entry.value, entry.source, entry.type, entry.synonyms) == ("", ConfigSource.DEFAULT, 7, ())


def test_shows_invalid_value_unchanged() -> None:
    assert _topic_entry(DynamicConfig({}), "retention.ms", retention_ms="never").value == "never"


def test_lists_all_broker_keys_with_read_only_flag() -> None:
    entries = broker_entries(DynamicConfig({"num.partitions": "3"}))
    assert [entry.name for entry in entries] == sorted(BROKER_KEYS.keys)
    by_name = {entry.name: entry for entry in entries}
    assert (by_name["num.partitions"].read_only, by_name["num.partitions"].source) == (True, ConfigSource.SERVER)
    assert by_name["num.partitions"].synonyms == (("num.partitions", "3", 4), ("num.partitions", "1", 5))
    assert (by_name["log.retention.ms"].read_only, by_name["log.retention.ms"].value) == (False, None)


@pytest.mark.parametrize("key", ["node.id", "broker.id"])
def test_shows_the_effective_broker_id(key: str) -> None:
    assert _broker_entry(DynamicConfig({}, node_id=7), key).value == "7"


def test_shows_a_broker_key_without_effect_if_set() -> None:
    dynamic_config = DynamicConfig({}, node_id=1)
    dynamic_config.set_broker_overrides("1", {"num.io.threads": "16"})
    entry = _broker_entry(dynamic_config, "num.io.threads")
    assert (entry.value, entry.source, entry.read_only) == ("16", ConfigSource.THIS_BROKER, False)


def test_shows_only_set_configs_of_all_brokers() -> None:
    dynamic_config = DynamicConfig({"log.retention.ms": "1"}, node_id=1)
    assert all_brokers_entries(dynamic_config) == []
    dynamic_config.set_broker_overrides("1", {"log.retention.ms": "2"})
    dynamic_config.set_broker_overrides(DEFAULT_ENTITY, {"log.retention.ms": "3", "num.io.threads": "16"})
    threads, retention = sorted(all_brokers_entries(dynamic_config), key=lambda entry: entry.name, reverse=True)
    assert (retention.name, retention.value, retention.synonyms) == (
        "log.retention.ms",
        "3",
        (("log.retention.ms", "3", 3),),
    )
    assert (threads.name, threads.value) == ("num.io.threads", "16")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        (0.5, "0.5"),
        (float(2**63 - 1), "9.223372036854776E18"),
        (("compact", "delete"), "compact,delete"),
        ((), ""),
        (7, "7"),
        (None, None),
    ],
)
def test_formats_values_as_kafka_does(value: object, shown: str | None) -> None:
    assert show_value(value) == shown


def test_passwords_are_hidden() -> None:
    name = "zookeeper.ssl.keystore.password"
    entries = {entry.name: entry for entry in broker_entries(DynamicConfig({name: "secret"}))}
    assert entries[name].is_sensitive
    assert entries[name].value is None
    assert [synonym.value for synonym in entries[name].synonyms] == [None]
    assert not entries["zookeeper.connect"].is_sensitive
