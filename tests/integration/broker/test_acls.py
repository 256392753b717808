"""APIs of features that this broker does not have: ACLs without an authorizer, features and the Raft quorum."""

from collections.abc import Iterator

import pytest
from tests.support.net.wire_client import ConnectionEnded, WireClient

from headrace.protocol import ApiKey, Message
from headrace.protocol.messages.add_raft_voter import AddRaftVoterRequest
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headrace.protocol.messages.describe_acls import DescribeAclsRequest
from headrace.protocol.messages.describe_quorum import DescribeQuorumRequest
from headrace.protocol.messages.unregister_broker import UnregisterBrokerRequest
from headrace.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from headrace.testing import EmbeddedBroker

SECURITY_DISABLED, INVALID_REQUEST = 54, 42
QUORUM_APIS = [
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
]
"""The APIs that Kafka 3.9's brokers do not announce in ZooKeeper mode."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[WireClient]:
    with WireClient(broker.address) as client:
        yield client


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_disabled_without_an_authorizer(client: WireClient, version: int) -> None:
    described = client.call(DescribeAclsRequest(), version)
    assert (described.error_code, described.resources) == (SECURITY_DISABLED, [])
    assert described.error_message == "No Authorizer is configured on the broker"
    created = client.call(CreateAclsRequest(creations=[AclCreation(), AclCreation()]), version)
    deleted = client.call(DeleteAclsRequest(filters=[DeleteAclsFilter(), DeleteAclsFilter()]), version)
    for result in (*created.results, *deleted.filter_results):
        assert (result.error_code, result.error_message) == (SECURITY_DISABLED, "No Authorizer is configured.")
    assert len(created.results) == len(deleted.filter_results) == 2


@pytest.mark.parametrize("version", [0, 1])
def test_no_feature_can_be_updated(client: WireClient, version: int) -> None:
    updates = [FeatureUpdateKey(feature=name, max_version_level=1) for name in ("metadata.version", "x")]
    reply = client.call(UpdateFeaturesRequest(feature_updates=updates), version)
    assert [(one.feature, one.error_code) for one in reply.results] == [
        ("metadata.version", INVALID_REQUEST),
        ("x", INVALID_REQUEST),
    ]
    assert "the provided feature is not supported" in reply.results[0].error_message
    assert client.call(UpdateFeaturesRequest(), version).error_code == INVALID_REQUEST


def test_quorum_apis_are_not_announced(client: WireClient) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    announced = {one.api_key for one in client.call(request).api_keys}
    assert not announced & set(QUORUM_APIS)
    assert {ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.UPDATE_FEATURES} <= announced


@pytest.mark.parametrize("request_class", [DescribeQuorumRequest, AddRaftVoterRequest, UnregisterBrokerRequest])
def test_quorum_request_closes_the_connection(
    broker: EmbeddedBroker, request_class: type[Message], caplog: pytest.LogCaptureFixture
) -> None:
    with WireClient(broker.address) as client, caplog.at_level("INFO"):
        client.send(request_class(), 0)
        with pytest.raises((ConnectionEnded, ConnectionResetError)):
            client.receive_frame()
    assert f"API key {request_class.__api_key__} (version 0), which is not supported" in caplog.text
