"""The routes of the JSON API. A page's module registers its handlers with a `Router`:

    router = Router("topics")

    @router.get("/api/clusters/{cluster}/topics", query=TopicsQuery, response=TopicsPage, summary="List topics")
    async def list_topics(call: Call, query: TopicsQuery) -> TopicsPage: ...

From the same registrations come the checks of requests and the OpenAPI description. `change` marks a handler that
changes something: it needs a CSRF token, is refused where the console is read-only, and is audited.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.console.events import Event

__all__ = ["Route", "Router"]

Handler = Callable[..., Awaitable[Any]]
StreamHandler = Callable[..., AsyncIterator[Event]]
H = TypeVar("H", bound=Callable[..., Any])
_PARAMETER = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, kw_only=True)
class Route:
    """A method and path of the API."""

    method: str
    path: str
    tag: str
    handler: Callable[..., Any]
    summary: str
    query: type | None = None
    body: type | None = None
    response: Any = None
    status: int = 200
    change: str | None = None
    stream: bool = False
    needs_login: bool = True
    timeout_seconds: float = 60.0
    """How long a change may take."""
    content_type: str = "application/json"
    """Of the response."""

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters in the path."""
        return _PARAMETER.findall(self.path)

    @property
    def operation_id(self) -> str:
        return self.handler.__name__

    @property
    def description(self) -> str:
        return " ".join((self.handler.__doc__ or "").split())


class Router:
    """The routes of one page."""

    def __init__(self, tag: str):
        self.tag = tag
        self.routes: list[Route] = []

    def get(self, path: str, **options: Any) -> Callable[[H], H]:
        return self._add("GET", path, options)

    def post(self, path: str, **options: Any) -> Callable[[H], H]:
        return self._add("POST", path, options)

    def put(self, path: str, **options: Any) -> Callable[[H], H]:
        return self._add("PUT", path, options)

    def patch(self, path: str, **options: Any) -> Callable[[H], H]:
        return self._add("PATCH", path, options)

    def delete(self, path: str, **options: Any) -> Callable[[H], H]:
        return self._add("DELETE", path, options)

    def stream(self, path: str, **options: Any) -> Callable[[H], H]:
        """Registers a generator of server-sent events."""
        return self._add("GET", path, {**options, "stream": True, "content_type": "text/event-stream"})

    def _add(self, method: str, path: str, options: dict[str, Any]) -> Callable[[H], H]:
        def register(handler: H) -> H:
            self.routes.append(Route(method=method, path=path, tag=self.tag, handler=handler, **options))
            return handler

        return register
