"""Dispatches requests: from a frame to a handler, and from its response back to the connection.

    frame → request header → registry → decode → handler ┬─ a response      → encoded and sent at once
                                                         ├─ DEFERRED        → `context.reply` is called later
                                                         ├─ NO_REPLY        → nothing is sent (acks=0)
                                                         ├─ a generator     → runs in turns, its result is one of these
                                                         └─ a coroutine     → runs as a task, its result is the response

`_fast_produce` handles the usual Produce requests before all this, and does the same as their handler. It knows no
quotas, so the requests of clients that have one go to the handler.

A connection sends responses in the order of its requests. A request that cannot be decoded, or whose API or version is
not served, closes the connection, because the bytes after it cannot be trusted.
Record bytes in a request are views of the connection's buffer and are valid only until the handler returns. A generator
may use them after a `yield` only if the request is a long one (`long_requests`).

A request is slow if the broker works on it for long (Kafka's LocalTimeMs). Waiting is not work: a DEFERRED response
waits for data, for in-sync replicas or for the other members of a group; a coroutine waits for what it awaits, such as
the store or the controller; and both coroutines and generators wait for their next turn. The request_seconds metrics
include waiting.
Until `open` is called, only the requests of controllers and ApiVersions are handled. Other requests wait, because the
broker does not know its partitions yet.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterable, Sequence
from functools import partial
from types import GeneratorType, coroutine
from typing import Any, Protocol, cast

from headrace.broker._fast_produce import FastProduce
from headrace.broker.apis import DEFERRED, NO_REPLY, REGISTRY, Api, HandlerResult, api_version_entry
from headrace.broker.authentication_gate import AuthenticationGate
from headrace.broker.error_responses import error_response
from headrace.broker.long_requests import SHORT_ELEMENTS, LongRequests
from headrace.broker.purgatory import DelayedOperation, Purgatory
from headrace.broker.quotas.client_quotas import UNLIMITED_MUTATION, ControllerMutation
from headrace.broker.quotas.quotas import MutedConnections, Quotas
from headrace.broker.required_rights import denied
from headrace.broker.services import Services
from headrace.broker.telemetry.client_telemetry import TelemetryClient
from headrace.broker.yielding import InTurns, Turn, TurnQueue
from headrace.common.background import RunnerFactory, ThreadRunner, WorkResult
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError, message_of
from headrace.common.ids import Uuid
from headrace.common.logs import AUDIT_LOGGER, REQUEST_LOGGER, SLOW_REQUEST_LOGGER, shorten
from headrace.common.metrics import Counter, Histogram, Metrics
from headrace.common.principal import Principal
from headrace.net.connection import ServerConnection
from headrace.net.transport import Frame
from headrace.protocol import (
    Message,
    ProtocolError,
    TooManyElementsError,
    decode,
    decode_request_header,
    encode_response,
)
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.api_versions import ApiVersionsResponse
from headrace.security.acls import CLUSTER, Operation, Resource, ResourceType
from headrace.security.authorizer import Authorizer

_logger = logging.getLogger(__name__)
_slow_logger = logging.getLogger(SLOW_REQUEST_LOGGER)
_audit_logger = logging.getLogger(AUDIT_LOGGER)
_request_logger = logging.getLogger(REQUEST_LOGGER)

_PRODUCE = ApiKey.PRODUCE.value

UNSUPPORTED_VERSION = 35

_BEFORE_OPEN = frozenset(
    (
        ApiKey.API_VERSIONS,
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    )
)
"""The requests that a starting broker handles: those of controllers, those to it if it is the controller itself, and
what authenticates their senders."""
_COMMANDS = frozenset((ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA))
_NO_LIMIT = 2**31 - 1
_MAX_WRITABLE_TOPICS = 1000
"""For a connection. A client may be allowed to write to topics that do not exist, with any name."""


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
        "_turn",
        "api",
        "api_version",
        "appended",
        "client_id",
        "connection",
        "correlation_id",
        "is_exempt",
        "is_long",
        "on_handled",
        "received",
        "size",
        "slot",
        "throttle_ms",
        "turns_due",
        "waited_seconds",
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
        self._turn: Turn | None = None
        self.connection = connection
        self.api = api
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.received = received
        self.size = 0
        """The size of the request in bytes."""
        self.throttle_ms = 0
        """How long the client has to pause after the response, because it has exceeded a quota."""
        self.is_exempt = False
        """True if no quota measures the request, or it has been measured already."""
        self.appended: Sequence[tuple[int, int]] = ()
        """Base offset and log start offset of the first batches of a Produce request, which are already appended."""
        self.waiting_since: float | None = None
        """When the handler returned DEFERRED or began to await; None while it works."""
        self.waited_seconds = 0.0
        """The time of the waits that have ended."""
        self.slot: ReplyPlace | None = None
        """The place for the response, or None if the client expects none."""
        self.is_long = False
        """True for a request with many array elements (see `long_requests`)."""
        self.turns_due = 0
        """The number of generators of this request that wait for their next turn, and for which other requests wait."""
        self.on_handled: Callable[[], None] | None = None
        """Called when the handler and its generators have returned: the connection handles its next request then."""

    def __str__(self) -> str:
        return (
            f"{self.api.key.name} v{self.api_version} (correlation id {self.correlation_id}, client "
            f"{self.client_name!r}, from {self.connection})"
        )

    @property
    def principal(self) -> Principal:
        """The client's principal, for authorization and quotas."""
        return self.connection.principal

    @property
    def host(self) -> str:
        """The client's IP address."""
        return self.connection.peer[0]

    def is_authorized(self, operation: Operation, resource: Resource, *, audited: bool = True) -> bool:
        """Returns True if the client may do this. Without an authorizer every client may do everything.

        `audited` is False for a question that is not an attempt: authorized operations, or what a list leaves out.
        """
        authorizer = self._dispatcher.authorizer
        return authorizer is None or authorizer.is_authorized(
            self.principal, self.host, operation, resource, audited=audited, request=self.api.key.name
        )

    def remember_writable(self, topic: str) -> None:
        """Notes for `fast_produce` that the client may write to a topic, until decisions of the authorizer change."""
        if not _audit_logger.isEnabledFor(logging.DEBUG):  # else the log has each allowed request
            self._dispatcher.writable_topics(self.connection).add(topic)

    @property
    def authorizer(self) -> Authorizer | None:
        """Decides who may do what. None: every client may do everything."""
        return self._dispatcher.authorizer

    def telemetry_client(self, client_instance_id: Uuid) -> TelemetryClient:
        """Returns what subscriptions of client metrics select this client by."""
        name, version = self.connection.software
        return TelemetryClient(client_instance_id, self.client_id or "", name, version, *self.connection.peer[:2])

    @property
    def client_name(self) -> str | None:
        """The client id for log lines: shortened, since a client may send 32 KB."""
        return None if self.client_id is None else shorten(self.client_id)

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

    def run_concurrently(self, handling: Coroutine[Any, Any, HandlerResult], retained_bytes: int = 0) -> HandlerResult:
        """Completes the request in a task, as `run`, but later requests of the connection are handled meanwhile."""
        self._dispatcher.run_concurrently(handling, self, retained_bytes)
        return DEFERRED

    def turn_is_over(self) -> bool:
        """Returns True if the handler has to give way to other requests now. Call it after each item of a list."""
        if self._turn is None:
            self._turn = Turn(self._dispatcher.clock)
        return self._turn.is_over()

    async def give_way(self) -> None:
        """Lets other requests run if the turn of this one is over. Call it after each item of a list."""
        if self.turn_is_over():
            await self._dispatcher.turns.wait()

    def run_in_turns(self, work: InTurns[HandlerResult]) -> None:
        """Runs work in turns and sends its result. For a handler that returned DEFERRED."""
        self._dispatcher.run_in_turns(work, self)

    def check_in_turns(self, work: InTurns[None]) -> None:
        """Runs work in turns while the response is delayed. No other request waits for it."""
        self._dispatcher.run_in_turns(work, self, others_wait=False)

    def begin_wait(self) -> None:
        """From now on, the time does not count as work on this request."""
        if self.waiting_since is None:
            self.waiting_since = self._dispatcher.now()

    def end_wait(self) -> None:
        """From now on, the time counts as work again."""
        if self.waiting_since is not None:
            self.waited_seconds += self._dispatcher.now() - self.waiting_since
            self.waiting_since = None

    def reply(self, response: Message) -> None:
        """Sends the response. Call it once."""
        self.end_wait()
        if self._delayed is not None:
            _delayed_operations(self.connection).discard(self._delayed)
            self._delayed = None
        if self.slot is None:
            raise HeadraceError(f"{self} expects no response")
        if self._dispatcher.quotas is not None:
            self._record_use(self._dispatcher.quotas)
            if self.throttle_ms:
                response.throttle_time_ms = self.throttle_ms  # type: ignore[attr-defined]
        if self.is_long or (self._turn is not None and self._turn.given_way):
            # The response is probably long. It is encoded in a thread, while the loop serves others.
            encode = partial(encode_response, response, self.api_version, self.correlation_id, gives_way=True)
            self._dispatcher.long_requests.run_in_thread(encode, self._send_result)
            return
        try:
            frame = encode_response(response, self.api_version, self.correlation_id)
        except Exception:  # noqa: BLE001 - logged there
            self._encoding_failed()
            return
        self._send(cast(Frame, frame))

    def _send_result(self, encoded: WorkResult) -> None:
        if encoded.error is not None:
            self._encoding_failed(encoded.error)
        else:
            self._send(cast(Frame, encoded.value))

    def _send(self, frame: Frame) -> None:
        assert self.slot is not None
        self.slot.send(frame)
        if self.throttle_ms:
            self._pause()
        self._dispatcher.request_completed(self)

    def _encoding_failed(self, error: BaseException | None = None) -> None:
        _logger.error("Closing the connection: cannot encode the response to %s", self, exc_info=error or True)
        self.connection.close("a response that cannot be encoded")

    def close(self, reason: str) -> None:
        """Closes the connection instead of sending a response."""
        self.connection.close(reason)

    # ---- quotas

    @property
    def has_quota(self) -> bool:
        """True if quotas may limit this request."""
        return self._dispatcher.quotas is not None and not self.is_exempt

    def limit_fetch(self, max_bytes: int) -> int:
        """Returns how many bytes a consumer's fetch may read: at most what its quota allows in all windows."""
        quotas = self._dispatcher.quotas
        most = None if quotas is None else quotas.fetch.most_in_windows(self.principal.name, self.client_id)
        return max_bytes if most is None else min(max_bytes, int(most))

    def throttle_fetch(self, response_bytes: int) -> bool:
        """Records the use of a consumer's fetch. Call it only if `has_quota`. Returns True if the response must be
        empty, because the consumer has exceeded a quota. It may get the same records later."""
        quotas = self._dispatcher.quotas
        assert quotas is not None
        user = self.principal.name
        throttle_ms = quotas.fetch.record(user, self.client_id, response_bytes)
        self.throttle_ms = max(throttle_ms, self._record_time(quotas))
        self.is_exempt = True
        if self.throttle_ms:
            quotas.fetch.take_back(user, self.client_id, response_bytes)
        return self.throttle_ms > 0

    def controller_mutation(self, strict_since: int) -> ControllerMutation:
        """Returns the quota of a request that creates or deletes partitions. From the given version on, clients know
        THROTTLING_QUOTA_EXCEEDED."""
        quotas = self._dispatcher.quotas
        if quotas is None:
            return UNLIMITED_MUTATION
        return quotas.controller_mutation(self.principal.name, self.client_id, self.api_version >= strict_since)

    def complete_without_response(self) -> None:
        """Records the use of a Produce request with acks=0."""
        quotas = self._dispatcher.quotas
        if quotas is not None and not self.connection.closed:
            self.throttle_ms = quotas.produce.record(self.principal.name, self.client_id, self.size)
            if self.throttle_ms:
                self._pause()

    def _record_use(self, quotas: Quotas) -> None:
        if self.is_exempt:
            return
        throttle_ms = self._record_time(quotas)
        if self.api.key is ApiKey.PRODUCE:
            throttle_ms = max(throttle_ms, quotas.produce.record(self.principal.name, self.client_id, self.size))
        self.throttle_ms = max(self.throttle_ms, throttle_ms)

    def _record_time(self, quotas: Quotas) -> int:
        """Records the time in which the broker worked on the request. Returns the throttle time."""
        self.end_wait()
        seconds = self._dispatcher.now() - self.received - self.waited_seconds
        return quotas.record_request(self.api.key, self.principal.name, self.client_id, seconds)

    def _pause(self) -> None:
        """Reads nothing from the connection for the throttle time."""
        quotas = self._dispatcher.quotas
        if quotas is not None and not self.connection.closed:
            quotas.muted.mute(self.connection, self.throttle_ms)


