import logging
from collections.abc import Iterator
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
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
A_LOGGER = "headrace.broker.handlers.a_logger_for_tests"

Changes = list[tuple[str, int, str | None]]


def resource(resource_type: int, name: str, changes: Changes) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes
        ],
    )


def alter(
    broker: AdminBroker, *resources: AlterConfigsResource, validate_only: bool = False, version: int = 1
) -> list[Any]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    return list(broker.call(request, version).responses)


def alter_topic(broker: AdminBroker, *changes: tuple[str, int, str | None]) -> dict[str, str]:
    """Returns the topic's configs after successful changes."""
    (result,) = alter(broker, resource(TOPIC, "t", list(changes)))
    assert (result.error_code, result.error_message) == (0, None)
    return broker.stored(ConfigEntity.topic("t"))


@pytest.mark.parametrize("version", range(2))
def test_changes_single_configs(broker: AdminBroker, version: int) -> None:
    broker.create("t", retention_ms="5000", segment_ms="6000")
    changes: Changes = [("retention.ms", SET, "7000"), ("max.message.bytes", SET, "100"), ("segment.ms", DELETE, None)]
    (result,) = alter(broker, resource(TOPIC, "t", changes), version=version)
    assert (result.error_code, result.resource_type, result.resource_name) == (0, TOPIC, "t")
    assert broker.stored(ConfigEntity.topic("t")) == {"retention.ms": "7000", "max.message.bytes": "100"}
    config = broker.log("t").config
    assert (config.retention_ms, config.max_message_bytes, config.segment_ms) == (7000, 100, 604_800_000)


def test_appends_to_and_subtracts_from_lists(broker: AdminBroker) -> None:
    broker.create("t")
    assert alter_topic(broker, ("cleanup.policy", APPEND, "compact")) == {"cleanup.policy": "delete,compact"}
    assert alter_topic(broker, ("cleanup.policy", APPEND, "compact, delete")) == {"cleanup.policy": "delete,compact"}
    assert alter_topic(broker, ("cleanup.policy", SUBTRACT, "delete")) == {"cleanup.policy": "compact"}
    assert alter_topic(broker, ("cleanup.policy", SUBTRACT, "delete")) == {"cleanup.policy": "compact"}
    assert broker.log("t").config.compact


def test_append_starts_with_the_effective_list(broker: AdminBroker) -> None:
    broker.create("t")
    alter(broker, resource(BROKER, "", [("log.cleanup.policy", SET, "compact")]))
    assert alter_topic(broker, ("cleanup.policy", APPEND, "delete")) == {"cleanup.policy": "compact,delete"}
    (result,) = alter(broker, resource(BROKER, "1", [("log.cleanup.policy", APPEND, "delete")]))
    assert result.error_code == 0
    assert broker.stored(ConfigEntity.broker(1)) == {"log.cleanup.policy": "compact,delete"}


def test_deletes_a_config_that_is_not_set(broker: AdminBroker) -> None:
    broker.create("t")
    assert alter_topic(broker, ("retention.ms", DELETE, None), ("no.such.key", DELETE, None)) == {}


def test_accepts_no_changes(broker: AdminBroker) -> None:
    broker.create("t", retention_ms="5")
    assert alter_topic(broker) == {"retention.ms": "5"}


def test_changes_broker_configs(broker: AdminBroker) -> None:
    broker.create("t")
    results = alter(
        broker,
        resource(BROKER, "1", [("max.connections", SET, "7")]),
        resource(BROKER, "", [("log.retention.ms", SET, "8"), ("max.connections", SET, "6")]),
    )
    assert [result.error_code for result in results] == [0, 0]
    assert broker.dynamic_config.broker("max.connections") == 7
    assert broker.log("t").config.retention_ms == 8
    alter(broker, resource(BROKER, "1", [("max.connections", DELETE, None)]))
    assert broker.dynamic_config.broker("max.connections") == 6


def test_validating_changes_nothing(broker: AdminBroker) -> None:
    broker.create("t", retention_ms="5000")
    results = alter(
        broker,
        resource(TOPIC, "t", [("retention.ms", SET, "1")]),
        resource(BROKER, "1", [("num.partitions", SET, "1")]),
        validate_only=True,
    )
    assert [result.error_code for result in results] == [0, InvalidRequestError.code]
    assert broker.stored(ConfigEntity.topic("t")) == {"retention.ms": "5000"}


