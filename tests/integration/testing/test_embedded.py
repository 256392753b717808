"""The embedded broker: start, stop, kill, pause, topics."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.net.wire_calls import batch, end_offset, produce, produce_request
from tests.support.net.wire_client import ConnectionEnded, WireClient

from headrace.common.errors import ConfigError, HeadraceError, InvalidTopicError, TopicAlreadyExistsError
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.testing import EmbeddedBroker
from headrace.testing.embedded import _free_port

CLEAN = ".kafka_cleanshutdown"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        yield broker


def test_uses_free_port_and_temporary_directory() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker(topics={"a": 2, "b": 3}) as two:
        assert one.address != two.address
        assert one.data_dir != two.data_dir
        assert two.bootstrap_servers == f"127.0.0.1:{two.port}"
        assert sorted(path.name for path in two.data_dir.glob("[ab]-*")) == ["a-0", "a-1", "b-0", "b-1", "b-2"]
        with WireClient(one.address) as client:
            assert client.call(ApiVersionsRequest(), 0).error_code == 0
        directories = one.data_dir, two.data_dir
    assert not any(directory.exists() for directory in directories)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(two.address)


def test_accepts_kafka_properties(tmp_path: Path) -> None:
    with EmbeddedBroker({"num.partitions": 4, "node.id": 9}, data_dir=tmp_path / "data") as broker:
        assert broker.call(lambda inside: (inside.node_id, inside.config.num_partitions)) == (9, 4)
    assert (tmp_path / "data" / CLEAN).exists(), "a directory that was given is kept"
    with pytest.raises(ConfigError, match=r"did you mean 'num.partitions'"):
        EmbeddedBroker({"num.partition": 4}).__enter__()


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, -1),
        ({"log.retention.hours": 2}, 7_200_000),
        ({"log.retention.minutes": 3}, 180_000),
        ({"log.retention.ms": 5}, 5),
    ],
)
def test_keeps_records_with_old_timestamps(properties: dict[str, object], expected: int) -> None:
    """Retention would delete records with old timestamps while a test is running."""
    with EmbeddedBroker(properties, topics={"t": 1}) as broker:
        assert broker.call(lambda inside: inside.dynamic_config.topic("t").log.retention_ms) == expected


def test_async_with_block() -> None:
    async def use() -> None:
        async with EmbeddedBroker(topics={"t": 1}) as broker:
            reader, writer = await asyncio.open_connection(*broker.address)
            writer.close()
            await writer.wait_closed()
            assert reader.at_eof() is not None
        assert not broker.is_running

    asyncio.run(use())


@pytest.mark.parametrize("clean", [True, False])
def test_restart_keeps_port_and_records(broker: EmbeddedBroker, clean: bool) -> None:
    address, directory = broker.address, broker.data_dir
    with WireClient(address) as client:
        assert produce(client, batch(b"1", b"2"), acks=-1).error_code == 0
    broker.restart(clean)
    assert (broker.address, broker.data_dir) == (address, directory)
    with WireClient(address) as client:
        assert end_offset(client) == 2


def test_stop_and_kill(broker: EmbeddedBroker) -> None:
    marker = broker.data_dir / CLEAN
    broker.stop()
    assert marker.exists()
    assert not broker.is_running
    broker.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(broker.address)
    with pytest.raises(HeadraceError, match="is not running"):
        broker.create_topic("x")
    broker.start()
    with pytest.raises(HeadraceError, match="already running"):
        broker.start()
    with WireClient(broker.address) as client:
        broker.kill()
        with pytest.raises((ConnectionEnded, ConnectionError)):
            client.call(ApiVersionsRequest(), 0)
    assert not marker.exists()


def test_paused_broker_does_not_respond_and_loses_nothing(broker: EmbeddedBroker) -> None:
    with WireClient(broker.address) as client:
        broker.pause()
        broker.pause()
        sent = client.send(ApiVersionsRequest(), 0)
        client.sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.sock.recv(1, socket.MSG_PEEK)
        with pytest.raises(HeadraceError, match="is paused"):
            broker.create_topic("x")
        client.sock.settimeout(20)
        broker.resume()
        assert client.receive(sent).error_code == 0
    broker.pause()  # a paused broker can be closed


def test_creates_and_deletes_topics(broker: EmbeddedBroker) -> None:
    broker.create_topic("compact", 2, {"cleanup.policy": "compact", "min.insync.replicas": 2})
    config = broker.call(lambda inside: inside.dynamic_config.topic("compact"))
    assert (config.log.compact, config.min_insync_replicas) == (True, 2)
    with pytest.raises(TopicAlreadyExistsError):
        broker.create_topic("compact")
    with pytest.raises(InvalidTopicError):
        broker.create_topic("no topic")
    broker.delete_topic("compact")
    assert broker.call(lambda inside: inside.image.topic_id("compact")) is None
    broker.delete_topic("compact", missing_ok=True)


def test_wait_until(broker: EmbeddedBroker) -> None:
    with WireClient(broker.address):
        broker.wait_until(lambda inside: inside.server.connections_open == 1)
    with pytest.raises(TimeoutError, match="did not become true"):
        broker.wait_until(lambda inside: inside.node_id == 5, timeout_ms=10)
    with pytest.raises(ZeroDivisionError):
        broker.call(lambda inside: inside.node_id / 0)


def test_uses_requested_port() -> None:
    port = _free_port()
    with EmbeddedBroker(port=port) as broker:
        assert broker.address == ("127.0.0.1", port)
        with pytest.raises(HeadraceError, match="the port is in use"):
            EmbeddedBroker(port=port).__enter__()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_accepts_own_listeners(host: str) -> None:
    properties = {
        "listeners": f"ONE://{host}:0,TWO://{host}:0",
        "advertised.listeners": "ONE://proxy.invalid:1",
        "listener.security.protocol.map": "ONE:PLAINTEXT,TWO:PLAINTEXT",
        "inter.broker.listener.name": "ONE",
    }
    with EmbeddedBroker(properties) as broker:
        assert broker.address == ("127.0.0.1", broker.call(lambda inside: inside.server.endpoints[0].port))
        with WireClient(broker.address) as client:
            (known,) = client.call(MetadataRequest(topics=[]), 8).brokers
        assert (known.host, known.port) == ("proxy.invalid", 1)


def test_topics_of_existing_data_dir_are_kept(tmp_path: Path) -> None:
    for _ in range(2):
        with EmbeddedBroker(topics={"t": 2}, data_dir=tmp_path) as broker:
            assert broker.call(lambda inside: len(inside.replicas)) == 2


def test_address_before_start_raises() -> None:
    with pytest.raises(HeadraceError, match="has not been started yet"):
        _ = EmbeddedBroker().bootstrap_servers


def test_acknowledged_records_survive_kill_under_load(broker: EmbeddedBroker) -> None:
    acknowledged = 0
    for _ in range(3):
        with WireClient(broker.address) as client:
            waiting = [client.send(produce_request(batch(b"x" * 100), acks=-1), 9) for _ in range(50)]
            for sent in waiting[:25]:
                reply = client.receive(sent)
                assert reply.responses[0].partition_responses[0].error_code == 0
                acknowledged += 1
            broker.restart(clean=False)
        with WireClient(broker.address) as client:
            assert end_offset(client) >= acknowledged


@pytest.mark.parametrize("topics", [["a"], "a", {"a": "3"}, {3: 1}])
def test_topics_are_counts_by_name(topics: object) -> None:
    with pytest.raises(TypeError, match=r"topics must be partition counts by name, for example \{'orders': 3\}, not"):
        EmbeddedBroker(topics=topics)
