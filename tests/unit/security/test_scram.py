import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.security.sasl import CredentialsInMemory, authenticate

from headrace.common.errors import SaslAuthenticationFailedError
from headrace.common.principal import Principal
from headrace.security.credentials import SCRAM_MECHANISMS, ScramCredential, ScramMechanism, TokenCredential
from headrace.security.scram import ScramClient, ScramKeyCache, ScramServer, UnknownUsers
from headrace.testing.clock import ManualClock

SHA_256, SHA_512 = SCRAM_MECHANISMS["SCRAM-SHA-256"], SCRAM_MECHANISMS["SCRAM-SHA-512"]
SHA_1 = ScramMechanism("SCRAM-SHA-1", 0, "sha1", 20)
UNKNOWN_USERS = UnknownUsers(b"secret")


ALICE = {each.name: ScramCredential.from_password(each, "wonder land") for each in (SHA_256, SHA_512)}


def server_for(mechanism: ScramMechanism = SHA_256, store: CredentialsInMemory | None = None, **options) -> ScramServer:
    store = store or CredentialsInMemory({"alice": ALICE[mechanism.name]})
    return ScramServer(mechanism, store, UNKNOWN_USERS, ManualClock(), **options)


VECTORS = [
    (  # RFC 5802, section 5
        SHA_1,
        "fyko+d2lbbFgONRv9qkxdawL",
        "3rfcNHYJY1ZVvWVs7j",
        "QSXCR+Q6sek8bf92",
        "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    (  # RFC 7677, section 3
        SHA_256,
        "rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
]


@pytest.mark.parametrize(("mechanism", "client_nonce", "server_nonce", "salt", "final", "signature"), VECTORS)
def test_vectors_of_the_rfcs(
    mechanism: ScramMechanism, client_nonce: str, server_nonce: str, salt: str, final: str, signature: str
) -> None:
    credential = ScramCredential.from_password(mechanism, "pencil", 4096, base64.b64decode(salt))
    server = server_for(mechanism, CredentialsInMemory({"user": credential}), nonce=lambda: server_nonce)
    client = ScramClient(mechanism, "user", "pencil", nonce=lambda: client_nonce)

    first = client.initial_response()
    assert first == f"n,,n=user,r={client_nonce}".encode()
    challenge = server.respond(first)
    assert challenge == f"r={client_nonce}{server_nonce},s={salt},i=4096".encode()
    response = client.respond(challenge)
    assert response == final.encode()
    assert not client.complete
    assert not server.complete
    assert server.respond(response) == signature.encode()
    assert client.respond(signature.encode()) == b""
    assert client.complete
    assert server.complete
    assert server.principal == Principal("User", "user")


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("name", ["alice", "a,b=c", "=2C", "βob"])
def test_client_and_server(mechanism: ScramMechanism, name: str) -> None:
    server = server_for(mechanism, CredentialsInMemory({name: ALICE[mechanism.name]}))
    authenticate(ScramClient(mechanism, name, "wonder land"), server)
    assert server.principal == Principal("User", name)
    assert server.expires_at_ms is None


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("mallory", "wonder land")])
def test_wrong_users_and_passwords_get_the_same_answer(user: str, password: str) -> None:
    server = server_for()
    with pytest.raises(SaslAuthenticationFailedError, match=r"^Authentication failed during.*SCRAM-SHA-256$"):
        authenticate(ScramClient(SHA_256, user, password), server)
    assert not server.complete


def test_unknown_users_look_like_known_ones() -> None:
    def challenge(user: str) -> dict[str, str]:
        text = server_for().respond(f"n,,n={user},r=abc".encode()).decode()
        return dict(item.split("=", 1) for item in text.split(","))

    known, unknown = challenge("alice"), challenge("mallory")
    assert [len(value) for value in known.values()] == [len(value) for value in unknown.values()]
    assert known["i"] == unknown["i"]
    assert challenge("mallory")["s"] == unknown["s"], "the same salt again"
    assert challenge("eve")["s"] != unknown["s"]


def test_delegation_tokens() -> None:
    clock = ManualClock()
    owner = Principal("User", "alice")
    token = TokenCredential(ALICE["SCRAM-SHA-256"], owner, clock.time_ms() + 1000)
    store = CredentialsInMemory(tokens={"token-1": token})

    def server() -> ScramServer:
        return ScramServer(SHA_256, store, UNKNOWN_USERS, clock)

    first = server()
    client = ScramClient(SHA_256, "token-1", "wonder land", is_token=True)
    assert client.initial_response().endswith(b",tokenauth=true")
    authenticate(client, first)
    assert first.principal == Principal("User", "alice", token_authenticated=True)
    assert first.expires_at_ms == token.expires_at_ms
    with pytest.raises(SaslAuthenticationFailedError):
        authenticate(ScramClient(SHA_256, "token-1", "wonder land"), server())
    clock.advance(1000)
    with pytest.raises(SaslAuthenticationFailedError):
        authenticate(ScramClient(SHA_256, "token-1", "wonder land", is_token=True), server())


