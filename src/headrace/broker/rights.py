"""Checks of the rights of a request's client on single resources. `required_rights` says which handlers need them."""

from headrace.broker.config_resources import ResourceType as ConfigResourceType
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import denied
from headrace.security.acls import CLUSTER_NAME, Operation, Resource, ResourceType

_CONFIGS_OF_CLUSTER = (
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.CLIENT_METRICS,
)


def is_allowed(
    context: RequestContext, operation: Operation, resource_type: ResourceType, name: str, *, audited: bool = True
) -> bool:
    """Returns True if the client may do this. `audited` is False for a question that is not an attempt."""
    return context.authorizer is None or context.is_authorized(
        operation, Resource(resource_type, name), audited=audited
    )


def check(context: RequestContext, operation: Operation, resource_type: ResourceType, name: str) -> None:
    """Raises the error of the resource type if the client may not do this."""
    if not is_allowed(context, operation, resource_type, name):
        raise denied(resource_type)


def is_allowed_on_cluster(context: RequestContext, operation: Operation, *, audited: bool = True) -> bool:
    return is_allowed(context, operation, ResourceType.CLUSTER, CLUSTER_NAME, audited=audited)


def is_allowed_on_topic(context: RequestContext, operation: Operation, name: str, *, audited: bool = True) -> bool:
    return is_allowed(context, operation, ResourceType.TOPIC, name, audited=audited)


def is_allowed_on_any_topic(context: RequestContext, operation: Operation) -> bool:
    """Returns True if the client may do this with at least one topic (KIP-679)."""
    authorizer = context.authorizer
    return authorizer is None or authorizer.is_authorized_for_any(
        context.principal, context.host, operation, ResourceType.TOPIC
    )


def check_group(context: RequestContext, operation: Operation, group_id: str) -> None:
    check(context, operation, ResourceType.GROUP, group_id)


def check_topic(context: RequestContext, operation: Operation, name: str) -> None:
    check(context, operation, ResourceType.TOPIC, name)


def check_cluster(context: RequestContext, operation: Operation) -> None:
    check(context, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def check_transactional_id(context: RequestContext, operation: Operation, transactional_id: str) -> None:
    check(context, operation, ResourceType.TRANSACTIONAL_ID, transactional_id)


def check_configs(context: RequestContext, operation: Operation, resource_type: int, name: str) -> None:
    """Raises an error if the client may not do this with the configs of a resource.

    Brokers, their loggers and client metrics subscriptions belong to the cluster.
    """
    if resource_type == ConfigResourceType.TOPIC:
        check_topic(context, operation, name)
    elif resource_type == ConfigResourceType.GROUP:
        check_group(context, operation, name)
    elif resource_type in _CONFIGS_OF_CLUSTER:
        check_cluster(context, operation)


class TopicRights:
    """The rights of one request on topics: each topic is asked about once, however often the request names it."""

    __slots__ = ("_allowed", "_operation", "context")

    def __init__(self, context: RequestContext, operation: Operation):
        self.context = context
        self._operation = operation
        self._allowed: dict[str, bool] = {}

    def allows(self, name: str) -> bool:
        if self.context.authorizer is None:
            return True
        allowed = self._allowed.get(name)
        if allowed is None:
            allowed = self._allowed[name] = is_allowed_on_topic(self.context, self._operation, name)
        return allowed
