"""The nodes of the coordination store: their paths, and their JSON as Kafka 3 writes it to ZooKeeper.

/brokers/ids/<id>                            registration of a live broker; ephemeral, its czxid is the broker epoch
/brokers/topics/<topic>                      topic id, and replicas by partition
/brokers/topics/<topic>/partitions/<p>/state leader and ISR; the node's version is the partition epoch
/controller                                  the active controller; ephemeral
/controller_epoch                            the number of controller elections so far
/config/topics/<topic>  /config/brokers/<id> dynamic configs; <default> is the entity of all brokers
/config/users/<user>  /config/clients/<id>   quotas and credentials of users, quotas of client ids and IP addresses;
  /config/users/<user>/clients/<id>          names are encoded, <default> is the entity of all others
  /config/ips/<ip>
/config/changes/config_change_<n>            notification of changed configs
/admin/delete_topics/<topic>                 a topic marked for deletion
/admin/reassign_partitions                   partitions that an older tool moves to other replicas
/admin/preferred_replica_election            partitions whose preferred replica is to become the leader
/isr_change_notification/isr_change_<n>      partitions whose leaders changed the ISR themselves
/log_dir_event_notification/log_dir_event_<n> notification of a failed log directory
/cluster/id  /brokers/seqid  /latest_producer_id_block  /feature

Each node has an `encode_` and a `decode_` function. Unreadable data raises DamagedNode with path and data.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, unquote

from headrace.cluster.commands import RECOVERED, BrokerEndpoint, BrokerInfo
from headrace.common.errors import HeadraceError
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition

BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
BROKER_SEQUENCE = "/brokers/seqid"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "config_change_"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = "isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "log_dir_event_"
CLUSTER_ID = "/cluster/id"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"

DEFAULT_ENTITY = "<default>"
TOPIC_CONFIGS = "topics"
BROKER_CONFIGS = "brokers"
GROUP_CONFIGS = "groups"
CLIENT_METRICS_CONFIGS = "client-metrics"
USER_CONFIGS = "users"
CLIENT_CONFIGS = "clients"
IP_CONFIGS = "ips"

INITIAL_CONTROLLER_EPOCH = 0
_FEATURES_ENABLED = 1

PERSISTENT_PATHS = (
    "/consumers",
    "/brokers",
    BROKER_IDS,
    TOPICS,
    BROKER_SEQUENCE,
    CONFIG,
    CONFIG_CHANGES,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    "/config/groups",
    "/config/client-metrics",
    "/admin",
    DELETE_TOPICS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PRODUCER_ID_BLOCK,
    "/cluster",
)
"""The nodes that every cluster has, parents first."""


_WITH_CREDENTIALS = ("/config/users/", "/config/brokers/")


class DamagedNode(HeadraceError):
    """A node of the store has invalid data."""

    def __init__(self, path: str, data: bytes, problem: str):
        excerpt = repr(data[:200].decode(errors="backslashreplace"))
        if path.startswith(_WITH_CREDENTIALS):
            excerpt = "not shown, because it may contain credentials"
        super().__init__(f"Node {path} of the coordination store is corrupt: {problem}; its data is {excerpt}")
        self.path = path


# ---- paths


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(tp: TopicPartition) -> str:
    return f"{TOPICS}/{tp.topic}/partitions/{tp.partition}"


def state_path(tp: TopicPartition) -> str:
    return f"{TOPICS}/{tp.topic}/partitions/{tp.partition}/state"


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def config_path(kind: str, name: str) -> str:
    return f"{CONFIG}/{kind}/{name}"


# ---- JSON


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class _Fields:
    """Reads the fields of a JSON object and checks their types."""

    def __init__(self, path: str, data: bytes):
        self.path = path
        self.data = data
        try:
            parsed = json.loads(data)
        except ValueError as error:
            raise self.damaged(f"not JSON ({error})") from None
        if not isinstance(parsed, dict):
            raise self.damaged("not a JSON object")
        self.parsed: dict[str, Any] = parsed

    def damaged(self, problem: str) -> DamagedNode:
        return DamagedNode(self.path, self.data, problem)

    def number(self, name: str, default: int | None = None) -> int:
        value = self.parsed.get(name, default)
        # Kafka writes some numbers as strings: timestamps and producer id blocks.
        if isinstance(value, str) and value.removeprefix("-").isdecimal():
            value = int(value)
        if type(value) is not int:
            raise self.damaged(f"{name!r} is not a number")
        return value

    def text(self, name: str) -> str:
        value = self.parsed.get(name)
        if not isinstance(value, str):
            raise self.damaged(f"{name!r} is not a string")
        return value

    def numbers(self, value: object, name: str) -> tuple[int, ...]:
        if not isinstance(value, list) or any(type(item) is not int for item in value):
            raise self.damaged(f"{name!r} is not a list of numbers")
        return tuple(value)

    def mapping(self, name: str, default: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        value = self.parsed.get(name, default)
        if not isinstance(value, dict):
            raise self.damaged(f"{name!r} is not an object")
        return value


# ---- brokers


def encode_broker(broker: BrokerInfo, timestamp_ms: int, jmx_port: int = -1) -> bytes:
    # The fields host and port are for old clients that do not know listeners.
    endpoints = broker.endpoints
    plaintext = next((endpoint for endpoint in endpoints if endpoint.security_protocol == "PLAINTEXT"), None)
    fields: dict[str, object] = {
        "features": {},
        "listener_security_protocol_map": {endpoint.listener: endpoint.security_protocol for endpoint in endpoints},
        "endpoints": [f"{endpoint.listener}://{_bracketed(endpoint.host)}:{endpoint.port}" for endpoint in endpoints],
        "jmx_port": jmx_port,
        "port": plaintext.port if plaintext else -1,
        "host": plaintext.host if plaintext else None,
        "version": 5,
        "timestamp": str(timestamp_ms),
    }
    if broker.rack is not None:
        fields["rack"] = broker.rack
    return _encode(fields)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def decode_broker(broker_id: int, data: bytes, epoch: int) -> BrokerInfo:
    fields = _Fields(broker_path(broker_id), data)
    if fields.number("version") == 1:
        endpoints: tuple[BrokerEndpoint, ...] = (
            BrokerEndpoint("PLAINTEXT", fields.text("host"), fields.number("port")),
        )
    else:
        protocols = fields.mapping("listener_security_protocol_map", {})
        texts = fields.parsed.get("endpoints")
        if not isinstance(texts, list):
            raise fields.damaged("'endpoints' is not a list")
        endpoints = tuple(_parse_endpoint(fields, text, protocols) for text in texts)
    rack = fields.parsed.get("rack")
    if rack is not None and not isinstance(rack, str):
        raise fields.damaged("'rack' is not a string")
    return BrokerInfo(broker_id, endpoints, rack, epoch)


def _parse_endpoint(fields: _Fields, text: object, protocols: Mapping[str, Any]) -> BrokerEndpoint:
    listener, separator, address = text.partition("://") if isinstance(text, str) else ("", "", "")
    host, colon, port = address.rpartition(":")
    if not (listener and separator and colon and port.removeprefix("-").isdecimal()):
        raise fields.damaged(f"{text!r} is not an endpoint")
    return BrokerEndpoint(
        listener, host.removeprefix("[").removesuffix("]"), int(port), protocols.get(listener, listener)
    )


# ---- topics


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The replicas of one partition. The first replica is the preferred leader.

    During a reassignment `adding` and `removing` are subsets of `replicas`.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    def reassign_to(self, target: Sequence[int]) -> "ReplicaAssignment":
        """Returns the assignment during a reassignment to `target`."""
        origin = self.origin
        replicas = tuple(dict.fromkeys((*target, *origin)))
        return ReplicaAssignment(
            replicas,
            adding=tuple(replica for replica in replicas if replica not in origin),
            removing=tuple(replica for replica in replicas if replica not in target),
        )


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """A topic's id and the replicas of its partitions."""

    topic: str
    topic_id: Uuid
    """ZERO_UUID if the topic has no id: it was created with `inter.broker.protocol.version` below 2.8."""
    partitions: Mapping[int, ReplicaAssignment] = field(default_factory=dict)


