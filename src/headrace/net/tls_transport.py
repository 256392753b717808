"""A TCP socket with TLS, for server and client: `PlainTransport` with a `TlsChannel` between socket and protocol.

    HANDSHAKE -- complete --> open: `on_open`, then the protocol's callbacks
        `------- failed ----> dropped: `on_failed` with the reason

- A server's handshakes run in threads, because each one costs about a millisecond of cryptography, and thousands of
  clients may connect at once. Between them the loop reads and sends.
- A peer gets `HANDSHAKE_SECONDS` and `HANDSHAKE_BYTES` for its handshake. Until it is complete, a connection holds
  nothing but OpenSSL's state.
- Records are read from the socket in chunks and decrypted into the protocol's buffer.
- A file slice is read and encrypted in chunks. If much remains when the socket is full, a sender thread continues.
  Meanwhile nothing is read from the connection, because only one thread may use the channel.
- Certificates that are reloaded apply to new connections.
"""

import asyncio
import errno
import os
import select
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import cast

from headrace.net.tls_channel import RECORD_BYTES, TlsChannel
from headrace.net.tls_errors import PLAINTEXT, TlsHandshakeError
from headrace.net.transport import (
    HAND_OVER_BYTES,
    IN_MEMORY,
    READS_PER_TURN,
    TURN_BYTES,
    FileSlice,
    Frame,
    PlainTransport,
    Senders,
    ShortSliceError,
    TransportUser,
    frame_size,
    join_next,
)

__all__ = ["HANDSHAKE_SECONDS", "TlsTransport"]

HANDSHAKE_SECONDS = 30.0
"""How long a peer has to complete its handshake."""
HANDSHAKE_BYTES = 256 * 1024
"""The most bytes of a handshake: OpenSSL accepts certificate chains of 100 KB."""
CHUNK_BYTES = 64 * 1024
"""The number of bytes that are read, or encrypted, at a time. OpenSSL keeps buffers of about this size."""
THREAD_BYTES = 16 * 1024 * 1024
"""The most bytes that a sender thread sends of one response, so that others get the thread."""
_STALLED_MS = 20
"""A peer that takes no bytes for this long goes back from a sender thread to the loop."""
_HANDSHAKE_READ_BYTES = 16 * 1024
_TLS_RECORD_TYPES = (0x14, 0x15, 0x16)


