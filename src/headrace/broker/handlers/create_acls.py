"""CreateAcls: creates access control entries (KIP-11, KIP-140).

Behavior:
- Each ACL succeeds or fails on its own. An ACL that exists already succeeds.
- This broker decides by the new ACLs when it responds, the others a moment later.
- Without an authorizer each ACL gets SECURITY_DISABLED, as in Kafka.

Version notes (1 to 3): 1 has pattern types (KIP-290), 2 is flexible, 3 has user resources.
"""

from headrace.broker.acl_admin import AclAdmin
from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_cluster
from headrace.common.errors import (
    HeadraceError,
    SecurityDisabledError,
    code_of,
    message_of,
)
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from headrace.security.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)


@api(ApiKey.CREATE_ACLS, 1, 3, needs=requires_cluster(Operation.ALTER))
async def handle(request: CreateAclsRequest, context: RequestContext, *, acls: AclAdmin) -> CreateAclsResponse:
    try:
        errors = await acls.create([_binding(creation) for creation in request.creations], context.give_way)
    except SecurityDisabledError as error:
        return _all_failed(request, error)
    return CreateAclsResponse(results=[_result(error) for error in errors])


def _all_failed(request: CreateAclsRequest, error: HeadraceError) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_result(error)] * len(request.creations))


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            ResourceType.of(creation.resource_type),
            creation.resource_name,
            PatternType.of(creation.resource_pattern_type),
        ),
        AclEntry(
            creation.principal, creation.host, Operation.of(creation.operation), Permission.of(creation.permission_type)
        ),
    )


def _result(error: HeadraceError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult()
    return AclCreationResult(error_code=code_of(error), error_message=message_of(error))