@pytest.mark.parametrize(
    ("resource_type", "name", "changes", "error", "message"),
    [
        (
            TOPIC,
            "t",
            [("segment.ms", SET, None)],
            InvalidRequestError,
            "Null value not supported for : segment.ms",
        ),
        (TOPIC, "t", [("cleanup.policy", APPEND, None)], InvalidRequestError, "only DELETE has no value"),
        (TOPIC, "t", [("segment.ms", 9, "1")], InvalidRequestError, "Unknown config operation 9"),
        (
            TOPIC,
            "t",
            [("segment.ms", SET, "1"), ("segment.ms", DELETE, None)],
            InvalidRequestError,
            "Error due to duplicate config keys: segment.ms",
        ),
        (
            TOPIC,
            "t",
            [("segment.ms", APPEND, "1")],
            InvalidConfigurationError,
            "Can't APPEND to key segment.ms because its type is not LIST.",
        ),
        (
            TOPIC,
            "t",
            [("foo", SUBTRACT, "1")],
            InvalidConfigurationError,
            "Can't SUBTRACT to key foo because its type is not LIST.",
        ),
        (
            TOPIC,
            "t",
            [("segment.ms", SET, "x")],
            InvalidConfigurationError,
            "Invalid value x for configuration segment.ms",
        ),
        (
            TOPIC,
            "t",
            [("segment.ms", SET, "1"), ("foo", SET, "1")],
            InvalidConfigurationError,
            "Unknown topic config name",
        ),
        (TOPIC, "t", [("cleanup.policy", APPEND, "x")], InvalidConfigurationError, "must be one of: compact, delete"),
        (TOPIC, "nope", [("segment.ms", SET, "1")], UnknownTopicOrPartitionError, "The topic 'nope' does not exist."),
        (TOPIC, "x y", [("segment.ms", SET, "1")], InvalidTopicError, "other than ASCII alphanumerics"),
        (TOPIC, "", [("segment.ms", SET, "1")], InvalidRequestError, "Default topic resources are not allowed"),
        (
            BROKER,
            "1",
            [("node.id", SET, "1")],
            InvalidRequestError,
            "Cannot update these configs dynamically: [node.id]",
        ),
        (BROKER, "1", [("no.such", SET, "1")], InvalidRequestError, "Unknown broker config name: no.such"),
        (
            BROKER,
            "",
            [("message.max.bytes", SET, "x")],
            InvalidRequestError,
            "Invalid value x for configuration message.max.bytes",
        ),
        (
            BROKER,
            "9",
            [("max.connections", SET, "1")],
            InvalidRequestError,
            "Unexpected broker id, expected 1 or empty string, but received 9",
        ),
        (
            BROKER,
            "x",
            [("max.connections", SET, "1")],
            InvalidRequestError,
            "Broker id must be an integer, but it is: x",
        ),
        (
            LOGGER,
            "9",
            [("root", SET, "INFO")],
            InvalidRequestError,
            "Unexpected broker id, expected 1 or empty string, but received 9",
        ),
        (
            LOGGER,
            "1",
            [("root", SET, "LOUD")],
            InvalidConfigurationError,
            "not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        (LOGGER, "1", [("no.such.x", SET, "INFO")], InvalidConfigurationError, "Logger no.such.x does not exist!"),
        (LOGGER, "1", [("root", APPEND, "INFO")], InvalidRequestError, "APPEND operation is not allowed"),
        (
            LOGGER,
            "1",
            [("root", DELETE, None)],
            InvalidRequestError,
            "Removing the log level of the root logger is not allowed",
        ),
        (
            16,
            "m",
            [("interval.ms", SET, "1")],
            InvalidRequestError,
            "Invalid value 1 for interval.ms, interval must be",
        ),
        (
            32,
            "g",
            [("consumer.session.timeout.ms", SET, "1")],
            InvalidConfigurationError,
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (0, "x", [("a", SET, "b")], InvalidRequestError, "Unknown resource type 0"),
    ],
)
def test_refuses_invalid_changes(
    broker: AdminBroker, resource_type: int, name: str, changes: Changes, error: type[KafkaError], message: str
) -> None:
    broker.create("t", retention_ms="5000")
    broker.create("other")
    result, other = alter(
        broker, resource(resource_type, name, changes), resource(TOPIC, "other", [("retention.ms", SET, "1")])
    )
    assert result.error_code == error.code, result.error_message
    assert message in result.error_message
    assert other.error_code == 0
    assert broker.stored(ConfigEntity.topic("t")) == {"retention.ms": "5000"}
    assert broker.stored(ConfigEntity.broker(1)) == {}


def test_refuses_duplicate_resources(broker: AdminBroker) -> None:
    broker.create("t")
    broker.create("u")
    results = alter(
        broker,
        resource(TOPIC, "t", [("retention.ms", SET, "5")]),
        resource(TOPIC, "t", [("segment.ms", SET, "5")]),
        resource(TOPIC, "u", [("segment.ms", SET, "5")]),
    )
    refused = (
        InvalidRequestError.code,
        "Each resource must appear at most once, but 't' (type 2) appears more than once",
    )
    assert [(result.error_code, result.error_message) for result in results] == [refused, refused, (0, None)]


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger(A_LOGGER)
    yield logger
    logger.setLevel(logging.NOTSET)


def test_changes_log_levels(broker: AdminBroker, logger: logging.Logger) -> None:
    def change(operation: int, level: str | None, **options: bool) -> int:
        (result,) = alter(broker, resource(LOGGER, "1", [(A_LOGGER, operation, level)]), **options)
        return int(result.error_code)

    assert change(SET, "DEBUG", validate_only=True) == 0
    assert logger.level == logging.NOTSET
    assert change(SET, "WARN") == 0
    assert logger.level == logging.WARNING
    assert change(SET, "trace") == 0
    assert logger.isEnabledFor(5)
    assert change(DELETE, None) == 0
    assert logger.level == logging.NOTSET


def test_changes_no_logger_if_one_is_invalid(broker: AdminBroker, logger: logging.Logger) -> None:
    (result,) = alter(broker, resource(LOGGER, "1", [(A_LOGGER, SET, "DEBUG"), ("no.such", SET, "DEBUG")]))
    assert result.error_code == InvalidConfigurationError.code
    assert logger.level == logging.NOTSET
