"""Hostile bytes before, during and after authentication, on listeners with SASL, TLS and both: no crash, no memory
growth, and a well-behaved client continues.

`HEADRACE_HOSTILE_CONNECTIONS` is the number of connections per listener, `HEADRACE_HOSTILE_SEED` repeats a run.
"""

import os
import random
import socket
import ssl
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from tests.support.broker.process import eventually
from tests.support.hostile.frames import Frames

import headrace
from headrace.protocol import encode_request
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.testing import EmbeddedBroker, Security, allow

CONNECTIONS = int(os.environ.get("HEADRACE_HOSTILE_CONNECTIONS", "90"))
SEED = int(os.environ.get("HEADRACE_HOSTILE_SEED", "1")) or random.SystemRandom().randrange(1, 2**31)
AT_ONCE = 30
MEMORY_BYTES = 100_000_000
PATIENCE_SECONDS = 60
USERS = {"alice": "alice-secret", "eve": "eve-secret"}
"""eve has no rights, and is hostile."""
LISTENERS = {
    "SASL_PLAINTEXT": Security(users=USERS, acls=[allow("alice", "ALL", topic="t")], mechanism="PLAIN"),
    "SASL_SSL": Security(users=USERS, acls=[allow("alice", "ALL", topic="t")], mechanism="PLAIN", tls=True),
    "SSL": Security(acls=[allow("ANONYMOUS", "ALL", topic="t")], mechanism=None, tls=True),
}
LOGIN = (
    bytes(encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1, "eve")),
    bytes(encode_request(SaslAuthenticateRequest(auth_bytes=b"\0eve\0eve-secret"), 2, 2, "eve")),
)


class Attacker:
    """One connection. Owned by the test."""

    def __init__(self, broker: EmbeddedBroker, security: Security, number: int):
        self.random = random.Random(f"{SEED}/{number}")
        self.frames = Frames(self.random, number)
        self._security = security
        self.sock = socket.create_connection(broker.address, timeout=PATIENCE_SECONDS)

    def attack(self) -> None:
        """Sends hostile bytes, and leaves the connection open."""
        stages: list[Callable[[], None]] = [self.before, self.after]
        if self._security.mechanism is not None:
            stages.append(self.during)
        if self._security.tls:
            stages.append(self.during_tls)
        with suppress(OSError):
            self.random.choice(stages)()

    def before(self) -> None:
        """Noise, requests, TLS and other protocols, on a connection that is not authenticated."""
        if self._security.tls and self.random.random() < 0.5:
            self._start_tls()
        kinds = (self.frames.noise, self.frames.stranger, self.frames.any, self.frames.hostile_size)
        for _ in range(self.random.choice((1, 3))):
            self.sock.sendall(self.random.choice(kinds)())

    def during_tls(self) -> None:
        """A handshake that is changed or incomplete."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self._context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        hello = outgoing.read()
        if self.random.random() < 0.5:
            hello = self.frames.broken(hello)
        self.sock.sendall(hello[: self.random.randrange(1, len(hello) + 1)])
        if self.random.random() < 0.5:
            self.sock.sendall(b"\x17\x03\x03\x40\x00" + self.random.randbytes(self.random.choice((10, 20_000))))

    def during(self) -> None:
        """Tokens that are not valid, parts of tokens, and announced ones that do not come."""
        self._start_tls()
        rng = self.random
        token = rng.randbytes(rng.choice((0, 1, 100, 5000, 100_000)))
        request = bytes(encode_request(SaslAuthenticateRequest(auth_bytes=token), 2, 2, "eve"))
        raw = bytes(encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 0, 1, "eve"))
        self.sock.sendall(
            rng.choice(
                (
                    LOGIN[0] + request,
                    LOGIN[0] + request[: rng.randrange(len(request))],
                    LOGIN[0] + LOGIN[0],
                    LOGIN[0] + self.frames.any(),
                    raw + struct.pack(">i", len(token)) + token,
                    raw + struct.pack(">i", 500_000),
                    self.frames.broken(LOGIN[0]) + request,
                )
            )
        )

    def after(self) -> None:
        """Requests of any kind, authenticated as a user without rights."""
        self._start_tls()
        if self._security.mechanism is not None:
            self.sock.sendall(b"".join(LOGIN))
        for _ in range(3):
            self.sock.sendall(self.frames.any())

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context

    def _start_tls(self) -> None:
        if self._security.tls:
            self.sock = self._context().wrap_socket(self.sock, server_hostname="localhost")


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("listener", LISTENERS)
def test_hostile_bytes(listener: str, caplog: pytest.LogCaptureFixture) -> None:
    print(f"HEADRACE_HOSTILE_SEED={SEED} HEADRACE_HOSTILE_CONNECTIONS={CONNECTIONS}")
    caplog.set_level("ERROR")
    security = LISTENERS[listener]
    with EmbeddedBroker(topics={"t": 1}, security=security) as broker:
        user = "alice" if security.mechanism is not None else None
        config: dict[str, Any] = broker.client_config(user)
        with headrace.Producer({**config, "delivery.timeout.ms": PATIENCE_SECONDS * 2000}) as producer:
            latencies = send(producer)
            memory = 0
            for first in range(0, CONNECTIONS, AT_ONCE):
                with ExitStack() as stack:
                    for number in range(first, first + AT_ONCE):
                        attacker = Attacker(broker, security, number)
                        stack.callback(lambda attacker=attacker: attacker.sock.close())
                        attacker.attack()
                    latencies += send(producer)
                memory = memory or resident_bytes()  # the first round warms up
            assert resident_bytes() - memory < MEMORY_BYTES
            eventually(lambda: open_connections(broker) <= 2, "connections of attackers are closed")
            eventually(lambda: held_bytes(broker) <= 2_000_000, "memory of requests is free again")
            latencies += send(producer)
        latencies.sort()
        print(f"{listener}: median {latencies[len(latencies) // 2]:.1f} ms, largest {latencies[-1]:.1f} ms")
    assert [record.getMessage() for record in caplog.records] == []


def send(producer: headrace.Producer) -> list[float]:
    """Sends records one by one. Returns the milliseconds until each was acknowledged."""
    found = []
    for _ in range(5):
        start = time.perf_counter()
        assert producer.send("t", b"good").get(timeout_ms=PATIENCE_SECONDS * 2000).offset >= 0
        found.append(1000 * (time.perf_counter() - start))
    return found


def open_connections(broker: EmbeddedBroker) -> int:
    return broker.call(lambda running: running.server.connections_open)


def held_bytes(broker: EmbeddedBroker) -> int:
    return broker.call(lambda running: running.server.memory.held_bytes)
