"""The parent of several broker processes: serves the coordination store to them, starts, restarts and stops them.

- A broker that ends is started again, after 1, 2, 4 ... 30 seconds. Its session with the store ends at once, so its
  partitions get other leaders without waiting for the session timeout. Only if a broker cannot start the first time,
  the parent stops, because something is wrong with its configuration.
- At the end the brokers are stopped one after the other. Each one moves its leaderships to the others first.
- Each broker has a pipe of the parent as its standard input. If the parent is killed, the pipe is closed, and the
  brokers stop. What they have acknowledged is on disk, in their logs and in the store.
- A broker prints `ready ADDRESS` to its standard output, and logs to the parent's standard error.
"""

import asyncio
import logging
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from headrace.broker.processes.layout import BrokerLayout, Layout
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.remote.server import StoreServer
from headrace.common.backoff import Backoff
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError
from headrace.common.ids import Random

_logger = logging.getLogger(__name__)

CommandOf = Callable[[BrokerLayout], Sequence[str]]

_FIRST_RESTART_MS, _LAST_RESTART_MS = 1_000, 30_000
_STABLE_SECONDS = 60.0
"""A broker that ran for so long starts again after the shortest time."""


class BrokerFailed(HeadraceError):
    """A broker ended before it was ready for the first time."""


class _Member:
    """One broker and its process."""

    def __init__(self, layout: BrokerLayout):
        self.layout = layout
        self.process: Process | None = None
        self.addresses = ""
        self.ready = asyncio.Event()
        """Set when the broker was ready for the first time."""
        self.task: asyncio.Task[None] | None = None


class Supervisor:
    """Runs the brokers of a layout."""

    def __init__(self, layout: Layout, command_of: CommandOf, clock: Clock, random: Random):
        """`command_of` returns the command line of a broker's process."""
        self._layout = layout
        self._command_of = command_of
        self._clock = clock
        self._backoff = Backoff(_FIRST_RESTART_MS, _LAST_RESTART_MS, random)
        self._members = [_Member(broker) for broker in layout.brokers]
        self._server: StoreServer | None = None
        self._is_stopping = False

    async def run(self, stop_requested: asyncio.Event, on_ready: Callable[[str], None]) -> None:
        """Runs until a stop is requested. Calls `on_ready` with all addresses when all brokers are ready.

        Raises BrokerFailed if a broker cannot start.
        """
        async with AsyncExitStack() as cleanup:
            await self._serve_store(cleanup)
            cleanup.push_async_callback(self._stop_all)
            stopping: asyncio.Task[Any] = asyncio.create_task(stop_requested.wait())
            cleanup.callback(stopping.cancel)
            for member in self._members:
                member.task = asyncio.create_task(self._keep_running(member), name=member.layout.name)
            keeping: list[asyncio.Task[Any]] = [member.task for member in self._members if member.task is not None]
            starting: asyncio.Task[Any] = asyncio.create_task(self._all_ready())
            cleanup.callback(starting.cancel)
            await asyncio.wait([stopping, starting, *keeping], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                on_ready(", ".join(member.addresses for member in self._members))
                await asyncio.wait([stopping, *keeping], return_when=asyncio.FIRST_COMPLETED)
            for task in keeping:
                if task.done():
                    task.result()

    async def _all_ready(self) -> None:
        for member in self._members:
            await member.ready.wait()

    async def _serve_store(self, cleanup: AsyncExitStack) -> None:
        """Opens the embedded store and serves it, unless the cluster is in ZooKeeper."""
        directory, store_path, socket_path = self._layout.directory, self._layout.store, self._layout.socket
        if directory is None or store_path is None or socket_path is None:
            return
        directory.mkdir(parents=True, exist_ok=True)
        store = EmbeddedStore(store_path, self._clock)
        cleanup.push_async_callback(store.close)
        self._server = StoreServer(store, socket_path)
        await self._server.start()
        cleanup.push_async_callback(self._server.close)

    # ---- one broker

    async def _keep_running(self, member: _Member) -> None:
        failures = 0
        while True:
            started = self._clock.monotonic()
            code = await self._run(member)
            if self._server is not None:
                await self._server.end_sessions(member.layout.name)
            if self._is_stopping:
                return
            ending = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            if not member.ready.is_set():
                raise BrokerFailed(f"{member.layout.name.capitalize()} did not start ({ending})")
            if self._clock.monotonic() - started > _STABLE_SECONDS:
                failures = 0
            wait_seconds = self._backoff.wait_seconds(failures)
            failures += 1
            _logger.error(
                "Broker %d has ended (%s), starting it again in %.1f s", member.layout.id, ending, wait_seconds
            )
            await asyncio.sleep(wait_seconds)

    async def _run(self, member: _Member) -> int:
        """Runs the process of a broker to its end. Returns the exit code, or the negative number of the signal."""
        # A session of its own: Ctrl-C in a terminal reaches the parent only, which stops the brokers in order.
        process = await asyncio.create_subprocess_exec(
            *self._command_of(member.layout), stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        member.process = process
        _logger.info("Started broker %d as process %d", member.layout.id, process.pid)
        assert process.stdout is not None
        async for line in process.stdout:
            text = line.decode(errors="replace").strip()
            if text.startswith("ready "):
                member.addresses = text.removeprefix("ready ")
                member.ready.set()
        return await process.wait()

    async def _stop_all(self) -> None:
        """Stops the brokers one after the other. Each one hands over its leaderships."""
        self._is_stopping = True
        for member in self._members:
            if member.task is None:
                continue
            process = member.process
            if process is None or process.returncode is not None:
                member.task.cancel()  # it waits to start the broker again
            else:
                _logger.info("Stopping broker %d", member.layout.id)
                with suppress(ProcessLookupError):
                    process.terminate()
            await asyncio.wait((member.task,))
