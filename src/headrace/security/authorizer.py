"""The interface of authorizers: who may do what."""

from typing import Protocol

from headrace.common.principal import Principal
from headrace.security.acls import Operation, Resource, ResourceType


class Authorizer(Protocol):
    """Decides on the loop of the broker, without waiting. A broker without an authorizer allows everything."""

    @property
    def changes(self) -> int:
        """How often decisions may have changed: a decision is valid as long as this number is the same."""

    def is_authorized(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: Resource,
        *,
        audited: bool = True,
        request: str = "",
    ) -> bool:
        """Returns True if the principal may do this from this host (an IP address).

        `audited` is False for a question that is not an attempt: the audit log has no line for it. `request` is the
        name of the API, for that line.
        """

    def is_authorized_for_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Returns True if the principal may do this with at least one resource of the type (KIP-679)."""
