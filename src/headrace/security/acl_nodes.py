"""The nodes of access control lists in the coordination store: paths, and data as Kafka 3.9 writes them to ZooKeeper.

/kafka-acl/<Type>/<name>                     the ACLs of a literal name: {"version":1,"acls":[{"principal":"User:alice",
                                             "permissionType":"Allow","operation":"Read","host":"*"}]}
/kafka-acl-extended/prefixed/<Type>/<name>   the ACLs of a prefix, in the same format
/kafka-acl-changes/acl_changes_<n>           the ACLs of a literal name have changed: TOPIC:name
/kafka-acl-extended-changes/acl_changes_<n>  those of a prefix: {"version":1,"resourceType":"TOPIC","name":"orders-",
                                             "patternType":"PREFIXED"}

A type in a path is Topic, Group, Cluster, TransactionalId, DelegationToken or User. Names are not encoded, so they
cannot have a slash or characters that ZooKeeper does not allow.
"""

import json
from collections.abc import Iterable

from headrace.cluster.store import StoreError, check_path
from headrace.cluster.znodes import DamagedNode
from headrace.common.errors import InvalidRequestError
from headrace.security.acls import (
    RESOURCE_TYPES,
    AclEntry,
    AclEnum,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

ACL_PATHS = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGE_PATHS = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}
CHANGE_PREFIX = "acl_changes_"
_VERSION = 1

_TYPES = {resource_type.title: resource_type for resource_type in RESOURCE_TYPES}


def type_path(resource_type: ResourceType, pattern_type: PatternType) -> str:
    return f"{ACL_PATHS[pattern_type]}/{resource_type.title}"


def acl_path(pattern: ResourcePattern) -> str:
    return f"{type_path(pattern.type, pattern.pattern_type)}/{pattern.name}"


PERSISTENT_PATHS = (
    "/kafka-acl-extended",
    *ACL_PATHS.values(),
    *CHANGE_PATHS.values(),
    *(type_path(resource_type, pattern_type) for pattern_type in ACL_PATHS for resource_type in RESOURCE_TYPES),
)
"""The nodes that a cluster with an authorizer has, parents first."""


def find_resource_type(title: str) -> ResourceType | None:
    """Returns the type of a node below `ACL_PATHS`, or None if it is unknown."""
    return _TYPES.get(title)


def check_name(name: str) -> None:
    """Raises InvalidRequestError if the store cannot have a node for a pattern of this name."""
    try:
        if "/" in name:
            raise StoreError("a name must not have a slash")
        check_path(f"/{name}")
    except StoreError as error:
        raise InvalidRequestError(f"The resource name {name[:300]!r} cannot be stored: {error}") from None


# ---- ACLs


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    acls = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.title,
            "operation": entry.operation.title,
            "host": entry.host,
        }
        for entry in sorted(entries, key=lambda entry: (entry.principal, entry.host, entry.operation, entry.permission))
    ]
    return _encode({"version": _VERSION, "acls": acls})


def decode_acls(path: str, data: bytes) -> frozenset[AclEntry]:
    """Raises DamagedNode, also for operations and permissions of other versions: one of them may be a DENY."""
    if not data:
        return frozenset()
    fields = _object(path, data)
    acls = fields.get("acls")
    if fields.get("version") != _VERSION or not isinstance(acls, list):
        raise DamagedNode(path, data, f"expected version {_VERSION} and a list 'acls'")
    return frozenset(_decode_entry(path, data, acl) for acl in acls)


def _decode_entry(path: str, data: bytes, acl: object) -> AclEntry:
    if not isinstance(acl, dict):
        raise DamagedNode(path, data, f"the ACL {acl!r} is not an object")
    principal, host = acl.get("principal"), acl.get("host")
    if not isinstance(principal, str) or ":" not in principal or not isinstance(host, str):
        raise DamagedNode(path, data, f"the ACL {acl!r} has no valid 'principal' and 'host'")
    operation = _member(Operation, acl.get("operation"))
    permission = _member(Permission, acl.get("permissionType"))
    if operation is None or permission is None:
        raise DamagedNode(path, data, f"the ACL {acl!r} has no known 'operation' and 'permissionType'")
    return AclEntry(principal, host, Operation(operation), Permission(permission))


def _member(enum: type[AclEnum], title: object) -> AclEnum | None:
    return next((member for member in list(enum)[2:] if member.title == title), None)


# ---- notifications


def encode_change(pattern: ResourcePattern) -> bytes:
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.type.name}:{pattern.name}".encode()
    return _encode(
        {
            "version": _VERSION,
            "resourceType": pattern.type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_change(path: str, data: bytes) -> ResourcePattern:
    """Raises DamagedNode."""
    if path.startswith(f"{CHANGE_PATHS[PatternType.LITERAL]}/"):
        type_name, colon, name = data.decode(errors="replace").partition(":")
        pattern_type = PatternType.LITERAL.name if colon else None
    else:
        fields = _object(path, data)
        type_name, name, pattern_type = (str(fields.get(key)) for key in ("resourceType", "name", "patternType"))
    # Old versions write the type as in paths.
    found = ResourceType.__members__.get(type_name.upper()) or _TYPES.get(type_name)
    if found not in RESOURCE_TYPES or pattern_type not in ("LITERAL", "PREFIXED") or not name:
        raise DamagedNode(path, data, "not a notification of a changed ACL")
    return ResourcePattern(found, name, PatternType[pattern_type])


# ---- JSON


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _object(path: str, data: bytes) -> dict[str, object]:
    try:
        parsed = json.loads(data)
    except ValueError as error:
        raise DamagedNode(path, data, f"not JSON ({error})") from None
    if not isinstance(parsed, dict):
        raise DamagedNode(path, data, "not a JSON object")
    return parsed
