"""Reads the statistics of clients from any thread, each on its client's event loop.

It holds clients weakly: one that is closed or garbage-collected is no longer reported.
"""

import asyncio
import logging
import weakref
from collections.abc import Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.client.consumer.abstract_consumer import AbstractConsumer
from headrace.client.producer.base import BaseProducer

__all__ = ["AnyClient", "ClientReader", "Reading"]

_logger = logging.getLogger(__name__)

_READ_SECONDS = 5.0
"""How long a client's event loop may take to answer. Then the client is reported as not responding."""

AnyClient: TypeAlias = BaseProducer | AbstractConsumer[Any, Any]
"""A producer or consumer of `headrace` or `headrace.aio`."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one client has answered."""

    kind: str
    """`producer` or `consumer`."""
    client_id: str
    statistics: dict[str, Any] | None
    """The result of `Statistics.peek`, or None if the event loop did not answer in time, or reading failed."""


@dataclass(frozen=True, slots=True)
class _Entry:
    client: weakref.ref[AnyClient]
    kind: str
    client_id: str


class ClientReader:
    """Reads a fixed list of clients. Any thread may call it."""

    def __init__(self, clients: Iterable[AnyClient]):
        """Clients of one kind with equal client ids are told apart: `orders`, `orders#2`. Raises TypeError."""
        self._entries: list[_Entry] = []
        counts: dict[tuple[str, str], int] = {}
        for client in clients:
            if not isinstance(client, BaseProducer | AbstractConsumer):
                raise TypeError(f"Expected producers and consumers of Headrace, not {type(client).__name__}")
            kind = "producer" if isinstance(client, BaseProducer) else "consumer"
            client_id = client.config.client_id or "headrace"
            number = counts[kind, client_id] = counts.get((kind, client_id), 0) + 1
            shown = client_id if number == 1 else f"{client_id}#{number}"
            self._entries.append(_Entry(weakref.ref(client), kind, shown))

    def read(self) -> list[Reading]:
        """Waits for all running clients. On the event loop of a client, that one is read at once."""
        started = self._start()
        wait([future for _, future in started], _READ_SECONDS)
        return _finish(started)

    async def read_async(self) -> list[Reading]:
        """Does the same without blocking the running loop."""
        started = self._start()
        if started:
            await asyncio.wait([asyncio.wrap_future(future) for _, future in started], timeout=_READ_SECONDS)
        return _finish(started)

    def _start(self) -> "list[tuple[_Entry, Future[dict[str, Any] | None]]]":
        started = []
        for entry in self._entries:
            client = entry.client()
            future = None if client is None else _peek(client)
            if future is not None:
                started.append((entry, future))
        return started


def _peek(client: AnyClient) -> "Future[dict[str, Any] | None] | None":
    """Starts reading a client. Returns None if it is not running."""
    core = client._running_client
    if core is None or core.closed:
        return None
    future: Future[dict[str, Any] | None] = Future()

    def work() -> None:
        if not future.set_running_or_notify_cancel():
            return
        statistics = None
        try:
            statistics = core.statistics.peek()
        except Exception:
            _logger.exception("Client %s: failed to read its metrics", core.config.client_id)
        future.set_result(statistics)

    if _running_loop() is core.loop:
        work()
        return future
    try:
        core.loop.call_soon_threadsafe(work)
    except RuntimeError:  # the loop was closed meanwhile
        return None
    return future


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _finish(started: "list[tuple[_Entry, Future[dict[str, Any] | None]]]") -> list[Reading]:
    readings = []
    for entry, future in started:
        statistics = None
        if not future.done():
            future.cancel()
            _logger.warning("The event loop of %s %s does not respond", entry.kind, entry.client_id)
        else:
            statistics = future.result()
        readings.append(Reading(entry.kind, entry.client_id, statistics))
    return readings
