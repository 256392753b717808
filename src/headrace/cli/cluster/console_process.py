"""`headrace server --console`: the console in a process of its own, so that it costs the broker's event loop nothing.

The child is `headrace console`. It ends when its standard input is closed, because then the broker is gone.
"""

import asyncio
import logging
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from headrace.common.errors import ConfigError

__all__ = ["ConsoleOptions", "ConsoleProcess", "console_command"]

_logger = logging.getLogger(__name__)

_STOP_SECONDS = 10.0
_ALL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
_ADDRESS = re.compile(r"([^:,\s]+)://(\[[^\]]*\]|[^:,\s]*):(\d+)")


@dataclass(frozen=True)
class ConsoleOptions:
    """The options of `headrace server` about the console."""

    listen: str
    write: bool = False
    config: str | None = None
    """A property file with client configs, for brokers that need them."""


def console_command(options: ConsoleOptions, addresses: str, metrics_urls: Mapping[int, str]) -> list[str]:
    """Returns the command of the child. *addresses* are those of the `ready` line.

    Only the addresses of the first listener are used. Raises ConfigError if there is none.
    """
    found = _ADDRESS.findall(addresses)
    if not found:
        raise ConfigError(f"The console cannot connect to {addresses!r}: expected LISTENER://HOST:PORT")
    listener = found[0][0]
    servers = [f"{_ALL_ADDRESSES.get(host, host)}:{port}" for name, host, port in found if name == listener]
    command = [sys.executable, "-m", "headrace", "console", "--supervised"]
    command += ["--bootstrap-server", ",".join(servers), "--listen", options.listen]
    command += ["--write"] if options.write else []
    command += [] if options.config is None else ["--command-config", options.config]
    for broker, url in metrics_urls.items():
        command += ["--broker-metrics", f"{broker}={url}"]
    return command


class ConsoleProcess:
    """The child. Owner: the loop of `start`."""

    def __init__(self, command: Iterable[str]):
        self._command = list(command)
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(*self._command, stdin=asyncio.subprocess.PIPE)
        self._watch = asyncio.create_task(self._report_end(self._process))

    async def stop(self) -> None:
        """Ends the child and waits for it."""
        process = self._process
        if process is None:
            return
        if self._watch is not None:
            self._watch.cancel()
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            _logger.warning("The console did not end within %.0f seconds and is killed", _STOP_SECONDS)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _report_end(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        _logger.error("The console has ended with exit code %d. The broker continues without it.", code)
