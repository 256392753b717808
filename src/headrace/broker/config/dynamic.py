"""The effective configuration of topics and of this broker, and who is told when it changes.

A setting is looked for in this order, and the first place that has it wins:

    topic            set on the topic itself
    this broker      set at run time for this broker       (`kafka-configs --entity-type brokers --entity-name 0`)
    all brokers      set at run time for the whole cluster (`kafka-configs --entity-type brokers --entity-default`)
    server           what the broker was started with      (`server.properties`)
    default          of the table

Owned by the broker's loop. What is set at run time is kept in the coordination store; this is the copy that the broker
works with. Its values are given with `set_topic_overrides` and `set_broker_overrides`, at the start and then whenever
the store says that they have changed. They were checked before they were stored, but perhaps by another version, so
what cannot be used is logged and left out.
"""

import difflib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from headrace.broker.config.broker import BROKER_KEYS, TOPIC_KEYS, parse_per_ip_overrides
from headrace.cluster.znodes import DEFAULT_ENTITY
from headrace.common.config import ConfigTable
from headrace.common.errors import ConfigError, InvalidConfigurationError, InvalidRequestError
from headrace.net.limits import Limits
from headrace.storage.config import LOG_KEYS, MANAGER_KEYS, LogConfig, ManagerConfig

_logger = logging.getLogger(__name__)

DYNAMIC_WITHOUT_EFFECT = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "log.cleaner.threads",
        "max.connection.creation.rate",
        "metric.reporters",
        "num.io.threads",
        "num.network.threads",
        "num.replica.fetchers",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Keys that Kafka takes at run time and for which there is nothing to set here. They are taken too, so that scripts go
on working."""


class ConfigSource(IntEnum):
    """Where a setting comes from, by the protocol's numbers."""

    TOPIC = 1
    THIS_BROKER = 2
    ALL_BROKERS = 3
    SERVER = 4
    DEFAULT = 5
    LOGGER = 6


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """What is in force for a topic."""

    log: LogConfig
    min_insync_replicas: int
    unclean_leader_election_enable: bool

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> "TopicConfig":
        """Kafka's topic keys, checked; what is not given has its default."""
        values = TOPIC_KEYS.parse(properties)
        return cls(
            LogConfig.from_properties(LOG_KEYS.select(properties)),
            values["min_insync_replicas"],
            values["unclean_leader_election_enable"],
        )


