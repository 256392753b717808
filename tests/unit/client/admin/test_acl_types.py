import pytest

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
from headrace.errors import IllegalArgumentError

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")


def test_names_instead_of_members() -> None:
    pattern = ResourcePattern("topic", "orders", "Prefixed")  # type: ignore[arg-type]
    assert pattern == ResourcePattern(ResourceType.TOPIC, "orders", ACLResourcePatternType.PREFIXED)
    acl = ACL("User:a", "*", "read", "ALLOW", pattern)  # type: ignore[arg-type]
    assert acl == ACL("User:a", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)
    assert {acl: 1}[ACL("User:a", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)] == 1


def test_defaults() -> None:
    assert ORDERS.pattern_type is ACLResourcePatternType.LITERAL
    assert ACLFilter() == ACLFilter(
        None,
        None,
        ACLOperation.ANY,
        ACLPermissionType.ANY,
        ResourcePatternFilter(ResourceType.ANY, None, 1),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ResourcePattern(ResourceType.ANY, "x"), "resource_type must not be ANY"),
        (lambda: ResourcePattern(ResourceType.TOPIC, None), "resource_name must be a string, not None"),
        (lambda: ResourcePattern(ResourceType.TOPIC, "x", ACLResourcePatternType.MATCH), "pattern_type must not be M"),
        (lambda: ResourcePattern("queue", "x"), "resource_type='queue' is not valid: expected any, topic"),
        (lambda: ACL(None, "*", ACLOperation.READ, ACLPermissionType.ALLOW, ORDERS), "principal must be a string"),
        (lambda: ACL("User:a", 7, ACLOperation.READ, ACLPermissionType.ALLOW, ORDERS), "host must be a string"),
        (lambda: ACL("User:a", "*", ACLOperation.ANY, ACLPermissionType.ALLOW, ORDERS), "operation must not be ANY"),
        (lambda: ACL("User:a", "*", ACLOperation.READ, ACLPermissionType.ANY, ORDERS), "permission_type must not be"),
        (
            lambda: ACL("User:a", "*", ACLOperation.READ, ACLPermissionType.ALLOW, "x"),
            "must be a ResourcePatternFilter",
        ),
        (
            lambda: ACL("User:a", "*", ACLOperation.READ, ACLPermissionType.ALLOW, ResourcePatternFilter()),
            "must be a ResourcePattern",
        ),
        (lambda: ACLFilter(operation="fly"), "operation='fly' is not valid"),
    ],
)
def test_invalid_values(make: object, message: str) -> None:
    with pytest.raises(IllegalArgumentError, match=message):
        make()  # type: ignore[operator]
