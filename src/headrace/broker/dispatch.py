"""From a frame to a handler and back.

A handler module under `broker/handlers` registers its function with `@api(key, lowest, highest)`. That registry is what
ApiVersions answers with, so a version that is announced is a version that is served.

    frame → request header → registry → decode → handler ┬─ a response      → encoded and sent at once
                                                         ├─ DEFERRED        → somebody calls `context.reply` later
                                                         ├─ NO_REPLY        → nothing is sent (acks=0)
                                                         └─ a coroutine     → runs as a task, its result is the response

Replies leave a connection in the order its requests came; the connection sees to that. A request that cannot be read,
or that asks for an API or a version which is not there, costs its sender the connection: nothing after it can be
trusted.
Record bytes in a request are views of the connection's buffer and are valid only until the handler returns.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from headrace.broker.purgatory import DelayedOperation, Purgatory
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError
from headrace.common.logs import REQUEST_LOGGER, SLOW_REQUEST_LOGGER
from headrace.common.metrics import Counter, Histogram, Metrics
from headrace.net.connection import ServerConnection
from headrace.net.transport import Reply
from headrace.protocol import Message, ProtocolError, decode, decode_request_header, encode_response
from headrace.protocol.apis import APIS, ApiKey
from headrace.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

if TYPE_CHECKING:
    from headrace.broker.server import Broker

_logger = logging.getLogger(__name__)
_slow_logger = logging.getLogger(SLOW_REQUEST_LOGGER)
_request_logger = logging.getLogger(REQUEST_LOGGER)

_PRODUCE = ApiKey.PRODUCE.value

UNSUPPORTED_VERSION = 35


class _Outcome:
    """What a handler returns instead of a response."""

    def __init__(self, name: str):
        self._name = name

    def __repr__(self) -> str:
        return self._name


DEFERRED = _Outcome("DEFERRED")
NO_REPLY = _Outcome("NO_REPLY")

HandlerResult = Message | _Outcome
Handler = Callable[..., Any]


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
    """The lowest version in the reply to ApiVersions; it differs from `lowest` only where clients need that."""


REGISTRY: dict[int, Api] = {}


def api(key: ApiKey, lowest: int, highest: int, *, announced_from: int | None = None) -> Callable[[Handler], Handler]:
    """Registers the handler of an API for a range of versions."""

    def register(handler: Handler) -> Handler:
        if key in REGISTRY:
            raise TypeError(f"{key.name} has a handler already")
        known = APIS[key]
        if not known.first_version <= lowest <= highest <= known.last_version:
            raise TypeError(f"versions {lowest} to {highest} lie outside of {known}")
        is_async = inspect.iscoroutinefunction(handler)
        announced = lowest if announced_from is None else announced_from
        REGISTRY[key] = Api(key, lowest, highest, known.request, handler, is_async, announced)
        return handler

    return register


class ReplyPlace(Protocol):
    """Takes a reply, once. `net.connection.ReplySlot` is one."""

    def send(self, reply: Reply) -> None: ...


def _waiting_of(connection: ServerConnection) -> set[DelayedOperation]:
    """What waits on behalf of a connection. Most have nothing that does."""
    if connection.context is None:
        connection.context = set()
    waiting: set[DelayedOperation] = connection.context
    return waiting


class RequestContext:
    """One request on its way through the broker."""

    __slots__ = (
        "_dispatcher",
        "_waiting",
        "api",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "received",
        "slot",
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
        self._waiting: DelayedOperation | None = None
        self.connection = connection
        self.api = api
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.received = received
        self.slot: ReplyPlace | None = None
        """Where the reply goes; None if the client waits for none."""

    def __str__(self) -> str:
        return (
            f"{self.api.key.name} v{self.api_version} (correlation id {self.correlation_id}, client "
            f"{self.client_id!r}, from {self.connection})"
        )

    def wait(self, operation: DelayedOperation, purgatory: Purgatory, keys: Iterable[Hashable]) -> _Outcome:
        """Has an operation answer the request. It is called off if the connection is lost before."""
        operation.on_failed = lambda: self.close("an error of the broker")
        if not purgatory.try_complete_else_watch(operation, keys):
            self._waiting = operation
            _waiting_of(self.connection).add(operation)
        return DEFERRED

    def reply(self, response: Message) -> None:
        """Sends the response; once for each request."""
        if self._waiting is not None:
            _waiting_of(self.connection).discard(self._waiting)
            self._waiting = None
        slot = self.slot
        if slot is None:
            raise HeadraceError(f"{self} is not to be answered")
        try:
            frame = encode_response(response, self.api_version, self.correlation_id)
        except Exception:
            _logger.exception("cannot encode the reply to %s", self)
            self.connection.close("a reply that cannot be encoded")
            return
        slot.send(cast(Reply, frame))
        self._dispatcher.answered(self)

    def close(self, reason: str) -> None:
        """Gives up on the connection instead of answering."""
        self.connection.close(reason)


class Action(Protocol):
    """What a fault for tests does to a request (see `headrace.testing.faults`)."""

    def apply(self, context: RequestContext, request: Message, proceed: Callable[[], None]) -> None: ...


class ApiMetrics:
    """What is counted for one API."""

    __slots__ = ("requests", "seconds")

    def __init__(self, metrics: Metrics, key: ApiKey):
        self.requests: Counter = metrics.counter("requests_total", api=key.name)
        self.seconds: Histogram = metrics.histogram("request_seconds", api=key.name)


class Dispatcher:
    """Takes the frames of all connections. Owned by the broker's loop."""

    def __init__(self, broker: "Broker", clock: Clock, metrics: Metrics, slow_request_ms: int):
        self._broker = broker
        self._now = clock.monotonic
        self._slow_seconds = slow_request_ms / 1000
        self._tasks: set[asyncio.Task[None]] = set()
        self._metrics = {key: ApiMetrics(metrics, ApiKey(key)) for key in REGISTRY}
        self._refused = metrics.counter("requests_refused_total")
        self.intercept: Callable[[RequestContext], Action | None] | None = None
        """Asked before each handler; for fault injection."""

    # ---- what `net` calls

    def connection_made(self, connection: ServerConnection) -> None:
        """Nothing is kept of a connection before something waits for it."""

    def connection_lost(self, connection: ServerConnection, error: Exception | None) -> None:  # noqa: ARG002
        for operation in connection.context or ():
            operation.cancel()

    def frame_received(self, connection: ServerConnection, frame: memoryview) -> None:
        received = self._now()
        try:
            key, version, correlation_id, client_id, position = decode_request_header(frame)
        except ProtocolError as error:
            self._refuse(connection, f"a request header that cannot be read: {error}")
            return
        api = REGISTRY.get(key)
        if api is None:
            self._refuse(connection, f"API key {key} (version {version}), which is not served")
            return
        context = RequestContext(self, connection, api, version, correlation_id, client_id, received)
        if not api.lowest <= version <= api.highest:
            self._refuse_version(context)
            return
        try:
            request = decode(api.request, version, frame, position)
        except ProtocolError as error:
            self._refuse(connection, f"a {api.key.name} v{version} request that cannot be read: {error}")
            return
        self._metrics[key].requests.value += 1
        if key != _PRODUCE or request.acks != 0:  # type: ignore[attr-defined]
            context.slot = connection.expect_reply()
        if self.intercept is not None and (action := self.intercept(context)) is not None:
            kept = decode(api.request, version, bytearray(frame), position)  # it may be handled later
            action.apply(context, kept, lambda: self._handle(api, kept, context))
            return
        self._handle(api, request, context)

    # ---- handling

    def _handle(self, api: Api, request: Message, context: RequestContext) -> None:
        if api.is_async:
            task = asyncio.get_running_loop().create_task(self._run(api, request, context))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        try:
            result = api.handler(self._broker, request, context)
        except Exception:  # noqa: BLE001 - logged there
            self._failed(context)
            return
        if result is DEFERRED:
            return
        if result is NO_REPLY:
            self.answered(context)
            return
        context.reply(result)

    async def _run(self, api: Api, request: Message, context: RequestContext) -> None:
        try:
            response = await api.handler(self._broker, request, context)
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - logged there
            self._failed(context)
            return
        context.reply(response)

    def _failed(self, context: RequestContext) -> None:
        _logger.exception("%s failed", context)
        context.close("an error of the broker")

    def answered(self, context: RequestContext) -> None:
        """Called when a request has had its reply."""
        taken = self._now() - context.received
        self._metrics[context.api.key].seconds.record(taken)
        if taken >= self._slow_seconds and context.api.key is not ApiKey.FETCH:
            _slow_logger.warning("%s took %.0f ms", context, taken * 1000)
        if _request_logger.isEnabledFor(logging.DEBUG):
            _request_logger.debug("%s took %.3f ms", context, taken * 1000)

    async def cancel_tasks(self) -> None:
        """Ends what still runs."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- refusing

    def _refuse(self, connection: ServerConnection, what: str) -> None:
        self._refused.value += 1
        _logger.info("%s sent %s", connection, what)
        connection.close(what)

    def _refuse_version(self, context: RequestContext) -> None:
        if context.api.key is not ApiKey.API_VERSIONS:
            self._refuse(
                context.connection,
                f"{context.api.key.name} version {context.api_version}; versions {context.api.lowest} to "
                f"{context.api.highest} are served",
            )
            return
        # A client cannot know what to ask for before it has been told: version 0 is what all can read (KIP-511).
        context.slot = context.connection.expect_reply()
        context.api_version = 0
        context.reply(ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=[api_version_entry(context.api)]))


def api_version_entry(api: Api) -> ApiVersion:
    """What ApiVersions says of an API."""
    return ApiVersion(api_key=api.key, min_version=api.announced_from, max_version=api.highest)
