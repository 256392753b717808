"""Requests of admin clients, of other projects and our own: topics, partitions, configs, records."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.support.broker.admin_clients import Admin, BrokerError, Partition
from tests.support.broker.clients import Confluent
from tests.support.broker.process import Broker, eventually
from tests.support.broker.records import assert_same, numbered, with_offsets
from tests.support.broker.under_test import REPLICAS

CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "kafka-clients", "headrace")
INCREMENTAL = ("confluent-kafka", "kafka-python", "kafka-clients", "headrace")
REPLACING = ("confluent-kafka", "kafka-python", "aiokafka", "headrace")
UNKNOWN_TOPIC, INVALID_TOPIC, TOPIC_EXISTS = 3, 17, 36
INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_ASSIGNMENT = 37, 38, 39
INVALID_CONFIG, INVALID_REQUEST, OUT_OF_RANGE = 40, 42, 1


@pytest.fixture(params=CLIENTS)
def admin(request: pytest.FixtureRequest, get_admin: Callable[[str], Admin]) -> Admin:
    return get_admin(request.param)


@pytest.fixture(params=INCREMENTAL)
def incremental(request: pytest.FixtureRequest, get_admin: Callable[[str], Admin]) -> Admin:
    return get_admin(request.param)


@contextmanager
def refused(*codes: int) -> Iterator[None]:
    with pytest.raises(BrokerError) as caught:
        yield
    assert caught.value.code in codes, caught.value


def configs(admin: Admin, topic: str, *names: str) -> dict[str, str | None]:
    found = admin.configs("topic", topic)
    return {name: found[name].value for name in names}


def assert_replicated(admin: Admin, topic: str, partitions: int) -> None:
    """Checks that each partition has a leader, and that all replicas are in sync."""

    def is_replicated() -> bool:
        described = admin.describe(topic)
        return list(described) == list(range(partitions)) and all(
            len(set(each.replicas)) == REPLICAS and each.leader in each.isr and {*each.isr} == {*each.replicas}
            for each in described.values()
        )

    eventually(is_replicated, f"{topic} has {partitions} partitions")


# ---- topics


def test_creates_and_deletes_a_topic(admin: Admin, new_name: Callable[[], str]) -> None:
    name = new_name()
    admin.create(name, 3, configs={"retention.ms": "1234567", "cleanup.policy": "compact"})
    eventually(lambda: name in admin.topics(), "the topic is listed")
    assert_replicated(admin, name, 3)
    found = admin.configs("topic", name)
    assert (found["retention.ms"].value, found["cleanup.policy"].value) == ("1234567", "compact")
    assert not found["retention.ms"].is_default
    assert found["segment.bytes"].is_default
    assert found["segment.bytes"].value == str(1 << 30)
    admin.delete(name)
    eventually(lambda: name not in admin.topics(), "the topic is gone")
    with refused(UNKNOWN_TOPIC):
        admin.delete(name)
    if admin.name != "aiokafka":  # its metadata request creates the topic again
        with refused(UNKNOWN_TOPIC):
            admin.describe(name)
    admin.create(name, 1)  # the name can be used again
    eventually(lambda: name in admin.topics(), "the topic is listed again")
    assert len(admin.describe(name)) == 1


def test_recreated_topic_is_empty(admin: Admin, broker: Broker, new_name: Callable[[], str]) -> None:
    name = new_name()
    client = Confluent(broker.bootstrap)
    for _ in range(2):
        admin.create(name)
        eventually(lambda: name in admin.topics(), "the topic is listed")
        assert [ack.offset for ack in client.write(name, numbered(5))] == list(range(5))
        assert_same(client.read(name, [0]), with_offsets(numbered(5)))
        admin.delete(name)
        eventually(lambda: name not in admin.topics(), "the topic is gone")


def test_uses_the_brokers_default_counts(admin: Admin, new_name: Callable[[], str]) -> None:
    name = new_name()
    admin.create(name, -1, -1)  # num.partitions, which is 1, and default.replication.factor
    eventually(lambda: name in admin.topics(), "the topic is listed")
    assert list(admin.describe(name)) == [0]


def test_creates_with_manual_assignment(admin: Admin, new_name: Callable[[], str]) -> None:
    name = new_name()
    nodes = sorted(admin.cluster().nodes)
    node = nodes[0]
    admin.create(name, assignment={0: [node], 1: [node]})
    eventually(lambda: name in admin.topics(), "the topic is listed")
    expected = dict.fromkeys(range(2), Partition(node, [node], [node]))
    eventually(lambda: admin.describe(name) == expected, "the topic is as assigned")
    with refused(INVALID_ASSIGNMENT):
        admin.create(new_name(), assignment={0: [node, node]})
    with refused(INVALID_ASSIGNMENT):
        admin.create(new_name(), assignment={0: [nodes[-1] + 1]})


def test_validates_only(admin: Admin, new_name: Callable[[], str]) -> None:
    name = new_name()
    admin.create(name, 2, configs={"retention.ms": "1000"}, validate_only=True)
    assert name not in admin.topics()
    with refused(INVALID_CONFIG):
        admin.create(name, configs={"retention.ms": "soon"}, validate_only=True)


def test_refuses_invalid_counts(admin: Admin, new_name: Callable[[], str]) -> None:
    name = new_name()
    for replicas in (REPLICAS + 1, 0):  # more than brokers
        with refused(INVALID_REPLICATION_FACTOR):
            admin.create(name, 1, replicas)
    if admin.name != "confluent-kafka":  # librdkafka refuses it itself
        with refused(INVALID_PARTITIONS):
            admin.create(name, 0)
    assert name not in admin.topics()


@pytest.mark.parametrize("name", ["with space", "sl/ash", ".", "..", "x" * 250, "ключ", "colon:", "a,b"])
def test_refuses_invalid_names(admin: Admin, name: str) -> None:
    with refused(INVALID_TOPIC):
        admin.create(name)


def test_accepts_valid_names(admin: Admin, new_name: Callable[[], str]) -> None:
    for name in (f"{new_name()}.Dots.and-UPPER_case_0", new_name().ljust(249, "x")):
        admin.create(name)
        eventually(lambda name=name: name in admin.topics(), "the topic is listed")
        admin.delete(name)


def test_refuses_existing_and_colliding_names(admin: Admin, new_name: Callable[[], str]) -> None:
    """Metric names use `_` for `.`, so the metrics of two topics could collide."""
    name = new_name().replace("-", "_") + "_a.b"
    admin.create(name)
    with refused(TOPIC_EXISTS):
        admin.create(name)
    with refused(TOPIC_EXISTS):
        admin.create(name, validate_only=True)
    with refused(INVALID_TOPIC):
        admin.create(name.replace(".", "_"))
    with refused(INVALID_TOPIC):
        admin.create(name.replace("_", "."))


def test_refuses_invalid_configs(admin: Admin, new_name: Callable[[], str]) -> None:
    for key, value in (
        ("retention.ms", "soon"),
        ("cleanup.policy", "burn"),
        ("no.such.setting", "1"),
        ("min.cleanable.dirty.ratio", "2"),
        ("max.message.bytes", "-1"),
        ("compression.type", "arj"),
        ("message.timestamp.type", "Never"),
    ):
        with refused(INVALID_CONFIG):
            admin.create(new_name(), configs={key: value})


def test_refuses_fewer_partitions(admin: Admin, broker: Broker, new_topic: Callable[..., str]) -> None:
    name = new_topic(2)
    nodes = sorted(admin.cluster().nodes)
    admin.grow(name, 4)
    assert_replicated(admin, name, 4)
    for count in (4, 1):
        with refused(INVALID_PARTITIONS):
            admin.grow(name, count)
    admin.grow(name, 5, [nodes])
    eventually(lambda: len(admin.describe(name)) == 5, "there are five partitions")
    with refused(INVALID_ASSIGNMENT):
        admin.grow(name, 7, [nodes])
    with refused(INVALID_ASSIGNMENT):
        admin.grow(name, 6, [[node + 1 for node in nodes]])
    with refused(UNKNOWN_TOPIC):
        admin.grow(name + "-missing", 2)
    client = Confluent(broker.bootstrap)
    rows = numbered(3, partition=4)
    assert [ack.offset for ack in client.write(name, rows)] == [0, 1, 2]
    assert_same(client.read(name, range(5)), rows)


def test_describes_the_cluster(admin: Admin, broker: Broker) -> None:
    found = admin.cluster()
    assert {f"{host}:{port}" for host, port in found.nodes.values()} == set(broker.bootstrap.split(","))
    assert found.controller in found.nodes
    assert found.id


# ---- configs


def test_incremental_change_keeps_other_configs(incremental: Admin, new_topic: Callable[..., str]) -> None:
    name = new_topic(retention_ms=1000, max_message_bytes=2000)
    incremental.alter("topic", name, [("set", "retention.ms", "7777"), ("set", "segment.bytes", "2000000")])
    names = ("retention.ms", "max.message.bytes", "segment.bytes")
    expected = {"retention.ms": "7777", "max.message.bytes": "2000", "segment.bytes": "2000000"}
    eventually(lambda: configs(incremental, name, *names) == expected, "the configs are changed")
    incremental.alter("topic", name, [("delete", "retention.ms", None), ("set", "max.message.bytes", "3000")])
    expected |= {"retention.ms": str(7 * 24 * 3_600_000), "max.message.bytes": "3000"}
    eventually(lambda: configs(incremental, name, *names) == expected, "one is the default again")
    assert incremental.configs("topic", name)["retention.ms"].is_default


def test_list_configs(incremental: Admin, new_topic: Callable[..., str]) -> None:
    name = new_topic(cleanup_policy="delete")
    steps = (
        ("append", "compact", "delete,compact"),
        ("append", "compact", "delete,compact"),
        ("subtract", "delete", "compact"),
    )
    for operation, value, expected in steps:
        incremental.alter("topic", name, [(operation, "cleanup.policy", value)])
        eventually(
            lambda expected=expected: configs(incremental, name, "cleanup.policy") == {"cleanup.policy": expected},
            f"cleanup.policy is {expected}",
        )
    with refused(INVALID_CONFIG, INVALID_REQUEST):
        incremental.alter("topic", name, [("append", "retention.ms", "1")])


def test_refuses_invalid_changes(incremental: Admin, new_topic: Callable[..., str]) -> None:
    name = new_topic(retention_ms=1000)
    for key, value in (("retention.ms", "soon"), ("no.such.setting", "1"), ("cleanup.policy", "burn")):
        with refused(INVALID_CONFIG):
            incremental.alter("topic", name, [("set", "max.message.bytes", "2000"), ("set", key, value)])
    assert configs(incremental, name, "retention.ms", "max.message.bytes") == {
        "retention.ms": "1000",
        "max.message.bytes": "1048588",
    }
    with refused(UNKNOWN_TOPIC):
        incremental.alter("topic", name + "-missing", [("set", "retention.ms", "1")])


@pytest.mark.filterwarnings("ignore:.*alter_configs.*:DeprecationWarning")
@pytest.mark.parametrize("client", REPLACING)
def test_alter_configs_replaces_all(
    get_admin: Callable[[str], Admin], new_topic: Callable[..., str], client: str
) -> None:
    admin = get_admin(client)
    name = new_topic(retention_ms=1000, max_message_bytes=2000)
    admin.replace("topic", name, {"retention.ms": "7777"})
    expected = {"retention.ms": "7777", "max.message.bytes": "1048588"}
    eventually(lambda: configs(admin, name, *expected) == expected, "the others have their defaults again")
    with refused(INVALID_CONFIG):
        admin.replace("topic", name, {"retention.ms": "soon"})


def test_broker_configs(admin: Admin, broker: Broker) -> None:
    node, (host, port) = min(admin.cluster().nodes.items())
    found = admin.configs("broker", str(node))
    assert f"{host}:{port}" in (found["listeners"].value or "")
    assert str(broker.data_dir) == found["log.dirs"].value
    assert found["log.dirs"].read_only
    assert found["num.partitions"].value == "1"
    assert not found["message.max.bytes"].read_only


def test_broker_configs_are_topic_defaults(incremental: Admin, new_topic: Callable[..., str]) -> None:
    """Configs of one broker, and of all brokers (which only the Java client can name)."""
    name = new_topic()
    nodes = [str(node) for node in incremental.cluster().nodes]
    for broker_names in (nodes, [""]) if incremental.name == "kafka-clients" else (nodes,):
        try:
            for broker_name in broker_names:
                incremental.alter("broker", broker_name, [("set", "log.retention.ms", "5555000")])
            eventually(
                lambda: configs(incremental, name, "retention.ms") == {"retention.ms": "5555000"},
                "the topic has the broker's setting",
            )
        finally:
            for broker_name in broker_names:
                incremental.alter("broker", broker_name, [("delete", "log.retention.ms", None)])
        eventually(
            lambda: configs(incremental, name, "retention.ms") == {"retention.ms": str(7 * 24 * 3_600_000)},
            "the topic has Kafka's default again",
        )
    with refused(INVALID_CONFIG, INVALID_REQUEST):
        incremental.alter("broker", nodes[0], [("set", "log.dirs", "/elsewhere")])


# ---- records


def test_deletes_records(admin: Admin, broker: Broker, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    client = Confluent(broker.bootstrap)
    client.write(name, numbered(20))
    assert admin.delete_records(name, 0, 7) == 7
    assert_same(client.read(name, [0]), numbered(20)[7:])
    assert admin.delete_records(name, 0, 3) == 7  # these are deleted already
    with refused(OUT_OF_RANGE):
        admin.delete_records(name, 0, 21)
    assert admin.delete_records(name, 0, -1) == 20  # all of them
    assert client.read(name, [0]) == []
    assert [ack.offset for ack in client.write(name, numbered(1))] == [20]
