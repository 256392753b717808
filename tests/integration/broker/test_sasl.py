"""SASL on the wire: raw exchanges, our clients, re-authentication, and hostile bytes next to a good client."""

import asyncio
import contextlib
import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.support.net.wire_client import ConnectionEnded, WireClient
from tests.support.security.sasl_broker import USERS, add_scram_users, client_config, sasl_broker, sasl_properties
from tests.support.seeds import choose_seed

import headrace
import headrace.aio
from headrace.admin import ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion
from headrace.client.errors import KafkaTimeoutError
from headrace.common.errors import (
    ConfigError,
    IllegalSaslStateError,
    ResourceNotFoundError,
    SaslAuthenticationFailedError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from headrace.protocol import encode_request
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.produce import ProduceRequest
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.testing import EmbeddedBroker
from headrace.testing.clock import ManualClock

ALICE = b"\0alice\0alice-secret"
WRONG = b"\0alice\0wrong"
SASL_MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with sasl_broker() as broker:
        add_scram_users(broker.bootstrap_servers)
        yield broker


def log_in(wire: WireClient, token: bytes = ALICE) -> int:
    assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    response = wire.call(SaslAuthenticateRequest(auth_bytes=token), 2)
    assert response.error_code == 0
    return int(response.session_lifetime_ms)


def assert_closed(wire: WireClient) -> None:
    with pytest.raises((ConnectionEnded, ConnectionError)):
        wire.receive_frame()


# ---- the protocol


def test_handshake_v1(broker: EmbeddedBroker) -> None:
    with WireClient(broker.address) as wire:
        versions = wire.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
        assert {17, 36} <= {entry.api_key for entry in versions.api_keys}
        handshake = wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert (handshake.error_code, handshake.mechanisms) == (0, SASL_MECHANISMS)
        response = wire.call(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
        assert (response.error_code, response.auth_bytes, response.session_lifetime_ms) == (0, b"", 0)
        assert wire.call(MetadataRequest(topics=None)).topics[0].name == "t"
        assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == IllegalSaslStateError.code
        assert wire.call(SaslAuthenticateRequest(auth_bytes=ALICE), 2).error_code == IllegalSaslStateError.code
        assert wire.call(MetadataRequest(topics=[])).error_code == 0


def test_handshake_v0_and_tokens_without_headers(broker: EmbeddedBroker) -> None:
    with WireClient(broker.address) as wire:
        assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == 0
        wire.sock.sendall(struct.pack(">i", len(ALICE)) + ALICE)
        assert wire._receive(4) == b"\0\0\0\0"  # an empty token
        assert wire.call(MetadataRequest(topics=None)).topics[0].name == "t"
    with WireClient(broker.address) as wire:
        assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == 0
        wire.sock.sendall(struct.pack(">i", len(WRONG)) + WRONG)
        assert_closed(wire)


def test_wrong_password_is_answered_before_the_connection_is_closed(broker: EmbeddedBroker) -> None:
    for token in (WRONG, b"\0nobody\0alice-secret"):
        with WireClient(broker.address) as wire:
            wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            response = wire.call(SaslAuthenticateRequest(auth_bytes=token), 2)
            assert response.error_code == SaslAuthenticationFailedError.code
            # The same for a wrong user.
            assert response.error_message == "Authentication failed: Invalid username or password"
            assert_closed(wire)


def test_unknown_mechanism_lists_the_enabled_ones(broker: EmbeddedBroker) -> None:
    with WireClient(broker.address) as wire:
        response = wire.call(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert (response.error_code, response.mechanisms) == (UnsupportedSaslMechanismError.code, SASL_MECHANISMS)
        assert_closed(wire)


def test_other_requests_close_the_connection(broker: EmbeddedBroker) -> None:
    for request in (MetadataRequest(topics=None), ListGroupsRequest(), ProduceRequest(acks=1, timeout_ms=1)):
        for handshake in (False, True):
            with WireClient(broker.address) as wire:
                if handshake:
                    wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
                wire.send(request)
                assert_closed(wire)


def test_pipelined_requests_are_not_served_early(broker: EmbeddedBroker) -> None:
    """A request in the same packet, before or after the authentication."""

    def frames(token: bytes) -> bytes:
        requests = [
            (SaslHandshakeRequest(mechanism="PLAIN"), 1),
            (SaslAuthenticateRequest(auth_bytes=token), 2),
            (MetadataRequest(topics=None), 12),
        ]
        return b"".join(
            bytes(encode_request(request, version, 1, "c"))  # type: ignore[arg-type]
            for request, version in requests
        )

    with WireClient(broker.address) as wire:
        wire.sock.sendall(frames(ALICE))
        assert len([wire.receive_frame() for _ in range(3)]) == 3
    with WireClient(broker.address) as wire:
        wire.sock.sendall(frames(WRONG))
        assert len([wire.receive_frame() for _ in range(2)]) == 2
        assert_closed(wire)


def test_large_frames_are_refused_before_authentication(broker: EmbeddedBroker) -> None:
    with WireClient(broker.address) as wire:
        wire.sock.sendall(struct.pack(">i", 524_289))
        assert_closed(wire)
    with WireClient(broker.address) as wire:
        log_in(wire)
        wire.sock.sendall(struct.pack(">i", 524_289) + b"\0\x03\0\x0c")  # the rest may follow
        wire.sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            wire.sock.recv(1)


# ---- sessions


def test_session_must_be_renewed() -> None:
    clock = ManualClock()
    properties = sasl_properties(connections_max_reauth_ms=5000)
    with EmbeddedBroker(properties, clock=clock) as broker, ExitStack() as stack:
        kept, expired, other = (stack.enter_context(WireClient(broker.address)) for _ in range(3))
        for wire in (kept, expired, other):
            assert log_in(wire) == 5000
        # Not more often than once a second.
        assert kept.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == IllegalSaslStateError.code
        clock.advance(4999)
        for wire in (kept, expired, other):
            assert wire.call(ListGroupsRequest()).error_code == 0
        clock.advance(2)
        assert log_in(kept) == 5000  # even after its end
        assert kept.call(ListGroupsRequest()).error_code == 0
        expired.send(ListGroupsRequest())
        assert_closed(expired)
        other.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        response = other.call(SaslAuthenticateRequest(auth_bytes=b"\0bob\0bob-secret"), 2)
        assert response.error_code == SaslAuthenticationFailedError.code
        assert "Cannot change principals" in response.error_message
        assert_closed(other)


def test_our_clients_renew_their_sessions(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "headrace.net.broker_link")
    with sasl_broker(connections_max_reauth_ms=1500) as broker:
        check_sessions(broker, caplog)


def check_sessions(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    config = client_config(broker.bootstrap_servers)
    with headrace.Producer(config) as producer:
        sent = 0
        deadline = time.monotonic() + 30
        while caplog.text.count("Authenticated again") < 2:
            assert time.monotonic() < deadline
            producer.send("t", b"%d" % sent).get(timeout_ms=10_000)
            sent += 1
            time.sleep(0.05)
    assert "lost" not in caplog.text
    assert caplog.text.count("Connected to") == 1  # never on a new connection
    with headrace.Consumer({**config, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([headrace.TopicPartition("t", 0)])
        values: list[bytes | None] = []
        while len(values) < sent:
            for records in consumer.poll(timeout_ms=1000).values():
                values += [record.value for record in records]
            assert time.monotonic() < deadline
    assert values == [b"%d" % number for number in range(sent)]


# ---- our clients


@pytest.mark.parametrize("mechanism", SASL_MECHANISMS)
def test_right_and_wrong_passwords(broker: EmbeddedBroker, mechanism: str) -> None:
    with headrace.Producer(client_config(broker.bootstrap_servers, mechanism)) as producer:
        assert producer.send("t", b"x").get(timeout_ms=10_000).topic == "t"
    wrong = client_config(broker.bootstrap_servers, mechanism, password="wrong")
    with headrace.Admin(wrong) as admin, pytest.raises(SaslAuthenticationFailedError, match=r"credentials|password"):
        admin.list_topics(timeout_ms=30_000)
    with headrace.Producer(wrong) as producer, pytest.raises(SaslAuthenticationFailedError) as caught:
        producer.send("t", b"x").get(timeout_ms=30_000)
    assert "wrong" not in str(caught.value).replace("wrong credentials", "")
    with headrace.Consumer({**wrong, "group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(SaslAuthenticationFailedError):
            consumer.poll(timeout_ms=30_000)


def test_asyncio_clients(broker: EmbeddedBroker) -> None:
    async def run() -> None:
        async with headrace.aio.Producer(client_config(broker.bootstrap_servers, "SCRAM-SHA-256")) as producer:
            await (await producer.send("t", b"x"))
        wrong = client_config(broker.bootstrap_servers, "SCRAM-SHA-256", password="wrong")
        async with headrace.aio.Admin(wrong) as admin:
            with pytest.raises(SaslAuthenticationFailedError):
                await admin.list_topics(timeout_ms=30_000)

    asyncio.run(run())


def test_wrong_mechanism_and_wrong_protocol_say_what_to_do(broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    with pytest.raises(ConfigError, match=r"sasl\.username is set, but security\.protocol=PLAINTEXT"):
        headrace.Admin({**client_config(servers), "security.protocol": "PLAINTEXT"})
    hint = pytest.raises(KafkaTimeoutError, match=r"check security\.protocol")
    with headrace.Admin({"bootstrap.servers": servers}) as admin, hint:
        admin.list_topics(timeout_ms=5000)
    no_sasl = pytest.raises(IllegalSaslStateError, match=r"this listener has no SASL.*security\.protocol")
    with EmbeddedBroker() as plain, headrace.Admin(client_config(plain.bootstrap_servers)) as admin, no_sasl:
        admin.list_topics(timeout_ms=30_000)


# ---- SCRAM credentials


def test_scram_credentials_take_effect_at_once(broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    with headrace.Admin(client_config(servers)) as admin:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("eve", "SCRAM-SHA-256", "one", 8192)])  # type: ignore[arg-type]
        (info,) = admin.describe_user_scram_credentials(["eve"])["eve"].credential_infos
        assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_256, 8192)
        assert set(admin.describe_user_scram_credentials()) == {*USERS, "eve"}
        eve = {**client_config(servers, "SCRAM-SHA-256"), "sasl.username": "eve", "sasl.password": "one"}
        with headrace.Admin(eve) as own:
            assert own.list_topics() == ["t"]
        results = admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion("eve", ScramMechanism.SCRAM_SHA_256, "two"),
                UserScramCredentialUpsertion("mallory", ScramMechanism.SCRAM_SHA_512, "x", iterations=1),
            ],
            raise_errors=False,
        )
        assert results["eve"].error is None
        assert isinstance(results["mallory"].error, UnacceptableCredentialError)
        with headrace.Admin(eve) as own, pytest.raises(SaslAuthenticationFailedError):
            own.list_topics(timeout_ms=30_000)
        admin.alter_user_scram_credentials([UserScramCredentialDeletion("eve", ScramMechanism.SCRAM_SHA_256)])
        with pytest.raises(ResourceNotFoundError):
            admin.describe_user_scram_credentials(["eve"])


def test_scram_credentials_survive_a_restart() -> None:
    with sasl_broker() as broker:
        add_scram_users(broker.bootstrap_servers)
        broker.restart()
        with headrace.Admin(client_config(broker.bootstrap_servers, "SCRAM-SHA-512")) as admin:
            assert admin.list_topics() == ["t"]


# ---- hostile bytes


def test_hostile_bytes_next_to_a_good_client(broker: EmbeddedBroker) -> None:
    source = random.Random(choose_seed())
    handshake = bytes(encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1, "c"))
    raw_handshake = bytes(encode_request(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0, 1, "c"))

    def garbage() -> bytes:
        size = source.choice((1, 7, 100, 5000, 100_000))
        body = source.randbytes(size)
        token = bytes(encode_request(SaslAuthenticateRequest(auth_bytes=body), 2, 2, "c"))
        return source.choice(
            (
                body,
                struct.pack(">i", size) + body,
                struct.pack(">i", 524_288) + body,
                handshake + body,
                handshake + token,
                handshake + token[: source.randrange(len(token))],
                raw_handshake + struct.pack(">i", size) + body,
                raw_handshake + struct.pack(">i", 500_000),
                struct.pack(">ihhihH", 12, 17, 1, 1, -1, 0x7FFF),
            )
        )

    with headrace.Producer(client_config(broker.bootstrap_servers, "SCRAM-SHA-256")) as producer:
        producer.send("t", b"before").get(timeout_ms=10_000)
        held = 0
        for _ in range(4):
            attackers = [socket.create_connection(broker.address, timeout=20) for _ in range(60)]
            for attacker in attackers:
                with contextlib.suppress(OSError):
                    attacker.sendall(garbage())
            for _ in range(20):
                assert producer.send("t", b"meanwhile").get(timeout_ms=30_000).offset >= 0
            inside = broker._running().broker.server.memory  # type: ignore[attr-defined]
            held = max(held, inside.held_bytes)
            for attacker in attackers:
                attacker.close()
        # At most what they really sent, rounded up to buffers; not what they announced after authentication.
        assert held < 60 * 1_400_000
        deadline = time.monotonic() + 20
        while inside.held_bytes > 1_400_000:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert producer.send("t", b"after").get(timeout_ms=10_000).offset >= 0
