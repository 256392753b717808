"""Brokers on one event loop that share a store."""

from pathlib import Path

from tests.support.cluster.brokers import ClusterOfBrokers
from tests.support.cluster.fake_cluster import async_test

from headrace.cluster import znodes


@async_test
async def test_a_broker_restarts_on_the_shared_store(tmp_path: Path) -> None:
    async with ClusterOfBrokers(tmp_path, 1) as cluster:
        first_epoch = cluster.brokers[0].epoch
        assert await cluster.store.children(znodes.BROKER_IDS) == ["0"]
        await cluster.kill(0)
        assert await cluster.store.children(znodes.BROKER_IDS) == []
        again = await cluster.start(0)
        assert again.epoch > first_epoch
        assert (tmp_path / "broker-0" / "meta.properties").exists()
