"""Decompresses large batches in a thread, so that other requests do not wait for it.

One at a time, so at most one large batch is in memory uncompressed, regardless of how many producers send them. A
request with a large batch holds back the later requests of its connection, and waits for the large batches before it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from headrace.common.background import RunInThread
from headrace.common.clock import Clock
from headrace.common.logs import RateLimitedLog

_logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class BatchInflater:
    """Decompresses the large batches of all connections."""

    def __init__(self, clock: Clock, run_in_thread: RunInThread):
        self._rejected = RateLimitedLog(_logger, clock)
        self._run_in_thread = run_in_thread
        self._one_at_a_time = asyncio.Lock()

    async def run(self, work: Callable[[], Result]) -> Result:
        """Returns the result of the work. It must use nothing that the event loop changes meanwhile."""
        async with self._one_at_a_time:
            return await self._run_in_thread(work)

    def log_rejected(self, sender: object, topic: str | None, partition: int, error: Exception) -> None:
        """Logs who sent a batch that is too large uncompressed."""
        self._rejected.log("rejected", f"Partition {topic}-{partition}: rejected a batch of {sender}: {error}")
