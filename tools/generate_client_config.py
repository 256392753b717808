"""Generates the types of the clients' configuration from the tables of keys in `headrace.client.config`.

    src/headrace/client/config/keywords.py    one TypedDict per client: the constructors' keyword arguments
    src/headrace/client/config/types.py       one frozen dataclass per client: the parsed configuration

`make docs` runs it; a test checks that both files are current.
"""

import textwrap
from pathlib import Path
from typing import Any

from headrace.client.config.admin import ADMIN_KEYS
from headrace.client.config.common import COMMON_KEYS, COMMON_OBJECTS
from headrace.client.config.consumer import CONSUMER_KEYS
from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.config.table import ClientTable, ObjectKey
from headrace.common.config import ConfigKey, ConfigType

PACKAGE = Path(__file__).parents[1] / "src/headrace/client/config"

_TYPES = {
    ConfigType.INT: "int",
    ConfigType.LONG: "int",
    ConfigType.DOUBLE: "float",
    ConfigType.BOOLEAN: "bool",
    ConfigType.STRING: "str",
    ConfigType.PASSWORD: "str",
}
_KEYWORD_TYPES = {
    "acks": 'Literal["all", "-1", "0", "1", -1, 0, 1]',
    "retries": "float",
    "consumer.timeout.ms": "float",
}
"""Keyword arguments that accept more than the type of the key: kafka-python takes `float("inf")` for two of them."""
_PARSED_TYPES = {"acks": "Literal[-1, 0, 1]"}

_IMPORTS = """\
if TYPE_CHECKING:
    import ssl

    from headrace.client.consumer.deserializers import AnyDeserializer
    from headrace.client.consumer.interceptors import ConsumerInterceptor
    from headrace.client.consumer.subscription_state import ConsumerRebalanceListener
    from headrace.client.events import LogEvent, ThrottleEvent
    from headrace.client.group.assignors.assignor import Assignor
    from headrace.client.producer.interceptors import ProducerInterceptor
    from headrace.client.producer.partitioners import Partitioner
    from headrace.client.producer.serializers import AnySerializer
    from headrace.client.producer.types import OnDelivery
    from headrace.client.types import OnCommit
    from headrace.common.errors import KafkaError
    from headrace.common.types import TopicPartition
    from headrace.security.sasl_client import TokenProvider
"""

_KEYWORDS = '''\
"""The keyword arguments of the clients' constructors: every configuration key, typed and documented.

Generated from the tables of keys by `tools/generate_client_config.py`; `make docs` writes it again. The constructors
also accept a mapping with Kafka's names, which may contain keys that have no effect and librdkafka's names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict

from headrace.client.types import K, V

{imports}
__all__ = ["AdminKeywords", "ConsumerKeywords", "ProducerKeywords"]


class CommonKeywords(TypedDict, total=False):
    """Keyword arguments of all clients."""

{common}

class ProducerKeywords(CommonKeywords, total=False):
    """Keyword arguments of `Producer`."""

{producer}

class ConsumerKeywords(CommonKeywords, Generic[K, V], total=False):
    """Keyword arguments of `Consumer`. The deserializers determine the types of keys and values."""

{consumer}

class AdminKeywords(CommonKeywords, total=False):
    """Keyword arguments of `Admin`."""

{admin}'''

_PARSED = '''\
"""The parsed configuration of the clients: frozen, so any thread may read it. `keywords` documents the keys.

Generated from the tables of keys by `tools/generate_client_config.py`; `make docs` writes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from headrace.client.config.mapping import ConfigMapping

{imports}
__all__ = ["AdminConfig", "ClientConfig", "ConsumerConfig", "ProducerConfig"]


@dataclass(frozen=True, kw_only=True)
class ClientConfig(ConfigMapping):
    """The configuration that all clients have."""

    explicit: frozenset[str]
    """The keys that the user set."""
{common}

@dataclass(frozen=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The configuration of a producer."""

{producer}

@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The configuration of a consumer."""

{consumer}

@dataclass(frozen=True, kw_only=True)
class AdminConfig(ClientConfig):
    """The configuration of an admin client."""

{admin}'''

Keys = list[ConfigKey | ObjectKey]


def _keys(table: ClientTable[Any]) -> Keys:
    shared: Keys = [*COMMON_KEYS, *COMMON_OBJECTS]
    names = {key.name for key in shared}
    own: Keys = [*table.keys.values(), *table.objects.values()]
    return [key for key in own if key.name not in names]


def _literal(key: ConfigKey) -> str | None:
    if key.choices is None or key.type is not ConfigType.STRING:
        return None
    choices = ", ".join(f'"{choice}"' for choice in key.choices)
    return f"Literal[{choices}]"


def _keyword_type(key: ConfigKey | ObjectKey) -> str:
    if isinstance(key, ObjectKey):
        return key.annotation if key.annotation.endswith("None") else f"{key.annotation} | None"
    if key.type is ConfigType.LIST:
        return "str | Sequence[str] | None"
    return f"{_KEYWORD_TYPES.get(key.name) or _literal(key) or _TYPES[key.type]} | None"


def _parsed_type(key: ConfigKey | ObjectKey) -> str:
    if isinstance(key, ObjectKey):
        return key.annotation.replace("[K]", "[Any]").replace("[V]", "[Any]")
    if key.type is ConfigType.LIST:
        return "tuple[str, ...]"
    plain = _PARSED_TYPES.get(key.name) or _literal(key) or _TYPES[key.type]
    return plain if key.default is not None else f"{plain} | None"


def _doc(key: ConfigKey | ObjectKey) -> str:
    text = f"`{key.name}`: {key.doc}"
    if isinstance(key, ConfigKey) and (default := key.format(key.default)):
        text += f" Default: `{default}`."
    lines = textwrap.wrap(text, 110, break_long_words=False, break_on_hyphens=False)
    return '    """' + "\n    ".join(lines) + '"""\n'


def _keywords(keys: Keys) -> str:
    return "".join(f"    {key.attribute}: {_keyword_type(key)}\n{_doc(key)}" for key in keys)


def _parsed(keys: Keys) -> str:
    hidden = " = field(repr=False)"
    return "".join(f"    {key.attribute}: {_parsed_type(key)}{hidden if _is_secret(key) else ''}\n" for key in keys)


def _is_secret(key: ConfigKey | ObjectKey) -> bool:
    return key.name.endswith("password") or (isinstance(key, ConfigKey) and key.type is ConfigType.PASSWORD)


def files() -> dict[Path, str]:
    """Returns the content of each generated file by its path."""
    groups: dict[str, Keys] = {
        "common": [*COMMON_KEYS, *COMMON_OBJECTS],
        "producer": _keys(PRODUCER_KEYS),
        "consumer": _keys(CONSUMER_KEYS),
        "admin": _keys(ADMIN_KEYS),
    }
    return {
        PACKAGE / "keywords.py": _KEYWORDS.format(
            imports=_IMPORTS,
            **{name: _keywords(keys) for name, keys in groups.items()},
        ),
        PACKAGE / "types.py": _PARSED.format(
            imports=_IMPORTS,
            **{name: _parsed(keys) for name, keys in groups.items()},
        ),
    }


if __name__ == "__main__":
    for path, content in files().items():
        path.write_text(content)
        print(f"wrote {path}")
