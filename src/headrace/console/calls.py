"""A call of the API: what a handler gets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from headrace.aio.admin import Admin
from headrace.common.clock import Clock
from headrace.console.clusters import Cluster
from headrace.console.errors import ApiError
from headrace.console.identity import Identity
from headrace.console.sessions import Session
from headrace.console.visibility import Visibility

if TYPE_CHECKING:
    from headrace.console.app import Console

__all__ = ["Call"]


@dataclass(eq=False)
class Call:
    """One request, by someone who may make it as far as the console is concerned."""

    console: "Console"
    request: Request
    session: Session
    path: Mapping[str, str]
    """The parameters in the path, decoded."""
    details: dict[str, Any] = field(default_factory=dict)
    """What the audit log says about a change, besides who made it."""

    @property
    def clock(self) -> Clock:
        return self.console.clock

    @property
    def cluster(self) -> Cluster:
        """The cluster in the path. Raises ApiError if there is none with the name."""
        name = self.path["cluster"]
        cluster = self.console.clusters.get(name)
        if cluster is None:
            raise ApiError(404, "NOT_FOUND", f"There is no cluster {name!r}", "cluster")
        return cluster

    @property
    def identity(self) -> Identity:
        """The principal of this request. Raises ApiError without a login on a cluster that needs one."""
        return self.console.identity(self.session, self.cluster)

    @property
    def user(self) -> str:
        """The principal for people: `User:alice`, or `anonymous` on a cluster without login."""
        return self.identity.user or "anonymous"

    async def admin(self) -> Admin:
        """Returns an admin client that acts as the principal. It is shared: do not close it."""
        return self.identity.admin

    def client_config(self, kind: str) -> dict[str, object]:
        """Returns the configs of a `consumer` or `producer` that acts as the principal."""
        return self.identity.client_config(kind)

    async def visibility(self) -> Visibility:
        """Returns what the principal may see."""
        return await self.identity.visibility()

    def audit(self, target: str, **details: Any) -> None:
        """Notes what a change is about, for the audit log."""
        self.details["target"] = target
        self.details.update(details)

    def changed(self) -> None:
        """Makes a change visible soon: reads the cluster again."""
        self.identity.forget_visibility()
        self.cluster.collector.refresh()
