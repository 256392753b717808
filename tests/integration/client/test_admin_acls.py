"""Access control lists with the blocking and the asyncio admin client."""

from collections.abc import Iterator

import pytest

import headrace
import headrace.aio
from headrace.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from headrace.errors import (
    ClusterAuthorizationFailedError,
    IllegalArgumentError,
    InvalidRequestError,
    SecurityDisabledError,
)
from headrace.testing import EmbeddedBroker

READ, ALLOW = ACLOperation.READ, ACLPermissionType.ALLOW
ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
PREFIX = ResourcePattern(ResourceType.TOPIC, "ord", ACLResourcePatternType.PREFIXED)
ALICE = ACL("User:alice", "*", READ, ALLOW, ORDERS)
BOB = ACL("User:bob", "10.0.0.1", ACLOperation.WRITE, ACLPermissionType.DENY, PREFIX)
USER = ACL("User:alice", "*", ACLOperation.CREATE_TOKENS, ALLOW, ResourcePattern(ResourceType.USER, "User:bob"))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"authorizer.class.name": "headrace", "super.users": "User:ANONYMOUS"}) as broker:
        yield broker


@pytest.fixture
def admin(broker: EmbeddedBroker) -> Iterator[headrace.Admin]:
    with headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_acls([ACLFilter()])
        yield admin


def test_create_describe_and_delete(admin: headrace.Admin) -> None:
    results = admin.create_acls([ALICE, BOB, USER, ALICE])
    assert {acl: result.error for acl, result in results.items()} == {ALICE: None, BOB: None, USER: None}
    assert set(admin.describe_acls()) == {ALICE, BOB, USER}
    of_orders = ResourcePatternFilter(ResourceType.TOPIC, "orders", ACLResourcePatternType.MATCH)
    assert set(admin.describe_acls(ACLFilter(resource_pattern=of_orders))) == {ALICE, BOB}
    assert admin.describe_acls(ACLFilter(host="10.0.0.1")) == [BOB]
    assert admin.describe_acls(BOB) == [BOB]
    nobody = ACLFilter("User:nobody")
    deleted = admin.delete_acls([USER, nobody])
    assert (deleted[USER].acls, deleted[nobody].acls) == ((USER,), ())
    assert set(admin.describe_acls()) == {ALICE, BOB}


async def _with_asyncio(broker: EmbeddedBroker) -> None:
    async with headrace.aio.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        await admin.delete_acls([ACLFilter()])
        await admin.create_acls([ALICE])
        assert await admin.describe_acls() == [ALICE]
        assert (await admin.delete_acls([ALICE]))[ALICE].acls == (ALICE,)


def test_asyncio(broker: EmbeddedBroker) -> None:
    import asyncio

    asyncio.run(_with_asyncio(broker))


def test_one_invalid_acl(admin: headrace.Admin) -> None:
    invalid = ACL("User:alice", "*", READ, ALLOW, ResourcePattern(ResourceType.CLUSTER, "my-cluster"))
    with pytest.raises(InvalidRequestError, match="The only valid name for the CLUSTER resource") as caught:
        admin.create_acls([invalid, ALICE])
    assert caught.value.results[ALICE].error is None
    assert isinstance(admin.create_acls([invalid], raise_errors=False)[invalid].error, InvalidRequestError)
    assert admin.describe_acls() == [ALICE]


def test_wrong_arguments(admin: headrace.Admin) -> None:
    with pytest.raises(IllegalArgumentError, match="expected ACL, not ACLFilter"):
        admin.create_acls([ACLFilter()])  # type: ignore[list-item]
    with pytest.raises(IllegalArgumentError, match="acl_filters must be a list of ACLFilters"):
        admin.delete_acls(ACLFilter())  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="acl_filter: expected ACLFilter, not 'orders'"):
        admin.describe_acls("orders")  # type: ignore[arg-type]


def test_without_an_authorizer() -> None:
    with EmbeddedBroker() as broker, headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for call in (
            lambda: admin.describe_acls(),
            lambda: admin.create_acls([ALICE]),
            lambda: admin.delete_acls([ALICE]),
        ):
            with pytest.raises(SecurityDisabledError, match="No Authorizer is configured"):
                call()


def test_without_the_right() -> None:
    with (
        EmbeddedBroker({"authorizer.class.name": "headrace"}) as broker,
        headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        with pytest.raises(ClusterAuthorizationFailedError):
            admin.describe_acls()
        with pytest.raises(ClusterAuthorizationFailedError):
            admin.create_acls([ALICE])
