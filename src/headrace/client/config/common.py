"""The clients' settings: one table for each client, from which parsing, checks and the reference page come.

A key may be written as Kafka writes it (`bootstrap.servers`) or as kafka-python does (`bootstrap_servers`). None stands
for the default. Objects (serializers, callbacks, an SSL context) are taken as they are. An unknown key is an error that
names the likely one.

    settings = ClientSettings.load(PRODUCER_KEYS, {"bootstrap.servers": "a:9092"}, acks="all")
    settings.bootstrap_servers          # ("a:9092",), by attribute; frozen, so any thread may read it
    settings.acks                       # -1, 0 or 1: always a number
"""

import logging
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.common.config import INT_MAX, LONG_MAX, ConfigKey, ConfigTable, ConfigType, unknown_key
from headrace.common.errors import ConfigError

_logger = logging.getLogger(__name__)

INT, LONG, DOUBLE = ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE
BOOLEAN, STRING, LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST

_ENDLESS = {"retries": INT_MAX, "consumer.timeout.ms": LONG_MAX}
"""Keys that also take `float("inf")`, as kafka-python's do."""


@dataclass(frozen=True)
class ObjectKey:
    """A setting that is a Python object, taken as it is."""

    name: str
    default: Any
    doc: str

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")


class ClientTable:
    """The keys of one client: values with a type, objects, and keys that are accepted and do nothing."""

    def __init__(
        self,
        keys: Iterable[ConfigKey],
        objects: Iterable[ObjectKey] = (),
        unused: Iterable[str] = (),
        refused: Mapping[str, str] | None = None,
    ):
        self.table = ConfigTable(keys)
        self.objects = {key.name: key for key in objects}
        self.unused = frozenset(unused)
        """Keys of other clients that change nothing here; a log line says so."""
        self.refused = dict(refused or {})
        """Keys that somebody would rely on, and why they cannot be set."""

    @property
    def keys(self) -> dict[str, ConfigKey]:
        return self.table.keys

    def known(self) -> list[str]:
        return [*self.table.keys, *self.objects]

    def markdown(self, without: Iterable[str] = ()) -> str:
        """The reference table of the keys, but for some that stand elsewhere."""
        passed = set(without)
        lines = ["| key | type | default | allowed | meaning |", "|---|---|---|---|---|"]
        for name in sorted(set(self.known()) - passed):
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


class ClientSettings:
    """Values by attribute name, frozen."""

    __slots__ = ("_values",)
    _values: dict[str, Any]

    def __init__(self, values: Mapping[str, Any]):
        object.__setattr__(self, "_values", dict(values))

    @classmethod
    def load(
        cls, table: ClientTable, given: Mapping[str, object] | None = None, /, **keywords: object
    ) -> "ClientSettings":
        """The settings of what a user gave, as a mapping and as keyword arguments; the latter win."""
        if given is not None and not isinstance(given, Mapping):
            raise ConfigError(
                f"settings are keyword arguments (bootstrap_servers=...) or a mapping, not {type(given).__name__}"
            )
        plain: dict[str, object] = {}
        values: dict[str, Any] = {key.attribute: key.default for key in table.objects.values()}
        for name, value in {**_dotted(given or {}), **_dotted(keywords)}.items():
            if name in table.refused:
                if value is not None:
                    raise ConfigError(f"{name}: {table.refused[name]}")
            elif name in table.objects:
                if value is not None:
                    values[table.objects[name].attribute] = value
            elif name in table.keys:
                if value is not None:
                    plain[name] = _plain(name, value)
            elif name in table.unused:
                if value is not None:
                    _logger.info("the setting %s is known and changes nothing", name)
            else:
                raise unknown_key(name, table.known())
        values.update(table.table.parse(plain))
        if "acks" in values:
            values["acks"] = -1 if values["acks"] == "all" else int(values["acks"])
        values["given"] = frozenset(plain)
        return cls(values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"there is no setting {name.replace('_', '.')!r}") from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("settings do not change")

    def replace(self, **values: object) -> "ClientSettings":
        """A copy with some values changed, by attribute name."""
        for name in values:
            if name not in self._values:
                raise AttributeError(f"there is no setting {name.replace('_', '.')!r}")
        return ClientSettings({**self._values, **values})

    def as_dict(self) -> dict[str, Any]:
        return dict(self._values)

    def __repr__(self) -> str:
        return f"ClientSettings({self._values!r})"


