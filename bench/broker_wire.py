"""The few requests that the broker benchmark sends by itself, packed by hand, so that both brokers are asked by the
same light code: create a topic, delete it, see its leaders, produce one record. Old versions without tags, that Apache
Kafka 4 still serves."""

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
    """One connection that asks and waits for the answer."""

    def __init__(self, port: int, timeout: float = 30.0):
        self._socket = socket.create_connection((HOST, port), timeout=timeout)
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()
        self._socket.close()

    def ask(self, frame: bytes) -> "Reply":
        """Sends a whole request and returns the body of its answer."""
        self._socket.sendall(frame)
        size = self._stream.read(4)
        if len(size) < 4:
            raise ConnectionError("the broker closed the connection")
        (length,) = struct.unpack(">i", size)
        return Reply(self._stream.read(length)[4:])


class Reply:
    """Takes fields off the front of a reply."""

    def __init__(self, body: bytes):
        self._body = body
        self._position = 0

    def number(self, code: str) -> int:
        (value,) = struct.unpack_from(">" + code, self._body, self._position)
        self._position += struct.calcsize(">" + code)
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
    """Returns the error code."""
    body = struct.pack(">i", 1) + _text(topic) + struct.pack(">ihiiib", partitions, 1, 0, 0, CREATE_TIMEOUT_MS, False)
    reply = wire.ask(_request(CREATE_KEY, 2, body))
    reply.number("i")  # throttled for
    reply.number("i")
    reply.text()
    return reply.number("h")


def delete_topic(wire: Wire, topic: str) -> int:
    reply = wire.ask(_request(DELETE_KEY, 1, struct.pack(">i", 1) + _text(topic) + struct.pack(">i", 30_000)))
    reply.number("i")
    reply.number("i")
    reply.text()
    return reply.number("h")


def leaders(wire: Wire, topic: str) -> list[int]:
    """The leaders of the topic's partitions; empty while it is not known."""
    reply = wire.ask(_request(METADATA_KEY, 1, struct.pack(">i", 1) + _text(topic)))
    for _ in reply.each():
        reply.number("i"), reply.text(), reply.number("i"), reply.text()
    reply.number("i")  # the controller
    found: list[int] = []
    for _ in reply.each():
        reply.number("h"), reply.text(), reply.number("b")
        for _ in reply.each():
            error, _, leader = reply.number("h"), reply.number("i"), reply.number("i")
            reply.numbers(), reply.numbers()
            found.append(-1 if error else leader)
    return found


def produce_frame(topic: str, record_bytes: int, acks: int = 1) -> bytes:
    """A request of one record for partition 0."""
    builder = BatchBuilder()
    builder.append(None, bytes(index % 251 for index in range(record_bytes)), time.time_ns() // 1_000_000)
    batch = bytes(builder.build())
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + _text(topic)
    return _request(PRODUCE_KEY, 7, body + struct.pack(">iii", 1, 0, len(batch)) + batch)


def produce_error_at(topic: str) -> int:
    """Where the reply to `produce_frame`, with its size, has the error code."""
    return 4 + 4 + 4 + 2 + len(topic) + 4 + 4


def _produce(wire: Wire, frame: bytes) -> int:
    reply = wire.ask(frame)
    reply.number("i"), reply.text(), reply.number("i"), reply.number("i")
    return reply.number("h")


def await_condition(what: str, holds: Callable[[], bool], timeout: float, pause: float = 0.05) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen in {timeout:.0f} s")
        time.sleep(pause)


def make_topic(port: int, topic: str, partitions: int) -> None:
    """Creates the topic and waits until all its partitions have a leader."""
    with Wire(port) as wire:
        error = create_topic(wire, topic, partitions)
        if error:
            raise RuntimeError(f"creating {topic} was answered with error {error}")

        def led() -> bool:
            found = leaders(wire, topic)
            return len(found) == partitions and -1 not in found

        await_condition(f"a leader for every partition of {topic}", led, 30)


def drop_topic(port: int, topic: str, data_dir: Path) -> None:
    """Deletes the topic and waits until its files are gone, so that no writing back disturbs what comes next."""
    with Wire(port) as wire:
        error = delete_topic(wire, topic)
        if error:
            raise RuntimeError(f"deleting {topic} was answered with error {error}")
    # Apache Kafka looks for what to delete for the first time half a minute after its start.
    await_condition(f"the end of {topic}'s files", lambda: not any(data_dir.glob(f"{topic}-*")), 90)


def await_first_record(port: int, topic: str, record_bytes: int, timeout: float = 120.0) -> float:
    """Tries to connect, to create a topic and to produce until a record is acknowledged; returns when it was."""
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
