"""DeleteAcls: deletes the access control entries that filters select, and returns them (KIP-11, KIP-140).

Behavior:
- Each filter succeeds or fails on its own. An ACL that several filters select is returned for the first.
- A change of other ACLs of the resource at the same time, on any broker, is kept (CVE-2024-27309).
- Without an authorizer each filter gets SECURITY_DISABLED, as in Kafka.

Version notes (1 to 3): 1 has pattern types (KIP-290), 2 is flexible, 3 has user resources.
"""

from headrace.broker.acl_admin import AclAdmin, Deletion
from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.handlers.describe_acls import binding_filter
from headrace.broker.required_rights import requires_cluster
from headrace.common.errors import (
    HeadraceError,
    SecurityDisabledError,
    code_of,
    message_of,
)
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from headrace.security.acls import Operation


@api(ApiKey.DELETE_ACLS, 1, 3, needs=requires_cluster(Operation.ALTER))
async def handle(request: DeleteAclsRequest, context: RequestContext, *, acls: AclAdmin) -> DeleteAclsResponse:
    try:
        results = await acls.delete([binding_filter(selected) for selected in request.filters], context.give_way)
    except SecurityDisabledError as error:
        return _all_failed(request, error)
    return DeleteAclsResponse(
        filter_results=[
            _failed(result)
            if isinstance(result, HeadraceError)
            else DeleteAclsFilterResult(matching_acls=[_deleted(deletion) for deletion in result])
            for result in results
        ]
    )


def _all_failed(request: DeleteAclsRequest, error: HeadraceError) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_failed(error)] * len(request.filters))


def _failed(error: HeadraceError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=code_of(error), error_message=message_of(error))


def _deleted(deletion: Deletion) -> DeleteAclsMatchingAcl:
    binding, error = deletion
    pattern, entry = binding.pattern, binding.entry
    return DeleteAclsMatchingAcl(
        error_code=code_of(error),
        error_message=None if error is None else message_of(error),
        resource_type=pattern.type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
