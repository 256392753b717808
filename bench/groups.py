"""Heartbeats of many groups: the broker's CPU time, and the latency of the responses.

There are 1,000 groups of 10 members. As with real clients, each member has its own connection and sends a heartbeat
every 3 s, the default of all clients. The same load generator (one process, one event loop) measures Headrace and
Apache Kafka in turn; the latencies of both include its own delay. CPU time is that of the broker's process, from /proc.

    python -m bench groups [--rounds 3] [--quick]
"""

import asyncio
import gc
import random
import struct
import sys
import time
from pathlib import Path

from bench.broker_sides import Headrace, Kafka, Side
from bench.broker_wire import HOST
from bench.harness import Measurement, from_pairs
from headrace.protocol import decode, encode_request
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

GROUPS = 1000
MEMBERS = 10
INTERVAL_SECONDS = 3.0
SESSION_MS = 45_000
REBALANCE_MS = 120_000
JOIN, SYNC, HEARTBEAT, FIND = 3, 2, 3, 2  # versions before the two-step join and before tags
READY_SECONDS = 240.0
_HEARTBEAT_RESPONSE = struct.Struct(">iiih")


class Load:
    """The state and the measurements that all members of all groups share."""

    def __init__(self, seed: int = 1):
        self.random = random.Random(seed)
        self.stable = 0
        self.measuring = False
        self.latencies: list[float] = []
        self.errors = 0
        self.lost = 0


