"""What a handler requires of a client: the declaration next to `@api`, from which docs/security.md is generated.

    needs=requires(on_group(READ), on_topic(READ, "each topic"))         the handler checks them (`broker.rights`)
    needs=requires(on_cluster(CREATE) | on_topic(CREATE, "each topic"))  one of them is enough
    needs=requires_cluster(CLUSTER_ACTION)                               the dispatcher checks it for the whole request
    needs=requires_nothing("Clients send it before they authenticate.")

The rights are those that Apache Kafka checks. A test sends every API without and with its rights.
"""

from dataclasses import dataclass, field

from headrace.common.errors import (
    ClusterAuthorizationFailedError,
    DelegationTokenAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from headrace.security.acls import Operation, ResourceType

DENIED: dict[ResourceType, type[KafkaError]] = {
    ResourceType.TOPIC: TopicAuthorizationFailedError,
    ResourceType.GROUP: GroupAuthorizationFailedError,
    ResourceType.CLUSTER: ClusterAuthorizationFailedError,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailedError,
    ResourceType.DELEGATION_TOKEN: DelegationTokenAuthorizationFailedError,
    ResourceType.USER: DelegationTokenAuthorizationFailedError,
}
"""The error of a client without a right on a resource of this type."""
_MESSAGES: dict[type[KafkaError], str] = {
    TopicAuthorizationFailedError: "Topic authorization failed.",
    GroupAuthorizationFailedError: "Group authorization failed.",
    ClusterAuthorizationFailedError: "Cluster authorization failed.",
    TransactionalIdAuthorizationFailedError: "Transactional Id authorization failed.",
    DelegationTokenAuthorizationFailedError: "Delegation Token authorization failed.",
}
"""Kafka's sentences. They do not name the resource."""

DENIED_OR_LEFT_OUT = "TOPIC_AUTHORIZATION_FAILED; left out if the request is for all topics"


def denied(resource_type: ResourceType) -> KafkaError:
    """Returns the error for a client without a right on a resource of this type."""
    error = DENIED[resource_type]
    return error(_MESSAGES[error])


@dataclass(frozen=True, slots=True)
class Right:
    """The right to an operation on resources of one type."""

    operation: Operation
    resource: ResourceType
    condition: str = ""
    """For which part of a request, such as "each topic". Empty: for the whole request."""
    without: str = ""
    """What a client gets without this right. Empty: the error of the resource type."""

    def __or__(self, other: "Right") -> "OneOf":
        return OneOf((self, other))


@dataclass(frozen=True, slots=True)
class OneOf:
    """Rights of which a client needs one."""

    rights: tuple[Right, ...]

    def __or__(self, other: Right) -> "OneOf":
        return OneOf((*self.rights, other))

    @property
    def without(self) -> str:
        """What a client gets without any of these rights: the last one determines that, as in Kafka."""
        last = self.rights[-1]
        return last.without or DENIED[last.resource].name


@dataclass(frozen=True, slots=True)
class RequiredRights:
    """The rights that an API requires."""

    all_of: tuple[OneOf, ...] = ()
    reason: str = ""
    """Why the API requires none."""
    enforced: Operation | None = field(default=None)
    """The operation on the cluster that the dispatcher checks before it calls the handler."""

    def __post_init__(self) -> None:
        if bool(self.all_of) == bool(self.reason):
            raise TypeError("An API requires rights, or it has a reason why it requires none")


def requires(*rights: Right | OneOf) -> RequiredRights:
    """The handler checks these rights."""
    return RequiredRights(tuple(OneOf((right,)) if isinstance(right, Right) else right for right in rights))


def requires_cluster(operation: Operation) -> RequiredRights:
    """The dispatcher checks this right. Without it, everything in the request gets CLUSTER_AUTHORIZATION_FAILED."""
    return RequiredRights((OneOf((on_cluster(operation),)),), enforced=operation)


def requires_nothing(reason: str) -> RequiredRights:
    """Every client may send this API."""
    return RequiredRights(reason=reason)


def on_topic(operation: Operation, condition: str = "", without: str = "") -> Right:
    return Right(operation, ResourceType.TOPIC, condition, without)


def on_group(operation: Operation, condition: str = "", without: str = "") -> Right:
    return Right(operation, ResourceType.GROUP, condition, without)


def on_cluster(operation: Operation, condition: str = "", without: str = "") -> Right:
    return Right(operation, ResourceType.CLUSTER, condition, without)


def on_transactional_id(operation: Operation, condition: str = "", without: str = "") -> Right:
    return Right(operation, ResourceType.TRANSACTIONAL_ID, condition, without)


def on_token(operation: Operation, condition: str = "", without: str = "") -> Right:
    return Right(operation, ResourceType.DELEGATION_TOKEN, condition, without)


def on_user(operation: Operation, condition: str = "", without: str = "") -> Right:
    return Right(operation, ResourceType.USER, condition, without)
