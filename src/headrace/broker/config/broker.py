"""What a broker can be told at its start: Kafka's broker keys, their checks, and `BrokerConfig` made of them.

BROKER_KEYS     every key that is honoured: this module's own, the log manager's, and for each topic key the broker
                keys that give it its default (`log.retention.hours` for `retention.ms`)
TOPIC_KEYS      every key that a topic can have: the log's, and those about replication
kafka_keys      the keys of Kafka's that are known and not used
"""

import ipaddress
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from headrace.broker.config.coordinators import COORDINATOR_KEYS, CoordinatorConfig
from headrace.broker.config.kafka_only import NO_EFFECT, REFUSED
from headrace.broker.config.listeners import (
    check_addresses,
    check_advertised,
    check_protocols,
    parse_listeners,
    parse_protocol_map,
    with_defaults,
)
from headrace.common.config import INT_MAX, ConfigKey, ConfigTable, ConfigType, Synonym, unknown_key
from headrace.common.errors import ConfigError
from headrace.coordinator.transaction.config import TRANSACTION_KEYS, TransactionConfig
from headrace.net.limits import Limits
from headrace.net.listeners import Listener
from headrace.storage.checkpoints import MetaProperties
from headrace.storage.config import LOG_KEYS, MANAGER_KEYS, LogConfig, ManagerConfig
from headrace.storage.files import FileSystem

_REPLICATION_KEYS = [
    ConfigKey(
        "min.insync.replicas",
        ConfigType.INT,
        1,
        "How many replicas must be in sync for a write with `acks=all`.",
        low=1,
        synonyms=(Synonym("min.insync.replicas"),),
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether a replica that is not in sync may become leader when no other is left. Records may be lost.",
        synonyms=(Synonym("unclean.leader.election.enable"),),
    ),
    ConfigKey(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        "Replicas whose copying is throttled at the follower: `partition:broker`, or `*`. (No effect yet.)",
    ),
    ConfigKey(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        "Replicas whose copying is throttled at the leader: `partition:broker`, or `*`. (No effect yet.)",
    ),
]

TOPIC_KEYS = ConfigTable([*LOG_KEYS.keys.values(), *_REPLICATION_KEYS])

