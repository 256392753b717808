"""One connection of a server: frames go to the handler as they come, replies leave in the order of the requests.

Everything happens on the loop. A frame is handled within the read that completed it. A reply that is ready, and whose
predecessors have left, goes to the socket within the call that made it ready.

Reading stops, for as long as one of these holds, and goes on with what was already received before it reads more:

- more requests wait for their replies than `Limits.max_in_flight` (until half of them are answered);
- the peer leaves more than `Limits.max_queued_bytes` of replies unread (until half of them are gone);
- the connection had its share of this turn of the loop (until the next);
- the server is paused or draining.
"""

import asyncio
import logging
from typing import Any, Protocol

from headrace.common.errors import HeadraceError
from headrace.net.framing import FrameReader, InvalidFrameError, ReceiveMemory
from headrace.net.limits import Limits
from headrace.net.listeners import join_address
from headrace.net.transport import IN_MEMORY, Part, Reply, reply_size

_logger = logging.getLogger(__name__)

Address = tuple[str, int]

_BLOCKED = 1
"""The socket takes no more."""
_CORKED = 2
"""More frames of the same bytes are being handled."""

_IN_FLIGHT = 1
_SLOW_PEER = 2
_TURN = 4
_SERVER = 8
_FINISHING = 16

LINGER_SECONDS = 1.0
"""For so long requests of a peer that has closed its direction may wait for their replies."""

_NOTHING = b""
_JOIN_REPLIES_BYTES = 64 * 1024
_TURN_SECONDS = 0.02
"""After so long with one connection's frames the others get their turn: some requests are dear."""


class ReplyError(HeadraceError):
    """A reply that was answered before: a bug of the caller."""


class FrameHandler(Protocol):
    """Who understands the frames. What it raises costs the connection, and nothing else."""

    def connection_made(self, connection: "ServerConnection") -> None: ...

    def frame_received(self, connection: "ServerConnection", frame: memoryview) -> None:
        """`frame` has no size field, may be written to, and is valid during the call only."""

    def connection_lost(self, connection: "ServerConnection", error: Exception | None) -> None:
        """Called once for each `connection_made`. Replies that are still due may be sent; they go nowhere."""


class ReplyTransport(Protocol):
    """What a connection asks of its transport. See `headrace.net.transport`."""

    pending_bytes: int

    def send(self, reply: Reply) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class ConnectionOwner(Protocol):
    """What a connection asks of its server: memory, limits, and somebody to count."""

    memory: ReceiveMemory
    limits: Limits
    bytes_in: int
    bytes_out: int
    frames_in: int
    invalid_frames: int

    def connection_quiet(self, connection: "ServerConnection") -> None: ...

    def connection_lost(self, connection: "ServerConnection") -> None: ...


class ReplySlot:
    """The place of one reply in its connection's order. Answered exactly once, by `send` or by `discard`."""

    __slots__ = ("_next", "_reply", "_size", "connection")

    def __init__(self, connection: "ServerConnection"):
        self.connection = connection
        self._next: ReplySlot | None = None
        self._reply: Reply | None = None
        self._size = 0

    @property
    def answered(self) -> bool:
        return self._reply is not None

    def send(self, reply: Reply) -> None:
        """A whole frame with its size field: bytes, or a list of bytes and slices of files."""
        if self._reply is not None:
            raise ReplyError(f"a request of {self.connection} was answered twice")
        connection = self.connection
        if connection._tail is self is connection._head and not (connection._waits or connection._holds):
            # The one reply that is due, as it mostly is: straight to the socket.
            self._reply = _NOTHING
            connection._head = connection._tail = None
            connection._due -= 1
            if reply:
                connection._server.bytes_out += reply_size(reply)
                connection._transport.send(reply)
        else:
            self._reply = reply
            connection._reply_ready(self)

    def discard(self) -> None:
        """Leaves the request unanswered; the replies behind it go on."""
        self.send(_NOTHING)


