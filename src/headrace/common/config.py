"""Configuration tables: type, default, bounds, documentation and synonyms of each key in one place.

Parsing, validation and the reference pages all use the table, so they cannot disagree.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from headrace.common.errors import ConfigError

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class ConfigType(Enum):
    """Kafka's config types."""

    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    LIST = "list"
    PASSWORD = "password"
    """A string that is never shown."""


HIDDEN = "[hidden]"
"""Shown in place of the value of a password."""


def invalid_value(name: str, value: object, problem: str) -> ConfigError:
    """Returns the error for a value, in the words of Kafka's ConfigException."""
    return ConfigError(f"Invalid value {value} for configuration {name}: {problem}")


@dataclass(frozen=True)
class Synonym:
    """A broker config that sets the default of a topic config. `factor` converts its unit: hours to ms, for example."""

    name: str
    factor: int = 1

    def scale(self, value: Any) -> Any:
        """Converts a value to the topic config's unit. Negative values mean "no limit" in any unit."""
        if self.factor == 1 or value <= 0:
            return value
        if value > LONG_MAX // self.factor:
            raise invalid_value(self.name, value, f"Value must be no more than {LONG_MAX // self.factor}")
        return value * self.factor


@dataclass(frozen=True)
class ConfigKey:
    """One config: its name, type, default, documentation and allowed values."""

    name: str
    type: ConfigType
    default: Any
    """None means not set."""
    doc: str
    low: float | None = None
    """The lowest allowed value."""
    high: float | None = None
    """The highest allowed value."""
    also_allowed: tuple[int, ...] = ()
    """Allowed values below `low`, such as -1 for a default."""
    choices: tuple[str, ...] | None = None
    synonyms: tuple[Synonym, ...] = ()
    """Broker configs that set the default; the first one that is set wins."""
    dynamic: bool = True
    """True if the value can be changed while the broker runs."""
    check: Callable[[Any], str | None] | None = None
    """An additional check. Returns None, or a sentence that says what is wrong with the value."""

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    def parse(self, raw: object, name: str | None = None) -> Any:
        """Parses and validates a user's value. Error messages use `name` (default: this key's name)."""
        key_name = name or self.name
        try:
            value = _PARSERS[self.type](raw)
        except ValueError:
            raise invalid_value(key_name, self.shown(raw), self._type_problem()) from None
        if self.choices is not None:
            for item in value if isinstance(value, tuple) else (value,):
                if item not in self.choices:
                    raise invalid_value(key_name, self.shown(item), f"String must be one of: {', '.join(self.choices)}")
        elif problem := self._bounds_problem(value):
            raise invalid_value(key_name, self.shown(raw), problem)
        if self.check is not None and (problem := self.check(value)):
            raise invalid_value(key_name, self.shown(raw), problem)
        return value

    def shown(self, value: object) -> object:
        """Returns a value as messages and logs show it."""
        return HIDDEN if self.type is ConfigType.PASSWORD and value is not None else value

    def _type_problem(self) -> str:
        if self.type in (ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE):
            return f"Not a number of type {self.type.name}"
        if self.type is ConfigType.BOOLEAN:
            return "Expected value to be either true or false"
        return "Expected a comma-separated list" if self.type is ConfigType.LIST else "Expected value to be a string"

    def _bounds_problem(self, value: Any) -> str | None:
        if self.type in (ConfigType.INT, ConfigType.LONG):
            limit = INT_MAX if self.type is ConfigType.INT else LONG_MAX
            if not -limit - 1 <= value <= limit:
                return self._type_problem()
        if value in self.also_allowed:
            return None
        low, high = (_shown(bound) for bound in (self.low, self.high))
        if self.also_allowed and not (self.low or value) <= value <= (self.high or value):
            return f"Value must be between {low} and {high} or equal to {', '.join(map(str, self.also_allowed))}"
        if self.low is not None and value < self.low:
            return f"Value must be at least {low}"
        if self.high is not None and value > self.high:
            return f"Value must be no more than {high}"
        return None

    def format(self, value: Any) -> str | None:
        """Formats a value as a user would write it."""
        if value is None:
            return None
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value).lower() if self.type is ConfigType.BOOLEAN else str(value)

    def expected(self) -> str:
        """Describes the allowed values."""
        kind = "a comma-separated list" if self.type is ConfigType.LIST else f"a value of type {self.type.value}"
        if self.choices is not None:
            return f"{'a list of ' if self.type is ConfigType.LIST else ''}{' or '.join(self.choices)}"
        if self.low is not None and self.high is not None:
            also = "".join(f", or {value}" for value in self.also_allowed)
            return f"{kind} from {self.low} to {self.high}{also}"
        if self.low is not None:
            return f"{kind} of at least {self.low}"
        return kind


