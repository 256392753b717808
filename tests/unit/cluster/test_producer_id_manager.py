import asyncio
from pathlib import Path

import pytest
from tests.support.cluster.fake_cluster import async_test

from headrace.cluster import znodes
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.producer_id_manager import BLOCK_SIZE, ProducerIdManager, allocate_block
from headrace.cluster.registration import prepare_cluster
from headrace.cluster.store import ANY_VERSION, ConnectionLoss, Stat, Watch
from headrace.cluster.znodes import ProducerIdBlock
from headrace.common.errors import CoordinatorLoadInProgressError, HeadraceError
from headrace.common.ids import make_random
from headrace.testing.clock import ManualClock


async def make_store() -> EmbeddedStore:
    store = EmbeddedStore(None, ManualClock())
    await prepare_cluster(store, make_random(1))
    return store


async def latest(store: EmbeddedStore) -> ProducerIdBlock:
    data, _ = await store.get(znodes.PRODUCER_ID_BLOCK)
    return znodes.decode_producer_id_block(data)


@async_test
async def test_ids_are_consecutive_across_blocks() -> None:
    store = await make_store()
    ids = ProducerIdManager(store, 3)
    assert [await ids.next() for _ in range(2 * BLOCK_SIZE + 1)] == list(range(2 * BLOCK_SIZE + 1))
    assert (await latest(store)).broker_id == 3
    await ids.close()


@async_test
async def test_concurrent_callers_get_different_ids() -> None:
    store = await make_store()
    one, other = ProducerIdManager(store, 1), ProducerIdManager(store, 2)
    given = await asyncio.gather(*(each.next() for _ in range(1500) for each in (one, other)))
    assert len(set(given)) == len(given)
    await one.close()
    await other.close()


@async_test
async def test_restart_allocates_new_block() -> None:
    store = await make_store()
    before = ProducerIdManager(store, 1)
    assert await before.next() == 0
    await before.close()
    assert await ProducerIdManager(store, 1).next() == BLOCK_SIZE


class KilledStore(EmbeddedStore):
    """The process dies before the write that allocates a block, or right after it."""

    dies: str | None = None

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        if self.dies == "before":
            raise Killed
        stat = await super().set(path, data, version)
        if self.dies == "after":
            raise Killed
        return stat


class Killed(BaseException):
    pass


@async_test
async def test_ids_are_unique_after_kills_between_allocation_and_use(tmp_path: Path) -> None:
    """Each run allocates a block and is killed at another moment; no id is ever used twice."""
    given: list[int] = []
    blocks: list[ProducerIdBlock] = []
    for dies in (None, "before", "after", "unused", "after", "used", "before", "ahead", None):
        store = KilledStore(tmp_path / "coordination.db", ManualClock())
        await prepare_cluster(store, make_random(1))
        store.dies = dies
        ids = ProducerIdManager(store, 1)
        if dies in ("before", "after"):
            with pytest.raises(Killed):
                await allocate_block(store, 1)
        elif dies == "unused":
            await ids._fetch_soon()
        elif dies == "ahead":  # the next block is allocated but not used
            given += [await ids.next() for _ in range(BLOCK_SIZE - 10)]
            await ids._fetch_soon()
        else:
            given += [await ids.next() for _ in range(10)]
        blocks.append(await latest(store))
        await store.close()
    assert len(set(given)) == len(given) == BLOCK_SIZE + 20
    assert [block.first for block in blocks] == [BLOCK_SIZE * n for n in (0, 0, 1, 2, 3, 4, 4, 6, 7)]


@async_test
async def test_prefetches_next_block() -> None:
    store = await make_store()
    ids = ProducerIdManager(store, 1)
    for _ in range(BLOCK_SIZE - 50):
        await ids.next()
    await ids._fetch_soon()
    assert (await latest(store)).first == BLOCK_SIZE
    assert [ids.take() for _ in range(51)] == list(range(BLOCK_SIZE - 50, BLOCK_SIZE + 1))
    await ids.close()


@async_test
async def test_continues_after_block_written_by_kafka() -> None:
    store = await make_store()
    await store.set(znodes.PRODUCER_ID_BLOCK, b'{"version":1,"broker":7,"block_start":"4000","block_end":"4999"}')
    assert await allocate_block(store, 1) == ProducerIdBlock(1, 5000, 5999)


@async_test
async def test_raises_when_all_ids_are_used() -> None:
    store = await make_store()
    last = ProducerIdBlock(1, 0, 2**63 - 500)
    await store.set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(last))
    with pytest.raises(HeadraceError, match="All producer ids"):
        await allocate_block(store, 1)


class AmbiguousStore(EmbeddedStore):
    """Loses the connection after a write took effect."""

    losses = 0

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        stat = await super().set(path, data, version)
        if self.losses:
            self.losses -= 1
            raise ConnectionLoss("the response is lost")
        return stat


@async_test
async def test_a_block_that_may_be_allocated_is_not_used() -> None:
    store = AmbiguousStore(None, ManualClock())
    await prepare_cluster(store, make_random(1))
    one, other = ProducerIdManager(store, 1), ProducerIdManager(store, 2)
    given = [await one.next(), await other.next()]
    for manager in (one, other, one, other):
        store.losses = 2
        manager._next = manager._last + 1  # the block is used up
        for _ in range(2):
            with pytest.raises(CoordinatorLoadInProgressError):
                await manager.next()
        given += [await manager.next() for _ in range(3)]
    assert len(set(given)) == len(given)
    await one.close()
    await other.close()


class BrokenStore(EmbeddedStore):
    works = True

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        if not self.works:
            raise ConnectionLoss("gone")
        return await super().get(path, watch)


@async_test
async def test_retries_after_store_failure() -> None:
    store = BrokenStore(None, ManualClock())
    await prepare_cluster(store, make_random(1))
    ids = ProducerIdManager(store, 1)
    store.works = False
    for _ in range(2):
        with pytest.raises(CoordinatorLoadInProgressError):
            await ids.next()
    store.works = True
    assert await ids.next() == 0
