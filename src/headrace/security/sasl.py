"""The interface of SASL mechanisms (RFC 4422): bytes in, bytes out.

    client                                            broker
    initial_response() -- SaslAuthenticate -->        respond(message)
    respond(challenge) <------- response ------
    ...                                               until `complete`

The client passes every response of the broker to `respond`, also an empty one, and sends what it returns unless
`complete` has become True:

    message = mechanism.initial_response()
    while not mechanism.complete:
        message = mechanism.respond(await exchange(message))

A mechanism knows neither connections nor requests. Both sides create a new object for each exchange.

Cost: The broker's side computes a few hashes, or verifies one signature of a token; it runs on the loop. The client's
side may be slow, see `ClientMechanism.blocking`.
"""

from typing import Protocol

from headrace.common.principal import Principal

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
GSSAPI = "GSSAPI"
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER, GSSAPI)
"""The names of all mechanisms."""


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
        client and must not say if it was the user or the password that is wrong. The exchange is over then."""


class ClientMechanism(Protocol):
    """The client's side of one exchange."""

    name: str
    """Such as SCRAM-SHA-256."""

    blocking: bool
    """True if `initial_response` and `respond` may take long: SCRAM derives a key from the password (up to 20 ms of
    computation), GSSAPI sends requests to the KDC. Call them outside the event loop then."""

    @property
    def complete(self) -> bool:
        """True once the broker has authenticated the client, and the client the broker if the mechanism does that."""

    def initial_response(self) -> bytes:
        """Returns the first message."""

    def respond(self, challenge: bytes) -> bytes:
        """Returns the response to a broker's message. Raises SaslAuthenticationFailedError if the broker is not
        authentic."""
