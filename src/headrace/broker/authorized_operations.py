"""Authorized operations in responses (KIP-430): a bit field, with one bit per ACL operation.

Without an authorizer a client is authorized for all operations of a resource.
"""

from headrace.broker.dispatch import RequestContext
from headrace.broker.rights import is_allowed, is_allowed_on_cluster
from headrace.security.acls import CLUSTER_NAME, Operation, ResourceType

NOT_REQUESTED = -(2**31)
"""The value in the response if the client did not request authorized operations, or may not describe the resource."""

_OPERATIONS = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
}
_ALL = {kind: sum(1 << operation for operation in operations) for kind, operations in _OPERATIONS.items()}


def authorized_operations(context: RequestContext, resource_type: ResourceType, name: str) -> int:
    """Returns the bits of the operations that the client is authorized for."""
    if context.authorizer is None:
        return _ALL[resource_type]
    return sum(
        1 << operation
        for operation in _OPERATIONS[resource_type]
        if is_allowed(context, operation, resource_type, name, audited=False)
    )


def cluster_operations(context: RequestContext, *, is_requested: bool) -> int:
    """Returns the bits of the cluster: none without the right to describe it."""
    if not is_requested:
        return NOT_REQUESTED
    if not is_allowed_on_cluster(context, Operation.DESCRIBE):
        return 0
    return authorized_operations(context, ResourceType.CLUSTER, CLUSTER_NAME)
