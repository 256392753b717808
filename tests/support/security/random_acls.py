"""Random ACLs, cases and filters. Names are few and similar, so that patterns overlap."""

import random
from dataclasses import dataclass
from itertools import product

from headrace.common.principal import Principal, parse_principal
from headrace.security.acls import (
    RESOURCE_TYPES,
    AclBinding,
    AclBindingFilter,
    AclEntry,
    AclEntryFilter,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

OPERATIONS = [operation for operation in Operation if Operation.ANY < operation < Operation.TWO_PHASE_COMMIT]
"""The operations of Apache Kafka 3.9."""
PERMISSIONS = (Permission.ALLOW, Permission.DENY)
PATTERN_TYPES = (PatternType.LITERAL, PatternType.PREFIXED)
NAMES = [
    *("".join(letters) for length in (1, 2, 3) for letters in product("ab", repeat=length)),
    *("*", "*a", "orders", "orders-", "orders-eu", "orders-eu-1", "ordeR", "müller", "müllers", "a b", "__x", "~"),
]
PRINCIPALS = ("User:alice", "User:bob", "User:CN=alice,O=example", "User:*", "Group:alice", "User:a:b", "User:carol")
HOSTS = ("10.0.0.1", "10.0.0.2", "192.168.1.77", "0:0:0:0:0:0:0:1", "fe80:0:0:0:1:2:3:4")
SUPER_USERS = "User:root; User:CN=carol,OU=a;User:a:b"

Case = tuple[Principal, str, Operation, Resource]
AnyCase = tuple[Principal, str, Operation, ResourceType]


@dataclass(frozen=True)
class AclCases:
    """ACLs, and questions about them."""

    acls: list[AclBinding]
    everyone: bool
    cases: list[Case]
    any_cases: list[AnyCase]
    filters: list[AclBindingFilter]


def make_cases(random: random.Random, cases: int) -> AclCases:
    types = random.sample(RESOURCE_TYPES, k=random.randint(1, 3))
    operations = random.sample(OPERATIONS, k=random.randint(2, len(OPERATIONS)))
    denies = random.choice((0.05, 0.2, 0.5))
    any_host = random.choice((0.2, 0.8))

    def principal() -> str:
        return random.choice(PRINCIPALS)

    def resource_pattern() -> ResourcePattern:
        pattern_type = random.choice(PATTERN_TYPES)
        return ResourcePattern(random.choice(types), random.choice(NAMES), pattern_type)

    def entry() -> AclEntry:
        host = "*" if random.random() < any_host else random.choice(HOSTS)
        permission = Permission.DENY if random.random() < denies else Permission.ALLOW
        return AclEntry(principal(), host, random.choice(operations), permission)

    def resource() -> Resource:
        name = random.choice(NAMES) + random.choice(("", "", "a", "-x"))
        return Resource(random.choice(types), name)

    def client() -> tuple[Principal, str]:
        name = random.choice([*PRINCIPALS, "User:root", "User:CN=carol,OU=a"])
        return parse_principal(name), random.choice(HOSTS)

    acls = [AclBinding(resource_pattern(), entry()) for _ in range(random.choice((0, 1, 3, 10, 30, 100)))]
    return AclCases(
        acls=acls,
        everyone=random.random() < 0.3,
        cases=[(*client(), random.choice(OPERATIONS), resource()) for _ in range(cases)],
        any_cases=[(*client(), random.choice(operations), random.choice(types)) for _ in range(cases // 5)],
        filters=[_random_filter(random, random.choice(acls)) for _ in range(cases // 10)] if acls else [],
    )


def _random_filter(random: random.Random, acl: AclBinding) -> AclBindingFilter:
    """Returns a filter that selects an ACL, or nearly so."""
    pattern, entry = acl.pattern, acl.entry
    return AclBindingFilter(
        ResourcePatternFilter(
            random.choice((ResourceType.ANY, pattern.type)),
            random.choice((None, pattern.name, pattern.name, f"{pattern.name}a", random.choice(NAMES))),
            random.choice((PatternType.ANY, PatternType.MATCH, *PATTERN_TYPES)),
        ),
        AclEntryFilter(
            random.choice((None, None, entry.principal, random.choice(PRINCIPALS))),
            random.choice((None, None, entry.host, random.choice(HOSTS))),
            random.choice((Operation.ANY, Operation.ANY, entry.operation, random.choice(OPERATIONS))),
            random.choice((Permission.ANY, entry.permission, *PERMISSIONS)),
        ),
    )
