"""Heartbeats of many groups: the broker's CPU time, and the latency of the responses.

There are 1,000 groups of 10 members. As with real clients, each member has its own connection and sends a heartbeat
every 3 s, the default of all clients. The same load generator measures Headrace and Apache Kafka; the latencies of both
include its own delay. CPU time is that of the broker's process, from /proc.

Both brokers and their groups stay up for all rounds, so the JVM keeps its compiled code. They take turns: the members
of one broker pause while those of the other are measured, with a session timeout that is long enough. The first turn of
each broker is a warm-up and is not counted.

    python -m bench groups [--rounds 5] [--quick]
"""

import asyncio
import gc
import multiprocessing
import random
import struct
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

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
SESSION_MS = 1_200_000  # longer than the turn of the other broker
REBALANCE_MS = 120_000
JOIN, SYNC, HEARTBEAT, FIND = 3, 2, 3, 2  # versions before the two-step join and before tags
READY_SECONDS = 240.0
_HEARTBEAT_RESPONSE = struct.Struct(">iiih")


class Load:
    """The state and the measurements that all members of all groups share."""

    def __init__(self, seed: int = 1):
        self.random = random.Random(seed)
        self.stable = 0
        self.paused = True
        self.waiting: list[Member] = []
        """The members that send no heartbeats during a pause."""
        self.measuring = False
        self.latencies: list[float] = []
        self.errors = 0
        self.lost = 0

    def resume(self) -> None:
        """Ends a pause. The members start at different times."""
        self.paused = False
        waiting, self.waiting = self.waiting, []
        for member in waiting:
            member.schedule(self.random.uniform(0, INTERVAL_SECONDS))

    async def pause(self, members: int) -> None:
        """Starts a pause, and waits until all members have stopped."""
        self.paused = True
        await _await(lambda: len(self.waiting) == members, f"only {len(self.waiting)} of {members} members paused")


async def _await(holds: Callable[[], bool], failure: str, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(failure)
        await asyncio.sleep(0.1)


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
        self.schedule(self._load.random.uniform(0, INTERVAL_SECONDS))

    def schedule(self, delay: float) -> None:
        asyncio.get_running_loop().call_later(delay, self._send_beat)

    def _send_beat(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._load.paused:
            self._load.waiting.append(self)
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
        self.schedule(INTERVAL_SECONDS - taken)


class GroupRun:
    """The result of one broker in one round."""

    def __init__(self, load: Load, cpu_share: float):
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


class GroupLoad:
    """The groups of one broker, in a process of their own, because a process may have few open files."""

    def __init__(self, side: Side, groups: int, members: int):
        context = multiprocessing.get_context("fork")
        self.side = side
        self._commands, commands = context.Pipe()
        self._process = context.Process(target=self._run, args=(groups, members, commands), daemon=True)
        self._process.start()
        self._result()

    def measure(self, seconds: float) -> GroupRun:
        """Lets the groups send heartbeats for a while. Returns the result."""
        self._commands.send(seconds)
        outcome: GroupRun = self._result()
        return outcome

    def _result(self) -> Any:
        result = self._commands.recv()
        if isinstance(result, Exception):
            raise result
        return result

    def close(self) -> None:
        self._process.kill()
        self._process.join()

    # ---- in the process

    def _run(self, groups: int, members: int, commands: Connection) -> None:
        try:
            asyncio.run(self._serve(groups, members, commands))
        except Exception as error:  # noqa: BLE001 - raised in the other process
            commands.send(error)

    async def _serve(self, groups: int, members: int, commands: Connection) -> None:
        load = Load()
        await self._join(load, groups, members)
        commands.send(None)
        while True:
            seconds = await asyncio.get_running_loop().run_in_executor(None, commands.recv)
            commands.send(await self._measure(load, groups * members, seconds))

    async def _join(self, load: Load, groups: int, members: int) -> None:
        loop = asyncio.get_running_loop()
        port = self.side.port
        await _await_coordinator(port, "bench-0")
        for number in range(groups):
            for _ in range(members):
                await loop.create_connection(lambda number=number: Member(load, f"bench-{number}"), HOST, port)  # type: ignore[misc]
        total = groups * members
        await _await(lambda: load.stable == total, f"{self.side.name}: the groups are not stable", READY_SECONDS)
        await load.pause(total)

    async def _measure(self, load: Load, members: int, seconds: float) -> GroupRun:
        load.latencies.clear()
        load.resume()
        await asyncio.sleep(INTERVAL_SECONDS * 2)
        gc.collect()
        gc.disable()  # looking through 10,000 connections takes a tenth of a second, which is not the broker's
        load.measuring = True
        cpu, started = self.side.cpu_seconds(), time.perf_counter()
        await asyncio.sleep(seconds)
        load.measuring = False
        gc.enable()
        outcome = GroupRun(load, (self.side.cpu_seconds() - cpu) / (time.perf_counter() - started))
        await load.pause(members)
        return outcome


def run(directory: Path, rounds: int, *, quick: bool = False) -> tuple[list[Measurement], list[str]]:
    groups, seconds = (GROUPS // 10 if quick else GROUPS), (6.0 if quick else 21.0)
    sides = [Headrace(directory / "headrace"), Kafka(directory / "kafka")]
    loads: list[GroupLoad] = []
    found: list[list[GroupRun]] = [[], []]
    try:
        for side in sides:
            side.start()
            loads.append(GroupLoad(side, groups, MEMBERS))
            loads[-1].measure(seconds)
        for number in range(rounds):
            for place in (0, 1) if number % 2 == 0 else (1, 0):
                outcome = loads[place].measure(seconds)
                found[place].append(outcome)
                print(
                    f"{sides[place].name}: CPU {outcome.cpu_percent:.1f} %, p50 {outcome.p50_ms:.2f} ms, "
                    f"p99 {outcome.p99_ms:.2f} ms, {outcome.count} heartbeats, {outcome.errors} errors",
                    file=sys.stderr,
                )
    finally:
        for load in loads:
            load.close()
        for side in sides:
            side.stop()
    what = f"{groups:,} groups of {MEMBERS} members"
    measurements = [
        _compare(f"{what}: CPU of the broker", "% of a core", found, "cpu_percent"),
        _compare(f"{what}: heartbeat p99", "ms", found, "p99_ms"),
        _compare(f"{what}: heartbeat p50", "ms", found, "p50_ms"),
    ]
    return measurements, [
        f"{seconds:g} s per round; each member has its own connection and sends a heartbeat every "
        f"{INTERVAL_SECONDS:g} s.",
        "Both brokers run with their shipped configs (50 partitions of the offsets topic). They stay up for all rounds "
        "and take turns, after a warm-up that is not counted.",
    ]


def _compare(name: str, unit: str, found: list[list[GroupRun]], field: str) -> Measurement:
    pairs = [(float(getattr(ours, field)), float(getattr(theirs, field))) for ours, theirs in zip(*found, strict=True)]
    return from_pairs(name, unit, Kafka.name, pairs, 1.0, lower_is_better=True)
