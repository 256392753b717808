import asyncio

import pytest
from tests.support.cluster.fake_cluster import async_test, until

from headrace.cluster import znodes
from headrace.cluster.config_store import (
    NOTIFICATION_RETENTION_MS,
    ConfigEntity,
    ConfigStore,
    ConfigWatcher,
    TopicConfigLoader,
)
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.registration import prepare_cluster
from headrace.cluster.store import Stat, Watch
from headrace.common.errors import InvalidConfigurationError
from headrace.common.ids import make_random
from headrace.testing.clock import ManualClock

ORDERS = ConfigEntity.topic("orders")


class Following:
    """A watcher that records its notifications."""

    def __init__(self, store: EmbeddedStore, clock: ManualClock):
        self.notified: list[tuple[str, dict[str, str]]] = []
        self.watcher = ConfigWatcher(store, clock, lambda entity, config: self.notified.append((str(entity), config)))


async def make_store() -> tuple[EmbeddedStore, ManualClock]:
    clock = ManualClock()
    store = EmbeddedStore(None, clock)
    await prepare_cluster(store, make_random(1))
    return store, clock


@async_test
async def test_set_and_get() -> None:
    store, _ = await make_store()
    configs = ConfigStore(store)
    assert await configs.get(ORDERS) == {}
    await configs.set(ORDERS, {"retention.ms": "1"})
    await configs.set(ConfigEntity.broker(1), {"a": "1"})
    await configs.set(ConfigEntity.all_brokers(), {"b": "2"})
    assert await configs.get(ORDERS) == {"retention.ms": "1"}
    assert await configs.get_all("brokers") == {"1": {"a": "1"}, "<default>": {"b": "2"}}
    assert await configs.names("topics") == ["orders"]
    await configs.set(ORDERS, {})
    assert await configs.get(ORDERS) == {}


@async_test
@pytest.mark.parametrize("others", [0, 100])
async def test_loads_the_configs_of_topics_once(others: int) -> None:
    store, _ = await make_store()
    configs = ConfigStore(store)
    found: list[tuple[str, dict[str, str]]] = []
    loader = TopicConfigLoader(configs, lambda entity, config: found.append((str(entity), config)))
    await store.create(ORDERS.path, znodes.encode_config({"retention.ms": "1"}))  # without a notification
    topics = ["orders", *(f"other-{number}" for number in range(others))]
    await loader.load(topics)
    await loader.load(topics)
    assert found == [("topics/orders", {"retention.ms": "1"})]
    loader.forget("orders")
    loader.add(["read-at-the-start"])
    await configs.set(ORDERS, {})
    await loader.load(["orders", "read-at-the-start"])
    assert found[1:] == [("topics/orders", {})]


@async_test
async def test_rejected_change_writes_nothing() -> None:
    store, _ = await make_store()
    configs = ConfigStore(store)

    def refuse(config: dict[str, str]) -> dict[str, str]:
        raise InvalidConfigurationError("no")

    with pytest.raises(InvalidConfigurationError):
        await configs.alter(ORDERS, refuse)
    assert await configs.get(ORDERS) == {}
    assert await store.children(znodes.CONFIG_CHANGES) == []


@async_test
async def test_concurrent_changes_are_all_kept() -> None:
    store, _ = await make_store()
    configs = ConfigStore(store)
    read = store.get
    meddled: list[str] = []

    async def meddle(path: str, watch: object = None) -> object:
        found = await read(path)
        if len(meddled) < 2:
            meddled.append(path)
            other = dict(znodes.decode_config(path, found[0]), **{f"other-{len(meddled)}": "1"})
            await store.set(path, znodes.encode_config(other))
        return found

    await configs.set(ORDERS, {"mine": "0"})
    store.get = meddle  # type: ignore[method-assign, assignment]
    after = await configs.alter(ORDERS, lambda config: {**config, "mine": "1"})
    assert after == {"mine": "1", "other-1": "1", "other-2": "1"}


@async_test
async def test_every_broker_is_notified() -> None:
    store, clock = await make_store()
    configs = ConfigStore(store)
    await configs.set(ORDERS, {"before": "1"})
    brokers = [Following(store.new_session(), clock) for _ in range(2)]
    for broker in brokers:
        await broker.watcher.start()
    await configs.set(ORDERS, {"a": "1"})
    await configs.set(ConfigEntity.all_brokers(), {"b": "2"})
    for broker in brokers:
        await until(lambda broker=broker: len(broker.notified) >= 2)  # type: ignore[misc]
        assert broker.notified == [("topics/orders", {"a": "1"}), ("brokers/<default>", {"b": "2"})]
        await broker.watcher.stop()


@async_test
async def test_many_fast_changes_end_with_last_value() -> None:
    store, clock = await make_store()
    following = Following(store, clock)
    await following.watcher.start()
    for number in range(20):
        await ConfigStore(store).set(ORDERS, {"n": str(number)})
    await until(lambda: following.notified and following.notified[-1][1] == {"n": "19"})
    await following.watcher.stop()


@async_test
async def test_skips_corrupt_notification(caplog: pytest.LogCaptureFixture) -> None:
    store, clock = await make_store()
    following = Following(store, clock)
    await following.watcher.start()
    await store.create(f"{znodes.CONFIG_CHANGES}/config_change_", b"nonsense", sequential=True)
    await ConfigStore(store).set(ORDERS, {"a": "1"})
    await until(lambda: following.notified)
    assert following.notified == [("topics/orders", {"a": "1"})]
    assert "config_change_0000000000 of the coordination store is corrupt" in caplog.text
    await following.watcher.stop()


