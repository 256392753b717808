"""The vocabulary of access control: resources, operations, access control entries, and filters of them.

    AclBinding   pattern   ResourcePattern   resource type, name, LITERAL or PREFIXED
                 entry     AclEntry          principal, host, operation, ALLOW or DENY

The numbers of the enums are those of the protocol. Filters match as Kafka's `AclBindingFilter` does.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Self


class AclEnum(IntEnum):
    """An enum of the protocol that also has names for people, such as TransactionalId."""

    __hash__ = int.__hash__  # Enum's own is a Python function: authorizers look up members for each request

    @classmethod
    def of(cls, code: int) -> Self:
        """Returns the member of a code in the protocol, or UNKNOWN."""
        return cls(code) if code in cls._value2member_map_ else cls(0)

    @property
    def title(self) -> str:
        """The name in Kafka's znodes and in the audit log."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class ResourceType(AclEnum):
    """What an access control entry is about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(AclEnum):
    """How the name of an entry selects resources. ANY and MATCH occur only in filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(AclEnum):
    """What a principal does with a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(AclEnum):
    """What an entry decides. ANY occurs only in filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""

WILDCARD = "*"
"""As a literal resource name, host or principal name of an entry: all of them."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource, such as the topic `orders`."""

    type: ResourceType
    name: str


CLUSTER = Resource(ResourceType.CLUSTER, CLUSTER_NAME)

WILDCARD_PRINCIPAL = "User:*"
"""As the principal of an entry: everybody, also principals of other types."""

RESOURCE_TYPES = tuple(ResourceType)[2:]
"""The types of resources that exist."""


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """Which resources an entry is about: one name, all names (LITERAL `*`), or all names with a prefix."""

    type: ResourceType
    name: str
    pattern_type: PatternType

    def matches(self, resource: Resource) -> bool:
        if self.type is not resource.type:
            return False
        if self.pattern_type is PatternType.PREFIXED:
            return resource.name.startswith(self.name)
        return self.name in (WILDCARD, resource.name)

    def __str__(self) -> str:
        return f"{self.type.title}:{self.pattern_type.name}:{self.name}"


@dataclass(frozen=True, slots=True)
class AclEntry:
    """Who may do what, or may not, on the resources of a pattern."""

    principal: str
    """Such as `User:alice`."""
    host: str
    """An IP address, or `*`."""
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        return f"{self.permission.name} {self.operation.name} to {self.principal} from {self.host}"


@dataclass(frozen=True, slots=True)
class AclBinding:
    """An entry together with its pattern: one ACL as clients create, describe and delete it."""

    pattern: ResourcePattern
    entry: AclEntry


@dataclass(frozen=True, slots=True)
class ResourcePatternFilter:
    """Selects patterns. ANY type, a None name and ANY pattern type match all.

    Pattern type MATCH selects the patterns that apply to the resource `name`.
    """

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY

    def matches(self, pattern: ResourcePattern) -> bool:
        if self.type not in (ResourceType.ANY, pattern.type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == pattern.name
        return pattern.matches(Resource(pattern.type, self.name))

    def named_patterns(self) -> list[ResourcePattern]:
        """Returns the patterns that the filter names exactly; none if it has to search."""
        if self.type is ResourceType.ANY or self.name is None or self.pattern_type is PatternType.MATCH:
            return []
        is_any = self.pattern_type is PatternType.ANY
        pattern_types = (PatternType.LITERAL, PatternType.PREFIXED) if is_any else (self.pattern_type,)
        return [ResourcePattern(self.type, self.name, pattern_type) for pattern_type in pattern_types]


@dataclass(frozen=True, slots=True)
class AclEntryFilter:
    """Selects entries. A None or ANY field matches all."""

    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """Selects ACLs by pattern and entry."""

    pattern: ResourcePatternFilter = ResourcePatternFilter()
    entry: AclEntryFilter = AclEntryFilter()

    def matches(self, binding: AclBinding) -> bool:
        return self.pattern.matches(binding.pattern) and self.entry.matches(binding.entry)
