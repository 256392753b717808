"""A plain TCP socket on the loop. Drives an `asyncio.BufferedProtocol` as asyncio's transport does, and sends replies.

Why not asyncio's: its buffer cannot hold a stretch of a file, and it owns the socket's writability, so that `sendfile`
beside it has nothing to wait on but private parts. This one sends parts of both kinds from one place, and an idle
connection takes 1.2 KB instead of 2.0. What is not here (TLS) can still be asyncio's: the protocol sees no difference.

The owner of the protocol calls `send` only while nothing is pending: `pause_writing` says that something is,
`resume_writing` that it has left.
"""

import asyncio
import errno
import logging
import os
import re
import socket
import sys
from collections.abc import Sequence
from typing import Any, Protocol

_logger = logging.getLogger(__name__)

READS_PER_TURN = 2
"""Reads of one connection, if each fills its buffer, before others get their turn."""
TURN_BYTES = 2 * 1024 * 1024
"""Bytes that are sent to one connection before others get their turn."""
JOIN_BYTES = 64 * 1024
"""Small parts are joined up to this size: copying them costs less than another call of the system."""
SMALL_SLICE_BYTES = 32 * 1024
"""A slice up to this size is read and joined with its neighbours: `sendfile` costs more for each call, up to here."""


def _can_wait() -> bool:
    """Whether the system makes room for what is waited for. Linux does since 4.18; without, a connection could wait for
    more than its buffer holds."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release) if sys.platform == "linux" else None
    return found is not None and (int(found[1]), int(found[2])) >= (4, 18)


_CAN_WAIT = _can_wait()
_NETWORK_ERRORS = {
    errno.EPIPE,
    errno.ECONNRESET,
    errno.ECONNABORTED,
    errno.ESHUTDOWN,
    errno.ENOTCONN,
    errno.ETIMEDOUT,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ENETDOWN,
}
"""The peer or the way to it is gone: nobody's fault here."""


class FileSlice(Protocol):
    """A stretch of a file, as `headrace.storage.fetch_slice.FetchSlice` is."""

    def __len__(self) -> int: ...

    def read(self) -> bytes: ...

    def send_to(self, fd: int, sent: int = 0, /) -> int: ...


Part = bytes | bytearray | memoryview | FileSlice
Reply = bytes | bytearray | memoryview | Sequence[Part]

IN_MEMORY = (bytes, bytearray, memoryview)


class TransportUser(Protocol):
    """What the transport calls: an `asyncio.BufferedProtocol`."""

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def eof_received(self) -> bool | None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: Exception | None, /) -> None: ...


class ShortSliceError(Exception):
    """A file has fewer bytes than a reply has promised."""


