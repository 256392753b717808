"""PLAIN (RFC 4616): the client sends user and password in one message. Only safe on TLS.

    message = [authorization id] NUL user NUL password

The broker's users are the options `user_<name>="<password>"` of its login module.
"""

import hmac
import secrets

from headrace.common.errors import SaslAuthenticationFailedError
from headrace.common.principal import USER, Principal
from headrace.security.jaas import JaasEntry
from headrace.security.sasl import PLAIN

_USER_OPTION = "user_"
_FAILED = "Authentication failed: Invalid username or password"


class PlainUsers:
    """The users and passwords of a broker."""

    def __init__(self, jaas: JaasEntry):
        self._passwords = {
            name.removeprefix(_USER_OPTION): password.encode()
            for name, password in jaas.options.items()
            if name.startswith(_USER_OPTION)
        }
        self._no_password = secrets.token_bytes(32)

    def __len__(self) -> int:
        return len(self._passwords)

    def check(self, user: str, password: bytes) -> bool:
        """Compares in constant time, also for unknown users: the duration tells nothing (CVE-2021-38153)."""
        expected = self._passwords.get(user)
        equal = hmac.compare_digest(password, self._no_password if expected is None else expected)
        return equal and expected is not None


class PlainServer:
    """The broker's side."""

    expires_at_ms = None

    def __init__(self, users: PlainUsers):
        self._users = users
        self._principal: Principal | None = None

    @property
    def complete(self) -> bool:
        return self._principal is not None

    @property
    def principal(self) -> Principal:
        assert self._principal is not None
        return self._principal

    def respond(self, message: bytes) -> bytes:
        if self.complete:
            raise SaslAuthenticationFailedError("Invalid SASL/PLAIN response: authentication is complete")
        parts = message.split(b"\0", 3)
        if len(parts) != 3:
            raise SaslAuthenticationFailedError("Invalid SASL/PLAIN response: expected 3 tokens")
        try:
            authorization_id, user = parts[0].decode(), parts[1].decode()
        except UnicodeDecodeError:
            raise SaslAuthenticationFailedError("Invalid SASL/PLAIN response: not UTF-8") from None
        if not user:
            raise SaslAuthenticationFailedError("Authentication failed: username not specified")
        if not parts[2]:
            raise SaslAuthenticationFailedError("Authentication failed: password not specified")
        if not self._users.check(user, parts[2]):
            raise SaslAuthenticationFailedError(_FAILED)
        # A user who acts as another one would have that one's rights (CVE-2017-12610).
        if authorization_id and authorization_id != user:
            raise SaslAuthenticationFailedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._principal = Principal(USER, user)
        return b""


class PlainClient:
    """The client's side."""

    name = PLAIN
    blocking = False

    def __init__(self, user: str, password: str):
        self._message = b"\0".join((b"", user.encode(), password.encode()))
        self.complete = False

    def initial_response(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes:
        if challenge:
            raise SaslAuthenticationFailedError("The broker sent an unexpected message in the mechanism PLAIN")
        self.complete = True
        return b""
