"""DescribeAcls: the access control entries that a filter selects (KIP-11, KIP-140).

Behavior:
- Pattern type MATCH selects all ACLs that apply to a resource: of its name, of its prefixes, and of the wildcard.
- Without an authorizer the response is SECURITY_DISABLED, as in Kafka.

Version notes (1 to 3): 1 has pattern types (KIP-290), 2 is flexible, 3 has user resources.
"""

from headrace.broker.acl_admin import AclAdmin
from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_cluster
from headrace.common.errors import KafkaError, SecurityDisabledError, message_of
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.delete_acls import DeleteAclsFilter
from headrace.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from headrace.security.acls import (
    AclBindingFilter,
    AclEntryFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)


@api(ApiKey.DESCRIBE_ACLS, 1, 3, needs=requires_cluster(Operation.DESCRIBE))
async def handle(request: DescribeAclsRequest, context: RequestContext, *, acls: AclAdmin) -> DescribeAclsResponse:
    try:
        bindings = acls.describe(binding_filter(request))
    except SecurityDisabledError as error:
        return DescribeAclsResponse(error_code=error.code, error_message="No Authorizer is configured on the broker")
    except KafkaError as error:
        return _failed(error)
    resources: dict[ResourcePattern, DescribeAclsResource] = {}
    for binding in bindings:
        await context.give_way()
        pattern, entry = binding.pattern, binding.entry
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = DescribeAclsResource(
                resource_type=pattern.type, resource_name=pattern.name, pattern_type=pattern.pattern_type
            )
        resource.acls.append(
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
    return DescribeAclsResponse(resources=list(resources.values()))


def _failed(error: KafkaError) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error.code, error_message=message_of(error))


def binding_filter(fields: DescribeAclsRequest | DeleteAclsFilter) -> AclBindingFilter:
    """Returns the filter of a request."""
    return AclBindingFilter(
        ResourcePatternFilter(
            ResourceType.of(fields.resource_type_filter),
            fields.resource_name_filter,
            PatternType.of(fields.pattern_type_filter),
        ),
        AclEntryFilter(
            fields.principal_filter,
            fields.host_filter,
            Operation.of(fields.operation),
            Permission.of(fields.permission_type),
        ),
    )
