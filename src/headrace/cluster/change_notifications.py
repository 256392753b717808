"""Follows notifications in the coordination store: sequential nodes, each of which says what has changed.

A change is written together with a notification. Each broker watches the parent of the notifications, and reads what
has changed. Apache Kafka's brokers do the same with the same nodes.

- `start` sets the watches first and then reads everything, so that no change is missed.
- After an error, and in a new session, it does both again. A failed read is retried until it succeeds.
- Notifications are deleted after 15 minutes, so that brokers that were disconnected still find them.

Owned by the broker's loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from headrace.cluster.store import CoordinationStore, NoNode, StoreError, WatchEvent
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError

_logger = logging.getLogger(__name__)

RETENTION_MS = 15 * 60 * 1000
_RETRY_SECONDS = 1.0


class ChangeNotifications:
    """Calls `process` with path and data of each new notification, and `read_all` when some may have been missed."""

    def __init__(
        self,
        store: CoordinationStore,
        clock: Clock,
        parents: Iterable[str],
        read_all: Callable[[], Awaitable[None]],
        process: Callable[[str, bytes], Awaitable[None]],
        what: str,
    ):
        """`what` names the subject in log messages, such as "the ACLs"."""
        self._store = store
        self._clock = clock
        self._read_all = read_all
        self._process = process
        self._what = what
        self._last_seen = dict.fromkeys(parents, "")
        self._changed = asyncio.Event()
        self._must_read_all = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reads everything. Then follows the notifications."""
        await self._start_again()
        self._task = asyncio.create_task(self._run(), name=f"notifications of {self._what}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def restart_watch(self) -> None:
        """Reads everything and sets the watches again. Call it after the session with the store was lost."""
        self._must_read_all = True
        self._changed.set()

    def _on_change(self, _: WatchEvent) -> None:
        self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                if self._must_read_all:
                    self._must_read_all = False
                    await self._start_again()
                else:
                    await self._process_new()
            except Exception as error:  # a watch may be missing: start again
                _logger.error(
                    "Cannot read %s, will retry; this broker uses the old ones until then: %s",
                    self._what,
                    error,
                    exc_info=not isinstance(error, HeadraceError),
                )
                self.restart_watch()
                await asyncio.sleep(_RETRY_SECONDS)

    async def _start_again(self) -> None:
        for parent in self._last_seen:
            names = await self._store.children(parent, self._on_change)
            self._last_seen[parent] = max(names, default="")
        await self._read_all()

    async def _process_new(self) -> None:
        for parent, last_seen in self._last_seen.items():
            names = await self._store.children(parent, self._on_change)
            for name in names:
                if name > last_seen:
                    await self._process_one(f"{parent}/{name}")
                    self._last_seen[parent] = name
            await self._purge([f"{parent}/{name}" for name in names])

    async def _process_one(self, path: str) -> None:
        try:
            data, _ = await self._store.get(path)
        except NoNode:
            return
        await self._process(path, data)

    async def _purge(self, paths: list[str]) -> None:
        """Deletes expired notifications. Other brokers may delete them at the same time."""
        for path in paths:
            stat = await self._store.exists(path)
            if stat is None:
                continue
            if stat.ctime_ms + RETENTION_MS > self._clock.time_ms():
                return  # names are sorted by creation time: all later notifications are younger
            try:
                await self._store.delete(path)
            except NoNode:
                continue
            except StoreError as error:
                _logger.debug("Failed to delete expired notifications of %s, will retry: %s", self._what, error)
                return
