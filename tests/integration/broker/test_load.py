"""Thousands of idle and hundreds of busy connections. Prints the cost of an idle one."""

import asyncio
import resource
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.process import Headrace
from tests.support.hostile.witnesses import GoodClient, Process, create_topic, read_all, values_in
from tests.support.net.wire_calls import NAMED, batch, fetch_request, produce_request
from tests.support.net.wire_client import WireClient

from headrace.protocol import Message, decode, encode_request
from headrace.protocol.apis import APIS, ApiKey
from headrace.protocol.messages.api_versions import ApiVersionsRequest

IDLE = 5_000
BUSY = 200
ROUNDS = 10
"""Batches that each busy connection produces and reads back."""
PARTITIONS = 20
SPARE_FILES = 500
MOST_IDLE_BYTES = 20_000
SECONDS = 60.0

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to look at the broker")


def address_of(process: Headrace) -> tuple[str, int]:
    host, _, port = process.bootstrap.rpartition(":")
    return host, int(port)


def eventually(condition: Callable[[], object], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


@pytest.fixture(scope="module")
def files_for_all() -> Iterator[None]:
    """Raises the limit of open files for the test; the broker inherits it and raises its own further."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = IDLE + BUSY + SPARE_FILES
    if hard != resource.RLIM_INFINITY and hard < needed:
        reason = f"a process may have {hard} open files here, {needed} are needed"
        print(reason)
        pytest.skip(reason)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Connection:
    """An asyncio client, as plain as WireClient."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int):
        self.number = number
        self._reader = reader
        self._writer = writer
        self._sent = 0

    @classmethod
    async def open(cls, address: tuple[str, int], number: int) -> "Connection":
        return cls(*await asyncio.open_connection(*address), number)

    async def call(self, request: Message, version: int) -> Any:
        """Returns the response to this connection's last request."""
        self._sent += 1
        correlation_id = self.number << 16 | self._sent
        self._writer.write(encode_request(request, version, correlation_id, f"load-{self.number}"))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        frame = await self._reader.readexactly(size)
        assert struct.unpack_from(">i", frame) == (correlation_id,)
        api = APIS[ApiKey(type(request).__api_key__)]
        flexible_header = api.is_flexible(version) and api.name != "ApiVersions"
        return decode(api.response, version, frame, 5 if flexible_header else 4)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def open_many(address: tuple[str, int], count: int, first: int = 0) -> list[Connection]:
    """Opens connections in groups that fit the broker's backlog; otherwise the system retries after a second."""
    opened: list[Connection] = []
    for start in range(first, first + count, 25):
        numbers = range(start, min(start + 25, first + count))
        opened += await asyncio.gather(*(Connection.open(address, number) for number in numbers))
    return opened


async def work(connection: Connection, acknowledged: dict[int, list[bytes]]) -> None:
    """Produces small batches and reads each of them back."""
    partition = connection.number % PARTITIONS
    for number in range(ROUNDS):
        values = [f"{connection.number}/{number}/{i}".encode() for i in range(3)]
        request = produce_request(batch(*values), "t", partition, acks=-1 if number % 2 else 1)
        reply = await connection.call(request, NAMED)
        ((produced,),) = (topic.partition_responses for topic in reply.responses)
        assert produced.error_code == 0, produced
        acknowledged[partition] += values
        request = fetch_request(produced.base_offset, "t", partition, max_bytes=1, max_wait_ms=30_000)
        reply = await connection.call(request, NAMED)
        ((found,),) = (topic.partitions for topic in reply.responses)
        assert found.error_code == 0, found
        assert values_in(found) == values


def test_idle_and_busy_connections(files_for_all: None, tmp_path: Path) -> None:
    with Headrace(tmp_path / "data") as broker:
        address, numbers = address_of(broker), Process(broker.pid or 0)
        with WireClient(address) as client:
            create_topic(client, "t", PARTITIONS)
        acknowledged: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}

        async def load() -> None:
            busy = await open_many(address, BUSY, IDLE)
            await asyncio.gather(*(work(connection, acknowledged) for connection in busy))  # warm-up
            before, sockets = numbers.rss_bytes, numbers.sockets
            started = time.monotonic()
            idle = await open_many(address, IDLE)
            opened = time.monotonic() - started
            # Each has sent ApiVersions, like a client that is idle afterwards.
            for start in range(0, IDLE, 100):
                asking = idle[start : start + 100]
                await asyncio.gather(*(connection.call(ApiVersionsRequest(), 3) for connection in asking))
            assert numbers.sockets == sockets + IDLE
            each = (numbers.rss_bytes - before) / IDLE
            started = time.monotonic()
            await asyncio.gather(*(work(connection, acknowledged) for connection in busy))
            worked = time.monotonic() - started
            # All idle connections are still open.
            for start in range(0, IDLE, 100):
                asking = idle[start : start + 100]
                await asyncio.gather(*(connection.call(ApiVersionsRequest(), 0) for connection in asking))
            print(
                f"{IDLE} idle connections: {each:.0f} bytes of RSS each ({before / 1e6:.0f} MB before), opened in "
                f"{opened:.1f} s; beside them {BUSY} busy ones: {2 * BUSY * ROUNDS} requests in {worked:.1f} s; "
                f"RSS {numbers.rss_bytes / 1e6:.0f} MB"
            )
            assert each < MOST_IDLE_BYTES
            for connection in (*idle, *busy):
                await connection.close()

        asyncio.run(load())
        with WireClient(address) as client:
            for partition, values in acknowledged.items():
                assert sorted(value or b"" for value in read_all(client, "t", partition)) == sorted(values)
        eventually(lambda: numbers.sockets < 10, lambda: f"{numbers.sockets} sockets are still open")
        print(f"RSS {numbers.rss_bytes / 1e6:.0f} MB when all are gone")
        assert "Traceback" not in broker.log_file.read_text()


def test_checkpoints_are_written_under_load(tmp_path: Path) -> None:
    """A checkpoint that takes longer than its interval does not overlap with the next."""
    intervals = {"replica.high.watermark.checkpoint.interval.ms": 1, "log.flush.offset.checkpoint.interval.ms": 1}
    with Headrace(tmp_path / "data", intervals) as broker:
        good = GoodClient(address_of(broker), "t", 1)
        good.start()
        try:
            eventually(lambda: good.rounds >= 500 or good.error, lambda: f"{good.rounds} rounds")
        finally:
            good.finish()
        good.check()
        assert " ERROR " not in broker.log_file.read_text()
