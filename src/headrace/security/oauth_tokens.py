"""The tokens of an OAUTHBEARER client: where they come from, and when they are refreshed.

    source                                                       asked
    sasl_oauth_token_provider  an object with token()            for each connection; the object keeps tokens
    oauth_cb                   a function                        when the token expires soon
    sasl.oauthbearer.token.endpoint.url                          when the token expires soon
        http(s):               grant client_credentials (RFC 6749, section 4.4)
        file:                  a file with a token
    unsecuredLogin* in sasl.jaas.config, or sasl.oauthbearer.config
                               a token without a signature, for tests

Blocking requests and the user's functions run in a thread, coroutines on the loop. Owner: the SaslLogin of a client.
"""

import asyncio
import base64
import inspect
import json
import logging
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from headrace.common.clock import Clock
from headrace.common.errors import ConfigError, HeadraceError, SaslAuthenticationFailedError
from headrace.common.ids import Random, make_random
from headrace.security.oauth_http import HttpError, fetch, read_file_url
from headrace.security.oauth_validator import InvalidTokenError, decode_token

__all__ = [
    "CallbackSource",
    "EndpointSource",
    "FileSource",
    "ProviderSource",
    "RefreshSchedule",
    "RefreshingToken",
    "Token",
    "TokenSource",
    "UnsecuredSource",
]

_logger = logging.getLogger(__name__)

URL_KEY = "sasl.oauthbearer.token.endpoint.url"
_MAX_ANSWER = 1_000_000
_DEFAULT_TIMEOUT_MS = 10_000


class Token(NamedTuple):
    """A token, in the order of the tuple that `oauth_cb` returns."""

    value: str
    expires_at: float | None
    """Seconds since 1970; None if it is used for one connection only."""
    principal: str = ""
    extensions: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        return f"Token(expires_at={self.expires_at}, principal={self.principal!r})"


class TokenSource(Protocol):
    """Where tokens come from."""

    async def fetch(self) -> Token:
        """Returns a new token. Raises HeadraceError, or what a user's function raises."""


async def _call(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a user's function, which may block or be a coroutine function."""
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    result = await asyncio.to_thread(function, *args)
    return await result if inspect.isawaitable(result) else result


@dataclass(frozen=True)
class ProviderSource:
    """An object as kafka-python and aiokafka use it."""

    provider: Any = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)

    async def fetch(self) -> Token:
        value = await _call(self.provider.token)
        if not isinstance(value, str) or not value:
            raise SaslAuthenticationFailedError(
                f"sasl_oauth_token_provider: token() returned {type(value).__name__}: expected a str"
            )
        extensions = dict(self.extensions)
        if callable(method := getattr(self.provider, "extensions", None)):
            extensions.update(await _call(method) or {})
        return Token(value, None, "", extensions)


@dataclass(frozen=True)
class CallbackSource:
    """A function as confluent-kafka uses it."""

    callback: Callable[[str], Any] = field(repr=False)
    argument: str = field(default="", repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)

    async def fetch(self) -> Token:
        result = await _call(self.callback, self.argument)
        try:
            token = Token(*result)
            valid = isinstance(token.value, str) and isinstance(token.expires_at, int | float)
        except TypeError:
            valid = False
        if not valid:
            raise SaslAuthenticationFailedError(
                "oauth_cb must return (token, expiry in seconds since 1970[, principal, extensions])"
            )
        return token._replace(extensions={**self.extensions, **(token.extensions or {})})


@dataclass(frozen=True)
class _Claims:
    """The names of the claims that a client reads."""

    subject: str = "sub"

    def read(self, value: str, extensions: Mapping[str, str], origin: str) -> Token:
        """Reads the expiry of a token. What is not a token is not sent to brokers (CVE-2025-27817)."""
        try:
            _, claims, _ = decode_token(value)
        except InvalidTokenError as error:
            raise SaslAuthenticationFailedError(f"{origin}: {error}") from None
        expires_at, principal = claims.get("exp"), claims.get(self.subject)
        if isinstance(expires_at, bool) or not isinstance(expires_at, int | float):
            raise SaslAuthenticationFailedError(f"{origin}: the token has no claim exp with the time when it expires")
        if not isinstance(principal, str) or not principal:
            raise SaslAuthenticationFailedError(f"{origin}: the token has no claim {self.subject} with the principal")
        return Token(value, expires_at, principal, extensions)


@dataclass(frozen=True)
class FileSource:
    """A file with a token, which somebody else replaces."""

    url: str
    subject_claim: str = "sub"
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)

    async def fetch(self) -> Token:
        content = await asyncio.to_thread(read_file_url, URL_KEY, self.url, _MAX_ANSWER)
        value = content.decode(errors="replace").strip()
        return _Claims(self.subject_claim).read(value, self.extensions, f"{URL_KEY}={self.url}")


