"""The types of the admin calls about delegation tokens, with Java's names.

Principals are texts such as `User:alice`.
"""

import base64
from dataclasses import dataclass, field

__all__ = ["DelegationToken", "TokenInformation"]


@dataclass(frozen=True)
class TokenInformation:
    """What everybody may know of a token. Times are in ms since 1970."""

    token_id: str
    """The user name of a client that logs in with the token."""
    owner: str
    token_requester: str
    """Who has created the token. Empty if the broker is older than Kafka 3.3."""
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    """The token cannot be renewed beyond this time."""
    expiry_timestamp: int


@dataclass(frozen=True)
class DelegationToken:
    """A token and its secret."""

    token_info: TokenInformation
    hmac: bytes = field(repr=False)

    @property
    def hmac_as_base64_string(self) -> str:
        """The password of a client that logs in with the token."""
        return base64.b64encode(self.hmac).decode()
