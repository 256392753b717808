"""A broker whose coordination store is a real ZooKeeper."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.support.broker.process import Headrace
from tests.support.cluster.zookeeper import ZooKeeper
from tests.support.cluster.zookeeper_store import expire_session, new_chroot

import headrace
from headrace.broker.server import Broker
from headrace.cluster.zookeeper.store import ZooKeeperStore
from headrace.common.errors import HeadraceError
from headrace.storage.checkpoints import MetaProperties
from headrace.storage.files import FileSystem
from headrace.testing import EmbeddedBroker

SECONDS = 60.0


def embedded(connect: str, data_dir: Path, **properties: object) -> EmbeddedBroker:
    settings = {"zookeeper.connect": connect, "zookeeper.connection.timeout.ms": 60_000, **properties}
    return EmbeddedBroker(settings, data_dir=data_dir)


def read_node(broker: EmbeddedBroker, path: str) -> dict[str, object]:
    async def get(broker: Broker) -> bytes:
        return (await broker.store.get(path))[0]

    return json.loads(broker.run(get))


def produce_and_consume(servers: str, topic: str, count: int) -> list[bytes | None]:
    with headrace.Producer(bootstrap_servers=servers, acks="all") as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number)
    with headrace.Consumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        values: list[bytes | None] = []
        deadline = time.monotonic() + SECONDS
        while len(values) < count and time.monotonic() < deadline:
            values += [record.value for records in consumer.poll(timeout_ms=500).values() for record in records]
    return values


def test_serves_clients_and_registers(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    connect = zookeeper.connect + new_chroot()
    with embedded(connect, tmp_path / "data", **{"broker.id": 3, "broker.rack": "a"}) as broker:
        broker.create_topic("t", 2)
        assert len(produce_and_consume(broker.bootstrap_servers, "t", 20)) == 20
        registration = read_node(broker, "/brokers/ids/3")
        assert registration.pop("timestamp")
        assert registration == {
            "version": 5,
            "host": "127.0.0.1",
            "port": broker.port,
            "jmx_port": -1,
            "endpoints": [f"PLAINTEXT://127.0.0.1:{broker.port}"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "rack": "a",
            "features": {},
        }
        assert read_node(broker, "/controller")["brokerid"] == 3
        assert read_node(broker, "/brokers/topics/t")["partitions"] == {"0": [3], "1": [3]}
        cluster_id = read_node(broker, "/cluster/id")["id"]
    meta = MetaProperties.read(tmp_path / "data", FileSystem())
    assert meta is not None
    assert (meta.cluster_id, meta.node_id) == (cluster_id, 3)
    assert not (tmp_path / "data" / "coordination.sqlite").exists()


def test_prepares_a_cluster_that_brokers_of_kafka_3_can_join(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    connect = zookeeper.connect + new_chroot()
    with embedded(connect, tmp_path / "data", **{"broker.id": 3}) as broker:
        assert broker.call(lambda broker: dict(broker.features.levels)) == {}
        client = KazooClient(connect)
        client.start()
        try:
            # Kafka takes empty data for damaged JSON, and would get no producer ids.
            assert client.get("/latest_producer_id_block")[0] is None
        finally:
            client.stop()
            client.close()
    meta = MetaProperties.read(tmp_path / "data", FileSystem())
    assert meta is not None
    assert (meta.version, meta.directory_id) == (0, None)


def id_of(broker: Broker) -> int:
    return broker.node_id


def test_generated_id_is_kept(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    connect = zookeeper.connect + new_chroot()
    with embedded(connect, tmp_path / "one") as broker:
        assert broker.call(id_of) == 1001
        broker.restart()
        assert broker.call(id_of) == 1001
    with embedded(connect, tmp_path / "two", **{"reserved.broker.max.id": 50}) as broker:
        assert broker.call(id_of) == 52
        assert broker.call(lambda broker: broker.dynamic_config.node_id) == 52


def test_refuses_directory_of_another_cluster(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    first, second = zookeeper.connect + new_chroot(), zookeeper.connect + new_chroot()
    with embedded(first, tmp_path / "data"):
        pass
    with (
        pytest.raises(HeadraceError, match=r"belongs to cluster \S+ .*, but ZooKeeper .* has no cluster yet"),
        embedded(second, tmp_path / "data"),
    ):
        pass
    with embedded(second, tmp_path / "other"):
        pass
    with (
        pytest.raises(HeadraceError, match=r"belongs to cluster \S+ .*, but ZooKeeper .* has cluster \S+ \(/cluster"),
        embedded(second, tmp_path / "data"),
    ):
        pass


def test_unreachable_zookeeper(tmp_path: Path) -> None:
    with (
        pytest.raises(HeadraceError, match=r"Cannot connect to ZooKeeper at 127\.0\.0\.1:1 within 500 ms"),
        embedded("127.0.0.1:1", tmp_path / "data", **{"zookeeper.connection.timeout.ms": 500}),
    ):
        pass


def test_continues_after_session_expiry(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    with embedded(zookeeper.connect + new_chroot(), tmp_path / "data", **{"broker.id": 1}) as broker:
        broker.create_topic("before")
        first_epoch = broker.call(lambda broker: broker.epoch)

        def store_of(broker: Broker) -> ZooKeeperStore:
            assert isinstance(broker.store, ZooKeeperStore)
            return broker.store

        expire_session(broker.call(store_of))
        broker.wait_until(lambda broker: broker.epoch > first_epoch and broker.controller.is_active, 60_000)
        assert broker.call(lambda broker: broker.membership.is_registered)
        broker.create_topic("after")
        for topic in ("before", "after"):
            assert len(produce_and_consume(broker.bootstrap_servers, topic, 10)) == 10


def test_registration_waits_for_the_session_of_a_killed_broker(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    settings = {
        "zookeeper.connect": zookeeper.connect + new_chroot(),
        "zookeeper.session.timeout.ms": 20_000,
        "zookeeper.connection.timeout.ms": 60_000,
        "broker.id": 7,
    }
    broker = Headrace(tmp_path / "data", settings)
    broker.start()
    try:
        broker.kill()
        broker.start()
        assert "Broker id 7 is still registered; waiting for the old session to expire" in broker.log_file.read_text()
        assert len(produce_and_consume(broker.bootstrap, "t", 10)) == 10
        broker.stop()
    finally:
        broker.kill()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_stops_without_zookeeper(own_zookeeper: ZooKeeper, tmp_path: Path) -> None:
    settings = {"zookeeper.connect": own_zookeeper.connect, "zookeeper.connection.timeout.ms": 60_000}
    broker = Headrace(tmp_path / "data", settings)
    broker.start()
    try:
        (server,) = own_zookeeper.servers
        server.kill()
        wait_for(lambda: "Lost the connection to ZooKeeper" in broker.log_file.read_text())
        assert broker.pid is not None
        broker.stop()
    finally:
        broker.kill()
    assert "ERROR" not in broker.log_file.read_text()
