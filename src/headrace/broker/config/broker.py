"""The config of a broker at its start: Kafka's broker keys, their checks, and `BrokerConfig` built from them.

    OWN_KEYS       the keys of the broker itself and of its coordinators
    TOPIC_KEYS     the keys of topics: for the log and for replication
    BROKER_KEYS    every supported broker key: OWN_KEYS, the keys of the log manager, and the defaults of topic keys
                   (`log.retention.hours` is the default of `retention.ms`)

The module `kafka_only` lists Kafka's keys that have no effect or are refused.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from headrace.broker.config.authorizer import AUTHORIZER_KEYS, AuthorizerConfig
from headrace.broker.config.control import CONTROL_KEYS, ControlConfig
from headrace.broker.config.coordinators import COORDINATOR_KEYS, CoordinatorConfig
from headrace.broker.config.delegation_tokens import TOKEN_KEYS, TokenConfig
from headrace.broker.config.kafka_only import NO_EFFECT, REFUSED
from headrace.broker.config.listener_security import (
    PREFIX,
    SECURITY_KEYS,
    ListenerSecurity,
    check_prefixed,
    security_of,
    values_by_listener,
)
from headrace.broker.config.listeners import (
    check_addresses,
    check_advertised,
    parse_listeners,
    parse_protocol_map,
    with_defaults,
    with_protocols,
)
from headrace.broker.config.quotas import QUOTA_KEYS, QuotaConfig
from headrace.broker.config.replication import REPLICATION_KEYS, FetcherConfig
from headrace.broker.config.sasl import SASL_KEYS, SaslConfig
from headrace.cluster.leader_balance import LEADER_BALANCE_KEYS, LeaderBalanceConfig
from headrace.cluster.zookeeper.config import ZOOKEEPER_KEYS, ZooKeeperConfig
from headrace.common.config import INT_MAX, ConfigKey, ConfigTable, ConfigType, Synonym, unknown_key
from headrace.common.errors import ConfigError
from headrace.coordinator.transaction.config import TRANSACTION_KEYS, TransactionConfig
from headrace.net.limits import Limits
from headrace.net.listeners import Listener
from headrace.net.receive_memory import UNLIMITED
from headrace.security.sasl import MECHANISMS
from headrace.security.tls_keys import UNSUPPORTED, check_unsupported
from headrace.storage.checkpoints import MetaProperties
from headrace.storage.config import LOG_KEYS, MANAGER_KEYS, LogConfig, ManagerConfig
from headrace.storage.files import FileSystem

_THROTTLED_REPLICA = re.compile(r"\d+:\d+")


def _check_throttled_replicas(replicas: tuple[str, ...]) -> str | None:
    if replicas == ("*",) or all(_THROTTLED_REPLICA.fullmatch(replica) for replica in replicas):
        return None
    return (
        "It must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


_REPLICATION_KEYS = [
    ConfigKey(
        "min.insync.replicas",
        ConfigType.INT,
        1,
        "The minimum number of in-sync replicas for a write with `acks=all`.",
        low=1,
        synonyms=(Synonym("min.insync.replicas"),),
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether an out-of-sync replica may become leader if no other replica is alive. Records may be lost.",
        synonyms=(Synonym("unclean.leader.election.enable"),),
    ),
    ConfigKey(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        "Replicas whose replication is throttled at the follower: `partition:broker`, or `*`.",
        check=_check_throttled_replicas,
    ),
    ConfigKey(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        "Replicas whose replication is throttled at the leader: `partition:broker`, or `*`.",
        check=_check_throttled_replicas,
    ),
]

TOPIC_KEYS = ConfigTable([*LOG_KEYS.keys.values(), *_REPLICATION_KEYS])

OWN_KEYS = ConfigTable(
    [
        ConfigKey(
            "node.id",
            ConfigType.INT,
            None,
            "The unique id of this broker. If it is not set, `broker.id` is used.",
            low=0,
            dynamic=False,
        ),
        ConfigKey(
            "broker.id",
            ConfigType.INT,
            -1,
            "The older name of `node.id`. -1 uses the id in `meta.properties`; a new broker generates an id if it has "
            "a ZooKeeper, otherwise its id is 0.",
            low=-1,
            dynamic=False,
        ),
        ConfigKey(
            "broker.id.generation.enable",
            ConfigType.BOOLEAN,
            True,
            "Whether a new broker of a ZooKeeper cluster generates its id, if none is set.",
            dynamic=False,
        ),
        ConfigKey(
            "reserved.broker.max.id",
            ConfigType.INT,
            1000,
            "The highest id that can be set in a ZooKeeper cluster. Generated ids are greater.",
            low=0,
            dynamic=False,
        ),
        ConfigKey(
            "process.roles",
            ConfigType.LIST,
            (),
            "The roles of this process in Kafka's KRaft mode. A broker includes its controller, so `broker` is "
            "required and `controller` is optional.",
            choices=("broker", "controller"),
            dynamic=False,
        ),
        ConfigKey(
            "broker.rack",
            ConfigType.STRING,
            None,
            "The rack of this broker, for the placement of replicas.",
            dynamic=False,
        ),
        ConfigKey(
            "listeners",
            ConfigType.LIST,
            ("PLAINTEXT://:9092",),
            "The addresses on which the broker listens: `NAME://host:port`. An empty host means all addresses, port 0 "
            "any free port. Listeners in `controller.listener.names` are ignored. (Dynamic in Kafka.)",
            dynamic=False,
        ),
        ConfigKey(
            "advertised.listeners",
            ConfigType.LIST,
            (),
            "The addresses that clients connect to, by listener. The default is the listener's own address, or the "
            "host name if it listens on all addresses.",
            dynamic=False,
        ),
        ConfigKey(
            "listener.security.protocol.map",
            ConfigType.STRING,
            "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
            "The security protocol of each listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. (Dynamic in Kafka.)",
            dynamic=False,
        ),
        ConfigKey(
            "inter.broker.listener.name",
            ConfigType.STRING,
            None,
            "The listener for communication between brokers. The default is the first listener with the protocol "
            "`security.inter.broker.protocol`.",
            dynamic=False,
        ),
        ConfigKey(
            "security.inter.broker.protocol",
            ConfigType.STRING,
            "PLAINTEXT",
            "The security protocol between brokers.",
            choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
            dynamic=False,
        ),
        ConfigKey(
            "socket.request.max.bytes",
            ConfigType.INT,
            104_857_600,
            "The maximum size of a request. A client that sends a larger one is disconnected.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "queued.max.request.bytes",
            ConfigType.LONG,
            268_435_456,
            "The memory of all requests that are being received, in bytes. Connections whose next request does not fit "
            "are not read until there is memory; then requests that stopped arriving are dropped. Requests of up to "
            "64 KB always fit. At least `socket.request.max.bytes`; -1 is unlimited. (Kafka: -1.)",
            low=-1,
            dynamic=False,
        ),
        ConfigKey(
            "socket.send.buffer.bytes",
            ConfigType.INT,
            204_800,
            "The SO_SNDBUF of connections; -1 uses the system default, which grows with the traffic. (Kafka: 102400.)",
            low=-1,
            dynamic=False,
        ),
        ConfigKey(
            "socket.receive.buffer.bytes",
            ConfigType.INT,
            -1,
            "The SO_RCVBUF of connections; -1 uses the system default, which grows with the traffic. (Kafka: 102400.)",
            low=-1,
            dynamic=False,
        ),
        ConfigKey(
            "socket.listen.backlog.size",
            ConfigType.INT,
            4096,
            "The maximum number of connections that wait to be accepted. Linux limits it to `net.core.somaxconn`. "
            "(Kafka: 50.)",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "connections.max.idle.ms",
            ConfigType.LONG,
            600_000,
            "Connections without a request for this time are closed; -1 disables it.",
            low=-1,
            dynamic=False,
        ),
        ConfigKey(
            "max.connections.per.ip",
            ConfigType.INT,
            INT_MAX,
            "The maximum number of connections from one IP address.",
            low=0,
        ),
        ConfigKey(
            "max.connections.per.ip.overrides",
            ConfigType.STRING,
            "",
            "Overrides of `max.connections.per.ip` for single hosts: `host:count,host:count`.",
        ),
        ConfigKey(
            "num.partitions", ConfigType.INT, 1, "The default number of partitions of a topic.", low=1, dynamic=False
        ),
        ConfigKey(
            "default.replication.factor",
            ConfigType.INT,
            1,
            "The default replication factor of a topic.",
            low=1,
            high=32_767,
            dynamic=False,
        ),
        ConfigKey(
            "auto.create.topics.enable",
            ConfigType.BOOLEAN,
            True,
            "Whether a topic is created when a client requests its metadata and allows it.",
            dynamic=False,
        ),
        ConfigKey(
            "headrace.auto.create.topics.per.second",
            ConfigType.INT,
            50,
            "How many topics per second Metadata requests may create, on average. Topics beyond this limit get "
            "UNKNOWN_TOPIC_OR_PARTITION, and later requests create them. (Not a Kafka config.)",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "headrace.auto.create.topics.max.in.flight",
            ConfigType.INT,
            100,
            "How many topics Metadata requests may create at once, and in a burst. (Not a Kafka config.)",
            low=1,
            dynamic=False,
        ),
        ConfigKey("delete.topic.enable", ConfigType.BOOLEAN, True, "Whether topics can be deleted.", dynamic=False),
        ConfigKey(
            "fetch.max.bytes",
            ConfigType.INT,
            57_671_680,
            "The maximum number of bytes of a fetch response.",
            low=1024,
            dynamic=False,
        ),
        ConfigKey(
            "max.incremental.fetch.session.cache.slots",
            ConfigType.INT,
            1000,
            "The maximum number of fetch sessions.",
            low=0,
            dynamic=False,
        ),
        ConfigKey(
            "max.request.partition.size.limit",
            ConfigType.INT,
            2000,
            "The maximum number of partitions in a DescribeTopicPartitions response.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "replica.lag.time.max.ms",
            ConfigType.LONG,
            30_000,
            "How long a follower may lag before it is removed from the in-sync replicas.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "replica.high.watermark.checkpoint.interval.ms",
            ConfigType.LONG,
            5_000,
            "How often high watermarks are written to the checkpoint files.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "background.threads",
            ConfigType.INT,
            10,
            "The maximum number of threads for blocking work: flushing, deleting, compacting.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "headrace.request.max.elements",
            ConfigType.INT,
            200_000,
            "The maximum number of array elements in a request: topics, partitions, groups and so on together. A "
            "client that sends more is disconnected. (Not a Kafka config.)",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "headrace.metrics.listener",
            ConfigType.STRING,
            "",
            "`host:port` at which the broker serves metrics for Prometheus (`/metrics`) and health checks (`/healthz`, "
            "`/readyz`), without authentication. Empty: none. Needs `pip install 'headrace[monitoring]'`. (Not a Kafka "
            "config.)",
            dynamic=False,
        ),
        ConfigKey(
            "telemetry.max.bytes",
            ConfigType.INT,
            1_048_576,
            "The largest size of the metrics that a client pushes at once. A broker accepts them if it serves metrics "
            "itself (`headrace.metrics.listener`).",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "headrace.slow.request.ms",
            ConfigType.LONG,
            1_000,
            "Requests on which the broker works longer are logged in the slow-request log. Waiting, for example for a "
            "rebalance, does not count. (Not a Kafka config.)",
            low=0,
            dynamic=False,
        ),
        *SECURITY_KEYS.keys.values(),
        *AUTHORIZER_KEYS.keys.values(),
        *SASL_KEYS.keys.values(),
        *TOKEN_KEYS.keys.values(),
        *CONTROL_KEYS.keys.values(),
        *REPLICATION_KEYS.keys.values(),
        *QUOTA_KEYS.keys.values(),
        *LEADER_BALANCE_KEYS.keys.values(),
        *ZOOKEEPER_KEYS.keys.values(),
        *COORDINATOR_KEYS.keys.values(),
        *TRANSACTION_KEYS.keys.values(),
    ]
)
"""The keys that belong neither to the log manager nor to topics."""


def _broker_keys_of(key: ConfigKey) -> Iterator[ConfigKey]:
    """Yields the broker keys that define a topic key's default. Only the key with the coarsest unit has a default."""
    for position, synonym in enumerate(key.synonyms):
        default = key.default if position == len(key.synonyms) - 1 else None
        scaled = synonym.factor > 1
        yield ConfigKey(
            synonym.name,
            ConfigType.INT if scaled else key.type,
            default // synonym.factor if scaled and default is not None else default,
            f"The default of `{key.name}` for topics{', in a coarser unit' if scaled else ''}. {key.doc}",
            low=None if key.low is None else min(key.low, 1) if scaled else key.low,
            high=None if scaled else key.high,
            also_allowed=key.also_allowed,
            choices=key.choices,
            check=key.check,
            dynamic=not scaled,  # as in Kafka
        )


