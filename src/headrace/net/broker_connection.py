"""One connection from a client to a broker: sends requests, and matches responses by order and correlation id.

The loop that created the connection owns it: no other thread may call its methods.

- Any number of requests may be in flight. Brokers respond in the order of the requests, so a response belongs to the
  oldest request in flight, and its correlation id must match.
- A request timeout closes the connection, as in Kafka's clients: later responses would wait behind the missing one.
  The request fails with RequestTimedOutError, all others in flight with KafkaConnectionError.
- Every future that `send` returns is completed exactly once, with the response or with an error.
"""

import asyncio
import logging
import ssl
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from headrace.common.errors import RequestTimedOutError, UnsupportedVersionError
from headrace.common.types import Buffer
from headrace.net.errors import IncompatibleBrokerVersion, KafkaConnectionError
from headrace.net.framing import InvalidFrameError
from headrace.net.link_stats import LinkStats
from headrace.net.nodes import Node
from headrace.net.responses import ResponseMemory, ResponseReader, body_position
from headrace.net.tls_errors import describe_for_client
from headrace.net.transport import Frame, Part, frame_size
from headrace.protocol import APIS, Api, ApiKey, Message, ProtocolError, decode, encode_request
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

__all__ = ["BrokerConnection", "ClientTransport", "ResponseFuture"]

_logger = logging.getLogger(__name__)

ResponseFuture = asyncio.Future[Any]
"""The future of a response message. Its result is None for a request without a response."""

SOFTWARE_NAME = "headrace"
_NEVER = float("inf")
_MAX_COPY_BYTES = 64 * 1024
"""Record batches above this size are sent without copying them into the frame."""
_CHUNK_BYTES = 1024 * 1024
"""A large response is received in chunks of about this size, because each chunk must acquire the GIL.

In a blocking client the application's thread may hold the GIL. The kernel buffers the bytes until then."""
_correlation_id = struct.Struct(">i").unpack_from
_error_code = struct.Struct(">h").unpack_from


class ClientTransport(Protocol):
    """The interface of a connection's transport: `headrace.net.transport.PlainClientTransport`, or
    `headrace.net.tls_transport.TlsTransport`. `send` is called only while writing is not paused."""

    def send(self, response: Frame) -> None: ...

    def resume_reading(self) -> None: ...

    def wake_at(self, size: int) -> None: ...

    def abort(self) -> None: ...


class _InFlightRequest:
    """A request in flight."""

    __slots__ = ("api", "correlation_id", "deadline", "future", "sent_at", "version")

    def __init__(
        self, api: Api, version: int, correlation_id: int, future: ResponseFuture, sent_at: float, deadline: float
    ):
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.future = future
        self.sent_at = sent_at
        self.deadline = deadline


