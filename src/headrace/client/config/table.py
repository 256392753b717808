"""The table of one client's configuration keys. It parses the arguments of the constructor.

Users write a key the way Kafka does (`bootstrap.servers`) or the way kafka-python does (`bootstrap_servers`). None
stands for the default. Objects (serializers, callbacks, an SSL context) are passed through unchanged. An unknown key
raises an error that names the most similar key.

    config = PRODUCER_KEYS.load({"bootstrap.servers": "a:9092"}, acks="all")
    config.bootstrap_servers          # ("a:9092",)
    config.acks                       # always a number: -1, 0 or 1
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace.client.config.sasl import SASL_ALIASES
from headrace.client.config.tls import TLS_ALIASES
from headrace.client.config.types import ClientConfig
from headrace.common.config import INT_MAX, LONG_MAX, ConfigKey, ConfigTable, unknown_key
from headrace.common.errors import ConfigError

__all__ = ["ALIASES", "ClientTable", "ObjectKey", "check_callable", "check_interceptors"]

_logger = logging.getLogger(__name__)

C = TypeVar("C", bound=ClientConfig)

ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "exclude.topics": "topic.blacklist",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "socket.timeout.ms": "request.timeout.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "request.required.acks": "acks",
    "queue.buffering.max.ms": "linger.ms",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.send.max.retries": "retries",
    "compression.codec": "compression.type",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    **SASL_ALIASES,
    **TLS_ALIASES,
}
"""librdkafka's and kafka-python's names for Kafka's keys."""

_INFINITE = {"retries": INT_MAX, "consumer.timeout.ms": LONG_MAX}
"""Keys that also accept `float("inf")`, as in kafka-python, and the number that stands for it."""


@dataclass(frozen=True)
class ObjectKey:
    """A key whose value is a Python object."""

    name: str
    annotation: str
    """The object's type, as written in `keywords` and `types`."""
    doc: str
    default: object = None
    check: Callable[[Any], str | None] | None = None
    """Returns what is expected if the object is invalid, or None."""

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")


class ClientTable(Generic[C]):
    """The keys of one client: keys with parsed values, keys with objects, and keys without effect."""

    def __init__(
        self,
        config_class: type[C],
        keys: Iterable[ConfigKey],
        objects: Iterable[ObjectKey] = (),
        unused: Iterable[str] = (),
        refused: Mapping[str, str] | None = None,
    ):
        self.config_class = config_class
        self.table = ConfigTable(keys)
        self.objects = {key.name: key for key in objects}
        self.unused = frozenset(unused)
        """Keys of other clients that are accepted and have no effect here. Loading such a key logs a line."""
        self.refused = dict(refused or {})
        """Keys that are rejected because a program that sets one depends on it, with the reason."""

    @property
    def keys(self) -> dict[str, ConfigKey]:
        return self.table.keys

    def known(self) -> list[str]:
        """Returns the names of all keys that have an effect."""
        return [*self.table.keys, *self.objects]

    def load(self, config: Mapping[str, object] | None = None, /, **keywords: object) -> C:
        """Parses a mapping and keyword arguments. A keyword takes precedence over the mapping."""
        if config is not None and not isinstance(config, Mapping):
            raise ConfigError(
                f"configuration must be keyword arguments (bootstrap_servers=...) or a mapping, "
                f"not {type(config).__name__}"
            )
        text: dict[str, object] = {}
        values: dict[str, Any] = {key.attribute: key.default for key in self.objects.values()}
        for name, value in {**_dotted(config or {}), **_dotted(keywords)}.items():
            if name not in self.keys and name not in self.objects and not self._has_no_effect(name):
                raise unknown_key(name, self.known())
            if value is None:
                continue
            if name in self.refused:
                raise ConfigError(f"{name}: {self.refused[name]}")
            if name in self.objects:
                values[self.objects[name].attribute] = _checked(self.objects[name], value)
            elif name in self.keys:
                text[name] = _normalize(name, value)
            else:
                _logger.info("Configuration key %s has no effect in this client", name)
        values.update(self.table.parse(text))
        if "acks" in values:
            values["acks"] = -1 if values["acks"] == "all" else int(values["acks"])
        return self.config_class(**values, explicit=frozenset(text))

    def _has_no_effect(self, name: str) -> bool:
        return name in self.unused or name in self.refused

    def markdown(self, without: Iterable[str] = ()) -> str:
        """Returns the reference table of the keys, except for those documented elsewhere."""
        lines = ["| key | type | default | allowed | meaning |", "|---|---|---|---|---|"]
        for name in sorted(set(self.known()) - set(without)):
            key = self.keys.get(name)
            if key is None:
                lines.append(f"| `{name}` | object | | | {self.objects[name].doc} |")
                continue
            default = key.format(key.default)
            allowed = key.expected() if key.choices or key.low is not None else ""
            allowed = allowed.removeprefix(f"a value of type {key.type.value} ").removeprefix("of ")
            lines.append(
                f"| `{name}` | {key.type.value} | {f'`{default}`' if default else ''} | {allowed} | {key.doc} |"
            )
        return "\n".join(lines) + "\n"


def _checked(key: ObjectKey, value: object) -> object:
    expected = key.check(value) if key.check is not None else None
    if expected is not None:
        raise ConfigError(f"{key.name}={value!r} is not valid: expected {expected}")
    return value


def check_callable(value: object) -> str | None:
    """The check of keys with a function."""
    return None if callable(value) else "a function"


def check_interceptors(*methods: str) -> Callable[[Any], str | None]:
    """Returns the check of a list of interceptors, which need at least one of these methods."""

    def check(value: object) -> str | None:
        valid = isinstance(value, list | tuple) and all(
            any(callable(getattr(each, method, None)) for method in methods) and not isinstance(each, type)
            for each in value
        )
        return None if valid else f"a list of objects with {' or '.join(methods)}"

    return check


def _normalize(name: str, value: object) -> object:
    """Converts values that only kafka-python accepts to Kafka's."""
    if name in _INFINITE and value == math.inf:
        return _INFINITE[name]
    return str(value) if name == "acks" and type(value) is int else value


def _dotted(config: Mapping[str, object]) -> dict[str, object]:
    """Returns the configuration by Kafka's names."""
    dotted: dict[str, object] = {}
    for key, value in config.items():
        if not isinstance(key, str):
            raise ConfigError(f"a configuration key must be a str, not {key!r}")
        name = key.replace("_", ".")
        name = ALIASES.get(name, name)
        if name in dotted:
            raise ConfigError(f"{name} is set twice")
        dotted[name] = value
    return dotted
