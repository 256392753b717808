"""Messages between a `StoreServer` and its clients, over a Unix domain socket.

Frame: | length (4 bytes, big-endian) | JSON array in UTF-8 |. Node data is a string with one character per byte.

    client to server                                     server to client
    ["connect", name, session, timeout_ms, received]     ["connected", session, received]
    ["request", received, id, call, arguments, watch]    ["expired"]
    ["ping", received]                                   ["response", number, id, error, result]
    ["close"]                                            ["event", number, watch, kind, path]
                                                         ["pong"]
                                                         ["closed"]

Requests have increasing ids; responses and events have increasing numbers. Both sides keep what the other has not
received: `received` is the highest id or number that a side has. After a lost connection both send the rest again, so
each request is executed once and each response and event arrives once, in order. No write is ambiguous while the
session lives.

`session` is 0 in a `connect` for a new session. `watch` is 0 or the number of the client's watch.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from headrace.cluster import store as errors
from headrace.cluster.store import Check, Create, Delete, Operation, OperationResult, Set, Stat, StoreError

Message: TypeAlias = list[Any]

_LENGTH = struct.Struct(">I")
_MAX_FRAME = 1 << 28
_OPERATIONS: dict[str, type[Operation]] = {"create": Create, "set": Set, "delete": Delete, "check": Check}
_NAMES = {kind: name for name, kind in _OPERATIONS.items()}
_ERRORS: dict[str, type[StoreError]] = {
    kind.__name__: kind
    for kind in (
        StoreError,
        errors.NoNode,
        errors.NodeExists,
        errors.BadVersion,
        errors.NotEmpty,
        errors.NoChildrenForEphemerals,
        errors.SessionExpired,
        errors.ConnectionLoss,
    )
}


class InvalidFrame(StoreError):
    """The other side sent something that is no message. The connection cannot be used any more."""


def encode(message: Message) -> bytes:
    """Returns a frame."""
    body = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts messages out of a byte stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yields the messages that are complete. Raises InvalidFrame."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > _MAX_FRAME:
                raise InvalidFrame(f"A frame of {length} bytes is too long")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            try:
                message = json.loads(body.decode("utf-8", "surrogatepass"))
            except ValueError as error:
                raise InvalidFrame(f"A frame is not JSON: {error}") from None
            if not isinstance(message, list) or not message:
                raise InvalidFrame("A frame is not a JSON array")
            yield message


def encode_data(data: bytes) -> str:
    return data.decode("latin-1")


def decode_data(text: str) -> bytes:
    return text.encode("latin-1")


def encode_operations(operations: Sequence[Operation]) -> list[Message]:
    encoded: list[Message] = []
    for operation in operations:
        name = _NAMES[type(operation)]
        match operation:
            case Create(path, data, ephemeral, sequential):
                encoded.append([name, path, encode_data(data), ephemeral, sequential])
            case Set(path, data, version):
                encoded.append([name, path, encode_data(data), version])
            case Delete(path, version) | Check(path, version):
                encoded.append([name, path, version])
    return encoded


def decode_operations(encoded: Sequence[Message]) -> list[Operation]:
    operations: list[Operation] = []
    for name, path, *fields in encoded:
        kind = _OPERATIONS[name]
        if kind in (Create, Set):
            fields[0] = decode_data(fields[0])
        operations.append(kind(path, *fields))
    return operations


def encode_stat(stat: Stat | None) -> list[int] | None:
    if stat is None:
        return None
    return [
        stat.czxid,
        stat.mzxid,
        stat.version,
        stat.ctime_ms,
        stat.mtime_ms,
        stat.ephemeral_owner,
        stat.num_children,
    ]


def decode_stat(fields: Sequence[int] | None) -> Stat | None:
    return None if fields is None else Stat(*fields)


def encode_result(result: OperationResult) -> str | list[int] | None:
    return result if isinstance(result, str) else encode_stat(result)


def decode_result(encoded: str | list[int] | None) -> OperationResult:
    return encoded if isinstance(encoded, str) else decode_stat(encoded)


def encode_error(error: StoreError) -> Message:
    name = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS)
    return [name, str(error), error.path, error.index]


def decode_error(encoded: Message) -> StoreError:
    name, message, path, index = encoded
    return _ERRORS[name](message, path, index)
