"""The states of a connection's SASL authentication, with a mechanism of the test."""

from collections.abc import Callable

import pytest

from headrace.broker.authentication import SaslAuthentication, SaslListener, SaslState
from headrace.common.errors import (
    IllegalSaslStateError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from headrace.common.principal import ANONYMOUS, USER, Principal
from headrace.protocol.apis import ApiKey
from headrace.security.sasl import ServerMechanism
from headrace.testing.clock import ManualClock

ALICE = Principal(USER, "alice")


class TwoRounds:
    """Wants `hello`, then the user's name."""

    def __init__(self, expires_at_ms: int | None = None):
        self.complete = False
        self.principal = ANONYMOUS
        self.expires_at_ms = expires_at_ms

    def respond(self, message: bytes) -> bytes:
        if message == b"hello":
            return b"who?"
        if message == b"wrong":
            raise SaslAuthenticationFailedError("Authentication failed")
        self.complete = True
        self.principal = Principal(USER, message.decode())
        return b"welcome"


class Setup:
    def __init__(self, max_reauth_ms: int = 0, create: Callable[[], ServerMechanism] = TwoRounds):
        self.clock = ManualClock()
        listener = SaslListener({"TWO": create, "OTHER": create}, {"TWO": max_reauth_ms}, 1000)
        self.sasl = SaslAuthentication(listener, self.clock)

    def log_in(self, user: bytes = b"alice", version: int = 1) -> int:
        self.sasl.handshake(version, "TWO")
        assert self.sasl.authenticate(b"hello") == (b"who?", 0)
        response, lifetime_ms = self.sasl.authenticate(user)
        assert response == b"welcome"
        return lifetime_ms


@pytest.mark.parametrize("version", [0, 1])
def test_an_exchange_of_two_rounds(version: int) -> None:
    setup = Setup()
    assert not setup.sasl.is_authenticated
    setup.sasl.handshake(version, "TWO")
    assert setup.sasl.expects_raw_token == (version == 0)
    setup.sasl.authenticate(b"hello")
    assert not setup.sasl.is_authenticated
    assert setup.sasl.principal == ANONYMOUS
    setup.sasl.authenticate(b"alice")
    assert setup.sasl.is_authenticated
    assert setup.sasl.principal == ALICE
    assert not setup.sasl.is_expired
    assert not setup.sasl.may_reauthenticate


def test_requests_that_are_allowed_in_each_state() -> None:
    setup = Setup()

    def allowed() -> set[ApiKey]:
        found = set()
        for key in ApiKey:
            try:
                setup.sasl.check_request(key)
                found.add(key)
            except IllegalSaslStateError:
                pass
        return found

    assert allowed() == {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}
    setup.sasl.handshake(1, "TWO")
    assert allowed() == {ApiKey.SASL_AUTHENTICATE}
    with pytest.raises(IllegalSaslStateError, match="PRODUCE during SASL authentication"):
        setup.sasl.check_request(ApiKey.PRODUCE)
    with pytest.raises(IllegalSaslStateError, match="API key 999"):
        setup.sasl.check_request(999)
    setup.sasl.fail()
    assert allowed() == set()


def test_wrong_credentials_end_the_authentication() -> None:
    setup = Setup()
    setup.sasl.handshake(1, "TWO")
    with pytest.raises(SaslAuthenticationFailedError):
        setup.sasl.authenticate(b"wrong")
    assert setup.sasl.state is SaslState.FAILED
    with pytest.raises(IllegalSaslStateError):
        setup.sasl.authenticate(b"alice")
    with pytest.raises(IllegalSaslStateError):
        setup.sasl.handshake(1, "TWO")


def test_token_before_the_handshake() -> None:
    with pytest.raises(IllegalSaslStateError):
        Setup().sasl.authenticate(b"hello")


def test_unknown_mechanism() -> None:
    setup = Setup()
    with pytest.raises(UnsupportedSaslMechanismError, match="enabled are TWO, OTHER"):
        setup.sasl.handshake(1, "X" * 10_000)
    assert setup.sasl.state is SaslState.FAILED


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_in_ms", "expected"),
    [(0, None, 0), (5000, None, 5000), (0, 7000, 7000), (5000, 7000, 5000), (9000, 7000, 7000), (5000, -1, 0)],
)
def test_session_lifetime_is_the_shortest_limit(max_reauth_ms: int, expires_in_ms: int | None, expected: int) -> None:
    clock = ManualClock()
    expires_at_ms = None if expires_in_ms is None else clock.time_ms() + expires_in_ms
    setup = Setup(max_reauth_ms, lambda: TwoRounds(expires_at_ms))
    assert setup.log_in() == expected
    assert setup.sasl.is_expired is False
    setup.clock.advance(expected + 1)
    assert setup.sasl.is_expired == (max_reauth_ms > 0 or expires_in_ms is not None)


def test_reauthentication_extends_the_session() -> None:
    setup = Setup(5000)
    setup.log_in()
    setup.clock.advance(999)
    assert not setup.sasl.may_reauthenticate  # at most once a second
    setup.clock.advance(4002)
    assert setup.sasl.is_expired
    assert setup.sasl.may_reauthenticate
    setup.sasl.handshake(1, "TWO")
    assert not setup.sasl.is_authenticated  # nothing is served meanwhile
    with pytest.raises(IllegalSaslStateError):
        setup.sasl.check_request(ApiKey.METADATA)
    setup.sasl.authenticate(b"hello")
    setup.sasl.authenticate(b"alice")
    assert setup.sasl.is_authenticated
    assert not setup.sasl.is_expired


def test_reauthentication_keeps_principal_and_mechanism() -> None:
    setup = Setup(5000)
    setup.log_in()
    setup.clock.advance(2000)
    setup.sasl.handshake(1, "TWO")
    setup.sasl.authenticate(b"hello")
    with pytest.raises(SaslAuthenticationFailedError, match=r"Cannot change principals .* from User\.alice"):
        setup.sasl.authenticate(b"bob")
    assert setup.sasl.principal == ALICE
    assert not setup.sasl.is_authenticated

    setup = Setup(5000)
    setup.log_in()
    setup.clock.advance(2000)
    with pytest.raises(SaslAuthenticationFailedError, match="must not change"):
        setup.sasl.handshake(1, "OTHER")
    assert not setup.sasl.is_authenticated
