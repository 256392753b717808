"""A slow, obvious authorizer, which goes through all ACLs, and short ways to write ACLs."""

from collections.abc import Sequence

from headrace.common.principal import Principal
from headrace.security.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourcePattern,
    ResourceType,
)


def literal(name: str, resource_type: ResourceType = ResourceType.TOPIC) -> ResourcePattern:
    return ResourcePattern(resource_type, name, PatternType.LITERAL)


def prefixed(name: str, resource_type: ResourceType = ResourceType.TOPIC) -> ResourcePattern:
    return ResourcePattern(resource_type, name, PatternType.PREFIXED)


def allow(pattern: ResourcePattern, operation: Operation, principal: str = "User:alice", host: str = "*") -> AclBinding:
    return AclBinding(pattern, AclEntry(principal, host, operation, Permission.ALLOW))


def deny(pattern: ResourcePattern, operation: Operation, principal: str = "User:alice", host: str = "*") -> AclBinding:
    return AclBinding(pattern, AclEntry(principal, host, operation, Permission.DENY))


def decide(
    acls: Sequence[AclBinding],
    principal: Principal,
    host: str,
    operation: Operation,
    resource: Resource,
    *,
    everyone: bool = False,
) -> bool:
    """Returns the decision of Kafka's authorizers, without super users."""
    of_resource = [
        acl
        for acl in acls
        if acl.pattern.type == resource.type
        and (
            acl.pattern.name in ("*", resource.name)
            if acl.pattern.pattern_type == PatternType.LITERAL
            else resource.name.startswith(acl.pattern.name)
        )
    ]
    if not of_resource:
        return everyone
    of_client = [
        acl.entry
        for acl in of_resource
        if acl.entry.principal in (f"{principal.type}:{principal.name}", "User:*") and acl.entry.host in (host, "*")
    ]
    denied = {entry.operation for entry in of_client if entry.permission == Permission.DENY}
    if denied & {operation, Operation.ALL}:
        return False
    allowed = {entry.operation for entry in of_client if entry.permission == Permission.ALLOW}
    if allowed & {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}:
        allowed.add(Operation.DESCRIBE)
    if Operation.ALTER_CONFIGS in allowed:
        allowed.add(Operation.DESCRIBE_CONFIGS)
    return bool(allowed & {operation, Operation.ALL})
