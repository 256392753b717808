import pytest
from tests.support.broker.admin_broker import AdminBroker

from headrace.cluster.commands import BrokerInfo
from headrace.common.errors import UnsupportedVersionError
from headrace.protocol.messages.list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def names(broker: AdminBroker, *types: int) -> list[tuple[int, str]]:
    reply = broker.call(ListConfigResourcesRequest(resource_types=list(types)))
    assert reply.error_code == 0
    return [(resource.resource_type, resource.resource_name) for resource in reply.config_resources]


def test_lists_by_type(broker: AdminBroker) -> None:
    broker.create("b")
    broker.create("a")
    broker.update([], [broker.info, BrokerInfo(0)])
    topics = [(TOPIC, "a"), (TOPIC, "b")]
    brokers, loggers = [(BROKER, "0"), (BROKER, "1")], [(LOGGER, "0"), (LOGGER, "1")]
    assert names(broker, TOPIC) == topics
    assert names(broker, BROKER) == brokers
    assert names(broker, LOGGER, TOPIC) == topics + loggers
    assert names(broker, CLIENT_METRICS, GROUP) == []
    assert names(broker) == topics + brokers + loggers


def test_version_0_lists_client_metrics(broker: AdminBroker) -> None:
    broker.create("t")
    reply = broker.call(ListConfigResourcesRequest(), 0)
    assert (reply.error_code, reply.config_resources) == (0, [])


@pytest.mark.parametrize("types", [[3], [TOPIC, 99]])
def test_refuses_unknown_types(broker: AdminBroker, types: list[int]) -> None:
    reply = broker.call(ListConfigResourcesRequest(resource_types=types))
    assert (reply.error_code, reply.config_resources) == (UnsupportedVersionError.code, [])