OWN_KEYS = ConfigTable(
    [
        ConfigKey(
            "node.id",
            ConfigType.INT,
            None,
            "The number of this broker, unlike that of any other. Not set: `broker.id`.",
            low=0,
            dynamic=False,
        ),
        ConfigKey(
            "broker.id",
            ConfigType.INT,
            -1,
            "The older name of `node.id`; -1 for what `meta.properties` says, or else 0.",
            low=-1,
            dynamic=False,
        ),
        ConfigKey(
            "process.roles",
            ConfigType.LIST,
            (),
            "Roles of this process in Kafka's KRaft mode. A broker has its controller with it, so `broker` must be one "
            "of them, and `controller` may be.",
            choices=("broker", "controller"),
            dynamic=False,
        ),
        ConfigKey(
            "broker.rack", ConfigType.STRING, None, "Where this broker stands, for spreading replicas.", dynamic=False
        ),
        ConfigKey(
            "listeners",
            ConfigType.LIST,
            ("PLAINTEXT://:9092",),
            "Where the broker listens: `NAME://host:port`. An empty host means all addresses, port 0 any free port. "
            "Those that `controller.listener.names` names are left out. (Dynamic in Kafka.)",
            dynamic=False,
        ),
        ConfigKey(
            "advertised.listeners",
            ConfigType.LIST,
            (),
            "What clients are told to connect to, by listener. Not given: where the broker listens, or the machine's "
            "name if that is everywhere.",
            dynamic=False,
        ),
        ConfigKey(
            "listener.security.protocol.map",
            ConfigType.STRING,
            "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
            "Which protocol each listener speaks. Only PLAINTEXT is served so far. (Dynamic in Kafka.)",
            dynamic=False,
        ),
        ConfigKey(
            "inter.broker.listener.name",
            ConfigType.STRING,
            None,
            "The listener that brokers use among themselves. Not set: the first that speaks "
            "`security.inter.broker.protocol`.",
            dynamic=False,
        ),
        ConfigKey(
            "security.inter.broker.protocol",
            ConfigType.STRING,
            "PLAINTEXT",
            "The protocol that brokers use among themselves.",
            choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
            dynamic=False,
        ),
        ConfigKey(
            "socket.request.max.bytes",
            ConfigType.INT,
            104_857_600,
            "The largest request; who claims to send a larger one is disconnected.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "socket.send.buffer.bytes",
            ConfigType.INT,
            102_400,
            "SO_SNDBUF of connections; -1 for the system's own, which grows with the traffic.",
            low=-1,
            dynamic=False,
        ),
        ConfigKey(
            "socket.receive.buffer.bytes",
            ConfigType.INT,
            -1,
            "SO_RCVBUF of connections; -1 for the system's own, which grows with the traffic. (Kafka: 102400.)",
            low=-1,
            dynamic=False,
        ),
        ConfigKey(
            "socket.listen.backlog.size",
            ConfigType.INT,
            50,
            "How many connections may wait to be accepted.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "connections.max.idle.ms",
            ConfigType.LONG,
            600_000,
            "After what time without a request a connection is closed; -1 for never.",
            low=-1,
            dynamic=False,
        ),
        ConfigKey("max.connections", ConfigType.INT, INT_MAX, "How many connections there may be.", low=1),
        ConfigKey(
            "max.connections.per.ip", ConfigType.INT, INT_MAX, "How many connections one address may have.", low=0
        ),
        ConfigKey(
            "max.connections.per.ip.overrides",
            ConfigType.STRING,
            "",
            "Other limits for single hosts: `host:count,host:count`.",
        ),
        ConfigKey(
            "num.partitions", ConfigType.INT, 1, "Partitions of a topic that asks for none.", low=1, dynamic=False
        ),
        ConfigKey(
            "default.replication.factor",
            ConfigType.INT,
            1,
            "Replicas of a topic that asks for none.",
            low=1,
            high=32_767,
            dynamic=False,
        ),
        ConfigKey(
            "auto.create.topics.enable",
            ConfigType.BOOLEAN,
            True,
            "Whether a topic is created when a client asks for it and allows that.",
            dynamic=False,
        ),
        ConfigKey("delete.topic.enable", ConfigType.BOOLEAN, True, "Whether topics can be deleted.", dynamic=False),
        ConfigKey(
            "fetch.max.bytes",
            ConfigType.INT,
            57_671_680,
            "The most that one fetch gets, whatever it asks for.",
            low=1024,
            dynamic=False,
        ),
        ConfigKey(
            "max.incremental.fetch.session.cache.slots",
            ConfigType.INT,
            1000,
            "How many fetch sessions are kept.",
            low=0,
            dynamic=False,
        ),
        ConfigKey(
            "max.request.partition.size.limit",
            ConfigType.INT,
            2000,
            "The most partitions that one DescribeTopicPartitions reply has.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "replica.lag.time.max.ms",
            ConfigType.LONG,
            30_000,
            "How long a follower may be behind before it is out of sync.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "replica.high.watermark.checkpoint.interval.ms",
            ConfigType.LONG,
            5_000,
            "How often high watermarks are written down.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "background.threads",
            ConfigType.INT,
            10,
            "The most threads for what blocks: syncing, deleting, compacting.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "headrace.slow.request.ms",
            ConfigType.LONG,
            1_000,
            "A request that takes longer is written to the slow-request log. (Not a key of Kafka's.)",
            low=0,
            dynamic=False,
        ),
        *COORDINATOR_KEYS.keys.values(),
        *TRANSACTION_KEYS.keys.values(),
    ]
)
"""The keys that are neither the log manager's nor a topic's."""


def _broker_keys_of(key: ConfigKey) -> Iterator[ConfigKey]:
    """The broker keys that give a topic key its default. Of several the one in the coarsest unit holds the default."""
    for number, synonym in enumerate(key.synonyms):
        default = key.default if number == len(key.synonyms) - 1 else None
        scaled = synonym.factor > 1
        yield ConfigKey(
            synonym.name,
            ConfigType.INT if scaled else key.type,
            default // synonym.factor if scaled and default is not None else default,
            f"The default of `{key.name}` for topics{', in a coarser unit' if scaled else ''}. {key.doc}",
            low=None if key.low is None else min(key.low, 1) if scaled else key.low,
            high=None if scaled else key.high,
            choices=key.choices,
            check=key.check,
            dynamic=not scaled,  # as in Kafka
        )


_LOG_DIR = ConfigKey("log.dir", ConfigType.LIST, (), "Used where `log.dirs` is not set.", dynamic=False)

BROKER_KEYS = ConfigTable(
    [
        *OWN_KEYS.keys.values(),
        _LOG_DIR,
        *MANAGER_KEYS.keys.values(),
        *(made for key in TOPIC_KEYS.keys.values() for made in _broker_keys_of(key)),
    ]
)
"""Every broker key that is honoured."""

