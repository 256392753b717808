"""The requests that the broker benchmark sends itself: create a topic, delete it, find its leaders, produce a record.

They are packed by hand, so that both brokers are measured with the same light code. The versions are old ones without
tagged fields that Apache Kafka 4 still serves.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from headrace.records import BatchBuilder

HOST = "127.0.0.1"
RETRY_SECONDS = 0.002
CREATE_TIMEOUT_MS = 5000
PRODUCE_KEY, METADATA_KEY, CREATE_KEY, DELETE_KEY = 0, 3, 19, 20
TOPIC_ALREADY_EXISTS = 36


class Wire:
    """A connection that sends one request at a time and waits for the response."""

    def __init__(self, port: int, timeout: float = 30.0):
        self._socket = socket.create_connection((HOST, port), timeout=timeout)
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()
        self._socket.close()

    def send(self, frame: bytes) -> "Response":
        """Sends an encoded request and returns the body of the response."""
        self._socket.sendall(frame)
        size = self._stream.read(4)
        if len(size) < 4:
            raise ConnectionError("the broker closed the connection")
        (length,) = struct.unpack(">i", size)
        return Response(self._stream.read(length)[4:])


class Response:
    """Reads the fields of a response, from front to back."""

    def __init__(self, body: bytes):
        self._body = body
        self._position = 0

    def number(self, code: str) -> int:
        (value,) = struct.unpack_from(">" + code, self._body, self._position)
        self._position += struct.calcsize(">" + code)
        return int(value)

    @property
    def body(self) -> bytes:
        """The body without the correlation id."""
        return self._body

    @property
    def size(self) -> int:
        return len(self._body)

    def number_at(self, code: str, position: int) -> int:
        """Returns a number without moving on."""
        (value,) = struct.unpack_from(">" + code, self._body, position)
        return int(value)

    def text(self) -> str | None:
        length = self.number("h")
        if length < 0:
            return None
        self._position += length
        return self._body[self._position - length : self._position].decode()

    def each(self) -> Iterator[int]:
        return iter(range(self.number("i")))

    def numbers(self) -> list[int]:
        return [self.number("i") for _ in self.each()]


def _request(api_key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhi", api_key, version, 1) + _text("bench")
    return struct.pack(">i", len(header) + len(body)) + header + body


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def create_topic(wire: Wire, topic: str, partitions: int) -> int:
    """Creates a topic and returns the error code."""
    body = struct.pack(">i", 1) + _text(topic) + struct.pack(">ihiiib", partitions, 1, 0, 0, CREATE_TIMEOUT_MS, False)
    response = wire.send(_request(CREATE_KEY, 2, body))
    response.number("i")  # throttle time
    response.number("i")
    response.text()
    return response.number("h")


def delete_topic(wire: Wire, topic: str) -> int:
    response = wire.send(_request(DELETE_KEY, 1, struct.pack(">i", 1) + _text(topic) + struct.pack(">i", 30_000)))
    response.number("i")
    response.number("i")
    response.text()
    return response.number("h")


def leaders(wire: Wire, topic: str) -> list[int]:
    """Returns the leaders of the topic's partitions, or an empty list while the broker does not know the topic."""
    response = wire.send(_request(METADATA_KEY, 1, struct.pack(">i", 1) + _text(topic)))
    for _ in response.each():
        response.number("i"), response.text(), response.number("i"), response.text()
    response.number("i")  # controller id
    leader_ids: list[int] = []
    for _ in response.each():
        response.number("h"), response.text(), response.number("b")
        for _ in response.each():
            error, _, leader = response.number("h"), response.number("i"), response.number("i")
            response.numbers(), response.numbers()
            leader_ids.append(-1 if error else leader)
    return leader_ids


def produce_frame(topic: str, record_bytes: int, acks: int = 1) -> bytes:
    """Returns an encoded produce request with one record for partition 0."""
    builder = BatchBuilder()
    builder.append(None, bytes(index % 251 for index in range(record_bytes)), time.time_ns() // 1_000_000)
    batch = bytes(builder.build())
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + _text(topic)
    return _request(PRODUCE_KEY, 7, body + struct.pack(">iii", 1, 0, len(batch)) + batch)


def produce_error_at(topic: str) -> int:
    """Returns the position of the error code in the response to `produce_frame`, counted from its size field."""
    return 4 + 4 + 4 + 2 + len(topic) + 4 + 4


def _produce(wire: Wire, frame: bytes) -> int:
    response = wire.send(frame)
    response.number("i"), response.text(), response.number("i"), response.number("i")
    return response.number("h")


def await_condition(what: str, holds: Callable[[], bool], timeout: float, pause: float = 0.05) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} took longer than {timeout:.0f} s")
        time.sleep(pause)


def make_topic(port: int, topic: str, partitions: int) -> None:
    """Creates the topic and waits until all its partitions have a leader."""
    with Wire(port) as wire:
        error = create_topic(wire, topic, partitions)
        if error:
            raise RuntimeError(f"creating topic {topic} failed with error {error}")

        def all_have_leaders() -> bool:
            leader_ids = leaders(wire, topic)
            return len(leader_ids) == partitions and -1 not in leader_ids

        await_condition(f"electing leaders for {topic}", all_have_leaders, 30)


def drop_topic(port: int, topic: str, data_dir: Path) -> None:
    """Deletes the topic and waits until its files are deleted, before they are written back during the next case."""
    with Wire(port) as wire:
        error = delete_topic(wire, topic)
        if error:
            raise RuntimeError(f"deleting topic {topic} failed with error {error}")
    # Apache Kafka first checks for files to delete half a minute after its start.
    await_condition(f"deleting the files of {topic}", lambda: not any(data_dir.glob(f"{topic}-*")), 90)


def await_first_record(port: int, topic: str, record_bytes: int, timeout: float = 120.0) -> float:
    """Connects, creates a topic and produces, with retries, until a record is acknowledged. Returns that time."""
    frame = produce_frame(topic, record_bytes)
    deadline = time.perf_counter() + timeout
    created = False
    while time.perf_counter() < deadline:
        with contextlib.suppress(OSError), Wire(port) as wire:
            while time.perf_counter() < deadline:
                if not created:
                    created = create_topic(wire, topic, 1) in (0, TOPIC_ALREADY_EXISTS)
                elif _produce(wire, frame) == 0:
                    return time.perf_counter()
                time.sleep(RETRY_SECONDS)
        time.sleep(RETRY_SECONDS)
    raise TimeoutError(f"no record was acknowledged in {timeout:.0f} s")
