"""One connection of a server: passes frames to the handler, and sends responses in the order of the requests.

Everything happens on the loop. A frame is handled within the read that completes it. A response goes to the socket as
soon as it is ready and all earlier responses are sent.

Reading pauses under these conditions, and then continues with the bytes received already:

- More than `Limits.max_in_flight` requests have no response: until half of them have one.
- The peer leaves more than `Limits.max_queued_bytes` of responses unread: until half of them are sent.
- The connection has used up its share of this iteration of the loop: until the next iteration.
- The requests of all connections need more memory than `Limits.queued_max_bytes`: until others give memory back.
- The handler holds back further requests, until it has handled one of them.
- The server is paused or draining.
"""

import asyncio
import logging
from typing import Any, Protocol

from headrace.common.errors import HeadraceError
from headrace.common.principal import ANONYMOUS
from headrace.net.framing import FrameReader, InvalidFrameError
from headrace.net.limits import Limits
from headrace.net.listeners import join_address
from headrace.net.receive_memory import ReceiveMemory
from headrace.net.transport import IN_MEMORY, Frame, Part, frame_size

_logger = logging.getLogger(__name__)

Address = tuple[str, int]

_BLOCKED = 1
"""The socket is not writable."""
_CORKED = 2
"""More frames of the same read are being handled."""

_IN_FLIGHT = 1
_SLOW_PEER = 2
_TURN = 4
_SERVER = 8
_FINISHING = 16
_MEMORY = 32
_REQUEST = 64

LINGER_SECONDS = 1.0
"""How long to wait for responses after the peer has closed its sending side."""

_NOTHING = b""
_UNKNOWN_SOFTWARE = ("unknown", "unknown")
_JOIN_RESPONSES_BYTES = 64 * 1024
_TURN_SECONDS = 0.02
"""The time after which other connections get their turn: some requests are expensive."""


class ResponseError(HeadraceError):
    """A request got a second response: a bug of the caller."""


class FrameHandler(Protocol):
    """Handles the frames of connections. An exception closes the connection and has no other effect."""

    def connection_made(self, connection: "ServerConnection") -> None: ...

    def frame_received(self, connection: "ServerConnection", frame: memoryview) -> None:
        """Handles a frame without its size field. It is writable, and valid only during the call."""

    def connection_lost(self, connection: "ServerConnection", error: Exception | None) -> None:
        """Called once for each `connection_made`. Outstanding responses may still be sent, without effect."""


class ResponseTransport(Protocol):
    """The interface of a connection's transport. See `headrace.net.transport`."""

    pending_bytes: int

    def send(self, response: Frame) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class ConnectionOwner(Protocol):
    """The interface of a connection's server: memory, limits and counters."""

    memory: ReceiveMemory
    limits: Limits
    bytes_in: int
    bytes_out: int
    frames_in: int
    invalid_frames: int

    def connection_quiet(self, connection: "ServerConnection") -> None: ...

    def connection_lost(self, connection: "ServerConnection") -> None: ...


class ResponseSlot:
    """The place of one response in its connection's order. `send` or `discard` fills it exactly once."""

    __slots__ = ("_next", "_response", "_size", "connection")

    def __init__(self, connection: "ServerConnection"):
        self.connection = connection
        self._next: ResponseSlot | None = None
        self._response: Frame | None = None
        self._size = 0

    @property
    def answered(self) -> bool:
        return self._response is not None

    def send(self, response: Frame) -> None:
        """Sends a whole frame with its size field: bytes, or a list of bytes and file slices."""
        if self._response is not None:
            raise ResponseError(f"a request of {self.connection} got a second response")
        connection = self.connection
        if connection._tail is self is connection._head and not (connection._waits or connection._holds):
            # The usual case: the only outstanding response goes straight to the socket.
            self._response = _NOTHING
            connection._head = connection._tail = None
            connection._due -= 1
            if response:
                connection._server.bytes_out += frame_size(response)
                connection._transport.send(response)
        else:
            self._response = response
            connection._reply_ready(self)

    def discard(self) -> None:
        """Leaves the request without a response; later responses are sent."""
        self.send(_NOTHING)


