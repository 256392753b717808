"""Invalid frames from a seeded generator, and checks of the responses to them.

The upper half of a correlation id is the number of the connection, so a response on the wrong connection is detected.
"""

import random
import struct
from collections.abc import Callable
from typing import NamedTuple

from tests.support.hostile.requests import CLIENT_APIS, CONTROLLER_APIS
from tests.support.protocol.samples import sample, versions_of

from headrace.broker import handlers
from headrace.broker.apis import REGISTRY
from headrace.protocol import APIS, Message, decode, encode_request
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.create_topics import CreateTopicsRequest
from headrace.protocol.messages.metadata import MetadataRequest

handlers.load()

MAX_FRAME_BYTES = 104_857_600
SIZES = (0, -1, -(2**31), 2**31 - 1, 2**31 - 5, MAX_FRAME_BYTES, MAX_FRAME_BYTES + 1, 1, 7, 9, 65_537)
LENGTHS = (
    b"\x7f\xff\xff\xff",
    b"\x7f\xff\xff\xfe",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x3b\x9a\xca\x00",
    b"\x00\x00\x00\x00",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\xff" * 10,
    b"\x80" * 5,
    b"\x01\xff\xff\xff\xff\x0f",
)
"""Lengths and counts near their limits, in the protocol's encodings."""
STRANGERS = (
    b"GET / HTTP/1.1\r\nHost: broker\r\nUser-Agent: curl/8\r\n\r\n",
    b"POST /v1/topics HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    b"SSH-2.0-OpenSSH_9.7\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2,
    b"*1\r\n$4\r\nPING\r\n",
    b"\x00" * 64,
    b"\xff" * 64,
    b"\n" * 64,
)

_size = struct.Struct(">i")
_head = struct.Struct(">hhi")


class Sent(NamedTuple):
    """A request as the broker sees it in the sent bytes."""

    correlation_id: int
    key: int
    version: int


class Frames:
    """Generates the frames of one connection."""

    def __init__(self, rng: random.Random, number: int):
        self.random = rng
        self.number = number
        self._count = 0

    def correlation_id(self) -> int:
        self._count += 1
        return self.last_correlation_id

    @property
    def last_correlation_id(self) -> int:
        return (self.number & 0x7FFF) << 16 | self._count & 0xFFFF

    def request(self, request: Message, version: int) -> bytes:
        return encode_request(request, version, self.correlation_id(), f"hostile-{self.number}")

    def valid(self) -> bytes:
        """Returns a request of any API and version, supported or not, with random content."""
        rng = self.random
        if rng.random() < 0.8:
            served = rng.choice(CLIENT_APIS)
            cls, version = served.request, rng.randint(served.lowest, served.highest)
        else:
            cls = rng.choice([api for key, api in APIS.items() if key not in CONTROLLER_APIS]).request
            version = rng.choice(versions_of(cls))
        return self.request(tame(sample(cls, version, rng, full=rng.random() < 0.5)), version)

    def mutated(self) -> bytes:
        """Returns a valid frame with mutated bytes; its size field is mostly correct."""
        frame = bytearray(self.valid())
        body = self.broken(bytes(frame[4:]))
        if self.random.random() < 0.9:
            return _size.pack(len(body)) + body
        return self.broken(_size.pack(len(body)) + body)

    def broken(self, data: bytes) -> bytes:
        rng = self.random
        broken = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
            # The correlation id mostly stays intact, because it identifies the response.
            at = rng.choice((rng.randrange(len(broken) + 1), rng.randrange(min(8, len(broken)), len(broken) + 1)))
            kind = rng.randrange(6)
            if kind == 0 and at < len(broken):
                broken[at] ^= 1 << rng.randrange(8)
            elif kind == 1 and at >= 8:
                del broken[at:]
            elif kind == 2:
                del broken[at : at + rng.choice((1, 2, 4))]
            elif kind == 3:
                broken[at:at] = rng.randbytes(rng.choice((1, 2, 5, 64)))
            else:
                length = rng.choice(LENGTHS)
                broken[at : at + len(length)] = length
        return bytes(broken)

    def wrong_version(self) -> bytes:
        """Returns a request with an unknown or unsupported API key or version."""
        rng = self.random
        frame = bytearray(self.valid())
        key, version, _ = _head.unpack_from(frame, 4)
        if rng.random() < 0.5:
            version = rng.choice((-1, -(2**15), 2**15 - 1, 99, version + 20))
        else:
            key = rng.choice((-1, -(2**15), 2**15 - 1, 255, 256, 257, 1000, rng.randrange(-(2**15), 2**15)))
        struct.pack_into(">hh", frame, 4, key, version)
        return bytes(frame)

    def hostile_size(self) -> bytes:
        return _size.pack(self.random.choice(SIZES)) + self.random.randbytes(self.random.choice((0, 1, 3, 10, 5000)))

    def noise(self) -> bytes:
        return self.random.randbytes(self.random.choice((1, 3, 4, 5, 14, 100, 5000, 70_000)))

    def truncated(self) -> bytes:
        frame = self.valid()
        return frame[: self.random.randrange(1, len(frame))]

    def stranger(self) -> bytes:
        return self.random.choice(STRANGERS)

    def header_only(self) -> bytes:
        """Returns a request header and an array length of billions, with nothing behind it."""
        rng = self.random
        api = rng.choice(CLIENT_APIS)
        version = rng.randint(api.lowest, api.highest)
        frame = self.request(api.request(), version)
        header = len(frame) - rng.randrange(1, max(len(frame) - 20, 2))
        body = frame[4:header] + rng.choice(LENGTHS) * rng.choice((1, 1, 3))
        return _size.pack(len(body)) + body

    def any(self) -> bytes:
        """Returns a frame of any kind; mostly one that keeps the stream decodable."""
        kinds: list[Callable[[], bytes]] = [self.mutated] * 12 + [self.valid] * 4
        kinds += [self.header_only] * 3 + [self.wrong_version, self.noise, self.truncated, self.hostile_size]
        return self.random.choice(kinds)()


