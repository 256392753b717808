"""The credentials of users and delegation tokens, from memory: what SASL mechanisms look up.

Owned by the broker's loop.

The coordination store has them (`/config/users/<user>`, `/delegation_token/tokens/<id>`). The broker reads them at its
start, before its sockets open, and again when the store notifies it of a change.
"""

import logging
from collections.abc import Mapping

from headrace.common.errors import ConfigError
from headrace.security.credentials import SCRAM_MECHANISMS, ScramCredential, TokenCredential

_logger = logging.getLogger(__name__)


class CredentialCache:
    """All credentials. Implements `security.credentials.CredentialStore`."""

    def __init__(self) -> None:
        self._scram: dict[tuple[str, str], ScramCredential] = {}
        self._tokens: dict[tuple[str, str], TokenCredential] = {}

    def scram_credential(self, mechanism: str, user: str) -> ScramCredential | None:
        return self._scram.get((mechanism, user))

    def token_credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        return self._tokens.get((mechanism, token_id))

    def scram_users(self) -> list[str]:
        """Returns the users that have a credential, sorted."""
        return sorted({user for _, user in self._scram})

    def scram_credentials_of(self, user: str) -> dict[str, ScramCredential]:
        """Returns a user's credentials by mechanism."""
        return {name: found for name in SCRAM_MECHANISMS if (found := self._scram.get((name, user))) is not None}

    def set_user(self, user: str, config: Mapping[str, str]) -> None:
        """Replaces a user's credentials by those in the user's configs."""
        for name, mechanism in SCRAM_MECHANISMS.items():
            self._scram.pop((name, user), None)
            text = config.get(name)
            if not text:
                continue
            try:
                self._scram[name, user] = ScramCredential.parse(mechanism, text)
            except ConfigError as error:
                _logger.error("User %s cannot authenticate with %s: %s", user, name, error)

    def set_token(self, token_id: str, credentials: Mapping[str, TokenCredential]) -> None:
        """Replaces the credentials of a delegation token, by mechanism."""
        self.remove_token(token_id)
        for mechanism, credential in credentials.items():
            self._tokens[mechanism, token_id] = credential

    def remove_token(self, token_id: str) -> None:
        for mechanism in SCRAM_MECHANISMS:
            self._tokens.pop((mechanism, token_id), None)