class DynamicConfig:
    def __init__(self, server: Mapping[str, object], node_id: int = 0):
        """`server` is what the broker was started with: keys of BROKER_KEYS that have been checked."""
        self.node_id = node_id
        self.on_topics_changed: list[Callable[[Mapping[str, TopicConfig]], object]] = []
        """Called with the new settings of topics that may have other settings than before."""
        self.on_broker_changed: list[Callable[[Mapping[str, Any]], object]] = []
        """Called with the new values of broker keys that have another value than before; see `limits`, `manager`."""
        self._server = dict(server)
        self._all_brokers: dict[str, str] = {}
        self._this_broker: dict[str, str] = {}
        self._merged = self._server
        self._values = self._parse(self._merged)
        self._overrides: dict[str, dict[str, str]] = {}
        self._topics: dict[str, TopicConfig] = {}
        """Those with settings of their own."""
        self._with_logs: set[str] = set()
        """Those whose logs have settings from here: when a default changes they get others."""
        self._default = self._make({}, self._merged)

    @property
    def layers(self) -> tuple[tuple[ConfigSource, Mapping[str, object]], ...]:
        """What is set on brokers, as it was written; what is found first wins."""
        return (
            (ConfigSource.THIS_BROKER, self._this_broker),
            (ConfigSource.ALL_BROKERS, self._all_brokers),
            (ConfigSource.SERVER, self._server),
        )

    # ---- topics

    def topic(self, name: str) -> TopicConfig:
        """What is in force for a topic, also for one that does not exist (yet)."""
        return self._topics.get(name, self._default)

    def log_config(self, name: str) -> LogConfig:
        """The settings that a log of a topic is to begin with; it will hear of changes. Also called from the threads
        that load logs."""
        self._with_logs.add(name)
        return self.topic(name).log

    def topic_overrides(self, name: str) -> Mapping[str, str]:
        """What is set on a topic itself."""
        return self._overrides.get(name, {})

    def topic_defaults(self) -> dict[str, Any]:
        """What topics get from the brokers' settings."""
        return TOPIC_KEYS.defaults_from_server(self._merged)

    def check_topic(self, overrides: Mapping[str, str]) -> TopicConfig:
        """What would be in force with these settings; InvalidConfigurationError if they cannot be."""
        for name in overrides:
            if name not in TOPIC_KEYS.keys:
                raise InvalidConfigurationError(_unknown("topic", name, TOPIC_KEYS))
        try:
            return self._make(overrides, self._merged)
        except ConfigError as error:
            raise InvalidConfigurationError(str(error)) from error

    def set_topic_overrides(self, name: str, overrides: Mapping[str, str]) -> None:
        """Takes what is set on a topic now."""
        before = self.topic(name)
        self._set_topic(name, overrides)
        if self.topic(name) != before:
            self._tell([name])

    def forget_topic(self, name: str) -> None:
        """The topic is deleted."""
        self._take_off(name)
        self._with_logs.discard(name)

    def _take_off(self, name: str) -> None:
        self._overrides.pop(name, None)
        self._topics.pop(name, None)

    def _set_topic(self, name: str, overrides: Mapping[str, str]) -> None:
        if not overrides:
            self._take_off(name)
            return
        self._overrides[name] = dict(overrides)
        try:
            self._topics[name] = self._make(overrides, self._merged)
        except ConfigError as error:
            _logger.error("the configuration of topic %s cannot be used, the one before stays: %s", name, error)

    @staticmethod
    def _make(overrides: Mapping[str, str], merged: Mapping[str, object]) -> TopicConfig:
        return TopicConfig.from_properties({**TOPIC_KEYS.defaults_from_server(merged), **overrides})

    def _tell(self, names: Iterable[str]) -> None:
        changed = {name: self.topic(name) for name in names}
        if changed:
            for listener in self.on_topics_changed:
                listener(changed)

    # ---- this broker

    def broker(self, name: str) -> Any:
        """The value that is in force for a broker key."""
        return self._values[name]

    def limits(self, started_with: Limits) -> Limits:
        """The limits of the socket server that are in force."""
        return replace(
            started_with,
            max_connections=self._values["max.connections"],
            max_connections_per_ip=self._values["max.connections.per.ip"],
            per_ip_overrides=parse_per_ip_overrides(self._values["max.connections.per.ip.overrides"]),
        )

    def manager(self, started_with: ManagerConfig) -> ManagerConfig:
        """The settings of the log manager that are in force."""
        dynamic = (key for key in MANAGER_KEYS.keys.values() if key.dynamic)
        return replace(started_with, **{key.attribute: self._values[key.name] for key in dynamic})

    def broker_overrides(self, entity: str) -> Mapping[str, str]:
        """What is set at run time for an id, or for DEFAULT_ENTITY."""
        return dict(self._layer(entity) or {})

    def check_broker(self, entity: str, overrides: Mapping[str, str]) -> None:
        """Raises InvalidRequestError, as Kafka does, if a running broker cannot take these settings."""
        fixed = [name for name in overrides if name in BROKER_KEYS.keys and not BROKER_KEYS.keys[name].dynamic]
        if fixed:
            raise InvalidRequestError(f"only a restart can change {', '.join(fixed)}")
        for name in overrides:
            if name not in BROKER_KEYS.keys and name not in DYNAMIC_WITHOUT_EFFECT:
                raise InvalidRequestError(_unknown("broker", name, BROKER_KEYS))
        try:
            for name, value in overrides.items():
                self._check_value(name, value)
            self._make({}, self._merge(entity, overrides))
        except ConfigError as error:
            raise InvalidRequestError(str(error)) from error

    def set_broker_overrides(self, entity: str, overrides: Mapping[str, str]) -> None:
        """Takes what is set at run time for all brokers (DEFAULT_ENTITY) or for one; another one's are passed over."""
        layer = self._layer(entity)
        if layer is None:
            return
        usable = {name: value for name, value in overrides.items() if self._is_usable(entity, name, value)}
        merged = self._merge(entity, usable)
        try:
            default = self._make({}, merged)
        except ConfigError as error:
            _logger.error("the settings of brokers %s cannot be used, those before stay: %s", entity, error)
            return
        layer.clear()
        layer.update(usable)
        before, self._values, self._merged = self._values, self._parse(merged), merged
        if default != self._default:
            self._default = default
            for name, own in self._overrides.items():
                self._set_topic(name, own)
            self._tell(sorted(self._with_logs))
        changed = {name: value for name, value in self._values.items() if value != before[name]}
        if changed:
            _logger.info("broker settings have changed: %s", changed)
            for listener in self.on_broker_changed:
                listener(changed)

    def _layer(self, entity: str) -> dict[str, str] | None:
        if entity == DEFAULT_ENTITY:
            return self._all_brokers
        return self._this_broker if entity == str(self.node_id) else None

    def _merge(self, entity: str, overrides: Mapping[str, str]) -> dict[str, object]:
        """The broker keys that would be set, if these were an entity's."""
        all_brokers = overrides if entity == DEFAULT_ENTITY else self._all_brokers
        this_broker = self._this_broker if entity == DEFAULT_ENTITY else overrides
        return {**self._server, **all_brokers, **this_broker}

    @staticmethod
    def _parse(merged: Mapping[str, object]) -> dict[str, Any]:
        return {
            name: key.parse(merged[name]) if name in merged else key.default for name, key in BROKER_KEYS.keys.items()
        }

    @staticmethod
    def _check_value(name: str, value: str) -> None:
        if name in BROKER_KEYS.keys:
            BROKER_KEYS.keys[name].parse(value)
        if name == "max.connections.per.ip.overrides":
            parse_per_ip_overrides(value)

    def _is_usable(self, entity: str, name: str, value: str) -> bool:
        key = BROKER_KEYS.keys.get(name)
        if name in DYNAMIC_WITHOUT_EFFECT:
            return True
        try:
            if key is None or not key.dynamic:
                raise ConfigError("a running broker cannot take it")
            self._check_value(name, value)
        except ConfigError as error:
            _logger.error("setting %s=%s of brokers %s is not used: %s", name, value, entity, error)
            return False
        return True


def _unknown(kind: str, name: str, table: ConfigTable) -> str:
    near = difflib.get_close_matches(name, table.keys, n=1)
    return f"a {kind} has no setting {name}{f'; is it {near[0]}?' if near else ''}"
