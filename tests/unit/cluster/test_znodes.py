import json
from collections.abc import Callable

import pytest

from headrace.cluster import znodes
from headrace.cluster.commands import BrokerEndpoint, BrokerInfo
from headrace.cluster.znodes import DamagedNode, Leadership, ProducerIdBlock, ReplicaAssignment, TopicAssignment
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition

ID = Uuid.parse("L4tkSDvtSWyV2FJpQYyZlA")
TP = TopicPartition("orders", 3)


def test_paths() -> None:
    assert znodes.broker_path(7) == "/brokers/ids/7"
    assert znodes.topic_path("orders") == "/brokers/topics/orders"
    assert znodes.state_path(TP) == "/brokers/topics/orders/partitions/3/state"
    assert znodes.config_path("brokers", znodes.DEFAULT_ENTITY) == "/config/brokers/<default>"
    assert znodes.delete_topic_path("orders") == "/admin/delete_topics/orders"


def test_broker() -> None:
    broker = BrokerInfo(
        7,
        (BrokerEndpoint("CLIENTS", "kafka.example", 9092), BrokerEndpoint("SECURE", "::1", 9093, "SSL")),
        "rack-a",
        42,
    )
    data = znodes.encode_broker(broker, 1_700_000_000_000)
    assert json.loads(data) == {
        "listener_security_protocol_map": {"CLIENTS": "PLAINTEXT", "SECURE": "SSL"},
        "endpoints": ["CLIENTS://kafka.example:9092", "SECURE://[::1]:9093"],
        "rack": "rack-a",
        "jmx_port": -1,
        "features": {},
        "host": "kafka.example",
        "port": 9092,
        "timestamp": "1700000000000",
        "version": 5,
    }
    assert znodes.decode_broker(7, data, 42) == broker


def test_broker_without_plaintext_listener_has_no_host() -> None:
    fields = json.loads(znodes.encode_broker(BrokerInfo(7, (BrokerEndpoint("SSL", "h", 1, "SSL"),)), 0))
    assert (fields["host"], fields["port"]) == (None, -1)
    assert "rack" not in fields


def test_decodes_brokers_written_by_kafka() -> None:
    written = (
        b'{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://localhost:9092"],'
        b'"jmx_port":-1,"features":{},"host":"localhost","timestamp":"1668515000000","port":9092,"version":5}'
    )
    assert znodes.decode_broker(0, written, 9) == BrokerInfo(
        0, (BrokerEndpoint("PLAINTEXT", "localhost", 9092),), None, 9
    )
    first = b'{"version":1,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"2233345666"}'
    assert znodes.decode_broker(0, first, 9).endpoints == (BrokerEndpoint("PLAINTEXT", "localhost", 9092),)


def test_topic() -> None:
    assignment = TopicAssignment(
        "orders", ID, {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((1, 2, 3), (3,), (1,))}
    )
    data = znodes.encode_topic(assignment)
    assert json.loads(data) == {
        "version": 3,
        "topic_id": str(ID),
        "partitions": {"0": [1, 2], "1": [1, 2, 3]},
        "adding_replicas": {"1": [3]},
        "removing_replicas": {"1": [1]},
    }
    assert znodes.decode_topic("orders", data) == assignment
    assert not assignment.partitions[0].is_reassigned
    assert assignment.partitions[1].is_reassigned
    assert assignment.partitions[1].target == (2, 3)


def test_decodes_topic_written_by_kafka() -> None:
    written = (
        b'{"removing_replicas":{},"partitions":{"1":[2,0],"0":[1,2]},"topic_id":"L4tkSDvtSWyV2FJpQYyZlA",'
        b'"adding_replicas":{},"version":3}'
    )
    found = znodes.decode_topic("t", written)
    assert found.topic_id == ID
    assert {index: one.replicas for index, one in found.partitions.items()} == {0: (1, 2), 1: (2, 0)}
    assert list(found.partitions) == [0, 1]


