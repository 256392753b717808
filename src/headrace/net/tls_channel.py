"""One TLS session between bytes in memory: the handshake, decryption and encryption. Does no I/O.

    socket -> feed -> decrypt -> protocol
    protocol -> encrypt -> take_output -> socket

Only one thread at a time may use a channel: OpenSSL keeps one state for both directions.
"""

import ssl
from contextlib import suppress

from headrace.common.types import Buffer

__all__ = ["RECORD_BYTES", "TlsChannel"]

RECORD_BYTES = 16 * 1024
"""The most plaintext in one TLS record."""


class TlsChannel:
    """The state of one session. Errors are those of OpenSSL, as `ssl.SSLError`."""

    __slots__ = ("_incoming", "_outgoing", "_tls", "ended")

    def __init__(self, context: ssl.SSLContext, *, server_side: bool, server_hostname: str | None = None):
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self.ended = False
        """True after the peer has ended the session (close_notify)."""

    # ---- handshake

    def handshake(self, data: Buffer = b"") -> bool:
        """Continues with bytes from the peer. Returns True once the handshake is complete. Send the output each time,
        also after an error: it tells the peer the reason."""
        if data:
            self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate as DER; None if it has sent none."""
        return self._tls.getpeercert(True)

    @property
    def cipher(self) -> tuple[str, str, int] | None:
        """The cipher suite, the protocol version, and the number of secret bits."""
        return self._tls.cipher()

    # ---- reading

    def feed(self, data: Buffer) -> None:
        """Takes bytes from the socket."""
        self._incoming.write(data)

    @property
    def has_input(self) -> bool:
        """True if `decrypt` may return bytes."""
        return bool(self._incoming.pending or self._tls.pending())

    def decrypt(self, buffer: memoryview) -> int:
        """Fills the buffer with plaintext. Returns its size, which is less than the buffer's if there is no more."""
        filled, size = 0, len(buffer)
        tls, incoming = self._tls, self._incoming
        try:
            while filled < size and (incoming.pending or tls.pending()):
                # With a buffer, `read` returns the number of bytes; 0 after a close_notify.
                count: int = tls.read(size - filled, buffer[filled:] if filled else buffer)  # type: ignore[assignment]
                if not count:
                    self.ended = True
                    break
                filled += count
        except ssl.SSLWantReadError:
            pass  # the rest of a record has not arrived
        except ssl.SSLZeroReturnError:  # a close_notify after this side has sent its own
            self.ended = True
        return filled

    # ---- writing

    def encrypt(self, data: Buffer) -> None:
        """Adds the records of plaintext to the output."""
        write = self._tls.write
        size = len(data)
        done = write(data)
        if done < size:
            view = memoryview(data)
            while done < size:
                done += write(view[done:])

    @property
    def has_output(self) -> bool:
        return bool(self._outgoing.pending)

    def take_output(self) -> bytes:
        """Returns the bytes to send."""
        return self._outgoing.read()

    def end(self) -> None:
        """Adds a close_notify to the output, so that the peer can tell the end from a cut connection."""
        # The peer may not have ended its direction, or the session has failed.
        with suppress(ssl.SSLError):
            self._tls.unwrap()