_LOG_DIR = ConfigKey("log.dir", ConfigType.LIST, (), "Used if `log.dirs` is not set.", dynamic=False)

BROKER_KEYS = ConfigTable(
    [
        *OWN_KEYS.keys.values(),
        _LOG_DIR,
        *MANAGER_KEYS.keys.values(),
        *(broker_key for key in TOPIC_KEYS.keys.values() for broker_key in _broker_keys_of(key)),
    ]
)
"""Every supported broker key."""


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """A broker's config at its start, typed and checked. Create it with `from_properties`."""

    node_id: int
    """-1 if the broker has to generate it."""
    reserved_broker_max_id: int
    broker_rack: str | None
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    """One address for each listener. Port 0 means the bound port."""
    inter_broker_listener_name: str
    listener_security: Mapping[str, ListenerSecurity]
    """The security configs of each listener at the start, by its name. Some are dynamic."""
    sasl: SaslConfig
    delegation_tokens: TokenConfig
    limits: Limits
    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    auto_create_topics_per_second: int
    auto_create_topics_max_in_flight: int
    delete_topic_enable: bool
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    replica_lag_time_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    background_threads: int
    request_max_elements: int
    slow_request_ms: int
    metrics_listener: str
    telemetry_max_bytes: int
    zookeeper: ZooKeeperConfig | None
    """None: the embedded store."""
    zookeeper_session_timeout_ms: int
    authorizer: AuthorizerConfig
    control: ControlConfig
    fetchers: FetcherConfig
    replica_selector_class: str | None
    leader_balance: LeaderBalanceConfig
    coordinators: CoordinatorConfig
    transactions: TransactionConfig
    quotas: QuotaConfig
    manager: ManagerConfig
    properties: Mapping[str, object] = field(repr=False)
    """The properties with a supported key, not parsed; also those of single listeners."""
    notes: tuple[str, ...]
    """Warnings for the log, one line each: keys without effect, combinations that make no sense."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, object] | None = None) -> "BrokerConfig":
        """Parses and checks Kafka's broker keys. Raises ConfigError with a message of one line."""
        properties = properties or {}
        notes = list(_check_unsupported(properties))
        supported = {name: value for name, value in properties.items() if name in BROKER_KEYS.keys}
        prefixed = {name: value for name, value in properties.items() if name.startswith(PREFIX)}
        values = BROKER_KEYS.parse(supported)
        manager = _manager_config(supported)
        log_defaults = LogConfig.from_properties(LOG_KEYS.defaults_from_server(supported))
        if values["process_roles"] and "broker" not in values["process_roles"]:
            raise ConfigError("process.roles must include broker: a controller without a broker is not supported")
        listeners, advertised, inter_broker = _listeners(values, properties, notes)
        control = ControlConfig.from_properties(CONTROL_KEYS.select(supported))
        _check_control_plane_listener(control, listeners, inter_broker)
        _check_lag_time(values)
        limits = _limits(values, {**supported, **prefixed}, inter_broker if len(listeners) > 1 else None)
        zookeeper = ZooKeeperConfig.from_properties(ZOOKEEPER_KEYS.select(supported))
        notes += _odd_combinations(values, limits, log_defaults)
        same_name_values = {field.name: values[field.name] for field in fields(cls) if field.name in _SAME_NAME_FIELDS}
        listener_security = {listener.name: security_of(listener, {**supported, **prefixed}) for listener in listeners}
        return cls(
            **same_name_values,
            node_id=_initial_node_id(values, zookeeper),
            zookeeper=zookeeper,
            broker_rack=values["broker_rack"] or None,
            listeners=listeners,
            advertised_listeners=advertised,
            inter_broker_listener_name=inter_broker,
            listener_security=listener_security,
            sasl=_sasl(values, listener_security, (inter_broker, control.control_plane_listener_name or inter_broker)),
            delegation_tokens=TokenConfig.from_properties(TOKEN_KEYS.select(supported)),
            limits=limits,
            request_max_elements=values["headrace_request_max_elements"],
            slow_request_ms=values["headrace_slow_request_ms"],
            metrics_listener=values["headrace_metrics_listener"],
            telemetry_max_bytes=values["telemetry_max_bytes"],
            auto_create_topics_per_second=values["headrace_auto_create_topics_per_second"],
            auto_create_topics_max_in_flight=values["headrace_auto_create_topics_max_in_flight"],
            authorizer=AuthorizerConfig.from_properties(AUTHORIZER_KEYS.select(supported)),
            control=control,
            fetchers=FetcherConfig.from_properties(REPLICATION_KEYS.select(supported), control.protocol),
            replica_selector_class=values["replica_selector_class"] or None,
            leader_balance=LeaderBalanceConfig.from_properties(LEADER_BALANCE_KEYS.select(supported)),
            coordinators=CoordinatorConfig.from_properties(
                COORDINATOR_KEYS.select(supported), has_other_brokers=bool(properties.get("zookeeper.connect"))
            ),
            transactions=TransactionConfig.from_properties(TRANSACTION_KEYS.select(supported)),
            quotas=QuotaConfig.from_properties(QUOTA_KEYS.select(supported)),
            manager=manager,
            properties={**supported, **prefixed},
            notes=tuple(notes),
        )

    @classmethod
    def load(cls, properties: Mapping[str, object] | None = None, files: FileSystem | None = None) -> "BrokerConfig":
        """Like `from_properties`. If no node id is set, uses the id in `meta.properties` of the log directories."""
        config = cls.from_properties(properties)
        if _node_id(BROKER_KEYS.parse(BROKER_KEYS.select(config.properties))) is not None:
            return config
        for directory in map(Path, config.log_dirs):
            meta = MetaProperties.read(directory, files or FileSystem())
            if meta is not None:
                return replace(config, node_id=meta.node_id)
        return config

    @property
    def has_node_id(self) -> bool:
        """False if the broker has to generate its id."""
        return self.node_id >= 0

    @property
    def log_dirs(self) -> tuple[str, ...]:
        return self.manager.log_dirs


