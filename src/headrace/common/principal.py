"""Principals: who sends a request."""

from dataclasses import dataclass

from headrace.common.errors import ConfigError

USER = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity of a client after authentication, such as `User:alice`."""

    type: str
    name: str
    token_authenticated: bool = False
    """True for a client that authenticated with a delegation token."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""The principal of clients on a listener without authentication."""


def parse_principal(text: str) -> Principal:
    """Parses `Type:name`. Raises ConfigError."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ConfigError(f"{text!r} is not a principal: expected Type:name, such as User:alice")
    return Principal(kind, name)