def _plain(name: str, value: object) -> object:
    """What kafka-python takes beside what Kafka does."""
    if name in _ENDLESS and value == math.inf:
        return _ENDLESS[name]
    return str(value) if name == "acks" and type(value) is int else value


def _dotted(given: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for written, value in given.items():
        if not isinstance(written, str):
            raise ConfigError(f"a configuration key is a str, not {written!r}")
        name = written.replace("_", ".")
        name = ALIASES.get(name, name)
        if name in found:
            raise ConfigError(f"{name} is given twice")
        found[name] = value
    return found


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
}
"""librdkafka's names for Kafka's keys."""


def _patterns(values: tuple[str, ...]) -> str | None:
    for value in values:
        try:
            re.compile(value)
        except re.error as error:
            return f"regular expressions, and {value!r} is none: {error}"
    return None


COMMON_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "bootstrap.servers",
        LIST,
        ("localhost:9092",),
        "Where to begin: `host:port` of a few brokers, which tell the others. Without a port: 9092.",
    ),
    ConfigKey(
        "client.id", STRING, "headrace", "What this client calls itself towards brokers: in logs, metrics and quotas."
    ),
    ConfigKey("client.rack", STRING, "", "Where this client is; with racks, consumers read from the closest replica."),
    ConfigKey(
        "client.dns.lookup",
        STRING,
        "use_all_dns_ips",
        "All addresses of a name are tried, one after the other.",
        choices=("use_all_dns_ips",),
    ),
    ConfigKey("request.timeout.ms", INT, 30_000, "How long a reply may take before the connection is given up.", low=1),
    ConfigKey(
        "retry.backoff.ms", LONG, 100, "The wait before a request is sent again; doubles with each failure.", low=0
    ),
    ConfigKey("retry.backoff.max.ms", LONG, 1000, "The longest wait before a request is sent again.", low=0),
    ConfigKey(
        "reconnect.backoff.ms", LONG, 50, "The wait before a broker is dialled again; doubles with each failure.", low=0
    ),
    ConfigKey("reconnect.backoff.max.ms", LONG, 1000, "The longest wait before a broker is dialled again.", low=0),
    ConfigKey(
        "socket.connection.setup.timeout.ms",
        LONG,
        10_000,
        "How long a connection may take until it can be used; doubles with each failure.",
        low=1,
    ),
    ConfigKey(
        "socket.connection.setup.timeout.max.ms",
        LONG,
        30_000,
        "The longest that a connection may take to come up.",
        low=1,
    ),
    ConfigKey(
        "connections.max.idle.ms", LONG, 540_000, "A connection unused for so long is closed; -1: never.", low=-1
    ),
    ConfigKey("send.buffer.bytes", INT, -1, "The socket's send buffer; -1 leaves it to the system.", low=-1),
    ConfigKey("receive.buffer.bytes", INT, -1, "The socket's receive buffer; -1 leaves it to the system.", low=-1),
    ConfigKey(
        "receive.message.max.bytes",
        INT,
        100_000_000,
        "The largest reply that is taken; what claims more is no broker.",
        low=1000,
    ),
    ConfigKey(
        "metadata.max.age.ms", LONG, 300_000, "What is known of the cluster is asked again when it is so old.", low=0
    ),
    ConfigKey(
        "topic.metadata.refresh.fast.interval.ms",
        LONG,
        100,
        "The first wait before a partition without a leader is asked for again; doubles up to `retry.backoff.max.ms`.",
        low=1,
    ),
    ConfigKey(
        "topic.metadata.propagation.max.ms",
        LONG,
        30_000,
        "How long a topic that brokers do not know may be one that they have not heard of yet.",
        low=0,
    ),
    ConfigKey(
        "topic.blacklist",
        LIST,
        (),
        "Regular expressions of topics that this client takes for not existing.",
        check=_patterns,
    ),
    ConfigKey(
        "metadata.recovery.strategy",
        STRING,
        "rebootstrap",
        "Whether the bootstrap servers are asked again when no known broker answers.",
        choices=("rebootstrap", "none"),
    ),
    ConfigKey(
        "metadata.recovery.rebootstrap.trigger.ms",
        LONG,
        300_000,
        "After so long without metadata the client begins again at its bootstrap servers.",
        low=0,
    ),
    ConfigKey(
        "security.protocol",
        STRING,
        "PLAINTEXT",
        "How brokers are talked to. SASL is still to come.",
        choices=("PLAINTEXT", "SSL"),
    ),
    ConfigKey(
        "ssl.check.hostname", BOOLEAN, True, "Whether a broker's certificate must be for the name that is dialled."
    ),
    ConfigKey(
        "ssl.cafile", STRING, None, "Certificates of authorities that are trusted, a PEM file. Without: the system's."
    ),
    ConfigKey("ssl.certfile", STRING, None, "This client's certificate, a PEM file."),
    ConfigKey("ssl.keyfile", STRING, None, "The certificate's key, a PEM file."),
    ConfigKey("ssl.password", STRING, None, "The key's password."),
    ConfigKey("ssl.crlfile", STRING, None, "Revoked certificates, a PEM file."),
    ConfigKey("ssl.ciphers", STRING, None, "Ciphers that may be used, in OpenSSL's notation."),
    ConfigKey(
        "statistics.interval.ms",
        LONG,
        0,
        "How often `stats_cb` is called with librdkafka's statistics; 0: never.",
        low=0,
    ),
)

