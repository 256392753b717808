"""The sender threads, with socket pairs and a file."""

import errno
import os
import queue
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.net.doubles import FileSlice

from headrace.net import senders as module
from headrace.net.senders import SenderThreads

SIZE = 3_000_000


class Sockets:
    def __init__(self, path: Path) -> None:
        self.ours, self.peer = socket.socketpair()
        self.ours.setblocking(False)
        self.peer.settimeout(30)
        self.data = os.urandom(SIZE)
        path.write_bytes(self.data)
        self.file = path.open("rb")

    def slice(self, position: int, size: int) -> FileSlice:
        return FileSlice(self.file.fileno(), position, size)

    def read(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            received += self.peer.recv(size - len(received))
        return bytes(received)

    def close(self) -> None:
        self.ours.close()
        self.peer.close()
        self.file.close()


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[Sockets]:
    sockets = Sockets(tmp_path / "file")
    yield sockets
    sockets.close()


class Loop:
    """Runs the calls of other threads in the test's thread."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()

    def call_soon_threadsafe(self, *call: Any) -> None:
        self.calls.put(call)

    def run_one(self) -> None:
        callback, *arguments = self.calls.get(timeout=30)
        callback(*arguments)


class Sending:
    """Sender threads with their loop and sockets."""

    def __init__(self, sockets: Sockets, size: int) -> None:
        self.loop = Loop()
        loop: Any = self.loop
        self.threads = SenderThreads(loop, size)
        self._fd = sockets.ours.fileno()

    def submit(self, *parts: Any, sent: int = 0) -> list[tuple[int, int]]:
        outcome: list[tuple[int, int]] = []
        self.threads.submit(self._fd, list(parts), sent, lambda sent, error: outcome.append((sent, error)))
        return outcome

    def send(self, *parts: Any) -> tuple[int, int]:
        outcome = self.submit(*parts)
        self.loop.run_one()
        return outcome[0]


@pytest.fixture
def sending(sockets: Sockets) -> Iterator[Sending]:
    sending = Sending(sockets, 2)
    yield sending
    sending.threads.close()


def test_sends_bytes_and_slices_in_order(sockets: Sockets, sending: Sending) -> None:
    parts = [b"a" * 10, sockets.slice(1000, 2_000_000), memoryview(b"b" * 300_000), sockets.slice(0, 5)]
    outcome = sending.submit(*parts, sent=3)
    assert sending.threads.idle == 1
    received = sockets.read(2_300_012)
    assert received == b"a" * 7 + sockets.data[1000:2_001_000] + b"b" * 300_000 + sockets.data[:5]
    sending.loop.run_one()
    assert outcome == [(len(received), 0)]
    assert sending.threads.idle == 2


def test_a_peer_that_does_not_read_goes_back_to_the_loop(sockets: Sockets, sending: Sending) -> None:
    sent, error = sending.send(sockets.slice(0, SIZE))
    assert error == 0
    assert 0 < sent < SIZE
    assert sockets.read(sent) == sockets.data[:sent]


def test_a_long_response_goes_back_to_the_loop(
    sockets: Sockets, sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALLED_MS", 60_000)
    monkeypatch.setattr(module, "MOST_MS", 0)
    sent, error = sending.send(sockets.slice(0, SIZE))
    assert (error, 0 < sent < SIZE) == (0, True)


def test_lost_peer(sockets: Sockets, sending: Sending) -> None:
    sockets.peer.close()
    assert sending.send(b"x" * 10, sockets.slice(0, SIZE)) == (0, errno.EPIPE)


def test_file_shorter_than_its_slice(sockets: Sockets, sending: Sending) -> None:
    assert sending.send(sockets.slice(SIZE - 10, 11)) == (10, errno.ENODATA)


def test_failing_part_closes_the_connection(sending: Sending, caplog: pytest.LogCaptureFixture) -> None:
    assert sending.send(b"x", object()) == (0, errno.EIO)
    assert "AttributeError" in caplog.text
    assert sending.send(b"x") == (1, 0), "the thread continues"


def test_threads_start_when_needed_and_end(sending: Sending) -> None:
    threads = sending.threads
    assert threads._threads == []
    for _ in range(5):
        sending.send(b"x")
    started = list(threads._threads)
    assert len(started) == 1
    threads.close()
    assert not any(thread.is_alive() for thread in started)
