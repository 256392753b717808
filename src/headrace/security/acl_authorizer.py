"""The authorizer: decides by access control lists, with the semantics of Kafka's AclAuthorizer.

    1. A super user may do everything.
    2. The entries of all patterns that match the resource count: its literal name, the literal name *, its prefixes.
    3. Without such a pattern, `allow.everyone.if.no.acl.found` decides.
    4. A DENY entry of the operation, or of ALL, denies.
    5. An ALLOW entry of the operation, of ALL, or of an operation that implies it, allows. READ, WRITE, DELETE and
       ALTER imply DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS.
    6. Everything else is denied.

An entry counts if its principal is the client's or `User:*`, and its host is the client's address or `*`. Hosts are
compared as addresses: ::1 is 0:0:0:0:0:0:0:1, and ::ffff:10.0.0.1 is 10.0.0.1. Kafka writes the long forms.

A broker asks for each topic of each request, mostly the same questions. Decisions are cached until an ACL changes.
A decision that is not in the cache looks up the resource's name and its prefixes of the lengths that occur, and in
each pattern the principal. The cache has a limit, because clients choose names.

Owned by the broker's loop. `acl_store` calls `set_entries`.
"""

import ipaddress
from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from headrace.common.principal import Principal
from headrace.security.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclBindingFilter,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourcePattern,
    ResourceType,
)
from headrace.security.audit import AuditLog

_ANY = "<any>"
_CACHED_DECISIONS = 20_000
_CACHED_NAME_LENGTH: Final = 256
"""Longer names, which no topic has, are not cached: each may have 32 KB."""

_IMPLIED_BY: Mapping[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset((Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.ALTER_CONFIGS,)),
}
"""The operations whose ALLOW entries also allow this one."""


def canonical_host(host: str) -> str:
    """Returns one of the spellings of an IP address. Returns other text, such as `*`, as it is."""
    if host == WILDCARD:
        return host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


class _PatternRules:
    """The entries of one pattern, by principal."""

    __slots__ = ("by_principal", "entries", "is_damaged")

    def __init__(self, entries: frozenset[AclEntry], *, is_damaged: bool = False):
        self.entries = entries
        self.is_damaged = is_damaged
        """True if the entries cannot be read: then everybody is denied, since one of them may be a DENY."""
        self.by_principal: dict[str, list[tuple[str, Operation, bool]]] = {}
        """Host, operation, and True for ALLOW."""
        for entry in entries:
            rules = self.by_principal.setdefault(entry.principal, [])
            rules.append((canonical_host(entry.host), entry.operation, entry.permission is Permission.ALLOW))

    def denies(self, principals: Iterable[str], host: str, operation: Operation) -> bool:
        if self.is_damaged:
            return True
        return any(not allows and name in (operation, Operation.ALL) for allows, name in self._of(principals, host))

    def allows(
        self, principals: Iterable[str], host: str, operation: Operation, implied_by: Collection[Operation] = ()
    ) -> bool:
        return any(
            allows and (name in (operation, Operation.ALL) or name in implied_by)
            for allows, name in self._of(principals, host)
        )

    def _of(self, principals: Iterable[str], host: str) -> Iterator[tuple[bool, Operation]]:
        """Yields permission and operation of the entries of these principals and this host."""
        for principal in principals:
            for entry_host, operation, allows in self.by_principal.get(principal, ()):
                if entry_host in (WILDCARD, host):
                    yield allows, operation


class _TypeRules:
    """The patterns of one type of resource."""

    __slots__ = ("_length_counts", "_lengths", "by_principal", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _PatternRules] = {}
        self.prefixed: dict[str, _PatternRules] = {}
        self.by_principal: dict[str, set[ResourcePattern]] = {}
        """The patterns that have entries of a principal."""
        self._lengths: list[int] = []
        """The lengths of all prefixes, sorted."""
        self._length_counts: dict[int, int] = {}

    def patterns(self, pattern_type: PatternType) -> dict[str, _PatternRules]:
        return self.prefixed if pattern_type is PatternType.PREFIXED else self.literal

    def put(self, pattern: ResourcePattern, rules: _PatternRules | None) -> None:
        """Sets or, with None, removes the rules of a pattern."""
        patterns = self.patterns(pattern.pattern_type)
        old = patterns.pop(pattern.name, None)
        if pattern.pattern_type is PatternType.PREFIXED and (old is None) is not (rules is None):
            self._count_length(len(pattern.name), 1 if old is None else -1)
        for principal in old.by_principal if old is not None else ():
            self.by_principal[principal].discard(pattern)
            if not self.by_principal[principal]:
                del self.by_principal[principal]
        if rules is None:
            return
        patterns[pattern.name] = rules
        for principal in rules.by_principal:
            self.by_principal.setdefault(principal, set()).add(pattern)

    def _count_length(self, length: int, change: int) -> None:
        count = self._length_counts.get(length, 0) + change
        if not count:
            del self._length_counts[length]
            self._lengths.remove(length)
            return
        if length not in self._length_counts:
            insort(self._lengths, length)
        self._length_counts[length] = count

    def matching(self, name: str) -> list[_PatternRules]:
        """Returns the rules of all patterns that match a resource."""
        found = [rules for key in {WILDCARD, name} if (rules := self.literal.get(key)) is not None]
        for length in self._lengths:
            if length > len(name):
                break
            rules = self.prefixed.get(name[:length])
            if rules is not None:
                found.append(rules)
        return found


