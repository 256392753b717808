"""Brokers follow notifications, without missing one, and delete old ones."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.cluster.fake_cluster import async_test, until

from headrace.cluster.change_notifications import RETENTION_MS, ChangeNotifications
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.store import ConnectionLoss
from headrace.testing.clock import ManualClock

ONE, TWO = "/one", "/two"


class Follower:
    def __init__(self, store: EmbeddedStore, clock: ManualClock):
        self.reads = 0
        self.seen: list[bytes] = []
        self.fails = False
        self.notifications = ChangeNotifications(store, clock, [ONE, TWO], self._read_all, self._process, "the things")

    async def _read_all(self) -> None:
        self.reads += 1

    async def _process(self, _: str, data: bytes) -> None:
        if self.fails:
            self.fails = False
            raise ConnectionLoss("lost")
        self.seen.append(data)


@asynccontextmanager
async def following(store: EmbeddedStore, clock: ManualClock) -> AsyncIterator[Follower]:
    follower = Follower(store.new_session(), clock)
    await follower.notifications.start()
    try:
        yield follower
    finally:
        await follower.notifications.stop()


async def make_store(clock: ManualClock) -> EmbeddedStore:
    store = EmbeddedStore(None, clock)
    for parent in (ONE, TWO):
        await store.create(parent)
    return store


async def notify(store: EmbeddedStore, parent: str, data: bytes) -> None:
    await store.create(f"{parent}/change_", data, sequential=True)


@async_test
async def test_each_notification_is_processed_once() -> None:
    clock = ManualClock()
    store = await make_store(clock)
    await notify(store, ONE, b"before")
    async with following(store, clock) as follower, following(store, clock) as other:
        assert follower.reads == 1
        for number in range(3):
            await notify(store, (ONE, TWO)[number % 2], b"%d" % number)
            await until(lambda number=number: len(follower.seen) == len(other.seen) == number + 1)  # type: ignore[misc]
        assert follower.seen == other.seen == [b"0", b"1", b"2"]
        assert follower.reads == 1


@async_test
async def test_reads_everything_after_an_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cluster.change_notifications._RETRY_SECONDS", 0)
    clock = ManualClock()
    store = await make_store(clock)
    async with following(store, clock) as follower:
        follower.fails = True
        await notify(store, ONE, b"lost")
        await until(lambda: follower.reads == 2)
        assert "Cannot read the things, will retry; this broker uses the old ones until then: lost" in caplog.text
        await notify(store, ONE, b"next")
        await until(lambda: follower.seen == [b"next"])
        follower.notifications.restart_watch()
        await until(lambda: follower.reads == 3)


@async_test
async def test_old_notifications_are_deleted() -> None:
    clock = ManualClock()
    store = await make_store(clock)
    async with following(store, clock) as follower:
        await notify(store, ONE, b"old")
        await until(lambda: follower.seen)
        clock.advance(RETENTION_MS + 1)
        await notify(store, ONE, b"new")
        await until(lambda: len(follower.seen) == 2)
        while len(await store.children(ONE)) > 1:
            await asyncio.sleep(0)
        (left,) = await store.children(ONE)
        assert (await store.get(f"{ONE}/{left}"))[0] == b"new"
