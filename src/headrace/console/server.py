"""The console's HTTP server: uvicorn in a thread with its own event loop."""

import asyncio
import logging
import socket
import threading
from concurrent.futures import Future

import uvicorn

from headrace.common.clock import Clock, SystemClock
from headrace.common.errors import HeadraceError
from headrace.console.app import Console
from headrace.console.settings import ConsoleSettings

__all__ = ["ConsoleError", "ConsoleServer"]

_logger = logging.getLogger(__name__)
_MAX_CONNECTIONS = 1000
_STOP_SECONDS = 3


class ConsoleError(HeadraceError):
    """The console cannot start."""


class ConsoleServer:
    """The server and its thread. Call `start` once, and `stop` in the end; both block, and both may be called from any
    thread."""

    def __init__(self, settings: ConsoleSettings, clock: Clock | None = None):
        self._settings = settings
        self._clock = clock or SystemClock()
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=self._run, name="console", daemon=True)
        self._started: Future[None] = Future()
        self.console: Console | None = None
        """Its state belongs to the loop of the thread."""

    @property
    def port(self) -> int:
        assert self._socket is not None
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        host = self._settings.host or "127.0.0.1"
        scheme = "https" if self._settings.tls_certificate is not None else "http"
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"

    def start(self) -> None:
        """Listens. Returns when browsers can connect. Raises ConsoleError."""
        self._socket = _listen(self._settings.host, self._settings.port)
        self._thread.start()
        self._started.result()

    def stop(self) -> None:
        """Ends all streams and closes all connections."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._begin_stop)
            self._thread.join()
        elif self._socket is not None:
            self._socket.close()

    def join(self, timeout: float | None = None) -> bool:
        """Waits for the end of the thread. Returns whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _begin_stop(self) -> None:
        if self.console is not None:
            self.console.stopping.set()
        if self._server is not None:
            self._server.should_exit = True

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            if self._started.done():
                _logger.exception("The console has failed")
            else:
                self._started.set_exception(ConsoleError(f"The console cannot start: {error}"))

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        settings = self._settings
        console = self.console = Console(settings, self._clock)
        config = uvicorn.Config(
            console.app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_graceful_shutdown=_STOP_SECONDS,
            ssl_certfile=settings.tls_certificate,
            ssl_keyfile=settings.tls_key,
        )
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._server = uvicorn.Server(config)
        await console.start()
        try:
            self._started.set_result(None)
            await self._server.serve(sockets=[self._socket] if self._socket is not None else None)
        finally:
            await console.stop()


def _listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket. Raises ConsoleError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(128)
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
        return sock
    except OSError as error:
        raise ConsoleError(f"Cannot listen at {host}:{port}: {error.strerror or error}") from error
