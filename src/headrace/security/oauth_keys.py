"""The keys that OAuth tokens are verified with: a JWKS (RFC 7517) in a file or at an https URL.

A thread of its own reads them again every `sasl.oauthbearer.jwks.endpoint.refresh.ms`, and soon after a token with an
unknown key; not more often than `MISSING_KEY_INTERVAL_SECONDS`, or clients with made-up tokens would make the broker
attack the issuer. While the keys cannot be read the last ones are used.
"""

import json
import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

from headrace.common.clock import Clock
from headrace.common.errors import ConfigError
from headrace.common.extras import requires_extra
from headrace.security.oauth_http import fetch, read_file_url

__all__ = ["JwksSource", "KeySource", "make_jwks_source", "parse_jwks"]

_logger = logging.getLogger(__name__)

URL_KEY = "sasl.oauthbearer.jwks.endpoint.url"
MISSING_KEY_INTERVAL_SECONDS = 10.0
_MAX_JWKS = 1_000_000
_TIMEOUT_SECONDS = 10.0
_MIN_RSA_BITS = 2048


class KeySource(Protocol):
    """Where the keys come from."""

    def current(self) -> tuple[Any, ...]:
        """Returns joserfc's public keys, from memory."""

    def key_is_missing(self) -> None:
        """Called for a token whose key is unknown."""


def parse_jwks(text: bytes) -> tuple[Any, ...]:
    """Returns the keys of a JWKS that can verify signatures. Raises ConfigError if there are none."""
    with requires_extra("security"):
        from joserfc.errors import JoseError
        from joserfc.jwk import ECKey, OKPKey, RSAKey

    types: dict[object, Any] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
    try:
        entries = json.loads(text)["keys"]
        entries = [entry for entry in entries if isinstance(entry, dict)]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f'{URL_KEY}: not a JWKS: expected {{"keys": [...]}}') from None
    keys: list[Any] = []
    for entry in entries:
        # Keys of type oct are secrets, with which everybody who verifies a token could also make one.
        if entry.get("kty") not in types or entry.get("use", "sig") != "sig":
            continue
        try:
            key = types[entry["kty"]].import_key(entry)
            usable = key.key_type != "RSA" or key.public_key.key_size >= _MIN_RSA_BITS
        except (JoseError, ValueError, TypeError, KeyError):
            usable = False
        if usable:
            keys.append(key)
        else:
            _logger.warning("Ignoring a key of the JWKS that is invalid or shorter than %d bits", _MIN_RSA_BITS)
    if not keys:
        raise ConfigError(f"{URL_KEY}: the JWKS has no public key of type RSA, EC or OKP that verifies signatures")
    return tuple(keys)


def make_jwks_source(
    url: str, allowed_urls: tuple[str, ...], refresh_ms: int, backoff_ms: int, backoff_max_ms: int, clock: Clock
) -> "JwksSource":
    """Returns the source for a URL, with its keys read. Raises ConfigError."""
    if url.startswith("file:"):

        def read() -> bytes:
            return read_file_url(URL_KEY, url, _MAX_JWKS)

    elif not url.startswith("https://"):
        raise ConfigError(f"{URL_KEY} must be a file: or an https: URL")
    elif url not in allowed_urls:
        # Whoever may change this config could otherwise make the broker send requests to any server (CVE-2025-27817).
        raise ConfigError(f"{URL_KEY}={url} is not allowed: add the URL to headrace.oauthbearer.allowed.urls")
    else:

        def read() -> bytes:
            return fetch(URL_KEY, url, timeout_seconds=_TIMEOUT_SECONDS, max_bytes=_MAX_JWKS)

    source = JwksSource(read, refresh_ms, backoff_ms, backoff_max_ms, clock)
    source.start()
    return source


class JwksSource:
    """Keys in memory, refreshed by a thread. Only the thread replaces `_keys`; any thread may read it."""

    def __init__(self, read: Callable[[], bytes], refresh_ms: int, backoff_ms: int, backoff_max_ms: int, clock: Clock):
        self._read = read
        self._refresh_seconds = refresh_ms / 1000
        self._backoff_seconds = backoff_ms / 1000
        self._backoff_max_seconds = max(backoff_ms, backoff_max_ms) / 1000
        self._clock = clock
        self._keys: tuple[Any, ...] = ()
        self._failures = 0
        self._next_for_missing_key = clock.monotonic() + MISSING_KEY_INTERVAL_SECONDS
        self._wake = threading.Event()
        self._closed = False

    def current(self) -> tuple[Any, ...]:
        return self._keys

    def key_is_missing(self) -> None:
        now = self._clock.monotonic()
        if now >= self._next_for_missing_key:
            self._next_for_missing_key = now + MISSING_KEY_INTERVAL_SECONDS
            self._wake.set()

    def start(self) -> None:
        """Reads the keys, and starts the thread. Raises ConfigError."""
        self._keys = parse_jwks(self._read())
        threading.Thread(target=self._run, name="headrace-jwks", daemon=True).start()

    def close(self) -> None:
        """Stops the thread. Does not wait for a request that it has sent."""
        self._closed = True
        self._wake.set()

    def _run(self) -> None:
        delay = self._refresh_seconds
        while True:
            self._wake.wait(delay)
            self._wake.clear()
            if self._closed:
                return
            delay = self.refresh()

    def refresh(self) -> float:
        """Reads the keys again. Returns the seconds until the next time."""
        try:
            self._keys = parse_jwks(self._read())
        except ConfigError as error:
            self._failures += 1
            delay = min(self._backoff_seconds * float(2 ** min(self._failures - 1, 20)), self._backoff_max_seconds)
            level = logging.WARNING if self._failures == 1 else logging.DEBUG
            _logger.log(level, "Could not refresh the keys of OAuth tokens, using the last ones: %s", error)
            return delay
        self._failures = 0
        return self._refresh_seconds
