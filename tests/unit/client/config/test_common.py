import logging
import math

import pytest

from headrace.client.config.common import ADMIN_KEYS, ALIASES, ClientSettings, ClientTable
from headrace.client.config.consumer import CONSUMER_KEYS
from headrace.client.config.producer import PRODUCER_KEYS
from headrace.common.config import INT_MAX, LONG_MAX
from headrace.common.errors import ConfigError

TABLES = (PRODUCER_KEYS, CONSUMER_KEYS, ADMIN_KEYS)


def test_dots_and_underscores_are_the_same() -> None:
    dotted = ClientSettings.load(PRODUCER_KEYS, {"bootstrap.servers": "a:1,b:2", "linger.ms": "20"})
    plain = ClientSettings.load(PRODUCER_KEYS, bootstrap_servers=["a:1", "b:2"], linger_ms=20)
    assert dotted.as_dict() == plain.as_dict()
    assert plain.bootstrap_servers == ("a:1", "b:2")
    assert plain.linger_ms == 20
    assert plain.given == {"bootstrap.servers", "linger.ms"}


def test_keyword_arguments_win() -> None:
    assert ClientSettings.load(PRODUCER_KEYS, {"linger.ms": 1}, linger_ms=2).linger_ms == 2


def test_a_key_in_both_spellings_is_given_twice() -> None:
    with pytest.raises(ConfigError, match=r"linger\.ms is given twice"):
        ClientSettings.load(PRODUCER_KEYS, {"linger.ms": 1, "linger_ms": 2})


@pytest.mark.parametrize("table", TABLES)
def test_every_default_is_a_value_that_may_be_given(table: ClientTable) -> None:
    settings = ClientSettings.load(table)
    for key in table.keys.values():
        assert getattr(settings, key.attribute) == (-1 if key.name == "acks" else key.default)
        if key.default is not None:
            assert key.parse(key.default) == key.default
        assert key.doc.endswith((".", ")."))


@pytest.mark.parametrize("table", TABLES)
def test_none_stands_for_the_default(table: ClientTable) -> None:
    everything = dict.fromkeys([*table.known(), *table.unused, *table.refused])
    assert ClientSettings.load(table, everything).as_dict() == ClientSettings.load(table).as_dict()


@pytest.mark.parametrize(("given", "acks"), [(0, 0), (1, 1), (-1, -1), ("all", -1), ("0", 0), ("1", 1), ("-1", -1)])
def test_acks(given: object, acks: int) -> None:
    assert ClientSettings.load(PRODUCER_KEYS, acks=given).acks == acks


def test_endless_numbers_of_kafka_python() -> None:
    assert ClientSettings.load(PRODUCER_KEYS, retries=math.inf).retries == INT_MAX
    assert ClientSettings.load(CONSUMER_KEYS, consumer_timeout_ms=math.inf).consumer_timeout_ms == LONG_MAX


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"acks": 2}, "acks='2' is not a valid value: expected all or -1 or 0 or 1"),
        ({"linger_ms": -1}, "linger.ms=-1 is not a valid value: expected a value of type long of at least 0"),
        ({"linger_ms": "soon"}, "linger.ms='soon' is not a valid value"),
        ({"compression_type": "rar"}, "expected none or gzip or snappy or lz4 or zstd"),
        ({"lingerms": 1}, "unknown configuration key 'lingerms', did you mean 'linger.ms'"),
        ({"topic_blacklist": ["("]}, "regular expressions, and '\\(' is none"),
        ({"sasl_mechanism": "PLAIN"}, "sasl.mechanism: there is no SASL yet"),
        ({"security_protocol": "SASL_SSL"}, "expected PLAINTEXT or SSL"),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ClientSettings.load(PRODUCER_KEYS, given)


@pytest.mark.parametrize("value", ["earliest", "latest", "none", "by_duration:PT1H"])
def test_where_a_consumer_begins(value: str) -> None:
    assert ClientSettings.load(CONSUMER_KEYS, auto_offset_reset=value).auto_offset_reset == value
    with pytest.raises(ConfigError, match="expected earliest, latest, none or by_duration"):
        ClientSettings.load(CONSUMER_KEYS, auto_offset_reset=f"{value}!!" if ":" not in value else "by_duration")


def test_objects_are_taken_as_they_are() -> None:
    settings = ClientSettings.load(PRODUCER_KEYS, value_serializer=str.encode)
    assert settings.value_serializer("x") == b"x"
    assert settings.key_serializer is None


def test_names_of_librdkafka() -> None:
    settings = ClientSettings.load(CONSUMER_KEYS, {"metadata.broker.list": "a:1", "socket.timeout.ms": 5})
    assert settings.bootstrap_servers == ("a:1",)
    assert settings.request_timeout_ms == 5
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is given twice"):
        ClientSettings.load(CONSUMER_KEYS, {"metadata.broker.list": "a:1", "bootstrap.servers": "b:1"})


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_stands_for_a_key(alias: str) -> None:
    assert any(ALIASES[alias] in table.keys for table in TABLES)
    assert all(alias not in table.keys for table in TABLES)


@pytest.mark.parametrize(
    ("table", "key", "instead"),
    [
        (PRODUCER_KEYS, "queue.buffering.max.messages", "buffer.memory"),
        (PRODUCER_KEYS, "batch.num.messages", "batch.size"),
        (PRODUCER_KEYS, "message.max.bytes", "max.request.size"),
        (CONSUMER_KEYS, "enable.auto.offset.store", "enable.auto.commit"),
    ],
)
def test_refused_keys_of_librdkafka_say_what_to_give_instead(table: ClientTable, key: str, instead: str) -> None:
    assert instead in table.keys
    with pytest.raises(ConfigError, match=f"{key}: .*`{instead}"):
        ClientSettings.load(table, {key: 1})


def test_keys_that_change_nothing_are_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headrace.client.config.common"):
        ClientSettings.load(ADMIN_KEYS, api_version=(2, 5))
    assert "the setting api.version is known and changes nothing" in caplog.text


def test_the_reference_table_has_every_key_once() -> None:
    common = ADMIN_KEYS.known()
    text = PRODUCER_KEYS.markdown(without=common)
    assert "| `linger.ms` | long |" in text
    assert "| `value.serializer` | object | | |" in text
    assert "`bootstrap.servers`" not in text
    assert len(ADMIN_KEYS.markdown().splitlines()) == len(common) + 2
    assert all(line.count("|") == 6 for line in ADMIN_KEYS.markdown().splitlines())


def test_settings_do_not_change() -> None:
    settings = ClientSettings.load(ADMIN_KEYS)
    with pytest.raises(AttributeError, match="settings do not change"):
        settings.client_id = "x"
    with pytest.raises(AttributeError, match=r"there is no setting 'no\.such'"):
        _ = settings.no_such
    assert settings.replace(client_id="x").client_id == "x"
    assert settings.client_id == "headrace"
    with pytest.raises(AttributeError, match="there is no setting"):
        settings.replace(nothing=1)
