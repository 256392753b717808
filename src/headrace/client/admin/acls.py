"""Access control lists: describe, create, delete. Owner: the loop."""

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from headrace.client.admin.acl_types import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    CreatedAcl,
    DeletedAcls,
    ResourcePattern,
    ResourceType,
)
from headrace.client.admin.base import AdminBase
from headrace.client.admin.types import Results
from headrace.client.errors import IllegalArgumentError, check, error_for
from headrace.common.errors import KafkaError
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from headrace.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from headrace.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

F = TypeVar("F", bound=ACLFilter)


class AclsAdmin(AdminBase):
    """The calls about ACLs. Without an authorizer, brokers respond with SecurityDisabledError."""

    async def describe_acls(self, acl_filter: ACLFilter | None = None, *, timeout_ms: float | None = None) -> list[ACL]:
        """Returns the ACLs that a filter selects. The default is all ACLs."""
        selected = _check([ACLFilter() if acl_filter is None else acl_filter], ACLFilter, "acl_filter")[0]

        async def attempt() -> list[ACL]:
            response: DescribeAclsResponse = await self._to_any(
                DescribeAclsRequest(**_filter_fields(selected)), min_version=_min_version([selected])
            )
            check(response.error_code, response.error_message)
            return [
                _acl(entry, resource.resource_type, resource.resource_name, resource.pattern_type)
                for resource in response.resources
                for entry in resource.acls
            ]

        return await self._call_with_retries(attempt, timeout_ms, "describing ACLs")

    async def create_acls(
        self, acls: Iterable[ACL], *, timeout_ms: float | None = None, raise_errors: bool = True
    ) -> Results[ACL, CreatedAcl]:
        """Creates ACLs. One that exists already succeeds."""
        checked = _check(acls, ACL, "acls")

        async def attempt(remaining: list[ACL]) -> dict[ACL, CreatedAcl]:
            request = CreateAclsRequest(creations=[_creation(acl) for acl in remaining])
            response: CreateAclsResponse = await self._to_any(request, min_version=_min_version(remaining))
            return {
                acl: CreatedAcl(error_for(result.error_code, result.error_message))
                for acl, result in zip(remaining, response.results, strict=True)
            }

        return await self._call_for_items(checked, attempt, timeout_ms, "creating ACLs", raise_errors)

    async def delete_acls(
        self, acl_filters: Iterable[ACLFilter], *, timeout_ms: float | None = None, raise_errors: bool = True
    ) -> Results[ACLFilter, DeletedAcls]:
        """Deletes the ACLs that filters select, and returns them. An `ACL` as a filter selects only itself."""
        checked = _check(acl_filters, ACLFilter, "acl_filters")

        async def attempt(remaining: list[ACLFilter]) -> dict[ACLFilter, DeletedAcls]:
            request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter_fields(one)) for one in remaining])
            response: DeleteAclsResponse = await self._to_any(request, min_version=_min_version(remaining))
            return {one: _deleted(result) for one, result in zip(remaining, response.filter_results, strict=True)}

        return await self._call_for_items(checked, attempt, timeout_ms, "deleting ACLs", raise_errors)


def _check(items: Iterable[F], kind: type[F], name: str) -> list[F]:
    if isinstance(items, ACLFilter | str) or not isinstance(items, Iterable):
        raise IllegalArgumentError(f"{name} must be a list of {kind.__name__}s, not {items!r}")
    checked = list(items)
    for item in checked:
        if not isinstance(item, kind):
            raise IllegalArgumentError(f"{name}: expected {kind.__name__}, not {item!r}")
    return checked


def _min_version(filters: Iterable[ACLFilter]) -> int | None:
    """Users are resources since version 3."""
    return 3 if any(one.resource_pattern.resource_type is ResourceType.USER for one in filters) else None


def _filter_fields(selected: ACLFilter) -> dict[str, Any]:
    pattern = selected.resource_pattern
    return {
        "resource_type_filter": pattern.resource_type,
        "resource_name_filter": pattern.resource_name,
        "pattern_type_filter": pattern.pattern_type,
        "principal_filter": selected.principal,
        "host_filter": selected.host,
        "operation": selected.operation,
        "permission_type": selected.permission_type,
    }


def _creation(acl: ACL) -> AclCreation:
    pattern = acl.resource_pattern
    return AclCreation(
        resource_type=pattern.resource_type,
        resource_name=pattern.resource_name,
        resource_pattern_type=pattern.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


class _Entry(Protocol):
    """An entry of a DescribeAcls or DeleteAcls response."""

    principal: str
    host: str
    operation: int
    permission_type: int


def _acl(entry: _Entry, resource_type: int, name: str, pattern_type: int) -> ACL:
    """Returns an ACL of a response. Numbers of a newer broker become UNKNOWN."""
    return ACL(
        entry.principal,
        entry.host,
        ACLOperation.of(entry.operation),
        ACLPermissionType.of(entry.permission_type),
        ResourcePattern(ResourceType.of(resource_type), name, ACLResourcePatternType.of(pattern_type)),
    )


def _deleted(result: DeleteAclsFilterResult) -> DeletedAcls:
    deleted: list[ACL] = []
    error: KafkaError | None = error_for(result.error_code, result.error_message)
    for acl in result.matching_acls:
        failure = error_for(acl.error_code, acl.error_message)
        if failure is None:
            deleted.append(_acl(acl, acl.resource_type, acl.resource_name, acl.pattern_type))
        error = error or failure
    return DeletedAcls(tuple(deleted), error)
