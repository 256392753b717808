"""Effective configs of topics and brokers: precedence, listeners, checks."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from headrace.broker.config.dynamic import DynamicConfig, TopicConfig
from headrace.cluster.znodes import DEFAULT_ENTITY
from headrace.common.errors import InvalidConfigurationError, InvalidRequestError
from headrace.net.limits import Limits
from headrace.net.listeners import Listener
from headrace.storage.config import ManagerConfig


def test_topic_inherits_static_configs() -> None:
    dynamic_config = DynamicConfig({"log.retention.hours": "2", "min.insync.replicas": "2"})
    config = dynamic_config.topic("any")
    assert config.log.retention_ms == 2 * 3_600_000
    assert config.min_insync_replicas == 2
    assert dynamic_config.log_config("any") is config.log


def test_most_specific_config_wins() -> None:
    dynamic_config = DynamicConfig({"log.retention.ms": "1"}, node_id=3)
    assert dynamic_config.topic("a").log.retention_ms == 1
    dynamic_config.set_broker_overrides(DEFAULT_ENTITY, {"log.retention.ms": "2"})
    assert dynamic_config.topic("a").log.retention_ms == 2
    dynamic_config.set_broker_overrides("3", {"log.retention.ms": "3"})
    assert dynamic_config.topic("a").log.retention_ms == 3
    dynamic_config.set_topic_overrides("a", {"retention.ms": "4"})
    assert dynamic_config.topic("a").log.retention_ms == 4
    assert dynamic_config.topic("b").log.retention_ms == 3
    dynamic_config.set_topic_overrides("a", {})
    dynamic_config.set_broker_overrides("3", {})
    assert dynamic_config.topic("a").log.retention_ms == 2


def test_ignores_configs_of_another_broker() -> None:
    dynamic_config = DynamicConfig({}, node_id=3)
    dynamic_config.set_broker_overrides("4", {"log.retention.ms": "5"})
    assert dynamic_config.topic("a") == DynamicConfig({}).topic("a")


def test_notifies_listeners_of_changed_topics_only() -> None:
    dynamic_config = DynamicConfig({})
    told: list[Mapping[str, TopicConfig]] = []
    dynamic_config.on_topics_changed.append(told.append)
    dynamic_config.set_topic_overrides("a", {"retention.ms": "5"})
    dynamic_config.set_topic_overrides("a", {"retention.ms": "5"})
    dynamic_config.set_topic_overrides("b", {"retention.ms": "604800000"})  # the default
    assert [list(each) for each in told] == [["a"]]
    assert told[0]["a"].log.retention_ms == 5
    dynamic_config.set_topic_overrides("a", {})
    assert told[1]["a"].log.retention_ms == 604_800_000


def test_changed_default_applies_to_topics_without_override() -> None:
    dynamic_config = DynamicConfig({})
    dynamic_config.set_topic_overrides("a", {"retention.ms": "5"})
    for name in ("a", "b", "gone"):
        dynamic_config.log_config(name)
    dynamic_config.forget_topic("gone")
    told: list[Mapping[str, TopicConfig]] = []
    dynamic_config.on_topics_changed.append(told.append)
    dynamic_config.set_broker_overrides(DEFAULT_ENTITY, {"log.retention.ms": "7", "message.max.bytes": "2000"})
    (changed,) = told
    assert {name: (config.log.retention_ms, config.log.max_message_bytes) for name, config in changed.items()} == {
        "a": (5, 2000),
        "b": (7, 2000),
    }


def test_recreated_topic_does_not_inherit_old_configs() -> None:
    dynamic_config = DynamicConfig({})
    dynamic_config.set_topic_overrides("a", {"retention.ms": "5"})
    dynamic_config.forget_topic("a")
    assert dynamic_config.topic_overrides("a") == {}
    assert dynamic_config.topic("a").log.retention_ms == 604_800_000


def test_notifies_listeners_of_broker_keys() -> None:
    dynamic_config = DynamicConfig({"max.connections": "50"}, node_id=1)
    told: list[Mapping[str, Any]] = []
    dynamic_config.on_broker_changed.append(told.append)
    dynamic_config.set_broker_overrides("1", {"max.connections": "60", "log.cleaner.io.buffer.size": "2048"})
    dynamic_config.set_broker_overrides("1", {"max.connections": "60", "log.cleaner.io.buffer.size": "2048"})
    assert told == [{"max.connections": 60, "log.cleaner.io.buffer.size": 2048}]
    assert dynamic_config.broker("max.connections") == 60
    dynamic_config.set_broker_overrides("1", {})
    assert told[1]["max.connections"] == 50


def test_limits_and_log_manager_config_are_effective_values() -> None:
    dynamic_config = DynamicConfig({"max.connections.per.ip": "4", "log.cleaner.io.buffer.size": "4096"}, node_id=1)
    overrides = {"max.connections": "6", "max.connections.per.ip.overrides": "127.0.0.1:2"}
    dynamic_config.set_broker_overrides("1", {**overrides, "log.cleaner.io.buffer.size": "2048"})
    limits = dynamic_config.limits(Limits(backlog=7))
    assert (limits.max_connections, limits.max_connections_per_ip, limits.per_ip("127.0.0.1")) == (6, 4, 2)
    assert limits.backlog == 7
    started_with = ManagerConfig.from_properties({"log.dirs": "x"})
    assert dynamic_config.manager(started_with) == replace(started_with, log_cleaner_io_buffer_size=2048)
    dynamic_config.set_broker_overrides("1", {})
    assert dynamic_config.limits(Limits()) == Limits(max_connections_per_ip=4)
    assert dynamic_config.manager(started_with).log_cleaner_io_buffer_size == 4096


def test_limits_of_connections_of_a_listener() -> None:
    listeners = {"listeners": "A://:1,B://:2", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    dynamic_config = DynamicConfig({**listeners, "listener.name.a.max.connections": "4"}, node_id=1)
    assert dynamic_config.limits(Limits()).listener_max_connections == {"A": 4}
    assert dynamic_config.connection_rates() == (2**31 - 1, {})
    told: list[Mapping[str, Any]] = []
    dynamic_config.on_broker_changed.append(told.append)
    overrides = {"listener.name.a.max.connections": "5", "listener.name.b.max.connection.creation.rate": "6"}
    dynamic_config.check_broker("1", overrides)
    dynamic_config.set_broker_overrides("1", {**overrides, "max.connection.creation.rate": "7"})
    assert dynamic_config.limits(Limits()).listener_max_connections == {"A": 5}
    assert dynamic_config.connection_rates() == (7, {"B": 6})
    assert told == [{**overrides, "max.connection.creation.rate": 7}]
    dynamic_config.set_broker_overrides("1", {})
    assert dynamic_config.limits(Limits()).listener_max_connections == {"A": 4}
    for name, value in (("listener.name.c.max.connections", "5"), ("listener.name.a.max.connections", "0")):
        with pytest.raises(InvalidRequestError, match=name):
            dynamic_config.check_broker("1", {name: value})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention.msx": "1"}, "Unknown topic config name: retention.msx, did you mean retention.ms?"),
        ({"zzzzzz": "1"}, "Unknown topic config name: zzzzzz"),
        ({"retention.ms": "soon"}, "Invalid value soon for configuration retention.ms"),
        ({"cleanup.policy": "keep"}, "Invalid value keep for configuration cleanup.policy"),
        ({"min.insync.replicas": "0"}, "Invalid value 0 for configuration min.insync.replicas"),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, "conflict topic config setting"),
    ],
)
def test_refuses_invalid_topic_configs(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=message.replace("?", r"\?")):
        DynamicConfig({}).check_topic(overrides)


def test_checks_topic_configs_against_effective_defaults() -> None:
    dynamic_config = DynamicConfig({"log.cleaner.min.compaction.lag.ms": "10"})
    with pytest.raises(InvalidConfigurationError, match=r"min\.compaction\.lag\.ms \(10\) > max"):
        dynamic_config.check_topic({"max.compaction.lag.ms": "5"})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"num.partitions": "5", "log.dirs": "x"},
            r"Cannot update these configs dynamically: \[num.partitions, log.dirs\]",
        ),
        ({"log.retention.hours": "5"}, r"Cannot update these configs dynamically: \[log.retention.hours\]"),
        ({"log.retention.mss": "5"}, r"Unknown broker config name: log.retention.mss, did you mean log.retention.ms\?"),
        ({"log.retention.ms": "x"}, "Invalid value x for configuration log.retention.ms"),
        ({"max.connections.per.ip.overrides": "nonsense"}, "expected host:count"),
        (
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
            "conflict topic config setting",
        ),
    ],
)
def test_refuses_invalid_dynamic_broker_configs(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        DynamicConfig({}).check_broker(DEFAULT_ENTITY, overrides)


def test_accepts_dynamic_broker_configs() -> None:
    dynamic_config = DynamicConfig({})
    overrides = {"log.retention.ms": "5", "num.io.threads": "16"}
    dynamic_config.check_broker("0", overrides)
    dynamic_config.set_broker_overrides("0", overrides)
    assert dynamic_config.broker_overrides("0") == overrides
    assert dynamic_config.broker_overrides(DEFAULT_ENTITY) == {}


def test_ignores_invalid_stored_configs(caplog: pytest.LogCaptureFixture) -> None:
    dynamic_config = DynamicConfig({})
    with caplog.at_level(logging.ERROR):
        dynamic_config.set_topic_overrides("a", {"retention.ms": "never"})
        dynamic_config.set_broker_overrides(
            "0", {"log.retention.ms": "never", "num.partitions": "7", "max.connections": "9"}
        )
        dynamic_config.set_broker_overrides(
            DEFAULT_ENTITY, {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"}
        )
    assert len(caplog.records) == 4
    assert dynamic_config.topic("a") == DynamicConfig({}).topic("a")
    assert dynamic_config.topic_overrides("a") == {"retention.ms": "never"}
    assert dynamic_config.broker("max.connections") == 9
    assert dynamic_config.broker_overrides("0") == {"max.connections": "9"}
    assert dynamic_config.broker_overrides(DEFAULT_ENTITY) == {}


# ---- certificates


LISTENERS = {"listeners": "SSL://:1,PLAINTEXT://:2"}
KEYSTORE, PASSWORD = (f"listener.name.ssl.ssl.keystore.{name}" for name in ("location", "password"))


def test_certificates_are_checked_and_applied(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    config = DynamicConfig(LISTENERS, node_id=0)
    checked: list[Any] = []
    changed: list[Mapping[str, Any]] = []
    listener = Listener("SSL", "", 1, "SSL")
    config.check_security = lambda security_of: checked.append(security_of(listener).values["ssl.keystore.location"])
    config.on_broker_changed.append(changed.append)
    config.check_broker("0", {KEYSTORE: "/new.p12", PASSWORD: "secret"})
    config.check_broker("0", {"message.max.bytes": "1000"})
    assert checked == ["/new.p12"]
    assert config.security_of(listener).values["ssl.keystore.location"] is None
    config.set_broker_overrides("0", {KEYSTORE: "/new.p12", PASSWORD: "secret"})
    assert config.security_of(listener).values["ssl.keystore.location"] == "/new.p12"
    assert [sorted(each) for each in changed] == [[KEYSTORE, PASSWORD]]
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("entity", "overrides", "words"),
    [
        ("0", {"ssl.keystore.location": "x"}, "only per-listener using the listener prefix"),
        (DEFAULT_ENTITY, {KEYSTORE: "x"}, "name the broker"),
        ("0", {"listener.name.ssl.ssl.client.auth": "none"}, "Unknown broker config name"),
        ("0", {"listener.name.other.ssl.keystore.location": "x"}, "there is no listener other"),
    ],
)
def test_certificates_that_cannot_be_changed(entity: str, overrides: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        DynamicConfig(LISTENERS, node_id=0).check_broker(entity, overrides)


def test_secrets_are_not_stored_where_others_read_them(caplog: pytest.LogCaptureFixture) -> None:
    config = DynamicConfig(LISTENERS, node_id=0)
    config.stores_secrets = False
    config.check_broker("0", {KEYSTORE: "x"})
    with pytest.raises(InvalidRequestError, match="Cannot store these configs in ZooKeeper"):
        config.check_broker("0", {KEYSTORE: "x", PASSWORD: "secret"})
    config.set_broker_overrides("0", {KEYSTORE: "x", PASSWORD: "secret"})
    assert config.security_of(Listener("SSL", "", 1, "SSL")).values["ssl.keystore.password"] is None
    assert "secret" not in caplog.text
