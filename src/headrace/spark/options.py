"""The options of the source, read and checked, and the way from `kafka.*` options to a client's settings.

Pure: no connection, no Spark. Runs in the driver's planners. Option keys are case-insensitive; names, defaults and
what is refused are those of Spark's Kafka connector.

Invariant: what is wrong is said here, before anything is asked of a broker, with the option's name, the value that was
given and what was expected.
"""

from collections.abc import Mapping

from headrace.client.consumer_keys import CONSUMER_KEYS
from headrace.client.producer_keys import PRODUCER_KEYS
from headrace.client.settings import ADMIN_KEYS, ALIASES, ClientTable
from headrace.common.config import unknown_key
from headrace.common.errors import ConfigError

__all__ = ["check_source_options", "client_settings", "lower_keys"]

_PREFIX = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"

_TABLES = {"consumer": CONSUMER_KEYS, "producer": PRODUCER_KEYS, "admin": ADMIN_KEYS}

_JAVA_ONLY = frozenset(
    (
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "config.providers",
        "enable.metrics.push",
        "group.remote.assignor",
        "internal.leave.group.on.close",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "metrics.recording.level",
        "partitioner.class",
        "security.providers",
        "share.acknowledgement.mode",
    )
)
"""Keys of Kafka's own clients that have no meaning here and that nobody relies on."""

MANAGED_BY_SOURCE: dict[str, str] = {
    "auto.offset.reset": "set the option 'startingOffsets' to say where a query begins; it then keeps track itself",
    "key.deserializer": "keys come as binary: cast or parse the column 'key'",
    "value.deserializer": "values come as binary: cast or parse the column 'value'",
    "enable.auto.commit": "the source commits no offsets: Spark's checkpoint has them",
    "interceptor.classes": "interceptors could change what is read",
}
"""Kafka keys that a reading user may not set, and why."""


def lower_keys(options: Mapping[str, str]) -> dict[str, str]:
    """The options with keys in lower case, as Spark hands them over anyway."""
    return {name.lower(): value for name, value in options.items()}


def client_settings(
    options: Mapping[str, str], kind: str = "consumer", refused: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The settings for a client ("consumer", "producer" or "admin") that the `kafka.*` options make, by Kafka's names.

    Keys in `refused` raise, with the reason. Keys that another kind of client has are passed over, since users give the
    same options to reading and writing; a key that no client has is an error.
    """
    given = lower_keys(options)
    table = _TABLES[kind]
    settings: dict[str, str] = {}
    for name, value in given.items():
        if not name.startswith(_PREFIX):
            continue
        key = name.removeprefix(_PREFIX)
        key = ALIASES.get(key, key)
        if refused is not None and key in refused:
            raise ConfigError(f"the option 'kafka.{key}' cannot be set: {refused[key]}")
        if _has(table, key):
            settings[key] = value
        elif key in _JAVA_ONLY or any(_has(other, key) for other in _TABLES.values()):
            continue
        else:
            error = unknown_key(key, table.known())
            raise ConfigError(f"the option 'kafka.{key}': {error}")
    if not settings.get("bootstrap.servers", "").strip():
        raise ConfigError(
            f"the option '{BOOTSTRAP}' is missing: expected host:port of one or more brokers, separated by commas"
        )
    return settings


def _has(table: ClientTable, key: str) -> bool:
    return key in table.keys or key in table.objects or key in table.unused or key in table.refused


def check_source_options(options: Mapping[str, str]) -> None:
    """Raises what is wrong for any read, in batch or stream."""
    client_settings(options, refused=MANAGED_BY_SOURCE)
