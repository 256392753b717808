"""A plain TCP socket on the loop. Drives an `asyncio.BufferedProtocol` like asyncio's transport, and sends frames.

Reasons not to use asyncio's transport:

- Its buffer cannot hold file slices. It owns the socket's write events, so `sendfile` would need private attributes.
- An idle connection takes 2.0 KB with it, and 1.2 KB with this one.

`tls_transport` has the transport for TLS.

The protocol calls `send` only while nothing is pending. The transport calls `pause_writing` when bytes are pending, and
`resume_writing` when they are sent.
"""

import asyncio
import errno
import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

_logger = logging.getLogger(__name__)

READS_PER_TURN = 2
"""The number of reads of one connection, if each fills its buffer, before others get their turn."""
TURN_BYTES = 2 * 1024 * 1024
"""The number of bytes sent to one connection before others get their turn."""
JOIN_BYTES = 64 * 1024
"""Small parts are joined up to this size: copying them is cheaper than another system call."""
SMALL_SLICE_BYTES = 32 * 1024
"""A file slice up to this size is read and joined with its neighbours: a `sendfile` call would cost more."""
HAND_OVER_BYTES = 256 * 1024
"""If more than this remains when the socket is full, a sender thread sends it."""


def _can_wait() -> bool:
    """Returns True if the kernel enlarges the receive buffer for SO_RCVLOWAT, as Linux does since 4.18.

    Otherwise a connection could wait for more bytes than its buffer holds.
    """
    release = re.match(r"(\d+)\.(\d+)", os.uname().release) if sys.platform == "linux" else None
    return release is not None and (int(release[1]), int(release[2])) >= (4, 18)


_CAN_WAIT = _can_wait()
NETWORK_ERRORS = {
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
"""Errors of the network or the peer, which are not logged."""


class FileSlice(Protocol):
    """A part of a file, such as `headrace.storage.fetch_slice.FetchSlice`."""

    position: int

    def __len__(self) -> int: ...

    def fileno(self) -> int: ...

    def read(self) -> bytes: ...

    def send_to(self, fd: int, sent: int = 0, /) -> int: ...


Part = bytes | bytearray | memoryview | FileSlice
Frame = bytes | bytearray | memoryview | Sequence[Part]

IN_MEMORY = (bytes, bytearray, memoryview)


class TransportUser(Protocol):
    """The interface of the transport's protocol: an `asyncio.BufferedProtocol`."""

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def eof_received(self) -> bool | None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: Exception | None, /) -> None: ...


class Senders(Protocol):
    """The interface of `headrace.net.senders.SenderThreads`."""

    idle: int

    def submit(self, fd: int, parts: list[Part], sent_of_first: int, on_done: Callable[[int, int], None]) -> None: ...

    def submit_work(self, work: Callable[[], tuple[int, int]], on_done: Callable[[int, int], None]) -> None: ...


class ShortSliceError(Exception):
    """A file has fewer bytes than the frame's size says."""


