import pytest
from tests.support.cluster.fake_cluster import async_test, until

from headrace.cluster import znodes
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.features import SUPPORTED_FEATURES, TRANSACTION_VERSION, FinalizedFeatures
from headrace.cluster.registration import prepare_cluster
from headrace.common.errors import HeadraceError
from headrace.common.ids import make_random
from headrace.testing.clock import ManualClock


async def make_store() -> EmbeddedStore:
    store = EmbeddedStore(None, ManualClock())
    await prepare_cluster(store, make_random(1))
    return store


@async_test
async def test_all_features_without_zookeeper() -> None:
    features = FinalizedFeatures(await make_store(), may_have_kafka_brokers=False)
    await features.start()
    assert (features.levels, features.epoch) == (SUPPORTED_FEATURES, 0)
    await features.stop()


@async_test
async def test_no_features_unless_the_node_names_them() -> None:
    store = await make_store()
    features = FinalizedFeatures(store, may_have_kafka_brokers=True)
    await features.start()
    assert features.levels == {}
    for levels in ({TRANSACTION_VERSION: 2}, {TRANSACTION_VERSION: 1}, {}):
        await store.set(znodes.FEATURE, znodes.encode_feature(levels))
        await until(lambda levels=levels: features.levels == levels)
    assert features.epoch == 3
    await features.stop()


@async_test
async def test_follows_a_node_that_is_created_later() -> None:
    store = await make_store()
    await store.delete(znodes.FEATURE)
    features = FinalizedFeatures(store, may_have_kafka_brokers=True)
    await features.start()
    await store.create(znodes.FEATURE, znodes.encode_feature({TRANSACTION_VERSION: 1}))
    await until(lambda: features.levels == {TRANSACTION_VERSION: 1})
    await features.stop()


@pytest.mark.parametrize("levels", [{TRANSACTION_VERSION: 3}, {"another": 1}])
@async_test
async def test_refuses_features_that_it_does_not_support(levels: dict[str, int]) -> None:
    store = await make_store()
    await store.set(znodes.FEATURE, znodes.encode_feature(levels))
    with pytest.raises(HeadraceError, match="finalized features"):
        await FinalizedFeatures(store, may_have_kafka_brokers=True).start()
