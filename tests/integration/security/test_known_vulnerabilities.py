"""Vulnerabilities that Apache Kafka and its clients had, tried against a broker with SASL and ACLs.

The table in docs/security.md lists them. `test_known_vulnerabilities_of_clients.py` has those of clients.
"""

import ast
import gzip
import mmap
import re
import socket
import struct
import sys
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

import cramjam
import pytest
from tests.support.broker.process import eventually
from tests.support.net.wire_calls import batch, end_offset, fetch_request, produce_request
from tests.support.net.wire_client import ConnectionEnded, WireClient
from tests.support.security.oauth import Issuer, unsecured_token
from tests.support.security.sasl import CredentialsInMemory
from tests.support.security.sasl_broker import USERS, client_config, jaas, sasl_broker, sasl_properties

import headrace
from headrace.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    ConfigResourceType,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from headrace.broker.config.sasl import SaslConfig, SaslListenerConfig, SaslMechanismConfig
from headrace.broker.sasl_listeners import BrokerLogin
from headrace.broker.server import Broker
from headrace.common.errors import (
    ConfigError,
    InvalidConfigurationError,
    InvalidRecordError,
    InvalidRequestError,
    SaslAuthenticationFailedError,
    TelemetryTooLargeError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from headrace.common.ids import make_random
from headrace.protocol import APIS, ApiKey, encode_request
from headrace.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.push_telemetry import PushTelemetryRequest
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.security.credentials import SCRAM_MECHANISMS, ScramCredential
from headrace.security.jaas import parse_jaas_for
from headrace.security.oauthbearer import OAuthBearerClient
from headrace.security.plain import PlainServer, PlainUsers
from headrace.security.sasl_keys import VALIDATORS
from headrace.security.scram import ScramClient, ScramServer, UnknownUsers
from headrace.testing import EmbeddedBroker
from headrace.testing.clock import ManualClock

SHA_256 = SCRAM_MECHANISMS["SCRAM-SHA-256"]
ALLOW = ACLPermissionType.ALLOW
ALL_TOPICS = ResourcePattern(ResourceType.TOPIC, "t")
WRONG_JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
READ = ACL("User:alice", "*", ACLOperation.READ, ALLOW, ALL_TOPICS)
WRITE = ACL("User:alice", "*", ACLOperation.WRITE, ALLOW, ALL_TOPICS)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """alice may read and write the topic t."""
    with sasl_broker(authorizer_class_name="headrace", super_users="User:broker") as broker:
        with headrace.Admin(client_config(broker.bootstrap_servers, user="broker")) as admin:
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion("alice", ScramMechanism.SCRAM_SHA_256, USERS["alice"])]
            )
            admin.create_acls([READ, WRITE])
        yield broker


@pytest.fixture
def wire(broker: EmbeddedBroker) -> Iterator[WireClient]:
    """A connection that is not authenticated."""
    with WireClient(broker.address, timeout=60) as wire:
        yield wire


