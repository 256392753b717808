import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.common.errors import SaslAuthenticationFailedError
from headrace.security.jaas import JaasEntry
from headrace.security.plain import PlainClient, PlainServer, PlainUsers

USERS = PlainUsers(
    JaasEntry("Plain", {"username": "broker", "password": "x", "user_alice": "wonder land", "user_βob": "pass,=wört"})
)


@pytest.mark.parametrize(("user", "password"), [("alice", "wonder land"), ("βob", "pass,=wört")])
def test_client_and_server(user: str, password: str) -> None:
    client, server = PlainClient(user, password), PlainServer(USERS)
    assert not server.complete
    assert client.respond(server.respond(client.initial_response())) == b""
    assert client.complete
    assert server.complete
    assert str(server.principal) == f"User:{user}"
    assert server.expires_at_ms is None
    assert len(USERS) == 2


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"\0mallory\0wrong", "Invalid username or password"),
        (b"\0broker\0x", "Invalid username or password"),
        (b"\0alice\0wonder land\0", "expected 3 tokens"),
        (b"alice\0wonder land", "expected 3 tokens"),
        (b"", "expected 3 tokens"),
        (b"\0\0wonder land", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"\0\xff\0x", "not UTF-8"),
    ],
)
def test_the_server_rejects(message: bytes, problem: str) -> None:
    server = PlainServer(USERS)
    with pytest.raises(SaslAuthenticationFailedError, match=problem):
        server.respond(message)
    assert not server.complete


def test_the_authorization_id_must_be_the_user() -> None:
    PlainServer(USERS).respond(b"alice\0alice\0wonder land")
    with pytest.raises(SaslAuthenticationFailedError, match="different from username"):
        PlainServer(USERS).respond(b"admin\0alice\0wonder land")


def test_an_exchange_is_used_once() -> None:
    server = PlainServer(USERS)
    server.respond(b"\0alice\0wonder land")
    with pytest.raises(SaslAuthenticationFailedError, match="complete"):
        server.respond(b"\0alice\0wonder land")
    with pytest.raises(SaslAuthenticationFailedError, match="unexpected message"):
        PlainClient("alice", "x").respond(b"hello")


@given(st.binary(max_size=200))
def test_hostile_bytes(message: bytes) -> None:
    server = PlainServer(USERS)
    with pytest.raises(SaslAuthenticationFailedError):
        server.respond(message)
    assert not server.complete
