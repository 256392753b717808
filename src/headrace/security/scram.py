"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the password is never sent, and both sides are authenticated.

    client                                                        broker
    n,,n=<user>,r=<client nonce>[,tokenauth=true]          -->
                            <--  r=<client nonce><broker nonce>,s=<salt>,i=<iterations>
    c=biws,r=<both nonces>,p=<proof>                       -->
                            <--  v=<signature>

With Kafka's extension `tokenauth=true` the user is the id of a delegation token and the password is its HMAC.
As in Kafka, names are UTF-8 without SASLprep; `,` and `=` in them are written `=2C` and `=3D`.
"""

import base64
import binascii
import hmac
import re
import secrets
from collections.abc import Callable

from headrace.common.clock import Clock
from headrace.common.errors import SaslAuthenticationFailedError
from headrace.common.principal import USER, Principal
from headrace.security.credentials import (
    CredentialStore,
    ScramCredential,
    ScramMechanism,
    new_salt,
    salted_password,
)

__all__ = ["ScramClient", "ScramKeyCache", "ScramServer", "UnknownUsers", "new_nonce"]

TOKEN_EXTENSION = "tokenauth"
_MAX_CLIENT_ITERATIONS = 1_000_000
"""More than any broker uses. A foreign server must not keep the client computing."""
_MAX_NONCE = 1024

_CLIENT_FIRST = re.compile(
    r"(?P<header>[ny],(?:a=(?P<authorization_id>[^,\0]*))?,)"
    r"(?P<bare>n=(?P<user>[^,\0]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*))"
)
_SERVER_FIRST = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[1-9][0-9]{0,8})"
    r"(?:,[A-Za-z]+=[^,\0]+)*"
)
_CLIENT_FINAL = re.compile(
    r"(?P<unsigned>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,\0]+)*?)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_SERVER_FINAL = re.compile(r"(?:v=(?P<signature>[A-Za-z0-9+/=]+)|e=(?P<error>[^,\0]+))(?:,[A-Za-z]+=[^,\0]+)*")
_BAD_ESCAPE = re.compile(r"=(?!2C|3D)")


def new_nonce() -> str:
    """Returns a random nonce."""
    return secrets.token_urlsafe(24)


def _encode_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _decode_name(name: str) -> str:
    if _BAD_ESCAPE.search(name):
        raise SaslAuthenticationFailedError("Invalid SCRAM message: invalid escape in a name")
    return name.replace("=2C", ",").replace("=3D", "=")


def _match(pattern: re.Pattern[str], message: bytes, what: str) -> re.Match[str]:
    try:
        match = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise SaslAuthenticationFailedError(f"Invalid SCRAM {what} message")
    return match


def _decode_base64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslAuthenticationFailedError(f"Invalid SCRAM {what} message") from None


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


class UnknownUsers:
    """Makes up a credential for users that do not exist, always the same for a name. Without it the first response
    would tell which users exist."""

    def __init__(self, secret: bytes | None = None, iterations: int = 4096):
        self._secret = secrets.token_bytes(32) if secret is None else secret
        self._iterations = iterations

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        seed = hmac.digest(self._secret, f"{mechanism.name}\0{user}".encode(), "sha512")
        # Looks like the salts that users have. Nobody knows a password for random keys.
        salt = bytes(b"0123456789abcdefghijklmnopqrstuvwxyz"[byte % 36] for byte in seed[: len(new_salt())])
        stored_key, server_key = (secrets.token_bytes(mechanism.digest_bytes) for _ in range(2))
        return ScramCredential(salt, stored_key, server_key, self._iterations)


class ScramServer:
    """The broker's side."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: CredentialStore,
        unknown_users: UnknownUsers,
        clock: Clock,
        nonce: Callable[[], str] = new_nonce,
    ):
        self._mechanism = mechanism
        self._credentials = credentials
        self._unknown_users = unknown_users
        self._clock = clock
        self._new_nonce = nonce
        self._respond: Callable[[bytes], bytes] = self._client_first
        self._principal: Principal | None = None
        """Set by the first message to who the client claims to be; None for unknown users."""
        self._credential: ScramCredential | None = None
        self._header = ""
        self._nonce = ""
        self._first_messages = ""
        self.complete = False
        self.expires_at_ms: int | None = None

    @property
    def principal(self) -> Principal:
        assert self.complete
        assert self._principal is not None
        return self._principal

    def respond(self, message: bytes) -> bytes:
        respond, self._respond = self._respond, self._over
        return respond(message)

    def _over(self, _message: bytes) -> bytes:
        raise SaslAuthenticationFailedError("Unexpected SCRAM message: the exchange is over")

    def _client_first(self, message: bytes) -> bytes:
        match = _match(_CLIENT_FIRST, message, "client first")
        if len(match["nonce"]) > _MAX_NONCE:
            raise SaslAuthenticationFailedError("Invalid SCRAM client first message")
        user = _decode_name(match["user"])
        authorization_id = _decode_name(match["authorization_id"] or "")
        if authorization_id and authorization_id != user:
            raise SaslAuthenticationFailedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        extensions = dict(item.partition("=")[::2] for item in match["extensions"].split(",")[1:])
        credential = self._look_up(user, extensions.get(TOKEN_EXTENSION, "").lower() == "true")
        # Made up also if it is not needed: the time of the response must not tell which users exist (CVE-2021-38153).
        made_up = self._unknown_users.credential(self._mechanism, user)
        self._credential = made_up if credential is None else credential
        self._header = match["header"]
        self._nonce = match["nonce"] + self._new_nonce()
        salt = base64.b64encode(self._credential.salt).decode()
        response = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._first_messages = f"{match['bare']},{response}"
        self._respond = self._client_final
        return response.encode()

    def _look_up(self, user: str, is_token: bool) -> ScramCredential | None:
        if not is_token:
            credential = self._credentials.scram_credential(self._mechanism.name, user)
            self._principal = None if credential is None else Principal(USER, user)
            return credential
        token = self._credentials.token_credential(self._mechanism.name, user)
        if token is None or token.expires_at_ms <= self._clock.time_ms():
            return None
        self._principal = Principal(token.owner.type, token.owner.name, token_authenticated=True)
        self.expires_at_ms = token.expires_at_ms
        return token.credential

    def _client_final(self, message: bytes) -> bytes:
        assert self._credential is not None
        match = _match(_CLIENT_FINAL, message, "client final")
        # Kafka's client always sends the binding of the header "n,,".
        if _decode_base64(match["binding"], "client final") not in (self._header.encode(), b"n,,"):
            raise SaslAuthenticationFailedError("Invalid SCRAM client final message: wrong channel binding")
        # A recorded proof must not be accepted again (CVE-2024-56128).
        if not hmac.compare_digest(match["nonce"], self._nonce):
            raise SaslAuthenticationFailedError("Invalid client nonce in the final client message")
        proof = _decode_base64(match["proof"], "client final")
        signed = f"{self._first_messages},{match['unsigned']}".encode()
        mechanism, credential = self._mechanism, self._credential
        if len(proof) != mechanism.digest_bytes:
            raise SaslAuthenticationFailedError("Invalid SCRAM client final message")
        client_key = _xor(proof, mechanism.hmac(credential.stored_key, signed))
        valid = hmac.compare_digest(mechanism.hash(client_key), credential.stored_key)
        if not valid or self._principal is None:
            raise SaslAuthenticationFailedError(
                f"Authentication failed during authentication due to invalid credentials with SASL mechanism "
                f"{mechanism.name}"
            )
        self.complete = True
        return b"v=" + base64.b64encode(mechanism.hmac(credential.server_key, signed))


