"""Admits only authenticated connections on listeners with SASL. Owned by the broker's loop.

- `Dispatcher.frame_received` asks the gate first, so nothing serves a connection that is not authenticated.
- Requests of the authentication itself are handled like others, by the handlers of SaslHandshake and SaslAuthenticate.
- A failed authentication ends the connection after `connection.failed.authentication.delay.ms`. Meanwhile nothing is
  read from it. The response is sent at the end of the delay, as in Kafka, so guessing passwords is slow.
- Before authentication, frames are limited to `sasl.server.max.receive.size`.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from headrace.broker.authentication import SaslAuthentication, SaslListener
from headrace.common.clock import Clock
from headrace.common.errors import IllegalSaslStateError, SaslAuthenticationFailedError
from headrace.common.logs import RateLimitedLog
from headrace.common.metrics import Metrics
from headrace.net.connection import ServerConnection
from headrace.protocol.apis import ApiKey

_logger = logging.getLogger(__name__)


class AuthenticationGate:
    """The listeners with SASL, and what happens to their connections."""

    def __init__(self, listeners: Mapping[str, SaslListener], failure_delay_ms: int, clock: Clock, metrics: Metrics):
        self._listeners = listeners
        self._failure_delay_seconds = failure_delay_ms / 1000
        self._clock = clock
        self._problems = RateLimitedLog(_logger, clock)
        self._authentications = metrics.counter("sasl_authentications_total")
        self._reauthentications = metrics.counter("sasl_reauthentications_total")
        self._failures = metrics.counter("sasl_authentication_failures_total")
        self._expired = metrics.counter("sasl_expired_connections_total")

    def connection_made(self, connection: ServerConnection) -> None:
        """Prepares a new connection."""
        listener = self._listeners.get(connection.listener_name)
        if listener is not None:
            connection.authentication = SaslAuthentication(listener, self._clock)
            connection.limit_frames(listener.max_receive_bytes, "sasl.server.max.receive.size")

    def admits(self, connection: ServerConnection, frame: memoryview) -> bool:
        """Returns True if the frame is a request that may be handled. Otherwise it is refused, or it was a token."""
        authentication: SaslAuthentication = connection.authentication
        key = int.from_bytes(frame[:2])
        if authentication.is_authenticated:
            if not authentication.is_expired or (key == ApiKey.SASL_HANDSHAKE and authentication.may_reauthenticate):
                return True
            self._expired.value += 1
            _logger.info(
                "Closing the connection: the session of %s has expired, and its client %s did not re-authenticate",
                authentication.principal,
                connection,
            )
            connection.close("the session has expired")
            return False
        if authentication.expects_raw_token:
            self._raw_token_received(connection, authentication, bytes(frame))
            return False
        try:
            authentication.check_request(key)
        except IllegalSaslStateError as error:
            self.failed(connection, str(error))
            return False
        return True

    def authenticated(self, connection: ServerConnection, *, again: bool) -> None:
        """The client is authenticated; `again`, if this was a re-authentication."""
        authentication: SaslAuthentication = connection.authentication
        connection.principal = authentication.principal
        connection.unlimit_frames()
        (self._reauthentications if again else self._authentications).value += 1

    def failed(self, connection: ServerConnection, reason: str, reply: Callable[[], None] | None = None) -> None:
        """Closes the connection after the delay. `reply` sends the response before that."""
        authentication: SaslAuthentication = connection.authentication
        authentication.fail()
        self._failures.value += 1
        mechanism = authentication.mechanism_name
        self._problems.log(
            mechanism, f"Failed authentication with {connection}{f' ({mechanism})' if mechanism else ''}: {reason}"
        )
        connection.hold_requests()
        end = partial(_end, connection, reason, reply)
        if self._failure_delay_seconds:
            asyncio.get_running_loop().call_later(self._failure_delay_seconds, end)
        else:
            end()

    def _raw_token_received(
        self, connection: ServerConnection, authentication: SaslAuthentication, token: bytes
    ) -> None:
        again = authentication.is_reauthentication
        try:
            response, _ = authentication.authenticate(token)
        except (SaslAuthenticationFailedError, IllegalSaslStateError) as error:
            self.failed(connection, str(error))
            return
        if authentication.is_authenticated:
            self.authenticated(connection, again=again)
        connection.expect_response().send(len(response).to_bytes(4) + response)


def _end(connection: ServerConnection, reason: str, reply: Callable[[], None] | None) -> None:
    if not connection.closed:
        if reply is not None:
            reply()
        connection.finish(reason)
