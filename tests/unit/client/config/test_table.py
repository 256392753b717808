import dataclasses
import logging
import math
from typing import Any

import pytest

from headrace.client.config.admin import ADMIN_KEYS
from headrace.client.config.consumer import CONSUMER_KEYS
from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.config.table import ALIASES, ClientTable
from headrace.common.config import INT_MAX, LONG_MAX
from headrace.common.errors import ConfigError

TABLES: tuple[ClientTable[Any], ...] = (PRODUCER_KEYS, CONSUMER_KEYS, ADMIN_KEYS)


def test_accepts_dots_and_underscores() -> None:
    dotted = PRODUCER_KEYS.load({"bootstrap.servers": "a:1,b:2", "linger.ms": "20"})
    keywords = PRODUCER_KEYS.load(bootstrap_servers=["a:1", "b:2"], linger_ms=20)
    assert dotted == keywords
    assert keywords.bootstrap_servers == ("a:1", "b:2")
    assert keywords.linger_ms == 20
    assert keywords.explicit == {"bootstrap.servers", "linger.ms"}


def test_keyword_argument_takes_precedence_over_mapping() -> None:
    assert PRODUCER_KEYS.load({"linger.ms": 1}, linger_ms=2).linger_ms == 2


def test_rejects_key_in_both_spellings() -> None:
    with pytest.raises(ConfigError, match=r"linger\.ms is set twice"):
        PRODUCER_KEYS.load({"linger.ms": 1, "linger_ms": 2})


def test_rejects_non_mapping() -> None:
    with pytest.raises(ConfigError, match=r"must be keyword arguments .* or a mapping, not str"):
        PRODUCER_KEYS.load("localhost:9092")  # type: ignore[arg-type]


@pytest.mark.parametrize("table", TABLES)
def test_every_default_is_a_valid_value(table: ClientTable[Any]) -> None:
    config = table.load()
    for key in table.keys.values():
        assert getattr(config, key.attribute) == (-1 if key.name == "acks" else key.default)
        if key.default is not None:
            assert key.parse(key.default) == key.default
        assert key.doc.endswith((".", ")."))


@pytest.mark.parametrize("table", TABLES)
def test_none_stands_for_the_default(table: ClientTable[Any]) -> None:
    everything = dict.fromkeys([*table.known(), *table.unused, *table.refused])
    assert table.load(everything) == table.load()


@pytest.mark.parametrize(("value", "acks"), [(0, 0), (1, 1), (-1, -1), ("all", -1), ("0", 0), ("1", 1), ("-1", -1)])
def test_acks_is_a_number(value: object, acks: int) -> None:
    assert PRODUCER_KEYS.load(acks=value).acks == acks


def test_accepts_infinity_like_kafka_python() -> None:
    assert PRODUCER_KEYS.load(retries=math.inf).retries == INT_MAX
    assert CONSUMER_KEYS.load(consumer_timeout_ms=math.inf).consumer_timeout_ms == LONG_MAX


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"acks": 2}, "Invalid value 2 for configuration acks: String must be one of: all, -1, 0, 1"),
        ({"linger_ms": -1}, "Invalid value -1 for configuration linger.ms: Value must be at least 0"),
        ({"linger_ms": "soon"}, "Invalid value soon for configuration linger.ms: Not a number of type LONG"),
        ({"compression_type": "rar"}, "String must be one of: none, gzip, snappy, lz4, zstd"),
        ({"lingerms": 1}, "unknown configuration key 'lingerms', did you mean 'linger.ms'"),
        ({"topic_blacklist": ["("]}, "topic.blacklist: '\\(' is not a regular expression"),
        (
            {"sasl_mechanism": "LOGIN"},
            "Invalid value LOGIN for configuration sasl.mechanism: String must be one of: PLAIN",
        ),
        ({"sasl_password": 7}, r"Invalid value \[hidden\] for configuration sasl.password: Expected value"),
        ({"sasl_kerberos_name": "x"}, "sasl.kerberos.name: use `sasl.kerberos.service.name`"),
        ({"sasl.login.class": "x"}, "Java classes cannot be loaded"),
        ({"sasl_oauth_token_provider": "x"}, "expected an object with token"),
        ({"sasl_plain_password": "x", "sasl.password": "y"}, "sasl.password is set twice"),
        ({"security_protocol": "SASL"}, "String must be one of: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_error_names_the_invalid_key(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PRODUCER_KEYS.load(config)


@pytest.mark.parametrize("value", ["earliest", "latest", "none", "by_duration:PT1H"])
def test_checks_auto_offset_reset(value: str) -> None:
    assert CONSUMER_KEYS.load(auto_offset_reset=value).auto_offset_reset == value
    with pytest.raises(ConfigError, match="Expected earliest, latest, none or by_duration"):
        CONSUMER_KEYS.load(auto_offset_reset=f"{value}!!" if ":" not in value else "by_duration")


def test_passes_objects_through() -> None:
    config = PRODUCER_KEYS.load(value_serializer=str.encode)
    assert config.value_serializer is str.encode
    assert config.key_serializer is None


def test_accepts_names_of_librdkafka() -> None:
    config = CONSUMER_KEYS.load({"metadata.broker.list": "a:1", "socket.timeout.ms": 5})
    assert config.bootstrap_servers == ("a:1",)
    assert config.request_timeout_ms == 5
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is set twice"):
        CONSUMER_KEYS.load({"metadata.broker.list": "a:1", "bootstrap.servers": "b:1"})


@pytest.mark.parametrize("alias", ALIASES)
def test_alias_stands_for_a_key(alias: str) -> None:
    assert any(ALIASES[alias] in table.keys for table in TABLES)
    assert all(alias not in table.keys for table in TABLES)


@pytest.mark.parametrize(
    ("table", "key", "replacement"),
    [
        (PRODUCER_KEYS, "queue.buffering.max.messages", "buffer.memory"),
        (PRODUCER_KEYS, "batch.num.messages", "batch.size"),
        (PRODUCER_KEYS, "message.max.bytes", "max.request.size"),
        (CONSUMER_KEYS, "enable.auto.offset.store", "enable.auto.commit"),
    ],
)
def test_refused_keys_of_librdkafka_name_the_replacement(table: ClientTable[Any], key: str, replacement: str) -> None:
    assert replacement in table.keys
    with pytest.raises(ConfigError, match=f"{key}: .*`{replacement}"):
        table.load({key: 1})


def test_logs_keys_without_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headrace.client.config.table"):
        ADMIN_KEYS.load(api_version=(2, 5))
    assert "Configuration key api.version has no effect in this client" in caplog.text


def test_reference_table_lists_every_key_once() -> None:
    common = ADMIN_KEYS.known()
    text = PRODUCER_KEYS.markdown(without=common)
    assert "| `linger.ms` | long |" in text
    assert "| `value.serializer` | object | | |" in text
    assert "`bootstrap.servers`" not in text
    assert len(ADMIN_KEYS.markdown().splitlines()) == len(common) + 2
    assert all(line.count("|") == 6 for line in ADMIN_KEYS.markdown().splitlines())


def test_config_is_frozen_and_hides_the_password() -> None:
    config = ADMIN_KEYS.load(ssl_password="secret")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.client_id = "x"  # type: ignore[misc]
    assert dataclasses.replace(config, client_id="x").client_id == "x"
    assert config.client_id == "headrace"
    assert "secret" not in repr(config)
