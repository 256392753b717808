"""Kafka's rules for delegation tokens."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from headrace.broker.config.delegation_tokens import TokenConfig
from headrace.broker.credentials import CredentialCache
from headrace.broker.token_admin import TokenAdmin, check_connection
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.common.errors import (
    DelegationTokenAuthDisabledError,
    DelegationTokenExpiredError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    DelegationTokenRequestNotAllowedError,
)
from headrace.common.ids import make_random
from headrace.common.principal import ANONYMOUS, Principal
from headrace.net.connection import ServerConnection
from headrace.security.token_store import TokenStore
from headrace.testing.clock import ManualClock

ALICE, BOB, EVE = (Principal("User", name) for name in ("alice", "bob", "eve"))
CONFIG = TokenConfig.from_properties(
    {
        "delegation.token.master.key": "key",
        "delegation.token.max.lifetime.ms": 10_000,
        "delegation.token.expiry.time.ms": 1_000,
    }
)

T = TypeVar("T")


async def run_inline(work: Callable[[], T]) -> T:
    return work()


class Setup:
    def __init__(self, clock: ManualClock, store: TokenStore):
        self.clock = clock
        self.store = store
        self.admin = TokenAdmin(CONFIG, store, clock, make_random(1))


def with_tokens(test: Callable[[Setup], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def run() -> None:
        clock = ManualClock()
        store = TokenStore(EmbeddedStore(None, clock), clock, CONFIG.secret_key, CredentialCache(), [], run_inline)
        await store.start()
        try:
            await test(Setup(clock, store))
        finally:
            await store.stop()

    return lambda: asyncio.run(run())


@with_tokens
async def test_lifetimes(setup: Setup) -> None:
    now = setup.clock.time_ms()
    for requested, expected in ((-1, 10_000), (0, 10_000), (500, 500), (5_000, 5_000), (2**62, 10_000)):
        token, hmac = await setup.admin.create(ALICE, EVE, [BOB], requested)
        assert token.max_timestamp_ms == now + expected
        assert token.expires_at_ms == now + min(1_000, expected)
        assert (token.owner, token.requester, token.renewers) == (ALICE, EVE, (BOB,))
        assert len(token.id) == 22
        assert (token, hmac) in setup.admin.all()


@with_tokens
async def test_renewals(setup: Setup) -> None:
    admin, clock = setup.admin, setup.clock
    token, hmac = await admin.create(ALICE, EVE, [BOB], -1)
    created = clock.time_ms()
    clock.advance(100)
    assert await admin.renew(ALICE, hmac, -1) == created + 1_100
    assert await admin.renew(BOB, hmac, 5_000) == created + 5_100
    assert await admin.renew(BOB, hmac, 2**62) == created + 10_000
    assert await admin.renew(BOB, hmac, 0) == created + 100
    clock.advance(1)
    with pytest.raises(DelegationTokenOwnerMismatchError):
        await admin.renew(EVE, hmac, 5_000)  # also of an expired token
    with pytest.raises(DelegationTokenExpiredError):
        await admin.renew(ALICE, hmac, 5_000)
    with pytest.raises(DelegationTokenExpiredError):
        await admin.expire(ALICE, hmac, 5_000)
    assert await admin.expire(ALICE, hmac, -1) == clock.time_ms()
    for call in (admin.renew, admin.expire):
        with pytest.raises(DelegationTokenNotFoundError):
            await call(ALICE, hmac, 5_000)
    assert token not in setup.store.all()


@with_tokens
async def test_expiry(setup: Setup) -> None:
    admin, clock = setup.admin, setup.clock
    first, hmac = await admin.create(ALICE, ALICE, [], -1)
    with pytest.raises(DelegationTokenOwnerMismatchError):
        await admin.expire(EVE, hmac, -1)
    assert await admin.expire(ALICE, hmac, 2_000) == clock.time_ms() + 2_000
    second, _ = await admin.create(ALICE, ALICE, [], -1)
    clock.advance(1_001)
    await admin.delete_expired()
    assert [token.id for token in setup.store.all()] == [first.id] != [second.id]
    clock.advance(1_000)
    await admin.delete_expired()
    assert setup.store.all() == []


def test_without_a_key() -> None:
    async def run() -> None:
        admin = TokenAdmin(TokenConfig.from_properties(), None, ManualClock(), make_random(1))
        with pytest.raises(DelegationTokenAuthDisabledError):
            await admin.create(ALICE, ALICE, [], -1)
        with pytest.raises(DelegationTokenAuthDisabledError):
            await admin.renew(ALICE, b"", -1)
        with pytest.raises(DelegationTokenAuthDisabledError):
            await admin.expire(ALICE, b"", -1)
        with pytest.raises(DelegationTokenAuthDisabledError):
            admin.all()
        await admin.delete_expired()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("protocol", "principal", "allowed"),
    [
        ("PLAINTEXT", ANONYMOUS, False),
        ("SSL", ANONYMOUS, False),
        ("SSL", ALICE, True),
        ("SASL_PLAINTEXT", ALICE, True),
        ("SASL_SSL", ALICE, True),
        ("SASL_SSL", Principal("User", "alice", token_authenticated=True), False),
    ],
)
def test_connections(protocol: str, principal: Principal, allowed: bool) -> None:
    connection = cast(ServerConnection, SimpleNamespace(principal=principal, security_protocol=protocol))
    if allowed:
        check_connection(connection)
    else:
        with pytest.raises(DelegationTokenRequestNotAllowedError):
            check_connection(connection)
