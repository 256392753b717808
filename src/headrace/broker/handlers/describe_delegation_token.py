"""DescribeDelegationToken: the tokens of some owners, or all, with their secrets (KIP-48, KIP-373).

Behavior:
- A client sees the tokens that it owns, has requested, or may renew, and others for which it has a right on the token
  or on the owner. With a list of owners, it gets those that one of them owns, has requested, or may renew.
- An empty list of owners selects none, null selects all.
- Errors are those of CreateDelegationToken.

Version notes (1 to 3): 2 is flexible, 3 has the requester.
"""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_token, on_user, requires
from headrace.broker.rights import is_allowed
from headrace.broker.token_admin import TokenAdmin, check_connection
from headrace.common.errors import HeadraceError, code_of
from headrace.common.principal import Principal
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from headrace.security.acls import Operation, ResourceType
from headrace.security.delegation_tokens import DelegationToken

_LEFT_OUT = "left out"


@api(
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    1,
    3,
    needs=requires(
        on_token(Operation.DESCRIBE, "each token of others")
        | on_user(Operation.DESCRIBE_TOKENS, "the owner of each token of others", _LEFT_OUT)
    ),
)
async def handle(
    request: DescribeDelegationTokenRequest, context: RequestContext, *, token_admin: TokenAdmin
) -> DescribeDelegationTokenResponse:
    try:
        check_connection(context.connection)
        found = token_admin.all()
    except HeadraceError as error:
        return DescribeDelegationTokenResponse(error_code=code_of(error), tokens=[])
    owners = None
    if request.owners is not None:
        owners = {Principal(owner.principal_type, owner.principal_name) for owner in request.owners}
    tokens: list[DescribedDelegationToken] = []
    for token, hmac in found:
        await context.give_way()
        is_selected = owners is None or not owners.isdisjoint((token.owner, token.requester, *token.renewers))
        if is_selected and _may_see(context, token):
            tokens.append(_described(token, hmac))
    return DescribeDelegationTokenResponse(tokens=tokens)


def _may_see(context: RequestContext, token: DelegationToken) -> bool:
    return (
        token.belongs_to(context.principal)
        or is_allowed(context, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id, audited=False)
        or is_allowed(context, Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner), audited=False)
    )


def _described(token: DelegationToken, hmac: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_at_ms,
        expiry_timestamp=token.expires_at_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token.id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=renewer.type, principal_name=renewer.name)
            for renewer in token.renewers
        ],
    )
