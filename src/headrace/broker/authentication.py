"""SASL authentication of one connection: which requests it may send, and what they change. Does no I/O.

    HANDSHAKE ── SaslHandshake v1 ──> EXCHANGE ──── SaslAuthenticate ...──> AUTHENTICATED ── SaslHandshake ──> EXCHANGE
        └─────── SaslHandshake v0 ──> RAW_EXCHANGE ── frames of tokens ...──> AUTHENTICATED   (re-authentication)
    any state ── a failure ──> FAILED

- Before it is authenticated, a connection may send ApiVersions, SaslHandshake and then SaslAuthenticate, nothing else.
- After SaslHandshake v0, each frame is a token without a Kafka header, in both directions.
- A session lasts until the credentials expire or `connections.max.reauth.ms` have passed, whichever is first. A
  connection whose session has expired may only re-authenticate (KIP-368). Without a lifetime, a connection cannot
  re-authenticate.
- Re-authentication must keep the mechanism and the principal, and is possible once a second.

`authentication_gate` connects this to connections.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from headrace.common.clock import Clock
from headrace.common.errors import (
    IllegalSaslStateError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from headrace.common.principal import ANONYMOUS, Principal
from headrace.protocol.apis import ApiKey
from headrace.security.sasl import ServerMechanism

_LEAST_SECONDS_BETWEEN_REAUTHENTICATIONS = 1.0
_FIRST_WITH_AUTHENTICATE = 1
"""The first version of SaslHandshake after which tokens come in SaslAuthenticate requests."""


class SaslState(Enum):
    """The state of a connection's authentication."""

    HANDSHAKE = "SASL handshake"
    EXCHANGE = "SASL authentication"
    RAW_EXCHANGE = "SASL authentication without Kafka headers"
    AUTHENTICATED = "authenticated"
    FAILED = "failed"


_PREDECESSORS = {
    SaslState.HANDSHAKE: frozenset[SaslState](),
    SaslState.EXCHANGE: frozenset({SaslState.HANDSHAKE, SaslState.AUTHENTICATED}),
    SaslState.RAW_EXCHANGE: frozenset({SaslState.HANDSHAKE, SaslState.AUTHENTICATED}),
    SaslState.AUTHENTICATED: frozenset({SaslState.EXCHANGE, SaslState.RAW_EXCHANGE}),
    SaslState.FAILED: frozenset(SaslState) - {SaslState.FAILED},
}
_ALLOWED_REQUESTS = {
    SaslState.HANDSHAKE: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    SaslState.EXCHANGE: frozenset({ApiKey.SASL_AUTHENTICATE}),
    SaslState.RAW_EXCHANGE: frozenset[ApiKey](),
    SaslState.FAILED: frozenset[ApiKey](),
}
_IN_EXCHANGE = (SaslState.EXCHANGE, SaslState.RAW_EXCHANGE)


@dataclass(frozen=True, slots=True)
class SaslListener:
    """The SASL settings of one listener."""

    mechanisms: Mapping[str, Callable[[], ServerMechanism]]
    """The enabled mechanisms in the order of `sasl.enabled.mechanisms`; each creates the object of one exchange."""
    max_reauth_ms: Mapping[str, int]
    """`connections.max.reauth.ms` by mechanism; 0: sessions have no limit other than their credentials."""
    max_receive_bytes: int
    """`sasl.server.max.receive.size`: the largest frame before authentication."""


