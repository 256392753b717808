"""The interface of SASL mechanisms (RFC 4422): bytes in, bytes out.

    client                                            broker
    initial_response() -- SaslAuthenticate -->        respond(message)
    respond(challenge) <------- response ------
    ...                                               until `complete`

A mechanism knows neither connections nor requests. Both sides create a new object for each exchange.
"""

from typing import Protocol

from headrace.common.principal import Principal


class ServerMechanism(Protocol):
    """The broker's side of one exchange."""

    @property
    def complete(self) -> bool:
        """True once the client is authenticated."""

    @property
    def principal(self) -> Principal:
        """Who the client is. Valid when `complete`."""

    @property
    def expires_at_ms(self) -> int | None:
        """When the credentials expire, such as a token's; None if never. Valid when `complete`."""

    def respond(self, message: bytes) -> bytes:
        """Returns the response to a client's message. Raises SaslAuthenticationFailedError, whose text goes to the
        client and must not say if it was the user or the password that is wrong."""


class ClientMechanism(Protocol):
    """The client's side of one exchange."""

    name: str
    """Such as SCRAM-SHA-256."""

    @property
    def complete(self) -> bool:
        """True once the broker has authenticated the client, and the client the broker if the mechanism does that."""

    def initial_response(self) -> bytes:
        """Returns the first message."""

    def respond(self, challenge: bytes) -> bytes:
        """Returns the response to a broker's message. Raises SaslAuthenticationFailedError if the broker is not
        authentic."""