@coroutine
def _run_timed(
    handling: Coroutine[Any, Any, HandlerResult], context: RequestContext
) -> Generator[Any, Any, HandlerResult]:
    """Runs a coroutine as `await` does, and notes when it waits."""
    step: Callable[[], Any] = partial(handling.send, None)
    while True:
        context.end_wait()
        try:
            awaited = step()
        except StopIteration as stop:
            return cast(HandlerResult, stop.value)
        context.begin_wait()
        try:
            step = partial(handling.send, (yield awaited))
        except GeneratorExit:
            handling.close()
            raise
        except BaseException as error:  # noqa: BLE001 - the coroutine gets it, such as a cancellation
            step = partial(handling.throw, error)


class Action(Protocol):
    """A fault that a test injects into a request (see `headrace.testing.faults`)."""

    def apply(self, context: RequestContext, request: Message, proceed: Callable[[], None]) -> None: ...


class WritableTopics(set[str]):
    """The topics that the client of a connection may write to, as far as its requests have asked."""

    __slots__ = ("changes", "principal")

    def __init__(self, principal: Principal, changes: int):
        super().__init__()
        self.principal = principal
        self.changes = changes
        """The number of the authorizer's changes when the decisions were made."""

    def add(self, topic: str) -> None:
        if len(self) >= _MAX_WRITABLE_TOPICS:
            self.clear()
        super().add(topic)


