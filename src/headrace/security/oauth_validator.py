"""What a broker checks of an OAuth token: the signature, then issuer, audience and times. It runs on the loop.

Reading a token without checking it (`read_claims`) is only for clients, which know where their token comes from.
"""

import base64
import binascii
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from headrace.common.clock import Clock
from headrace.common.config import LONG_MAX
from headrace.common.errors import HeadraceError
from headrace.common.extras import requires_extra

if TYPE_CHECKING:
    from headrace.security.oauth_keys import KeySource

__all__ = [
    "ClaimRules",
    "InvalidTokenError",
    "SignedTokenValidator",
    "TokenValidator",
    "UnsecuredTokenValidator",
    "VerifiedToken",
    "decode_token",
    "read_scopes",
]

ALGORITHMS = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    **dict.fromkeys(("EdDSA", "Ed25519"), "OKP"),
}
"""The accepted algorithms and the type of their keys. Not `none`, and no HMAC: its key would be the public key."""

_MAX_TOKEN = 256 * 1024
_MAX_HEADER = 16 * 1024
_MAX_SIGNATURE = 4096
_MAX_SCOPES = 1000


class InvalidTokenError(HeadraceError):
    """A token is not valid. The text says why, and goes to the client."""

    def __init__(self, problem: str, status: str = "invalid_token"):
        super().__init__(problem)
        self.status = status
        """The status in the broker's response (RFC 7628): `invalid_token` or `insufficient_scope`."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """What a broker uses of a valid token."""

    principal: str
    expires_at_ms: int
    scopes: frozenset[str] = frozenset()


class TokenValidator(Protocol):
    """Checks tokens."""

    def validate(self, token: str) -> VerifiedToken:
        """Raises InvalidTokenError."""


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """What the claims of a token must be."""

    subject_claim: str = "sub"
    scope_claim: str = "scope"
    issuer: str | None = None
    audiences: Sequence[str] = ()
    clock_skew_ms: int = 30_000
    required_scopes: frozenset[str] = frozenset()
    needs_issue_time: bool = True
    checks_audience: bool = True

    def check(self, claims: Mapping[str, Any], now_ms: int) -> VerifiedToken:
        """Raises InvalidTokenError."""
        expires_at_ms = _time_ms(claims, "exp")
        if expires_at_ms is None:
            raise InvalidTokenError("the token does not say when it expires (claim exp)")
        if now_ms >= expires_at_ms + self.clock_skew_ms:
            raise InvalidTokenError("the token has expired")
        not_before_ms = _time_ms(claims, "nbf")
        if not_before_ms is not None and now_ms + self.clock_skew_ms < not_before_ms:
            raise InvalidTokenError("the token is not valid yet (claim nbf)")
        issued_at_ms = _time_ms(claims, "iat")
        if issued_at_ms is None and self.needs_issue_time:
            raise InvalidTokenError("the token does not say when it was issued (claim iat)")
        if issued_at_ms is not None and issued_at_ms > expires_at_ms:
            raise InvalidTokenError("the token expires before it was issued")
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise InvalidTokenError("the token has another issuer than sasl.oauthbearer.expected.issuer")
        if self.checks_audience:
            self._check_audience(claims.get("aud"))
        principal = claims.get(self.subject_claim)
        if not isinstance(principal, str) or not principal.strip():
            raise InvalidTokenError(f"the token has no claim {self.subject_claim} with the name of the principal")
        scopes = read_scopes(claims.get(self.scope_claim))
        if not self.required_scopes <= scopes:
            raise InvalidTokenError("the token does not have the required scopes", "insufficient_scope")
        return VerifiedToken(principal, expires_at_ms, scopes)

    def _check_audience(self, claim: object) -> None:
        """A token for others must not be accepted, also not by a broker that has no name for itself (RFC 7519)."""
        audiences = claim if isinstance(claim, list) else [] if claim is None else [claim]
        if not audiences and not self.audiences:
            return
        if not any(audience in self.audiences for audience in audiences if isinstance(audience, str)):
            raise InvalidTokenError("the token is not for an audience in sasl.oauthbearer.expected.audience")


def read_scopes(claim: object) -> frozenset[str]:
    """Returns the scopes of a claim, which is a list or a text with spaces."""
    scopes: Iterable[object] = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else ()
    return frozenset(scope for scope in list(scopes)[:_MAX_SCOPES] if isinstance(scope, str))


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidTokenError(f"the claim {name} of the token is not a time")
    return int(min(max(value, 0), LONG_MAX // 1000) * 1000)


def _decode_part(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidTokenError(f"the {what} of the token is not base64") from None


def _decode_object(text: str, what: str) -> dict[str, Any]:
    try:
        decoded = json.loads(_decode_part(text, what))
    except (ValueError, RecursionError):
        decoded = None
    if not isinstance(decoded, dict):
        raise InvalidTokenError(f"the {what} of the token is not a JSON object")
    return decoded


def decode_token(token: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Returns header, claims and the text of the signature, without checking them. Raises InvalidTokenError."""
    parts = token.split(".", 3)
    if len(token) > _MAX_TOKEN or len(parts) != 3:
        raise InvalidTokenError("the token is not a JSON Web Token of three parts")
    return _decode_object(parts[0], "header"), _decode_object(parts[1], "payload"), parts[2]


