"""CreateDelegationToken: creates a token with which other processes log in as its owner (KIP-48, KIP-373).

Behavior:
- The owner is the client, or another user, for which the client needs a right on that user. The renewers must be users.
- The lifetime is at most `delegation.token.max.lifetime.ms`, which is also the default (no or a negative lifetime).
- The token can be used on this broker when it responds, on the others when the store notifies them.
- Any broker creates the token, as in Kafka with ZooKeeper.
- DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the client has not authenticated, or has with a token.
  DELEGATION_TOKEN_AUTH_DISABLED: `delegation.token.secret.key` is not set.

Version notes (1 to 3): 2 is flexible, 3 has the owner and the requester.
"""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_user, requires
from headrace.broker.rights import check
from headrace.broker.token_admin import TokenAdmin, check_connection
from headrace.common.errors import HeadraceError, InvalidPrincipalTypeError, code_of
from headrace.common.principal import USER, Principal
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from headrace.security.acls import Operation, ResourceType


@api(
    ApiKey.CREATE_DELEGATION_TOKEN,
    1,
    3,
    needs=requires(on_user(Operation.CREATE_TOKENS, "the owner, if it is not the client itself")),
)
async def handle(
    request: CreateDelegationTokenRequest, context: RequestContext, *, token_admin: TokenAdmin
) -> CreateDelegationTokenResponse:
    requester = Principal(context.principal.type, context.principal.name)
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
    )
    try:
        check_connection(context.connection)
        if owner != requester:
            check(context, Operation.CREATE_TOKENS, ResourceType.USER, str(owner))
        renewers = [Principal(renewer.principal_type, renewer.principal_name) for renewer in request.renewers]
        if any(renewer.type != USER for renewer in renewers):
            raise InvalidPrincipalTypeError(f"A renewer must have the type {USER}")
        token, response.hmac = await token_admin.create(owner, requester, renewers, request.max_lifetime_ms)
    except HeadraceError as error:
        response.error_code = code_of(error)
        return response
    response.token_id = token.id
    response.issue_timestamp_ms = token.issued_at_ms
    response.expiry_timestamp_ms = token.expires_at_ms
    response.max_timestamp_ms = token.max_timestamp_ms
    return response
