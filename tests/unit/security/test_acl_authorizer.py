import pytest
from tests.support.security.reference_authorizer import allow, deny, literal, prefixed

from headrace.common.principal import Principal
from headrace.security.acl_authorizer import AclAuthorizer, canonical_host
from headrace.security.acls import (
    AclBinding,
    AclBindingFilter,
    AclEntryFilter,
    Operation,
    PatternType,
    Resource,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HOST = "10.0.0.1"
ORDERS = Resource(ResourceType.TOPIC, "orders")
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


def make(*bindings: AclBinding, everyone: bool = False, super_users: tuple[Principal, ...] = ()) -> AclAuthorizer:
    authorizer = AclAuthorizer(None, super_users, allow_everyone_if_no_acl_found=everyone)
    for pattern in {binding.pattern for binding in bindings}:
        authorizer.set_entries(pattern, (binding.entry for binding in bindings if binding.pattern == pattern))
    return authorizer


def may(
    authorizer: AclAuthorizer,
    operation: Operation,
    name: str = "orders",
    principal: Principal = ALICE,
    host: str = HOST,
) -> bool:
    return authorizer.is_authorized(principal, host, operation, Resource(ResourceType.TOPIC, name))


def may_any(authorizer: AclAuthorizer, operation: Operation = WRITE, principal: Principal = ALICE) -> bool:
    return authorizer.is_authorized_for_any(principal, HOST, operation, ResourceType.TOPIC)


def test_literal_name() -> None:
    authorizer = make(allow(literal("orders"), READ))
    assert may(authorizer, READ)
    assert not may(authorizer, READ, "orders-2")
    assert not may(authorizer, READ, principal=BOB)
    assert not may(authorizer, WRITE)
    assert not authorizer.is_authorized(ALICE, HOST, READ, Resource(ResourceType.GROUP, "orders"))


def test_prefixes_of_all_lengths() -> None:
    authorizer = make(
        allow(prefixed("o"), READ), allow(prefixed("orders"), WRITE), allow(prefixed("orders-2024"), READ)
    )
    assert may(authorizer, READ, "o")
    assert may(authorizer, WRITE, "orders-2024")
    assert not may(authorizer, WRITE, "order")
    assert not may(authorizer, READ, "")
    authorizer.set_entries(prefixed("o"), ())
    assert not may(authorizer, READ, "o")
    assert may(authorizer, WRITE, "orders-1")


def test_wildcards() -> None:
    authorizer = make(allow(literal("*"), READ, principal="User:*"))
    assert may(authorizer, READ, "anything", BOB, "::1")
    assert may(authorizer, READ, principal=Principal("Group", "x"))
    # A prefix * is a prefix like others.
    authorizer = make(allow(prefixed("*"), READ))
    assert may(authorizer, READ, "*x")
    assert not may(authorizer, READ, "x")


def test_hosts() -> None:
    authorizer = make(allow(literal("orders"), READ, host="10.0.0.1"), deny(literal("orders"), WRITE, host="10.0.0.1"))
    assert may(authorizer, READ)
    assert not may(authorizer, READ, host="10.0.0.2")
    assert may(authorizer, READ, host="::ffff:10.0.0.1")
    authorizer = make(allow(literal("orders"), READ, host="0:0:0:0:0:0:0:1"))
    assert may(authorizer, READ, host="::1")
    assert [canonical_host(host) for host in ("*", "a.example", "FE80::1%eth0")] == ["*", "a.example", "fe80::1%eth0"]


@pytest.mark.parametrize("pattern", [literal("orders"), literal("*"), prefixed("ord")])
def test_deny_comes_first(pattern: ResourcePattern) -> None:
    authorizer = make(allow(literal("orders"), Operation.ALL), allow(literal("*"), Operation.ALL), deny(pattern, READ))
    assert not may(authorizer, READ)
    assert may(authorizer, WRITE)
    authorizer = make(allow(literal("orders"), READ), deny(pattern, Operation.ALL))
    assert not may(authorizer, READ)


def test_implied_operations() -> None:
    for operation in Operation:
        authorizer = make(allow(literal("orders"), operation))
        implied = {
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.ALL,
            Operation.DESCRIBE,
        }
        assert may(authorizer, DESCRIBE) is (operation in implied)
        configs = {Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS, Operation.ALL}
        assert may(authorizer, Operation.DESCRIBE_CONFIGS) is (operation in configs)
    # A denied READ does not deny DESCRIBE.
    assert may(make(allow(literal("orders"), WRITE), deny(literal("orders"), READ)), DESCRIBE)


def test_super_users_may_do_everything() -> None:
    authorizer = make(deny(literal("*"), Operation.ALL, principal="User:*"), super_users=(ALICE,))
    assert may(authorizer, WRITE)
    assert may(authorizer, WRITE, principal=Principal("User", "alice", token_authenticated=True))
    assert not may(authorizer, WRITE, principal=BOB)
    assert may_any(authorizer)
    assert not may_any(authorizer, principal=BOB)
    assert authorizer.is_super_user(ALICE)
    assert not authorizer.is_super_user(Principal("Group", "alice"))


def test_everyone_if_no_acl_is_found() -> None:
    authorizer = make(allow(prefixed("ord"), READ, principal="User:bob"), everyone=True)
    assert may(authorizer, WRITE, "payments")
    assert not may(authorizer, WRITE, "orders")
    assert not may(make(), READ)
    assert may_any(authorizer)


def test_a_change_invalidates_cached_decisions() -> None:
    authorizer = make()
    assert not may(authorizer, READ)
    assert not may_any(authorizer, READ)
    authorizer.set_entries(literal("orders"), [allow(literal("orders"), READ).entry])
    assert may(authorizer, READ)
    assert may_any(authorizer, READ)
    authorizer.set_entries(literal("orders"), ())
    assert not may(authorizer, READ)
    assert not may_any(authorizer, READ)
    assert list(authorizer.patterns()) == []


def test_cache_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.security.acl_authorizer._CACHED_DECISIONS", 10)
    authorizer = make(allow(prefixed("t"), READ))
    assert [may(authorizer, READ, f"t{number}") for number in range(100)] == [True] * 100
    assert may(authorizer, READ, "t" * 30_000)
    assert len(authorizer._decisions) <= 10
    assert all(len(str(key)) < 300 for key in authorizer._decisions)


def test_damaged_acls_deny_everything_they_could_match() -> None:
    authorizer = make(allow(literal("*"), READ), super_users=(BOB,), everyone=True)
    authorizer.set_damaged(prefixed("ord"))
    assert not may(authorizer, READ)
    assert not may(authorizer, DESCRIBE)
    assert may(authorizer, READ, "payments")
    assert may(authorizer, READ, principal=BOB)
    authorizer.set_damaged(literal("*"))
    assert not may(authorizer, READ, "payments")
    assert not may_any(authorizer, READ)
    authorizer.set_entries(literal("*"), [allow(literal("*"), READ).entry])
    authorizer.set_entries(prefixed("ord"), ())
    assert may(authorizer, READ)


@pytest.mark.parametrize(
    ("bindings", "expected"),
    [
        ([], False),
        ([allow(literal("orders"), WRITE)], True),
        ([allow(prefixed("ord"), WRITE)], True),
        ([allow(literal("*"), WRITE), deny(literal("orders"), WRITE)], True),
        ([allow(literal("*"), WRITE), deny(prefixed("a"), WRITE)], True),
        ([allow(literal("orders"), WRITE), deny(literal("*"), WRITE)], False),
        ([allow(literal("orders"), WRITE), deny(literal("orders"), WRITE)], False),
        ([allow(literal("orders"), WRITE), deny(literal("payments"), WRITE)], True),
        ([allow(literal("orders"), WRITE), deny(prefixed("ord"), Operation.ALL)], False),
        ([allow(prefixed("orders-"), WRITE), deny(prefixed("ord"), WRITE)], False),
        ([allow(prefixed("ord"), WRITE), deny(prefixed("orders-"), WRITE)], True),
        ([allow(prefixed("ord"), WRITE), deny(literal("orders"), WRITE)], True),
        ([allow(literal("orders"), READ)], False),
        ([allow(literal("orders"), WRITE, host="10.9.9.9")], False),
        ([allow(literal("orders"), WRITE), deny(literal("*"), WRITE, principal="User:bob")], True),
    ],
)
def test_any_resource_of_a_type(bindings: list[AclBinding], expected: bool) -> None:
    assert may_any(make(*bindings)) is expected


def test_filters() -> None:
    bindings = [
        allow(literal("orders"), READ),
        deny(literal("orders"), WRITE, principal="User:bob", host="10.0.0.1"),
        allow(literal("*"), READ),
        allow(prefixed("ord"), READ),
        allow(ResourcePattern(ResourceType.GROUP, "orders", PatternType.LITERAL), READ),
    ]
    authorizer = make(*bindings)
    any_pattern, any_entry = ResourcePatternFilter(), AclEntryFilter()

    def found(pattern: ResourcePatternFilter = any_pattern, entry: AclEntryFilter = any_entry) -> set[int]:
        return {bindings.index(binding) for binding in authorizer.acls(AclBindingFilter(pattern, entry))}

    topic = ResourceType.TOPIC
    assert found() == {0, 1, 2, 3, 4}
    assert found(ResourcePatternFilter(topic)) == {0, 1, 2, 3}
    assert found(ResourcePatternFilter(topic, "orders", PatternType.LITERAL)) == {0, 1}
    assert found(ResourcePatternFilter(topic, "ord", PatternType.ANY)) == {3}
    assert found(ResourcePatternFilter(topic, None, PatternType.PREFIXED)) == {3}
    assert found(ResourcePatternFilter(topic, "orders", PatternType.MATCH)) == {0, 1, 2, 3}
    assert found(ResourcePatternFilter(name="orders", pattern_type=PatternType.MATCH)) == {0, 1, 2, 3, 4}
    assert found(ResourcePatternFilter(topic, "x", PatternType.MATCH)) == {2}
    assert found(entry=AclEntryFilter(principal="User:bob")) == {1}
    assert found(entry=AclEntryFilter(host="*", operation=READ)) == {0, 2, 3, 4}
    assert found(entry=AclEntryFilter(permission=bindings[1].entry.permission)) == {1}
