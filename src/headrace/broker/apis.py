"""The registry of the APIs that this broker serves, and what a handler may return.

A handler module under `broker/handlers` registers its function with `@api(key, lowest, highest, needs=...)`. `needs`
declares the rights that the API requires (`required_rights`). ApiVersions announces the versions in this registry.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from headrace.broker.required_rights import RequiredRights
from headrace.broker.services import Services
from headrace.protocol import Message
from headrace.protocol.apis import APIS, ApiKey
from headrace.protocol.messages.api_versions import ApiVersion


class _NoResponse:
    """A handler's result other than a response."""

    def __init__(self, name: str):
        self._name = name

    def __repr__(self) -> str:
        return self._name


DEFERRED = _NoResponse("DEFERRED")
NO_REPLY = _NoResponse("NO_REPLY")

HandlerResult = Message | _NoResponse
Handler = Callable[..., Any]

_SERVICE_TYPES = {field.name: field.type for field in fields(Services)}


@dataclass(frozen=True, slots=True)
class Api:
    """One API as this broker serves it."""

    key: ApiKey
    lowest: int
    highest: int
    request: type[Message]
    handler: Handler
    is_async: bool
    announced_from: int
    """The lowest version in the ApiVersions response. It differs from `lowest` only where clients need that."""
    services: tuple[str, ...]
    """The fields of `Services` that the handler takes as keyword arguments."""
    needs: RequiredRights

    def bind(self, services: Services) -> "Api":
        """Returns this API with a handler that takes only the request and its context."""
        needed = {name: getattr(services, name) for name in self.services}
        return replace(self, handler=partial(self.handler, **needed)) if needed else self


REGISTRY: dict[int, Api] = {}


def api(
    key: ApiKey, lowest: int, highest: int, *, needs: RequiredRights, announced_from: int | None = None
) -> Callable[[Handler], Handler]:
    """Registers the handler of an API for a range of versions."""
    if not isinstance(needs, RequiredRights):
        raise TypeError(f"{key.name}: declare the rights that it requires, such as needs=requires(on_topic(...))")

    def register(handler: Handler) -> Handler:
        if key in REGISTRY:
            raise TypeError(f"{key.name} has a handler already")
        kafka_api = APIS[key]
        if not kafka_api.first_version <= lowest <= highest <= kafka_api.last_version:
            raise TypeError(f"{key.name}: versions {lowest} to {highest} are outside of {kafka_api}")
        REGISTRY[key] = Api(
            key,
            lowest,
            highest,
            kafka_api.request,
            handler,
            is_async=inspect.iscoroutinefunction(handler),
            announced_from=lowest if announced_from is None else announced_from,
            services=tuple(_services_of(handler)),
            needs=needs,
        )
        return handler

    return register


def _services_of(handler: Handler) -> Iterable[str]:
    """Yields the services that a handler's signature names, after checking their types."""
    for parameter in inspect.signature(handler).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            if parameter.annotation is not _SERVICE_TYPES.get(parameter.name):
                raise TypeError(f"{handler.__module__}: {parameter} is not a field of Services")
            yield parameter.name


def api_version_entry(api: Api) -> ApiVersion:
    """Returns an API's entry in the ApiVersions response."""
    return ApiVersion(api_key=api.key, min_version=api.announced_from, max_version=api.highest)
