"""What every request and response has to satisfy: the name of the host, the size of bodies, and security headers.

A middleware around all routes:

- The `Host` header must be an address, `localhost`, or a name that was allowed at the start. Otherwise a web site could
  let its own name point to the console (DNS rebinding), and read a cluster without login.
- Responses may only load what the console itself serves, without inline scripts, and may not be framed.
- Routes match the path as it was sent, so that `%2F` in the name of a group stays a part of the name.
"""

import ipaddress
import json
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.console.errors import ApiError

__all__ = ["MAX_BODY_BYTES", "SecurityMiddleware", "check_origin", "is_allowed_host"]

MAX_BODY_BYTES = 8 << 20

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_HSTS = "max-age=31536000"


class SecurityMiddleware:
    """Checks requests before the routes, and adds headers to responses."""

    def __init__(self, app: ASGIApp, allowed_hosts: Iterable[str], is_secure: bool):
        self._app = app
        self._allowed_hosts = frozenset(host.lower() for host in allowed_hosts)
        self._is_secure = is_secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"
                if self._is_secure:
                    headers["Strict-Transport-Security"] = _HSTS
            await send(message)

        host = Headers(scope=scope).get("host", "")
        if not is_allowed_host(host, self._allowed_hosts):
            message = f"The console is not called {host!r}. Start it with --allowed-host to allow this name."
            await _refuse(ApiError(421, "FORBIDDEN_HOST", message), send_with_headers)
            return
        scope["path"] = scope.get("raw_path", scope["path"].encode()).decode("latin-1").partition("?")[0]
        await self._app(scope, receive, send_with_headers)


async def _refuse(error: ApiError, send: Send) -> None:
    body = json.dumps(error.document).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def is_allowed_host(host: str, allowed: Iterable[str]) -> bool:
    """Returns whether a `Host` header may reach the console: an IP address, localhost, or an allowed name."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return False
    if name == "localhost" or name.endswith(".localhost") or name in allowed:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_origin(request: Request) -> None:
    """Raises ApiError if a change comes from another site than the console's own pages."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    same_origin = origin is None or urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    if site not in ("same-origin", "none") or not same_origin:
        raise ApiError(403, "CSRF", "This request comes from another site.")
