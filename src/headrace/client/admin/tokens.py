"""Delegation tokens (KIP-48, KIP-373). Owner: the loop."""

from collections.abc import Iterable

from headrace.client.admin.base import AdminBase
from headrace.client.admin.token_types import DelegationToken, TokenInformation
from headrace.client.errors import IllegalArgumentError, check
from headrace.common.errors import ConfigError
from headrace.common.principal import Principal, parse_principal
from headrace.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from headrace.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from headrace.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from headrace.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

_FIRST_WITH_OWNER = 3


class TokensAdmin(AdminBase):
    """The calls about delegation tokens. Brokers accept them from clients that have authenticated, but not with a
    token."""

    async def create_delegation_token(
        self,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int = -1,
        owner: str | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> DelegationToken:
        """Creates a token. Principals are texts such as `User:alice`.

        `owner` is whom the token authenticates, by default this client. `renewers` may renew and expire the token, as
        the owner. `max_lifetime_ms` is limited by `delegation.token.max.lifetime.ms` of the broker, the default.
        """
        request = CreateDelegationTokenRequest(
            renewers=[
                CreatableRenewers(principal_type=principal.type, principal_name=principal.name)
                for principal in _principals(renewers, "renewers")
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        if owner is not None:
            (principal,) = _principals([owner], "owner")
            request.owner_principal_type, request.owner_principal_name = principal.type, principal.name

        async def attempt() -> DelegationToken:
            response: CreateDelegationTokenResponse = await self._to_any(
                request, min_version=None if owner is None else _FIRST_WITH_OWNER
            )
            check(response.error_code)
            information = TokenInformation(
                response.token_id,
                f"{response.principal_type}:{response.principal_name}",
                _requester(response),
                tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers),
                response.issue_timestamp_ms,
                response.max_timestamp_ms,
                response.expiry_timestamp_ms,
            )
            return DelegationToken(information, bytes(response.hmac))

        return await self._call_with_retries(attempt, timeout_ms, "creating a delegation token")

    async def renew_delegation_token(
        self, token: DelegationToken | bytes, renew_period_ms: int = -1, *, timeout_ms: float | None = None
    ) -> int:
        """Sets the time when a token expires, and returns it. Tokens are named by themselves or by their HMAC.

        The default of the period is `delegation.token.expiry.time.ms` of the broker.
        """
        request = RenewDelegationTokenRequest(hmac=_hmac(token), renew_period_ms=renew_period_ms)

        async def attempt() -> int:
            response: RenewDelegationTokenResponse = await self._to_any(request)
            check(response.error_code)
            return response.expiry_timestamp_ms

        return await self._call_with_retries(attempt, timeout_ms, "renewing a delegation token")

    async def expire_delegation_token(
        self, token: DelegationToken | bytes, expiry_time_period_ms: int = -1, *, timeout_ms: float | None = None
    ) -> int:
        """Sets the time when a token expires, and returns it. A negative period, the default, deletes it at once."""
        request = ExpireDelegationTokenRequest(hmac=_hmac(token), expiry_time_period_ms=expiry_time_period_ms)

        async def attempt() -> int:
            response: ExpireDelegationTokenResponse = await self._to_any(request)
            check(response.error_code)
            return response.expiry_timestamp_ms

        return await self._call_with_retries(attempt, timeout_ms, "expiring a delegation token")

    async def describe_delegation_token(
        self, owners: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> list[DelegationToken]:
        """Returns the tokens of some owners, by default all that this client may see."""
        selected = None
        if owners is not None:
            selected = [
                DescribeDelegationTokenOwner(principal_type=principal.type, principal_name=principal.name)
                for principal in _principals(owners, "owners")
            ]

        async def attempt() -> list[DelegationToken]:
            response: DescribeDelegationTokenResponse = await self._to_any(
                DescribeDelegationTokenRequest(owners=selected)
            )
            check(response.error_code)
            return [_token(described) for described in response.tokens]

        return await self._call_with_retries(attempt, timeout_ms, "describing delegation tokens")


def _principals(texts: Iterable[str], name: str) -> list[Principal]:
    if isinstance(texts, str):
        raise TypeError(f"{name} must be a list of principals, not {texts!r}")
    try:
        return [parse_principal(text) for text in texts]
    except ConfigError as error:
        raise IllegalArgumentError(f"{name}: {error}") from None


def _hmac(token: DelegationToken | bytes) -> bytes:
    if isinstance(token, DelegationToken):
        return token.hmac
    if not isinstance(token, bytes):
        raise TypeError(f"token must be a DelegationToken or the bytes of its HMAC, not {type(token).__name__}")
    return token


def _requester(message: CreateDelegationTokenResponse | DescribedDelegationToken) -> str:
    name = message.token_requester_principal_name
    return f"{message.token_requester_principal_type}:{name}" if name else ""


def _token(described: DescribedDelegationToken) -> DelegationToken:
    information = TokenInformation(
        described.token_id,
        f"{described.principal_type}:{described.principal_name}",
        _requester(described),
        tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in described.renewers),
        described.issue_timestamp,
        described.max_timestamp,
        described.expiry_timestamp,
    )
    return DelegationToken(information, bytes(described.hmac))
