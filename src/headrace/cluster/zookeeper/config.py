"""Configs of the connection to ZooKeeper, with Kafka's names.

`ZooKeeperConfig.from_properties` returns None without `zookeeper.connect`: the broker then uses its embedded store.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.cluster.store import StoreError, check_path
from headrace.cluster.zookeeper.tls import TlsConfig
from headrace.common.config import ConfigKey, ConfigTable, ConfigType
from headrace.common.errors import ConfigError

DEFAULT_PORT = 2181
_SERVER = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^\s:\[\],/]+)(?::(?P<port>\d+))?")
_PREFIX = "zookeeper.ssl."


def _key(name: str, kind: ConfigType, default: Any, doc: str, **limits: Any) -> ConfigKey:
    return ConfigKey(f"zookeeper.{name}", kind, default, doc, dynamic=False, **limits)


ZOOKEEPER_KEYS = ConfigTable(
    [
        _key(
            "connect",
            ConfigType.STRING,
            None,
            "The ZooKeeper servers of the cluster: `host:port,host:port/chroot`. The cluster's nodes are below the "
            "node `/chroot`, which is created if it does not exist. Without this config the broker stores the "
            "cluster's metadata in its log directory and is a cluster of one.",
        ),
        _key(
            "session.timeout.ms",
            ConfigType.INT,
            18_000,
            "How long ZooKeeper waits for a sign of life before it considers this broker dead.",
            low=1,
        ),
        _key(
            "connection.timeout.ms",
            ConfigType.INT,
            None,
            "How long the start of the broker waits for a connection to ZooKeeper. The default is "
            "`zookeeper.session.timeout.ms`.",
            low=1,
        ),
        _key(
            "max.in.flight.requests",
            ConfigType.INT,
            10,
            "The maximum number of requests to ZooKeeper without a response.",
            low=1,
        ),
        _key(
            "set.acl",
            ConfigType.BOOLEAN,
            False,
            "Whether nodes are created with ACLs: everybody may read, only their creator may write. Needs a TLS "
            "connection with a client certificate (`zookeeper.ssl.keystore.location`).",
        ),
        _key("ssl.client.enable", ConfigType.BOOLEAN, False, "Whether to connect to ZooKeeper with TLS."),
        _key(
            "ssl.keystore.location",
            ConfigType.STRING,
            None,
            "A PEM file with the private key and the certificate chain of this broker. (Kafka also reads JKS and "
            "PKCS12.)",
        ),
        _key("ssl.keystore.password", ConfigType.PASSWORD, None, "The password of the private key."),
        _key("ssl.keystore.type", ConfigType.STRING, None, "The format of the keystore: PEM."),
        _key(
            "ssl.truststore.location",
            ConfigType.STRING,
            None,
            "A PEM file with the certificates of the authorities that sign ZooKeeper's certificates. The default is "
            "the system's. (Kafka also reads JKS and PKCS12.)",
        ),
        _key("ssl.truststore.password", ConfigType.PASSWORD, None, "Not used: a PEM truststore has no password."),
        _key("ssl.truststore.type", ConfigType.STRING, None, "The format of the truststore: PEM."),
        _key(
            "ssl.protocol",
            ConfigType.STRING,
            "TLSv1.2",
            "The lowest TLS version, if `zookeeper.ssl.enabled.protocols` is not set. (Kafka: the only version.)",
        ),
        _key("ssl.enabled.protocols", ConfigType.LIST, (), "The enabled TLS versions: TLSv1.2, TLSv1.3."),
        _key("ssl.cipher.suites", ConfigType.LIST, (), "The enabled ciphers of TLS 1.2, with OpenSSL's names."),
        _key(
            "ssl.endpoint.identification.algorithm",
            ConfigType.STRING,
            "HTTPS",
            "HTTPS checks the host name in ZooKeeper's certificate; an empty value disables the check.",
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class ZooKeeperConfig:
    """Typed and checked values of `ZOOKEEPER_KEYS`."""

    servers: tuple[str, ...]
    """`host:port` of each server; IPv6 addresses in brackets."""
    chroot: str = ""
    """Empty, or a path without a slash at its end."""
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    max_in_flight: int = 10
    set_acl: bool = False
    tls: TlsConfig | None = None

    @property
    def connect(self) -> str:
        return ",".join(self.servers) + self.chroot

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> "ZooKeeperConfig | None":
        """Returns None without `zookeeper.connect`. Raises ConfigError."""
        values = ZOOKEEPER_KEYS.parse(properties)
        if not values["zookeeper_connect"]:
            return None
        servers, chroot = parse_connect(values["zookeeper_connect"])
        session_timeout_ms = values["zookeeper_session_timeout_ms"]
        tls = None
        if values["zookeeper_ssl_client_enable"]:
            tls = TlsConfig(
                keystore=values["zookeeper_ssl_keystore_location"] or None,
                keystore_password=values["zookeeper_ssl_keystore_password"],
                keystore_type=values["zookeeper_ssl_keystore_type"] or None,
                truststore=values["zookeeper_ssl_truststore_location"] or None,
                truststore_type=values["zookeeper_ssl_truststore_type"] or None,
                protocols=values["zookeeper_ssl_enabled_protocols"] or (values["zookeeper_ssl_protocol"], "TLSv1.3"),
                ciphers=values["zookeeper_ssl_cipher_suites"],
                check_hostname=values["zookeeper_ssl_endpoint_identification_algorithm"].upper() == "HTTPS",
            )
            tls.check()
        if values["zookeeper_set_acl"] and (tls is None or tls.keystore is None):
            raise ConfigError(
                "zookeeper.set.acl=true needs an authenticated connection to ZooKeeper: set "
                "zookeeper.ssl.client.enable=true and zookeeper.ssl.keystore.location (SASL is not supported)"
            )
        return cls(
            servers=servers,
            chroot=chroot,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=values["zookeeper_connection_timeout_ms"] or session_timeout_ms,
            max_in_flight=values["zookeeper_max_in_flight_requests"],
            set_acl=values["zookeeper_set_acl"],
            tls=tls,
        )


def parse_connect(text: str) -> tuple[tuple[str, ...], str]:
    """Parses `host:port,host:port/chroot`. Returns the servers with their ports, and the chroot."""
    addresses, slash, rest = text.strip().partition("/")
    servers: list[str] = []
    for address in (address.strip() for address in addresses.split(",")):
        match = _SERVER.fullmatch(address)
        if match is None or not 0 < int(match["port"] or DEFAULT_PORT) < 65536:
            raise ConfigError(
                f"zookeeper.connect={text} is invalid: {address!r} is not a server, expected host:port,host:port/chroot"
            )
        servers.append(f"{match['host']}:{match['port'] or DEFAULT_PORT}")
    chroot = f"/{rest}".rstrip("/") if slash else ""
    try:
        check_path(chroot or "/")
    except StoreError as error:
        raise ConfigError(f"zookeeper.connect={text} has an invalid chroot: {error}") from None
    return tuple(dict.fromkeys(servers)), chroot
