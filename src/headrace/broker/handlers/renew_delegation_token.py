"""RenewDelegationToken: sets the time when a token expires (KIP-48).

Behavior:
- The owner and the renewers may renew a token, until its maximum lifetime. A negative period stands for
  `delegation.token.expiry.time.ms`.
- DELEGATION_TOKEN_NOT_FOUND: no token has this HMAC. DELEGATION_TOKEN_OWNER_MISMATCH: the client may not renew it.
  DELEGATION_TOKEN_EXPIRED: it is too late. See CreateDelegationToken for others.

Version notes (1 to 2): 2 is flexible.
"""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_nothing
from headrace.broker.token_admin import TokenAdmin, check_connection
from headrace.common.errors import HeadraceError, code_of
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@api(
    ApiKey.RENEW_DELEGATION_TOKEN,
    1,
    2,
    needs=requires_nothing("Only the owner and the renewers of a token can renew it."),
)
async def handle(
    request: RenewDelegationTokenRequest, context: RequestContext, *, token_admin: TokenAdmin
) -> RenewDelegationTokenResponse:
    try:
        check_connection(context.connection)
        expires_at_ms = await token_admin.renew(context.principal, bytes(request.hmac), request.renew_period_ms)
    except HeadraceError as error:
        return RenewDelegationTokenResponse(error_code=code_of(error), expiry_timestamp_ms=-1)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_at_ms)
