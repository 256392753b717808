"""Configs over a socket: dynamic changes take effect at once and survive a restart."""

from collections.abc import Iterator

import pytest
from tests.support.broker.admin_calls import (
    APPEND,
    BROKER,
    DELETE,
    LOGGER,
    SET,
    TOPIC,
    alter_configs,
    create_topic,
    delete_topic,
    describe_configs,
)
from tests.support.net.wire_calls import batch, produce
from tests.support.net.wire_client import ConnectionEnded, WireClient

from headrace.common.errors import InvalidConfigurationError, InvalidRequestError, MessageSizeTooLargeError
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.list_config_resources import ListConfigResourcesRequest
from headrace.testing import EmbeddedBroker

THIS, ALL, SERVER, DEFAULT = 2, 3, 4, 5


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"log.segment.bytes": 1_000_000}) as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[WireClient]:
    with WireClient(broker.address) as client:
        yield client


def broker_id(broker: EmbeddedBroker) -> str:
    return str(broker.call(lambda inside: inside.node_id))


def test_topic_configs_take_effect_at_once(client: WireClient) -> None:
    create_topic(client, "t")
    large = batch(b"x" * 5000)
    assert produce(client, large).error_code == 0
    alter_configs(client, TOPIC, "t", ("max.message.bytes", SET, "1000"), ("cleanup.policy", APPEND, "compact"))
    assert produce(client, large).error_code == MessageSizeTooLargeError.code
    assert describe_configs(client, TOPIC, "t", "max.message.bytes", "cleanup.policy", "segment.bytes") == {
        "max.message.bytes": ("1000", 1),
        "cleanup.policy": ("delete,compact", 1),
        "segment.bytes": ("1000000", SERVER),
    }
    alter_configs(client, TOPIC, "t", ("max.message.bytes", DELETE, None))
    assert produce(client, batch(b"x" * 5000, key=b"k")).error_code == 0


def test_cluster_default_applies_to_existing_topics(broker: EmbeddedBroker, client: WireClient) -> None:
    create_topic(client, "t")
    create_topic(client, "own", max_message_bytes="900000")
    alter_configs(client, BROKER, "", ("message.max.bytes", SET, "1000"))
    assert describe_configs(client, TOPIC, "t", "max.message.bytes") == {"max.message.bytes": ("1000", ALL)}
    assert produce(client, batch(b"x" * 5000)).error_code == MessageSizeTooLargeError.code
    assert produce(client, batch(b"x" * 5000), topic="own").error_code == 0
    alter_configs(client, BROKER, broker_id(broker), ("message.max.bytes", SET, "800000"))
    assert describe_configs(client, TOPIC, "t", "max.message.bytes") == {"max.message.bytes": ("800000", THIS)}
    assert produce(client, batch(b"x" * 5000)).error_code == 0


def test_refuses_static_configs(broker: EmbeddedBroker, client: WireClient) -> None:
    create_topic(client, "t")
    message = alter_configs(
        client, BROKER, broker_id(broker), ("num.partitions", SET, "5"), expect=InvalidRequestError.code
    )
    assert message == (
        "Cannot update these configs dynamically: [num.partitions]. Change server.properties and restart the broker"
    )
    message = alter_configs(client, TOPIC, "t", ("retention.ms", SET, "soon"), expect=InvalidConfigurationError.code)
    assert message is not None
    assert "Invalid value soon for configuration retention.ms" in message


def test_configs_survive_a_restart(broker: EmbeddedBroker) -> None:
    with WireClient(broker.address) as client:
        create_topic(client, "t", retention_ms="7000")
        alter_configs(client, TOPIC, "t", ("segment.ms", SET, "8000"))
        alter_configs(client, BROKER, "", ("log.retention.bytes", SET, "9000"))
        alter_configs(client, BROKER, broker_id(broker), ("message.max.bytes", SET, "1000"))
    broker.restart()
    with WireClient(broker.address) as client:
        assert describe_configs(
            client, TOPIC, "t", "retention.ms", "segment.ms", "retention.bytes", "max.message.bytes", "flush.ms"
        ) == {
            "retention.ms": ("7000", 1),
            "segment.ms": ("8000", 1),
            "retention.bytes": ("9000", ALL),
            "max.message.bytes": ("1000", THIS),
            "flush.ms": (str(2**63 - 1), DEFAULT),
        }
        assert produce(client, batch(b"x" * 5000)).error_code == MessageSizeTooLargeError.code


def test_recreated_topic_has_no_overrides(client: WireClient) -> None:
    create_topic(client, "t", segment_ms="7000")
    assert delete_topic(client, "t").error_code == 0
    create_topic(client, "t")
    assert describe_configs(client, TOPIC, "t", "segment.ms") == {"segment.ms": (str(7 * 24 * 3_600_000), DEFAULT)}


