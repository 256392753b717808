"""Finds the requests whose peer stopped sending in the middle, so that their memory can be given back.

A peer that sends a part of a large request and then nothing more keeps that part in the server's memory. Two rules:

- While other requests wait for memory (`queued.max.request.bytes`), a request must grow by `MIN_PROGRESS_BYTES` in a
  second. The slowest for the longest time is dropped first, and only as many as needed. A request that waits because
  its peer does not read earlier responses is slow, too.
- Otherwise a request is dropped after `MAX_SILENT_SECONDS` without a byte. Clients give up earlier by default
  (`request.timeout.ms`).

Time is the number of checks, one in a second: a stall of the server itself counts as one second.
"""

from dataclasses import dataclass

from headrace.net.receive_memory import SIZE_BYTES, BufferHolder, ReceiveMemory
from headrace.protocol import ProtocolError, decode_request_header
from headrace.protocol.apis import ApiKey

MIN_PROGRESS_BYTES = 16 * 1024
MAX_SLOW_SECONDS = 2
MAX_SILENT_SECONDS = 30


@dataclass(slots=True)
class _Progress:
    """The progress of one holder since the last check."""

    received_bytes: int
    slow_seconds: int = 0
    silent_seconds: int = 0


class StalledRequests:
    """Watches the requests in `ReceiveMemory`."""

    def __init__(self, memory: ReceiveMemory):
        self._memory = memory
        self._progress: dict[BufferHolder, _Progress] = {}

    def check(self) -> list[BufferHolder]:
        """Returns the holders that may be dropped, slowest first. Call it every second."""
        seen = self._progress
        self._progress = {}
        for holder in self._memory.holders:
            received_bytes = holder.received_bytes
            progress = seen.get(holder)
            if not holder.buffered_bytes or holder in self._memory.waiters or progress is None:
                self._progress[holder] = _Progress(received_bytes)
                continue
            new_bytes = received_bytes - progress.received_bytes
            progress.received_bytes = received_bytes
            progress.slow_seconds = progress.slow_seconds + 1 if new_bytes < MIN_PROGRESS_BYTES else 0
            progress.silent_seconds = progress.silent_seconds + 1 if new_bytes == 0 else 0
            self._progress[holder] = progress
        candidates = [holder for holder in self._progress if self.must_drop(holder)]
        return sorted(candidates, key=lambda holder: self._progress[holder].slow_seconds, reverse=True)

    def must_drop(self, holder: BufferHolder) -> bool:
        """Returns True if the request must give its memory back now. Changes when other requests get memory."""
        progress = self._progress[holder]
        if self._memory.waiters and progress.slow_seconds >= MAX_SLOW_SECONDS:
            return True
        return progress.silent_seconds >= MAX_SILENT_SECONDS

    def excuse(self, holder: BufferHolder) -> None:
        """Restarts the time of a holder whose connection is not being read."""
        self._progress[holder] = _Progress(holder.received_bytes)

    def reason(self, holder: BufferHolder) -> str:
        """Returns the reason for dropping a request, for the log."""
        progress = self._progress[holder]
        if self._memory.waiters:
            return (
                f"received fewer than {MIN_PROGRESS_BYTES} bytes in each of the last {progress.slow_seconds} seconds, "
                f"and other requests wait for memory (queued.max.request.bytes={self._memory.max_bytes})"
            )
        return f"received nothing in the last {progress.silent_seconds} seconds"


def describe_request(frame: memoryview) -> str:
    """Describes a request by the first bytes of its frame."""
    if len(frame) < SIZE_BYTES:
        return f"a request of which it sent {len(frame)} bytes"
    size = int.from_bytes(frame[:SIZE_BYTES])
    progress = f"of {size} bytes, of which it sent {len(frame) - SIZE_BYTES}"
    try:
        key, version, _, client_id, _ = decode_request_header(frame[SIZE_BYTES:])
        return f"a {ApiKey(key).name} v{version} request of client {client_id!r} {progress}"
    except (ProtocolError, ValueError):
        return f"a request {progress}"