COMMON_OBJECTS: tuple[ObjectKey, ...] = (
    ObjectKey("ssl.context", None, "An `ssl.SSLContext` of your own, instead of the `ssl.*` keys."),
    ObjectKey(
        "error.cb", None, "Called with a KafkaError that no call of yours would show; `fatal` marks the last one."
    ),
    ObjectKey("throttle.cb", None, "Called with a ThrottleEvent when a broker holds this client back."),
    ObjectKey("stats.cb", None, "Called with statistics as JSON every `statistics.interval.ms`."),
    ObjectKey("log.cb", None, "Called with a LogEvent (level, facility, text) for each line of this client's log."),
    ObjectKey("oauth.cb", None, "Called when an OAuth token must be refreshed. Without effect until there is SASL."),
)

UNUSED: tuple[str, ...] = (
    "api.version",
    "api.version.auto.timeout.ms",
    "api.version.request",
    "bootstrap.timeout.ms",
    "broker.address.family",
    "broker.version.fallback",
    "debug",
    "kafka.client",
    "log.connection.close",
    "log.level",
    "log.queue",
    "log.thread.name",
    "metric.group.prefix",
    "metric.reporters",
    "metrics.enabled",
    "metrics.num.samples",
    "metrics.sample.window.ms",
    "selector",
    "socket.keepalive.enable",
    "socket.nagle.disable",
    "socket.options",
)
"""Keys of kafka-python and librdkafka that change nothing here."""

_NO_SASL = "there is no SASL yet"
REFUSED: dict[str, str] = {
    "proxy.url": "there is no support for proxies",
    "socks5.proxy": "there is no support for proxies",
    **dict.fromkeys(
        (
            "sasl.mechanism",
            "sasl.mechanisms",
            "sasl.username",
            "sasl.password",
            "sasl.plain.username",
            "sasl.plain.password",
            "sasl.kerberos.name",
            "sasl.oauth.token.provider",
            "sasl.jaas.config",
        ),
        _NO_SASL,
    ),
    "ssl.ca.location": "give `ssl.cafile`, a PEM file",
    "ssl.certificate.location": "give `ssl.certfile`, a PEM file",
    "ssl.key.location": "give `ssl.keyfile`, a PEM file",
    "ssl.truststore.location": "give `ssl.cafile`, a PEM file",
    "ssl.keystore.location": "give `ssl.certfile` and `ssl.keyfile`, PEM files",
}

_KERBEROS_DEFAULTS = ("sasl.kerberos.service.name", "sasl.kerberos.domain.name")

ADMIN_KEYS = ClientTable(
    (
        *COMMON_KEYS,
        ConfigKey(
            "default.api.timeout.ms",
            INT,
            60_000,
            "How long a call may take, with all its retries, if it does not say.",
            low=1,
        ),
    ),
    COMMON_OBJECTS,
    (*UNUSED, *_KERBEROS_DEFAULTS, "retries", "max.in.flight.requests.per.connection"),
    REFUSED,
)