class PlainTransport(asyncio.Transport):
    """Owns the socket. `connection_lost` is called once, in a turn of its own, after the socket is closed."""

    __slots__ = (
        "_closing",
        "_fd",
        "_loop",
        "_parts",
        "_protocol",
        "_reading",
        "_sent",
        "_sock",
        "_writing",
        "pending_bytes",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, protocol: TransportUser):
        # Without asyncio's dictionary of extra information: the protocol knows its addresses.
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._protocol = protocol
        self._reading = False
        self._writing = False
        self._closing = False
        self._parts: list[Part] = []
        """What is not sent yet, last part first."""
        self._sent = 0
        """Bytes of the last of `_parts` that are gone."""
        self.pending_bytes = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._sock if name == "socket" else default

    # Reading

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            try:
                self._loop.add_reader(self._fd, self._read_ready)
            except OSError as error:
                self._reading = False
                self._drop(error)

    def wake_at(self, size: int) -> None:
        """Reading goes on when so many bytes have come, or the connection ends; 1 for as soon as anything has."""
        if _CAN_WAIT and not self._closing:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def _read_ready(self) -> None:
        protocol = self._protocol
        for _ in range(READS_PER_TURN):
            buffer = protocol.get_buffer(-1)
            try:
                size = self._sock.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._drop(error)
                return
            if size == 0:
                self.pause_reading()
                if not protocol.eof_received():
                    self.close()
                return
            protocol.buffer_updated(size)
            if size < len(buffer) or not self._reading:
                return

    # Writing

    def send(self, reply: Reply) -> None:
        """Sends what the socket takes; the rest follows by itself. Only while nothing is pending."""
        if self._closing:
            return
        if isinstance(reply, bytes):
            try:
                sent = self._sock.send(reply)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._drop(error)
                return
            if sent == len(reply):
                return
            self._parts.append(reply)
            self._sent = sent
            self.pending_bytes = len(reply) - sent
        else:
            self._parts = [reply] if isinstance(reply, IN_MEMORY) else [part for part in reversed(reply) if len(part)]
            self._sent = 0
            self.pending_bytes = reply_size(reply)
            if not self._pump():
                return
        if self._parts:
            self._writing = True
            self._loop.add_writer(self._fd, self._write_ready)
            self._protocol.pause_writing()

    def _write_ready(self) -> None:
        if self._pump() and not self._parts:
            self._writing = False
            self._loop.remove_writer(self._fd)
            if self._closing:
                self._drop(None)
            else:
                self._protocol.resume_writing()

    def _pump(self) -> bool:
        """Sends until the socket is full, nothing is left, or the turn is over. False: the connection is gone."""
        parts = self._parts
        turn = TURN_BYTES
        try:
            while parts and turn > 0:
                part = parts[-1] if self._sent else _join_next(parts)
                if isinstance(part, IN_MEMORY):
                    # MSG_MORE: do not put the head of a reply on the wire before the records that follow.
                    data = memoryview(part)[self._sent :] if self._sent else part
                    sent = self._sock.send(data, socket.MSG_MORE if len(parts) > 1 else 0)
                else:
                    sent = part.send_to(self._fd, self._sent)
                    if sent == 0:
                        raise ShortSliceError(f"a file ended after {self._sent} of {len(part)} bytes of a reply")
                turn -= sent
                self.pending_bytes -= sent
                self._sent += sent
                if self._sent == len(part):
                    parts.pop()
                    self._sent = 0
        except (BlockingIOError, InterruptedError):
            pass
        except Exception as error:
            # Whatever it is, half a reply is out, and nothing may follow it.
            if not (isinstance(error, OSError) and error.errno in _NETWORK_ERRORS):
                expected = isinstance(error, OSError | ShortSliceError)
                _logger.error("a reply broke off, so its connection is closed: %s", error, exc_info=not expected)
            self._drop(error)
            return False
        return True

    # The end

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Reads no more, sends what is pending, and is gone then."""
        if self._closing:
            return
        self.pause_reading()
        self._closing = True
        if not self._parts:
            self._drop(None)

    def abort(self) -> None:
        self._drop(None)

    def _drop(self, error: Exception | None) -> None:
        if self._fd < 0:
            return
        self.pause_reading()
        self._closing = True
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        self._parts = []
        self.pending_bytes = 0
        self._fd = -1
        self._sock.close()
        self._loop.call_soon(self._protocol.connection_lost, error)
        # It has this transport too: without the cycle both go when they are done with, not when garbage is collected.
        del self._protocol


def reply_size(reply: Reply) -> int:
    return len(reply) if isinstance(reply, IN_MEMORY) else sum(map(len, reply))


def _join_next(parts: list[Part]) -> Part:
    """Makes the small ones among the next parts one part; returns what is next then."""
    run: list[bytes | bytearray | memoryview] = []
    size = 0
    while parts:
        part = parts[-1]
        size += len(part)
        if isinstance(part, IN_MEMORY):
            if size > JOIN_BYTES:
                break
            run.append(part)
        elif len(part) <= SMALL_SLICE_BYTES and size <= JOIN_BYTES:
            data = part.read()
            if len(data) != len(part):
                raise ShortSliceError(f"a file has {len(data)} of {len(part)} bytes of a reply")
            run.append(data)
        else:
            break
        parts.pop()
    if run:
        parts.append(run[0] if len(run) == 1 else b"".join(run))
    return parts[-1]
