"""Allocates producer ids that are unique in the cluster.

A broker allocates a block of 1000 ids from the store and hands them out one by one. The store keeps only the last
allocated block of the whole cluster:

    /latest_producer_id_block   broker 1, ids 3000 to 3999        the next block, for any broker: 4000 to 4999

A block is allocated by compare-and-set on that node, so it belongs to one broker. Ids left over when the broker stops
are never used. The next block is prefetched, so producers rarely wait for it.

Owned by the broker's event loop.
"""

import asyncio
import logging

from headrace.cluster import znodes
from headrace.cluster.store import BadVersion, CoordinationStore, StoreError
from headrace.cluster.znodes import DamagedNode, ProducerIdBlock
from headrace.common.errors import CoordinatorLoadInProgressError, HeadraceError

_logger = logging.getLogger(__name__)

BLOCK_SIZE = 1000
_LAST_ID = 2**63 - 1
_FETCH_BELOW = BLOCK_SIZE // 10
"""Prefetch the next block when fewer ids than this are left."""


class ProducerIdManager:
    """Hands out producer ids. Concurrent calls of `next` get different ids."""

    def __init__(self, store: CoordinationStore, broker_id: int):
        self._store = store
        self._broker_id = broker_id
        self._next = 0
        self._last = -1
        self._prefetched: ProducerIdBlock | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def next(self) -> int:
        """Returns an unused id. Raises CoordinatorLoadInProgressError, which clients retry, if the store is not
        available."""
        while (producer_id := self.take()) is None:
            try:
                await asyncio.shield(self._fetch_soon())
            except (StoreError, DamagedNode) as error:
                raise CoordinatorLoadInProgressError(f"Cannot allocate a producer id: {error}") from error
        return producer_id

    def take(self) -> int | None:
        """Returns an id without waiting, or None if a block must be fetched first."""
        if self._next > self._last and self._prefetched is not None:
            self._next, self._last, self._prefetched = self._prefetched.first, self._prefetched.last, None
        if self._next > self._last:
            return None
        producer_id = self._next
        self._next += 1
        if self._last - producer_id < _FETCH_BELOW and self._prefetched is None:
            self._fetch_soon()
        return producer_id

    async def close(self) -> None:
        """Cancels the fetch of a block."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    def _fetch_soon(self) -> "asyncio.Task[None]":
        task = self._fetching
        if task is None:
            task = self._fetching = asyncio.get_running_loop().create_task(self._fetch())
            task.add_done_callback(self._fetched)
        return task

    def _fetched(self, task: "asyncio.Task[None]") -> None:
        self._fetching = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.warning("Broker %d: cannot allocate a block of producer ids: %s", self._broker_id, error)

    async def _fetch(self) -> None:
        self._prefetched = await allocate_block(self._store, self._broker_id)


async def allocate_block(store: CoordinationStore, broker_id: int) -> ProducerIdBlock:
    """Allocates the next block for this broker."""
    while True:
        data, stat = await store.get(znodes.PRODUCER_ID_BLOCK)
        first = znodes.decode_producer_id_block(data).last + 1 if data else 0
        if first > _LAST_ID - BLOCK_SIZE + 1:
            raise HeadraceError("All producer ids of this cluster have been used")
        block = ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)
        try:
            await store.set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), stat.version)
        except BadVersion:
            continue  # another broker was faster
        _logger.info("Broker %d allocated producer ids %d to %d", broker_id, block.first, block.last)
        return block