def log_in(wire: WireClient, user: str = "alice") -> WireClient:
    assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    token = f"\0{user}\0{USERS[user]}".encode()
    assert wire.call(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0
    return wire


def refused(wire: WireClient, token: bytes, mechanism: str | None = "PLAIN") -> str:
    """Sends a token that must be refused. Returns the message."""
    if mechanism is not None:
        assert wire.call(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    response = wire.call(SaslAuthenticateRequest(auth_bytes=token), 2)
    assert response.error_code == SaslAuthenticationFailedError.code
    assert_closed(wire)
    return str(response.error_message)


def assert_closed(wire: WireClient) -> None:
    with pytest.raises((ConnectionEnded, ConnectionError)):
        wire.receive_frame()


# ---- declared sizes


FIXED_COUNT = b"\x7f\xff\xff\xff"
VARINT_COUNT = b"\xff\xff\xff\xff\x07"


def claims(key: ApiKey) -> Iterator[bytes]:
    """Yields requests with a huge count at the first and the last bytes: of an array, of tags, or of a tag's size."""
    api = APIS[key]
    version = api.last_version
    whole = bytes(encode_request(api.request(), version, 1, "c"))[4:]
    is_flexible = api.is_flexible(version)
    count = VARINT_COUNT if is_flexible else FIXED_COUNT
    header = 11 + is_flexible
    for position in {header - is_flexible, header, (header + len(whole)) // 2, len(whole) - 1}:
        frame = whole[:position] + count + whole[position + len(count) :]
        yield len(frame).to_bytes(4) + frame


def test_huge_declared_counts(broker: EmbeddedBroker) -> None:
    """CVE-2026-111108 and CVE-2026-111115: counts far beyond the request's size, before and after authentication."""
    unauthenticated = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    frames = [(False, frame) for key in unauthenticated for frame in claims(key)]
    frames += [(True, frame) for key in APIS for frame in claims(key)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for authenticated, frame in frames:
            with WireClient(broker.address, timeout=60) as wire:
                if authenticated:
                    log_in(wire, "bob")
                with suppress(OSError):
                    wire.sock.sendall(frame)
                    wire.sock.shutdown(socket.SHUT_WR)
                    while wire.sock.recv(65_536):
                        pass
        assert tracemalloc.get_traced_memory()[1] - before < 50_000_000
    finally:
        tracemalloc.stop()
    with WireClient(broker.address, timeout=60) as wire:
        assert log_in(wire).call(MetadataRequest(topics=None)).topics[0].name == "t"


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_large_frames_before_authentication(broker: EmbeddedBroker) -> None:
    """CVE-2022-34917: clients without a password announce large requests, and large strings in small ones."""
    with ExitStack() as stack:
        wires = [stack.enter_context(WireClient(broker.address, timeout=60)) for _ in range(200)]
        before = resident_bytes()
        for number, wire in enumerate(wires):
            size = 524_288 if number % 4 else 100_000_000  # the first is allowed
            with suppress(ConnectionError):
                wire.sock.sendall(struct.pack(">ihhih", size, 17, 1, 1, 0x7FFF) + b"x" * 100)
        for wire in wires[::4]:
            assert_closed(wire)
        with WireClient(broker.address, timeout=60) as good:
            assert log_in(good).call(MetadataRequest(topics=None)).topics[0].name == "t"
        # 150 buffers of 1.3 MB are mapped, but not touched.
        assert resident_bytes() - before < 60_000_000


CODECS = {
    1: lambda data: gzip.compress(data),
    2: lambda data: bytes(cramjam.snappy.compress(data)),
    3: lambda data: bytes(cramjam.lz4.compress(data)),
    4: lambda data: bytes(cramjam.zstd.compress(data)),
}


def test_inflating_telemetry() -> None:
    """CVE-2026-111073: pushed metrics that are small, and huge when they are decompressed."""
    bomb = bytes(50_000_000)
    with EmbeddedBroker({"headrace.metrics.listener": "127.0.0.1:0"}) as broker:
        with headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            configs = {"metrics": "*", "interval.ms": "100"}
            admin.alter_configs([ConfigResource(ConfigResourceType.CLIENT_METRICS, "all", configs)])
        for codec, compress in CODECS.items():
            pushed = compress(bomb) if codec != 2 else compress(bomb[:20_000_000])
            with WireClient(broker.address, timeout=60) as wire:

                def subscription(wire: WireClient = wire) -> Any:
                    return wire.call(GetTelemetrySubscriptionsRequest())

                eventually(lambda: subscription().requested_metrics, "the subscription takes effect")
                found = subscription()
                push = PushTelemetryRequest(
                    client_instance_id=found.client_instance_id,
                    subscription_id=found.subscription_id,
                    compression_type=codec,
                    metrics=pushed,
                )
                tracemalloc.start()
                try:
                    code = wire.call(push).error_code
                    assert tracemalloc.get_traced_memory()[1] < 30_000_000
                finally:
                    tracemalloc.stop()
                assert code in (TelemetryTooLargeError.code, InvalidRecordError.code), codec


# ---- OAuth


def test_oauth_without_keys_does_not_start() -> None:
    """CVE-2026-110985 and CVE-2026-33557: a validator without keys would accept every token."""
    properties = sasl_properties(sasl_enabled_mechanisms="PLAIN,OAUTHBEARER")
    for validator in (None, *VALIDATORS):
        more = {} if validator is None else {"sasl.oauthbearer.jwt.validator.class": validator}
        with pytest.raises(ConfigError, match="needs the keys of the issuer"), EmbeddedBroker(properties | more):
            pass


def test_oauth_tokens_that_the_issuer_has_not_signed(tmp_path: Path) -> None:
    """CVE-2026-110985 and CVE-2026-33557: also with the default validator, signatures are verified."""
    issuer, other = Issuer(), Issuer()
    keys = tmp_path / "keys.json"
    keys.write_bytes(issuer.jwks_text())
    properties = sasl_properties(
        sasl_enabled_mechanisms="PLAIN,OAUTHBEARER", sasl_oauthbearer_jwks_endpoint_url=keys.as_uri()
    )
    now = int(time.time())
    claims = {"sub": "alice", "iat": now, "exp": now + 3600}
    good = issuer.sign(claims)
    header, payload, signature = good.split(".")
    with EmbeddedBroker(properties) as broker:
        for token in (
            unsecured_token(claims),
            unsecured_token(claims, "HS256", signature),
            other.sign(claims),
            f"{header}.{payload}.",
            f"{header}.{payload}.{signature[:-4]}AAAA",
            f"{unsecured_token(claims, 'none').split('.')[0]}.{payload}.{signature}",
            issuer.sign({**claims, "exp": now - 3600}),
        ):
            with WireClient(broker.address, timeout=60) as wire:
                assert wire.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == 0
                message = OAuthBearerClient(token).initial_response()
                response = wire.call(SaslAuthenticateRequest(auth_bytes=message), 2)
                assert b"invalid_token" in response.auth_bytes
                assert refused(wire, b"\1", None)
        with WireClient(broker.address, timeout=60) as wire:
            assert wire.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == 0
            message = OAuthBearerClient(good).initial_response()
            assert wire.call(SaslAuthenticateRequest(auth_bytes=message), 2).error_code == 0


@pytest.fixture
def requests() -> Iterator[list[str]]:
    """The requests that a server on loopback got; the last element is its address."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)

        def do_POST(self) -> None:
            paths.append(self.path)

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        paths.append(f"127.0.0.1:{server.server_port}")
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield paths
        server.shutdown()
        thread.join()


def test_jwks_urls_must_be_allowed(requests: list[str]) -> None:
    """CVE-2025-27817: a URL in a config must not make a broker send requests into its network."""
    (address,) = requests
    for url in (f"http://{address}/keys", f"https://{address}/keys", f"https://user@{address}/", "ftp://localhost/k"):
        properties = sasl_properties(
            sasl_enabled_mechanisms="PLAIN,OAUTHBEARER", sasl_oauthbearer_jwks_endpoint_url=url
        )
        with pytest.raises(ConfigError, match=r"jwks\.endpoint\.url"), EmbeddedBroker(properties):
            pass
    assert requests == [address]


def test_token_urls_of_brokers_must_be_allowed(requests: list[str]) -> None:
    """CVE-2025-27817: also where a broker gets the tokens with which it logs in to other brokers."""
    url = f"http://{requests[0]}/token"
    values = {
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.credentials.client.id": "broker",
        "sasl.oauthbearer.client.credentials.client.secret": "secret",
    }

    def login(**more: object) -> BrokerLogin:
        mechanisms = {"OAUTHBEARER": SaslMechanismConfig(0, {**values, **more})}
        config = SaslConfig({"L": SaslListenerConfig(mechanisms, 1000)}, "OAUTHBEARER", 0)
        return BrokerLogin("L", config, ManualClock(), make_random(), 1000)

    with pytest.raises(ConfigError, match=r"is not allowed: add the URL to headrace\.oauthbearer\.allowed\.urls"):
        login()
    login(**{"headrace.oauthbearer.allowed.urls": (url,)})
    assert len(requests) == 1


def test_urls_and_login_modules_do_not_change_at_run_time(broker: EmbeddedBroker, requests: list[str]) -> None:
    """CVE-2025-27817 and CVE-2023-25194: who may alter configs gets neither requests nor classes."""
    module = 'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://127.0.0.1";'
    attempts = {
        "sasl.oauthbearer.jwks.endpoint.url": f"https://{requests[0]}/",
        "sasl.oauthbearer.token.endpoint.url": f"https://{requests[0]}/",
        "headrace.oauthbearer.allowed.urls": f"https://{requests[0]}/",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": module,
        "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": f"https://{requests[0]}/",
        "authorizer.class.name": "os.system",
        "super.users": "User:alice",
    }
    with headrace.Admin(client_config(broker.bootstrap_servers, user="broker")) as admin:
        for name, value in attempts.items():
            with pytest.raises((InvalidConfigurationError, InvalidRequestError)):
                admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, "", {name: value})])
    assert len(requests) == 1


# ---- SASL


def test_scram_final_nonce(broker: EmbeddedBroker) -> None:
    """CVE-2024-56128: a recorded final message is not accepted in another exchange."""
    client = ScramClient(SHA_256, "alice", USERS["alice"])
    first = client.initial_response()
    with WireClient(broker.address, timeout=60) as wire:
        assert wire.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
        challenge = wire.call(SaslAuthenticateRequest(auth_bytes=first), 2).auth_bytes
        final = client.respond(bytes(challenge))
        assert wire.call(SaslAuthenticateRequest(auth_bytes=final), 2).error_code == 0
    for change in (lambda final, _: final, change_nonce):
        with WireClient(broker.address, timeout=60) as wire:
            assert wire.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
            challenge = bytes(wire.call(SaslAuthenticateRequest(auth_bytes=first), 2).auth_bytes)
            assert refused(wire, change(final, challenge), None)


def change_nonce(final: bytes, challenge: bytes) -> bytes:
    """Puts the nonce of another exchange into a recorded message."""
    return re.sub(rb"r=[^,]*", lambda _: challenge.split(b",")[0], final)


def test_foreign_authorization_ids(broker: EmbeddedBroker) -> None:
    """CVE-2017-12610: a user who acts as another one. tests/compat/security/test_kerberos.py has GSSAPI."""
    with WireClient(broker.address, timeout=60) as wire:
        assert "different from username" in refused(wire, b"broker\0alice\0" + USERS["alice"].encode())
    with WireClient(broker.address, timeout=60) as wire:
        assert "different from username" in refused(wire, b"n,a=broker,n=alice,r=nonce", "SCRAM-SHA-256")
    with WireClient(broker.address, timeout=60) as wire:
        own = b"alice\0alice\0" + USERS["alice"].encode()
        wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert wire.call(SaslAuthenticateRequest(auth_bytes=own), 2).error_code == 0


def calls_of(step: Callable[[], object]) -> list[str]:
    """Returns the names of all functions that a failing step calls, also those of the standard library."""
    names: list[str] = []

    def record(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            names.append(frame.f_code.co_qualname)
        elif event == "c_call":
            names.append(getattr(argument, "__qualname__", ""))

    sys.setprofile(record)
    try:
        with suppress(SaslAuthenticationFailedError):
            step()
    finally:
        sys.setprofile(None)
    return names


def test_plain_does_the_same_for_unknown_users() -> None:
    """CVE-2021-38153: the time of a comparison tells nothing about passwords, and whether there is such a user."""
    users = PlainUsers(parse_jaas_for("PLAIN", jaas()))
    wrong_password = calls_of(lambda: PlainServer(users).respond(b"\0alice\0wrong"))
    unknown_user = calls_of(lambda: PlainServer(users).respond(b"\0nobody\0wrong"))
    almost = calls_of(lambda: PlainServer(users).respond(b"\0alice\0alice-secreT"))
    assert wrong_password == unknown_user == almost
    assert "compare_digest" in wrong_password


def test_scram_does_the_same_for_unknown_users() -> None:
    """CVE-2021-38153."""
    store = CredentialsInMemory({"alice": ScramCredential.from_password(SHA_256, "secret")})
    unknown = UnknownUsers()

    def exchange(user: str) -> list[str]:
        server = ScramServer(SHA_256, store, unknown, ManualClock())
        client = ScramClient(SHA_256, user, "wrong")
        first = client.initial_response()
        challenges: list[bytes] = []
        names = calls_of(lambda: challenges.append(server.respond(first)))
        final = client.respond(challenges[0])
        names += calls_of(lambda: server.respond(final))
        return [name for name in names if re.search("hash|digest|hmac|hex|b64|xor", name, re.IGNORECASE)]

    known = exchange("alice")
    assert known.count("compare_digest") == 2
    assert known == exchange("nobody")


def test_secrets_are_compared_in_constant_time() -> None:
    """CVE-2021-38153: the code of security has no == with a digest, a proof, a signature or a password."""
    secret = re.compile(r"password|proof|signature|digest\b|stored_key|server_key|hmac", re.IGNORECASE)
    found = []
    for path in Path(headrace.__file__).parent.joinpath("security").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
                text = ast.unparse(node)
                if secret.search(text) and "len(" not in text and "set(" not in text:
                    found.append(f"{path.name}:{node.lineno}: {text}")
    assert found == []


# ---- rights


def followers(broker: EmbeddedBroker) -> tuple[list[int], list[int]]:
    """Returns the in-sync replicas of the topic t and its known followers."""

    def inspect(running: Broker) -> tuple[list[int], list[int]]:
        partition = running.replicas.get("t", 0)
        assert partition is not None
        return list(partition.isr), list(partition.followers)

    return broker.call(inspect)


def test_fetch_as_a_replica_without_the_right(broker: EmbeddedBroker, wire: WireClient) -> None:
    """CVE-2018-1288: a consumer that poses as a follower reads no records, and changes no follower's state."""
    log_in(wire)
    assert wire.call(produce_request(batch(b"x")), 12).responses[0].partition_responses[0].error_code == 0
    before = followers(broker)
    for replica_id in (0, 1, 7):
        for offset in (0, end_offset(wire), 1 << 40):
            request = fetch_request(offset, replica_id=replica_id)
            partition = wire.call(request, 12).responses[0].partitions[0]
            assert partition.error_code == TopicAuthorizationFailedError.code
            assert not partition.records
    assert followers(broker) == before


@pytest.mark.parametrize("transactional_id", [None, "foreign"])
def test_transactional_produce_without_the_right(
    broker: EmbeddedBroker, wire: WireClient, transactional_id: str | None
) -> None:
    """CVE-2018-17196, CVE-2019-12399: alice may write to the topic, but has no right on any transactional id. A batch
    with the flag of a transaction is refused, also without a transactional id, and next to ordinary batches."""
    log_in(wire)
    forged = batch(b"forged", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    before = end_offset(wire)
    denied = TransactionalIdAuthorizationFailedError.code
    init = InitProducerIdRequest(transactional_id=transactional_id or "mine", transaction_timeout_ms=60_000)
    assert wire.call(init, 4).error_code == denied
    request = produce_request(forged, acks=-1)
    request.transactional_id = transactional_id
    with suppress(ConnectionEnded):  # as allowed as an error
        response = wire.call(request, 11)
        codes = {part.error_code for topic in response.responses for part in topic.partition_responses}
        assert codes == {denied}
    with WireClient(broker.address, timeout=60) as other:
        assert end_offset(log_in(other)) == before


def test_removal_of_one_of_several_acls(broker: EmbeddedBroker) -> None:
    """CVE-2024-27309: the other ACLs of the resource stay in effect."""
    deny = ACL("User:bob", "*", ACLOperation.READ, ACLPermissionType.DENY, ALL_TOPICS)
    allow = ACL("User:*", "*", ACLOperation.READ, ALLOW, ALL_TOPICS)
    with (
        headrace.Admin(client_config(broker.bootstrap_servers, user="broker")) as admin,
        WireClient(broker.address, timeout=60) as wire,
    ):
        log_in(wire, "bob")

        def code() -> int:
            return int(wire.call(fetch_request(0), 12).responses[0].partitions[0].error_code)

        admin.create_acls([deny, allow])
        assert code() == TopicAuthorizationFailedError.code
        admin.delete_acls([READ])
        assert code() == TopicAuthorizationFailedError.code
        assert {deny, allow, WRITE} <= set(admin.describe_acls())
        admin.delete_acls([deny])
        assert code() == 0
        admin.delete_acls([allow])
        assert code() == TopicAuthorizationFailedError.code
        admin.create_acls([READ])


# ---- secrets


def test_describe_configs_shows_no_secrets(broker: EmbeddedBroker) -> None:
    with headrace.Admin(client_config(broker.bootstrap_servers, user="broker")) as admin:
        described = admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, "0")])
        shown = repr(list(described.values())) + repr(admin.describe_user_scram_credentials())
    assert "sasl" in shown
    assert not [secret for secret in USERS.values() if secret in shown]


def test_logs_and_errors_show_no_secrets(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    errors = []
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        for user, password in (("alice", USERS["alice"]), ("alice", USERS["bob"]), ("nobody", USERS["broker"])):
            config = {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.username": user,
                "sasl.password": password,
            }
            try:
                with headrace.Admin(config) as admin:
                    assert admin.list_topics(timeout_ms=60_000) == ["t"]
            except SaslAuthenticationFailedError as error:
                errors.append(error)
    with pytest.raises(ConfigError) as caught, EmbeddedBroker(sasl_properties() | {WRONG_JAAS: jaas()[:-1]}):
        pass
    assert len(errors) == 4
    shown = "".join("".join(traceback.format_exception(error)) for error in [*errors, caught.value]) + caplog.text
    assert "refused the authentication" in caplog.text
    assert not [secret for secret in USERS.values() if secret in shown]
