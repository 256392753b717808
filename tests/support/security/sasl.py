"""Credentials in memory, and exchanges between a client's and a broker's mechanism."""

from collections.abc import Mapping

from headrace.security.credentials import ScramCredential, TokenCredential
from headrace.security.sasl import ClientMechanism, ServerMechanism


class CredentialsInMemory:
    """A CredentialStore with the same credential for all mechanisms."""

    def __init__(
        self, users: Mapping[str, ScramCredential] | None = None, tokens: Mapping[str, TokenCredential] | None = None
    ):
        self.users, self.tokens = users or {}, tokens or {}

    def scram_credential(self, mechanism: str, user: str) -> ScramCredential | None:
        return self.users.get(user)

    def token_credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        return self.tokens.get(token_id)


def authenticate(client: ClientMechanism, server: ServerMechanism) -> None:
    """Runs a whole exchange."""
    message = client.initial_response()
    while not client.complete:
        message = client.respond(server.respond(message))