def test_topic_without_id() -> None:
    """Kafka writes it with inter.broker.protocol.version below 2.8."""
    written = b'{"removing_replicas":{},"partitions":{"0":[1,2]},"adding_replicas":{},"version":3}'
    found = znodes.decode_topic("t", written)
    assert found.topic_id == ZERO_UUID
    assert found.partitions[0].replicas == (1, 2)
    assert znodes.encode_topic(found) == written
    oldest = znodes.decode_topic("t", b'{"version":1,"partitions":{"0":[1]}}')
    assert oldest.partitions[0].replicas == (1,)


def test_leader_and_isr() -> None:
    state = Leadership(2, 5, (2, 1), 9, 17)
    data = znodes.encode_leadership(state)
    assert data == b'{"controller_epoch":9,"leader":2,"version":1,"leader_epoch":5,"isr":[2,1]}'
    assert znodes.decode_leadership(TP, data, 17) == state
    assert state.new_leader(1) == Leadership(1, 6, (2, 1), 9, 17)
    assert state.new_leader(-1, ()) == Leadership(-1, 6, (), 9, 17)
    recovering = Leadership(2, 5, (2,), 9, 17, 1)
    data = znodes.encode_leadership(recovering)
    assert json.loads(data)["leader_recovery_state"] == 1
    assert znodes.decode_leadership(TP, data, 17) == recovering


def test_controller() -> None:
    data = znodes.encode_controller(3, 123)
    assert data == b'{"version":2,"brokerid":3,"timestamp":"123","kraftControllerEpoch":-1}'
    assert znodes.decode_controller(data) == 3
    assert znodes.decode_controller_epoch(znodes.encode_controller_epoch(12)) == 12


def test_configs() -> None:
    data = znodes.encode_config({"retention.ms": "1000"})
    assert data == b'{"version":1,"config":{"retention.ms":"1000"}}'
    assert znodes.decode_config("/x", data) == {"retention.ms": "1000"}
    assert znodes.decode_config("/x", b"") == {}
    change = znodes.encode_config_change("topics", "orders")
    assert change == b'{"version":2,"entity_path":"topics/orders"}'
    assert znodes.decode_config_change("/x", change) == ("topics", "orders")


def test_notifications_cluster_id_producer_ids_and_features() -> None:
    assert znodes.encode_cluster_id("abc") == b'{"version":"1","id":"abc"}'
    assert znodes.decode_cluster_id(b'{"version":"1","id":"abc"}') == "abc"
    assert znodes.encode_log_dir_event(4) == b'{"version":1,"broker":4,"event":1}'
    assert znodes.decode_log_dir_event("/x", b'{"version":1,"broker":4,"event":1}') == 4
    assert znodes.encode_isr_change([TP]) == b'{"version":1,"partitions":[{"topic":"orders","partition":3}]}'
    assert znodes.decode_partitions("/x", znodes.encode_isr_change([TP])) == [TP]
    assert znodes.decode_partitions("/x", znodes.encode_preferred_election([TP, TP])) == [TP, TP]
    for damaged in (b"{}", b'{"partitions":[1]}', b'{"partitions":[{"topic":"a"}]}'):
        with pytest.raises(znodes.DamagedNode, match="is not a list of topics and partitions"):
            znodes.decode_partitions("/x", damaged)
    block = ProducerIdBlock(1, 0, 999)
    assert znodes.encode_producer_id_block(block) == b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    assert znodes.decode_producer_id_block(znodes.encode_producer_id_block(block)) == block
    assert znodes.encode_feature() == b'{"version":2,"status":1,"features":{}}'
    assert znodes.decode_feature(znodes.encode_feature({"a": 2})) == {"a": 2}
    first_version = b'{"version":1,"status":1,"features":{"a":{"min_version_level":1,"max_version_level":3}}}'
    assert znodes.decode_feature(first_version) == {"a": 3}
    assert znodes.decode_feature(b'{"version":2,"status":0,"features":{"a":1}}') == {}  # disabled
    with pytest.raises(znodes.DamagedNode, match="level of feature 'a'"):
        znodes.decode_feature(b'{"version":2,"status":1,"features":{"a":"1"}}')