class ServerConnection(asyncio.BufferedProtocol):
    """A connection of `SocketServer`. `context` and `writable_topics` belong to the handler."""

    __slots__ = (
        "_active",
        "_due",
        "_frames",
        "_handler",
        "_head",
        "_holds",
        "_last_active",
        "_loop",
        "_made",
        "_pending_seen",
        "_queued_bytes",
        "_request_holds",
        "_server",
        "_tail",
        "_transport",
        "_waits",
        "authentication",
        "closed",
        "context",
        "listener_name",
        "peer",
        "principal",
        "security_protocol",
        "software",
        "writable_topics",
    )

    def __init__(
        self,
        server: ConnectionOwner,
        handler: FrameHandler,
        loop: asyncio.AbstractEventLoop,
        listener_name: str,
        peer: Address,
        now: float,
        security_protocol: str = "PLAINTEXT",
    ):
        self._server = server
        self._handler = handler
        self._loop = loop
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        """The protocol of the listener."""
        self.peer = peer
        self.principal = ANONYMOUS
        """Who the client is. Authentication sets it."""
        self.authentication: Any = None
        """Belongs to the handler: the state of SASL. None: the listener has no SASL."""
        self.context: Any = None
        self.writable_topics: Any = None
        self.software = _UNKNOWN_SOFTWARE
        """Name and version of the client's software (KIP-511)."""
        self.closed = False
        self._transport: ResponseTransport
        self._frames = FrameReader(server.memory)
        self._head: ResponseSlot | None = None
        """The head of a linked list: the oldest response that the transport does not have yet."""
        self._tail: ResponseSlot | None = None
        self._due = 0
        self._queued_bytes = 0
        self._waits = 0
        """The reasons to hold back ready responses, as bits."""
        self._holds = 0
        """The reasons to pause reading, as bits."""
        self._request_holds = 0
        self._active = True
        self._last_active = now
        self._pending_seen = 0
        self._made = False
        """True once the handler knows the connection: after the TLS handshake, if there is one."""

    def __str__(self) -> str:
        return f"{join_address(*self.peer)} on {self.listener_name}"

    # ---- for handlers

    @property
    def needs_sasl(self) -> bool:
        """True if clients of the listener authenticate with SASL."""
        return self.security_protocol.startswith("SASL_")

    def expect_response(self) -> ResponseSlot:
        """Reserves the place of the next response."""
        slot = ResponseSlot(self)
        if self._tail is None:
            self._head = slot
        else:
            self._tail._next = slot
        self._tail = slot
        self._due += 1
        if self._due > self._server.limits.max_in_flight:
            self._hold(_IN_FLIGHT)
        return slot

    @property
    def responses_due(self) -> int:
        """The number of responses that are not ready, or wait for an earlier response or for the peer to read."""
        return self._due

    def hold_requests(self, retained_bytes: int = 0) -> None:
        """Holds back further requests until `release_requests`. The handler retains so many bytes of the current one.

        The retained bytes count towards `Limits.queued_max_bytes`. Calls can be nested.
        """
        self._request_holds += 1
        self._hold(_REQUEST)
        self._server.memory.carried(retained_bytes)

    def release_requests(self, retained_bytes: int = 0) -> None:
        self._server.memory.carried(-retained_bytes)
        self._request_holds -= 1
        if not self._request_holds:
            self._unhold(_REQUEST)

    def retain(self, change: int) -> None:
        """Notes a change of the bytes that the handler retains of requests. They count as in `hold_requests`."""
        self._server.memory.carried(change)

    def limit_frames(self, max_bytes: int, limit: str) -> None:
        """Closes the connection at a larger frame, until `unlimit_frames`. `limit` is the name of the config."""
        self._frames.limit_frames(max_bytes, limit)

    def unlimit_frames(self) -> None:
        self._frames.unlimit_frames()

    def keep_frame(self, frame: memoryview) -> memoryview:
        """Returns the frame that is being handled, valid until `release_frame`. Holds requests until then."""
        self.hold_requests()
        return self._frames.keep(frame)

    def release_frame(self) -> None:
        self._frames.release_kept()
        self.release_requests()

    def close(self, reason: str) -> None:
        """Closes the connection and drops unsent responses."""
        if not self.closed:
            _logger.debug("Connection %s: closing: %s", self, reason)
            self._transport.abort()
            self._closed()

    def finish(self, reason: str) -> None:
        """Stops reading, and closes the connection once all outstanding responses are sent."""
        if not self.closed and not self._holds & _FINISHING:
            _logger.debug("Connection %s: closing after its outstanding responses: %s", self, reason)
            self._hold(_FINISHING)
            if self._head is None:
                self._transport.close()

    # ---- called by the transport

    def handshake_started(self, transport: ResponseTransport) -> None:
        """The connection does not exist for the handler until `connection_made`."""
        self._transport = transport

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._made = True
        try:
            self._handler.connection_made(self)
        except Exception:
            _logger.exception("Connection %s: refused because its setup failed", self)
            self.close("the handler failed")
        if not self.closed and not self._holds:
            transport.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._server.bytes_in += nbytes
        self._active = True
        frame = self._frames.updated(nbytes)
        if frame is None:
            self._dispatch()
            return
        self._server.frames_in += 1
        try:
            self._handler.frame_received(self, frame)
        except Exception:  # noqa: BLE001
            self._handler_failed()

    def eof_received(self) -> bool:
        """Lets a peer that has stopped sending receive the responses that are ready soon.

        Usually the peer has closed the connection and would not read later responses.
        """
        if self._frames.buffered_bytes:
            _logger.debug("Connection %s: closed by the peer within a frame", self)
        self.finish("the peer closed it")
        if self._head is not None:
            self._loop.call_later(LINGER_SECONDS, self._linger_is_over)
        return True

    def pause_writing(self) -> None:
        self._waits |= _BLOCKED
        self._check_queue()

    def resume_writing(self) -> None:
        self._waits &= ~_BLOCKED
        self._active = True
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._closed()
        self._server.connection_lost(self)
        if not self._made:
            return
        try:
            self._handler.connection_lost(self, error)
        except Exception:
            _logger.exception("Connection %s: cleaning up after its end failed", self)

    # ---- called by the server

    def hold_reading(self) -> None:
        self._hold(_SERVER)

    def resume_held_reading(self) -> None:
        self._unhold(_SERVER)

    @property
    def quiet(self) -> bool:
        """True if no response is outstanding or unsent."""
        return self._head is None and not self._waits

    @property
    def frames(self) -> FrameReader:
        return self._frames

    @property
    def waits_for_peer(self) -> bool:
        """True if nothing but the peer delays the next request."""
        return not self._holds

    @property
    def holds_memory_unread(self) -> bool:
        """True if a request holds a large buffer, and waits because the peer does not read earlier responses."""
        return self._holds == _SLOW_PEER and self._frames.holds_large_buffer

    def idle_seconds(self, now: float) -> float:
        """Returns how long the connection has been idle, measured between calls.

        Waiting for the server does not count as idle. Waiting for a peer that does not read counts.
        """
        pending = self._transport.pending_bytes
        if self._active or pending != self._pending_seen or self._waits_for_server:
            self._active = False
            self._pending_seen = pending
            self._last_active = now
        return now - self._last_active

    def last_active(self, now: float) -> float:
        """Returns when the connection was used last, as far as the server has looked."""
        return now if self._active or self._waits_for_server else self._last_active

    @property
    def _waits_for_server(self) -> bool:
        return bool(self._holds & _MEMORY) or (self._head is not None and self._head._response is None)

    def _linger_is_over(self) -> None:
        if self._waits_for_server:
            self.close("the peer closed it, and its responses are not ready")
        elif self._head is not None:
            # The responses are ready, and the peer is still reading.
            self._loop.call_later(LINGER_SECONDS, self._linger_is_over)

    # ---- frames

    def _dispatch(self) -> None:
        """Passes all complete frames to the handler and stores the rest."""
        frames = self._frames
        handler = self._handler
        server = self._server
        remaining_frames = server.limits.max_frames_per_turn
        turn_ends = self._loop.time() + _TURN_SECONDS
        try:
            while (frame := frames.next_frame()) is not None:
                server.frames_in += 1
                handler.frame_received(self, frame)
                if self._holds or self.closed:
                    break
                # The responses to further frames of the same read are sent together, after all are handled.
                self._waits |= _CORKED
                remaining_frames -= 1
                if not remaining_frames or self._loop.time() > turn_ends:
                    self._hold(_TURN)
                    self._loop.call_soon(self._unhold, _TURN)
                    break
            if not frames.settle():
                self._hold(_MEMORY)
                frames.wait_for_memory(self._memory_granted)
        except InvalidFrameError as error:
            server.invalid_frames += 1
            _logger.info("Connection %s: closed because of an invalid frame: %s", self, error)
            self.close("invalid frame")
        except Exception:  # noqa: BLE001
            self._handler_failed()
        if self._waits & _CORKED:
            self._waits &= ~_CORKED
            if self._head is not None and not self._waits:
                self._flush()

    def _memory_granted(self) -> None:
        self._unhold(_MEMORY)

    def _handler_failed(self) -> None:
        _logger.exception("Connection %s: closed because handling its request failed", self)
        self.close("the handler failed")

    def _hold(self, reason: int) -> None:
        if not self._holds:
            self._transport.pause_reading()
        self._holds |= reason

    def _unhold(self, reason: int) -> None:
        if self._holds & reason:
            self._holds &= ~reason
            if not self._holds:
                # Deferred, because a frame handler may be running.
                self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        if not self._holds and not self.closed:
            if self._frames.holds_buffer:
                self._dispatch()
            if not self._holds and not self.closed:
                self._transport.resume_reading()

    # ---- responses

    def _reply_ready(self, slot: ResponseSlot) -> None:
        if self.closed:
            return
        if self._head is slot and not self._waits:
            self._flush()
        elif slot._response:
            slot._size = frame_size(slot._response)
            self._queued_bytes += slot._size
            self._check_queue()

    def _flush(self) -> None:
        """Sends the responses that are next in order. Call it only if nothing holds them back."""
        transport = self._transport
        server = self._server
        slot = self._head
        while slot is not None and (response := slot._response) is not None:
            following = self._take(slot)
            if following is not None and following._response is not None:
                response = self._gather(response)
            if response:
                server.bytes_out += frame_size(response)
                transport.send(response)
                if self._waits:
                    break
            slot = self._head
        if self._holds:
            self._flushed()

    def _take(self, slot: ResponseSlot) -> ResponseSlot | None:
        """Removes the oldest response from the queue. Returns the next one."""
        self._due -= 1
        self._queued_bytes -= slot._size
        slot._response = _NOTHING
        self._head = following = slot._next
        if following is None:
            self._tail = None
        return following

    def _gather(self, first: Frame) -> list[Part]:
        """Joins several responses into one write."""
        parts: list[Part] = []
        response: Frame | None = first
        size = 0
        while response is not None:
            if not isinstance(response, IN_MEMORY):
                parts.extend(response)
            elif response:  # not discarded
                parts.append(response)
            size += frame_size(response)
            slot = self._head
            if slot is None or size > _JOIN_RESPONSES_BYTES or (response := slot._response) is None:
                break
            self._take(slot)
        return parts

    def _check_queue(self) -> None:
        if self._queued_bytes + self._transport.pending_bytes > self._server.limits.max_queued_bytes:
            self._hold(_SLOW_PEER)

    def _flushed(self) -> None:
        """Runs after responses were sent: resumes reading, or finishes closing or draining."""
        holds = self._holds
        limits = self._server.limits
        if holds & _IN_FLIGHT and self._due <= limits.max_in_flight // 2:
            self._unhold(_IN_FLIGHT)
        if holds & _SLOW_PEER and self._queued_bytes + self._transport.pending_bytes <= limits.max_queued_bytes // 2:
            self._unhold(_SLOW_PEER)
        if self._head is None:
            if holds & _FINISHING:
                self._transport.close()
            if holds & _SERVER and not self._waits:
                self._server.connection_quiet(self)

    def _closed(self) -> None:
        self.closed = True
        self._frames.close()
        self._head = self._tail = None
        self._due = self._queued_bytes = 0
