"""The interface of authorizers: who may do what."""

from typing import Protocol

from headrace.common.principal import Principal
from headrace.security.acls import Operation, Resource, ResourceType


class Authorizer(Protocol):
    """Decides on the loop of the broker, without waiting. A broker without an authorizer allows everything."""

    def is_authorized(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        """Returns True if the principal may do this from this host (an IP address)."""

    def is_authorized_for_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Returns True if the principal may do this with at least one resource of the type (KIP-679)."""
