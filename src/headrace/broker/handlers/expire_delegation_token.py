"""ExpireDelegationToken: sets the time when a token expires, or deletes it (KIP-48).

Behavior:
- The owner and the renewers may expire a token. A negative period deletes it at once, also if it has expired already.
- Connections that were authenticated with the token stay open until the time when it would have expired, as in Kafka.
- Errors are those of RenewDelegationToken.

Version notes (1 to 2): 2 is flexible.
"""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_nothing
from headrace.broker.token_admin import TokenAdmin, check_connection
from headrace.common.errors import HeadraceError, code_of
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


@api(
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    1,
    2,
    needs=requires_nothing("Only the owner and the renewers of a token can expire it."),
)
async def handle(
    request: ExpireDelegationTokenRequest, context: RequestContext, *, token_admin: TokenAdmin
) -> ExpireDelegationTokenResponse:
    try:
        check_connection(context.connection)
        expires_at_ms = await token_admin.expire(context.principal, bytes(request.hmac), request.expiry_time_period_ms)
    except HeadraceError as error:
        return ExpireDelegationTokenResponse(error_code=code_of(error), expiry_timestamp_ms=-1)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_at_ms)
