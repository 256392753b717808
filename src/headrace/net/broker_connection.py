"""One connection from a client to a broker: requests out, replies in, matched by their order and correlation ids.

Belongs to the loop that made it; nothing here may be called from another thread.

- Any number of requests may be in flight; replies come in the order of the requests (Kafka promises that), so a reply
  is for the oldest request that waits, and its correlation id must say so.
- A request whose reply does not come in time costs the connection, as in Kafka's clients: what came later could not be
  told from what is late. Its own error is RequestTimedOutError, all others in flight get KafkaConnectionError.
- Every future that `send` returned is completed exactly once: with the reply, or with an error.
"""

import asyncio
import logging
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
from headrace.net.replies import ReplyMemory, ReplyReader, body_position
from headrace.net.transport import Part, Reply, reply_size
from headrace.protocol import APIS, Api, ApiKey, Message, ProtocolError, decode, encode_request
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

__all__ = ["BrokerConnection", "ClientTransport", "ReplyFuture"]

_logger = logging.getLogger(__name__)

ReplyFuture = asyncio.Future[Any]
"""Of the reply's message; of None for a request without a reply."""

SOFTWARE_NAME = "headrace"
_NEVER = float("inf")
_LARGEST_COPY = 64 * 1024
"""Larger batches of records go to the socket from where they are."""
_LARGEST_PIECE = 1024 * 1024
"""A large reply is received in pieces of about this size. Each costs a turn at the GIL, which in a blocking client the
user's thread has to give up; the system keeps what has come until then."""
_correlation_id = struct.Struct(">i").unpack_from
_error_code = struct.Struct(">h").unpack_from


class ClientTransport(Protocol):
    """What a connection asks of its transport: `headrace.net.transport.PlainTransport`, or what `dialer` makes of
    asyncio's for TLS. `send` is called only while writing is not paused."""

    def send(self, reply: Reply) -> None: ...

    def resume_reading(self) -> None: ...

    def wake_at(self, size: int) -> None: ...

    def abort(self) -> None: ...


class _Waiting:
    """A request in flight."""

    __slots__ = ("api", "correlation_id", "deadline", "future", "sent_at", "version")

    def __init__(
        self, api: Api, version: int, correlation_id: int, future: ReplyFuture, sent_at: float, deadline: float
    ):
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.future = future
        self.sent_at = sent_at
        self.deadline = deadline


