"""The configuration keys that all clients have."""

import re

from headrace.client.config.sasl import SASL_KEYS, SASL_REFUSED, SASL_UNUSED, check_token_provider
from headrace.client.config.table import ObjectKey, check_callable
from headrace.client.config.tls import TLS_CLIENT_KEYS, TLS_REFUSED
from headrace.common.config import ConfigKey, ConfigType

__all__ = ["COMMON_KEYS", "COMMON_OBJECTS", "REFUSED", "UNUSED"]

INT, LONG, DOUBLE = ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE
BOOLEAN, STRING, LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST


def _check_patterns(values: tuple[str, ...]) -> str | None:
    for value in values:
        try:
            re.compile(value)
        except re.error as error:
            return f"{value!r} is not a regular expression: {error}"
    return None


COMMON_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "bootstrap.servers",
        LIST,
        ("localhost:9092",),
        "`host:port` of some brokers, from which the client discovers the whole cluster. Without a port it is 9092. "
        "IPv6: `[::1]:9092`.",
    ),
    ConfigKey("client.id", STRING, "headrace", "Identifies this client to brokers: in logs, metrics and quotas."),
    ConfigKey(
        "client.rack",
        STRING,
        "",
        "This client's rack. If the brokers select replicas by rack, consumers fetch from a replica in this rack.",
    ),
    ConfigKey(
        "client.dns.lookup",
        STRING,
        "use_all_dns_ips",
        "The client tries all addresses of a host name, one after the other.",
        choices=("use_all_dns_ips",),
    ),
    ConfigKey(
        "request.timeout.ms",
        INT,
        30_000,
        "How long to wait for a response before the request fails and the connection is closed.",
        low=1,
    ),
    ConfigKey("retry.backoff.ms", LONG, 100, "The wait before a retry; doubles with each failure.", low=0),
    ConfigKey("retry.backoff.max.ms", LONG, 1000, "The longest wait before a retry.", low=0),
    ConfigKey("reconnect.backoff.ms", LONG, 50, "The wait before reconnecting; doubles with each failure.", low=0),
    ConfigKey("reconnect.backoff.max.ms", LONG, 1000, "The longest wait before reconnecting.", low=0),
    ConfigKey(
        "socket.connection.setup.timeout.ms",
        LONG,
        10_000,
        "The timeout of the first connection attempt; doubles with each failure.",
        low=1,
    ),
    ConfigKey(
        "socket.connection.setup.timeout.max.ms",
        LONG,
        30_000,
        "The longest time that establishing a connection may take.",
        low=1,
    ),
    ConfigKey("connections.max.idle.ms", LONG, 540_000, "Close connections idle for this long; -1: never.", low=-1),
    ConfigKey("send.buffer.bytes", INT, -1, "The socket's send buffer; -1: the operating system's default.", low=-1),
    ConfigKey(
        "receive.buffer.bytes", INT, -1, "The socket's receive buffer; -1: the operating system's default.", low=-1
    ),
    ConfigKey(
        "receive.message.max.bytes",
        INT,
        100_000_000,
        "The largest response to accept. A larger one closes the connection: the peer is probably not a broker.",
        low=1000,
    ),
    ConfigKey("metadata.max.age.ms", LONG, 300_000, "Refresh metadata at least this often.", low=0),
    ConfigKey(
        "topic.metadata.refresh.fast.interval.ms",
        LONG,
        100,
        "The first wait before refreshing the metadata of a partition without a leader; doubles up to "
        "`retry.backoff.max.ms`.",
        low=1,
    ),
    ConfigKey(
        "topic.metadata.propagation.max.ms",
        LONG,
        30_000,
        "How long to retry a topic that the brokers do not know, in case it was just created.",
        low=0,
    ),
    ConfigKey(
        "topic.blacklist",
        LIST,
        (),
        "Regular expressions; the client treats matching topics as if they did not exist.",
        check=_check_patterns,
    ),
    ConfigKey(
        "metadata.recovery.strategy",
        STRING,
        "rebootstrap",
        "Whether to return to the bootstrap servers when none of the known brokers is reachable.",
        choices=("rebootstrap", "none"),
    ),
    ConfigKey(
        "metadata.recovery.rebootstrap.trigger.ms",
        LONG,
        300_000,
        "Return to the bootstrap servers after this long without metadata.",
        low=0,
    ),
    ConfigKey(
        "security.protocol",
        STRING,
        "PLAINTEXT",
        "The protocol for connections to brokers: with TLS (SSL), with authentication by SASL, or both (SASL_SSL).",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    *TLS_CLIENT_KEYS,
    ConfigKey(
        "statistics.interval.ms",
        LONG,
        0,
        "How often to call `stats_cb` with librdkafka's statistics; 0: never.",
        low=0,
    ),
    *SASL_KEYS,
)

COMMON_OBJECTS: tuple[ObjectKey, ...] = (
    ObjectKey("ssl.context", "ssl.SSLContext | None", "An `ssl.SSLContext` to use in place of the `ssl.*` keys."),
    ObjectKey(
        "error.cb",
        "Callable[[KafkaError], object] | None",
        "Called with errors that occur in the background, which no method call raises. `error.fatal` is True if the "
        "client cannot continue.",
        check=check_callable,
    ),
    ObjectKey(
        "throttle.cb",
        "Callable[[ThrottleEvent], object] | None",
        "Called with a ThrottleEvent when a broker throttles this client.",
        check=check_callable,
    ),
    ObjectKey(
        "stats.cb",
        "Callable[[str], object] | None",
        "Called with statistics as JSON every `statistics.interval.ms`.",
        check=check_callable,
    ),
    ObjectKey(
        "log.cb",
        "Callable[[LogEvent], object] | None",
        "Called with a LogEvent (level, facility, text) for each of this client's log lines.",
        check=check_callable,
    ),
    ObjectKey(
        "oauth.cb",
        "Callable[[str], Any] | None",
        "OAUTHBEARER: called with `sasl.oauthbearer.config` when a token is needed or expires soon. Returns the token "
        "and the time when it expires, in seconds since 1970, and optionally the principal and a dict of SASL "
        "extensions, as with confluent-kafka.",
        check=check_callable,
    ),
    ObjectKey(
        "sasl.oauth.token.provider",
        "TokenProvider | None",
        "OAUTHBEARER: an object whose method `token()` returns a token; it may be a coroutine. Its method "
        "`extensions()`, if any, returns a dict of SASL extensions. As with kafka-python and aiokafka.",
        check=check_token_provider,
    ),
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
    *SASL_UNUSED,
    "selector",
    "socket.keepalive.enable",
    "socket.nagle.disable",
    "socket.options",
)
"""Keys of kafka-python and librdkafka that have no effect here."""

_NO_PROXY = "proxies are not supported"
REFUSED: dict[str, str] = {
    "proxy.url": _NO_PROXY,
    "socks5.proxy": _NO_PROXY,
    **SASL_REFUSED,
    **TLS_REFUSED,
}
"""Keys that a client rejects, with the reason."""