class ScramKeyCache:
    """Remembers the key that was derived from a client's password, so that each connection need not derive it again.
    Thread-safe: it replaces one tuple."""

    def __init__(self) -> None:
        self._last: tuple[tuple[str, str, bytes, int], bytes] | None = None

    def salted_password(self, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
        key = mechanism.name, password, salt, iterations
        last = self._last
        if last is not None and last[0] == key:
            return last[1]
        salted = salted_password(mechanism, password, salt, iterations)
        self._last = key, salted
        return salted


class ScramClient:
    """The client's side."""

    blocking = True

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        is_token: bool = False,
        keys: ScramKeyCache | None = None,
        nonce: Callable[[], str] = new_nonce,
    ):
        self.name = mechanism.name
        self.complete = False
        self._mechanism = mechanism
        self._password = password
        self._keys = keys or ScramKeyCache()
        self._nonce = nonce()
        extension = f",{TOKEN_EXTENSION}=true" if is_token else ""
        self._bare = f"n={_encode_name(user)},r={self._nonce}{extension}"
        self._server_signature: bytes | None = None

    def initial_response(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def respond(self, challenge: bytes) -> bytes:
        if self._server_signature is None:
            return self._server_first(challenge)
        return self._server_final(challenge, self._server_signature)

    def _server_first(self, challenge: bytes) -> bytes:
        if challenge.startswith(b"e="):
            self._server_final(challenge, b"")
        match = _match(_SERVER_FIRST, challenge, "server first")
        nonce, iterations = match["nonce"], int(match["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslAuthenticationFailedError("Invalid server nonce: the broker did not extend the client's nonce")
        mechanism = self._mechanism
        if not mechanism.min_iterations <= iterations <= _MAX_CLIENT_ITERATIONS:
            raise SaslAuthenticationFailedError(
                f"The broker asks for {iterations} iterations of {mechanism.name}: at least "
                f"{mechanism.min_iterations} and at most {_MAX_CLIENT_ITERATIONS} are accepted"
            )
        salt = _decode_base64(match["salt"], "server first")
        salted = self._keys.salted_password(mechanism, self._password, salt, iterations)
        unsigned = f"c=biws,r={nonce}"
        signed = f"{self._bare},{challenge.decode()},{unsigned}".encode()
        client_key = mechanism.hmac(salted, b"Client Key")
        proof = _xor(client_key, mechanism.hmac(mechanism.hash(client_key), signed))
        self._server_signature = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed)
        return f"{unsigned},p={base64.b64encode(proof).decode()}".encode()

    def _server_final(self, challenge: bytes, expected: bytes) -> bytes:
        match = _match(_SERVER_FINAL, challenge, "server final")
        if match["error"]:
            raise SaslAuthenticationFailedError(f"Authentication with {self.name} failed: {match['error'][:200]}")
        if not hmac.compare_digest(_decode_base64(match["signature"], "server final"), expected):
            raise SaslAuthenticationFailedError(
                "Invalid server signature in the final server message: the broker does not know the password"
            )
        self.complete = True
        return b""