class ServerConnection(asyncio.BufferedProtocol):
    """Created by `SocketServer`. `context` is the handler's, for what it keeps about the connection."""

    __slots__ = (
        "_active",
        "_due",
        "_frames",
        "_handler",
        "_head",
        "_holds",
        "_last_active",
        "_loop",
        "_pending_seen",
        "_queued_bytes",
        "_server",
        "_tail",
        "_transport",
        "_waits",
        "closed",
        "context",
        "listener_name",
        "local",
        "peer",
    )

    def __init__(
        self,
        server: ConnectionOwner,
        handler: FrameHandler,
        loop: asyncio.AbstractEventLoop,
        listener_name: str,
        peer: Address,
        local: Address,
        now: float,
    ):
        self._server = server
        self._handler = handler
        self._loop = loop
        self.listener_name = listener_name
        self.peer = peer
        self.local = local
        self.context: Any = None
        self.closed = False
        self._transport: ReplyTransport
        self._frames = FrameReader(server.memory)
        self._head: ReplySlot | None = None
        """The oldest reply that has not been handed to the transport; they are a linked list."""
        self._tail: ReplySlot | None = None
        self._due = 0
        self._queued_bytes = 0
        self._waits = 0
        """Why replies that are ready stay here, as bits."""
        self._holds = 0
        """Why nothing is read, as bits."""
        self._active = True
        self._last_active = now
        self._pending_seen = 0

    def __str__(self) -> str:
        return f"{join_address(*self.peer)} on {self.listener_name}"

    # What a handler uses

    def expect_reply(self) -> ReplySlot:
        """The place of the next reply."""
        slot = ReplySlot(self)
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
    def replies_due(self) -> int:
        """How many requests wait for an answer, or have one that waits for an earlier one or for the peer to read."""
        return self._due

    def close(self, reason: str) -> None:
        """Drops the connection and every reply that has not left."""
        if not self.closed:
            _logger.debug("closing the connection of %s: %s", self, reason)
            self._transport.abort()
            self._closed()

    def finish(self, reason: str) -> None:
        """Reads no more, and closes when the replies that are due have left."""
        if not self.closed and not self._holds & _FINISHING:
            _logger.debug("closing the connection of %s when its replies have left: %s", self, reason)
            self._hold(_FINISHING)
            if self._head is None:
                self._transport.close()

    # What the transport calls

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        try:
            self._handler.connection_made(self)
        except Exception:
            _logger.exception("refusing the connection of %s", self)
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
        """A peer that has finished sending still gets the replies that are due, if they are ready soon.

        Mostly it is gone, and nobody would read what its requests wait for.
        """
        if self._frames.buffered_bytes:
            _logger.debug("%s closed within a frame", self)
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
        try:
            self._handler.connection_lost(self, error)
        except Exception:
            _logger.exception("after the connection of %s was lost", self)

    # What the server calls

    def hold_reading(self) -> None:
        self._hold(_SERVER)

    def resume_held_reading(self) -> None:
        self._unhold(_SERVER)

    @property
    def quiet(self) -> bool:
        """No reply is due, and none is on its way to the socket."""
        return self._head is None and not self._waits

    def idle_seconds(self, now: float) -> float:
        """How long nothing has happened. Asked now and then, and sees only whether something did in between.

        Waiting for the server is no idleness; waiting for a peer that does not read is.
        """
        pending = self._transport.pending_bytes
        if self._active or pending != self._pending_seen or self._waits_for_server:
            self._active = False
            self._pending_seen = pending
            self._last_active = now
        return now - self._last_active

    @property
    def _waits_for_server(self) -> bool:
        return self._head is not None and self._head._reply is None

    def _linger_is_over(self) -> None:
        if self._waits_for_server:
            self.close("the peer closed it, and its replies are not ready")
        elif self._head is not None:
            # The peer reads: replies that are ready wait for it.
            self._loop.call_later(LINGER_SECONDS, self._linger_is_over)

    # Frames

    def _dispatch(self) -> None:
        """Hands out the whole frames that are there, and puts the rest away."""
        frames = self._frames
        handler = self._handler
        server = self._server
        left = server.limits.max_frames_per_turn
        turn_ends = self._loop.time() + _TURN_SECONDS
        try:
            while (frame := frames.next_frame()) is not None:
                server.frames_in += 1
                handler.frame_received(self, frame)
                if self._holds or self.closed:
                    break
                # Replies to the frames that follow in the same bytes leave together, when all are handled.
                self._waits |= _CORKED
                left -= 1
                if not left or self._loop.time() > turn_ends:
                    self._hold(_TURN)
                    self._loop.call_soon(self._unhold, _TURN)
                    break
            frames.settle()
        except InvalidFrameError as error:
            server.invalid_frames += 1
            _logger.info("closing the connection of %s: %s", self, error)
            self.close("invalid frame")
        except Exception:  # noqa: BLE001
            self._handler_failed()
        if self._waits & _CORKED:
            self._waits &= ~_CORKED
            if self._head is not None and not self._waits:
                self._flush()

    def _handler_failed(self) -> None:
        _logger.exception("closing the connection of %s: its request failed", self)
        self.close("the handler failed")

    def _hold(self, reason: int) -> None:
        if not self._holds:
            self._transport.pause_reading()
        self._holds |= reason

    def _unhold(self, reason: int) -> None:
        if self._holds & reason:
            self._holds &= ~reason
            if not self._holds:
                # Not from here: this may be within a frame's handler.
                self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        if not self._holds and not self.closed:
            if self._frames.holds_buffer:
                self._dispatch()
            if not self._holds and not self.closed:
                self._transport.resume_reading()

    # Replies

    def _reply_ready(self, slot: ReplySlot) -> None:
        if self.closed:
            return
        if self._head is slot and not self._waits:
            self._flush()
        elif slot._reply:
            slot._size = reply_size(slot._reply)
            self._queued_bytes += slot._size
            self._check_queue()

    def _flush(self) -> None:
        """Sends the replies whose turn has come. Only if nothing keeps them."""
        transport = self._transport
        server = self._server
        slot = self._head
        while slot is not None and (reply := slot._reply) is not None:
            following = self._take(slot)
            if following is not None and following._reply is not None:
                reply = self._gather(reply)
            if reply:
                server.bytes_out += reply_size(reply)
                transport.send(reply)
                if self._waits:
                    break
            slot = self._head
        if self._holds:
            self._flushed()

    def _take(self, slot: ReplySlot) -> ReplySlot | None:
        """Removes the oldest reply; returns the next."""
        self._due -= 1
        self._queued_bytes -= slot._size
        slot._reply = _NOTHING
        self._head = following = slot._next
        if following is None:
            self._tail = None
        return following

    def _gather(self, first: Reply) -> list[Part]:
        """A few replies as one."""
        parts: list[Part] = []
        reply: Reply | None = first
        size = 0
        while reply is not None:
            if isinstance(reply, IN_MEMORY):
                parts.append(reply)
            else:
                parts.extend(reply)
            size += reply_size(reply)
            slot = self._head
            if slot is None or size > _JOIN_REPLIES_BYTES or (reply := slot._reply) is None:
                break
            self._take(slot)
        return parts

    def _check_queue(self) -> None:
        if self._queued_bytes + self._transport.pending_bytes > self._server.limits.max_queued_bytes:
            self._hold(_SLOW_PEER)

    def _flushed(self) -> None:
        """Some replies have left: looks whether reading may go on, or what waits for all of them may be done."""
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
