"""Creates, renews, expires and describes delegation tokens for clients, with Kafka's rules.

- Connections whose client has not authenticated, or has with a token, may not do anything with tokens.
- Only the owner and the renewers may renew and expire a token.
- A token that has expired is deleted by the controller, every `delegation.token.expiry.check.interval.ms`.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from headrace.broker.config.delegation_tokens import TokenConfig
from headrace.common.clock import Clock
from headrace.common.errors import (
    DelegationTokenAuthDisabledError,
    DelegationTokenExpiredError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    DelegationTokenRequestNotAllowedError,
    HeadraceError,
)
from headrace.common.ids import Random, random_uuid
from headrace.common.principal import ANONYMOUS, Principal
from headrace.net.connection import ServerConnection
from headrace.security.delegation_tokens import DelegationToken
from headrace.security.token_store import TokenStore

_logger = logging.getLogger(__name__)


def check_connection(connection: ServerConnection) -> None:
    """Raises DelegationTokenRequestNotAllowedError if requests about tokens are not allowed on a connection."""
    principal = connection.principal
    if principal.token_authenticated:
        raise DelegationTokenRequestNotAllowedError(
            "A client that has authenticated with a delegation token may not use requests about tokens"
        )
    if connection.security_protocol == "PLAINTEXT" or (
        connection.security_protocol == "SSL" and principal == ANONYMOUS
    ):
        raise DelegationTokenRequestNotAllowedError(
            "Requests about delegation tokens need a client that has authenticated with SASL or a TLS certificate"
        )


class TokenAdmin:
    """The tokens as requests see them. Owned by the broker's loop."""

    def __init__(self, config: TokenConfig, store: TokenStore | None, clock: Clock, random: Random):
        """`store` is None if `delegation.token.secret.key` is not set."""
        self._config = config
        self._store = store
        self._clock = clock
        self._random = random

    def all(self) -> list[tuple[DelegationToken, bytes]]:
        """Returns all tokens with their HMACs."""
        store = self._enabled_store()
        return [(token, store.hmac_of(token)) for token in store.all()]

    async def create(
        self, owner: Principal, requester: Principal, renewers: Sequence[Principal], max_lifetime_ms: int
    ) -> tuple[DelegationToken, bytes]:
        """Creates a token. Returns it with its HMAC."""
        store = self._enabled_store()
        now = self._clock.time_ms()
        longest = self._config.max_lifetime_ms
        max_timestamp = now + (longest if max_lifetime_ms <= 0 else min(max_lifetime_ms, longest))
        token = DelegationToken(
            str(random_uuid(self._random)),
            owner,
            requester,
            tuple(renewers),
            now,
            max_timestamp,
            min(max_timestamp, now + self._config.expiry_time_ms),
        )
        await store.create(token)
        _logger.info("Created the delegation token %s of %s, requested by %s", token.id, owner, requester)
        return token, store.hmac_of(token)

    async def renew(self, principal: Principal, hmac: bytes, period_ms: int) -> int:
        """Sets the time when a token expires. Returns it."""
        return await self._set_expiry(principal, hmac, self._config.expiry_time_ms if period_ms < 0 else period_ms)

    async def expire(self, principal: Principal, hmac: bytes, period_ms: int) -> int:
        """Sets the time when a token expires, or deletes it now with a negative period. Returns the time."""
        if period_ms >= 0:
            return await self._set_expiry(principal, hmac, period_ms)
        store, token = self._find(hmac)

        def delete(stored: DelegationToken) -> None:
            _check_renewer(stored, principal)

        await store.alter(token.id, delete)
        _logger.info("Deleted the delegation token %s of %s for %s", token.id, token.owner, principal)
        return self._clock.time_ms()

    async def _set_expiry(self, principal: Principal, hmac: bytes, period_ms: int) -> int:
        store, token = self._find(hmac)

        def renew(stored: DelegationToken) -> DelegationToken:
            _check_renewer(stored, principal)
            now = self._clock.time_ms()
            if stored.is_expired(now):
                raise DelegationTokenExpiredError("Delegation Token is expired.")
            return replace(stored, expires_at_ms=min(stored.max_timestamp_ms, now + period_ms))

        renewed = await store.alter(token.id, renew)
        if renewed is None:
            raise DelegationTokenNotFoundError("Delegation Token is not found on server.")
        return renewed.expires_at_ms

    async def delete_expired(self) -> None:
        """Deletes the tokens that have expired. The controller calls it."""
        if self._store is None:
            return
        for token in self._store.all():
            if token.is_expired(self._clock.time_ms()):
                try:
                    # It may have been renewed through another broker.
                    left = await self._store.alter(
                        token.id, lambda stored: None if stored.is_expired(self._clock.time_ms()) else stored
                    )
                except HeadraceError as error:
                    _logger.warning("Cannot delete the expired delegation token %s, will retry: %s", token.id, error)
                    return
                if left is None:
                    _logger.info("The delegation token %s of %s has expired", token.id, token.owner)

    def _find(self, hmac: bytes) -> tuple[TokenStore, DelegationToken]:
        store = self._enabled_store()
        token = store.find(hmac)
        if token is None:
            raise DelegationTokenNotFoundError("Delegation Token is not found on server.")
        return store, token

    def _enabled_store(self) -> TokenStore:
        if self._store is None:
            raise DelegationTokenAuthDisabledError("Delegation Token feature is not enabled.")
        return self._store


def _check_renewer(token: DelegationToken, principal: Principal) -> None:
    if not token.may_be_renewed_by(principal):
        raise DelegationTokenOwnerMismatchError("Specified Principal is not valid Owner/Renewer.")