def test_changes_log_levels(broker: EmbeddedBroker, client: WireClient) -> None:
    name = "headrace.broker.dispatch"
    before, _ = describe_configs(client, LOGGER, broker_id(broker))[name]
    alter_configs(client, LOGGER, broker_id(broker), (name, SET, "FATAL"))
    assert describe_configs(client, LOGGER, broker_id(broker), name) == {name: ("FATAL", 6)}
    alter_configs(client, LOGGER, broker_id(broker), (name, DELETE, None))
    assert describe_configs(client, LOGGER, broker_id(broker), name) == {name: (before, 6)}


def test_lists_config_resources(broker: EmbeddedBroker, client: WireClient) -> None:
    create_topic(client, "t")
    listed = client.call(ListConfigResourcesRequest(resource_types=[TOPIC, BROKER])).config_resources
    assert [(each.resource_type, each.resource_name) for each in listed] == [(TOPIC, "t"), (BROKER, broker_id(broker))]


def test_describes_configs_of_many_topics(broker: EmbeddedBroker, client: WireClient) -> None:
    create_topic(client, "t")
    asked = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=["segment.ms"])
        for name in ["t", *(f"missing-{number}" for number in range(998)), "t"]
    ]
    known, *missing = client.call(DescribeConfigsRequest(resources=asked)).results
    assert known.configs[0].value == str(7 * 24 * 3_600_000)
    assert [result.resource_name for result in missing] == [f"missing-{number}" for number in range(998)]


def test_many_clients_alter_a_topic_at_once(broker: EmbeddedBroker, client: WireClient) -> None:
    create_topic(client, "t")
    keys = ["retention.ms", "segment.ms", "flush.ms", "flush.messages", "retention.bytes", "max.message.bytes"]
    clients = [WireClient(broker.address) for _ in keys]
    try:
        sent = [
            each.send(
                IncrementalAlterConfigsRequest(
                    resources=[
                        AlterConfigsResource(
                            resource_type=TOPIC,
                            resource_name="t",
                            configs=[AlterableConfig(name=key, config_operation=SET, value="123456")],
                        )
                    ]
                )
            )
            for each, key in zip(clients, keys, strict=True)
        ]
        for each, request in zip(clients, sent, strict=True):
            assert each.receive(request).responses[0].error_code == 0
    finally:
        for each in clients:
            each.close()
    assert describe_configs(client, TOPIC, "t", *keys) == dict.fromkeys(keys, ("123456", 1))


def test_max_connections_is_a_dynamic_config(broker: EmbeddedBroker, client: WireClient) -> None:
    alter_configs(client, BROKER, broker_id(broker), ("max.connections", SET, "1"))
    with WireClient(broker.address) as refused, pytest.raises((ConnectionEnded, ConnectionError)):
        refused.call(ApiVersionsRequest(), 0)
    alter_configs(client, BROKER, broker_id(broker), ("max.connections", DELETE, None))
    with WireClient(broker.address) as admitted:
        assert admitted.call(ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize(
    ("resource_type", "source", "name", "config"),
    [
        (32, 8, "group/with a slash", ("consumer.session.timeout.ms", "46000")),
        (16, 7, "slow clients", ("interval.ms", "7000")),
    ],
)
def test_configs_of_groups_and_client_metrics_survive_a_restart(
    broker: EmbeddedBroker, resource_type: int, source: int, name: str, config: tuple[str, str]
) -> None:
    listing = ListConfigResourcesRequest(resource_types=[resource_type])
    key, value = config
    with WireClient(broker.address) as client:
        assert client.call(listing, 1).config_resources == []
        alter_configs(client, resource_type, name, (key, SET, value))
        assert describe_configs(client, resource_type, name, key) == {key: (value, source)}
    broker.restart()
    with WireClient(broker.address) as client:
        assert describe_configs(client, resource_type, name, key) == {key: (value, source)}
        assert [each.resource_name for each in client.call(listing, 1).config_resources] == [name]
        alter_configs(client, resource_type, name, (key, DELETE, None))
        assert client.call(listing, 1).config_resources == []
        assert describe_configs(client, resource_type, name, key)[key][1] == DEFAULT


def test_dynamic_configs_without_effect_are_accepted_with_a_warning(
    client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    alter_configs(client, BROKER, "", ("num.io.threads", SET, "16"))
    assert "the dynamic config num.io.threads has no effect: one event loop replaces these threads" in caplog.text


def test_topic_without_cleanup_policy_keeps_its_records(client: WireClient) -> None:
    """As in Kafka 4: neither deleted by retention nor compacted. DeleteRecords is allowed."""
    create_topic(client, "kept")
    alter_configs(client, TOPIC, "kept", ("cleanup.policy", SET, ""))
    assert describe_configs(client, TOPIC, "kept", "cleanup.policy") == {"cleanup.policy": ("", 1)}
    assert produce(client, batch(b"v"), topic="kept").error_code == 0
    partitions = [DeleteRecordsPartition(partition_index=0, offset=1)]
    delete = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="kept", partitions=partitions)], timeout_ms=5000)
    assert client.call(delete).topics[0].partitions[0].low_watermark == 1
