"""Producer ids: numbers that no two producers of a cluster ever have in common.

A broker takes a block of a thousand ids from the store and gives them out one by one. The store keeps only the block
that was taken last, by whichever broker:

    /latest_producer_id_block   broker 1, ids 3000 to 3999        the next block that anybody takes: 4000 to 4999

A block is taken by compare-and-set on that node, so each belongs to one broker. What a broker has not given out when it
ends is never given out. The next block is fetched while there are still ids, so that a producer seldom waits for it.

Owned by the broker's loop.
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
"""With fewer ids than this left, the next block is fetched."""


class ProducerIdManager:
    """`await next()` for an id. Many may wait at once; each gets its own."""

    def __init__(self, store: CoordinationStore, broker_id: int):
        self._store = store
        self._broker_id = broker_id
        self._next = 0
        self._last = -1
        self._ahead: ProducerIdBlock | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def next(self) -> int:
        """An id that nobody has had. Raises CoordinatorLoadInProgressError, on which clients try again, if the store
        cannot be asked just now."""
        while (given := self.take()) is None:
            try:
                await asyncio.shield(self._fetch_soon())
            except (StoreError, DamagedNode) as error:
                raise CoordinatorLoadInProgressError(f"no producer ids can be had: {error}") from error
        return given

    def take(self) -> int | None:
        """An id, if one is at hand."""
        if self._next > self._last and self._ahead is not None:
            self._next, self._last, self._ahead = self._ahead.first, self._ahead.last, None
        if self._next > self._last:
            return None
        given = self._next
        self._next += 1
        if self._last - given < _FETCH_BELOW and self._ahead is None:
            self._fetch_soon()
        return given

    async def close(self) -> None:
        """Gives up on a block that is being fetched."""
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
            _logger.warning("cannot take a block of producer ids: %s", error)

    async def _fetch(self) -> None:
        self._ahead = await take_block(self._store, self._broker_id)


async def take_block(store: CoordinationStore, broker_id: int) -> ProducerIdBlock:
    """The next block, which is this broker's from now on."""
    while True:
        data, stat = await store.get(znodes.PRODUCER_ID_BLOCK)
        first = znodes.decode_producer_id_block(data).last + 1 if data else 0
        if first > _LAST_ID - BLOCK_SIZE + 1:
            raise HeadraceError("all producer ids have been given out")
        block = ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)
        try:
            await store.set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), stat.version)
        except BadVersion:
            continue  # another broker was quicker
        _logger.info("broker %d has producer ids %d to %d", broker_id, block.first, block.last)
        return block
