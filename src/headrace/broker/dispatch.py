"""Dispatches requests: from a frame to a handler, and from its response back to the connection.

A handler module under `broker/handlers` registers its function with `@api(key, lowest, highest)`. ApiVersions
announces the versions in this registry.

    frame → request header → registry → decode → handler ┬─ a response      → encoded and sent at once
                                                         ├─ DEFERRED        → `context.reply` is called later
                                                         ├─ NO_REPLY        → nothing is sent (acks=0)
                                                         └─ a coroutine     → runs as a task, its result is the response

A connection sends responses in the order of its requests. A request that cannot be decoded, or whose API or version is
not served, closes the connection, because the bytes after it cannot be trusted.
Record bytes in a request are views of the connection's buffer and are valid only until the handler returns.

A request is slow if the broker works on it for long (Kafka's LocalTimeMs). The time that a DEFERRED response waits, for
data, for in-sync replicas or for the other members of a group, is not work. The request_seconds metrics include it.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Protocol, cast

from headrace.broker.purgatory import DelayedOperation, Purgatory
from headrace.broker.services import Services
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError
from headrace.common.logs import REQUEST_LOGGER, SLOW_REQUEST_LOGGER
from headrace.common.metrics import Counter, Histogram, Metrics
from headrace.net.connection import ServerConnection
from headrace.net.transport import Frame
from headrace.protocol import Message, ProtocolError, decode, decode_request_header, encode_response
from headrace.protocol.apis import APIS, ApiKey
from headrace.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

_logger = logging.getLogger(__name__)
_slow_logger = logging.getLogger(SLOW_REQUEST_LOGGER)
_request_logger = logging.getLogger(REQUEST_LOGGER)

_PRODUCE = ApiKey.PRODUCE.value

UNSUPPORTED_VERSION = 35


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

    def bind(self, services: Services) -> "Api":
        """Returns this API with a handler that takes only the request and its context."""
        needed = {name: getattr(services, name) for name in self.services}
        return replace(self, handler=partial(self.handler, **needed)) if needed else self


REGISTRY: dict[int, Api] = {}


def api(key: ApiKey, lowest: int, highest: int, *, announced_from: int | None = None) -> Callable[[Handler], Handler]:
    """Registers the handler of an API for a range of versions."""

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


class ReplyPlace(Protocol):
    """Takes one reply, such as `net.connection.ResponseSlot`."""

    def send(self, reply: Frame) -> None: ...


def _delayed_operations(connection: ServerConnection) -> set[DelayedOperation]:
    """Returns the operations that wait on behalf of a connection. Most connections never have one."""
    if connection.context is None:
        connection.context = set()
    operations: set[DelayedOperation] = connection.context
    return operations


class RequestContext:
    """A request while the broker handles it: where it came from, and where its response goes."""

    __slots__ = (
        "_delayed",
        "_dispatcher",
        "api",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "received",
        "slot",
        "waiting_since",
    )

    def __init__(
        self,
        dispatcher: "Dispatcher",
        connection: ServerConnection,
        api: Api,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        received: float,
    ):
        self._dispatcher = dispatcher
        self._delayed: DelayedOperation | None = None
        self.connection = connection
        self.api = api
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.received = received
        self.waiting_since: float | None = None
        """When the handler returned DEFERRED."""
        self.slot: ReplyPlace | None = None
        """The place for the response, or None if the client expects none."""

    def __str__(self) -> str:
        return (
            f"{self.api.key.name} v{self.api_version} (correlation id {self.correlation_id}, client "
            f"{self.client_id!r}, from {self.connection})"
        )

    def wait(self, operation: DelayedOperation, purgatory: Purgatory, keys: Iterable[Hashable]) -> HandlerResult:
        """Lets an operation send the response. Cancels the operation if the connection is lost first."""
        operation.on_failed = lambda: self.close("an internal error of the broker")
        if not purgatory.try_complete_else_watch(operation, keys):
            self._delayed = operation
            _delayed_operations(self.connection).add(operation)
        return DEFERRED

    def run(self, handling: Coroutine[Any, Any, HandlerResult], retained_bytes: int = 0) -> HandlerResult:
        """Completes the request in a task. Later requests of the connection wait, so that their order is kept.

        The coroutine must not use views of the frame. `retained_bytes` is the memory that it retains instead.
        """
        self._dispatcher.run_in_order(handling, self, retained_bytes)
        return DEFERRED

    def reply(self, response: Message) -> None:
        """Sends the response. Call it once."""
        waited_seconds = 0.0 if self.waiting_since is None else self._dispatcher.now() - self.waiting_since
        if self._delayed is not None:
            _delayed_operations(self.connection).discard(self._delayed)
            self._delayed = None
        slot = self.slot
        if slot is None:
            raise HeadraceError(f"{self} expects no response")
        try:
            frame = encode_response(response, self.api_version, self.correlation_id)
        except Exception:
            _logger.exception("Closing the connection: cannot encode the response to %s", self)
            self.connection.close("a response that cannot be encoded")
            return
        slot.send(cast(Frame, frame))
        self._dispatcher.request_completed(self, waited_seconds)

    def close(self, reason: str) -> None:
        """Closes the connection instead of sending a response."""
        self.connection.close(reason)


class Action(Protocol):
    """A fault that a test injects into a request (see `headrace.testing.faults`)."""

    def apply(self, context: RequestContext, request: Message, proceed: Callable[[], None]) -> None: ...


class ApiMetrics:
    """The metrics of one API."""

    __slots__ = ("requests", "seconds")

    def __init__(self, metrics: Metrics, key: ApiKey):
        self.requests: Counter = metrics.counter("requests_total", api=key.name)
        self.seconds: Histogram = metrics.histogram("request_seconds", api=key.name)


class Dispatcher:
    """Handles the frames of all connections. Owned by the broker's loop."""

    def __init__(self, services: Services, clock: Clock, metrics: Metrics, slow_request_ms: int):
        self._apis = {key: api.bind(services) for key, api in REGISTRY.items()}
        self.now = clock.monotonic
        self._slow_seconds = slow_request_ms / 1000
        self._tasks: set[asyncio.Task[None]] = set()
        self._metrics = {key: ApiMetrics(metrics, ApiKey(key)) for key in REGISTRY}
        self._refused = metrics.counter("requests_refused_total")
        self.intercept: Callable[[RequestContext], Action | None] | None = None
        """Called before each handler, for fault injection."""

    # ---- called by the socket server

    def connection_made(self, connection: ServerConnection) -> None:
        """Does nothing: a connection has no state until one of its requests waits."""

    def connection_lost(self, connection: ServerConnection, error: Exception | None) -> None:  # noqa: ARG002
        for operation in connection.context or ():
            operation.cancel()

    def frame_received(self, connection: ServerConnection, frame: memoryview) -> None:
        received = self.now()
        try:
            key, version, correlation_id, client_id, position = decode_request_header(frame)
        except ProtocolError as error:
            self._refuse(connection, f"a request header that cannot be decoded: {error}")
            return
        api = self._apis.get(key)
        if api is None:
            self._refuse(connection, f"API key {key} (version {version}), which is not supported")
            return
        context = RequestContext(self, connection, api, version, correlation_id, client_id, received)
        if not api.lowest <= version <= api.highest:
            self._refuse_version(context)
            return
        try:
            request = decode(api.request, version, frame, position)
        except ProtocolError as error:
            self._refuse(connection, f"a {api.key.name} v{version} request that cannot be decoded: {error}")
            return
        self._metrics[key].requests.value += 1
        if key != _PRODUCE or request.acks != 0:  # type: ignore[attr-defined]
            context.slot = connection.expect_response()
        if self.intercept is not None and (action := self.intercept(context)) is not None:
            retained_request = decode(api.request, version, bytearray(frame), position)  # it may be handled later
            action.apply(context, retained_request, lambda: self._handle(api, retained_request, context))
            return
        self._handle(api, request, context)

    # ---- handling

    def _handle(self, api: Api, request: Message, context: RequestContext) -> None:
        if api.is_async:
            self._start_task(self._run(api.handler(request, context), context))
            return
        try:
            result = api.handler(request, context)
        except Exception:  # noqa: BLE001 - logged there
            self._failed(context)
            return
        self._complete(result, context)

    def _complete(self, result: HandlerResult, context: RequestContext) -> None:
        if result is DEFERRED:
            context.waiting_since = self.now()
        elif result is NO_REPLY:
            self.request_completed(context)
        else:
            context.reply(cast(Message, result))

    def run_in_order(
        self, handling: Coroutine[Any, Any, HandlerResult], context: RequestContext, retained_bytes: int
    ) -> None:
        """Runs the rest of a request in a task, before later requests of its connection."""
        context.connection.hold_requests(retained_bytes)
        task = self._start_task(self._run(handling, context))
        task.add_done_callback(lambda _: context.connection.release_requests(retained_bytes))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, handling: Coroutine[Any, Any, HandlerResult], context: RequestContext) -> None:
        try:
            result = await handling
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - logged there
            self._failed(context)
            return
        self._complete(result, context)

    def _failed(self, context: RequestContext) -> None:
        _logger.exception("Closing the connection after an internal error: %s failed", context)
        context.close("an internal error of the broker")

    def request_completed(self, context: RequestContext, waited_seconds: float = 0.0) -> None:
        """Records the duration of a request whose response was sent, and logs it if the broker's work was slow."""
        seconds = self.now() - context.received
        self._metrics[context.api.key].seconds.record(seconds)
        if seconds - waited_seconds >= self._slow_seconds:
            _slow_logger.warning(
                "%s took %.0f ms of work, and %.0f ms of waiting",
                context,
                (seconds - waited_seconds) * 1000,
                waited_seconds * 1000,
            )
        if _request_logger.isEnabledFor(logging.DEBUG):
            _request_logger.debug("%s took %.3f ms", context, seconds * 1000)

    async def cancel_tasks(self) -> None:
        """Cancels the handlers that still run."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- refusing

    def _refuse(self, connection: ServerConnection, reason: str) -> None:
        self._refused.value += 1
        _logger.info("Closing the connection: %s sent %s", connection, reason)
        connection.close(reason)

    def _refuse_version(self, context: RequestContext) -> None:
        if context.api.key is not ApiKey.API_VERSIONS:
            self._refuse(
                context.connection,
                f"{context.api.key.name} version {context.api_version}; supported versions are {context.api.lowest} to "
                f"{context.api.highest}",
            )
            return
        # A client cannot know the supported versions yet: version 0 is the one that all clients can read (KIP-511).
        context.slot = context.connection.expect_response()
        context.api_version = 0
        context.reply(ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=[api_version_entry(context.api)]))


def api_version_entry(api: Api) -> ApiVersion:
    """Returns an API's entry in the ApiVersions response."""
    return ApiVersion(api_key=api.key, min_version=api.announced_from, max_version=api.highest)
