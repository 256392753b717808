import asyncio

import pytest
from tests.support.cluster.fake_cluster import async_test, until

from headrace.cluster.commands import BrokerEndpoint, BrokerInfo
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.membership import BrokerMembership
from headrace.cluster.registration import prepare_cluster, read_broker
from headrace.common.errors import DuplicateBrokerRegistrationError
from headrace.common.ids import make_random
from headrace.testing.clock import ManualClock

CLOCK = ManualClock()


def describe() -> BrokerInfo:
    return BrokerInfo(1, (BrokerEndpoint("PLAINTEXT", "here", 9092),))


async def new_store() -> EmbeddedStore:
    store = EmbeddedStore(None, CLOCK)
    await prepare_cluster(store, make_random(1))
    return store


def member(store: EmbeddedStore) -> BrokerMembership:
    return BrokerMembership(store, describe, CLOCK, 10_000)


@async_test
async def test_joins() -> None:
    store = await new_store()
    membership = member(store)
    assert not membership.is_registered
    broker = await membership.join()
    assert membership.is_registered
    assert membership.epoch == broker.epoch > 0
    assert await read_broker(store, 1) == broker
    await membership.leave()
    assert not membership.is_registered


@async_test
async def test_registers_again_after_session_expiry() -> None:
    store = await new_store()
    membership = member(store)
    told: list[BrokerInfo] = []
    membership.add_listener(told.append)
    first = await membership.join()
    for count in (1, 2, 3):
        await store.expire_session()
        await until(lambda count=count: len(told) == count)
        assert membership.is_registered
        assert membership.epoch == told[-1].epoch
        assert await read_broker(store, 1) == told[-1]
    assert first.epoch < told[0].epoch < told[1].epoch < told[2].epoch


@async_test
async def test_not_registered_between_sessions() -> None:
    store = await new_store()
    membership = member(store)
    broker = await membership.join()
    seen: list[bool] = []
    store.add_session_listener(lambda _: seen.append(membership.is_registered))
    await store.expire_session()
    assert seen == [False, False]
    assert membership.epoch == broker.epoch
    await until(lambda: membership.is_registered)
    assert membership.epoch > broker.epoch


@async_test
async def test_failing_listener_does_not_stop_others(caplog: pytest.LogCaptureFixture) -> None:
    store = await new_store()
    membership = member(store)
    told: list[BrokerInfo] = []

    def fail(_: BrokerInfo) -> None:
        raise ValueError("listener")

    membership.add_listener(fail)
    membership.add_listener(told.append)
    await membership.join()
    await store.expire_session()
    await until(lambda: told)
    assert "A listener of the membership of broker 1 failed" in caplog.text


@async_test
async def test_waits_for_the_session_of_the_previous_life() -> None:
    store = await new_store()
    old_session = store.new_session()
    old = await member(old_session).join()
    joining = asyncio.create_task(member(store).join())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not joining.done()
    await old_session.close()
    assert (await joining).epoch > old.epoch


@async_test
async def test_another_broker_has_the_id() -> None:
    store = await new_store()
    await member(store.new_session()).join()
    membership = member(store)
    membership._wait_seconds = 0.01
    with pytest.raises(DuplicateBrokerRegistrationError):
        await membership.join()
    assert not membership.is_registered


@async_test
async def test_left_broker_does_not_register_again() -> None:
    store = await new_store()
    membership = member(store)
    await membership.join()
    await membership.leave()
    await store.expire_session()
    for _ in range(10):
        await asyncio.sleep(0)
    assert await read_broker(store, 1) is None
