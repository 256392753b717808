"""Requests for OAuth: small files and documents, with limits. They block: call them outside the event loop.

Redirects are not followed: the target is not what the user has allowed. Errors do not show what a server or a file
contains.
"""

import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.common.errors import ConfigError

__all__ = ["HttpError", "fetch", "read_file_url"]


class HttpError(ConfigError):
    """A request failed."""

    def __init__(self, message: str, retriable: bool):
        super().__init__(message)
        self.retriable = retriable
        """True if another attempt may succeed: the server was unreachable or overloaded."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


def read_file_url(key: str, url: str, max_bytes: int) -> bytes:
    """Reads a `file:` URL of this machine. Raises ConfigError, which names the config `key`."""
    parts = urllib.parse.urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ConfigError(f"{key}={url} is not valid: expected file:///path/to/file")
    path = Path(urllib.parse.unquote(parts.path))
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise ConfigError(f"{key}: cannot read {path}: {error.strerror}") from None
    if len(content) > max_bytes:
        raise ConfigError(f"{key}: {path} is larger than {max_bytes} bytes")
    return content


def fetch(
    key: str,
    url: str,
    *,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float,
    max_bytes: int,
) -> bytes:
    """Sends a GET, or a POST with `data`. Raises HttpError, which names the config `key`."""
    if "@" in urllib.parse.urlsplit(url).netloc:
        raise ConfigError(f"{key}: the URL must not contain a user and password")
    request = urllib.request.Request(url, data, dict(headers or {}))
    opener = urllib.request.build_opener(_NoRedirects())
    try:
        with opener.open(request, timeout=timeout_seconds) as response:
            content: bytes = response.read(max_bytes + 1)
    except urllib.error.HTTPError as error:
        status = error.code
        error.close()
        retriable = status >= 500 or status in (408, 429)
        raise HttpError(f"{key}: {_shown(url)} answered with HTTP status {status}", retriable) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise HttpError(f"{key}: request to {_shown(url)} failed: {reason}", retriable=True) from None
    if len(content) > max_bytes:
        raise HttpError(f"{key}: the answer of {_shown(url)} is larger than {max_bytes} bytes", retriable=False)
    return content


def _shown(url: str) -> str:
    """Returns a URL without parameters, which may be secrets."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"
