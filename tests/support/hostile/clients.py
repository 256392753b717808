"""Many bad clients at once. Each runs one of PLAYS, chosen by its seed, and then checks that it received only responses
to its own requests, in order.
"""

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.hostile.frames import Frames, Sent, check_answers, read_answer
from tests.support.hostile.members import members, producers
from tests.support.hostile.requests import VICTIM, AbsurdRequests, brief
from tests.support.net.wire_calls import NAMED, fetch_request, produce_request

from headrace.common.ids import ZERO_UUID, Uuid
from headrace.protocol import Message
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.records import BatchBuilder

PATIENCE_SECONDS = 60.0
LONGEST_WAIT_MS = 2**31 - 1
_RESET = struct.pack("ii", 1, 0)

Address = tuple[str, int]


class HostileConnection:
    """One connection, and a record of its traffic."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, seed: str, victim_id: Uuid
    ):
        self.random = random.Random(seed)
        self.frames = Frames(self.random, number)
        self.absurd = AbsurdRequests(self.random, victim_id)
        self.sent = bytearray()
        self.received = bytearray()
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> bool:
        """Sends bytes. Returns False if the broker has closed the connection."""
        self.sent += data
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError:
            return False
        return not self._reader.at_eof()

    async def read_answer(self) -> bytes | None:
        """Returns the next response without its size, or None if the connection was closed."""
        try:
            head = await self._reader.readexactly(4)
            self.received += head
            body = await self._reader.readexactly(int.from_bytes(head, "big", signed=True))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        self.received += body
        return body

    async def call(self, request: Message, version: int) -> Any:
        """Sends a request and returns its response; fails if the connection is closed."""
        await self.send(self.frames.request(request, version))
        sent = Sent(self.frames.last_correlation_id, type(request).__api_key__, version)
        while (body := await self.read_answer()) is not None:
            if int.from_bytes(body[:4], "big") == sent.correlation_id:  # skip responses to earlier requests
                return read_answer(sent, body)
        raise AssertionError(f"no answer to v{version} of {brief(request)}")

    async def read_to_end(self) -> None:
        """Closes the sending side and reads until the broker closes the connection."""
        try:
            self._writer.write_eof()
            while data := await self._reader.read(65_536):
                self.received += data
        except OSError:
            pass

    def reset(self) -> None:
        sock: socket.socket = self._writer.get_extra_info("socket")
        with contextlib.suppress(OSError):  # the broker closed it first
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def abort(self) -> None:
        """Closes the connection and drops unsent bytes."""
        self.reset()
        self._writer.transport.abort()
        await self.close()

    async def end(self) -> None:
        """Ends the connection in one of the usual ways."""
        way = self.random.randrange(4)
        if way < 2:
            await self.read_to_end()
        elif way == 2:
            self.reset()
        await self.close()


Play = Callable[[HostileConnection], Awaitable[None]]


async def anything(peer: HostileConnection) -> None:
    """Sends frames of all kinds until the broker closes the connection."""
    for _ in range(peer.random.choice((1, 3, 20, 60))):
        if not await peer.send(peer.frames.any()):
            break
    await peer.end()


async def mutations(peer: HostileConnection) -> None:
    """Sends mutated valid frames, one by one or in one write."""
    frames = [peer.frames.mutated() for _ in range(peer.random.choice((1, 10, 50)))]
    if peer.random.random() < 0.5:
        await peer.send(b"".join(frames))
    else:
        for frame in frames:
            if not await peer.send(frame):
                break
    await peer.end()


async def noise(peer: HostileConnection) -> None:
    await peer.send(peer.frames.noise())
    await peer.end()


async def strangers(peer: HostileConnection) -> None:
    """Speaks another protocol: the broker closes the connection, or waits for the rest of a frame."""
    await peer.send(peer.frames.stranger())
    await peer.end()


async def sizes(peer: HostileConnection) -> None:
    """Sends an invalid size after valid requests."""
    for _ in range(peer.random.choice((0, 2))):
        await peer.send(peer.frames.request(ApiVersionsRequest(), 0))
    await peer.send(peer.frames.hostile_size())
    await peer.end()


async def large_claim(peer: HostileConnection) -> None:
    """Announces a frame of 100 MB and sends a part of it."""
    await peer.send(struct.pack(">i", 104_857_600))
    for _ in range(peer.random.choice((0, 1, 20))):
        if not await peer.send(peer.random.randbytes(50_000)):
            break
    await peer.end()


async def drips(peer: HostileConnection) -> None:
    """Sends one byte per packet; the last request stays incomplete."""
    data = b"".join(peer.frames.request(ApiVersionsRequest(), 0) for _ in range(5))
    data += peer.frames.mutated() + peer.frames.truncated()
    for at in range(min(len(data), 300)):
        if not await peer.send(data[at : at + 1]):
            break
        await asyncio.sleep(0)
    await peer.end()


async def half_frame(peer: HostileConnection) -> None:
    await peer.send(peer.frames.truncated())
    await peer.end()


async def absurd_requests(peer: HostileConnection) -> None:
    """Sends absurd requests; each that can be decoded gets a response."""
    for _ in range(peer.random.choice((1, 5, 15))):
        request, version = peer.absurd.any()
        await peer.send(peer.frames.request(request, version))
        if await peer.read_answer() is None:
            raise AssertionError(f"no answer to v{version} of {brief(request)}")
    await peer.end()


async def pipelined_absurd_requests(peer: HostileConnection) -> None:
    requests = [peer.absurd.any() for _ in range(10)]
    frames = [peer.frames.request(request, version) for request, version in requests]
    writing = asyncio.create_task(peer.send(b"".join(frames)))
    for request, version in requests:
        if await peer.read_answer() is None:
            raise AssertionError(f"no answer to v{version} of {brief(request)}")
    await writing
    await peer.end()


async def long_polls(peer: HostileConnection) -> None:
    """Starts fetches that wait for 24 days, and disconnects."""
    for _ in range(peer.random.choice((1, 5, 50))):
        request = fetch_request(0, VICTIM, max_wait_ms=LONGEST_WAIT_MS, min_bytes=LONGEST_WAIT_MS)
        if not await peer.send(peer.frames.request(request, NAMED)):
            break
    if peer.random.random() < 0.5:
        peer.reset()
    await peer.close()


async def sessions(peer: HostileConnection) -> None:
    """Creates fetch sessions and never uses them again."""
    for epoch in (0, 0, 1, 2**31 - 1):
        request = fetch_request(0, VICTIM, session_id=0, session_epoch=epoch, max_bytes=100)
        await peer.send(peer.frames.request(request, NAMED))
        if await peer.read_answer() is None:
            break
    await peer.end()


async def never_reads(peer: HostileConnection) -> None:
    """Requests as much data as possible and reads none of it."""
    frame = peer.frames.request(MetadataRequest(topics=None), 12)
    read = peer.frames.request(fetch_request(0, VICTIM), NAMED)
    try:
        async with asyncio.timeout(1.0):  # the broker must stop reading
            for _ in range(300):
                if not await peer.send(frame + read):
                    break
    except TimeoutError:
        pass
    await peer.abort()


async def bomb(peer: HostileConnection) -> None:
    """Sends a few KB that inflate to 50 MB."""
    builder = BatchBuilder(codec=peer.random.choice((1, 4)))
    builder.append(None, bytes(50_000_000), 0)
    await peer.send(peer.frames.request(produce_request(bytes(builder.build()), VICTIM), NAMED))
    if await peer.read_answer() is None:
        raise AssertionError("no answer to a batch that inflates to much")
    await peer.end()


PLAYS: dict[Play, int] = {
    anything: 10,
    mutations: 12,
    noise: 3,
    strangers: 2,
    sizes: 3,
    large_claim: 2,
    drips: 2,
    half_frame: 3,
    absurd_requests: 8,
    pipelined_absurd_requests: 4,
    members: 6,
    producers: 6,
    long_polls: 3,
    sessions: 2,
    never_reads: 1,
    bomb: 1,
}
"""The weight of each play."""


class Attack:
    """Rounds of bad clients against one broker. The same seed creates the same clients."""

    def __init__(self, address: Address, seed: int, connections: int = 40):
        self.address = address
        self.seed = seed
        self.connections = connections
        self.victim_id = ZERO_UUID
        self.played: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.bytes_sent = 0
        self._number = 0

    async def round(self, plays: dict[Play, int] | None = None) -> None:
        """Runs all connections concurrently to their end; raises their errors."""
        first, self._number = self._number + 1, self._number + self.connections
        playing = (self._connect_and_play(number, plays or PLAYS) for number in range(first, self._number + 1))
        outcomes = await asyncio.gather(*playing, return_exceptions=True)
        errors = [outcome for outcome in outcomes if outcome is not None]
        if errors:
            raise AssertionError("\n".join(str(error) or repr(error) for error in errors)) from errors[0]

    async def _connect_and_play(self, number: int, plays: dict[Play, int]) -> None:
        seed = f"{self.seed}/{number}"
        play = random.Random(seed + "/play").choices(list(plays), list(plays.values()))[0]
        name = getattr(play, "__name__", "")
        reader, writer = await asyncio.open_connection(*self.address, limit=1 << 20)
        peer = HostileConnection(reader, writer, number, seed, self.victim_id)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await play(peer)
            answers = check_answers(bytes(peer.sent), bytes(peer.received))
        except TimeoutError:
            raise AssertionError(f"connection {number} of seed {self.seed} ({name}) hangs") from None
        except AssertionError as error:
            raise AssertionError(f"connection {number} of seed {self.seed} ({name}): {error}") from error
        finally:
            writer.transport.abort()  # if it is still open
            await asyncio.sleep(0)
        self.played[name] += 1
        self.bytes_sent += len(peer.sent)
        self.answers.update(type(answer).__name__ for answer in answers)