_LISTENER_PREFIX = "listener.name."


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """A broker's configuration at its start, typed and checked. Make one with `from_properties`."""

    node_id: int
    broker_rack: str | None
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    """One for each listener; port 0 stands for the port that the listener gets."""
    inter_broker_listener_name: str
    limits: Limits
    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    replica_lag_time_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    background_threads: int
    slow_request_ms: int
    coordinators: CoordinatorConfig
    transactions: TransactionConfig
    manager: ManagerConfig
    properties: Mapping[str, object]
    """The keys that were given and are honoured, as they were written."""
    notes: tuple[str, ...]
    """What the user should know: keys without effect, odd combinations. One line each, for the log."""

    @classmethod
    def from_properties(cls, given: Mapping[str, object] | None = None) -> "BrokerConfig":
        """Kafka's broker keys; what is not given has its default. What cannot be used is a ConfigError of one line."""
        given = given or {}
        notes = list(_look_at_unused(given))
        properties = {name: value for name, value in given.items() if name in BROKER_KEYS.keys}
        values = BROKER_KEYS.parse(properties)
        manager = _manager_config(properties)
        log_defaults = LogConfig.from_properties(LOG_KEYS.defaults_from_server(properties))
        if values["process_roles"] and "broker" not in values["process_roles"]:
            raise ConfigError("process.roles=controller: a broker has its controller with it; there are no others here")
        listeners, advertised, inter_broker = _listeners(values, given, notes)
        limits = _limits(values)
        notes += _odd_combinations(values, limits, log_defaults)
        plain = {field.name: values[field.name] for field in fields(cls) if field.name in _PLAIN}
        return cls(
            **plain,
            node_id=_node_id(values) or 0,
            broker_rack=values["broker_rack"] or None,
            listeners=listeners,
            advertised_listeners=advertised,
            inter_broker_listener_name=inter_broker,
            limits=limits,
            slow_request_ms=values["headrace_slow_request_ms"],
            coordinators=CoordinatorConfig.from_properties(COORDINATOR_KEYS.select(properties)),
            transactions=TransactionConfig.from_properties(TRANSACTION_KEYS.select(properties)),
            manager=manager,
            properties=properties,
            notes=tuple(notes),
        )

    @classmethod
    def load(cls, given: Mapping[str, object] | None = None, files: FileSystem | None = None) -> "BrokerConfig":
        """As `from_properties`; if no id is given, it is the one that the data directories belong to."""
        config = cls.from_properties(given)
        if _node_id(BROKER_KEYS.parse(config.properties)) is not None:
            return config
        for directory in map(Path, config.log_dirs):
            meta = MetaProperties.read(directory, files or FileSystem())
            if meta is not None:
                return replace(config, node_id=meta.node_id)
        return config

    @property
    def log_dirs(self) -> tuple[str, ...]:
        return self.manager.log_dirs


_PLAIN = {
    "num_partitions",
    "default_replication_factor",
    "auto_create_topics_enable",
    "delete_topic_enable",
    "fetch_max_bytes",
    "max_incremental_fetch_session_cache_slots",
    "max_request_partition_size_limit",
    "replica_lag_time_max_ms",
    "replica_high_watermark_checkpoint_interval_ms",
    "background_threads",
}
"""Fields that are a key's value as it is."""


def _look_at_unused(given: Mapping[str, object]) -> Iterator[str]:
    """Notes on keys that have no effect; an error for what is refused or unknown."""
    for name, value in given.items():
        if not isinstance(name, str):
            raise ConfigError(f"a configuration key is a str, not {name!r}")
        if name in BROKER_KEYS.keys:
            continue
        if name in REFUSED:
            if str(value).strip().lower() not in ("", "false"):
                raise ConfigError(f"{name} cannot be set: {REFUSED[name]}")
        elif name in NO_EFFECT:
            yield f"{name} has no effect: {NO_EFFECT[name]}"
        elif name.startswith(_LISTENER_PREFIX):
            yield f"{name} has no effect: settings of single listeners are for TLS and SASL, which are not served yet"
        else:
            raise unknown_key(name, [*BROKER_KEYS.keys, *NO_EFFECT, *REFUSED])


def _odd_combinations(values: Mapping[str, Any], limits: Limits, log_defaults: LogConfig) -> Iterator[str]:
    """Notes on what is allowed and hardly meant."""
    factor, in_sync = values["default_replication_factor"], values["min_insync_replicas"]
    if limits.request_max_bytes < log_defaults.max_message_bytes:
        yield (
            f"socket.request.max.bytes={limits.request_max_bytes} is less than "
            f"message.max.bytes={log_defaults.max_message_bytes}: batches of that size cannot arrive"
        )
    if in_sync > factor:
        yield (
            f"min.insync.replicas={in_sync} is more than default.replication.factor={factor}: topics that ask for no "
            f"number of replicas refuse acks=all"
        )
    if factor > 1:
        yield (
            f"default.replication.factor={factor} is more than there are brokers: topics that ask for no number of "
            f"replicas cannot be created"
        )