class AclAuthorizer:
    """Decides who may do what. Implements `security.authorizer.Authorizer`."""

    def __init__(
        self,
        audit: AuditLog | None = None,
        super_users: Iterable[Principal] = (),
        *,
        allow_everyone_if_no_acl_found: bool = False,
    ):
        self.changes = 0
        """How often decisions may have changed."""
        self._audit = audit
        self._super_users = frozenset((principal.type, principal.name) for principal in super_users)
        self._allows_without_acl = allow_everyone_if_no_acl_found
        self._types: dict[ResourceType, _TypeRules] = {}
        self._decisions: dict[tuple[object, ...], bool] = {}

    # ---- deciding

    def is_authorized(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: Resource,
        *,
        audited: bool = True,
        request: str = "",
    ) -> bool:
        name = resource.name
        key = (name, operation, principal.name, host, principal.type, resource.type)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(principal, host, operation, resource)
            if len(name) <= _CACHED_NAME_LENGTH:
                self._remember(key, decision)
        if audited and self._audit is not None and (not decision or self._audit.logs_allowed):
            self._audit.record(principal, host, operation, resource, request, allowed=decision)
        return decision

    def is_authorized_for_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        key = (operation, principal.name, host, principal.type, resource_type)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide_any(principal, host, operation, resource_type)
            self._remember(key, decision)
        if self._audit is not None and (not decision or self._audit.logs_allowed):
            self._audit.record(principal, host, operation, Resource(resource_type, _ANY), "", allowed=decision)
        return decision

    def is_super_user(self, principal: Principal) -> bool:
        return (principal.type, principal.name) in self._super_users

    def _remember(self, key: tuple[object, ...], decision: bool) -> None:
        if len(self._decisions) >= _CACHED_DECISIONS:
            self._decisions.clear()
        self._decisions[key] = decision

    def _decide(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        if self.is_super_user(principal):
            return True
        of_type = self._types.get(resource.type)
        patterns = of_type.matching(resource.name) if of_type is not None else []
        if not patterns:
            return self._allows_without_acl
        host = canonical_host(host)
        principals = {str(principal), WILDCARD_PRINCIPAL}
        if any(rules.denies(principals, host, operation) for rules in patterns):
            return False
        implied_by = _IMPLIED_BY.get(operation, ())
        return any(rules.allows(principals, host, operation, implied_by) for rules in patterns)

    def _decide_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Returns True if an ALLOW entry of the operation is not shadowed by a DENY entry, as in KIP-679.

        Like Kafka's AclAuthorizer, does not consider operations that imply this one.
        """
        if self.is_super_user(principal):
            return True
        of_type = self._types.get(resource_type)
        if of_type is None:
            return self._allows_without_acl
        host = canonical_host(host)
        principals = {str(principal), WILDCARD_PRINCIPAL}
        all_names = of_type.literal.get(WILDCARD)
        if all_names is not None and all_names.denies(principals, host, operation):
            return False
        if self._allows_without_acl:
            return True  # for a name that no ACL mentions
        patterns = set().union(*(of_type.by_principal.get(name, ()) for name in principals))
        return any(
            of_type.patterns(pattern.pattern_type)[pattern.name].allows(principals, host, operation)
            and not self._is_shadowed(of_type, pattern, principals, host, operation)
            for pattern in patterns
        )

    @staticmethod
    def _is_shadowed(
        of_type: _TypeRules, pattern: ResourcePattern, principals: Collection[str], host: str, operation: Operation
    ) -> bool:
        """Returns True if a DENY entry covers all resources of a pattern."""
        name = pattern.name
        if pattern.pattern_type is PatternType.LITERAL:
            if name == WILDCARD:
                return False  # no finite set of DENY entries covers all names
            literal = of_type.literal.get(name)
            if literal is not None and literal.denies(principals, host, operation):
                return True
        return any(
            rules.denies(principals, host, operation)
            for length in range(len(name) + 1)
            if (rules := of_type.prefixed.get(name[:length])) is not None
        )

    # ---- the access control lists

    def entries(self, pattern: ResourcePattern) -> frozenset[AclEntry]:
        of_type = self._types.get(pattern.type)
        rules = of_type.patterns(pattern.pattern_type).get(pattern.name) if of_type is not None else None
        return rules.entries if rules is not None else frozenset()

    def set_entries(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        """Replaces all entries of a pattern."""
        known = frozenset(entries)
        self._put(pattern, _PatternRules(known) if known else None)

    def set_damaged(self, pattern: ResourcePattern) -> None:
        """Denies everything that the pattern matches, because its entries cannot be read."""
        self._put(pattern, _PatternRules(frozenset(), is_damaged=True))

    def _put(self, pattern: ResourcePattern, rules: _PatternRules | None) -> None:
        self._types.setdefault(pattern.type, _TypeRules()).put(pattern, rules)
        of_type = self._types[pattern.type]
        if not of_type.literal and not of_type.prefixed:
            del self._types[pattern.type]
        self._decisions.clear()
        self.changes += 1

    def patterns(self) -> Iterator[ResourcePattern]:
        """Yields all patterns with entries, also damaged ones."""
        for resource_type, of_type in self._types.items():
            for name in of_type.literal:
                yield ResourcePattern(resource_type, name, PatternType.LITERAL)
            for name in of_type.prefixed:
                yield ResourcePattern(resource_type, name, PatternType.PREFIXED)

    def acls(self, selected: AclBindingFilter) -> Iterator[AclBinding]:
        """Yields the ACLs that a filter selects."""
        for pattern in self.patterns():
            if selected.pattern.matches(pattern):
                for entry in self.entries(pattern):
                    if selected.entry.matches(entry):
                        yield AclBinding(pattern, entry)