_SAME_NAME_FIELDS = {
    "reserved_broker_max_id",
    "zookeeper_session_timeout_ms",
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
"""Fields with the same name and value as their key."""


def _check_unsupported(properties: Mapping[str, object]) -> Iterator[str]:
    """Yields notes on keys without effect. Raises ConfigError for refused and unknown keys."""
    for name, value in properties.items():
        if not isinstance(name, str):
            raise ConfigError(f"A config key must be a str, but it is {name!r}")
        if name in BROKER_KEYS.keys:
            continue
        if name in REFUSED:
            if str(value).strip().lower() not in ("", "false"):
                raise ConfigError(f"{name} cannot be set: {REFUSED[name]}")
        elif name in NO_EFFECT:
            yield f"{name} has no effect: {NO_EFFECT[name]}"
        elif name in UNSUPPORTED:
            check_unsupported(name, value)
        elif not name.startswith(PREFIX):
            raise unknown_key(name, [*BROKER_KEYS.keys, *NO_EFFECT, *REFUSED])


def _odd_combinations(values: Mapping[str, Any], limits: Limits, log_defaults: LogConfig) -> Iterator[str]:
    """Yields notes on combinations that are valid but probably not intended."""
    factor, in_sync = values["default_replication_factor"], values["min_insync_replicas"]
    if limits.request_max_bytes < log_defaults.max_message_bytes:
        yield (
            f"socket.request.max.bytes={limits.request_max_bytes} is less than "
            f"message.max.bytes={log_defaults.max_message_bytes}: producers cannot send batches of that size"
        )
    if in_sync > factor:
        yield (
            f"min.insync.replicas={in_sync} is greater than default.replication.factor={factor}: topics with the "
            f"default replication factor have too few replicas, and acks=all waits for all of them"
        )


def _node_id(values: Mapping[str, Any]) -> int | None:
    """Returns the value of `node.id` or `broker.id`, or None if neither is set."""
    node_id, broker_id = values["node_id"], values["broker_id"]
    if broker_id < 0:
        return node_id if node_id is None else int(node_id)
    if node_id not in (None, broker_id):
        raise ConfigError(f"node.id={node_id} and broker.id={broker_id} must be equal, or only one of them set")
    return int(broker_id)


def _initial_node_id(values: Mapping[str, Any], zookeeper: ZooKeeperConfig | None) -> int:
    """Returns the configured id, or -1 if it is generated through ZooKeeper."""
    node_id = _node_id(values)
    if zookeeper is None:
        return node_id or 0
    highest = values["reserved_broker_max_id"]
    if not values["broker_id_generation_enable"]:
        if node_id is None:
            raise ConfigError("broker.id must be set, because broker.id.generation.enable=false")
    elif node_id is not None and node_id > highest:
        raise ConfigError(
            f"broker.id={node_id} must not be greater than reserved.broker.max.id={highest}: greater ids are "
            "generated. Set reserved.broker.max.id, or broker.id.generation.enable=false"
        )
    return -1 if node_id is None else node_id


def _manager_config(properties: Mapping[str, object]) -> ManagerConfig:
    manager_properties = MANAGER_KEYS.select(properties)
    if "log.dirs" not in manager_properties and "log.dir" in properties:
        manager_properties["log.dirs"] = properties["log.dir"]
    config = ManagerConfig.from_properties(manager_properties)
    directories: dict[Path, str] = {}
    for directory in config.log_dirs:
        resolved = Path(directory).resolve()
        if resolved in directories:
            raise ConfigError(f"log.dirs has a duplicate directory: {directories[resolved]} and {directory}")
        directories[resolved] = directory
    return config


def _listeners(
    values: Mapping[str, Any], properties: Mapping[str, object], notes: list[str]
) -> tuple[tuple[Listener, ...], tuple[Listener, ...], str]:
    """Returns the listeners, the advertised listeners, and the name of the inter-broker listener."""
    all_listeners = parse_listeners("listeners", values["listeners"])
    check_addresses("listeners", all_listeners)
    controller_names = {
        name.strip().upper() for name in str(properties.get("controller.listener.names", "")).split(",")
    }
    listeners = tuple(listener for listener in all_listeners if listener.name not in controller_names)
    for listener in all_listeners:
        if listener.name in controller_names:
            notes.append(f"Listener {listener} is ignored: {NO_EFFECT['controller.listener.names']}")
    if not listeners:
        raise ConfigError("listeners must have at least one listener for clients")
    listeners = with_protocols(listeners, parse_protocol_map(values["listener_security_protocol_map"]))
    for name, value in properties.items():
        if name.startswith(PREFIX):
            notes += check_prefixed(name, value, [listener.name for listener in all_listeners])
    advertised = tuple(
        listener
        for listener in parse_listeners("advertised.listeners", values["advertised_listeners"])
        if listener.name not in controller_names
    )
    check_advertised(advertised, listeners)
    return (
        listeners,
        with_defaults(advertised, listeners),
        _inter_broker_listener(values, properties, listeners),
    )


def _inter_broker_listener(
    values: Mapping[str, Any],
    properties: Mapping[str, object],
    listeners: Iterable[Listener],
) -> str:
    name = (values["inter_broker_listener_name"] or "").upper()
    names = [listener.name for listener in listeners]
    if name:
        if "security.inter.broker.protocol" in properties:
            raise ConfigError("Only one of inter.broker.listener.name and security.inter.broker.protocol should be set")
        if name not in names:
            raise ConfigError(
                f"inter.broker.listener.name={name} must be a listener name defined in listeners: {', '.join(names)}"
            )
        return name
    protocol = values["security_inter_broker_protocol"]
    for candidate in listeners:
        if candidate.security_protocol == protocol:
            return candidate.name
    raise ConfigError(
        f"security.inter.broker.protocol={protocol} must be the protocol of a listener: {', '.join(names)}"
    )


def _check_control_plane_listener(control: ControlConfig, listeners: Iterable[Listener], inter_broker: str) -> None:
    name = control.control_plane_listener_name
    if name is None:
        return
    names = [listener.name for listener in listeners]
    if name not in names:
        raise ConfigError(
            f"control.plane.listener.name={name} must be a listener name defined in listeners: {', '.join(names)}"
        )
    if name == inter_broker:
        raise ConfigError(
            f"control.plane.listener.name={name} must not be the inter-broker listener: clients and followers use it"
        )


def _sasl(
    values: Mapping[str, Any], listener_security: Mapping[str, ListenerSecurity], login_listeners: tuple[str, ...]
) -> SaslConfig:
    listeners = {
        name: {"": security.values, **{mechanism: security.for_mechanism(mechanism) for mechanism in MECHANISMS}}
        for name, security in listener_security.items()
        if security.uses_sasl
    }
    return SaslConfig.make(values, listeners, login_listeners)


def _check_lag_time(values: Mapping[str, Any]) -> None:
    wait_ms, lag_ms = values["replica_fetch_wait_max_ms"], values["replica_lag_time_max_ms"]
    if wait_ms > lag_ms:
        raise ConfigError(
            f"replica.fetch.wait.max.ms={wait_ms} must not be greater than replica.lag.time.max.ms={lag_ms}: "
            "followers without new records would leave the ISR"
        )


def _limits(values: Mapping[str, Any], properties: Mapping[str, object], protected_listener: str | None) -> Limits:
    overrides = parse_per_ip_overrides(values["max_connections_per_ip_overrides"])
    if values["max_connections_per_ip"] == 0 and not overrides:
        raise ConfigError("max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides is set")
    return Limits(
        request_max_bytes=values["socket_request_max_bytes"],
        queued_max_bytes=_queued_max_bytes(values["queued_max_request_bytes"], values["socket_request_max_bytes"]),
        idle_ms=values["connections_max_idle_ms"],
        max_connections=values["max_connections"],
        listener_max_connections=values_by_listener("max.connections", properties),
        protected_listener=protected_listener,
        max_connections_per_ip=values["max_connections_per_ip"],
        per_ip_overrides=overrides,
        backlog=values["socket_listen_backlog_size"],
        send_buffer_bytes=values["socket_send_buffer_bytes"],
        receive_buffer_bytes=values["socket_receive_buffer_bytes"],
    )


def _queued_max_bytes(queued_max_bytes: int, request_max_bytes: int) -> int:
    """Returns the memory for requests: at least one of the largest size fits."""
    if queued_max_bytes == BROKER_KEYS.keys["queued.max.request.bytes"].default:
        return max(queued_max_bytes, request_max_bytes)
    if 0 < queued_max_bytes < request_max_bytes:
        raise ConfigError(
            f"queued.max.request.bytes={queued_max_bytes} must be larger than or equal to "
            f"socket.request.max.bytes={request_max_bytes}, or -1"
        )
    return queued_max_bytes or UNLIMITED


def parse_per_ip_overrides(text: str) -> dict[str, int]:
    """Parses `host:count,...` to a limit for each IP address. Resolves host names."""
    key = "max.connections.per.ip.overrides"
    overrides: dict[str, int] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        host, colon, count = item.rpartition(":")
        if not colon or not host or not count.strip().isdecimal():
            raise ConfigError(f"{key}: {item!r} is not valid: expected host:count")
        for address in _addresses(key, host.strip().strip("[]")):
            overrides[address] = int(count)
    return overrides


def _addresses(key: str, host: str) -> list[str]:
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass
    try:
        return sorted({str(info[4][0]) for info in socket.getaddrinfo(host, None)})
    except OSError as error:
        raise ConfigError(f"{key}: cannot resolve {host!r}: {error.strerror}") from error