def _node_id(values: Mapping[str, Any]) -> int | None:
    """The id that was given, under either name."""
    node_id, broker_id = values["node_id"], values["broker_id"]
    if broker_id < 0:
        return node_id if node_id is None else int(node_id)
    if node_id not in (None, broker_id):
        raise ConfigError(f"node.id={node_id} and broker.id={broker_id} name the same thing and must be equal")
    return int(broker_id)


def _manager_config(properties: Mapping[str, object]) -> ManagerConfig:
    chosen = MANAGER_KEYS.select(properties)
    if "log.dirs" not in chosen and "log.dir" in properties:
        chosen["log.dirs"] = properties["log.dir"]
    config = ManagerConfig.from_properties(chosen)
    places: dict[Path, str] = {}
    for directory in config.log_dirs:
        place = Path(directory).resolve()
        if place in places:
            raise ConfigError(f"log.dirs names one directory twice: {places[place]} and {directory}")
        places[place] = directory
    return config


def _listeners(
    values: Mapping[str, Any], given: Mapping[str, object], notes: list[str]
) -> tuple[tuple[Listener, ...], tuple[Listener, ...], str]:
    """Listeners, advertised listeners, and the name of the one between brokers."""
    everything = parse_listeners("listeners", values["listeners"])
    check_addresses("listeners", everything)
    controllers = {name.strip().upper() for name in str(given.get("controller.listener.names", "")).split(",")}
    listeners = tuple(listener for listener in everything if listener.name not in controllers)
    for listener in everything:
        if listener.name in controllers:
            notes.append(f"listener {listener} is not opened: {NO_EFFECT['controller.listener.names']}")
    if not listeners:
        raise ConfigError("listeners names no listener for clients")
    protocols = parse_protocol_map(values["listener_security_protocol_map"])
    check_protocols(listeners, protocols)
    advertised = tuple(
        listener
        for listener in parse_listeners("advertised.listeners", values["advertised_listeners"])
        if listener.name not in controllers
    )
    check_advertised(advertised, listeners)
    return listeners, with_defaults(advertised, listeners), _inter_broker_listener(values, given, listeners, protocols)


def _inter_broker_listener(
    values: Mapping[str, Any],
    given: Mapping[str, object],
    listeners: Iterable[Listener],
    protocols: Mapping[str, str],
) -> str:
    name = (values["inter_broker_listener_name"] or "").upper()
    names = [listener.name for listener in listeners]
    if name:
        if "security.inter.broker.protocol" in given:
            raise ConfigError("only one of inter.broker.listener.name and security.inter.broker.protocol can be set")
        if name not in names:
            raise ConfigError(f"inter.broker.listener.name={name} is none of the listeners: {', '.join(names)}")
        return name
    protocol = values["security_inter_broker_protocol"]
    for candidate in names:
        if protocols[candidate] == protocol:
            return candidate
    raise ConfigError(
        f"security.inter.broker.protocol={protocol} is spoken by none of the listeners: {', '.join(names)}"
    )


def _limits(values: Mapping[str, Any]) -> Limits:
    overrides = parse_per_ip_overrides(values["max_connections_per_ip_overrides"])
    if values["max_connections_per_ip"] == 0 and not overrides:
        raise ConfigError("max.connections.per.ip=0 lets nobody in, unless max.connections.per.ip.overrides is set")
    return Limits(
        request_max_bytes=values["socket_request_max_bytes"],
        idle_ms=values["connections_max_idle_ms"],
        max_connections=values["max_connections"],
        max_connections_per_ip=values["max_connections_per_ip"],
        per_ip_overrides=overrides,
        backlog=values["socket_listen_backlog_size"],
        send_buffer_bytes=values["socket_send_buffer_bytes"],
        receive_buffer_bytes=values["socket_receive_buffer_bytes"],
    )


def parse_per_ip_overrides(text: str) -> dict[str, int]:
    """`host:count,...` by address; a name is looked up."""
    key = "max.connections.per.ip.overrides"
    found: dict[str, int] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        host, colon, count = item.rpartition(":")
        if not colon or not host or not count.strip().isdecimal():
            raise ConfigError(f"{key}: {item!r} is not valid: expected host:count")
        for address in _addresses(key, host.strip().strip("[]")):
            found[address] = int(count)
    return found


def _addresses(key: str, host: str) -> list[str]:
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass
    try:
        return sorted({str(info[4][0]) for info in socket.getaddrinfo(host, None)})
    except OSError as error:
        raise ConfigError(f"{key}: cannot resolve {host!r}: {error.strerror}") from error