def encode_topic(assignment: TopicAssignment) -> bytes:
    partitions = sorted(assignment.partitions.items())
    fields: dict[str, object] = {
        "removing_replicas": {
            str(partition): list(replicas.removing) for partition, replicas in partitions if replicas.removing
        },
        "partitions": {str(partition): list(replicas.replicas) for partition, replicas in partitions},
        "topic_id": str(assignment.topic_id),
        "adding_replicas": {
            str(partition): list(replicas.adding) for partition, replicas in partitions if replicas.adding
        },
        "version": 3,
    }
    if assignment.topic_id == ZERO_UUID:
        del fields["topic_id"]
    return _encode(fields)


def decode_topic(topic: str, data: bytes) -> TopicAssignment:
    fields = _Fields(topic_path(topic), data)
    topic_id = ZERO_UUID
    if "topic_id" in fields.parsed:
        try:
            topic_id = Uuid.parse(fields.text("topic_id"))
        except HeadraceError as error:
            raise fields.damaged(str(error)) from None
    adding = fields.mapping("adding_replicas", {})
    removing = fields.mapping("removing_replicas", {})
    partitions: dict[int, ReplicaAssignment] = {}
    for partition, replicas in fields.mapping("partitions").items():
        if not partition.isdecimal():
            raise fields.damaged(f"{partition!r} is not a partition")
        partitions[int(partition)] = ReplicaAssignment(
            fields.numbers(replicas, "partitions"),
            fields.numbers(adding.get(partition, []), "adding_replicas"),
            fields.numbers(removing.get(partition, []), "removing_replicas"),
        )
    return TopicAssignment(topic, topic_id, dict(sorted(partitions.items())))


