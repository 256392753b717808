import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.security.sasl import authenticate

from headrace.common.errors import ConfigError, SaslAuthenticationFailedError
from headrace.common.principal import Principal
from headrace.security.oauth_validator import InvalidTokenError, VerifiedToken
from headrace.security.oauthbearer import OAuthBearerClient, OAuthBearerServer


class Validator:
    """Accepts the token "good"."""

    def validate(self, token: str) -> VerifiedToken:
        if token != "good":
            raise InvalidTokenError("the token has expired")
        return VerifiedToken("alice", 5000)


def test_message_of_the_rfc() -> None:
    """RFC 7628, section 4.1, without host and port."""
    server = OAuthBearerServer(Validator())
    with pytest.raises(SaslAuthenticationFailedError, match="authorization id that is different"):
        server.respond(b"n,a=user@example.com,\x01auth=Bearer good\x01\x01")
    assert OAuthBearerClient("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==").initial_response() == (
        b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    )


def test_client_and_server() -> None:
    client, server = OAuthBearerClient("good", {"logicalCluster": "lkc-1", "b": "c d"}), OAuthBearerServer(Validator())
    assert client.initial_response() == b"n,,\x01auth=Bearer good\x01logicalCluster=lkc-1\x01b=c d\x01\x01"
    authenticate(client, server)
    assert server.complete
    assert server.principal == Principal("User", "alice")
    assert server.expires_at_ms == 5000
    assert server.extensions == {"logicalCluster": "lkc-1", "b": "c d"}
    with pytest.raises(SaslAuthenticationFailedError, match="complete"):
        server.respond(client.initial_response())


def test_an_invalid_token_is_answered_and_acknowledged() -> None:
    client, server = OAuthBearerClient("stale"), OAuthBearerServer(Validator())
    challenge = server.respond(client.initial_response())
    assert json.loads(challenge) == {"status": "invalid_token", "error_description": "the token has expired"}
    assert not server.complete
    assert client.respond(challenge) == b"\x01"
    assert not client.complete
    with pytest.raises(SaslAuthenticationFailedError, match=r'"status":"invalid_token".*has expired'):
        server.respond(b"\x01")
    with pytest.raises(SaslAuthenticationFailedError, match="invalid_token"):
        server.respond(OAuthBearerClient("good").initial_response())
    assert not server.complete


@pytest.mark.parametrize(
    "message",
    [
        b"n,a=alice,\x01auth=Bearer good\x01\x01",
        b"y,,\x01auth=bearer  good\x01\x01",
        b"n,,\x01x=1\x01auth=BEARER good\x01y=2\x01\x01",
    ],
)
def test_accepted_messages(message: bytes) -> None:
    server = OAuthBearerServer(Validator())
    assert server.respond(message) == b""
    assert server.complete


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"", "wrong header"),
        (b"\x01", "wrong header"),
        (b"p=x,,\x01auth=Bearer good\x01\x01", "wrong header"),
        (b"n,,", "not terminated"),
        (b"n,,\x01auth=Bearer good\x01", "not terminated"),
        (b"n,,\x01\x01", "no bearer token"),
        (b"n,,\x01auth=Basic good\x01\x01", "no bearer token"),
        (b"n,,\x01auth=Bearer a b\x01\x01", "no bearer token"),
        (b"n,,\x01auth=Bearer good\x01auth=Bearer good\x01\x01", "a key is repeated"),
        (b"n,,\x01auth=Bearer good\x01key1=x\x01\x01", "consist of letters"),
        (b"n,,\x01auth=Bearer good\x01key=\x01\x01", "printable"),
        (b"n,,\x01auth=Bearer \xff\x01\x01", "not UTF-8"),
    ],
)
def test_rejected_messages(message: bytes, problem: str) -> None:
    server = OAuthBearerServer(Validator())
    with pytest.raises(SaslAuthenticationFailedError, match=problem):
        server.respond(message)
    assert not server.complete


@pytest.mark.parametrize(
    ("extensions", "problem"),
    [
        ({"a1": "x"}, "letters"),
        ({"auth": "x"}, "name auth"),
        ({"a": "hunter2\x01"}, "extension a"),
        ({"a": 7}, "a must"),
    ],
)
def test_the_client_checks_extensions(extensions: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        OAuthBearerClient("good", extensions)
    assert "hunter2" not in str(caught.value)


def test_the_client_checks_the_characters_of_the_token() -> None:
    with pytest.raises(SaslAuthenticationFailedError, match="characters that are not allowed") as caught:
        OAuthBearerClient("hunter2\x01host=x")
    assert "hunter2" not in str(caught.value)


@given(st.lists(st.binary(max_size=100) | st.text("n,a=\x01uthBerx ", max_size=60), min_size=1, max_size=3))
def test_hostile_bytes(messages: list[bytes | str]) -> None:
    server = OAuthBearerServer(Validator())
    for message in messages:
        with contextlib.suppress(SaslAuthenticationFailedError):
            server.respond(message if isinstance(message, bytes) else message.encode())
        assert not server.complete
