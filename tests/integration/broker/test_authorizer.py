"""A broker with an authorizer: the APIs of ACLs, and decisions that follow the stored ACLs."""

import logging
from collections.abc import Iterator

import pytest
from tests.support.net.wire_client import WireClient

from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from headrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from headrace.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from headrace.security.acls import Operation, PatternType, Permission, ResourceType
from headrace.testing import EmbeddedBroker

INVALID_REQUEST, CLUSTER_AUTHORIZATION_FAILED = 42, 31
TOPIC, GROUP, CLUSTER, USER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.USER
ANY = 1
PROPERTIES = {"authorizer.class.name": "headrace", "super.users": "User:ANONYMOUS;User:admin"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(PROPERTIES) as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[WireClient]:
    """A client of a broker without ACLs."""
    with WireClient(broker.address) as client:
        delete(client, selection())
        yield client


def creation(
    name: str = "orders",
    resource_type: int = TOPIC,
    principal: str = "User:alice",
    host: str = "*",
    operation: int = Operation.READ,
    permission: int = Permission.ALLOW,
    pattern_type: int = PatternType.LITERAL,
) -> AclCreation:
    return AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=pattern_type,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def create(client: WireClient, *creations: AclCreation, version: int = 3) -> CreateAclsResponse:
    return client.call(CreateAclsRequest(creations=list(creations)), version)


def delete(client: WireClient, *filters: DeleteAclsFilter) -> DeleteAclsResponse:
    return client.call(DeleteAclsRequest(filters=list(filters)), 3)


def selection(name: str | None = None, resource_type: int = ANY, pattern_type: int = ANY) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=resource_type,
        resource_name_filter=name,
        pattern_type_filter=pattern_type,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )


def describe(client: WireClient, resource_type: int = ANY, version: int = 3) -> DescribeAclsResponse:
    return client.call(
        DescribeAclsRequest(
            resource_type_filter=resource_type,
            pattern_type_filter=ANY,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        ),
        version,
    )


def names(response: DescribeAclsResponse) -> dict[tuple[int, str, int], set[tuple[str, int]]]:
    assert response.error_code == 0
    return {
        (one.resource_type, one.resource_name, one.pattern_type): {(acl.principal, acl.operation) for acl in one.acls}
        for one in response.resources
    }


@pytest.mark.parametrize("version", [1, 2, 3])
def test_create_describe_and_delete(client: WireClient, version: int) -> None:
    created = create(
        client,
        creation(),
        creation(operation=Operation.WRITE),
        creation(),
        creation("ord", pattern_type=PatternType.PREFIXED, principal="User:bob"),
        creation("kafka-cluster", CLUSTER, operation=Operation.CREATE),
        version=version,
    )
    assert [result.error_code for result in created.results] == [0] * 5
    literal = PatternType.LITERAL
    assert names(describe(client, version=version)) == {
        (TOPIC, "orders", literal): {("User:alice", Operation.READ), ("User:alice", Operation.WRITE)},
        (TOPIC, "ord", PatternType.PREFIXED): {("User:bob", Operation.READ)},
        (CLUSTER, "kafka-cluster", literal): {("User:alice", Operation.CREATE)},
    }
    deleted = delete(client, selection("orders", TOPIC, PatternType.MATCH), selection(None, TOPIC), selection("x"))
    assert [
        {(acl.resource_name, acl.principal, acl.operation) for acl in result.matching_acls}
        for result in deleted.filter_results
    ] == [
        {
            ("orders", "User:alice", Operation.READ),
            ("orders", "User:alice", Operation.WRITE),
            ("ord", "User:bob", Operation.READ),
        },
        set(),
        set(),
    ]
    assert list(names(describe(client))) == [(CLUSTER, "kafka-cluster", literal)]


def test_removing_one_acl_keeps_the_others(client: WireClient) -> None:
    """CVE-2024-27309."""
    create(client, creation(), creation(principal="User:bob"), creation(operation=Operation.WRITE))
    one = selection("orders", TOPIC, PatternType.LITERAL)
    one.principal_filter = "User:bob"
    delete(client, one)
    assert names(describe(client)) == {
        (TOPIC, "orders", PatternType.LITERAL): {("User:alice", Operation.READ), ("User:alice", Operation.WRITE)}
    }


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        (creation(resource_type=1), "Invalid resourceType ANY"),
        (creation(resource_type=99), "Invalid resourceType UNKNOWN"),
        (creation(pattern_type=PatternType.MATCH), "Invalid patternType MATCH"),
        (creation(pattern_type=0), "Invalid patternType UNKNOWN"),
        (creation(operation=1), "Invalid operation ANY"),
        (creation(operation=-5), "Invalid operation UNKNOWN"),
        (creation(permission=1), "Invalid permissionType ANY"),
        (creation(permission=9), "Invalid permissionType UNKNOWN"),
        (creation(""), "Resource name should not be empty"),
        (creation("my-cluster", CLUSTER), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (creation("a/b"), "must not have a slash"),
        (creation("..", GROUP), "cannot be stored"),
        (creation("a\nb", GROUP), "cannot be stored"),
        (creation(principal="alice"), "Could not parse principal from `alice`"),
        (creation(principal=""), "Could not parse principal from ``"),
        (creation(principal="User:"), "Could not parse principal"),
        (creation(host=""), "Host should not be empty"),
    ],
)
def test_invalid_acls(client: WireClient, invalid: AclCreation, message: str) -> None:
    refused, created = create(client, invalid, creation("other")).results
    assert refused.error_code == INVALID_REQUEST
    assert message in (refused.error_message or "")
    assert created.error_code == 0
    assert list(names(describe(client))) == [(TOPIC, "other", PatternType.LITERAL)]


def test_invalid_filters(client: WireClient) -> None:
    create(client, creation())
    refused, deleted = delete(client, selection("orders", 77), selection("a/b", TOPIC)).filter_results
    assert (refused.error_code, refused.error_message) == (INVALID_REQUEST, "Unknown resourceType in the filter")
    assert (deleted.error_code, deleted.matching_acls) == (0, [])
    described = describe(client, resource_type=77)
    assert (described.error_code, described.resources) == (INVALID_REQUEST, [])
    assert len(names(describe(client))) == 1


def test_needs_rights_on_the_cluster(caplog: pytest.LogCaptureFixture) -> None:
    properties = {**PROPERTIES, "super.users": "User:admin"}
    with EmbeddedBroker(properties) as broker, WireClient(broker.address) as client, caplog.at_level(logging.INFO):
        assert describe(client).error_code == CLUSTER_AUTHORIZATION_FAILED
        assert [one.error_code for one in create(client, creation()).results] == [CLUSTER_AUTHORIZATION_FAILED]
        assert [one.error_code for one in delete(client, selection()).filter_results] == [CLUSTER_AUTHORIZATION_FAILED]
    audit = [record.getMessage() for record in caplog.records if record.name == "headrace.audit"]
    assert audit == [
        f"Principal = User:ANONYMOUS is Denied operation = {operation} from host = 127.0.0.1 on resource = "
        f"Cluster:LITERAL:kafka-cluster for request = {request}"
        for operation, request in (("DESCRIBE", "DESCRIBE_ACLS"), ("ALTER", "CREATE_ACLS"), ("ALTER", "DELETE_ACLS"))
    ]


def test_acls_survive_a_restart(broker: EmbeddedBroker, client: WireClient) -> None:
    create(client, creation(), creation("ord", pattern_type=PatternType.PREFIXED))
    broker.restart()
    with WireClient(broker.address) as client:
        assert len(names(describe(client))) == 2
