"""The effective configs of topics and of this broker, and the listeners for their changes.

The first of these places that has a config key wins:

    topic            set on the topic itself
    this broker      set dynamically for this broker       (`kafka-configs --entity-type brokers --entity-name 0`)
    all brokers      set dynamically for the whole cluster (`kafka-configs --entity-type brokers --entity-default`)
    server           set in the static configuration       (`server.properties`)
    default          of the table

Owned by the broker's loop. The coordination store has the dynamic configs, and this module has the broker's copy.
`set_topic_overrides` and `set_broker_overrides` update it at the start and when the store notifies the broker of a
change. Another version may have stored values that are invalid here. They are logged and ignored.
"""

import difflib
import logging
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from headrace.broker.config.broker import BROKER_KEYS, TOPIC_KEYS, parse_per_ip_overrides
from headrace.broker.config.kafka_only import DYNAMIC_WITHOUT_EFFECT, NO_EFFECT
from headrace.broker.config.listener_security import (
    DYNAMIC_TLS_KEYS,
    ListenerSecurity,
    check_prefixed,
    prefixed_key,
    security_of,
    split_prefixed,
    values_by_listener,
)
from headrace.broker.config.listeners import parse_listeners
from headrace.broker.config.quotas import CONNECTION_KEYS
from headrace.cluster.znodes import DEFAULT_ENTITY
from headrace.common.config import ConfigTable, ConfigType
from headrace.common.errors import ConfigError, InvalidConfigurationError, InvalidRequestError
from headrace.net.limits import Limits
from headrace.net.listeners import Listener
from headrace.storage.config import LOG_KEYS, MANAGER_KEYS, LogConfig, ManagerConfig

_logger = logging.getLogger(__name__)