class BrokerConnection(asyncio.BufferedProtocol):
    """A client's connection. `BrokerLink` creates it and the dialer attaches a transport. Call `negotiate` first."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: Node,
        client_id: str,
        max_response_bytes: int,
        memory: ResponseMemory,
        stats: LinkStats,
        on_lost: Callable[["BrokerConnection", KafkaConnectionError | None], None],
        on_response: Callable[["BrokerConnection", int, Message], None],
    ):
        self.node = node
        self.closed = False
        self.tls_error: ssl.SSLError | None = None
        """Why TLS ended the connection. With TLS 1.3 a client learns only after its handshake what the broker thinks of
        its certificate."""
        self.versions: dict[int, tuple[int, int]] = {}
        """The lowest and highest version that the broker supports, by API key."""
        self._selected_versions: dict[tuple[int, int | None, int | None], int] = {}
        self.features: dict[str, int] = {}
        """Finalized features and their levels (KIP-584)."""
        self.last_used = loop.time()
        self._loop = loop
        self._client_id = client_id
        self._stats = stats
        self._on_lost = on_lost
        self._on_response = on_response
        self._reader = ResponseReader(max_response_bytes, memory)
        self._in_flight_requests: deque[_InFlightRequest] = deque()
        self._next_id = 0
        self._wake_bytes = 1
        self._transport: ClientTransport | None = None
        self._blocked = True
        self._queue: list[bytes | list[bytes | memoryview]] = []
        self._responses = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER

    def __str__(self) -> str:
        return str(self.node)

    # ---- requests

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return len(self._in_flight_requests)

    @property
    def waited_seconds(self) -> float:
        """The age of the oldest request in flight."""
        return self._loop.time() - self._in_flight_requests[0].sent_at if self._in_flight_requests else 0.0

    @property
    def longest_wait_ms(self) -> float:
        """How long the requests in flight may still take."""
        deadlines = [request.deadline for request in self._in_flight_requests]
        return max(0.0, max(deadlines) - self._loop.time()) * 1000 if deadlines else 0.0

    @property
    def queued(self) -> int:
        """The number of requests not written to the socket yet."""
        return len(self._queue)

    def version_for(self, api_key: int, min_version: int | None = None, max_version: int | None = None) -> int:
        """Returns the highest version of an API that both sides support, within bounds.

        Raises UnsupportedVersionError if there is none.
        """
        bounds = (api_key, min_version, max_version)
        version = self._selected_versions.get(bounds)
        if version is None:
            version = self._selected_versions[bounds] = self._select_version(*bounds)
        return version

    def _select_version(self, api_key: int, min_version: int | None, max_version: int | None) -> int:
        api = APIS[ApiKey(api_key)]
        supported = self.versions.get(api_key)
        if supported is None:
            raise IncompatibleBrokerVersion(f"{self.node} does not support {api.name}")
        lowest_version = max(api.first_version, supported[0], min_version or 0)
        highest_version = min(api.last_version, supported[1], api.last_version if max_version is None else max_version)
        if lowest_version > highest_version:
            required_low, required_high = max(api.first_version, min_version or 0), api.last_version
            if max_version is not None:
                required_high = min(required_high, max_version)
            raise IncompatibleBrokerVersion(
                f"{self.node} supports {api.name} versions {supported[0]} to {supported[1]}, but this client requires "
                f"one of {required_low} to {required_high}"
            )
        return highest_version

    def send(self, request: Message, version: int, timeout_ms: float, expect_response: bool = True) -> ResponseFuture:
        """Sends a request, now or when the socket is writable. Cancelling the future drops the response.

        Raises at once, without affecting the connection, if the request cannot be encoded.
        """
        loop = self._loop
        future: ResponseFuture = loop.create_future()
        if self.closed:
            future.set_exception(KafkaConnectionError(f"the connection to {self.node} is closed"))
            return future
        api = APIS[type(request).__api_key__]  # type: ignore[index]
        correlation_id = self._next_id
        frame = encode_request(request, version, correlation_id, self._client_id, _MAX_COPY_BYTES)
        self._next_id = correlation_id + 1 & 0x7FFFFFFF
        self.last_used = now = loop.time()
        self._stats.request(api.key, frame_size(frame))
        if expect_response:
            deadline = now + timeout_ms / 1000
            self._in_flight_requests.append(_InFlightRequest(api, version, correlation_id, future, now, deadline))
            if deadline < self._timer_at:
                self._set_timer(deadline)
        if self._blocked:
            self._queue.append(frame)
        else:
            assert self._transport is not None
            self._transport.send(frame)
        if not expect_response:
            future.set_result(None)
        return future

    async def negotiate(self, software_version: str, timeout_ms: float) -> None:
        """Requests the broker's API versions (KIP-35).

        A broker that does not support our version of ApiVersions responds in version 0, with the versions that it
        supports (KIP-511).
        """
        api = APIS[ApiKey.API_VERSIONS]
        version = api.last_version
        while True:
            request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=software_version)
            response: ApiVersionsResponse = await self.send(request, version, timeout_ms)
            if response.error_code != UnsupportedVersionError.code or version == 0:
                break
            max_versions = [entry.max_version for entry in response.api_keys if entry.api_key == ApiKey.API_VERSIONS]
            version = max(0, min(max_versions[0], version - 1)) if max_versions else 0
        if response.error_code:
            raise KafkaConnectionError(f"{self.node} did not return its API versions: error code {response.error_code}")
        self._selected_versions.clear()
        self.versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
        self.features = {entry.name: entry.max_version_level for entry in response.finalized_features}

    def close(self, reason: str = "this client closed it") -> None:
        """Closes the connection; requests in flight fail."""
        self._fail(KafkaConnectionError(f"the connection to {self.node} was closed: {reason}", sent=True))

    # ---- called by the transport

    def connection_made(self, transport: Any) -> None:
        if self.closed:
            transport.abort()
            return
        self._transport = transport
        self._blocked = False
        transport.resume_reading()
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._stats.rx_bytes += nbytes
        try:
            for response in self._reader.updated(nbytes):
                self._response(response)
            self._await_more()
        except (InvalidFrameError, ProtocolError) as error:
            self._stats.rx_errors += 1
            self._fail(KafkaConnectionError(f"{self.node} sent an invalid response: {error}", sent=True))
        except Exception as error:
            # A bug of ours. The rest of the stream cannot be trusted, and all waiting callers must fail.
            _logger.exception("Closing the connection to %s: failed to handle its response", self.node)
            self._fail(KafkaConnectionError(f"failed to handle a response of {self.node}: {error!r}", sent=True))

    def _await_more(self) -> None:
        """Receives the rest of a large response in large chunks."""
        wake_bytes = min(max(1, self._reader.missing_bytes), _CHUNK_BYTES)
        if wake_bytes != self._wake_bytes and self._transport is not None and not self.closed:
            self._wake_bytes = wake_bytes
            self._transport.wake_at(wake_bytes)

    def eof_received(self) -> bool:
        within = " within a response" if self._reader.buffered_bytes else ""
        self._fail(KafkaConnectionError(f"{self.node} closed the connection{within}{self._hint}", sent=True))
        return False

    @property
    def _hint(self) -> str:
        """What is probably wrong if a broker closes a new connection at ApiVersions or at the request after it."""
        requests = self._in_flight_requests
        if not requests or not (self._responses == 1 or requests[0].api.key == ApiKey.API_VERSIONS):
            return ""
        return " at the first request; if that repeats, check security.protocol: the listener may require TLS or SASL"

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, ssl.SSLError):
            self.tls_error = error
            why = f": {describe_for_client(error)}"
        else:
            why = f": {error}{self._hint}" if error is not None else self._hint
        self._fail(KafkaConnectionError(f"the connection to {self.node} was lost{why}", sent=True))

    # ---- sending and receiving

    def _flush(self) -> None:
        if self._queue and not self._blocked and self._transport is not None:
            queue, self._queue = self._queue, []
            parts: list[Part] = []
            for frame in queue:
                parts += [frame] if isinstance(frame, bytes) else frame
            self._transport.send(parts)

    def _response(self, data: Buffer) -> None:
        if self.closed:
            return
        if not self._in_flight_requests:
            raise ProtocolError("a response without a request")
        request = self._in_flight_requests[0]
        correlation_id: int = _correlation_id(data)[0]
        if correlation_id != request.correlation_id:
            raise ProtocolError(f"a response with correlation id {correlation_id}, expected {request.correlation_id}")
        api, version = request.api, request.version
        if api.key == ApiKey.API_VERSIONS:
            position = 4
            if len(data) >= 6 and _error_code(data, 4)[0] == UnsupportedVersionError.code:
                version = 0
        else:
            position = body_position(data, api.is_flexible(version))
        message = decode(api.response, version, data, position)
        self._in_flight_requests.popleft()
        self._responses += 1
        self.last_used = now = self._loop.time()
        self._stats.response(now - request.sent_at)
        if not request.future.done():
            request.future.set_result(message)
        self._on_response(self, api.key, message)

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timer = None
        self._timer_at = _NEVER
        if not self._in_flight_requests:
            return
        request = min(self._in_flight_requests, key=lambda item: item.deadline)
        if request.deadline > self._loop.time():
            self._set_timer(request.deadline)
            return
        self._stats.request_timeouts += 1
        seconds = request.deadline - request.sent_at
        message = f"{self.node} did not respond to {request.api.name} within {seconds * 1000:.0f} ms"
        if not request.future.done():
            request.future.set_exception(RequestTimedOutError(message))
            request.future.exception()
        self._fail(KafkaConnectionError(f"{message}, so the connection was closed", sent=True))

    def _fail(self, error: KafkaConnectionError) -> None:
        """Closes the connection and fails all requests in flight. Later calls do nothing."""
        if self.closed:
            return
        self.closed = True
        self._blocked = True
        self._queue = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        requests, self._in_flight_requests = self._in_flight_requests, deque()
        for request in requests:
            if not request.future.done():
                request.future.set_exception(KafkaConnectionError(str(error), sent=True))
                request.future.exception()  # retrieved, in case no caller is waiting
        if self._transport is not None:
            self._transport.abort()
        self._on_lost(self, error)
