from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.admin_broker import AdminBroker

from headrace.broker.config.broker import BROKER_KEYS, TOPIC_KEYS
from headrace.cluster.znodes import DEFAULT_ENTITY
from headrace.common.errors import InvalidRequestError, InvalidTopicError, KafkaError, UnknownTopicOrPartitionError
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def describe(
    broker: AdminBroker,
    resource_type: int,
    name: str,
    *keys: str,
    all_keys: list[str] | None = None,
    version: int = 4,
    **fields: Any,
) -> Any:
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=list(keys) if keys else all_keys
    )
    (result,) = broker.call(DescribeConfigsRequest(resources=[resource], **fields), version).results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result


@pytest.mark.parametrize("version", range(1, 5))
def test_describes_a_topic(broker: AdminBroker, version: int) -> None:
    broker.create("t", retention_ms="5000")
    result = describe(broker, TOPIC, "t", "retention.ms", include_synonyms=True, version=version)
    assert (result.error_code, result.error_message) == (0, "")
    (entry,) = result.configs
    assert (entry.name, entry.value, entry.config_source) == ("retention.ms", "5000", 1)
    assert (entry.read_only, entry.is_sensitive, entry.documentation or None) == (False, False, None)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("retention.ms", "5000", 1),
        ("log.retention.hours", "168", 5),
    ]
    assert entry.config_type == (5 if version >= 3 else 0)


@pytest.mark.parametrize("all_keys", [None, []])
def test_describes_all_keys(broker: AdminBroker, all_keys: list[str] | None) -> None:
    broker.create("t")
    result = describe(broker, TOPIC, "t", all_keys=all_keys)
    assert {entry.name for entry in result.configs} == set(TOPIC_KEYS.keys)
    assert all(entry.synonyms == [] for entry in result.configs)


def test_omits_unknown_keys(broker: AdminBroker) -> None:
    broker.create("t")
    assert [entry.name for entry in describe(broker, TOPIC, "t", "segment.ms", "nokey").configs] == ["segment.ms"]
    assert describe(broker, TOPIC, "t", "nokey").configs == []


def test_documentation_on_request(broker: AdminBroker) -> None:
    broker.create("t")
    (entry,) = describe(broker, TOPIC, "t", "segment.ms", include_documentation=True).configs
    assert entry.documentation == TOPIC_KEYS.keys["segment.ms"].doc
    (entry,) = describe(broker, TOPIC, "t", "segment.ms").configs
    assert entry.documentation is None


def test_describes_this_broker(tmp_path: Path) -> None:
    with AdminBroker(tmp_path, num_partitions="3") as broker:
        broker.dynamic_config.set_broker_overrides("1", {"log.retention.ms": "5"})
        result = describe(broker, BROKER, "1", include_synonyms=True)
        by_name = {entry.name: entry for entry in result.configs}
        assert set(by_name) == set(BROKER_KEYS.keys)
        retention, partitions = by_name["log.retention.ms"], by_name["num.partitions"]
        assert (retention.value, retention.config_source, retention.read_only) == ("5", 2, False)
        assert (partitions.value, partitions.config_source, partitions.read_only) == ("3", 4, True)
        assert [(each.value, each.source) for each in partitions.synonyms] == [("3", 4), ("1", 5)]


def test_describes_all_brokers(broker: AdminBroker) -> None:
    assert describe(broker, BROKER, "").configs == []
    broker.dynamic_config.set_broker_overrides(DEFAULT_ENTITY, {"log.retention.ms": "6"})
    (entry,) = describe(broker, BROKER, "").configs
    assert (entry.name, entry.value, entry.config_source) == ("log.retention.ms", "6", 3)


def test_describes_loggers(broker: AdminBroker) -> None:
    entries = {entry.name: entry for entry in describe(broker, LOGGER, "1").configs}
    assert entries["root"].config_source == 6
    assert entries["headrace.broker.config.dynamic"].value in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
    assert all(name == "root" or name.startswith("headrace") for name in entries)


@pytest.mark.parametrize(
    ("resource_type", "name", "error", "message"),
    [
        (TOPIC, "nope", UnknownTopicOrPartitionError, "Topic 'nope' does not exist."),
        (TOPIC, "x y", InvalidTopicError, "other than ASCII alphanumerics"),
        (TOPIC, "", InvalidTopicError, "the empty string is not allowed"),
        (BROKER, "9", InvalidRequestError, "Unexpected broker id, expected 1 or empty string, but received 9"),
        (BROKER, "x", InvalidRequestError, "Broker id must be an integer, but it is: x"),
        (LOGGER, "9", InvalidRequestError, "Unexpected broker id, expected 1 or empty string, but received 9"),
        (LOGGER, "", InvalidRequestError, "Broker id must not be empty"),
        (CLIENT_METRICS, "", InvalidRequestError, "Client metrics subscription name must not be empty"),
        (GROUP, "", InvalidRequestError, "Group name must not be empty"),
        (3, "x", InvalidRequestError, "Unknown resource type 3"),
        (99, "x", InvalidRequestError, "Unknown resource type 99"),
    ],
)
def test_errors_for_invalid_resources(
    broker: AdminBroker, resource_type: int, name: str, error: type[KafkaError], message: str
) -> None:
    result = describe(broker, resource_type, name)
    assert (result.error_code, result.configs) == (error.code, [])
    assert message in result.error_message
