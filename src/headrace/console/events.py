"""Server-sent events: their format, and the live updates of a cluster's pages. Owner: the loop.

Each open stream has its own queue. A stream whose browser does not read loses older ticks, because a newer one replaces
them; it never holds up the others.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from headrace.console.schema import as_json

KEEPALIVE = b": keepalive\n\n"
_KEEPALIVE_SECONDS = 15.0
_RETRY = b"retry: 2000\n\n"


@dataclass(frozen=True)
class Event:
    """One event."""

    name: str
    data: Any

    def encode(self) -> bytes:
        text = json.dumps(as_json(self.data), ensure_ascii=False, separators=(",", ":"))
        return f"event: {self.name}\ndata: {text}\n\n".encode()


@dataclass(eq=False)
class Subscription:
    """The pending events of one stream: the latest of each name."""

    pending: dict[str, Any] = field(default_factory=dict)
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, name: str, data: Any) -> None:
        self.pending.pop(name, None)
        self.pending[name] = data
        self.ready.set()

    async def take(self) -> Mapping[str, Any]:
        await self.ready.wait()
        self.ready.clear()
        taken, self.pending = self.pending, {}
        return taken


class EventHub:
    """Distributes events to the open streams of one cluster, and keeps the latest of each name for new ones."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        self._latest: dict[str, Any] = {}

    @property
    def streams(self) -> int:
        return len(self._subscriptions)

    def publish(self, name: str, data: Any) -> None:
        """Sends an event to all streams. *data* must not be changed afterwards."""
        self._latest[name] = data
        for subscription in self._subscriptions:
            subscription.put(name, data)

    def subscribe(self) -> Subscription:
        """Returns a subscription that begins with the latest event of each name."""
        subscription = Subscription()
        for name, data in self._latest.items():
            subscription.put(name, data)
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)


class _StreamEnd(Exception):
    """The end of a stream. A task cannot raise StopAsyncIteration."""


async def encode_stream(events: AsyncIterator[Event], stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """Yields the bytes of a response: the events, and a comment when there was none for a while. Ends with the
    events, or when the console stops."""
    yield _RETRY
    pending: asyncio.Task[Event] | None = None
    stop = asyncio.ensure_future(stopping.wait())
    try:
        while not stop.done():
            pending = pending or asyncio.ensure_future(_next(events))
            await asyncio.wait((pending, stop), timeout=_KEEPALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not pending.done():
                if stop.done():
                    return
                yield KEEPALIVE
                continue
            task, pending = pending, None
            try:
                event = task.result()
            except _StreamEnd:
                return
            yield event.encode()
    finally:
        stop.cancel()
        if pending is not None:
            pending.cancel()
            with suppress(asyncio.CancelledError, _StreamEnd):
                await pending
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


async def _next(events: AsyncIterator[Event]) -> Event:
    try:
        return await anext(events)
    except StopAsyncIteration:
        raise _StreamEnd from None
