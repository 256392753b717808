"""An HTTP server for Prometheus and for health checks, in a thread with its own event loop.

    GET /metrics    metrics in Prometheus' or OpenMetrics' format
    GET /healthz    200 while the process works: its event loop answers within a few seconds; 503 otherwise
    GET /readyz     200 while the broker serves clients; 503 with the reason otherwise

It understands just enough HTTP for that: GET and HEAD without a body, one request for each connection. Slow or hostile
clients hold a connection for a few seconds, and there is a limit on their number.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client.core import Metric

from headrace.common.errors import ConfigError, HeadraceError
from headrace.monitoring.exposition import render

_logger = logging.getLogger(__name__)

_HEAD_BYTES = 16 * 1024
_READ_SECONDS = 10.0
_WRITE_SECONDS = 30.0
_MAX_CONNECTIONS = 64
_TEXT = "text/plain; charset=utf-8"
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class EndpointError(HeadraceError):
    """The endpoint cannot listen on its address."""


@dataclass(frozen=True, slots=True)
class Health:
    """The answer to a health check."""

    ok: bool
    reason: str


@dataclass(frozen=True, slots=True)
class MonitoredProcess:
    """What an endpoint serves. The functions run on the loop of the endpoint's thread."""

    collect: Callable[[], Awaitable[Iterable[Metric]]]
    is_healthy: Callable[[], Awaitable[Health]]
    is_ready: Callable[[], Awaitable[Health]]


def parse_address(text: str) -> tuple[str, int]:
    """Parses `host:port`, `[::1]:port` or `:port`. Raises ConfigError."""
    host, colon, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{text!r} is not an address: expected HOST:PORT, such as 127.0.0.1:9404")
    return host, int(port)


class MetricsEndpoint:
    """The server and its thread. Call `start` once, and `stop` in the end; both may be called from any thread."""

    def __init__(self, host: str, port: int, process: MonitoredProcess):
        self._host = host
        self._process = process
        self._sock = _listen(host, port)
        self.port: int = self._sock.getsockname()[1]
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._stopped: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    @property
    def url(self) -> str:
        host = self._host or "127.0.0.1"
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Closes all connections and waits for the thread."""
        if self._thread.ident is None:
            self._sock.close()
            self._loop.close()
            return
        with suppress(RuntimeError):  # the loop is closed: the thread has ended
            self._loop.call_soon_threadsafe(self._stop)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except Exception:
            _logger.exception("The metrics endpoint at %s has failed", self.url)
        finally:
            self._loop.close()

    def _stop(self) -> None:
        if self._stopped is not None:
            self._stopped.set()

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._connected, sock=self._sock, limit=_HEAD_BYTES)
        try:
            await self._stopped.wait()
        finally:
            server.close()
            tasks = list(self._connections)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= _MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            await self._converse(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            _logger.debug("Metrics endpoint: a connection ended early: %r", error)
        finally:
            self._connections.discard(task)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_READ_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        request, *lines = head.decode("latin-1").split("\r\n")
        status, content_type, body = await self._respond(request, lines)
        answer = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n\r\n"
        )
        writer.write(answer.encode("latin-1"))
        if not request.startswith("HEAD "):
            writer.write(body)
        async with asyncio.timeout(_WRITE_SECONDS):
            await writer.drain()

    async def _respond(self, request: str, lines: list[str]) -> tuple[int, str, bytes]:
        words = request.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return 400, _TEXT, b"expected an HTTP request\n"
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, b"expected GET or HEAD\n"
        path = target.partition("?")[0]
        try:
            if path == "/metrics":
                return 200, *await render(await self._process.collect(), _accept(lines))
            if path == "/healthz":
                return _health(await self._process.is_healthy())
            if path == "/readyz":
                return _health(await self._process.is_ready())
        except Exception:
            _logger.exception("Metrics endpoint: %s failed", path)
            return 503, _TEXT, b"failed; see the log\n"
        return 404, _TEXT, b"expected /metrics, /healthz or /readyz\n"


def _health(health: Health) -> tuple[int, str, bytes]:
    return (200 if health.ok else 503), _TEXT, f"{health.reason}\n".encode()


def _accept(lines: list[str]) -> str:
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == "accept":
            return value.strip()
    return ""


def _listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket: all addresses of the machine for an empty host. Raises EndpointError."""
    try:
        if host:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            sock = socket.socket(family, kind, protocol)
        else:
            sock, address = socket.socket(socket.AF_INET, socket.SOCK_STREAM), ("", port)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen()
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
        return sock
    except OSError as error:
        raise EndpointError(f"Cannot serve metrics at {host}:{port}: {error.strerror or error}") from error
