"""Sessions of browsers: who is logged in where, CSRF tokens, expiry, and the limit of failed logins.

A session is in memory only, and so are the credentials in it: the console needs them to connect as the user. Session
ids and CSRF tokens are random, 256 bits each. A login gives the session a new id and a new token. Owner: the loop.
"""

import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

from headrace.common.clock import Clock
from headrace.console.identity import Identity

_TOKEN_BYTES = 32
_MAX_SESSIONS = 10_000
_MAX_LOGINS = 200
"""Sessions with a login at the same time. Each has connections and, on a large cluster, names of topics."""
_FAILURES = 5
_FAILURE_SECONDS = 60.0
_MAX_FAILURE_KEYS = 10_000


@dataclass(eq=False)
class Session:
    """One browser."""

    id: str
    csrf_token: str
    created: float
    used: float
    identities: dict[str, Identity] = field(default_factory=dict)
    """The logins by cluster."""

    def has_token(self, token: str | None) -> bool:
        """Compares a CSRF token in constant time."""
        return token is not None and hmac.compare_digest(token.encode(), self.csrf_token.encode())


class Sessions:
    """All sessions."""

    def __init__(self, clock: Clock, idle_seconds: float, max_seconds: float):
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._max_seconds = max_seconds
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        """The least recently used session first."""
        self._ended: list[Identity] = []

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def logins(self) -> int:
        return sum(len(session.identities) for session in self._sessions.values())

    def new(self) -> Session:
        """Returns a new session. Ends expired ones, and above the limit the least recently used one without a login."""
        while self._sessions:
            oldest = next(iter(self._sessions.values()))
            if self.is_live(oldest):
                break
            self.end(oldest)
        now = self._clock.monotonic()
        session = Session(secrets.token_urlsafe(_TOKEN_BYTES), secrets.token_urlsafe(_TOKEN_BYTES), now, now)
        self._sessions[session.id] = session
        if len(self._sessions) > _MAX_SESSIONS:  # those without a login first: anybody can create them
            sessions = self._sessions.values()
            self.end(next(other for other in sessions if not other.identities))
        return session

    def find(self, session_id: str | None) -> Session | None:
        """Returns a live session and notes its use."""
        session = self._sessions.get(session_id) if session_id else None
        if session is None:
            return None
        if not self.is_live(session):
            self.end(session)
            return None
        session.used = self._clock.monotonic()
        self._sessions.move_to_end(session.id)
        return session

    def is_live(self, session: Session) -> bool:
        now = self._clock.monotonic()
        return (
            session.id in self._sessions
            and now - session.used < self._idle_seconds
            and now - session.created < self._max_seconds
        )

    def expires_in(self, session: Session) -> float:
        """Returns the seconds until the session ends, if it is not used."""
        now = self._clock.monotonic()
        return min(session.used + self._idle_seconds, session.created + self._max_seconds) - now

    def log_in(self, session: Session, identity: Identity) -> Session:
        """Returns a new session with the logins of the old one and a further one. The old session ends."""
        renewed = self.new()
        renewed.identities.update(session.identities)
        session.identities.clear()
        replaced = renewed.identities.pop(identity.cluster, None)
        if replaced is not None:
            self._ended.append(replaced)
        renewed.identities[identity.cluster] = identity
        self.end(session)
        with_login = [other for other in self._sessions.values() if other.identities]
        for other in with_login[: max(0, len(with_login) - _MAX_LOGINS)]:
            self.end(other)
        return renewed

    def log_out(self, session: Session, cluster: str | None) -> None:
        """Ends the login on one cluster, or all of them."""
        for name in [cluster] if cluster is not None else list(session.identities):
            identity = session.identities.pop(name, None)
            if identity is not None:
                self._ended.append(identity)

    def end(self, session: Session) -> None:
        self.log_out(session, None)
        self._sessions.pop(session.id, None)

    def expire(self) -> None:
        """Ends the sessions that are too old."""
        for session in [session for session in self._sessions.values() if not self.is_live(session)]:
            self.end(session)

    def take_ended(self) -> list[Identity]:
        """Returns the identities of ended logins, for their connections to be closed."""
        ended, self._ended = self._ended, []
        return ended

    def end_all(self) -> None:
        for session in list(self._sessions.values()):
            self.end(session)


class LoginLimit:
    """Limits failed logins: by the address they come from, and by the user name they try."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def wait_seconds(self, *keys: str) -> float:
        """Returns how long to wait before the next try; 0 if it is allowed now."""
        now = self._clock.monotonic()
        waits = [0.0]
        for key in keys:
            times = [time for time in self._failures.get(key, ()) if now - time < _FAILURE_SECONDS]
            if len(times) >= _FAILURES:
                waits.append(times[-_FAILURES] + _FAILURE_SECONDS - now)
        return max(waits)

    def failed(self, *keys: str) -> None:
        now = self._clock.monotonic()
        for key in keys:
            times = self._failures.setdefault(key, [])
            times.append(now)
            del times[:-_FAILURES]
            self._failures.move_to_end(key)
        while len(self._failures) > _MAX_FAILURE_KEYS:
            self._failures.popitem(last=False)

    def succeeded(self, *keys: str) -> None:
        for key in keys:
            self._failures.pop(key, None)
