"""A minimal Kafka client: one blocking socket, one request at a time, or raw bytes."""

from __future__ import annotations

import itertools
import socket
import struct
from typing import Any, TypeVar

from headrace.protocol import Message, decode, encode_request
from headrace.protocol.apis import APIS, ApiKey

M = TypeVar("M", bound=Message)


class ConnectionEnded(Exception):
    """The broker closed the connection."""


class WireClient:
    def __init__(self, address: tuple[str, int], client_id: str | None = "wire", timeout: float = 20.0):
        self.sock = socket.create_connection(address, timeout=timeout)
        self.client_id = client_id
        self._ids = itertools.count(1)

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    def call(self, request: Message, version: int | None = None) -> Any:
        """Sends a request, by default in the newest version, and returns its response."""
        return self.receive(self.send(request, version))

    def send(self, request: Message, version: int | None = None) -> tuple[int, int, int]:
        """Sends a request and returns the arguments of `receive`."""
        api = APIS[ApiKey(type(request).__api_key__)]
        version = api.last_version if version is None else version
        correlation_id = next(self._ids)
        self.sock.sendall(encode_request(request, version, correlation_id, self.client_id))
        return api.key, version, correlation_id

    def receive(self, sent: tuple[int, int, int]) -> Any:
        key, version, correlation_id = sent
        api = APIS[ApiKey(key)]
        frame = self.receive_frame()
        (answered,) = struct.unpack_from(">i", frame)
        assert answered == correlation_id, f"the reply is of request {answered}, expected {correlation_id}"
        flexible_header = api.is_flexible(version) and api.name != "ApiVersions"
        return decode(api.response, version, frame, 5 if flexible_header else 4)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            data = self.sock.recv(min(size - len(parts), 1 << 20))
            if not data:
                raise ConnectionEnded(f"the connection ended after {len(parts)} of {size} bytes")
            parts += data
        return bytes(parts)
