"""Authenticates the connections of a client with SASL: SaslHandshake, then tokens in SaslAuthenticate requests.

Clients pass it to the connection pool (`NetConfig.authenticate`), and brokers to the pool for other brokers. It runs
after ApiVersions and before all other requests, and again before the session ends (KIP-368).

An authentication error is not retriable: calls of the client fail with it instead of trying again.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from headrace.common.errors import (
    IllegalSaslStateError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    for_code,
)
from headrace.common.ids import Random
from headrace.net.broker_connection import BrokerConnection
from headrace.net.errors import KafkaConnectionError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.security.sasl import ClientMechanism

_MIN_SHARE = 0.85
_SHARE_RANGE = 0.1
"""Kafka's clients authenticate again after 85 to 95 % of the session's lifetime."""
_MAX_ROUNDS = 20
"""More than any mechanism needs. A broker must not keep the client busy forever."""


class Login(Protocol):
    """The identity of a client, such as `sasl_client.SaslLogin`."""

    async def mechanism(self, host: str) -> ClientMechanism:
        """Returns a new exchange with the broker on a host."""


class SaslAuthenticator:
    """Authenticates connections with one identity. Owned by the loop of the connections."""

    def __init__(self, login: Login, random: Random, timeout_ms: float):
        """`timeout_ms`: how long to wait for each response."""
        self._login = login
        self._random = random
        self._timeout_ms = timeout_ms

    async def __call__(self, connection: BrokerConnection) -> float | None:
        """Authenticates a connection. Returns the seconds until it must authenticate again, or None.

        Raises SaslAuthenticationFailedError, UnsupportedSaslMechanismError or IllegalSaslStateError.
        """
        mechanism = await self._login.mechanism(connection.node.host)
        await self._handshake(connection, mechanism.name)
        token = await self._compute(mechanism, mechanism.initial_response)
        for _ in range(_MAX_ROUNDS):
            response = await self._authenticate(connection, mechanism.name, token)
            token = await self._compute(mechanism, partial(mechanism.respond, bytes(response.auth_bytes)))
            if mechanism.complete:
                return self._next_authentication(response.session_lifetime_ms)
        raise SaslAuthenticationFailedError(
            f"{connection.node} did not complete the authentication with {mechanism.name} in {_MAX_ROUNDS} rounds"
        )

    @staticmethod
    async def _compute(mechanism: ClientMechanism, step: Callable[[], bytes]) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(None, step) if mechanism.blocking else step()

    async def _handshake(self, connection: BrokerConnection, mechanism: str) -> None:
        try:
            version = connection.version_for(ApiKey.SASL_HANDSHAKE, min_version=1)
        except UnsupportedVersionError as error:
            raise IllegalSaslStateError(
                f"{connection.node} does not support SASL ({error}): check security.protocol"
            ) from None
        response: SaslHandshakeResponse = await self._send(
            connection, SaslHandshakeRequest(mechanism=mechanism), version, mechanism
        )
        code = response.error_code
        if code == UnsupportedSaslMechanismError.code:
            enabled = ", ".join(response.mechanisms) or "none"
            raise UnsupportedSaslMechanismError(
                f"{connection.node} does not accept SASL mechanism {mechanism}. It has enabled: {enabled}. Set "
                "sasl.mechanism to one of them"
            )
        if code == IllegalSaslStateError.code:
            raise IllegalSaslStateError(
                f"{connection.node} refused the SASL handshake: this listener has no SASL, or the session cannot be "
                "renewed now. Check the port in bootstrap.servers, and security.protocol"
            )
        if code:
            raise for_code(code)(f"{connection.node} refused the SASL handshake for mechanism {mechanism}")

    async def _authenticate(
        self, connection: BrokerConnection, mechanism: str, token: bytes
    ) -> SaslAuthenticateResponse:
        version = connection.version_for(ApiKey.SASL_AUTHENTICATE)
        response: SaslAuthenticateResponse = await self._send(
            connection, SaslAuthenticateRequest(auth_bytes=token), version, mechanism
        )
        if response.error_code:
            reason = response.error_message or "the broker does not say why"
            raise for_code(response.error_code)(
                f"{connection.node} refused the authentication with {mechanism}: {reason}"
            )
        return response

    async def _send(self, connection: BrokerConnection, request: Any, version: int, mechanism: str) -> Any:
        # Responses to earlier requests come first.
        timeout_ms = self._timeout_ms + connection.longest_wait_ms
        try:
            return await connection.send(request, version, timeout_ms)
        except KafkaConnectionError as error:
            raise KafkaConnectionError(
                f"{error} during the SASL authentication with {mechanism}", sent=error.sent
            ) from None

    def _next_authentication(self, lifetime_ms: int) -> float | None:
        if lifetime_ms <= 0:
            return None
        return lifetime_ms / 1000 * (_MIN_SHARE + _SHARE_RANGE * self._random.random())