class TlsTransport(PlainTransport):
    """Owns the socket and the channel. `start` begins the handshake."""

    __slots__ = (
        "_cipher",
        "_delivers_rest",
        "_executor",
        "_handshake_bytes",
        "_in_handshake",
        "_listening",
        "_on_failed",
        "_on_open",
        "_timer",
        "channel",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        protocol: TransportUser,
        channel: TlsChannel,
        *,
        on_open: Callable[[], None],
        on_failed: Callable[[Exception | None], None],
        senders: Senders | None = None,
        executor: Executor | None = None,
        delivers_rest: bool = False,
    ):
        """`on_open`: called once the handshake is complete. `on_failed`: called in place of `connection_lost` if it
        fails, with None if this side has aborted it. `executor`: runs the handshake. `delivers_rest`: see
        `PlainClientTransport`."""
        super().__init__(loop, sock, protocol, senders)
        self.channel = channel
        self._on_open = on_open
        self._on_failed = on_failed
        self._executor = executor
        self._delivers_rest = delivers_rest
        self._in_handshake = True
        self._handshake_bytes = 0
        self._listening = False
        """True while the loop watches the socket for bytes."""
        self._cipher: memoryview = memoryview(b"")
        """Encrypted bytes that the socket has not taken."""
        self._timer: asyncio.TimerHandle | None = None

    # ---- handshake

    def start(self, timeout_seconds: float = HANDSHAKE_SECONDS) -> None:
        """Begins the handshake. A client sends the first bytes."""
        self._timer = self._loop.call_later(timeout_seconds, self._timed_out, timeout_seconds)
        self._continue_handshake(b"")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _timed_out(self, seconds: float) -> None:
        self._timer = None
        self._drop(TlsHandshakeError(f"the TLS handshake was not complete within {seconds:g} seconds"))

    def _handshake_ready(self) -> None:
        try:
            data = self._sock.recv(_HANDSHAKE_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._drop(error)
            return
        if not data:
            self._drop(TlsHandshakeError("the peer closed the connection during the TLS handshake", ended=True))
        elif not self._handshake_bytes and data[0] not in _TLS_RECORD_TYPES:
            self._drop(TlsHandshakeError(PLAINTEXT))
        else:
            self._handshake_bytes += len(data)
            if self._handshake_bytes > HANDSHAKE_BYTES:
                self._drop(TlsHandshakeError(f"the TLS handshake is larger than {HANDSHAKE_BYTES} bytes"))
            else:
                self._continue_handshake(data)

    def _continue_handshake(self, data: bytes) -> None:
        if self._executor is None or not data:
            try:
                complete = self.channel.handshake(data)
            except (ssl.SSLError, ssl.CertificateError) as error:
                self._handshake_failed(error)
            else:
                self._handshake_continued(complete)
            return
        self._unlisten()
        future = self._loop.run_in_executor(self._executor, self.channel.handshake, data)
        future.add_done_callback(self._thread_done)

    def _thread_done(self, future: "asyncio.Future[bool]") -> None:
        if self._fd < 0 or future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._handshake_continued(future.result())
        else:
            self._handshake_failed(cast(Exception, error))

    def _handshake_continued(self, complete: bool) -> None:
        if not self._send_output():
            return
        if not complete:
            self._listen()
            return
        self._in_handshake = False
        self._unlisten()
        self._stop_timer()
        self._on_open()

    def _handshake_failed(self, error: Exception) -> None:
        """Sends the alert, so that the peer learns the reason, and drops the connection."""
        with suppress(OSError):
            self._sock.send(self.channel.take_output())
        self._drop(error)

    # ---- reading

    def pause_reading(self) -> None:
        self._reading = False
        if not self._in_handshake:
            self._unlisten()

    def resume_reading(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            self._resume()

    def _resume(self) -> None:
        """Continues to read, if nothing speaks against it."""
        if not self._reading or self._in_handshake or self._with_sender:
            return
        self._listen()
        if self.channel.has_input or self.channel.ended:
            self._loop.call_soon(self._deliver)

    def _listen(self) -> None:
        if not self._listening and self._fd >= 0:
            self._listening = True
            ready = self._handshake_ready if self._in_handshake else self._read_ready
            try:
                self._loop.add_reader(self._fd, ready)
            except OSError as error:
                self._listening = False
                self._drop(error)

    def _unlisten(self) -> None:
        if self._listening:
            self._listening = False
            self._loop.remove_reader(self._fd)

    def wake_at(self, size: int) -> None:
        # A part of the last record may be buffered here, so the missing bytes may arrive in fewer bytes than that.
        super().wake_at(max(1, min(size - 2 * RECORD_BYTES, CHUNK_BYTES)))

    def _read_ready(self) -> None:
        for _ in range(READS_PER_TURN):
            try:
                data = self._sock.recv(CHUNK_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._drop(error)
                return
            if not data:
                self._ended()
                return
            self.channel.feed(data)
            self._deliver()
            if len(data) < CHUNK_BYTES or not self._listening:
                return

    def _deliver(self) -> None:
        """Decrypts the bytes that have arrived, and passes them to the protocol."""
        channel = self.channel
        try:
            while self._reading and not self._with_sender and channel.has_input and not channel.ended:
                buffer = self._protocol.get_buffer(-1)
                size = channel.decrypt(buffer)
                if size:
                    self._protocol.buffer_updated(size)
                if size < len(buffer):
                    break
        except ssl.SSLError as error:
            self._send_output()
            self._drop(error)
            return
        if self._fd < 0 or self._with_sender:
            return
        if channel.has_output and not self._writing:
            # Answers to the peer's TLS messages. A response that is being sent takes them along.
            if not self._send_output():
                return
            if self.pending_bytes:
                self._pending_after_send()
        if channel.ended and self._reading:
            self._ended()

    def _ended(self) -> None:
        self.pause_reading()
        if not self._protocol.eof_received():
            self.close()

    # ---- writing

    def send(self, frame: Frame) -> None:
        if self._closing:
            return
        if isinstance(frame, IN_MEMORY):
            self._parts = [frame]
        else:
            self._parts = [part for part in reversed(frame) if len(part)]
        self._sent = 0
        self.pending_bytes += frame_size(frame)
        if self._pump() and self.pending_bytes:
            self._pending_after_send()

    def _pending_after_send(self) -> None:
        if self._writing:
            self._protocol.pause_writing()
        else:
            super()._pending_after_send()

    def _pump(self) -> bool:
        turn = TURN_BYTES
        try:
            while self.pending_bytes and turn > 0:
                if not self._cipher:
                    self._encrypt_next()
                sent = self._sock.send(self._cipher)
                self._cipher = self._cipher[sent:]
                self.pending_bytes -= sent
                turn -= sent
        except (BlockingIOError, InterruptedError):
            pass
        except Exception as error:  # noqa: BLE001 - logged there
            self._sending_failed(error)
            return False
        return True

    def _encrypt_next(self) -> None:
        """Encrypts the next chunk of the parts. `pending_bytes` counts plaintext until it is encrypted."""
        parts, channel = self._parts, self.channel
        plain_bytes = 0
        while parts and plain_bytes < CHUNK_BYTES:
            part = parts[-1] if self._sent else join_next(parts)
            start = self._sent
            size = min(len(part) - start, CHUNK_BYTES - plain_bytes)
            if isinstance(part, IN_MEMORY):
                channel.encrypt(part if size == len(part) else memoryview(part)[start : start + size])
            else:
                channel.encrypt(_read_slice(part, start, size))
            plain_bytes += size
            if start + size == len(part):
                parts.pop()
                self._sent = 0
            else:
                self._sent = start + size
        self._cipher = memoryview(channel.take_output())
        self.pending_bytes += len(self._cipher) - plain_bytes

    def _send_output(self) -> bool:
        """Sends the output of the handshake, or of the session itself. Returns False if the connection failed."""
        if not self.channel.has_output:
            return True
        output = memoryview(self.channel.take_output())
        self.pending_bytes += len(output)
        self._cipher = memoryview(bytes(self._cipher) + output) if self._cipher else output
        try:
            sent = self._sock.send(self._cipher)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._write_failed(error)
            return False
        self._cipher = self._cipher[sent:]
        self.pending_bytes -= sent
        if self._cipher and self._in_handshake:
            self._await_writable()
        return True

    def _write_ready(self) -> None:
        if self._in_handshake:
            # Only output of the handshake, far less than a socket's buffer holds.
            if self._pump() and not self.pending_bytes:
                self._writing = False
                self._loop.remove_writer(self._fd)
            return
        super()._write_ready()

    def _hand_over(self) -> bool:
        senders = self._senders
        if senders is None or self.pending_bytes < HAND_OVER_BYTES or not senders.idle:
            return False
        self._with_sender = True
        self._unlisten()
        senders.submit_work(self._send_in_thread, self._sender_done)
        return True

    def _send_in_thread(self) -> tuple[int, int]:
        """Runs in a sender thread, which owns channel and parts meanwhile. Returns 0 and the error number, if any."""
        budget = THREAD_BYTES
        fd = self._sock.fileno()
        writable = select.poll()
        writable.register(fd, select.POLLOUT)
        while self.pending_bytes and budget > 0 and self._fd >= 0:
            try:
                if not self._cipher:
                    self._encrypt_next()
                sent = self._sock.send(self._cipher)
            except (BlockingIOError, InterruptedError):
                if not writable.poll(_STALLED_MS):
                    break
                continue
            except ShortSliceError:
                return 0, errno.ENODATA
            except ssl.SSLError:
                return 0, errno.EPROTO
            except OSError as error:
                return 0, error.errno or errno.EIO
            self._cipher = self._cipher[sent:]
            self.pending_bytes -= sent
            budget -= sent
        return 0, 0

    def _skip(self, sent: int) -> None:
        """Does nothing: `_pump` and the sender thread keep the count themselves."""

    def _sender_done(self, sent: int, error_number: int) -> None:
        super()._sender_done(sent, error_number)
        if self._fd >= 0:
            self._resume()

    def _write_failed(self, error: Exception) -> None:
        if not self._delivers_rest or not self._reading or self._in_handshake:
            self._drop(error)
            return
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        self._parts, self._cipher = [], memoryview(b"")
        self.pending_bytes = 0
        self._protocol.pause_writing()
        self._loop.call_soon(self._read_rest, error)

    def _read_rest(self, error: Exception) -> None:
        while self._fd >= 0:
            try:
                data = self._sock.recv(CHUNK_BYTES)
            except OSError:  # no more bytes have arrived, or the connection is reset
                break
            if not data:
                break
            self.channel.feed(data)
            self._deliver()
        self._drop(error)

    # ---- closing

    def _drop(self, error: Exception | None) -> None:
        if self._fd < 0:
            return
        self._unlisten()
        self._stop_timer()
        if self._in_handshake:
            on_failed = self._on_failed
            if self._writing:
                self._loop.remove_writer(self._fd)
            self._closing, self._reading = True, False
            self._fd = -1
            self._sock.close()
            self._loop.call_soon(on_failed, error)
            del self._protocol
        else:
            if error is None and not self.pending_bytes and not self._with_sender:
                self.channel.end()
                with suppress(OSError):
                    self._sock.send(self.channel.take_output())
            super()._drop(error)
        del self._on_open, self._on_failed  # they may refer back to this object


def _read_slice(part: FileSlice, start: int, size: int) -> bytes:
    data = os.pread(part.fileno(), size, part.position + start)
    if len(data) != size:
        raise ShortSliceError(f"a file has {start + len(data)} of {len(part)} bytes of a response")
    return data