def test_sanitizes_user_names() -> None:
    assert znodes.sanitize("CN=a b,O=x/y") == "CN%3Da%20b%2CO%3Dx%2Fy"
    assert znodes.sanitize("a-b.c_d~*+%é") == "a-b.c_d%7E%2A%2B%25%C3%A9"
    assert znodes.desanitize(znodes.sanitize("CN=a b,O=x/y")) == "CN=a b,O=x/y"
    assert znodes.sanitize("<default>") == znodes.desanitize("<default>") == "<default>"


DAMAGED: list[tuple[Callable[[bytes], object], bytes, str]] = [
    (lambda data: znodes.decode_broker(1, data, 0), b"", "/brokers/ids/1 .* not JSON"),
    (lambda data: znodes.decode_broker(1, data, 0), b"{}", "'version' is not a number"),
    (lambda data: znodes.decode_broker(1, data, 0), b'{"version":5,"endpoints":1}', "'endpoints' is not a list"),
    (lambda data: znodes.decode_broker(1, data, 0), b'{"version":5,"endpoints":["a:1"]}', "'a:1' is not an endpoint"),
    (lambda data: znodes.decode_broker(1, data, 0), b'{"version":5,"endpoints":[7]}', "7 is not an endpoint"),
    (
        lambda data: znodes.decode_broker(1, data, 0),
        b'{"version":5,"endpoints":[],"rack":[]}',
        "'rack' is not a string",
    ),
    (lambda data: znodes.decode_topic("t", data), b"[]", "/brokers/topics/t .* not a JSON object"),
    (lambda data: znodes.decode_topic("t", data), b"{}", "'partitions' is not an object"),
    (lambda data: znodes.decode_topic("t", data), b'{"topic_id":7}', "'topic_id' is not a string"),
    (lambda data: znodes.decode_topic("t", data), b'{"topic_id":"x"}', "Invalid id 'x'"),
    (
        lambda data: znodes.decode_topic("t", data),
        b'{"topic_id":"L4tkSDvtSWyV2FJpQYyZlA"}',
        "'partitions' is not an object",
    ),
    (
        lambda data: znodes.decode_topic("t", data),
        b'{"topic_id":"L4tkSDvtSWyV2FJpQYyZlA","partitions":{"x":[]}}',
        "'x' is not a partition",
    ),
    (
        lambda data: znodes.decode_topic("t", data),
        b'{"topic_id":"L4tkSDvtSWyV2FJpQYyZlA","partitions":{"0":["a"]}}',
        "'partitions' is not a list of numbers",
    ),
    (lambda data: znodes.decode_leadership(TP, data, 0), b"\xff", "orders/partitions/3/state .* not JSON"),
    (
        lambda data: znodes.decode_leadership(TP, data, 0),
        b'{"leader":1,"leader_epoch":true,"isr":[]}',
        "'leader_epoch' is not a number",
    ),
    (lambda data: znodes.decode_leadership(TP, data, 0), b'{"leader":1,"leader_epoch":1}', "'isr' is not a list"),
    (znodes.decode_controller, b'{"brokerid":null}', "'brokerid' is not a number"),
    (znodes.decode_controller_epoch, b"one", "/controller_epoch .* not a number"),
    (lambda data: znodes.decode_config("/c", data), b'{"config":{"a":1}}', "the value of 'a' is not a string"),
    (lambda data: znodes.decode_config("/c", data), b'{"config":[]}', "'config' is not an object"),
    (lambda data: znodes.decode_config_change("/c", data), b'{"entity_path":"topics"}', "is not <kind>/<name>"),
    (znodes.decode_cluster_id, b'{"id":5}', "'id' is not a string"),
]


@pytest.mark.parametrize(("decode", "data", "message"), DAMAGED)
def test_corrupt_data_raises_with_its_problem(decode: Callable[[bytes], object], data: bytes, message: str) -> None:
    with pytest.raises(DamagedNode, match=message):
        decode(data)
