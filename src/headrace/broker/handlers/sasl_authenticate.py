"""SaslAuthenticate: one token of the SASL mechanism that SaslHandshake has selected (KIP-152).

Behavior:
- Wrong credentials: SASL_AUTHENTICATION_FAILED after `connection.failed.authentication.delay.ms`, then the connection
  is closed. The message does not tell if the user or the password is wrong.
- ILLEGAL_SASL_STATE on a listener without SASL, and on a connection that is authenticated already.

Version notes (0 to 2):
- 1 has the lifetime of the session, after which the client must have authenticated again (KIP-368)
- 2 is flexible
"""

from functools import partial

from headrace.broker.apis import DEFERRED, HandlerResult, api
from headrace.broker.authentication import SaslAuthentication
from headrace.broker.authentication_gate import AuthenticationGate
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_nothing
from headrace.common.errors import IllegalSaslStateError, SaslAuthenticationFailedError, message_of
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


@api(ApiKey.SASL_AUTHENTICATE, 0, 2, needs=requires_nothing("Clients authenticate with it."))
def handle(
    request: SaslAuthenticateRequest, context: RequestContext, *, authentication_gate: AuthenticationGate
) -> HandlerResult:
    connection = context.connection
    authentication: SaslAuthentication | None = connection.authentication
    if authentication is None or not authentication.is_in_progress:
        return SaslAuthenticateResponse(
            error_code=IllegalSaslStateError.code,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    again = authentication.is_reauthentication
    try:
        token, lifetime_ms = authentication.authenticate(bytes(request.auth_bytes))
    except (SaslAuthenticationFailedError, IllegalSaslStateError) as error:
        response = SaslAuthenticateResponse(error_code=error.code, error_message=message_of(error))
        authentication_gate.failed(connection, str(error), partial(context.reply, response))
        return DEFERRED
    if authentication.is_authenticated:
        authentication_gate.authenticated(connection, again=again)
    return SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms)
