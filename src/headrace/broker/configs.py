"""The effective configuration of topics and of this broker, and who is told when it changes.

A setting is looked for in this order, and the first place that has it wins:

    topic            set on the topic itself
    this broker      set at run time for this broker       (`kafka-configs --entity-type brokers --entity-name 0`)
    all brokers      set at run time for the whole cluster (`kafka-configs --entity-type brokers --entity-default`)
    server           what the broker was started with      (`server.properties`)
    default          of the table

Owned by the broker's loop. What is set at run time is kept in the coordination store; this is the copy that the broker
works with. Its values are given with `set_topic_overrides` and `set_broker_overrides`, at the start and then whenever
the store says that they have changed.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.common.config import ConfigKey, ConfigTable, ConfigType, Synonym
from headrace.common.errors import ConfigError, InvalidConfigurationError
from headrace.storage.config import LOG_KEYS, LogConfig

_logger = logging.getLogger(__name__)

_REPLICATION_KEYS = [
    ConfigKey(
        "min.insync.replicas",
        ConfigType.INT,
        1,
        "How many replicas must have a record before a producer that asks for `acks=all` is told so.",
        low=1,
        synonyms=(Synonym("min.insync.replicas"),),
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether a replica that lacks records may become leader when no other is left.",
        synonyms=(Synonym("unclean.leader.election.enable"),),
    ),
]

TOPIC_KEYS = ConfigTable([*LOG_KEYS.keys.values(), *_REPLICATION_KEYS])


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
            LogConfig.from_properties({name: value for name, value in properties.items() if name in LOG_KEYS.keys}),
            values["min_insync_replicas"],
            values["unclean_leader_election_enable"],
        )


class Configs:
    def __init__(self, server: Mapping[str, object], node_id: int = 0):
        """`server` is what the broker was started with, by Kafka's names."""
        self.node_id = node_id
        self.on_topics_changed: list[Callable[[Mapping[str, TopicConfig]], object]] = []
        """Called with the new settings of the topics that have other settings than before."""
        self._server = dict(server)
        self._overrides: dict[str, dict[str, str]] = {}
        self._topics: dict[str, TopicConfig] = {}
        self._default = TopicConfig.from_properties(TOPIC_KEYS.defaults_from_server(self._server))

    # ---- topics

    def topic(self, name: str) -> TopicConfig:
        """What is in force for a topic, also for one that does not exist (yet)."""
        return self._topics.get(name, self._default)

    def log_config(self, name: str) -> LogConfig:
        return self.topic(name).log

    def topic_overrides(self, name: str) -> Mapping[str, str]:
        """What is set on a topic itself."""
        return self._overrides.get(name, {})

    def check_topic(self, overrides: Mapping[str, str]) -> TopicConfig:
        """What would be in force with these settings; InvalidConfigurationError if they cannot be."""
        try:
            return self._make(overrides)
        except ConfigError as error:
            raise InvalidConfigurationError(str(error)) from error

    def _make(self, overrides: Mapping[str, str]) -> TopicConfig:
        return TopicConfig.from_properties({**TOPIC_KEYS.defaults_from_server(self._server), **overrides})

    def set_topic_overrides(self, name: str, overrides: Mapping[str, str]) -> None:
        """Takes what is set on a topic now. What cannot be used (of another version, say) leaves things as they are."""
        before = self.topic(name)
        self._overrides[name] = dict(overrides)
        try:
            self._topics[name] = self._make(overrides)
        except ConfigError as error:
            _logger.error("the configuration of topic %s cannot be used: %s", name, error)
        self._tell({name: self.topic(name)} if self.topic(name) != before else {})

    def forget_topic(self, name: str) -> None:
        """The topic is deleted."""
        self._overrides.pop(name, None)
        self._topics.pop(name, None)

    def _tell(self, changed: Mapping[str, TopicConfig]) -> None:
        if changed:
            for listener in self.on_topics_changed:
                listener(changed)