def test_the_final_nonce_must_be_that_of_this_exchange() -> None:
    recorded = server_for(nonce=lambda: "server")
    client = ScramClient(SHA_256, "alice", "wonder land", nonce=lambda: "client")
    final = client.respond(recorded.respond(client.initial_response()))
    recorded.respond(final)

    replayed = server_for(nonce=lambda: "other")
    replayed.respond(client.initial_response())
    with pytest.raises(SaslAuthenticationFailedError, match="Invalid client nonce in the final client message"):
        replayed.respond(final)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=alice",
        b"n,,r=abc,n=alice",
        b"n,,n=,r=abc",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=a b",
        b"n,,m=x,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=a\0b,r=abc",
        b"n,,n=alice,r=" + b"a" * 2000,
        b"n,a=admin,n=alice,r=abc",
    ],
)
def test_rejects_first_messages(message: bytes) -> None:
    with pytest.raises(SaslAuthenticationFailedError):
        server_for().respond(message)


def test_the_authorization_id_must_be_the_user() -> None:
    server_for().respond(b"n,a=alice,n=alice,r=abc")
    with pytest.raises(SaslAuthenticationFailedError, match="different from username"):
        server_for().respond(b"n,a=admin,n=alice,r=abc")


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws,r=clientserver",
        b"c=biws,r=clientserver,p=",
        b"c=biws,r=clientserver,p=AAAA",
        b"c=biws,r=clientserver,p=!",
        b"c=biws,r=clientserver,p=AAA",
        b"c=AAAA,r=clientserver,p=AAAA",
        b"c=biws,r=client,p=AAAA",
        b"\xff",
    ],
)
def test_rejects_final_messages(final: bytes) -> None:
    server = server_for(nonce=lambda: "server")
    server.respond(b"n,,n=alice,r=client")
    with pytest.raises(SaslAuthenticationFailedError):
        server.respond(final)
    assert not server.complete
    with pytest.raises(SaslAuthenticationFailedError, match="over"):
        server.respond(b"n,,n=alice,r=client")


def test_the_header_is_bound_also_with_an_authorization_id() -> None:
    for header in ("n,a=alice,", "y,,"):
        server = server_for(nonce=lambda: "server")
        client = ScramClient(SHA_256, "alice", "wonder land", nonce=lambda: "client")
        client.initial_response()
        challenge = server.respond(f"{header}n=alice,r=client".encode())
        server.respond(client.respond(challenge))
        assert server.complete


@pytest.mark.parametrize(
    ("challenge", "problem"),
    [
        (b"r=client,s=QSXCR+Q6sek8bf92,i=4096", "did not extend"),
        (b"r=other,s=QSXCR+Q6sek8bf92,i=4096", "did not extend"),
        (b"r=client1,s=QSXCR+Q6sek8bf92,i=4095", "asks for 4095 iterations"),
        (b"r=client1,s=QSXCR+Q6sek8bf92,i=999999999", "asks for 999999999 iterations"),
        (b"r=client1,s=A,i=4096", "Invalid SCRAM server first"),
        (b"r=client1,i=4096", "Invalid SCRAM server first"),
        (b"e=other-error", "failed: other-error"),
        (b"\xff", "Invalid SCRAM server first"),
    ],
)
def test_the_client_rejects_first_messages(challenge: bytes, problem: str) -> None:
    client = ScramClient(SHA_256, "alice", "wonder land", nonce=lambda: "client")
    with pytest.raises(SaslAuthenticationFailedError, match=problem):
        client.respond(challenge)
    assert not client.complete


@pytest.mark.parametrize(
    ("final", "problem"),
    [
        (b"v=AAAA", "does not know the password"),
        (b"v=A", "Invalid SCRAM server final"),
        (b"e=invalid-proof", "invalid-proof"),
        (b"", "Invalid SCRAM server final"),
    ],
)
def test_the_client_verifies_the_broker(final: bytes, problem: str) -> None:
    client = ScramClient(SHA_256, "alice", "wonder land")
    client.respond(server_for().respond(client.initial_response()))
    with pytest.raises(SaslAuthenticationFailedError, match=problem):
        client.respond(final)
    assert not client.complete


def test_the_derived_key_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ScramKeyCache()
    first = keys.salted_password(SHA_256, "a", b"salt", 4096)
    derived = []
    monkeypatch.setattr("headrace.security.scram.salted_password", lambda *args: derived.append(args) or b"key")
    assert keys.salted_password(SHA_256, "a", b"salt", 4096) == first
    assert derived == []
    assert keys.salted_password(SHA_256, "b", b"salt", 4096) == b"key"


@given(st.lists(st.one_of(st.binary(max_size=100), st.text("nacrp=,siv +/\0é", max_size=100)), min_size=1, max_size=4))
def test_hostile_bytes(messages: list[bytes | str]) -> None:
    server = server_for()
    failed = False
    for message in messages:
        try:
            server.respond(message if isinstance(message, bytes) else message.encode())
        except SaslAuthenticationFailedError:
            failed = True
    assert failed or len(messages) == 1
    assert not server.complete