def _shown(bound: float | None) -> str:
    return str(int(bound)) if bound is not None and bound == int(bound) else str(bound)


def _digits(raw: object) -> str:
    """Returns the text of a number. Rejects underscores, which Python accepts and Kafka does not."""
    text = str(raw).strip()
    if "_" in text:
        raise ValueError
    return text


def _parse_number(raw: object) -> int:
    if isinstance(raw, bool) or (isinstance(raw, float) and not raw.is_integer()):
        raise ValueError
    return int(raw) if isinstance(raw, int | float) else int(_digits(raw))


def _parse_double(raw: object) -> float:
    if isinstance(raw, bool):
        raise ValueError
    value = float(raw) if isinstance(raw, int | float) else float(_digits(raw))
    if math.isnan(value):
        raise ValueError
    return value


def _parse_boolean(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    text = str(raw).strip().lower()
    if text not in ("true", "false"):
        raise ValueError
    return text == "true"


def _parse_string(raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError
    return raw.strip()


def _parse_list(raw: object) -> tuple[str, ...]:
    items = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(items, Iterable) or isinstance(items, bytes | bytearray):
        raise ValueError
    return tuple(dict.fromkeys(str(item).strip() for item in items if str(item).strip()))


_PARSERS: dict[ConfigType, Callable[[object], Any]] = {
    ConfigType.INT: _parse_number,
    ConfigType.LONG: _parse_number,
    ConfigType.DOUBLE: _parse_double,
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: _parse_string,
    ConfigType.LIST: _parse_list,
    ConfigType.PASSWORD: _parse_string,
}


class ConfigTable:
    """The configs of one resource, such as a topic."""

    def __init__(self, keys: Iterable[ConfigKey]):
        self.keys = {key.name: key for key in keys}

    def parse(self, properties: Mapping[str, object]) -> dict[str, Any]:
        """Returns the value of every key, by attribute name. Raises ConfigError for an unknown key."""
        for name in properties:
            if not isinstance(name, str):
                raise ConfigError(f"A configuration key must be a str, not {name!r}")
            if name not in self.keys:
                raise unknown_key(name, self.keys)
        return {
            key.attribute: key.parse(properties[key.name]) if key.name in properties else key.default
            for key in self.keys.values()
        }

    def values(self, properties: Mapping[str, object]) -> dict[str, Any]:
        """Returns the value of every key like `parse`, by the key's name."""
        return {
            key.name: key.parse(properties[key.name]) if key.name in properties else key.default
            for key in self.keys.values()
        }

    def select(self, properties: Mapping[str, object]) -> dict[str, object]:
        """Returns the properties that are keys of this table."""
        return {name: value for name, value in properties.items() if name in self.keys}

    def defaults_from_server(self, server: Mapping[str, object]) -> dict[str, Any]:
        """Returns the defaults of these keys that a broker's configuration sets with their synonyms."""
        defaults: dict[str, Any] = {}
        for key in self.keys.values():
            for synonym in key.synonyms:
                if synonym.name in server:
                    defaults[key.name] = synonym.scale(key.parse(server[synonym.name], synonym.name))
                    break
        return defaults

    def markdown(self, topics: bool = True) -> str:
        """Returns the reference table of these keys.

        For topic configs it has a column of broker configs, for other configs a column for dynamic configs.
        """
        extra_column = "broker key" if topics else "dynamic"
        lines = [f"| key | type | default | allowed | {extra_column} | meaning |", "|---|---|---|---|---|---|"]
        for key in sorted(self.keys.values(), key=lambda key: key.name):
            default = key.format(key.default)
            synonyms = ", ".join(f"`{synonym.name}`" for synonym in key.synonyms)
            allowed = key.expected() if key.choices or key.low is not None else ""
            lines.append(
                f"| `{key.name}` | {key.type.value} | {f'`{default}`' if default else ''} | {allowed} "
                f"| {synonyms if topics else 'yes' if key.dynamic else 'no'} | {key.doc} |"
            )
        return "\n".join(lines) + "\n"


def unknown_key(name: str, known_names: Iterable[str]) -> ConfigError:
    """Returns the error for an unknown key, with the most similar known key."""
    similar_names = difflib.get_close_matches(name, list(known_names), n=1)
    return ConfigError(
        f"unknown configuration key {name!r}{f', did you mean {similar_names[0]!r}?' if similar_names else ''}"
    )
