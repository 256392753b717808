"""Tokens in the store, which all brokers follow."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import pytest
from tests.support.cluster.fake_cluster import async_test, until

from headrace.broker.credentials import CredentialCache
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.common.principal import Principal
from headrace.security.credentials import SCRAM_MECHANISMS
from headrace.security.delegation_tokens import CHANGE_PREFIX, TOKEN_CHANGES, DelegationToken, token_path
from headrace.security.token_store import TokenStore
from headrace.testing.clock import ManualClock

SHA_256 = SCRAM_MECHANISMS["SCRAM-SHA-256"]
ALICE = Principal("User", "alice")
TOKEN = DelegationToken("id", ALICE, ALICE, (), 1, 300, 200)

T = TypeVar("T")


async def run_inline(work: Callable[[], T]) -> T:
    await asyncio.sleep(0)
    return work()


@dataclass
class Follower:
    """A broker, as far as tokens are concerned."""

    store: EmbeddedStore
    credentials: CredentialCache
    tokens: TokenStore

    def expiry(self, token_id: str = "id") -> int | None:
        """When logins with the token end; None if it cannot be used."""
        found = self.credentials.token_credential("SCRAM-SHA-256", token_id)
        return None if found is None else found.expires_at_ms


@asynccontextmanager
async def followers(count: int) -> AsyncIterator[list[Follower]]:
    clock = ManualClock()
    first = EmbeddedStore(None, clock)
    started: list[Follower] = []
    for number in range(count):
        store = first.new_session() if number else first
        cache = CredentialCache()
        tokens = TokenStore(store, clock, "secret", cache, [SHA_256], run_inline)
        started.append(Follower(store, cache, tokens))
        await tokens.start()
    try:
        yield started
    finally:
        for follower in started:
            await follower.tokens.stop()


@async_test
async def test_every_broker_follows_changes() -> None:
    async with followers(2) as (one, two):
        await one.tokens.create(TOKEN)
        assert one.expiry() == 200  # at once
        await until(lambda: two.expiry() == 200)
        hmac = one.tokens.hmac_of(TOKEN)
        assert two.tokens.find(hmac) == TOKEN
        assert two.tokens.find(b"x" * 64) is None
        renewed = await two.tokens.alter("id", lambda before: replace(before, expires_at_ms=250))
        assert renewed == two.tokens.find(hmac)
        await until(lambda: one.expiry() == 250)
        assert await one.tokens.alter("id", lambda _: None) is None
        assert one.expiry() is None
        await until(lambda: two.expiry() is None and two.tokens.all() == [])
        assert two.tokens.find(hmac) is None
        assert await one.store.children("/delegation_token/tokens") == []
        assert await two.tokens.alter("id", lambda before: before) is None


@async_test
async def test_password_is_the_hmac() -> None:
    async with followers(1) as (one,):
        await one.tokens.create(TOKEN)
        found = one.credentials.token_credential("SCRAM-SHA-256", "id")
        assert found is not None
        assert found.owner == ALICE
        assert found.credential.iterations == 4096
        password = base64.b64encode(one.tokens.hmac_of(TOKEN))
        salted = hashlib.pbkdf2_hmac("sha256", password, found.credential.salt, 4096)
        assert found.credential.server_key == SHA_256.hmac(salted, b"Server Key")
        assert one.credentials.token_credential("SCRAM-SHA-512", "id") is None  # not enabled


@async_test
async def test_tokens_are_read_at_the_start_and_in_a_new_session(caplog: pytest.LogCaptureFixture) -> None:
    async with followers(1) as (one,):
        await one.tokens.create(TOKEN)
        await one.tokens.create(replace(TOKEN, id="gone"))
        await one.store.create(token_path("bad"), b"{}")
        one.tokens.restart_watch()
        await until(lambda: "Nobody can log in with the delegation token bad" in caplog.text)
        assert {token.id for token in one.tokens.all()} == {"id", "gone"}
        await one.store.delete(token_path("gone"))
        one.tokens.restart_watch()
        await until(lambda: one.expiry("gone") is None)
        assert one.expiry() == 200


@async_test
async def test_kafkas_notifications() -> None:
    """Kafka's brokers write the token and the notification one after the other."""
    async with followers(1) as (one,):
        await one.tokens.create(TOKEN)
        await one.store.delete(token_path("id"))
        await one.store.create(f"{TOKEN_CHANGES}/{CHANGE_PREFIX}", b"id", sequential=True)
        await until(lambda: one.expiry() is None)


@async_test
async def test_a_change_meanwhile_is_not_lost() -> None:
    async with followers(2) as (one, two):
        await one.tokens.create(TOKEN)
        await until(lambda: two.expiry() == 200)
        calls = []

        def renew(before: DelegationToken) -> DelegationToken:
            calls.append(before.expires_at_ms)
            return replace(before, expires_at_ms=before.expires_at_ms + 10)

        await asyncio.gather(*(broker.tokens.alter("id", renew) for broker in (one, two) for _ in range(5)))
        assert one.tokens.find(one.tokens.hmac_of(TOKEN)) is not None
        await until(lambda: one.expiry() == two.expiry() == 300)
        assert len(calls) >= 10


@async_test
async def test_nothing_is_written_if_the_change_fails_or_is_none() -> None:
    async with followers(1) as (one,):
        await one.tokens.create(TOKEN)

        def refuse(_: DelegationToken) -> DelegationToken:
            raise ValueError

        with pytest.raises(ValueError):
            await one.tokens.alter("id", refuse)
        await one.tokens.alter("id", lambda before: before)
        _, stat = await one.store.get(token_path("id"))
        assert stat.version == 0
        assert len(await one.store.children(TOKEN_CHANGES)) == 1