@dataclass(frozen=True)
class EndpointSource:
    """A token endpoint, asked with the grant client_credentials."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    urlencode: bool = False
    timeout_ms: int = _DEFAULT_TIMEOUT_MS
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000
    subject_claim: str = "sub"
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep, repr=False)

    async def fetch(self) -> Token:
        waited_ms = 0
        delay_ms = self.backoff_ms
        while True:
            try:
                answer = await asyncio.to_thread(self._request)
                break
            except HttpError as error:
                # As in Kafka, sasl.login.retry.backoff.max.ms also limits the time of all attempts.
                if not error.retriable or waited_ms + delay_ms > self.backoff_max_ms:
                    raise
                _logger.warning("Could not get an OAuth token, trying again in %d ms: %s", delay_ms, error)
            await self.sleep(delay_ms / 1000)
            waited_ms, delay_ms = waited_ms + max(1, delay_ms), delay_ms * 2
        try:
            value = json.loads(answer)["access_token"]
        except (ValueError, KeyError, TypeError, RecursionError):
            value = None
        if not isinstance(value, str):
            raise SaslAuthenticationFailedError(f"{URL_KEY}: the answer has no access_token")
        return _Claims(self.subject_claim).read(value.strip(), self.extensions, URL_KEY)

    def _request(self) -> bytes:
        parts = (self.client_id, self.client_secret)
        if self.urlencode:
            parts = (urllib.parse.quote_plus(self.client_id), urllib.parse.quote_plus(self.client_secret))
        form = {"grant_type": "client_credentials"}
        if self.scope:
            form["scope"] = self.scope
        headers = {
            "Accept": "application/json",
            "Authorization": "Basic " + base64.b64encode(":".join(parts).encode()).decode(),
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return fetch(
            URL_KEY,
            self.url,
            data=urllib.parse.urlencode(form).encode(),
            headers=headers,
            timeout_seconds=self.timeout_ms / 1000,
            max_bytes=_MAX_ANSWER,
        )


@dataclass(frozen=True)
class UnsecuredSource:
    """Makes tokens without a signature, which only brokers for tests accept."""

    claims: Mapping[str, object]
    clock: Clock
    subject_claim: str = "sub"
    lifetime_seconds: int = 3600
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)

    async def fetch(self) -> Token:
        issued_at = self.clock.time_ms() / 1000
        expires_at = issued_at + self.lifetime_seconds
        claims = {**self.claims, "iat": issued_at, "exp": expires_at}
        parts = (json.dumps(part, separators=(",", ":")).encode() for part in ({"alg": "none"}, claims))
        value = ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."
        return Token(value, expires_at, str(claims[self.subject_claim]), self.extensions)


@dataclass(frozen=True)
class RefreshSchedule:
    """`sasl.login.refresh.*`: when a token is replaced."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_seconds: float = 60
    buffer_seconds: float = 300

    def refresh_at(self, now: float, expires_at: float, random: Random) -> float:
        """Returns the time in seconds at which to refresh a token that is new."""
        lifetime = max(0.0, expires_at - now)
        at = now + lifetime * (self.window_factor + self.window_jitter * random.random())
        if self.min_period_seconds + self.buffer_seconds > lifetime:
            return at  # as in Kafka: the token does not live long enough for these two
        return max(min(at, expires_at - self.buffer_seconds), now + self.min_period_seconds)


class RefreshingToken:
    """The current token of a client."""

    def __init__(self, source: TokenSource, schedule: RefreshSchedule, clock: Clock, random: Random | None = None):
        self._source = source
        self._schedule = schedule
        self._clock = clock
        self._random = random or make_random()
        self._token: Token | None = None
        self._refresh_at = 0.0
        self._lock = asyncio.Lock()

    async def get(self) -> Token:
        """Returns a valid token. Raises SaslAuthenticationFailedError."""
        async with self._lock:
            now = self._clock.time_ms() / 1000
            if self._token is not None and now < self._refresh_at:
                return self._token
            try:
                token = await self._fetch(now)
            except SaslAuthenticationFailedError as error:
                last = self._token
                if last is None or last.expires_at is None or now >= last.expires_at:
                    raise
                _logger.warning("Could not refresh the OAuth token, using the last one: %s", error)
                self._refresh_at = now + max(1.0, self._schedule.min_period_seconds)
                return last
            if token.expires_at is not None:
                self._refresh_at = self._schedule.refresh_at(now, token.expires_at, self._random)
                self._token = token
            return token

    async def _fetch(self, now: float) -> Token:
        try:
            token = await self._source.fetch()
        except SaslAuthenticationFailedError:
            raise
        except (HeadraceError, ConfigError) as error:
            raise SaslAuthenticationFailedError(f"Could not get an OAuth token: {error}") from error
        except Exception as error:
            # The text of a user's exception may contain the token.
            raise SaslAuthenticationFailedError(
                f"Could not get an OAuth token: the token callback failed with {type(error).__name__}"
            ) from error
        if token.expires_at is not None and token.expires_at <= now:
            raise SaslAuthenticationFailedError("Could not get an OAuth token: the new token has already expired")
        return token
