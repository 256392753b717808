"""The gate before the handlers: only authenticated connections pass, and failures end after a delay."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from headrace.broker import handlers
from headrace.broker.apis import REGISTRY
from headrace.broker.authentication import SaslListener
from headrace.broker.authentication_gate import AuthenticationGate
from headrace.broker.dispatch import Dispatcher
from headrace.common.errors import IllegalSaslStateError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError
from headrace.common.metrics import Metrics
from headrace.common.principal import ANONYMOUS, USER, Principal
from headrace.net.connection import ServerConnection
from headrace.protocol import decode, encode_request
from headrace.protocol.apis import APIS, ApiKey
from headrace.protocol.message import Message
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.testing.clock import ManualClock

ALICE = Principal(USER, "alice")


class Password:
    """A mechanism of one message, the password."""

    def __init__(self) -> None:
        self.complete = False
        self.principal = ALICE
        self.expires_at_ms = None

    def respond(self, message: bytes) -> bytes:
        if message != b"secret":
            raise SaslAuthenticationFailedError("Authentication failed: Invalid username or password")
        self.complete = True
        return b"ok"


class Connection:
    peer = ("127.0.0.1", 1)
    context: Any = None

    def __init__(self, listener_name: str) -> None:
        self.listener_name = listener_name
        self.authentication: Any = None
        self.principal = ANONYMOUS
        self.limit: int | None = None
        self.sent: list[bytes] = []
        self.held = 0
        self.closed = False
        self.finished = False

    def expect_response(self) -> Any:
        return SimpleNamespace(send=self.sent.append)

    def limit_frames(self, max_bytes: int, _: str) -> None:
        self.limit = max_bytes

    def unlimit_frames(self) -> None:
        self.limit = None

    def hold_requests(self) -> None:
        self.held += 1

    def close(self, _: str) -> None:
        self.closed = True

    def finish(self, _: str) -> None:
        self.finished = True


class Setup:
    def __init__(self, listener: str = "SASL", *, delay_ms: int = 0, max_reauth_ms: int = 0):
        handlers.load()
        self.clock = ManualClock()
        self.metrics = Metrics()
        settings = SaslListener({"PASSWORD": Password}, {"PASSWORD": max_reauth_ms}, 1000)
        self.gate = AuthenticationGate({"SASL": settings}, delay_ms, self.clock, self.metrics)
        names = {name for api in REGISTRY.values() for name in api.services}
        services = SimpleNamespace(**{**dict.fromkeys(names), "authentication_gate": self.gate})
        self.dispatcher = Dispatcher(cast(Any, services), self.clock, self.metrics, 1000, 1000)
        self.dispatcher.gate = self.gate
        self.fast: list[bytes] = []
        self.dispatcher.fast_produce = cast(
            Any, SimpleNamespace(handle=lambda frame, _: self.fast.append(bytes(frame)))
        )
        self.connection = Connection(listener)
        self.dispatcher.connection_made(cast(ServerConnection, self.connection))

    def receive(self, frame: bytes) -> None:
        self.dispatcher.frame_received(cast(ServerConnection, self.connection), memoryview(bytearray(frame)))

    def send(self, request: Message, version: int = 1) -> None:
        self.receive(bytes(encode_request(request, version, 7, "client"))[4:])

    def response(self, key: ApiKey, version: int = 1) -> Any:
        frame = self.connection.sent.pop(0)
        position = 9 if APIS[key].is_flexible(version) else 8
        return decode(APIS[key].response, version, memoryview(frame), position)

    def handshake(self, version: int = 1, mechanism: str = "PASSWORD") -> None:
        self.send(SaslHandshakeRequest(mechanism=mechanism), version)

    def log_in(self, password: bytes = b"secret") -> SaslAuthenticateResponse:
        self.handshake()
        handshake: SaslHandshakeResponse = self.response(ApiKey.SASL_HANDSHAKE)
        assert (handshake.error_code, handshake.mechanisms) == (0, ["PASSWORD"])
        self.send(SaslAuthenticateRequest(auth_bytes=password))
        response: SaslAuthenticateResponse = self.response(ApiKey.SASL_AUTHENTICATE)
        return response


def test_nothing_is_served_before_authentication() -> None:
    for frame in (b"\0\0\0\x0c" + bytes(20), b"\0", b"", b"\xff" * 100):
        setup = Setup()
        setup.receive(frame)
        assert setup.fast == []  # not even by the fast path of Produce
        assert setup.connection.sent == []
        assert setup.connection.finished
        setup.receive(frame)
        assert setup.fast == []


def test_requests_are_refused_during_authentication() -> None:
    setup = Setup()
    setup.handshake()
    setup.send(HeartbeatRequest(group_id="g", member_id="m"))
    assert len(setup.connection.sent) == 1
    assert setup.connection.finished


def test_authentication_sets_the_principal_and_lifts_the_limit_of_frames() -> None:
    setup = Setup()
    assert setup.connection.limit == 1000
    response = setup.log_in()
    assert (response.error_code, response.auth_bytes, response.session_lifetime_ms) == (0, b"ok", 0)
    assert setup.connection.principal == ALICE
    assert setup.connection.limit is None
    setup.fast.clear()
    setup.receive(b"\0\0\0\x0c" + bytes(20))
    assert len(setup.fast) == 1
    assert not setup.connection.finished


def test_tokens_without_headers_after_handshake_v0() -> None:
    setup = Setup()
    setup.handshake(version=0)
    setup.response(ApiKey.SASL_HANDSHAKE, 0)
    setup.receive(b"secret")
    assert setup.connection.sent == [b"\0\0\0\x02ok"]
    assert setup.connection.principal == ALICE

    setup = Setup()
    setup.handshake(version=0)
    setup.receive(b"wrong")
    assert len(setup.connection.sent) == 1  # no response to the token, as in Kafka
    assert setup.connection.finished
    assert setup.connection.principal == ANONYMOUS


def test_unknown_mechanism() -> None:
    setup = Setup()
    setup.handshake(mechanism="OTHER")
    response = setup.response(ApiKey.SASL_HANDSHAKE)
    assert (response.error_code, response.mechanisms) == (UnsupportedSaslMechanismError.code, ["PASSWORD"])
    assert setup.connection.finished


def test_a_failure_is_answered_and_closed_after_the_delay() -> None:
    async def run() -> None:
        setup = Setup(delay_ms=20)
        setup.handshake()
        setup.response(ApiKey.SASL_HANDSHAKE)
        setup.send(SaslAuthenticateRequest(auth_bytes=b"wrong"))
        assert setup.connection.held == 1  # reads nothing meanwhile
        assert setup.connection.sent == []
        assert not setup.connection.finished
        async with asyncio.timeout(30):
            while not setup.connection.finished:
                await asyncio.sleep(0.005)
        response = setup.response(ApiKey.SASL_AUTHENTICATE)
        assert response.error_code == SaslAuthenticationFailedError.code
        assert response.error_message == "Authentication failed: Invalid username or password"

    asyncio.run(run())


def test_a_connection_that_was_closed_during_the_delay_gets_no_response() -> None:
    async def run() -> None:
        setup = Setup(delay_ms=1)
        setup.handshake()
        setup.send(SaslAuthenticateRequest(auth_bytes=b"wrong"))
        setup.connection.closed = True
        await asyncio.sleep(0.01)
        assert len(setup.connection.sent) == 1
        assert not setup.connection.finished

    asyncio.run(run())


def test_an_expired_session_may_only_reauthenticate() -> None:
    setup = Setup(max_reauth_ms=5000)
    assert setup.log_in().session_lifetime_ms == 5000
    setup.clock.advance(5001)
    assert setup.log_in().error_code == 0
    setup.clock.advance(5001)
    setup.send(HeartbeatRequest(group_id="g", member_id="m"))
    assert setup.connection.closed
    assert setup.connection.sent == []


def test_sasl_requests_on_other_listeners_and_after_authentication() -> None:
    for setup in (Setup("PLAINTEXT"), Setup()):
        if setup.connection.authentication is not None:
            setup.log_in()
        setup.handshake()
        assert setup.response(ApiKey.SASL_HANDSHAKE).error_code == IllegalSaslStateError.code
        setup.send(SaslAuthenticateRequest(auth_bytes=b"secret"))
        assert setup.response(ApiKey.SASL_AUTHENTICATE).error_code == IllegalSaslStateError.code
        assert not setup.connection.finished
