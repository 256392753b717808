"""Admin calls of a WireClient that many tests make."""

from __future__ import annotations

from typing import Any

from tests.support.net.wire_client import WireClient

from headrace.common.ids import ZERO_UUID, Uuid
from headrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)


def create_topic(
    client: WireClient, name: str, partitions: int = 1, version: int = 7, timeout_ms: int = 20_000, **configs: str
) -> Any:
    """Creates a topic and returns its result."""
    asked = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    (result,) = client.call(CreateTopicsRequest(topics=[asked], timeout_ms=timeout_ms), version).topics
    return result


def delete_topic(client: WireClient, name: str | None, topic_id: Uuid = ZERO_UUID) -> Any:
    asked = DeleteTopicState(name=name, topic_id=topic_id)
    (result,) = client.call(DeleteTopicsRequest(topics=[asked], timeout_ms=20_000)).responses
    return result


def describe_configs(
    client: WireClient, resource_type: int, name: str, *keys: str
) -> dict[str, tuple[str | None, int]]:
    """Returns value and source of each config."""
    asked = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=list(keys) or None
    )
    (result,) = client.call(DescribeConfigsRequest(resources=[asked])).results
    assert result.error_code == 0, result.error_message
    return {entry.name: (entry.value, entry.config_source) for entry in result.configs}


def alter_configs(
    client: WireClient, resource_type: int, name: str, *changes: tuple[str, int, str | None], expect: int = 0
) -> str | None:
    """Alters configs and returns the error message, if any."""
    asked = AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes
        ],
    )
    (result,) = client.call(IncrementalAlterConfigsRequest(resources=[asked])).responses
    assert result.error_code == expect, result.error_message
    message = result.error_message
    assert message is None or isinstance(message, str)
    return message