class ConfigSource(IntEnum):
    """The source of a config value, by the protocol's numbers."""

    TOPIC = 1
    THIS_BROKER = 2
    ALL_BROKERS = 3
    SERVER = 4
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The effective configs of a topic, typed and checked."""

    log: LogConfig
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    leader_throttled_replicas: tuple[str, ...] = ()
    follower_throttled_replicas: tuple[str, ...] = ()

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> "TopicConfig":
        """Parses and checks TOPIC_KEYS."""
        values = TOPIC_KEYS.parse(properties)
        return cls(
            LogConfig.from_properties(LOG_KEYS.select(properties)),
            values["min_insync_replicas"],
            values["unclean_leader_election_enable"],
            tuple(values["leader_replication_throttled_replicas"]),
            tuple(values["follower_replication_throttled_replicas"]),
        )


class DynamicConfig:
    """The effective configs of all topics and of this broker."""

    def __init__(self, server: Mapping[str, object], node_id: int = 0):
        """`server` has the static configs: keys of BROKER_KEYS that have been checked."""
        self.node_id = node_id
        self.on_topics_changed: list[Callable[[Mapping[str, TopicConfig]], object]] = []
        """Called with the new configs of topics whose configs may have changed."""
        self.on_broker_changed: list[Callable[[Mapping[str, Any]], object]] = []
        """Called with the new values of broker keys that changed (see `limits` and `manager`)."""
        self.check_security: Callable[[Callable[[Listener], ListenerSecurity]], None] | None = None
        """Raises ConfigError if listeners cannot get changed certificates. Called with the settings by listener."""
        self.stores_secrets = True
        """False if others may read the store. Then it must not have passwords and private keys."""
        self._server = dict(server)
        self._all_brokers: dict[str, str] = {}
        self._this_broker: dict[str, str] = {}
        self._merged = self._server
        self._values = self._parse(self._merged)
        self.groups: dict[str, dict[str, str]] = {}
        """The configs of groups, and of client metrics subscriptions. (See `config.groups`.)"""
        self.client_metrics: dict[str, dict[str, str]] = {}
        self._overrides: dict[str, dict[str, str]] = {}
        self._topics: dict[str, TopicConfig] = {}
        """Topics with overrides."""
        self._with_logs: set[str] = set()
        """Topics with logs on this broker, which must be updated when a default changes."""
        self._default = self._topic_config({}, self._merged)

    @property
    def layers(self) -> tuple[tuple[ConfigSource, Mapping[str, object]], ...]:
        """The configs set on brokers, not parsed. The first layer that has a key wins."""
        return (
            (ConfigSource.THIS_BROKER, self._this_broker),
            (ConfigSource.ALL_BROKERS, self._all_brokers),
            (ConfigSource.SERVER, self._server),
        )

    # ---- topics

    def topic(self, name: str) -> TopicConfig:
        """Returns the effective configs of a topic, also of one that does not exist."""
        return self._topics.get(name, self._default)

    def log_config(self, name: str) -> LogConfig:
        """Returns the configs for a new log of a topic. Later config changes are applied to the log.

        Threads that load logs also call it.
        """
        self._with_logs.add(name)
        return self.topic(name).log

    def topic_overrides(self, name: str) -> Mapping[str, str]:
        """Returns the configs that are set on a topic itself."""
        return self._overrides.get(name, {})

    def topic_defaults(self) -> dict[str, Any]:
        """Returns the defaults of topic keys that broker configs define."""
        return TOPIC_KEYS.defaults_from_server(self._merged)

    def check_topic(self, overrides: Mapping[str, str]) -> TopicConfig:
        """Returns the effective configs of a topic with these overrides. Raises InvalidConfigurationError."""
        for name in overrides:
            if name not in TOPIC_KEYS.keys:
                raise InvalidConfigurationError(_unknown("topic", name, TOPIC_KEYS))
        try:
            return self._topic_config(overrides, self._merged)
        except ConfigError as error:
            raise InvalidConfigurationError(str(error)) from error

    def set_topic_overrides(self, name: str, overrides: Mapping[str, str]) -> None:
        """Applies the overrides of a topic."""
        before = self.topic(name)
        self._set_topic(name, overrides)
        if self.topic(name) != before:
            self._notify([name])

    def forget_topic(self, name: str) -> None:
        """Removes a deleted topic."""
        self._remove_overrides(name)
        self._with_logs.discard(name)

    def _remove_overrides(self, name: str) -> None:
        self._overrides.pop(name, None)
        self._topics.pop(name, None)

    def _set_topic(self, name: str, overrides: Mapping[str, str]) -> None:
        if not overrides:
            self._remove_overrides(name)
            return
        self._overrides[name] = dict(overrides)
        try:
            self._topics[name] = self._topic_config(overrides, self._merged)
        except ConfigError as error:
            _logger.error("Topic %s: its configs are invalid, keeping the previous ones: %s", name, error)

    @staticmethod
    def _topic_config(overrides: Mapping[str, str], merged: Mapping[str, object]) -> TopicConfig:
        return TopicConfig.from_properties({**TOPIC_KEYS.defaults_from_server(merged), **overrides})

    def _notify(self, names: Iterable[str]) -> None:
        changed = {name: self.topic(name) for name in names}
        if changed:
            for listener in self.on_topics_changed:
                listener(changed)

    # ---- groups and client metrics

    def set_group_overrides(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Applies the configs of a group."""
        _replace(self.groups, group_id, overrides)

    def set_client_metrics_overrides(self, name: str, overrides: Mapping[str, str]) -> None:
        """Applies the configs of a client metrics subscription."""
        _replace(self.client_metrics, name, overrides)

    # ---- this broker

    def broker(self, name: str) -> Any:
        """Returns the effective value of a broker key."""
        return self._values[name]

    def limits(self, started_with: Limits) -> Limits:
        """Returns the effective limits of the socket server."""
        return replace(
            started_with,
            max_connections=self._values["max.connections"],
            listener_max_connections=values_by_listener("max.connections", self._merged),
            max_connections_per_ip=self._values["max.connections.per.ip"],
            per_ip_overrides=parse_per_ip_overrides(self._values["max.connections.per.ip.overrides"]),
        )

    def connection_rates(self) -> tuple[int, dict[str, int]]:
        """Returns the effective rates of new connections: of the broker, and of listeners."""
        key = "max.connection.creation.rate"
        return self._values[key], values_by_listener(key, self._merged)

    def security_of(self, listener: Listener) -> ListenerSecurity:
        """Returns the effective security settings of a listener."""
        return security_of(listener, self._merged)

    def manager(self, started_with: ManagerConfig) -> ManagerConfig:
        """Returns the effective config of the log manager."""
        dynamic = (key for key in MANAGER_KEYS.keys.values() if key.dynamic)
        return replace(started_with, **{key.attribute: self._values[key.name] for key in dynamic})

    def broker_overrides(self, entity: str) -> Mapping[str, str]:
        """Returns the dynamic configs of a broker id, or of DEFAULT_ENTITY."""
        return dict(self._layer(entity) or {})

    def check_broker(self, entity: str, overrides: Mapping[str, str]) -> None:
        """Raises InvalidRequestError, as Kafka does, if these dynamic configs of a broker are invalid."""
        static = [name for name in overrides if name in BROKER_KEYS.keys and not BROKER_KEYS.keys[name].dynamic]
        if static:
            raise InvalidRequestError(
                f"Cannot update these configs dynamically: [{', '.join(static)}]. Change server.properties and restart "
                f"the broker"
            )
        certificates = [name for name in overrides if name in DYNAMIC_TLS_KEYS]
        if certificates:
            raise InvalidRequestError(
                f"These security configs can be dynamically updated only per-listener using the listener prefix "
                f"listener.name.<listener>. : [{', '.join(certificates)}]"
            )
        secrets = [] if self.stores_secrets else [name for name in overrides if _is_secret(name)]
        if secrets:
            raise InvalidRequestError(
                f"Cannot store these configs in ZooKeeper, where others may read them: [{', '.join(secrets)}]. Change "
                "the file that ssl.keystore.location or ssl.truststore.location names, or server.properties"
            )
        if entity == DEFAULT_ENTITY and any(map(_is_certificate, overrides)):
            raise InvalidRequestError("Certificates belong to one broker: name the broker whose configs to change")
        for name in overrides:
            if name not in BROKER_KEYS.keys and name not in DYNAMIC_WITHOUT_EFFECT and not _is_of_listener(name):
                if name in NO_EFFECT:
                    raise InvalidRequestError(f"Cannot update {name} dynamically: {NO_EFFECT[name]}")
                raise InvalidRequestError(_unknown("broker", name, BROKER_KEYS))
        try:
            for name, value in overrides.items():
                self._check_value(name, value)
            merged = self._merge(entity, overrides)
            self._topic_config({}, merged)
            if self.check_security is not None and _certificates(merged) != _certificates(self._merged):
                self.check_security(lambda listener: security_of(listener, merged))
        except ConfigError as error:
            raise InvalidRequestError(str(error)) from error

    def set_broker_overrides(self, entity: str, overrides: Mapping[str, str]) -> None:
        """Applies the dynamic configs of all brokers (DEFAULT_ENTITY) or of this broker. Ignores other brokers."""
        layer = self._layer(entity)
        if layer is None:
            return
        usable = {name: value for name, value in overrides.items() if self._is_usable(entity, name, value)}
        merged = self._merge(entity, usable)
        try:
            default = self._topic_config({}, merged)
        except ConfigError as error:
            _logger.error(
                "Broker %d: the dynamic configs of %s are invalid, keeping the previous ones: %s",
                self.node_id,
                entity,
                error,
            )
            return
        for name in usable.keys() & DYNAMIC_WITHOUT_EFFECT:
            if layer.get(name) != usable[name]:
                reason = NO_EFFECT.get(name, "replicas are not moved between log directories")
                _logger.warning("Broker %d: the dynamic config %s has no effect: %s", self.node_id, name, reason)
        layer.clear()
        layer.update(usable)
        before, self._values = self._values, self._parse(merged)
        listeners_before, self._merged = _of_listeners(self._merged), merged
        if default != self._default:
            self._default = default
            for name, topic_overrides in self._overrides.items():
                self._set_topic(name, topic_overrides)
            self._notify(sorted(self._with_logs))
        changed = {name: value for name, value in self._values.items() if value != before[name]}
        of_listeners = _of_listeners(merged)
        for name in listeners_before.keys() | of_listeners.keys():
            if listeners_before.get(name) != of_listeners.get(name):
                changed[name] = of_listeners.get(name)
        if changed:
            shown = {name: _shown(name, value) for name, value in changed.items()}
            _logger.info("Broker %d: configs have changed: %s", self.node_id, shown)
            for listener in self.on_broker_changed:
                listener(changed)

    def _layer(self, entity: str) -> dict[str, str] | None:
        if entity == DEFAULT_ENTITY:
            return self._all_brokers
        return self._this_broker if entity == str(self.node_id) else None

    def _merge(self, entity: str, overrides: Mapping[str, str]) -> dict[str, object]:
        """Returns the broker configs with the overrides of one entity replaced."""
        all_brokers = overrides if entity == DEFAULT_ENTITY else self._all_brokers
        this_broker = self._this_broker if entity == DEFAULT_ENTITY else overrides
        return {**self._server, **all_brokers, **this_broker}

    @staticmethod
    def _parse(merged: Mapping[str, object]) -> dict[str, Any]:
        return {
            name: key.parse(merged[name]) if name in merged else key.default for name, key in BROKER_KEYS.keys.items()
        }

    def _check_value(self, name: str, value: str) -> None:
        if _is_of_listener(name):
            listeners = parse_listeners("listeners", self._values["listeners"])
            list(check_prefixed(name, value, [listener.name for listener in listeners]))
        if name in BROKER_KEYS.keys:
            BROKER_KEYS.keys[name].parse(value)
        if name == "max.connections.per.ip.overrides":
            parse_per_ip_overrides(value)

    def _is_usable(self, entity: str, name: str, value: str) -> bool:
        key = BROKER_KEYS.keys.get(name)
        if name in DYNAMIC_WITHOUT_EFFECT:
            return True
        try:
            if not _is_of_listener(name) and (key is None or not key.dynamic):
                raise ConfigError("it cannot be updated dynamically")
            if not self.stores_secrets and _is_secret(name):
                raise ConfigError("passwords and private keys are not read from ZooKeeper")
            self._check_value(name, value)
        except ConfigError as error:
            _logger.error(
                "Broker %d: ignoring the dynamic config %s=%s of %s: %s",
                self.node_id,
                name,
                _shown(name, value),
                entity,
                error,
            )
            return False
        return True


