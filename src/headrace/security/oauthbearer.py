"""OAUTHBEARER (RFC 7628, KIP-255): the client sends a token that somebody else has issued. Only safe on TLS.

client                                                              broker
n,,^Aauth=Bearer <token>^A[<extension>=<value>^A]*^A        -->
                                      <--  (empty), authenticated; or {"status":"invalid_token"}
^A  (acknowledges the error)                                -->
                                      <--  SASL_AUTHENTICATION_FAILED
"""

import json
import logging
import re
from collections.abc import Mapping

from headrace.common.errors import ConfigError, SaslAuthenticationFailedError
from headrace.common.principal import USER, Principal
from headrace.security.oauth_validator import InvalidTokenError, TokenValidator, VerifiedToken
from headrace.security.sasl import OAUTHBEARER

__all__ = ["OAuthBearerClient", "OAuthBearerServer", "check_extensions"]

_logger = logging.getLogger(__name__)

_SEPARATOR = "\x01"
_ACKNOWLEDGEMENT = b"\x01"
_HEADER = re.compile(r"[ny],(?:a=(?P<authorization_id>[^,\0]*))?,")
_TOKEN = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(?P<token>[-_.~+/A-Za-z0-9]+=*) *")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7E \t\r\n]+")
_MAX_ERROR = 1000


def check_extensions(extensions: Mapping[str, str]) -> str | None:
    """Returns what is wrong with SASL extensions (KIP-342), or None. Values are not shown."""
    for name, value in extensions.items():
        if not isinstance(name, str) or _EXTENSION_NAME.fullmatch(name) is None:
            return f"the name of the SASL extension {str(name)[:50]!r} must consist of letters"
        if name == "auth":
            return "a SASL extension cannot have the name auth"
        if not isinstance(value, str) or _EXTENSION_VALUE.fullmatch(value) is None:
            return f"the value of the SASL extension {name} must consist of printable ASCII characters"
    return None


class OAuthBearerServer:
    """The broker's side."""

    def __init__(self, validator: TokenValidator):
        self._validator = validator
        self._token: VerifiedToken | None = None
        self._error: str | None = None
        self.extensions: Mapping[str, str] = {}
        """The client's SASL extensions."""

    @property
    def complete(self) -> bool:
        return self._token is not None

    @property
    def principal(self) -> Principal:
        assert self._token is not None
        return Principal(USER, self._token.principal)

    @property
    def expires_at_ms(self) -> int | None:
        assert self._token is not None
        return self._token.expires_at_ms

    def respond(self, message: bytes) -> bytes:
        if self._error is not None:
            raise SaslAuthenticationFailedError(self._error)
        if self.complete:
            raise SaslAuthenticationFailedError("Invalid OAUTHBEARER message: authentication is complete")
        authorization_id, token, extensions = _parse(message)
        try:
            verified = self._validator.validate(token)
        except InvalidTokenError as error:
            _logger.info("Client sent an OAuth token that is not valid: %s", error)
            self._error = json.dumps({"status": error.status, "error_description": str(error)}, separators=(",", ":"))
            return self._error.encode()
        if authorization_id and authorization_id != verified.principal:
            raise SaslAuthenticationFailedError(
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name"
            )
        self._token = verified
        self.extensions = extensions
        return b""


def _parse(message: bytes) -> tuple[str, str, dict[str, str]]:
    """Returns the authorization id, the token and the extensions."""

    def invalid(problem: str) -> SaslAuthenticationFailedError:
        return SaslAuthenticationFailedError(f"Invalid OAUTHBEARER client first message: {problem}")

    try:
        header, *pairs = message.decode().split(_SEPARATOR)
    except UnicodeDecodeError:
        raise invalid("not UTF-8") from None
    match = _HEADER.fullmatch(header)
    if match is None:
        raise invalid("wrong header")
    if len(pairs) < 2 or pairs[-2:] != ["", ""]:
        raise invalid("not terminated")
    values: dict[str, str] = {}
    for pair in pairs[:-2]:
        name, _, value = pair.partition("=")
        if name in values:
            raise invalid("a key is repeated")
        values[name] = value
    token = _TOKEN.fullmatch(values.pop("auth", ""))
    if token is None:
        raise invalid("no bearer token")
    if problem := check_extensions(values):
        raise invalid(problem)
    authorization_id = (match["authorization_id"] or "").replace("=2C", ",").replace("=3D", "=")
    return authorization_id, token["token"], values


class OAuthBearerClient:
    """The client's side. The token is valid."""

    name = OAUTHBEARER
    blocking = False

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None):
        if problem := check_extensions(extensions or {}):
            raise ConfigError(f"sasl.mechanism=OAUTHBEARER: {problem}")
        if _TOKEN.fullmatch(f"Bearer {token}") is None:
            raise SaslAuthenticationFailedError("The OAuth token has characters that are not allowed in a token")
        pairs = {"auth": f"Bearer {token}", **(extensions or {})}
        text = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs.items())
        self._message = f"n,,{_SEPARATOR}{text}{_SEPARATOR}".encode()
        self.complete = False

    def initial_response(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes:
        if not challenge:
            self.complete = True
            return b""
        # The broker answers the acknowledgement with the error.
        _logger.debug("The broker rejected the OAuth token: %s", challenge[:_MAX_ERROR])
        return _ACKNOWLEDGEMENT
