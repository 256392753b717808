"""Config entries of DescribeConfigs and CreateTopics responses: value, source and synonyms.

The synonyms of a config are all places that have a value for it. The first synonym is the effective one. The order is:

1. the topic
2. this broker, all brokers, `server.properties`, each with the broker keys that define the topic key's default
3. the defaults of these broker keys
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from headrace.broker.config.broker import BROKER_KEYS, TOPIC_KEYS
from headrace.broker.config.dynamic import ConfigSource, DynamicConfig
from headrace.broker.config.listener_security import PREFIX, prefixed_key
from headrace.common.config import ConfigKey, ConfigTable, ConfigType
from headrace.common.errors import ConfigError

_TYPE_NUMBERS = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
    ConfigType.PASSWORD: 9,
}
PASSWORD_TYPE = _TYPE_NUMBERS[ConfigType.PASSWORD]
STRING_TYPE = _TYPE_NUMBERS[ConfigType.STRING]


class ConfigSynonym(NamedTuple):
    """A place that has a value for a config."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """The description of one config."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    type: int
    """The protocol's number."""
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def is_sensitive(self) -> bool:
        """True for passwords, whose values are never shown."""
        return self.type == PASSWORD_TYPE


def show_value(value: Any) -> str | None:
    """Formats a value as Kafka does."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(value).replace("e+", "E").replace("e", "E")
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return str(value)


class TopicEntries:
    """The config entries of topics. The inherited ones are computed once: create one object for each request."""

    def __init__(self, dynamic_config: DynamicConfig):
        defaults = dynamic_config.topic_defaults()
        self._inherited = {
            name: _inherited_entry(dynamic_config, key, defaults.get(name, key.default))
            for name, key in sorted(TOPIC_KEYS.keys.items())
        }

    def of(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """Returns all config entries of a topic with these overrides."""
        return [
            entry if name not in overrides else _own_entry(entry, overrides[name])
            for name, entry in self._inherited.items()
        ]


def _inherited_entry(dynamic_config: DynamicConfig, key: ConfigKey, value: Any) -> ConfigEntry:
    synonyms = tuple(_synonyms(dynamic_config, tuple(synonym.name for synonym in key.synonyms)))
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return ConfigEntry(key.name, show_value(value), source, False, _TYPE_NUMBERS[key.type], key.doc, synonyms)


def _own_entry(inherited: ConfigEntry, override: str) -> ConfigEntry:
    value = _normalize(TOPIC_KEYS.keys[inherited.name], override)
    synonyms = (ConfigSynonym(inherited.name, value, ConfigSource.TOPIC), *inherited.synonyms)
    return replace(inherited, value=value, source=ConfigSource.TOPIC, synonyms=synonyms)


def _normalize(key: ConfigKey, value: object) -> str | None:
    try:
        return show_value(key.parse(value))
    except ConfigError:
        return str(value)  # set by another version; shown so that it can be corrected


def _synonyms(dynamic_config: DynamicConfig, names: tuple[str, ...]) -> Iterator[ConfigSynonym]:
    for source, layer in dynamic_config.layers:
        for name in names:
            if name in layer:
                yield ConfigSynonym(name, show_value(layer[name]), source)
    for name in names:
        default = BROKER_KEYS.keys[name].default if name in BROKER_KEYS.keys else None
        if default is not None:
            yield ConfigSynonym(name, show_value(default), ConfigSource.DEFAULT)


def broker_entries(dynamic_config: DynamicConfig) -> list[ConfigEntry]:
    """Returns all config entries of this broker."""
    others = {
        name
        for source, layer in dynamic_config.layers
        for name in layer
        if source is not ConfigSource.SERVER or name.startswith(PREFIX)
    } - set(BROKER_KEYS.keys)
    return [_broker_entry(dynamic_config, name) for name in sorted({*BROKER_KEYS.keys, *others})]


def _broker_entry(dynamic_config: DynamicConfig, name: str) -> ConfigEntry:
    key = BROKER_KEYS.keys.get(name) or prefixed_key(name)
    synonyms = tuple(_synonyms(dynamic_config, (name,)))
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    if key is None:
        return ConfigEntry(name, synonyms[0].value, source, False, STRING_TYPE, "Has no effect.", synonyms)
    if name in ("node.id", "broker.id"):
        value: str | None = str(dynamic_config.node_id)  # may be the one in the log directories' meta.properties
    elif key.name != name:
        value = synonyms[0].value
    else:
        value = show_value(dynamic_config.broker(name))
    if key.type is ConfigType.PASSWORD:
        value, synonyms = None, tuple(synonym._replace(value=None) for synonym in synonyms)
    return ConfigEntry(name, value, source, not key.dynamic, _TYPE_NUMBERS[key.type], key.doc, synonyms)


def named_entries(table: ConfigTable, overrides: Mapping[str, str], source: ConfigSource) -> list[ConfigEntry]:
    """Returns all config entries of a group or of a client metrics subscription."""
    entries: list[ConfigEntry] = []
    for name, key in sorted(table.keys.items()):
        default = show_value(key.default)
        synonyms = [ConfigSynonym(synonym.name, default, ConfigSource.DEFAULT) for synonym in key.synonyms]
        entry_source, value = ConfigSource.DEFAULT, default
        if name in overrides:
            entry_source, value = source, _normalize(key, overrides[name])
            synonyms.insert(0, ConfigSynonym(name, value, source))
        entries.append(ConfigEntry(name, value, entry_source, False, _TYPE_NUMBERS[key.type], key.doc, tuple(synonyms)))
    return entries


def all_brokers_entries(dynamic_config: DynamicConfig) -> list[ConfigEntry]:
    """Returns the dynamic configs of all brokers, and as in Kafka nothing else."""
    set_for_all = next(layer for source, layer in dynamic_config.layers if source is ConfigSource.ALL_BROKERS)
    entries: list[ConfigEntry] = []
    for name in sorted(set_for_all):
        key = BROKER_KEYS.keys.get(name)
        value = show_value(set_for_all[name]) if key is None else _normalize(key, set_for_all[name])
        if key is not None and key.type is ConfigType.PASSWORD:
            value = None
        synonym = ConfigSynonym(name, value, ConfigSource.ALL_BROKERS)
        type_number = STRING_TYPE if key is None else _TYPE_NUMBERS[key.type]
        doc = "Has no effect." if key is None else key.doc
        entries.append(ConfigEntry(name, value, ConfigSource.ALL_BROKERS, False, type_number, doc, (synonym,)))
    return entries