def tame(request: Message) -> Message:
    """Keeps random requests from creating thousands of partitions, which would take too long."""
    if isinstance(request, CreateTopicsRequest):
        for topic in request.topics:
            topic.num_partitions = topic.num_partitions if abs(topic.num_partitions) > 10_000 else 1
    if isinstance(request, MetadataRequest):
        request.allow_auto_topic_creation = False
    return request


def requests_in(sent: bytes) -> list[Sent]:
    """Returns the requests that a broker finds in the bytes of a connection, up to the first invalid one."""
    found: list[Sent] = []
    at = 0
    while len(sent) - at >= 4:
        (size,) = _size.unpack_from(sent, at)
        if not 0 < size <= MAX_FRAME_BYTES or len(sent) - at < 4 + size:
            break
        if size >= _head.size:
            key, version, correlation_id = _head.unpack_from(sent, at + 4)
            found.append(Sent(correlation_id, key, version))
        at += 4 + size
    return found


def check_answers(sent: bytes, received: bytes) -> list[Message]:
    """Checks that each response belongs to a request of this connection, in order, and can be decoded.

    Not every request gets a response: one that cannot be decoded or is not supported closes the connection.
    """
    requests = iter(requests_in(sent))
    answers: list[Message] = []
    at = 0
    while len(received) - at >= 4:
        (size,) = _size.unpack_from(received, at)
        assert size >= 4, f"an answer of {size} bytes"
        if len(received) - at < 4 + size:
            break  # the connection was closed within a response
        (correlation_id,) = _size.unpack_from(received, at + 4)
        for request in requests:
            if request.correlation_id == correlation_id:
                answers.append(read_answer(request, received[at + 4 : at + 4 + size]))
                break
        else:
            raise AssertionError(f"an answer to request {correlation_id:#x}, which was not sent here or not now")
        at += 4 + size
    return answers


def read_answer(request: Sent, frame: bytes) -> Message:
    """Decodes the response to a request, from its bytes without their size."""
    served = REGISTRY.get(request.key)
    assert served is not None, f"an answer to API {request.key}, which is not served"
    version = request.version
    if served.key is ApiKey.API_VERSIONS and not served.lowest <= version <= served.highest:
        version = 0  # KIP-511
    assert served.lowest <= version <= served.highest, f"an answer to {served.key.name} v{request.version}"
    api = APIS[served.key]
    flexible_header = api.is_flexible(version) and served.key is not ApiKey.API_VERSIONS
    answer = decode(api.response, version, frame, 5 if flexible_header else 4)
    assert isinstance(answer, Message)
    return answer
