import dataclasses
from pathlib import Path

import pytest

from headrace.broker.config.broker import BROKER_KEYS, OWN_KEYS, TOPIC_KEYS, BrokerConfig
from headrace.broker.config.kafka_only import NO_EFFECT, REFUSED
from headrace.common.errors import ConfigError
from headrace.common.properties import parse_properties
from headrace.net.listeners import Listener
from headrace.storage.checkpoints import MetaProperties
from headrace.storage.config import LOG_KEYS, MANAGER_KEYS
from headrace.storage.files import FileSystem

# The contents of config/server.properties of Apache Kafka 3.9 (for ZooKeeper) and 4.0 (KRaft), without the comments.
KAFKA_3 = """
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
KAFKA_4 = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def error_of(**given: object) -> str:
    """Returns the error message of an invalid config; underscores stand for dots."""
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_properties({name.replace("_", "."): value for name, value in given.items()})
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_defaults() -> None:
    config = BrokerConfig.from_properties()
    assert config.node_id == 0
    assert config.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.log_dirs == ("headrace-data",)
    assert (config.num_partitions, config.default_replication_factor) == (1, 1)
    assert config.auto_create_topics_enable
    assert config.limits.request_max_bytes == 104_857_600
    assert config.notes == ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.node_id = 1  # type: ignore[misc]


@pytest.mark.parametrize("text", [KAFKA_3, KAFKA_4], ids=["3", "4"])
def test_loads_kafkas_server_properties(text: str) -> None:
    config = BrokerConfig.from_properties(parse_properties(text))
    assert [listener.port for listener in config.listeners] == [9092]
    assert config.manager.num_recovery_threads_per_data_dir == 1
    notes = "\n".join(config.notes)
    assert "num.io.threads has no effect: one event loop replaces" in notes
    assert config.coordinators.topics["__consumer_offsets"].replication_factor == 1


def test_ignores_the_listener_of_a_kraft_controller() -> None:
    config = BrokerConfig.from_properties(parse_properties(KAFKA_4))
    assert config.node_id == 1
    assert config.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert config.advertised_listeners == (Listener("PLAINTEXT", "localhost", 9092),)
    assert "Listener CONTROLLER://:9093 is ignored: there is no Raft quorum" in "\n".join(config.notes)


def test_each_key_is_in_one_table() -> None:
    assert BROKER_KEYS.keys.keys() & NO_EFFECT.keys() == set()
    assert BROKER_KEYS.keys.keys() & REFUSED.keys() == set()
    assert NO_EFFECT.keys() & REFUSED.keys() == set()
    assert all(reason and not reason.endswith(".") for reason in [*NO_EFFECT.values(), *REFUSED.values()])
    assert OWN_KEYS.keys.keys() & MANAGER_KEYS.keys.keys() == set()


def test_topic_keys_are_log_and_replication_keys() -> None:
    assert TOPIC_KEYS.keys.keys() - LOG_KEYS.keys.keys() == {
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
    }


def test_broker_keys_define_topic_defaults() -> None:
    hours, minutes, ms = (BROKER_KEYS.keys[f"log.retention.{unit}"] for unit in ("hours", "minutes", "ms"))
    assert (hours.default, minutes.default, ms.default) == (168, None, None)
    assert (hours.type.value, ms.type.value) == ("int", "long")
    assert (hours.dynamic, minutes.dynamic, ms.dynamic) == (False, False, True)
    assert hours.parse("-1") == -1
    assert BROKER_KEYS.keys["log.roll.hours"].low == 1
    assert BROKER_KEYS.keys["min.insync.replicas"].default == 1
    assert error_of(log_roll_hours="0") == "Invalid value 0 for configuration log.roll.hours: Value must be at least 1"
    config = BrokerConfig.from_properties({"log.retention.hours": "2"})
    assert TOPIC_KEYS.defaults_from_server(config.properties) == {"retention.ms": 7_200_000}


# ---- ids


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 0),
        ({"broker.id": "-1"}, 0),
        ({"broker.id": "7"}, 7),
        ({"node.id": "7"}, 7),
        ({"node.id": "7", "broker.id": "7"}, 7),
        ({"node.id": "7", "broker.id": "-1"}, 7),
    ],
)
def test_broker_ids(given: dict[str, str], expected: int) -> None:
    assert BrokerConfig.from_properties(given).node_id == expected


def test_node_id_and_broker_id_must_be_equal() -> None:
    assert error_of(node_id="1", broker_id="2") == "node.id=1 and broker.id=2 must be equal, or only one of them set"
    assert error_of(node_id="-1").startswith("Invalid value -1 for configuration node.id")


def test_takes_a_missing_id_from_meta_properties(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    second.mkdir()
    given = {"log.dirs": f"{first},{second}"}
    assert BrokerConfig.load(given).node_id == 0
    MetaProperties("cluster", 5).write(second, FileSystem())
    assert BrokerConfig.load(given).node_id == 5
    assert BrokerConfig.load({**given, "broker.id": "-1"}).node_id == 5
    assert BrokerConfig.load({**given, "node.id": "3"}).node_id == 3, "which the directory will refuse"


# ---- unknown and unused keys


def test_unknown_key_suggests_the_likely_one() -> None:
    assert error_of(num_partition="3") == "unknown configuration key 'num.partition', did you mean 'num.partitions'?"
    assert "did you mean 'offsets.topic.num.partitions'" in error_of(offsets_topic_num_partition="3")
    assert error_of(qwertz="1") == "unknown configuration key 'qwertz'"
    with pytest.raises(ConfigError, match="A config key must be a str, but it is 5"):
        BrokerConfig.from_properties({5: "1"})  # type: ignore[dict-item]


def test_refuses_topic_keys_as_broker_keys() -> None:
    assert error_of(retention_ms="5").startswith(
        "unknown configuration key 'retention.ms', did you mean 'log.retention"
    )


def test_refuses_keys_that_users_rely_on() -> None:
    message = error_of(create_topic_policy_class_name="example.Policy")
    assert message == "create.topic.policy.class.name cannot be set: Java policies are not supported"
    BrokerConfig.from_properties({"create.topic.policy.class.name": "", "remote.log.storage.system.enable": "false"})
    assert "tiered" in error_of(remote_log_storage_system_enable="true")


def test_a_listener_has_configs_of_its_own() -> None:
    config = BrokerConfig.from_properties(
        {
            "listeners": "A://:1,B://:2",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            "ssl.keystore.location": "x",
            "listener.name.b.ssl.keystore.location": "y",
            "inter.broker.listener.name": "A",
        }
    )
    locations = {name: view.values["ssl.keystore.location"] for name, view in config.listener_security.items()}
    assert locations == {"A": "x", "B": "y"}
    assert config.properties["listener.name.b.ssl.keystore.location"] == "y"
    assert not config.notes


def test_refuses_wrong_configs_of_a_listener() -> None:
    assert error_of(listener_name_external_ssl_client_auth="none") == (
        "listener.name.external.ssl.client.auth: there is no listener external: expected one of plaintext"
    )
    assert error_of(listener_name_plaintext_ssl_key_store="x").startswith(
        "listener.name.plaintext.ssl.key.store: unknown configuration key 'ssl.key.store', did you mean 'ssl.key"
    )
    assert error_of(listener_name_plaintext_ssl_client_auth="maybe") == (
        "Invalid value maybe for configuration listener.name.plaintext.ssl.client.auth: "
        "String must be one of: required, requested, none"
    )


def test_java_classes_of_tls_cannot_be_set() -> None:
    assert error_of(ssl_provider="BC") == "ssl.provider cannot be set: OpenSSL is the only provider of TLS"
    assert "listener.name.plaintext.ssl.engine.factory.class cannot be set: Java classes" in error_of(
        listener_name_plaintext_ssl_engine_factory_class="a.B"
    )
    BrokerConfig.from_properties({"ssl.provider": "", "ssl.trustmanager.algorithm": "PKIX"})


def test_passwords_are_not_in_error_messages() -> None:
    message = error_of(**{"listener.name.plaintext.ssl.key.password": 5})
    assert message == (
        "Invalid value [hidden] for configuration listener.name.plaintext.ssl.key.password: "
        "Expected value to be a string"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num.partitions", "0"),
        ("num.partitions", "many"),
        ("auto.create.topics.enable", "yes"),
        ("socket.request.max.bytes", "1e6"),
        ("fetch.max.bytes", "1"),
        ("max.connections", "0"),
        ("process.roles", "broker,cook"),
        ("log.segment.bytes", "-1"),
        ("min.insync.replicas", "0"),
    ],
)
def test_error_names_the_invalid_value(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"^Invalid value .* for configuration {key}: ") as caught:
        BrokerConfig.from_properties({key: value})
    assert "\n" not in str(caught.value)


# ---- listeners


def test_several_listeners() -> None:
    config = BrokerConfig.from_properties(
        {
            "listeners": "INSIDE://127.0.0.1:0, OUTSIDE://[::1]:9094",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "inside",
            "advertised.listeners": "OUTSIDE://example.com:443",
        }
    )
    assert config.listeners == (Listener("INSIDE", "127.0.0.1", 0), Listener("OUTSIDE", "::1", 9094))
    assert config.advertised_listeners == (Listener("INSIDE", "127.0.0.1", 0), Listener("OUTSIDE", "example.com", 443))
    assert config.inter_broker_listener_name == "INSIDE"


def test_bad_listeners() -> None:
    assert "each listener must have a different name, PLAINTEXT is used twice" in error_of(
        listeners="PLAINTEXT://:1,PLAINTEXT://:2"
    )
    two = {"listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT"}
    assert "A://h:1 and B://H:1 have the same" in error_of(listeners="A://h:1,B://H:1", **two)
    assert "must have at least one listener for clients" in error_of(listeners="")
    assert "must have at least one listener for clients" in error_of(listeners="C://:1", controller_listener_names="C")
    assert error_of(listeners="EXTERNAL://:9092") == (
        "No security protocol defined for listener EXTERNAL: add EXTERNAL:PLAINTEXT to listener.security.protocol.map"
    )
    assert "must be the protocol of a listener: SSL" in error_of(listeners="SSL://:9093")


def test_accepts_port_0_twice() -> None:
    given = {"listeners": "A://h:0,B://h:0", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    assert len(BrokerConfig.from_properties(given).listeners) == 2


def test_bad_advertised_listeners() -> None:
    assert "advertised.listeners must be a subset of the listeners PLAINTEXT, but it has X" in error_of(
        advertised_listeners="X://a:1"
    )
    for host in ("", "0.0.0.0", "[::]"):
        assert "cannot use the nonroutable address" in error_of(advertised_listeners=f"PLAINTEXT://{host}:9092")


def test_inter_broker_listener() -> None:
    assert "inter.broker.listener.name=X must be a listener name defined in listeners: PLAINTEXT" in error_of(
        inter_broker_listener_name="X"
    )
    assert "Only one of inter.broker.listener.name and security.inter.broker.protocol" in error_of(
        inter_broker_listener_name="PLAINTEXT", security_inter_broker_protocol="PLAINTEXT"
    )
    assert "must be the protocol of a listener" in error_of(security_inter_broker_protocol="SSL")


# ---- combinations


def test_process_roles() -> None:
    assert error_of(process_roles="controller").startswith("process.roles must include broker: ")
    BrokerConfig.from_properties({"process.roles": "broker"})


def test_log_dirs() -> None:
    assert error_of(log_dirs="") == "log.dirs must name at least one directory"
    assert error_of(log_dirs="a,b,./a") == "log.dirs has a duplicate directory: a and ./a"
    assert BrokerConfig.from_properties({"log.dir": "a"}).log_dirs == ("a",)
    assert BrokerConfig.from_properties({"log.dir": "a", "log.dirs": "b,c"}).log_dirs == ("b", "c")


def test_connection_limits_per_ip() -> None:
    limits = BrokerConfig.from_properties(
        {"max.connections.per.ip": "5", "max.connections.per.ip.overrides": "127.0.0.1:100, ::1:7,[::2]:8"}
    ).limits
    assert [limits.per_ip(host) for host in ("127.0.0.1", "::1", "::2", "10.0.0.1")] == [100, 7, 8, 5]
    assert "can be set to zero only if" in error_of(max_connections_per_ip="0")
    BrokerConfig.from_properties({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:1"})
    for bad in ("127.0.0.1", "127.0.0.1:", ":5", "127.0.0.1:-1", "127.0.0.1:many"):
        assert "expected host:count" in error_of(max_connections_per_ip_overrides=bad)
    assert "cannot resolve 'no host'" in error_of(max_connections_per_ip_overrides="no host:1")


def test_resolves_host_names_in_ip_limits() -> None:
    limits = BrokerConfig.from_properties({"max.connections.per.ip.overrides": "localhost:3"}).limits
    assert 3 in (limits.per_ip("127.0.0.1"), limits.per_ip("::1"))


def test_memory_of_requests_fits_the_largest_request() -> None:
    default = BrokerConfig.from_properties({}).limits
    assert default.queued_max_bytes == 268_435_456
    large = BrokerConfig.from_properties({"socket.request.max.bytes": "1000000000"}).limits
    assert large.queued_max_bytes == 1_000_000_000
    assert BrokerConfig.from_properties({"queued.max.request.bytes": "-1"}).limits.queued_max_bytes == -1
    assert error_of(queued_max_request_bytes="1000000") == (
        "queued.max.request.bytes=1000000 must be larger than or equal to socket.request.max.bytes=104857600, or -1"
    )


def test_min_compaction_lag_must_not_exceed_max() -> None:
    assert "min.compaction.lag.ms (10) > max.compaction.lag.ms (5)" in error_of(
        log_cleaner_min_compaction_lag_ms="10", log_cleaner_max_compaction_lag_ms="5"
    )


def test_notes_odd_combinations() -> None:
    (note,) = BrokerConfig.from_properties({"min.insync.replicas": "2"}).notes
    assert "min.insync.replicas=2 is greater than default.replication.factor=1" in note
    (note,) = BrokerConfig.from_properties({"socket.request.max.bytes": "1000"}).notes
    assert "producers cannot send batches of that size" in note
    assert not BrokerConfig.from_properties({"default.replication.factor": "3", "min.insync.replicas": "2"}).notes


ZOOKEEPER = {"zookeeper.connect": "a:1/x"}


def test_zookeeper() -> None:
    assert BrokerConfig.from_properties().zookeeper is None
    assert BrokerConfig.from_properties().node_id == 0
    config = BrokerConfig.from_properties({**ZOOKEEPER, "broker.id": 7})
    assert config.zookeeper is not None
    assert (config.zookeeper.connect, config.node_id, config.has_node_id) == ("a:1/x", 7, True)


def test_generated_node_id(tmp_path: Path) -> None:
    properties = {**ZOOKEEPER, "log.dirs": str(tmp_path)}
    assert not BrokerConfig.load(properties).has_node_id
    MetaProperties("cluster", 1003).write(tmp_path, FileSystem())
    assert BrokerConfig.load(properties).node_id == 1003
    with pytest.raises(ConfigError, match=r"broker.id must be set, because broker.id.generation.enable=false"):
        BrokerConfig.from_properties({**ZOOKEEPER, "broker.id.generation.enable": "false"})
    with pytest.raises(ConfigError, match=r"broker.id=1001 must not be greater than reserved.broker.max.id=1000"):
        BrokerConfig.from_properties({**ZOOKEEPER, "broker.id": "1001"})
    config = BrokerConfig.from_properties({**ZOOKEEPER, "broker.id": 1001, "broker.id.generation.enable": False})
    assert config.node_id == 1001


def test_revoked_certificates_are_not_checked() -> None:
    BrokerConfig.from_properties({**ZOOKEEPER, "zookeeper.ssl.crl.enable": "false"})
    with pytest.raises(ConfigError, match=r"zookeeper.ssl.crl.enable cannot be set"):
        BrokerConfig.from_properties({**ZOOKEEPER, "zookeeper.ssl.crl.enable": "true"})