class BrokerConnection(asyncio.BufferedProtocol):
    """Made by `BrokerLink`, and given to a transport by the dialer. Ready when `negotiate` has returned."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: Node,
        client_id: str,
        max_reply_bytes: int,
        memory: ReplyMemory,
        stats: LinkStats,
        on_lost: Callable[["BrokerConnection", KafkaConnectionError | None], None],
        on_reply: Callable[["BrokerConnection", int, Message], None],
    ):
        self.node = node
        self.closed = False
        self.versions: dict[int, tuple[int, int]] = {}
        """What the broker serves: lowest and highest version, by API."""
        self._chosen: dict[tuple[int, int | None, int | None], int] = {}
        self.features: dict[str, int] = {}
        """Finalized features and their levels (KIP-584)."""
        self.last_used = loop.time()
        self._loop = loop
        self._client_id = client_id
        self._stats = stats
        self._on_lost = on_lost
        self._on_reply = on_reply
        self._reader = ReplyReader(max_reply_bytes, memory)
        self._waiting: deque[_Waiting] = deque()
        self._next_id = 0
        self._wanted_bytes = 1
        self._transport: ClientTransport | None = None
        self._blocked = True
        self._queue: list[bytes | list[bytes | memoryview]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER

    def __str__(self) -> str:
        return str(self.node)

    # ---- requests

    @property
    def in_flight(self) -> int:
        """Requests that wait for their replies."""
        return len(self._waiting)

    @property
    def waited_seconds(self) -> float:
        """How long the oldest request in flight has waited."""
        return self._loop.time() - self._waiting[0].sent_at if self._waiting else 0.0

    @property
    def queued(self) -> int:
        """Requests that the socket has not taken yet."""
        return len(self._queue)

    def version_for(self, api_key: int, min_version: int | None = None, max_version: int | None = None) -> int:
        """The highest version of an API that both sides know, within bounds. Raises UnsupportedVersionError."""
        question = (api_key, min_version, max_version)
        version = self._chosen.get(question)
        if version is None:
            version = self._chosen[question] = self._choose(*question)
        return version

    def _choose(self, api_key: int, min_version: int | None, max_version: int | None) -> int:
        api = APIS[ApiKey(api_key)]
        served = self.versions.get(api_key)
        if served is None:
            raise IncompatibleBrokerVersion(f"{self.node} does not serve {api.name}")
        low = max(api.first_version, served[0], min_version or 0)
        high = min(api.last_version, served[1], api.last_version if max_version is None else max_version)
        if low > high:
            wanted_low, wanted_high = max(api.first_version, min_version or 0), api.last_version
            if max_version is not None:
                wanted_high = min(wanted_high, max_version)
            raise IncompatibleBrokerVersion(
                f"{self.node} serves {api.name} in versions {served[0]} to {served[1]}, and one of {wanted_low} to "
                f"{wanted_high} is needed"
            )
        return high

    def send(self, request: Message, version: int, timeout_ms: float, expect_response: bool = True) -> ReplyFuture:
        """Sends a request now, or when the socket takes it. The future may be cancelled: the reply is dropped then.

        What cannot be encoded raises at once and costs nothing.
        """
        loop = self._loop
        future: ReplyFuture = loop.create_future()
        if self.closed:
            future.set_exception(KafkaConnectionError(f"the connection to {self.node} is closed"))
            return future
        api = APIS[type(request).__api_key__]  # type: ignore[index]
        correlation_id = self._next_id
        frame = encode_request(request, version, correlation_id, self._client_id, _LARGEST_COPY)
        self._next_id = correlation_id + 1 & 0x7FFFFFFF
        self.last_used = now = loop.time()
        self._stats.request(api.key, reply_size(frame))
        if expect_response:
            deadline = now + timeout_ms / 1000
            self._waiting.append(_Waiting(api, version, correlation_id, future, now, deadline))
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
        """Learns what the broker serves (KIP-35). A broker that does not know our version of the question says so in
        version 0, with the versions that it knows (KIP-511)."""
        api = APIS[ApiKey.API_VERSIONS]
        version = api.last_version
        while True:
            request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=software_version)
            reply: ApiVersionsResponse = await self.send(request, version, timeout_ms)
            if reply.error_code != UnsupportedVersionError.code or version == 0:
                break
            known = [each.max_version for each in reply.api_keys if each.api_key == ApiKey.API_VERSIONS]
            version = max(0, min(known[0], version - 1)) if known else 0
        if reply.error_code:
            raise KafkaConnectionError(f"{self.node} refused to tell its versions: error code {reply.error_code}")
        self._chosen.clear()
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in reply.api_keys}
        self.features = {each.name: each.max_version_level for each in reply.finalized_features}

    def close(self, reason: str = "this client closed it") -> None:
        """Drops the connection; what is in flight fails."""
        self._fail(KafkaConnectionError(f"the connection to {self.node} was closed: {reason}", sent=True))

    # ---- what the transport calls

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
            for reply in self._reader.updated(nbytes):
                self._reply(reply)
            self._await_more()
        except (InvalidFrameError, ProtocolError) as error:
            self._stats.rx_errors += 1
            self._fail(KafkaConnectionError(f"{self.node} sent what is no reply: {error}", sent=True))
        except Exception as error:
            # A mistake of ours. Nothing that follows can be trusted, and those who wait must be told.
            _logger.exception("closing the connection to %s: its reply could not be handled", self.node)
            self._fail(KafkaConnectionError(f"a reply of {self.node} could not be handled: {error!r}", sent=True))

    def _await_more(self) -> None:
        """Of a large reply much is to come: it is received in large pieces."""
        wanted = min(max(1, self._reader.missing_bytes), _LARGEST_PIECE)
        if wanted != self._wanted_bytes and self._transport is not None and not self.closed:
            self._wanted_bytes = wanted
            self._transport.wake_at(wanted)

    def eof_received(self) -> bool:
        within = " within a reply" if self._reader.buffered_bytes else ""
        self._fail(KafkaConnectionError(f"{self.node} closed the connection{within}", sent=True))
        return False

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        why = f": {error}" if error is not None else ""
        self._fail(KafkaConnectionError(f"the connection to {self.node} was lost{why}", sent=True))

    # ---- inside

    def _flush(self) -> None:
        if self._queue and not self._blocked and self._transport is not None:
            queue, self._queue = self._queue, []
            parts: list[Part] = []
            for frame in queue:
                parts += [frame] if isinstance(frame, bytes) else frame
            self._transport.send(parts)

    def _reply(self, data: Buffer) -> None:
        if self.closed:
            return
        if not self._waiting:
            raise ProtocolError("a reply that nobody waits for")
        waiting = self._waiting[0]
        correlation_id: int = _correlation_id(data)[0]
        if correlation_id != waiting.correlation_id:
            raise ProtocolError(f"a reply with correlation id {correlation_id}, expected {waiting.correlation_id}")
        api, version = waiting.api, waiting.version
        if api.key == ApiKey.API_VERSIONS:
            position = 4
            if len(data) >= 6 and _error_code(data, 4)[0] == UnsupportedVersionError.code:
                version = 0
        else:
            position = body_position(data, api.is_flexible(version))
        message = decode(api.response, version, data, position)
        self._waiting.popleft()
        self.last_used = now = self._loop.time()
        self._stats.reply(now - waiting.sent_at)
        if not waiting.future.done():
            waiting.future.set_result(message)
        self._on_reply(self, api.key, message)

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._look_at_deadlines)

    def _look_at_deadlines(self) -> None:
        self._timer = None
        self._timer_at = _NEVER
        if not self._waiting:
            return
        first = min(self._waiting, key=lambda waiting: waiting.deadline)
        if first.deadline > self._loop.time():
            self._set_timer(first.deadline)
            return
        self._stats.request_timeouts += 1
        seconds = first.deadline - first.sent_at
        text = f"{self.node} did not answer {first.api.name} in {seconds:.3f} s"
        if not first.future.done():
            first.future.set_exception(RequestTimedOutError(text))
            first.future.exception()
        self._fail(KafkaConnectionError(f"{text}, so the connection was closed", sent=True))

    def _fail(self, error: KafkaConnectionError) -> None:
        """The end: once, whoever brings it about."""
        if self.closed:
            return
        self.closed = True
        self._blocked = True
        self._queue = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.future.done():
                each.future.set_exception(KafkaConnectionError(str(error), sent=True))
                each.future.exception()  # who has gone away in the meantime does not want to be told
        if self._transport is not None:
            self._transport.abort()
        self._on_lost(self, error)