class PlainTransport(asyncio.Transport):
    """Owns the socket. Calls `connection_lost` once, in a separate iteration of the loop, after closing the socket."""

    __slots__ = (
        "_closing",
        "_fd",
        "_loop",
        "_parts",
        "_protocol",
        "_reading",
        "_senders",
        "_sent",
        "_sock",
        "_with_sender",
        "_writing",
        "pending_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        protocol: TransportUser,
        senders: Senders | None = None,
    ):
        # Without asyncio's dictionary of extra information; the protocol knows its addresses.
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._protocol = protocol
        self._reading = False
        self._senders = senders
        self._writing = False
        self._with_sender = False
        """True while a sender thread uses the socket and `_parts`."""
        self._closing = False
        self._parts: list[Part] = []
        """The unsent parts, last part first."""
        self._sent = 0
        """The number of bytes sent of the last of `_parts`."""
        self.pending_bytes = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._sock if name == "socket" else default

    # ---- reading

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
        """Delivers bytes once this many have arrived, or the connection ends; 1: as soon as any byte arrives."""
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

    # ---- writing

    def send(self, frame: Frame) -> None:
        """Sends a frame. Bytes that the socket does not take are sent later. Call it only while nothing is pending."""
        if self._closing:
            return
        if isinstance(frame, bytes):
            try:
                sent = self._sock.send(frame)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._write_failed(error)
                return
            if sent == len(frame):
                return
            self._parts.append(frame)
            self._sent = sent
            self.pending_bytes = len(frame) - sent
        else:
            self._parts = [frame] if isinstance(frame, IN_MEMORY) else [part for part in reversed(frame) if len(part)]
            self._sent = 0
            self.pending_bytes = frame_size(frame)
            if not self._pump():
                return
        if self.pending_bytes:
            self._pending_after_send()

    def _pending_after_send(self) -> None:
        self._protocol.pause_writing()
        if not self._hand_over():
            self._await_writable()

    def _await_writable(self) -> None:
        self._writing = True
        self._loop.add_writer(self._fd, self._write_ready)

    def _write_ready(self) -> None:
        if self._pump() and (not self.pending_bytes or self._hand_over()):
            self._writing = False
            self._loop.remove_writer(self._fd)
            if not self.pending_bytes:
                self._all_sent()

    def _all_sent(self) -> None:
        if self._closing:
            self._drop(None)
        else:
            self._protocol.resume_writing()

    def _hand_over(self) -> bool:
        """Lets a sender thread send the rest, if it is large and a thread is idle."""
        senders = self._senders
        if senders is None or self.pending_bytes < HAND_OVER_BYTES or not senders.idle:
            return False
        senders.submit(self._fd, self._parts[::-1], self._sent, self._sender_done)
        self._with_sender = True
        return True

    def _sender_done(self, sent: int, error_number: int) -> None:
        self._with_sender = False
        if self._fd < 0:
            self._sock.close()  # the connection was dropped meanwhile
            return
        self._skip(sent)
        if error_number == errno.ENODATA:
            self._sending_failed(ShortSliceError(f"a file ended, {self.pending_bytes} bytes of a response are missing"))
        elif error_number:
            self._sending_failed(OSError(error_number, os.strerror(error_number)))
        elif self.pending_bytes:
            self._await_writable()
        else:
            self._all_sent()

    def _skip(self, sent: int) -> None:
        """Removes sent bytes from the parts."""
        self.pending_bytes -= sent
        self._sent += sent
        parts = self._parts
        while parts and self._sent >= len(parts[-1]):
            self._sent -= len(parts.pop())

    def _pump(self) -> bool:
        """Sends until the socket is full, all parts are sent, or the turn is over.

        Returns False if the connection failed.
        """
        parts = self._parts
        turn = TURN_BYTES
        try:
            while parts and turn > 0:
                part = parts[-1] if self._sent else join_next(parts)
                if isinstance(part, IN_MEMORY):
                    # MSG_MORE: keep the start of a frame until the records that follow.
                    data = memoryview(part)[self._sent :] if self._sent else part
                    sent = self._sock.send(data, socket.MSG_MORE if len(parts) > 1 else 0)
                else:
                    sent = part.send_to(self._fd, self._sent)
                    if sent == 0:
                        raise ShortSliceError(f"a file ended after {self._sent} of {len(part)} bytes of a response")
                turn -= sent
                self._skip(sent)
        except (BlockingIOError, InterruptedError):
            pass
        except Exception as error:  # noqa: BLE001 - logged there
            self._sending_failed(error)
            return False
        return True

    def _sending_failed(self, error: Exception) -> None:
        """Closes the connection: a part of the frame is sent, so nothing may follow it."""
        if not (isinstance(error, OSError) and error.errno in NETWORK_ERRORS):
            expected = isinstance(error, OSError | ShortSliceError)
            _logger.error(
                "Closing a connection: sending a response failed midway: %s",
                error,
                exc_info=None if expected else error,
            )
        self._write_failed(error)

    def _write_failed(self, error: Exception) -> None:
        self._drop(error)

    # ---- closing

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Stops reading, and closes the socket once all pending bytes are sent."""
        if self._closing:
            return
        self.pause_reading()
        self._closing = True
        if not self.pending_bytes:
            self._drop(None)

    def abort(self) -> None:
        """Closes the socket at once."""
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
        if self._with_sender:
            # Another connection must not get the descriptor while the thread uses it.
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        else:
            self._sock.close()
        self._loop.call_soon(self._protocol.connection_lost, error)
        # Breaks the reference cycle, so that both objects are freed without the garbage collector.
        del self._protocol


class PlainClientTransport(PlainTransport):
    """A client's transport. After a failed write it delivers the bytes that have arrived, then drops the connection.

    A broker that stops sends its last responses and closes the connection. A request that is sent too late fails, but
    these responses are valid. Without them an idempotent producer retries batches that are in the log, and the broker
    writes them again: after a clean restart it knows only the last batch of each producer.
    """

    __slots__ = ()

    def _write_failed(self, error: Exception) -> None:
        if not self._reading:
            self._drop(error)
            return
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        self._parts = []
        self.pending_bytes = 0
        self._protocol.pause_writing()
        # Not from within the write: the caller may be handling received bytes.
        self._loop.call_soon(self._read_rest, error)

    def _read_rest(self, error: Exception) -> None:
        while self._fd >= 0:
            try:
                size = self._sock.recv_into(self._protocol.get_buffer(-1))
            except OSError:  # no more bytes have arrived, or the connection is reset
                break
            if size == 0:
                break
            self._protocol.buffer_updated(size)
        self._drop(error)


def frame_size(frame: Frame) -> int:
    return len(frame) if isinstance(frame, IN_MEMORY) else sum(map(len, frame))


def join_next(parts: list[Part]) -> Part:
    """Joins the next small parts into one; returns the next part."""
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
                raise ShortSliceError(f"a file has {len(data)} of {len(part)} bytes of a response")
            run.append(data)
        else:
            break
        parts.pop()
    if run:
        parts.append(run[0] if len(run) == 1 else b"".join(run))
    return parts[-1]
