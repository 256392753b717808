import socket
from pathlib import Path

import pytest

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.processes.layout import plan_processes
from headrace.common.errors import ConfigError
from headrace.storage.checkpoints import META_PROPERTIES_FILE

ONE = "PLAINTEXT://127.0.0.1:9092"
TWO = "PLAINTEXT://:9092,INTERNAL://:9093"
MAP = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT"}


def listeners(properties: dict[str, str], count: int, key: str = "listeners") -> list[str]:
    return [broker.overrides[key] for broker in plan_processes({"log.dirs": "data", **properties}, count).brokers]


def test_brokers_differ_in_id_port_and_directory() -> None:
    layout = plan_processes({"broker.id": "4", "listeners": ONE, "log.dirs": "/x/a,/x/b"}, 2)
    assert [broker.id for broker in layout.brokers] == [4, 5]
    assert [broker.name for broker in layout.brokers] == ["broker 4", "broker 5"]
    assert layout.brokers[1].overrides == {
        "broker.id": "5",
        "listeners": "PLAINTEXT://127.0.0.1:9093",
        "log.dirs": "/x/a/broker-5,/x/b/broker-5",
        "broker.rack": socket.gethostname(),
    }
    assert layout.store == Path("/x/a/coordination.sqlite")
    assert layout.socket == Path("/x/a/store.sock")


def test_overrides_are_valid_configs() -> None:
    properties = {"broker.id": "1", "listeners": TWO, "log.dirs": "data", "num.partitions": "3", **MAP}
    for broker in plan_processes(properties, 3).brokers:
        config = BrokerConfig.from_properties({**properties, **broker.overrides})
        assert config.node_id == broker.id
        assert config.num_partitions == 3


def test_node_id() -> None:
    overrides = [broker.overrides for broker in plan_processes({"node.id": "7", "log.dirs": "data"}, 2).brokers]
    assert [(found["node.id"], "broker.id" in found) for found in overrides] == [("7", False), ("8", False)]
    both = plan_processes({"node.id": "7", "broker.id": "7", "log.dirs": "data"}, 2).brokers[1].overrides
    assert (both["node.id"], both["broker.id"]) == ("8", "8")


def test_ids_start_at_0() -> None:
    assert [broker.id for broker in plan_processes({"log.dirs": "data"}, 2).brokers] == [0, 1]


def test_ports_of_several_listeners_never_meet() -> None:
    assert listeners({"listeners": TWO, **MAP}, 3) == [
        "PLAINTEXT://:9092,INTERNAL://:9093",
        "PLAINTEXT://:9094,INTERNAL://:9095",
        "PLAINTEXT://:9096,INTERNAL://:9097",
    ]
    far = "PLAINTEXT://:9092,INTERNAL://:19092"
    assert listeners({"listeners": far, **MAP}, 2)[1] == "PLAINTEXT://:9093,INTERNAL://:19093"
    between = "PLAINTEXT://:9092,INTERNAL://:9094"
    assert listeners({"listeners": between, **MAP}, 2)[1] == "PLAINTEXT://:9093,INTERNAL://:9095"
    assert listeners({"listeners": between, **MAP}, 3)[1] == "PLAINTEXT://:9095,INTERNAL://:9097"


def test_free_ports_stay_free() -> None:
    assert listeners({"listeners": "PLAINTEXT://127.0.0.1:0"}, 2) == ["PLAINTEXT://127.0.0.1:0"] * 2


def test_advertised_listeners_are_shifted_too() -> None:
    properties = {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://kafka.example.com:19092"}
    assert listeners(properties, 2, "advertised.listeners")[1] == "PLAINTEXT://kafka.example.com:19093"


def test_rack_of_the_machine() -> None:
    layout = plan_processes({"log.dirs": "data", "broker.rack": "r1"}, 2)
    assert {broker.overrides["broker.rack"] for broker in layout.brokers} == {"r1"}


def test_cluster_in_zookeeper_has_no_store_here() -> None:
    properties = {"log.dirs": "data", "zookeeper.connect": "127.0.0.1:2181"}
    with pytest.raises(ConfigError, match=r"broker\.id must be set"):
        plan_processes(properties, 2)
    layout = plan_processes({**properties, "broker.id": "10"}, 2)
    assert (layout.store, layout.socket) == (None, None)


def test_ports_above_the_last_one() -> None:
    with pytest.raises(ConfigError, match="ports up to 65536"):
        plan_processes({"log.dirs": "data", "listeners": "PLAINTEXT://:65535"}, 2)


def test_directory_of_a_single_broker_is_refused(tmp_path: Path) -> None:
    (tmp_path / META_PROPERTIES_FILE).touch()
    with pytest.raises(ConfigError, match="contains the data of a single broker"):
        plan_processes({"log.dirs": str(tmp_path)}, 2)
