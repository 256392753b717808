"""SaslHandshake: the client names a SASL mechanism, and the broker lists those that are enabled.

Behavior:
- A mechanism that is not enabled: UNSUPPORTED_SASL_MECHANISM with the enabled ones, after the delay of failed
  authentications; then the connection is closed.
- On a connection that is authenticated, it starts a re-authentication (KIP-368) if the session has an end.
- ILLEGAL_SASL_STATE on a listener without SASL, and on a connection that cannot re-authenticate.

Version notes (0 to 1):
- 0: the tokens follow as frames without Kafka's headers
- 1: the tokens follow in SaslAuthenticate requests (KIP-152)
"""

from functools import partial

from headrace.broker.apis import DEFERRED, HandlerResult, api
from headrace.broker.authentication import SaslAuthentication
from headrace.broker.authentication_gate import AuthenticationGate
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_nothing
from headrace.common.errors import IllegalSaslStateError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@api(ApiKey.SASL_HANDSHAKE, 0, 1, needs=requires_nothing("Clients authenticate with it."))
def handle(
    request: SaslHandshakeRequest, context: RequestContext, *, authentication_gate: AuthenticationGate
) -> HandlerResult:
    connection = context.connection
    authentication: SaslAuthentication | None = connection.authentication
    if authentication is None or not (authentication.is_in_progress or authentication.may_reauthenticate):
        return SaslHandshakeResponse(error_code=IllegalSaslStateError.code)
    enabled = list(authentication.listener.mechanisms)
    try:
        authentication.handshake(context.api_version, request.mechanism)
    except (UnsupportedSaslMechanismError, SaslAuthenticationFailedError) as error:
        response = SaslHandshakeResponse(error_code=error.code, mechanisms=enabled)
        authentication_gate.failed(connection, str(error), partial(context.reply, response))
        return DEFERRED
    return SaslHandshakeResponse(mechanisms=enabled)