class SaslAuthentication:
    """The authentication of one connection."""

    __slots__ = (
        "_authenticated_at",
        "_clock",
        "_mechanism",
        "listener",
        "mechanism_name",
        "principal",
        "session_expires_at",
        "state",
    )

    def __init__(self, listener: SaslListener, clock: Clock):
        self.listener = listener
        self.state = SaslState.HANDSHAKE
        self.mechanism_name = ""
        self.principal: Principal = ANONYMOUS
        """Who the client is, once authenticated. It does not change during re-authentication."""
        self.session_expires_at: float | None = None
        """The end of the session on the monotonic clock; None if it has no end."""
        self._clock = clock
        self._mechanism: ServerMechanism | None = None
        self._authenticated_at: float | None = None

    @property
    def is_authenticated(self) -> bool:
        """True if requests may be served. False during re-authentication."""
        return self.state is SaslState.AUTHENTICATED

    @property
    def is_in_progress(self) -> bool:
        """True if the next request belongs to the authentication."""
        return self.state in (SaslState.HANDSHAKE, *_IN_EXCHANGE)

    @property
    def is_reauthentication(self) -> bool:
        return self._authenticated_at is not None

    @property
    def expects_raw_token(self) -> bool:
        return self.state is SaslState.RAW_EXCHANGE

    @property
    def is_expired(self) -> bool:
        """True if the session is over."""
        return self.session_expires_at is not None and self._clock.monotonic() > self.session_expires_at

    @property
    def may_reauthenticate(self) -> bool:
        """True if a SaslHandshake request starts a re-authentication; otherwise it is answered with an error."""
        if self.state is not SaslState.AUTHENTICATED or self.session_expires_at is None:
            return False
        assert self._authenticated_at is not None
        return self._clock.monotonic() - self._authenticated_at >= _LEAST_SECONDS_BETWEEN_REAUTHENTICATIONS

    def check_request(self, key: int) -> None:
        """Raises IllegalSaslStateError if a connection that is not authenticated must not send this request now."""
        allowed = _ALLOWED_REQUESTS.get(self.state, frozenset())
        if key not in allowed:
            name = ApiKey(key).name if key in ApiKey._value2member_map_ else f"with API key {key}"
            raise IllegalSaslStateError(f"Unexpected Kafka request {name} during {self.state.value}")

    def handshake(self, version: int, mechanism_name: str) -> None:
        """Selects the mechanism. Raises UnsupportedSaslMechanismError or SaslAuthenticationFailedError."""
        if self.is_reauthentication and mechanism_name != self.mechanism_name:
            raise self._failed(
                SaslAuthenticationFailedError(
                    f"SASL mechanism {self.mechanism_name!r} must not change during re-authentication"
                )
            )
        create = self.listener.mechanisms.get(mechanism_name)
        if create is None:
            raise self._failed(
                UnsupportedSaslMechanismError(
                    f"SASL mechanism {mechanism_name[:64]!r} is not enabled on this listener; enabled are "
                    f"{', '.join(self.listener.mechanisms)}"
                )
            )
        self.mechanism_name = mechanism_name
        self._mechanism = create()
        self._enter(SaslState.EXCHANGE if version >= _FIRST_WITH_AUTHENTICATE else SaslState.RAW_EXCHANGE)

    def authenticate(self, token: bytes) -> tuple[bytes, int]:
        """Processes a client's token. Returns the broker's token, and the session lifetime in ms if the client is
        authenticated now and its session ends. Raises SaslAuthenticationFailedError or IllegalSaslStateError."""
        if self.state not in _IN_EXCHANGE or self._mechanism is None:
            raise IllegalSaslStateError("SaslAuthenticate request without a SASL handshake")
        mechanism = self._mechanism
        try:
            response = mechanism.respond(token)
            lifetime_ms = self._completed(mechanism) if mechanism.complete else 0
        except SaslAuthenticationFailedError as error:
            raise self._failed(error) from None
        return response, lifetime_ms

    def fail(self) -> None:
        """Ends the authentication after a request that is not allowed."""
        if self.state is not SaslState.FAILED:
            self._enter(SaslState.FAILED)
            self._mechanism = None

    # ---- transitions

    def _completed(self, mechanism: ServerMechanism) -> int:
        principal = mechanism.principal
        previous = self.principal
        if self.is_reauthentication and (principal.type, principal.name) != (previous.type, previous.name):
            raise SaslAuthenticationFailedError(
                f"Cannot change principals during re-authentication from {previous.type}.{previous.name}"
            )
        now = self._clock.monotonic()
        lifetime_ms = self._lifetime_ms(mechanism.expires_at_ms)
        self.principal = principal
        self.session_expires_at = None if lifetime_ms is None else now + lifetime_ms / 1000
        self._authenticated_at = now
        self._mechanism = None
        self._enter(SaslState.AUTHENTICATED)
        return lifetime_ms or 0

    def _lifetime_ms(self, expires_at_ms: int | None) -> int | None:
        limits = []
        if expires_at_ms is not None:
            limits.append(expires_at_ms - self._clock.time_ms())
        max_reauth_ms = self.listener.max_reauth_ms.get(self.mechanism_name, 0)
        if max_reauth_ms > 0:
            limits.append(max_reauth_ms)
        return max(0, min(limits)) if limits else None

    def _failed(self, error: SaslAuthenticationFailedError | UnsupportedSaslMechanismError) -> Exception:
        self.fail()
        return error

    def _enter(self, state: SaslState) -> None:
        if self.state not in _PREDECESSORS[state]:
            raise IllegalSaslStateError(f"SASL state {state.name} cannot follow {self.state.name}")
        self.state = state
