"""Decompresses large batches in a thread, so that other requests do not wait for it.

One thread, so at most one large batch is in memory uncompressed, regardless of how many producers send them. A request
with a large batch holds back the later requests of its connection, and waits for the large batches before it.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace.common.clock import Clock
from headrace.common.logs import RateLimitedLog

_logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class BatchInflater:
    """The thread that decompresses large batches. It starts with the first one."""

    def __init__(self, clock: Clock):
        self._rejected = RateLimitedLog(_logger, clock)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="headrace-inflate")

    async def run(self, work: Callable[[], Result]) -> Result:
        """Returns the result of the work. It must use nothing that the event loop changes meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def log_rejected(self, sender: object, topic: str | None, partition: int, error: Exception) -> None:
        """Logs who sent a batch that is too large uncompressed."""
        self._rejected.log("rejected", f"Partition {topic}-{partition}: rejected a batch of {sender}: {error}")

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
