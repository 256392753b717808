"""Delegation tokens: created and renewed by our admin clients, and used to log in."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.net.wire_client import ConnectionEnded, WireClient
from tests.support.security.sasl_broker import MODULES, client_config, sasl_broker, sasl_properties

import headrace
import headrace.aio
from headrace.admin import DelegationToken, TokenInformation
from headrace.client.errors import IllegalArgumentError
from headrace.common.errors import (
    DelegationTokenAuthDisabledError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    DelegationTokenRequestNotAllowedError,
    InvalidPrincipalTypeError,
    SaslAuthenticationFailedError,
)
from headrace.common.principal import Principal
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.security.credentials import SCRAM_MECHANISMS
from headrace.security.scram import ScramClient
from headrace.testing import EmbeddedBroker
from headrace.testing.clock import ManualClock

KEY = {"delegation.token.secret.key": "a-secret-key"}
HOUR_MS = 60 * 60 * 1000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with sasl_broker(**KEY) as broker:
        yield broker


def token_config(servers: str, token: DelegationToken, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
    """Returns the configs of a client that logs in with a token."""
    login = (
        f'{MODULES[mechanism]} required username="{token.token_info.token_id}" '
        f'password="{token.hmac_as_base64_string}" tokenauth="true";'
    )
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": login,
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_login(broker: EmbeddedBroker, mechanism: str) -> None:
    servers = broker.bootstrap_servers
    with headrace.Admin(client_config(servers)) as admin:
        token = admin.create_delegation_token(["User:bob"])
        assert token.token_info.owner == token.token_info.token_requester == "User:alice"
        assert token.hmac_as_base64_string not in repr(token)
        config = token_config(servers, token, mechanism)
        with headrace.Producer(config) as producer:
            assert producer.send("t", b"x").get(timeout_ms=30_000).topic == "t"
        with headrace.Admin(config) as with_token:
            assert with_token.list_topics() == ["t"]
            for call in (
                with_token.create_delegation_token,
                with_token.describe_delegation_token,
                lambda: with_token.renew_delegation_token(token),
                lambda: with_token.expire_delegation_token(token),
            ):
                with pytest.raises(DelegationTokenRequestNotAllowedError):
                    call()
        # The id is the name of a token, not of a user, and the HMAC is its only password.
        as_user = {**config, "sasl.jaas.config": config["sasl.jaas.config"].replace(' tokenauth="true"', "")}
        wrong = token_config(servers, DelegationToken(token.token_info, b"x" * 64), mechanism)
        for bad in (as_user, wrong):
            with headrace.Admin(bad) as refused, pytest.raises(SaslAuthenticationFailedError):
                refused.list_topics(timeout_ms=30_000)
        assert admin.expire_delegation_token(token) >= token.token_info.issue_timestamp
        with headrace.Admin(config) as late, pytest.raises(SaslAuthenticationFailedError):
            late.list_topics(timeout_ms=30_000)
        with pytest.raises(DelegationTokenNotFoundError):
            admin.renew_delegation_token(token)


def test_who_may_do_what(broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    with headrace.Admin(client_config(servers)) as alice, headrace.Admin(client_config(servers, user="bob")) as bob:
        own = alice.create_delegation_token(max_lifetime_ms=HOUR_MS)
        information = own.token_info
        assert information.max_timestamp - information.issue_timestamp == HOUR_MS
        with pytest.raises(DelegationTokenOwnerMismatchError):
            bob.renew_delegation_token(own)
        with pytest.raises(DelegationTokenOwnerMismatchError):
            bob.expire_delegation_token(own.hmac)
        shared = bob.create_delegation_token(["User:bob", "User:eve"], owner="User:alice")
        assert (shared.token_info.owner, shared.token_info.token_requester) == ("User:alice", "User:bob")
        assert bob.renew_delegation_token(shared, HOUR_MS) <= shared.token_info.expiry_timestamp
        found = {token.token_info.token_id: token for token in alice.describe_delegation_token()}
        assert found[information.token_id] == own
        assert found[shared.token_info.token_id].token_info.renewers == ("User:bob", "User:eve")
        ids = {token.token_info.token_id for token in alice.describe_delegation_token(["User:eve"])}
        assert ids == {shared.token_info.token_id}
        assert alice.describe_delegation_token([]) == []
        with pytest.raises(InvalidPrincipalTypeError):
            alice.create_delegation_token(["Group:x"])
        with pytest.raises(IllegalArgumentError, match="owner: 'alice' is not a principal"):
            alice.create_delegation_token(owner="alice")
        for token in (own, shared):
            alice.expire_delegation_token(token)


def test_asyncio(broker: EmbeddedBroker) -> None:
    async def run() -> None:
        async with headrace.aio.Admin(client_config(broker.bootstrap_servers)) as admin:
            token = await admin.create_delegation_token()
            assert token in await admin.describe_delegation_token(["User:alice"])
            async with headrace.aio.Admin(token_config(broker.bootstrap_servers, token)) as own:
                assert await own.list_topics() == ["t"]
            assert await admin.renew_delegation_token(token) >= token.token_info.expiry_timestamp
            await admin.expire_delegation_token(token)

    asyncio.run(run())


def test_without_a_key_or_authentication() -> None:
    with (
        sasl_broker() as broker,
        headrace.Admin(client_config(broker.bootstrap_servers)) as admin,
        pytest.raises(DelegationTokenAuthDisabledError),
    ):
        admin.create_delegation_token()
    with (
        EmbeddedBroker(KEY) as broker,
        headrace.Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin,
        pytest.raises(DelegationTokenRequestNotAllowedError),
    ):
        admin.describe_delegation_token()


def test_tokens_survive_a_restart() -> None:
    with sasl_broker(**KEY) as broker:
        with headrace.Admin(client_config(broker.bootstrap_servers)) as admin:
            token = admin.create_delegation_token()
        broker.restart()
        with headrace.Admin(token_config(broker.bootstrap_servers, token)) as own:
            assert own.list_topics() == ["t"]


def log_in(wire: WireClient, token: DelegationToken) -> int:
    """Returns the lifetime of the session, or the negative code of the error."""
    mechanism = SCRAM_MECHANISMS["SCRAM-SHA-256"]
    client = ScramClient(mechanism, token.token_info.token_id, token.hmac_as_base64_string, is_token=True)
    assert wire.call(SaslHandshakeRequest(mechanism=mechanism.name), 1).error_code == 0
    message = client.initial_response()
    response: Any = None
    while not client.complete:
        response = wire.call(SaslAuthenticateRequest(auth_bytes=message), 2)
        if response.error_code:
            return -int(response.error_code)
        message = client.respond(bytes(response.auth_bytes))
    return int(response.session_lifetime_ms)


def create(broker: EmbeddedBroker, principal: Principal) -> DelegationToken:
    """Creates a token on a broker whose clock stands still, which no client with timeouts should have to do with."""

    async def run(running: Any) -> DelegationToken:
        token, hmac = await running.token_admin.create(principal, principal, [], -1)
        information = TokenInformation(token.id, str(principal), "", (), 0, token.max_timestamp_ms, token.expires_at_ms)
        return DelegationToken(information, hmac)

    return broker.run(run)


def test_session_ends_with_the_token_and_the_controller_deletes_it() -> None:
    clock = ManualClock()
    properties = sasl_properties() | KEY | {"delegation.token.expiry.time.ms": 5_000}
    properties |= {"delegation.token.expiry.check.interval.ms": 1_000}
    with EmbeddedBroker(properties, clock=clock) as broker:
        token = create(broker, Principal("User", "alice"))
        with WireClient(broker.address) as wire, WireClient(broker.address) as late:
            assert log_in(wire, token) == 5_000
            clock.advance(5_000)
            assert wire.call(ListGroupsRequest()).error_code == 0
            clock.advance(1)
            wire.send(ListGroupsRequest())
            with pytest.raises((ConnectionEnded, ConnectionError)):
                wire.receive_frame()
            assert log_in(late, token) == -SaslAuthenticationFailedError.code
        clock.advance(1_000)
        broker.wait_until(lambda running: running.token_store is not None and not running.token_store.all())