class Member(asyncio.Protocol):
    """A group member: joins, syncs, then sends heartbeats."""

    def __init__(self, load: Load, group: str):
        self._load = load
        self._group = group
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._beat = b""
        self._sent_at = 0.0
        self._member_id = ""
        self._generation = -1
        self._state = "join"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._join()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._load.lost += 1

    def _write(self, frame: bytes) -> None:
        assert self._transport is not None
        self._transport.write(frame)

    def _join(self) -> None:
        self._state = "join"
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(40))],
        )
        self._write(encode_request(request, JOIN, 1, "bench"))

    def data_received(self, data: bytes) -> None:
        if self._state == "beat" and len(data) == _HEARTBEAT_RESPONSE.size:
            self._heartbeat_received(data)
            return
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big") + 4
            if len(self._buffer) < size:
                return
            frame, self._buffer = self._buffer[:size], self._buffer[size:]
            if self._state == "join":
                self._joined(decode(JoinGroupResponse, JOIN, frame, 8))
            elif self._state == "sync":
                self._synced(decode(SyncGroupResponse, SYNC, frame, 8))
            else:
                self._heartbeat_received(frame)

    def _joined(self, response: JoinGroupResponse) -> None:
        self._member_id = response.member_id
        if response.error_code:
            self._member_id = ""
            self._join()
            return
        self._generation = response.generation_id
        self._state = "sync"
        assignments = [
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=bytes(40)) for member in response.members
        ]
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            assignments=assignments,
        )
        self._write(encode_request(request, SYNC, 1, "bench"))

    def _synced(self, response: SyncGroupResponse) -> None:
        if response.error_code:
            self._join()
            return
        self._load.stable += 1
        self._state = "beat"
        request = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
        self._beat = encode_request(request, HEARTBEAT, 1, "bench")
        self._schedule(self._load.random.uniform(0, INTERVAL_SECONDS))

    def _schedule(self, delay: float) -> None:
        asyncio.get_running_loop().call_later(delay, self._send_beat)

    def _send_beat(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._sent_at = time.perf_counter()
        self._transport.write(self._beat)

    def _heartbeat_received(self, frame: bytes) -> None:
        taken = time.perf_counter() - self._sent_at
        error = _HEARTBEAT_RESPONSE.unpack(frame)[3]
        if self._load.measuring:
            self._load.latencies.append(taken)
            self._load.errors += error != 0
        if error:
            self._load.stable -= 1
            self._join()
            return
        self._schedule(INTERVAL_SECONDS - taken)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class GroupRun:
    """The result of one broker in one round."""

    def __init__(self, side: Side, load: Load, cpu_share: float):
        self.name = side.name
        self.cpu_percent = cpu_share * 100
        ordered = sorted(load.latencies)
        self.count = len(ordered)
        self.p50_ms = ordered[len(ordered) // 2] * 1000
        self.p99_ms = ordered[int(len(ordered) * 0.99)] * 1000
        self.errors = load.errors
        self.lost = load.lost


async def _await_coordinator(port: int, group: str) -> None:
    """Waits for the group coordinator. The first request creates the offsets topic."""
    deadline = time.monotonic() + 60
    while True:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(encode_request(FindCoordinatorRequest(key=group), FIND, 1, "bench"))
        size = int.from_bytes(await reader.readexactly(4), "big")
        response = decode(FindCoordinatorResponse, FIND, await reader.readexactly(size), 4)
        writer.close()
        if response.error_code == 0:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"no group coordinator within a minute: error {response.error_code}")
        await asyncio.sleep(0.2)


async def measure(side: Side, groups: int, members: int, seconds: float) -> GroupRun:
    loop = asyncio.get_running_loop()
    load = Load()
    await _await_coordinator(side.port, "bench-0")
    connections: list[Member] = []
    for number in range(groups):
        for _ in range(members):
            member = Member(load, f"bench-{number}")
            await loop.create_connection(lambda member=member: member, HOST, side.port)  # type: ignore[misc]
            connections.append(member)
    deadline = time.monotonic() + READY_SECONDS
    while load.stable < groups * members:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{side.name}: only {load.stable} members are in a stable group")
        await asyncio.sleep(0.2)
    await asyncio.sleep(INTERVAL_SECONDS * 2)
    gc.collect()
    gc.disable()  # looking through 10,000 connections takes a tenth of a second, which is not the broker's
    load.measuring = True
    cpu, started = side.cpu_seconds(), time.perf_counter()
    await asyncio.sleep(seconds)
    load.measuring = False
    gc.enable()
    share = (side.cpu_seconds() - cpu) / (time.perf_counter() - started)
    outcome = GroupRun(side, load, share)
    for member in connections:
        member.close()
    return outcome


def run(directory: Path, rounds: int, *, quick: bool = False) -> tuple[list[Measurement], list[str]]:
    groups, members, seconds = (GROUPS // 10 if quick else GROUPS), MEMBERS, (10.0 if quick else 30.0)
    found: dict[type[Side], list[GroupRun]] = {Headrace: [], Kafka: []}
    for number in range(rounds):
        for kind in (Headrace, Kafka) if number % 2 == 0 else (Kafka, Headrace):
            side = kind(directory / f"{kind.__name__}-{number}")
            side.start()
            try:
                outcome = asyncio.run(measure(side, groups, members, seconds))
            finally:
                side.stop()
            found[kind].append(outcome)
            print(
                f"{outcome.name}: CPU {outcome.cpu_percent:.1f} %, p50 {outcome.p50_ms:.2f} ms, "
                f"p99 {outcome.p99_ms:.2f} ms, {outcome.count} heartbeats, {outcome.errors} errors",
                file=sys.stderr,
            )
    ours, theirs = found[Headrace], found[Kafka]
    what = f"{groups:,} groups of {members} members"
    measurements = [
        _compare(f"{what}: CPU of the broker", "% of a core", ours, theirs, "cpu_percent"),
        _compare(f"{what}: heartbeat p99", "ms", ours, theirs, "p99_ms"),
        _compare(f"{what}: heartbeat p50", "ms", ours, theirs, "p50_ms"),
    ]
    notes = [f"{seconds:g} s per round; each member sends a heartbeat every {INTERVAL_SECONDS:g} s"]
    return measurements, notes


def _compare(name: str, unit: str, ours: list[GroupRun], theirs: list[GroupRun], field: str) -> Measurement:
    pairs = [
        (float(getattr(mine, field)), float(getattr(other, field))) for mine, other in zip(ours, theirs, strict=True)
    ]
    return from_pairs(name, unit, theirs[0].name, pairs, 1.0, lower_is_better=True)