@dataclass(frozen=True, slots=True)
class Leadership:
    """Leader and ISR of a partition (Kafka's LeaderAndIsr). `partition_epoch` is the version of its node."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int = 0
    leader_recovery_state: int = RECOVERED

    def new_leader(self, leader: int, isr: tuple[int, ...] | None = None) -> "Leadership":
        """Returns a copy with this leader and the next leader epoch, even if the leader stays the same."""
        return replace(self, leader=leader, isr=self.isr if isr is None else isr, leader_epoch=self.leader_epoch + 1)


def encode_leadership(state: Leadership) -> bytes:
    fields = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.leader_recovery_state != RECOVERED:
        fields["leader_recovery_state"] = state.leader_recovery_state
    return _encode(fields)


def decode_leadership(tp: TopicPartition, data: bytes, version: int) -> Leadership:
    fields = _Fields(state_path(tp), data)
    return Leadership(
        leader=fields.number("leader"),
        leader_epoch=fields.number("leader_epoch"),
        isr=fields.numbers(fields.parsed.get("isr"), "isr"),
        controller_epoch=fields.number("controller_epoch"),
        partition_epoch=version,
        leader_recovery_state=fields.number("leader_recovery_state", RECOVERED),
    )


# ---- controller


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    return _encode({"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    return _Fields(CONTROLLER, data).number("brokerid")


def encode_controller_epoch(epoch: int) -> bytes:
    return b"%d" % epoch


def decode_controller_epoch(data: bytes) -> int:
    if not data.isdigit():
        raise DamagedNode(CONTROLLER_EPOCH, data, "not a number")
    return int(data)


# ---- configs


def encode_config(config: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    if not data:
        return {}
    fields = _Fields(path, data)
    config = fields.mapping("config", {})
    for name, value in config.items():
        if not isinstance(value, str):
            raise fields.damaged(f"the value of {name!r} is not a string")
    return dict(config)


def encode_config_change(kind: str, name: str) -> bytes:
    return _encode({"version": 2, "entity_path": f"{kind}/{name}"})


def decode_config_change(path: str, data: bytes) -> tuple[str, str]:
    fields = _Fields(path, data)
    kind, separator, name = fields.text("entity_path").partition("/")
    if not (kind and separator and name):
        raise fields.damaged("'entity_path' is not <kind>/<name>")
    return kind, name


def sanitize(name: str) -> str:
    """Returns a user name encoded for a path, as Kafka does."""
    return name if name == DEFAULT_ENTITY else quote(name, safe="-._").replace("~", "%7E")


def desanitize(name: str) -> str:
    return name if name == DEFAULT_ENTITY else unquote(name)


# ---- notifications, cluster id, producer ids, features


def encode_log_dir_event(broker_id: int) -> bytes:
    return _encode({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(path: str, data: bytes) -> int:
    return _Fields(path, data).number("broker")


def encode_isr_change(partitions: list[TopicPartition]) -> bytes:
    return _encode({"version": 1, "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]})


def decode_partitions(path: str, data: bytes) -> list[TopicPartition]:
    """Returns the partitions of an ISR change notification, or of a requested preferred replica election."""
    fields = _Fields(path, data)
    entries = fields.parsed.get("partitions")
    partitions: list[TopicPartition] = []
    for entry in entries if isinstance(entries, list) else [None]:
        topic, partition = (entry.get("topic"), entry.get("partition")) if isinstance(entry, dict) else (None, None)
        if not isinstance(topic, str) or type(partition) is not int:
            raise fields.damaged("'partitions' is not a list of topics and partitions")
        partitions.append(TopicPartition(topic, partition))
    return partitions


def encode_preferred_election(partitions: list[TopicPartition]) -> bytes:
    return _encode({"version": 1, "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]})


def encode_reassignments(targets: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    return _encode(
        {
            "version": 1,
            "partitions": [
                {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
                for tp, replicas in targets.items()
            ],
        }
    )


def decode_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns the replicas by partition of a reassignment that an older tool has requested."""
    fields = _Fields(REASSIGN_PARTITIONS, data)
    targets: dict[TopicPartition, tuple[int, ...]] = {}
    for tp, entry in zip(decode_partitions(REASSIGN_PARTITIONS, data), fields.parsed["partitions"], strict=True):
        targets[tp] = fields.numbers(entry.get("replicas"), "replicas")
    return targets


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return _Fields(CLUSTER_ID, data).text("id")


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """A block of producer ids that belongs to one broker. `first` and `last` are inclusive."""

    broker_id: int
    first: int
    last: int


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return _encode(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    fields = _Fields(PRODUCER_ID_BLOCK, data)
    return ProducerIdBlock(fields.number("broker"), fields.number("block_start"), fields.number("block_end"))


def encode_feature(levels: Mapping[str, int] | None = None) -> bytes:
    """Returns the node for enabled feature versioning with these finalized features."""
    return _encode({"version": 2, "status": _FEATURES_ENABLED, "features": dict(levels or {})})


def decode_feature(data: bytes) -> dict[str, int]:
    """Returns the levels of the finalized features. Version 1 of the node has a range for each."""
    fields = _Fields(FEATURE, data)
    if fields.number("status") != _FEATURES_ENABLED:
        return {}
    levels: dict[str, int] = {}
    for name, value in fields.mapping("features", {}).items():
        level = value.get("max_version_level") if isinstance(value, dict) else value
        if type(level) is not int:
            raise fields.damaged(f"the level of feature {name!r} is not a number")
        levels[name] = level
    return levels