@dataclass(frozen=True)
class SignedTokenValidator:
    """Checks the signature with the keys of the issuer, then the claims."""

    keys: "KeySource"
    rules: ClaimRules
    clock: Clock
    _verify: Callable[[str, Any, str], bool] = field(default_factory=lambda: _make_verify(), repr=False)

    def validate(self, token: str) -> VerifiedToken:
        header, claims, _ = decode_token(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise InvalidTokenError(f"the token must be signed with one of {', '.join(ALGORITHMS)}")
        if key_id is not None and not isinstance(key_id, str):
            raise InvalidTokenError("the id of the token's key (kid) is not a text")
        keys = [
            key
            for key in self.keys.current()
            if key.key_type == ALGORITHMS[algorithm] and (key_id is None or key.kid == key_id)
        ]
        if not keys:
            self.keys.key_is_missing()
            raise InvalidTokenError("the token is signed with a key that the broker does not know")
        if not any(self._verify(token, key, algorithm) for key in keys):
            raise InvalidTokenError("the signature of the token is not valid")
        return self.rules.check(claims, self.clock.time_ms())


def _make_verify() -> Callable[[str, Any, str], bool]:
    with requires_extra("security"):
        from joserfc import jws
        from joserfc.errors import JoseError

    # Issuers add parameters of their own to the header. Those listed in `crit` must still be known.
    registry = jws.JWSRegistry(algorithms=list(ALGORITHMS), strict_check_header=False)
    registry.max_header_length, registry.max_payload_length, registry.max_signature_length = (
        _MAX_HEADER,
        _MAX_TOKEN,
        _MAX_SIGNATURE,
    )

    def verify(token: str, key: Any, algorithm: str) -> bool:
        if key.get("alg", algorithm) != algorithm:
            return False
        try:
            jws.deserialize_compact(token, key, algorithms=[algorithm], registry=registry)
        except (JoseError, ValueError, TypeError, KeyError):
            return False
        return True

    return verify


@dataclass(frozen=True)
class UnsecuredTokenValidator:
    """Accepts tokens without a signature, which anybody can make. For tests."""

    rules: ClaimRules
    clock: Clock

    def validate(self, token: str) -> VerifiedToken:
        header, claims, signature = decode_token(token)
        if header.get("alg") != "none" or signature:
            raise InvalidTokenError("the token is signed, but this broker accepts only unsecured tokens")
        return self.rules.check(claims, self.clock.time_ms())
