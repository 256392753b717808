"""The client's exchange over a connection of the test."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.common.errors import (
    IllegalSaslStateError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from headrace.net.broker_connection import BrokerConnection
from headrace.net.errors import IncompatibleBrokerVersion, KafkaConnectionError
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.security.sasl_authenticator import SaslAuthenticator


class TwoRounds:
    name = "TWO"
    blocking = False
    complete = False

    def initial_response(self) -> bytes:
        return b"hello"

    def respond(self, challenge: bytes) -> bytes:
        if challenge == b"welcome":
            self.complete = True
            return b""
        return b"answer to " + challenge


class Broker:
    """Answers the requests of one connection."""

    node = SimpleNamespace(host="h")
    longest_wait_ms = 500.0

    def __init__(self, *responses: Any) -> None:
        self.responses = list(responses)
        self.requests: list[Any] = []
        self.timeouts: list[float] = []

    def version_for(self, key: int, min_version: int | None = None, max_version: int | None = None) -> int:
        return 1

    async def send(self, request: Any, version: int, timeout_ms: float) -> Any:
        assert version == 1
        self.requests.append(request)
        self.timeouts.append(timeout_ms)
        response = self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return response


def token(value: bytes, lifetime_ms: int = 0) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(auth_bytes=value, session_lifetime_ms=lifetime_ms)


def authenticate(broker: Broker, mechanism: Any = None) -> float | None:
    async def make(_host: str) -> Any:
        return mechanism or TwoRounds()

    login = cast(Any, SimpleNamespace(mechanism=make))
    authenticator = SaslAuthenticator(login, random.Random(1), 1000)
    return asyncio.run(authenticator(cast(BrokerConnection, broker)))


@pytest.mark.parametrize("blocking", [False, True])
def test_two_rounds(blocking: bool) -> None:
    mechanism = TwoRounds()
    mechanism.blocking = blocking
    broker = Broker(SaslHandshakeResponse(), token(b"who?"), token(b"welcome"))
    assert authenticate(broker, mechanism) is None
    assert broker.requests == [
        SaslHandshakeRequest(mechanism="TWO"),
        SaslAuthenticateRequest(auth_bytes=b"hello"),
        SaslAuthenticateRequest(auth_bytes=b"answer to who?"),
    ]
    assert broker.timeouts == [1500] * 3  # responses to earlier requests come first


def test_authenticates_again_before_the_session_ends() -> None:
    after = authenticate(Broker(SaslHandshakeResponse(), token(b"welcome", 10_000)))
    assert after is not None
    assert 8.5 <= after <= 9.5


def test_errors_say_what_to_do() -> None:
    enabled = SaslHandshakeResponse(error_code=UnsupportedSaslMechanismError.code, mechanisms=["PLAIN", "GSSAPI"])
    with pytest.raises(UnsupportedSaslMechanismError, match=r"enabled: PLAIN, GSSAPI\. Set sasl\.mechanism"):
        authenticate(Broker(enabled))
    with pytest.raises(IllegalSaslStateError, match=r"security\.protocol"):
        authenticate(Broker(SaslHandshakeResponse(error_code=IllegalSaslStateError.code)))
    refused = SaslAuthenticateResponse(error_code=SaslAuthenticationFailedError.code, error_message="Wrong password")
    with pytest.raises(SaslAuthenticationFailedError, match="with TWO: Wrong password") as caught:
        authenticate(Broker(SaslHandshakeResponse(), refused))
    assert not caught.value.retriable
    with pytest.raises(KafkaConnectionError, match="lost during the SASL authentication with TWO"):
        authenticate(Broker(SaslHandshakeResponse(), KafkaConnectionError("lost", sent=True)))


def test_broker_without_sasl() -> None:
    class Old(Broker):
        def version_for(self, key: int, min_version: int | None = None, max_version: int | None = None) -> int:
            raise IncompatibleBrokerVersion("no SaslHandshake")

    with pytest.raises(IllegalSaslStateError, match="does not support SASL"):
        authenticate(Old())


def test_a_broker_cannot_keep_the_client_busy() -> None:
    with pytest.raises(SaslAuthenticationFailedError, match="did not complete"):
        authenticate(Broker(SaslHandshakeResponse(), *[token(b"again")] * 100))
