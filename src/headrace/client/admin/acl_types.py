"""The types of ACLs, with kafka-python's names. The protocol's numbers are those of `security.acls`."""

from dataclasses import dataclass, field

from headrace.client.admin.types import to_enum
from headrace.client.errors import IllegalArgumentError
from headrace.common.errors import KafkaError
from headrace.security.acls import Operation as ACLOperation
from headrace.security.acls import PatternType as ACLResourcePatternType
from headrace.security.acls import Permission as ACLPermissionType
from headrace.security.acls import ResourceType

__all__ = [
    "ACL",
    "ACLFilter",
    "ACLOperation",
    "ACLPermissionType",
    "ACLResourcePatternType",
    "CreatedAcl",
    "DeletedAcls",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
]


@dataclass(frozen=True)
class ResourcePatternFilter:
    """Selects resource patterns. ANY type, a None name and ANY pattern type select all.

    Pattern type MATCH selects the patterns that apply to the resource `resource_name`: its name, its prefixes and `*`.
    """

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: ACLResourcePatternType = ACLResourcePatternType.ANY

    def __post_init__(self) -> None:
        _to_enum(self, "resource_type", ResourceType)
        _to_enum(self, "pattern_type", ACLResourcePatternType)
        _check_text(self, "resource_name", optional=True)


@dataclass(frozen=True)
class ResourcePattern(ResourcePatternFilter):
    """The resources of an ACL: one name (LITERAL), all names (LITERAL `*`), or all names with a prefix (PREFIXED)."""

    resource_type: ResourceType = field()
    resource_name: str = field()
    pattern_type: ACLResourcePatternType = ACLResourcePatternType.LITERAL

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_text(self, "resource_name")
        if self.resource_type is ResourceType.ANY:
            raise IllegalArgumentError("ResourcePattern: resource_type must not be ANY")
        if self.pattern_type in (ACLResourcePatternType.ANY, ACLResourcePatternType.MATCH):
            raise IllegalArgumentError(f"ResourcePattern: pattern_type must not be {self.pattern_type.name}")


@dataclass(frozen=True)
class ACLFilter:
    """Selects ACLs. A None or ANY field selects all. An `ACL` is a filter of itself."""

    principal: str | None = None
    """Such as `User:alice`. None selects the ACLs of all principals, `User:*` only those for everybody."""
    host: str | None = None
    operation: ACLOperation = ACLOperation.ANY
    permission_type: ACLPermissionType = ACLPermissionType.ANY
    resource_pattern: ResourcePatternFilter = field(default_factory=ResourcePatternFilter)

    def __post_init__(self) -> None:
        _to_enum(self, "operation", ACLOperation)
        _to_enum(self, "permission_type", ACLPermissionType)
        _check_text(self, "principal", optional=True)
        _check_text(self, "host", optional=True)
        if not isinstance(self.resource_pattern, ResourcePatternFilter):
            raise IllegalArgumentError(
                f"{type(self).__name__}: resource_pattern must be a ResourcePatternFilter, not "
                f"{self.resource_pattern!r}"
            )


@dataclass(frozen=True)
class ACL(ACLFilter):
    """Allows or denies a principal an operation on resources, from a host: an IP address, or `*`."""

    principal: str = field()
    host: str = field()
    operation: ACLOperation = field()
    permission_type: ACLPermissionType = field()
    resource_pattern: ResourcePattern = field()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_text(self, "principal")
        _check_text(self, "host")
        if self.operation is ACLOperation.ANY:
            raise IllegalArgumentError("ACL: operation must not be ANY")
        if self.permission_type is ACLPermissionType.ANY:
            raise IllegalArgumentError("ACL: permission_type must not be ANY")
        if not isinstance(self.resource_pattern, ResourcePattern):
            raise IllegalArgumentError(
                f"ACL: resource_pattern must be a ResourcePattern, not {self.resource_pattern!r}"
            )


@dataclass(frozen=True)
class CreatedAcl:
    """The result of creating an ACL."""

    error: KafkaError | None = None


@dataclass(frozen=True)
class DeletedAcls:
    """The ACLs that a filter has deleted."""

    acls: tuple[ACL, ...] = ()
    error: KafkaError | None = None


def _to_enum(
    value: object, name: str, kind: type[ResourceType | ACLResourcePatternType | ACLOperation | ACLPermissionType]
) -> None:
    """Accepts the name of a member, such as `read`."""
    object.__setattr__(value, name, to_enum(kind, getattr(value, name), name))


def _check_text(value: object, name: str, *, optional: bool = False) -> None:
    text = getattr(value, name)
    if not isinstance(text, str) and not (optional and text is None):
        raise IllegalArgumentError(f"{type(value).__name__}: {name} must be a string, not {text!r}")
