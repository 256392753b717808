"""AlterConfigs, which replaces all configs of a resource."""

from typing import Any

import pytest
from tests.support.broker.admin_broker import AdminBroker

from headrace.cluster.config_store import ConfigEntity
from headrace.common.errors import (
    InvalidConfigurationError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    UnknownTopicOrPartitionError,
)
from headrace.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource

TOPIC, BROKER, LOGGER = 2, 4, 8


def resource(resource_type: int, name: str, *configs: tuple[str, str | None]) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[AlterableConfig(name=key, value=value) for key, value in configs],
    )


def alter(
    broker: AdminBroker, *resources: AlterConfigsResource, validate_only: bool = False, version: int = 2
) -> list[Any]:
    reply = broker.call(AlterConfigsRequest(resources=list(resources), validate_only=validate_only), version)
    return list(reply.responses)


@pytest.mark.parametrize("version", range(3))
def test_omitted_configs_return_to_defaults(broker: AdminBroker, version: int) -> None:
    broker.create("t", retention_ms="5000", segment_ms="6000")
    (result,) = alter(broker, resource(TOPIC, "t", ("retention.ms", "7000")), version=version)
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.resource_type, result.resource_name) == (TOPIC, "t")
    assert broker.stored(ConfigEntity.topic("t")) == {"retention.ms": "7000"}
    config = broker.log("t").config
    assert (config.retention_ms, config.segment_ms) == (7000, 604_800_000)


def test_resets_all_configs(broker: AdminBroker) -> None:
    broker.create("t", retention_ms="5000")
    assert alter(broker, resource(TOPIC, "t"))[0].error_code == 0
    assert broker.stored(ConfigEntity.topic("t")) == {}
    assert broker.log("t").config.retention_ms == 604_800_000


def test_replaces_broker_configs(broker: AdminBroker) -> None:
    results = alter(
        broker, resource(BROKER, "1", ("max.connections", "7")), resource(BROKER, "", ("log.retention.ms", "8"))
    )
    assert [result.error_code for result in results] == [0, 0]
    assert broker.dynamic_config.broker("max.connections") == 7
    assert broker.dynamic_config.topic("any").log.retention_ms == 8
    assert broker.stored(ConfigEntity.broker(1)) == {"max.connections": "7"}
    assert broker.stored(ConfigEntity.all_brokers()) == {"log.retention.ms": "8"}


def test_validating_changes_nothing(broker: AdminBroker) -> None:
    broker.create("t", retention_ms="5000")
    results = alter(
        broker,
        resource(TOPIC, "t", ("retention.ms", "1")),
        resource(BROKER, "1", ("max.connections", "x")),
        validate_only=True,
    )
    assert [result.error_code for result in results] == [0, InvalidRequestError.code]
    assert broker.log("t").config.retention_ms == 5000


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        (
            resource(TOPIC, "t", ("segment.ms", None)),
            InvalidRequestError,
            "Null value not supported for : segment.ms",
        ),
        (
            resource(TOPIC, "t", ("segment.ms", "1"), ("segment.ms", "2")),
            InvalidRequestError,
            "Error due to duplicate config keys: segment.ms",
        ),
        (
            resource(TOPIC, "t", ("segment.ms", "x")),
            InvalidConfigurationError,
            "Invalid value x for configuration segment.ms",
        ),
        (resource(TOPIC, "t", ("foo", "1")), InvalidConfigurationError, "Unknown topic config name: foo"),
        (
            resource(TOPIC, "nope", ("segment.ms", "1")),
            UnknownTopicOrPartitionError,
            "The topic 'nope' does not exist.",
        ),
        (resource(TOPIC, "", ("segment.ms", "1")), InvalidRequestError, "Default topic resources are not allowed"),
        (resource(TOPIC, "x y", ("segment.ms", "1")), InvalidTopicError, "other than ASCII alphanumerics"),
        (
            resource(BROKER, "1", ("num.partitions", "7")),
            InvalidRequestError,
            "Cannot update these configs dynamically: [num.partitions]",
        ),
        (
            resource(BROKER, "", ("max.connections", "x")),
            InvalidRequestError,
            "Invalid value x for configuration max.connections",
        ),
        (
            resource(BROKER, "9", ("max.connections", "1")),
            InvalidRequestError,
            "Unexpected broker id, expected 1 or empty string, but received 9",
        ),
        (
            resource(BROKER, "x", ("max.connections", "1")),
            InvalidRequestError,
            "Broker id must be an integer, but it is: x",
        ),
        (resource(LOGGER, "1", ("root", "INFO")), InvalidRequestError, "Unknown resource type 8"),
        (resource(3, "x", ("a", "b")), InvalidRequestError, "Unknown resource type 3"),
    ],
)
def test_refuses_invalid_changes(
    broker: AdminBroker, asked: AlterConfigsResource, error: type[KafkaError], message: str
) -> None:
    broker.create("t", retention_ms="5000")
    broker.create("other")
    result, other = alter(broker, asked, resource(TOPIC, "other", ("retention.ms", "1")))
    assert result.error_code == error.code, result.error_message
    assert message in result.error_message
    assert other.error_code == 0
    assert broker.stored(ConfigEntity.topic("t")) == {"retention.ms": "5000"}


def test_refuses_duplicate_resources(broker: AdminBroker) -> None:
    broker.create("t")
    again = resource(TOPIC, "t", ("retention.ms", "1"))
    results = alter(broker, again, again)
    assert [(result.error_code, result.error_message) for result in results] == [
        (InvalidRequestError.code, "Each resource must appear at most once, but 't' (type 2) appears more than once")
    ] * 2
