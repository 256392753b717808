"""Items for other brokers, sent in batches: a queue for each broker, and one request in flight to it.

Items that arrive while a request is in flight wait for the next one. So a slow broker gets few large requests, and the
order of the items is kept.

Owned by the broker's loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from headrace.protocol import Message

_logger = logging.getLogger(__name__)

Item = TypeVar("Item")

MAX_ITEMS = 5_000
"""The largest number of items in one request."""


class BrokerClient(Protocol):
    """Sends requests to other brokers. `InterBrokerClient` implements it."""

    async def send(
        self,
        broker_id: int,
        request: Message,
        *,
        purpose: str = "",
        timeout_ms: float | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> Any:
        """Returns the response. Raises KafkaError if there is none: no connection, a timeout, no common version."""


class BrokerQueues(Generic[Item]):
    """`send` sends a batch to a broker and handles the response or the failure. It returns the items of the batch that
    it has not sent: they are the first of the next batch."""

    def __init__(self, send: Callable[[int, Sequence[Item]], Awaitable[Iterable[Item]]]):
        self._send = send
        self._queues: dict[int, list[Item]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def add(self, broker_id: int, item: Item) -> None:
        """Adds an item to a broker's queue. It is sent in a later step of the event loop."""
        queue = self._queues.get(broker_id)
        if queue is not None:
            queue.append(item)
            return
        self._queues[broker_id] = [item]
        self._tasks[broker_id] = asyncio.get_running_loop().create_task(self._drain(broker_id))

    async def _drain(self, broker_id: int) -> None:
        queue = self._queues[broker_id]
        try:
            while queue:
                batch = queue[:MAX_ITEMS]
                del queue[:MAX_ITEMS]
                try:
                    unsent = await self._send(broker_id, batch)
                except Exception:
                    _logger.exception("Broker %d: a batch of requests to it failed with an internal error", broker_id)
                else:
                    queue[:0] = unsent
        finally:
            del self._queues[broker_id]
            del self._tasks[broker_id]

    async def close(self) -> None:
        """Cancels the requests in flight. Items without a response get none."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
