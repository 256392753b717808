"""The contract tests of the coordination store, on one real ZooKeeper and on an ensemble of three."""

import pytest
from tests.support.cluster.zookeeper import ZooKeeper
from tests.support.cluster.zookeeper_store import ZooKeeperHarness, slow_test
from tests.unit.cluster.test_store_contract import CONTRACT


async def run(test: str, zookeeper: ZooKeeper) -> None:
    harness = ZooKeeperHarness(zookeeper.connect)
    store = await harness.session()
    try:
        await CONTRACT[test](harness, store)
    finally:
        await store.close()


@pytest.mark.parametrize("test", CONTRACT)
def test_one_server(test: str, zookeeper: ZooKeeper) -> None:
    slow_test(run)(test, zookeeper)


@pytest.mark.parametrize("test", CONTRACT)
def test_ensemble(test: str, ensemble: ZooKeeper) -> None:
    slow_test(run)(test, ensemble)
