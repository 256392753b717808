"""An issuer of OAuth tokens for tests."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.registry import HeaderParameter

_TYPES = {"RS": (RSAKey, 2048), "PS": (RSAKey, 2048), "ES": (ECKey, "P-256"), "Ed": (OKPKey, "Ed25519")}


class Issuer:
    """Has a key, and signs tokens with it."""

    def __init__(self, algorithm: str = "ES256", kid: str = "key-1"):
        kind, size = _TYPES[algorithm[:2]]
        self.algorithm, self.kid = algorithm, kid
        self.key = kind.generate_key(size, parameters={"kid": kid})

    def jwks(self, **extra: str) -> dict[str, Any]:
        """Returns the public key as a JWKS."""
        return {"keys": [{**self.key.as_dict(private=False), "kid": self.kid, **extra}]}

    def jwks_text(self) -> bytes:
        return json.dumps(self.jwks()).encode()

    def sign(self, claims: Mapping[str, object], **header: Any) -> str:
        return jws.serialize_compact(
            {"alg": self.algorithm, "kid": self.kid, **header},
            json.dumps(claims).encode(),
            self.key,
            algorithms=[self.algorithm],
            registry=jws.JWSRegistry(
                {name: HeaderParameter(name, "str") for name in header.get("crit", ())},
                algorithms=[self.algorithm],
                strict_check_header=False,
            ),
        )


def unsecured_token(claims: Mapping[str, object], algorithm: str = "none", signature: str = "") -> str:
    """Returns a token that nobody has signed."""
    parts = (json.dumps(part).encode() for part in ({"alg": algorithm}, claims))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + f".{signature}"