@async_test
async def test_failing_listener_gets_next_change(caplog: pytest.LogCaptureFixture) -> None:
    store, clock = await make_store()
    notified: list[dict[str, str]] = []

    def listen(_: ConfigEntity, config: dict[str, str]) -> None:
        notified.append(config)
        if len(notified) == 1:
            raise ValueError("bug")

    watcher = ConfigWatcher(store, clock, listen)
    await watcher.start()
    await ConfigStore(store).set(ORDERS, {"a": "1"})
    await until(lambda: len(notified) == 1)
    await ConfigStore(store).set(ORDERS, {"a": "2"})
    await until(lambda: len(notified) == 2)
    assert "bug" in caplog.text
    await watcher.stop()


@async_test
async def test_purges_old_notifications() -> None:
    store, clock = await make_store()
    following = Following(store, clock)
    await following.watcher.start()
    await ConfigStore(store).set(ORDERS, {"a": "1"})
    await until(lambda: following.notified)
    clock.advance(NOTIFICATION_RETENTION_MS)
    await ConfigStore(store).set(ORDERS, {"a": "2"})
    await until(lambda: len(following.notified) == 2)
    await following.watcher.stop()
    assert following.notified == [("topics/orders", {"a": "1"}), ("topics/orders", {"a": "2"})]
    assert await store.children(znodes.CONFIG_CHANGES) == ["config_change_0000000001"]


@async_test
async def test_watcher_catches_up_after_session_expiry() -> None:
    store, clock = await make_store()
    session = store.new_session()
    following = Following(session, clock)
    await following.watcher.start()
    await session.expire_session()
    await ConfigStore(store).set(ORDERS, {"a": "1"})
    following.watcher.restart_watch()
    await until(lambda: following.notified)
    await ConfigStore(store).set(ORDERS, {"a": "2"})
    await until(lambda: len(following.notified) == 2)
    await following.watcher.stop()


@async_test
async def test_purges_although_another_broker_has_deleted_some_notifications() -> None:
    """All brokers purge after the same change."""
    store, clock = await make_store()
    for number in range(3):
        await ConfigStore(store).set(ORDERS, {"n": str(number)})
    clock.advance(NOTIFICATION_RETENTION_MS)
    following = Following(store, clock)
    delete_first = f"{znodes.CONFIG_CHANGES}/config_change_0000000000"
    delete_second = f"{znodes.CONFIG_CHANGES}/config_change_0000000001"
    exists = store.exists

    async def exists_then_deleted(path: str, watch: Watch | None = None) -> Stat | None:
        if path == delete_first:
            await store.delete(path)  # before it is looked up
        stat = await exists(path, watch)
        if path == delete_second:
            await store.delete(path)  # before it is deleted
        return stat

    store.exists = exists_then_deleted  # type: ignore[method-assign]
    await following.watcher.start()
    await ConfigStore(store).set(ORDERS, {"n": "3"})
    await until(lambda: following.notified)
    while await store.children(znodes.CONFIG_CHANGES) != ["config_change_0000000003"]:
        await asyncio.sleep(0)
    await following.watcher.stop()


def test_names_of_users_and_client_ids_are_encoded() -> None:
    assert str(ConfigEntity.user("CN=a b")) == "users/CN%3Da%20b"
    assert str(ConfigEntity.user(None)) == "users/<default>"
    assert str(ConfigEntity.user("<default>")) == "users/%3Cdefault%3E"
    assert str(ConfigEntity.client("a/b*~")) == "clients/a%2Fb%2A%7E"
    assert ConfigEntity.ip("::1").path == "/config/ips/%3A%3A1"
    both = ConfigEntity.user_client("al/ice", None)
    assert both.path == "/config/users/al%2Fice/clients/<default>"
    assert both.user_and_client == ("al%2Fice", "<default>")
    assert ConfigEntity.user("alice").user_and_client == ("alice", "")
    assert ConfigEntity.client("app").user_and_client == ("", "app")
    assert ConfigEntity.user("CN=a b").decoded_name == "CN=a b"


@async_test
async def test_clients_of_users() -> None:
    store, clock = await make_store()
    configs = ConfigStore(store)
    following = Following(store.new_session(), clock)
    await following.watcher.start()
    await configs.set(ConfigEntity.user_client("alice", "app"), {"producer_byte_rate": "1"})
    await configs.set(ConfigEntity.user_client("alice", None), {"producer_byte_rate": "2"})
    await configs.set(ConfigEntity.user(None), {"producer_byte_rate": "3"})
    assert (await store.get("/config/users/alice"))[0] == b""
    assert await configs.get_all("users") == {
        "<default>": {"producer_byte_rate": "3"},
        "alice": {},
        "alice/clients/app": {"producer_byte_rate": "1"},
        "alice/clients/<default>": {"producer_byte_rate": "2"},
    }
    await configs.alter(ConfigEntity.user("alice"), lambda config: {**config, "SCRAM-SHA-256": "salt=="})
    await configs.alter(ConfigEntity.user("alice"), lambda config: {**config, "producer_byte_rate": "4"})
    assert await configs.get(ConfigEntity.user("alice")) == {"SCRAM-SHA-256": "salt==", "producer_byte_rate": "4"}
    await until(lambda: len(following.notified) >= 5)
    assert following.notified[0] == ("users/alice/clients/app", {"producer_byte_rate": "1"})
    names = await store.children(znodes.CONFIG_CHANGES)
    data, _ = await store.get(f"{znodes.CONFIG_CHANGES}/{min(names)}")
    assert data == b'{"version":2,"entity_path":"users/alice/clients/app"}'