def _is_of_listener(name: str) -> bool:
    """Returns True for a dynamic config of a listener, such as `listener.name.external.max.connections`."""
    return _has_prefix(name, CONNECTION_KEYS.keys) or _is_certificate(name)


def _is_certificate(name: str) -> bool:
    """Returns True for a config such as `listener.name.external.ssl.keystore.location`."""
    return _has_prefix(name, DYNAMIC_TLS_KEYS)


def _is_secret(name: str) -> bool:
    """Returns True for a dynamic config of a listener that is never shown."""
    key = prefixed_key(name) if _is_certificate(name) else None
    return key is not None and key.type is ConfigType.PASSWORD


def _has_prefix(name: str, keys: Container[str]) -> bool:
    try:
        parts = split_prefixed(name)
    except ConfigError:
        return False
    return parts is not None and not parts.mechanism and parts.key in keys


def _certificates(properties: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in properties.items() if _is_certificate(name)}


def _shown(name: str, value: object) -> object:
    key = BROKER_KEYS.keys.get(name) or prefixed_key(name)
    return value if key is None else key.shown(value)


def _of_listeners(properties: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in properties.items() if _is_of_listener(name)}


def _replace(resources: dict[str, dict[str, str]], name: str, overrides: Mapping[str, str]) -> None:
    if overrides:
        resources[name] = dict(overrides)
    else:
        resources.pop(name, None)


def _unknown(kind: str, name: str, table: ConfigTable) -> str:
    similar = difflib.get_close_matches(name, table.keys, n=1)
    return f"Unknown {kind} config name: {name}{f', did you mean {similar[0]}?' if similar else ''}"
