import pytest
from tests.support.broker.admin_broker import LISTENER, AdminBroker

from headrace.cluster.commands import BrokerEndpoint, BrokerInfo
from headrace.common.errors import MismatchedEndpointTypeError, UnsupportedEndpointTypeError
from headrace.protocol.messages.describe_cluster import DescribeClusterRequest


@pytest.mark.parametrize("version", range(3))
def test_brokers_and_controller(broker: AdminBroker, version: int) -> None:
    reply = broker.call(DescribeClusterRequest(), version)
    assert (reply.error_code, reply.cluster_id, reply.controller_id) == (0, broker.cluster_id, 1)
    (found,) = reply.brokers
    assert (found.broker_id, found.host, found.port, found.rack) == (1, "localhost", 9092, "r1")
    assert reply.cluster_authorized_operations == -(2**31)


def test_has_addresses_of_the_requests_listener(broker: AdminBroker) -> None:
    broker.update(
        [], [broker.info, BrokerInfo(0, (BrokerEndpoint("INSIDE", "in", 1), BrokerEndpoint(LISTENER, "out", 2)))]
    )
    reply = broker.call(DescribeClusterRequest())
    assert [(found.broker_id, found.host, found.port) for found in reply.brokers] == [
        (0, "out", 2),
        (1, "localhost", 9092),
    ]
    reply = broker.call(DescribeClusterRequest(), listener="INSIDE")
    assert [(found.broker_id, found.host, found.port) for found in reply.brokers] == [(0, "in", 1)]


def test_authorized_operations_on_request(broker: AdminBroker) -> None:
    reply = broker.call(DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert reply.cluster_authorized_operations == 8096  # as Kafka without an authorizer


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, MismatchedEndpointTypeError.code), (3, UnsupportedEndpointTypeError.code)]
)
def test_refuses_other_endpoint_types(broker: AdminBroker, endpoint_type: int, code: int) -> None:
    reply = broker.call(DescribeClusterRequest(endpoint_type=endpoint_type))
    assert (reply.error_code, reply.brokers, reply.controller_id) == (code, [], -1)
    assert reply.error_message
