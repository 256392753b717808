"""SCRAM credentials, and the interface of the store in which server mechanisms look credentials up.

A credential is derived from a password, which it does not contain (RFC 5802):

    salted_password = PBKDF2(password, salt, iterations)
    client_key, server_key = HMAC(salted_password, "Client Key"), HMAC(salted_password, "Server Key")
    stored_key = H(client_key)

Its text is Kafka's, in `/config/users/<user>`: `salt=<base64>,stored_key=<base64>,server_key=<base64>,iterations=4096`.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import string
from dataclasses import dataclass, field
from typing import Protocol

from headrace.common.errors import ConfigError
from headrace.common.principal import Principal
from headrace.security.sasl import SCRAM_SHA_256, SCRAM_SHA_512

__all__ = [
    "SCRAM_MECHANISMS",
    "CredentialStore",
    "ScramCredential",
    "ScramMechanism",
    "TokenCredential",
    "new_salt",
    "salted_password",
]

_BASE_36 = string.digits + string.ascii_lowercase
_SALT_LENGTH = 26
"""Kafka's salts are random numbers of 130 bits with base 36."""


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """One of the SCRAM mechanisms."""

    name: str
    code: int
    """Its number in the protocol."""
    hash_name: str
    digest_bytes: int
    min_iterations: int = 4096
    max_iterations: int = 16384
    """The broker accepts credentials within these bounds."""

    def hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.hash_name)

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()


SCRAM_MECHANISMS = {
    SCRAM_SHA_256: ScramMechanism(SCRAM_SHA_256, 1, "sha256", 32),
    SCRAM_SHA_512: ScramMechanism(SCRAM_SHA_512, 2, "sha512", 64),
}


def new_salt() -> bytes:
    """Returns a random salt."""
    return "".join(secrets.choice(_BASE_36) for _ in range(_SALT_LENGTH)).encode()


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Derives the key. Slow on purpose, about 1 ms for 1000 iterations: not on an event loop."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a broker stores of a user's password."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def from_password(
        cls, mechanism: ScramMechanism, password: str, iterations: int = 4096, salt: bytes | None = None
    ) -> "ScramCredential":
        """Creates the credential of a password. Slow, see `salted_password`. Raises ConfigError."""
        check_iterations(mechanism, iterations)
        if not password:
            raise ConfigError(f"The password of a {mechanism.name} credential must not be empty")
        salt = new_salt() if salt is None else salt
        return cls.from_salted_password(
            mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations
        )

    @classmethod
    def from_salted_password(
        cls, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
    ) -> "ScramCredential":
        """Creates a credential from the derived key, as it is in AlterUserScramCredentials. Quick."""
        stored_key = mechanism.hash(mechanism.hmac(salted, b"Client Key"))
        return cls(salt, stored_key, mechanism.hmac(salted, b"Server Key"), iterations)

    @classmethod
    def parse(cls, mechanism: ScramMechanism, text: str) -> "ScramCredential":
        """Parses Kafka's text. Raises ConfigError, without the text."""
        parts = dict(item.partition("=")[::2] for item in text.split(","))
        if set(parts) != {"salt", "stored_key", "server_key", "iterations"}:
            raise ConfigError(
                f"Not a {mechanism.name} credential: expected salt=,stored_key=,server_key=,iterations=, each once"
            )
        try:
            salt, stored_key, server_key = (
                base64.b64decode(parts[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            iterations = int(parts["iterations"])
        except (binascii.Error, ValueError):
            raise ConfigError(f"Not a {mechanism.name} credential: a value is not base64 or not a number") from None
        if not salt or {len(stored_key), len(server_key)} != {mechanism.digest_bytes}:
            raise ConfigError(f"Not a {mechanism.name} credential: a value has the wrong length")
        check_iterations(mechanism, iterations)
        return cls(salt, stored_key, server_key, iterations)

    def format(self) -> str:
        """Returns Kafka's text."""
        salt, stored_key, server_key = (
            base64.b64encode(value).decode() for value in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={self.iterations}"


def check_iterations(mechanism: ScramMechanism, iterations: int) -> None:
    """Raises ConfigError for a number of iterations that is out of bounds."""
    if not mechanism.min_iterations <= iterations <= mechanism.max_iterations:
        raise ConfigError(
            f"Iterations for {mechanism.name} must be from {mechanism.min_iterations} to {mechanism.max_iterations}, "
            f"not {iterations}"
        )


@dataclass(frozen=True, slots=True)
class TokenCredential:
    """The credential of a delegation token (KIP-48), whose HMAC is the password."""

    credential: ScramCredential
    owner: Principal
    expires_at_ms: int


class CredentialStore(Protocol):
    """What server mechanisms look up, on the broker's loop and from memory."""

    def scram_credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """Returns a user's credential for one of the SCRAM mechanisms; None if there is none."""

    def token_credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Returns the credential of a delegation token; None if there is no such token or it has expired."""
