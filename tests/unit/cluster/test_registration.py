import asyncio

import pytest
from tests.support.cluster.fake_cluster import async_test

from headrace.cluster import znodes
from headrace.cluster.commands import BrokerEndpoint, BrokerInfo
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.registration import generate_broker_id, prepare_cluster, read_brokers, register_broker
from headrace.common.errors import DuplicateBrokerRegistrationError
from headrace.common.ids import Uuid, make_random
from headrace.testing.clock import ManualClock

CLOCK = ManualClock()
BROKER = BrokerInfo(1, (BrokerEndpoint("PLAINTEXT", "here", 9092),), "a")


@async_test
async def test_creates_cluster_nodes() -> None:
    store = EmbeddedStore(None, CLOCK)
    cluster_id = await prepare_cluster(store, make_random(1))
    assert Uuid.parse(cluster_id)
    for path in znodes.PERSISTENT_PATHS:
        assert await store.exists(path) is not None
    assert (await store.get("/controller_epoch"))[0] == b"0"
    assert (await store.get("/cluster/id"))[0] == b'{"version":"1","id":"%s"}' % cluster_id.encode()
    assert await prepare_cluster(store, make_random(2)) == cluster_id


@async_test
async def test_completes_partially_created_cluster() -> None:
    store = EmbeddedStore(None, CLOCK)
    await store.create("/brokers")
    await store.create("/brokers/topics")
    await store.create("/controller_epoch", b"7")
    ids = await asyncio.gather(*(prepare_cluster(store.new_session(), make_random(seed)) for seed in range(3)))
    assert len(set(ids)) == 1
    assert (await store.get("/controller_epoch"))[0] == b"7"
    assert await store.exists(znodes.DELETE_TOPICS) is not None


@async_test
async def test_registers_broker() -> None:
    store = EmbeddedStore(None, CLOCK)
    await prepare_cluster(store, make_random(1))
    registered = await register_broker(store.new_session(), BROKER, CLOCK)
    stat = await store.exists("/brokers/ids/1")
    assert stat is not None
    assert registered.epoch == stat.czxid
    assert await read_brokers(store) == {1: registered}


@async_test
async def test_rejects_duplicate_broker_id() -> None:
    store = EmbeddedStore(None, CLOCK)
    await prepare_cluster(store, make_random(1))
    await register_broker(store.new_session(), BROKER, CLOCK)
    for wait_seconds in (0.0, 0.001):
        with pytest.raises(
            DuplicateBrokerRegistrationError, match="Broker id 1 is already registered by another broker at here:9092"
        ):
            await register_broker(store.new_session(), BROKER, CLOCK, wait_seconds=wait_seconds)


@async_test
async def test_waits_for_old_session_to_expire() -> None:
    store = EmbeddedStore(None, CLOCK)
    await prepare_cluster(store, make_random(1))
    old = store.new_session()
    first = await register_broker(old, BROKER, CLOCK)
    waiting = asyncio.create_task(register_broker(store.new_session(), BROKER, CLOCK, wait_seconds=10))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    await old.close()
    assert (await waiting).epoch > first.epoch


@async_test
async def test_recognizes_own_registration() -> None:
    store = EmbeddedStore(None, CLOCK)
    await prepare_cluster(store, make_random(1))
    first = await register_broker(store, BROKER, CLOCK)
    moved = BrokerInfo(1, (BrokerEndpoint("PLAINTEXT", "there", 9093),))
    assert (await register_broker(store, moved, CLOCK)).epoch == first.epoch
    assert (await read_brokers(store))[1].endpoints[0].host == "there"


@async_test
async def test_adds_missing_nodes_to_existing_cluster() -> None:
    store = EmbeddedStore(None, CLOCK)
    cluster_id = await prepare_cluster(store, make_random(1))
    await store.delete("/config/client-metrics")
    assert await prepare_cluster(store, make_random(2)) == cluster_id
    assert await store.exists("/config/client-metrics") is not None


@async_test
async def test_generated_broker_ids_are_unique() -> None:
    store = EmbeddedStore(None, CLOCK)
    await prepare_cluster(store, make_random(1))
    await store.delete(znodes.BROKER_SEQUENCE)
    ids = await asyncio.gather(*(generate_broker_id(store.new_session(), 1000) for _ in range(5)))
    assert sorted(ids) == [1001, 1002, 1003, 1004, 1005]
