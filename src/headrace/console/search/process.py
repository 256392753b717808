"""Starts scan processes and passes on what they send. Owner: the console's event loop.

A process lives as long as the request that started it: leaving `run` kills it. At most `limit` processes run at a time;
further requests get an error at once, so that nobody waits without an answer.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from headrace.common.errors import HeadraceError
from headrace.console.search.frames import DATA, read_frame

__all__ = ["ScanError", "ScanProcesses", "TooManyScansError"]

_END_SECONDS = 10.0
_STDERR_CHARS = 2000


class TooManyScansError(HeadraceError):
    """As many scans run as the console allows."""


class ScanError(HeadraceError):
    """A scan failed. `name` is Kafka's name of the error, or None."""

    def __init__(self, name: str | None, message: str):
        super().__init__(message)
        self.name = name


class ScanProcesses:
    """The scan processes of a console."""

    def __init__(self, limit: int = 4):
        self._limit = limit
        self._running = 0

    async def run(self, job: dict[str, Any]) -> AsyncGenerator[tuple[str, Any], None]:
        """Runs a job in a process. Yields `records`, `progress`, `done` and `data` with their contents. Raises
        ScanError.

        The generator must be closed, which ends the process.
        """
        if self._running >= self._limit:
            raise TooManyScansError(
                f"{self._running} searches, exports or copies are running; try again when one of them has ended"
            )
        self._running += 1
        try:
            process = await _start()
            try:
                async for event in _events(process, job):
                    yield event
            finally:
                await _end(process)
        finally:
            self._running -= 1


async def _start() -> asyncio.subprocess.Process:
    # The directory in which user decoders were found; an empty entry is the working directory.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "headrace.console.search.worker",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        limit=1024 * 1024,
    )


async def _events(process: asyncio.subprocess.Process, job: dict[str, Any]) -> AsyncIterator[tuple[str, Any]]:
    assert process.stdin is not None
    assert process.stdout is not None
    errors = asyncio.create_task(_last_lines(process))
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the process ended; its error follows
            process.stdin.write(json.dumps(job).encode() + b"\n")
            await process.stdin.drain()
            process.stdin.close()
        while (frame := await read_frame(process.stdout)) is not None:
            kind, content = frame
            if kind == DATA:
                yield "data", content
                continue
            ((name, value),) = json.loads(content).items()
            if name == "error":
                raise ScanError(value["name"], value["message"])
            yield name, value
            if name == "done":
                return
        raise ScanError(None, f"The scan process ended unexpectedly: {await errors or 'without a message'}")
    finally:
        errors.cancel()


async def _last_lines(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    text = ""
    while chunk := await process.stderr.read(65536):
        text = (text + chunk.decode(errors="replace"))[-_STDERR_CHARS:]
    return text.strip()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait_for(asyncio.shield(process.wait()), _END_SECONDS)