class ApiMetrics:
    """The metrics of one API: how many requests it had, how long they took, worked and waited."""

    __slots__ = ("requests", "seconds", "waited", "worked")

    def __init__(self, metrics: Metrics, key: ApiKey):
        self.requests: Counter = metrics.counter("requests_total", api=key.name)
        self.seconds: Histogram = metrics.histogram("request_seconds", api=key.name)
        self.worked: Histogram = metrics.histogram("request_worked_seconds", api=key.name)
        self.waited: Histogram = metrics.histogram("request_waited_seconds", api=key.name)

    def record(self, seconds: float, waited_seconds: float) -> None:
        self.seconds.record(seconds)
        self.worked.record(seconds - waited_seconds)
        self.waited.record(waited_seconds)


class Dispatcher:
    """Handles the frames of all connections. Owned by the broker's loop."""

    def __init__(
        self,
        services: Services,
        clock: Clock,
        metrics: Metrics,
        slow_request_ms: int,
        max_elements: int,
        make_runner: RunnerFactory = ThreadRunner,
    ):
        self._apis = {key: api.bind(services) for key, api in REGISTRY.items()}
        self.clock = clock
        self.now = clock.monotonic
        self.turns = TurnQueue()
        self.long_requests = LongRequests(make_runner)
        self._max_elements = max_elements
        self._short_elements = min(SHORT_ELEMENTS, max_elements)
        self._slow_seconds = slow_request_ms / 1000
        self._tasks: set[asyncio.Task[None]] = set()
        self.api_metrics = {key: ApiMetrics(metrics, ApiKey(key)) for key in REGISTRY}
        self.refused = metrics.counter("requests_refused_total")
        self.intercept: Callable[[RequestContext], Action | None] | None = None
        """Called before each handler, for fault injection."""
        self._held: list[tuple[ServerConnection, memoryview]] | None = None
        """The first request of each connection that waits for `open`. None: the dispatcher is open."""
        self.fast_produce: FastProduce | None = None
        """Handles ordinary Produce requests, if given."""
        self.authorizer: Authorizer | None = None
        """Decides who may do what, if given."""
        self.gate: AuthenticationGate | None = None
        """Lets only authenticated connections pass, on listeners with SASL. None: there are no such listeners."""
        self.quotas: Quotas | None = None
        """The quotas of clients. None if no client has one."""
        self.muted: MutedConnections | None = None
        """The connections of clients that have exceeded a quota."""

    def writable_topics(self, connection: ServerConnection) -> WritableTopics:
        """Returns the topics that the client of a connection may write to, according to earlier requests."""
        assert self.authorizer is not None
        changes = self.authorizer.changes
        topics: WritableTopics | None = connection.writable_topics
        if topics is None or topics.changes != changes or topics.principal is not connection.principal:
            topics = connection.writable_topics = WritableTopics(connection.principal, changes)
        return topics

    # ---- before the broker is ready

    def hold_clients(self) -> None:
        """Lets the requests of clients wait until `open`."""
        self._held = []

    def open(self) -> None:
        """Handles the requests that wait, and from now on all requests."""
        held, self._held = self._held or [], None
        for connection, frame in held:
            if not connection.closed:
                self.frame_received(connection, frame)
            connection.release_requests(len(frame))

    def _must_wait(self, connection: ServerConnection, frame: memoryview) -> bool:
        assert self._held is not None
        if int.from_bytes(frame[:2]) in _BEFORE_OPEN:
            return False
        connection.hold_requests(len(frame))
        self._held.append((connection, memoryview(bytearray(frame))))
        return True

    # ---- called by the socket server

    def connection_made(self, connection: ServerConnection) -> None:
        """A connection has no state until it authenticates, or until one of its requests waits."""
        if self.gate is not None:
            self.gate.connection_made(connection)

    def connection_lost(self, connection: ServerConnection, error: Exception | None) -> None:  # noqa: ARG002
        for operation in connection.context or ():
            operation.cancel()
        if self.muted is not None:
            self.muted.forget(connection)

    def frame_received(self, connection: ServerConnection, frame: memoryview) -> None:
        if connection.authentication is not None and (self.gate is None or not self.gate.admits(connection, frame)):
            return
        if self._held is not None and self._must_wait(connection, frame):
            return
        received = self.now()
        appended: list[tuple[int, int]] | None = None
        if (
            self.fast_produce is not None
            and self.intercept is None
            and (self.quotas is None or self._has_no_quota(self.quotas, connection, frame))
        ):
            writable = None if self.authorizer is None else self.writable_topics(connection)
            produced = self.fast_produce.handle(frame, writable)
            if isinstance(produced, bytes):
                self._produced(connection, frame, produced, received)
                return
            appended = produced
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
        context.size = len(frame)
        if not api.lowest <= version <= api.highest:
            self._refuse_version(context)
            return
        try:
            # A controller's command has many partitions, and must not wait behind long requests of clients.
            elements = _NO_LIMIT if key in _COMMANDS else self._short_elements
            request = decode(api.request, version, frame, position, elements)
        except TooManyElementsError as error:
            self._long_request_received(context, frame, position, error)
            return
        except ProtocolError as error:
            self._refuse_body(context, error)
            return
        self.api_metrics[key].requests.value += 1
        if key != _PRODUCE or request.acks != 0:  # type: ignore[attr-defined]
            context.slot = connection.expect_response()
        if self.intercept is not None and (action := self.intercept(context)) is not None:
            self._act(action, context, frame, position)
            return
        if appended:
            context.appended = appended
        self._handle(api, request, context)

    def _has_no_quota(self, quotas: Quotas, connection: ServerConnection, frame: memoryview) -> bool:
        """Returns True for a Produce request of a client without a quota."""
        if int.from_bytes(frame[:2]) != _PRODUCE:
            return False
        try:
            client_id = decode_request_header(frame)[3]
        except ProtocolError:
            return False
        return not quotas.limits_produce(connection.principal.name, client_id)

    def _produced(self, connection: ServerConnection, frame: memoryview, response: bytes, received: float) -> None:
        """Sends the response to a Produce request that `fast_produce` has handled; none with acks=0."""
        if response:
            connection.expect_response().send(response)
        metrics = self.api_metrics[_PRODUCE]
        metrics.requests.value += 1
        seconds = self.now() - received
        metrics.record(seconds, 0.0)
        if seconds >= self._slow_seconds or _request_logger.isEnabledFor(logging.DEBUG):
            _, version, correlation_id, client_id, _ = decode_request_header(frame)
            context = RequestContext(
                self, connection, self._apis[_PRODUCE], version, correlation_id, client_id, received
            )
            self._log_duration(context, seconds)

    def _act(self, action: Action, context: RequestContext, frame: memoryview, position: int) -> None:
        """Applies a fault. The request may be handled later, so it gets its own copy of the frame."""
        api = context.api
        request = decode(api.request, context.api_version, bytearray(frame), position)
        action.apply(context, request, lambda: self._handle(api, request, context))

    def _long_request_received(
        self, context: RequestContext, frame: memoryview, position: int, error: TooManyElementsError
    ) -> None:
        if error.elements > self._max_elements:
            self._refuse_body(context, error)
            return
        context.slot = context.connection.expect_response()
        self.long_requests.add(
            context.connection, frame, lambda kept, done: self._long_request_admitted(context, kept, position, done)
        )

    def _long_request_admitted(
        self, context: RequestContext, frame: memoryview, position: int, done: Callable[[], None]
    ) -> None:
        """Handles a long request. Calls `done` when the handler has returned."""
        api = context.api
        if context.connection.closed and api.key is not ApiKey.PRODUCE:
            done()
            return
        self.long_requests.run_in_thread(
            partial(decode, api.request, context.api_version, frame, position, self._max_elements, gives_way=True),
            lambda result: self._long_request_decoded(context, frame, position, result, done),
        )

    def _long_request_decoded(
        self,
        context: RequestContext,
        frame: memoryview,
        position: int,
        result: WorkResult,
        done: Callable[[], None],
    ) -> None:
        api = context.api
        if result.error is not None:
            if isinstance(result.error, ProtocolError):
                self._refuse_body(context, result.error)
            else:
                self._failed(context, result.error)
            done()
            return
        request = cast(Message, result.value)
        self.api_metrics[api.key].requests.value += 1
        if api.key is ApiKey.PRODUCE and request.acks == 0 and context.slot is not None:  # type: ignore[attr-defined]
            context.slot.send(b"")  # no response
            context.slot = None
        if self.intercept is not None and (action := self.intercept(context)) is not None:
            self._act(action, context, frame, position)
            done()
            return
        context.is_long = True
        context.on_handled = done
        self._handle(api, request, context)

    # ---- handling

    def _handle(self, api: Api, request: Message, context: RequestContext) -> None:
        if self.authorizer is not None and self._refuse_unauthorized(api, request, context):
            return
        if api.is_async:
            context.begin_wait()  # for the task's first step
            self._start_task(self._run(api.handler(request, context), context))
            return
        try:
            result = api.handler(request, context)
        except Exception:  # noqa: BLE001 - logged there
            self._failed(context)
            result = None
        if type(result) is GeneratorType:
            self._run_generator(result, context)
            return
        self._finish(context, result)

    def _refuse_unauthorized(self, api: Api, request: Message, context: RequestContext) -> bool:
        """Fails a request whose client does not have a right on the cluster that the API requires of all clients."""
        if api.needs.enforced is None or context.is_authorized(api.needs.enforced, CLUSTER):
            return False
        error = denied(ResourceType.CLUSTER)
        respond = partial(error_response, request, context.api_version, error.code, message_of(error))
        if context.is_long:
            self.long_requests.run_in_thread(respond, lambda result: self._finish(context, cast(Message, result.value)))
        else:
            self._finish(context, respond())
        return True

    def _finish(self, context: RequestContext, result: HandlerResult | None) -> None:
        """Sends a handler's response, if it has one now. None: it failed, or it only checked a delayed response."""
        if result is DEFERRED or result is None:
            context.begin_wait()
        elif result is NO_REPLY:
            context.complete_without_response()
            self.request_completed(context)
        else:
            context.reply(cast(Message, result))
        if context.on_handled is not None and not context.turns_due:
            on_handled, context.on_handled = context.on_handled, None
            on_handled()

    def _run_generator(self, work: InTurns[HandlerResult], context: RequestContext) -> None:
        """Runs the first turn of a handler. If it is not done then, the next request of the connection waits for it."""
        if not self.run_in_turns(work, context) and context.on_handled is None:
            context.connection.hold_requests()
            context.on_handled = context.connection.release_requests

    def run_in_turns(
        self, work: InTurns[HandlerResult | None], context: RequestContext, *, others_wait: bool = True
    ) -> bool:
        """Runs one turn of the work. Returns True if it is done; else it waits for its next turn.

        With `others_wait`, later requests of the connection wait until all of the work is done.
        """
        context.end_wait()
        try:
            next(work)
        except StopIteration as stop:
            self._finish(context, stop.value)
            return True
        except Exception:  # noqa: BLE001 - logged there
            self._failed(context)
            self._finish(context, None)
            return True
        context.begin_wait()
        context.turns_due += others_wait
        self.turns.add(lambda: self._next_turn(work, context, others_wait))
        return False

    def _next_turn(self, work: InTurns[HandlerResult | None], context: RequestContext, others_wait: bool) -> None:
        context.turns_due -= others_wait
        self.run_in_turns(work, context, others_wait=others_wait)

    def run_in_order(
        self, handling: Coroutine[Any, Any, HandlerResult], context: RequestContext, retained_bytes: int
    ) -> None:
        """Runs the rest of a request in a task, before later requests of its connection."""
        context.connection.hold_requests(retained_bytes)
        task = self._start_task(self._run(handling, context))
        task.add_done_callback(lambda _: context.connection.release_requests(retained_bytes))

    def run_concurrently(
        self, handling: Coroutine[Any, Any, HandlerResult], context: RequestContext, retained_bytes: int
    ) -> None:
        """Runs the rest of a request in a task, while later requests of its connection are handled."""
        context.connection.retain(retained_bytes)
        task = self._start_task(self._run(handling, context))
        task.add_done_callback(lambda _: context.connection.retain(-retained_bytes))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, handling: Coroutine[Any, Any, HandlerResult], context: RequestContext) -> None:
        try:
            result = await _run_timed(handling, context)
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - logged there
            self._failed(context)
            result = None
        self._finish(context, result)

    def _failed(self, context: RequestContext, error: BaseException | None = None) -> None:
        _logger.error("Closing the connection after an internal error: %s failed", context, exc_info=error or True)
        context.close("an internal error of the broker")

    def request_completed(self, context: RequestContext) -> None:
        """Records the duration of a request whose response was sent, and logs it if the broker's work was slow."""
        seconds = self.now() - context.received
        self.api_metrics[context.api.key].record(seconds, context.waited_seconds)
        self._log_duration(context, seconds)

    def _log_duration(self, context: RequestContext, seconds: float) -> None:
        waited_seconds = context.waited_seconds
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
        self.turns.close()
        self.long_requests.close()  # may start a last task
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- refusing

    def _refuse_body(self, context: RequestContext, error: ProtocolError) -> None:
        what = f"a {context.api.key.name} v{context.api_version} request of client {context.client_name!r}"
        if isinstance(error, TooManyElementsError):
            self._refuse(
                context.connection,
                f"{what} with {error.elements} array elements or more; headrace.request.max.elements allows "
                f"{self._max_elements}",
            )
        else:
            self._refuse(context.connection, f"{what} that cannot be decoded: {error}")

    def _refuse(self, connection: ServerConnection, reason: str) -> None:
        self.refused.value += 1
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
