"""Creates, describes and deletes ACLs for clients, with the checks of Kafka's brokers.

A change is visible on this broker when the call returns, and on the others when the store notifies them.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from headrace.common.errors import HeadraceError, InvalidRequestError, SecurityDisabledError, UnknownError
from headrace.security import acl_nodes
from headrace.security.acl_authorizer import AclAuthorizer
from headrace.security.acl_store import AclStore
from headrace.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclBindingFilter,
    AclEntry,
    AclEntryFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

_SPECIFIC_PATTERNS = (PatternType.LITERAL, PatternType.PREFIXED)
_DECISIONS = (Permission.ALLOW, Permission.DENY)
_ALL_ENTRIES = AclEntryFilter()

GiveWay = Callable[[], Awaitable[None]]
Deletion = tuple[AclBinding, HeadraceError | None]
"""A selected ACL, and why it could not be deleted."""


class AclAdmin:
    """The ACLs as requests see them. Owned by the broker's loop."""

    def __init__(self, authorizer: AclAuthorizer | None, store: AclStore | None):
        """Both are None if `authorizer.class.name` is not set."""
        self._authorizer = authorizer
        self._store = store

    @property
    def enabled(self) -> bool:
        return self._authorizer is not None

    def describe(self, selected: AclBindingFilter) -> list[AclBinding]:
        """Returns the ACLs that a filter selects."""
        authorizer, _ = self._parts()
        check_filter(selected)
        return list(authorizer.acls(selected))

    async def create(self, bindings: Sequence[AclBinding], give_way: GiveWay) -> list[HeadraceError | None]:
        """Creates ACLs. Returns the error of each."""
        _, store = self._parts()
        results: list[HeadraceError | None] = [None] * len(bindings)
        by_pattern: dict[ResourcePattern, list[int]] = {}
        for index, binding in enumerate(bindings):
            await give_way()
            try:
                check_binding(binding)
            except InvalidRequestError as error:
                results[index] = error
            else:
                by_pattern.setdefault(binding.pattern, []).append(index)
        for pattern, indexes in by_pattern.items():
            await give_way()
            added = frozenset(bindings[index].entry for index in indexes)
            try:
                await store.alter(pattern, partial(_add, pattern, added))
            except HeadraceError as error:
                for index in indexes:
                    results[index] = error
        return results

    async def delete(
        self, filters: Sequence[AclBindingFilter], give_way: GiveWay
    ) -> list[list[Deletion] | HeadraceError]:
        """Deletes the ACLs that each filter selects. Returns the deleted ACLs of each filter, or why it is invalid. An
        ACL that several filters select belongs to the first."""
        authorizer, store = self._parts()
        results: list[list[Deletion] | HeadraceError] = []
        for selected in filters:
            try:
                check_filter(selected)
                # The store may have newer ACLs than the authorizer if the filter names the pattern.
                deleted: list[Deletion] = []
                for pattern in selected.pattern.named_patterns() or list(authorizer.patterns()):
                    await give_way()
                    if selected.pattern.matches(pattern):
                        deleted += await self._delete(store, pattern, selected.entry)
                results.append(deleted)
            except HeadraceError as error:
                results.append(error)
        return results

    @staticmethod
    async def _delete(store: AclStore, pattern: ResourcePattern, selected: AclEntryFilter) -> list[Deletion]:
        removed: list[AclEntry] = []

        def remove(before: frozenset[AclEntry] | None) -> frozenset[AclEntry]:
            if before is None and selected == _ALL_ENTRIES:
                return frozenset()  # the way to get rid of a damaged node
            removed[:] = filter(selected.matches, _readable(pattern, before))
            return (before or frozenset()).difference(removed)

        try:
            acl_nodes.check_name(pattern.name)
        except InvalidRequestError:
            return []  # there is no such ACL
        try:
            await store.alter(pattern, remove)
        except HeadraceError as error:
            if not removed:
                raise
            return [(AclBinding(pattern, entry), error) for entry in removed]
        return [(AclBinding(pattern, entry), None) for entry in removed]

    def _parts(self) -> tuple[AclAuthorizer, AclStore]:
        if self._authorizer is None or self._store is None:
            raise SecurityDisabledError("No Authorizer is configured.")
        return self._authorizer, self._store


def _add(
    pattern: ResourcePattern, added: frozenset[AclEntry], before: frozenset[AclEntry] | None
) -> frozenset[AclEntry]:
    return _readable(pattern, before) | added


def _readable(pattern: ResourcePattern, entries: frozenset[AclEntry] | None) -> frozenset[AclEntry]:
    if entries is None:
        raise UnknownError(
            f"The stored ACLs of {pattern} cannot be read. Delete all ACLs of this resource pattern, then create them "
            "again"
        )
    return entries


def check_binding(binding: AclBinding) -> None:
    """Raises InvalidRequestError if an ACL cannot be created."""
    pattern, entry = binding.pattern, binding.entry
    if pattern.type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise InvalidRequestError(f"Invalid resourceType {pattern.type.name}")
    if pattern.pattern_type not in _SPECIFIC_PATTERNS:
        raise InvalidRequestError(f"Invalid patternType {pattern.pattern_type.name}: expected LITERAL or PREFIXED")
    if entry.operation in (Operation.UNKNOWN, Operation.ANY):
        raise InvalidRequestError(f"Invalid operation {entry.operation.name}")
    if entry.permission not in _DECISIONS:
        raise InvalidRequestError(f"Invalid permissionType {entry.permission.name}: expected ALLOW or DENY")
    if not pattern.name:
        raise InvalidRequestError("Resource name should not be empty")
    if pattern.type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise InvalidRequestError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    acl_nodes.check_name(pattern.name)
    kind, colon, name = entry.principal.partition(":")
    if not (kind and colon and name):
        raise InvalidRequestError(
            f"Could not parse principal from `{entry.principal}`: expected Type:name, such as User:alice"
        )
    if not entry.host:
        raise InvalidRequestError("Host should not be empty: expected an IP address, or * for all hosts")


def check_filter(selected: AclBindingFilter) -> None:
    """Raises InvalidRequestError if a filter has an element that this broker does not know."""
    pattern, entry = selected.pattern, selected.entry
    for name, value in (
        ("resourceType", pattern.type),
        ("patternType", pattern.pattern_type),
        ("operation", entry.operation),
        ("permissionType", entry.permission),
    ):
        if value == 0:
            raise InvalidRequestError(f"Unknown {name} in the filter")
