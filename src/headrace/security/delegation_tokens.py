"""Delegation tokens (KIP-48, KIP-373): their secret, and their nodes in the coordination store, as Kafka 3.9 has them.

/delegation_token/tokens/<id>                    {"version":3,"owner":"User%3Aalice","tokenRequester":"User%3Aadmin",
                                                 "renewers":["User%3Abob"],"issueTimestamp":1,"maxTimestamp":3,
                                                 "expiryTimestamp":2,"tokenId":"<id>"}
/delegation_token/token_changes/token_change_<n> the token has changed or is gone: <id>

The secret of a token is the HMAC of its id with the secret key that all brokers share, so no node has it. A client logs
in with SCRAM: the id is its user, the HMAC in base64 its password. Version 1 and 2 of the node have no requester, who
is the owner then.
"""

import base64
import hmac
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from headrace.cluster.znodes import DamagedNode
from headrace.common.errors import ConfigError
from headrace.common.principal import Principal, parse_principal

ROOT = "/delegation_token"
TOKENS = f"{ROOT}/tokens"
TOKEN_CHANGES = f"{ROOT}/token_changes"
CHANGE_PREFIX = "token_change_"
PERSISTENT_PATHS = (ROOT, TOKENS, TOKEN_CHANGES)
"""The nodes that a cluster with tokens has, parents first."""
_VERSION = 3


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token without its secret."""

    id: str
    owner: Principal
    """Whom the token authenticates."""
    requester: Principal
    """Who has created it."""
    renewers: tuple[Principal, ...]
    """Who may renew and expire it, besides the owner."""
    issued_at_ms: int
    max_timestamp_ms: int
    """The token cannot be renewed beyond this time."""
    expires_at_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return self.max_timestamp_ms < now_ms or self.expires_at_ms < now_ms

    def may_be_renewed_by(self, principal: Principal) -> bool:
        return principal in (self.owner, *self.renewers)

    def belongs_to(self, principal: Principal) -> bool:
        """Returns True if the principal may see the token without any right."""
        return principal == self.requester or self.may_be_renewed_by(principal)


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """Returns the secret of a token."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def token_password(token_hmac: bytes) -> str:
    """Returns the password with which clients log in."""
    return base64.b64encode(token_hmac).decode()


# ---- nodes


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    fields = {
        "version": _VERSION,
        "owner": _sanitize(token.owner),
        "tokenRequester": _sanitize(token.requester),
        "renewers": [_sanitize(renewer) for renewer in token.renewers],
        "issueTimestamp": token.issued_at_ms,
        "maxTimestamp": token.max_timestamp_ms,
        "expiryTimestamp": token.expires_at_ms,
        "tokenId": token.id,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_token(path: str, data: bytes) -> DelegationToken:
    """Raises DamagedNode."""
    try:
        fields: dict[str, Any] = json.loads(data)
        if not 1 <= fields["version"] <= _VERSION:
            raise DamagedNode(path, data, f"expected a version from 1 to {_VERSION}")
        owner = _principal(fields["owner"])
        return DelegationToken(
            str(fields["tokenId"]),
            owner,
            _principal(fields["tokenRequester"]) if "tokenRequester" in fields else owner,
            tuple(_principal(renewer) for renewer in fields["renewers"]),
            int(fields["issueTimestamp"]),
            int(fields["maxTimestamp"]),
            int(fields["expiryTimestamp"]),
        )
    except (ValueError, KeyError, TypeError, ConfigError) as error:
        raise DamagedNode(path, data, f"not a delegation token ({error})") from None


def _sanitize(principal: Principal) -> str:
    return quote(str(principal), safe="-._").replace("~", "%7E")


def _principal(text: str) -> Principal:
    return parse_principal(unquote(text))
