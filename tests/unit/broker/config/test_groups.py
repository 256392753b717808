"""The configs of groups and client metrics subscriptions: names, defaults and checks as in Kafka 4.3."""

import pytest

from headrace.broker.config.dynamic import ConfigSource
from headrace.broker.config.entries import named_entries
from headrace.broker.config.groups import CLIENT_METRICS_KEYS, GROUP_KEYS, check_client_metrics, check_group
from headrace.common.errors import InvalidConfigurationError, InvalidRequestError, KafkaError


def test_every_default_is_allowed() -> None:
    check_group({name: key.format(key.default) or "" for name, key in GROUP_KEYS.keys.items()})
    check_client_metrics({name: key.format(key.default) or "" for name, key in CLIENT_METRICS_KEYS.keys.items()})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("no.such", "1", "Unknown group config name: no.such"),
        ("consumer.session.timeout.ms", "44999", "greater than or equal to group.consumer.min.session.timeout.ms"),
        ("consumer.session.timeout.ms", "60001", "less than or equal to group.consumer.max.session.timeout.ms"),
        ("consumer.heartbeat.interval.ms", "x", "Invalid value x for configuration consumer.heartbeat.interval.ms"),
        ("streams.num.standby.replicas", "3", "less than or equal to group.streams.max.standby.replicas"),
        ("share.delivery.count.limit", "1", "Value must be at least 2"),
        ("share.isolation.level", "x", "String must be one of: read_committed, read_uncommitted"),
        ("share.auto.offset.reset", "by_duration:P", "The value must be either 'earliest', 'latest'"),
    ],
)
def test_refuses_invalid_group_configs(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=message):
        check_group({name: value})


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("no.such", "1", InvalidRequestError, "Unknown client metrics configuration: no.such"),
        ("interval.ms", "99", InvalidRequestError, "interval must be between 100 and 3600000"),
        ("interval.ms", "x", InvalidConfigurationError, "Not a number of type INT"),
        ("match", "client_id", InvalidConfigurationError, "Illegal client matching pattern: client_id"),
        ("match", "color=red", InvalidConfigurationError, "Illegal client matching pattern: color=red"),
        ("match", "client_id=[", InvalidConfigurationError, "Illegal client matching pattern"),
    ],
)
def test_refuses_invalid_client_metrics(name: str, value: str, error: type[KafkaError], message: str) -> None:
    with pytest.raises(error, match=message):
        check_client_metrics({name: value})


def test_entries_have_sources_and_synonyms() -> None:
    entries = {
        entry.name: entry
        for entry in named_entries(GROUP_KEYS, {"consumer.session.timeout.ms": "50000"}, ConfigSource.GROUP)
    }
    own, default = entries["consumer.session.timeout.ms"], entries["consumer.heartbeat.interval.ms"]
    assert (own.value, own.source) == ("50000", 8)
    assert [synonym[:2] for synonym in own.synonyms] == [
        ("consumer.session.timeout.ms", "50000"),
        ("group.consumer.session.timeout.ms", "45000"),
    ]
    assert (default.value, default.source, len(default.synonyms)) == ("5000", 5, 1)
