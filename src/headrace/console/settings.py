"""What the console is started with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.common.errors import ConfigError

DEFAULT_CLUSTER = "default"
HISTORY_TOPIC = "__headrace_console"
_SECURED = ("SASL_PLAINTEXT", "SASL_SSL")
_PASSWORD_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """A cluster to show."""

    name: str
    servers: str
    config: Mapping[str, str] = field(default_factory=dict)
    """Client configs by Kafka's dotted names, with the credentials of the console itself."""
    metrics_urls: Mapping[int, str] = field(default_factory=dict)
    """The URL of the metrics endpoint of each broker, by broker id."""

    def __post_init__(self) -> None:
        if not self.name or any(not (char.isalnum() or char in "-_.") for char in self.name):
            raise ConfigError(f"Cluster name {self.name!r}: expected letters, digits, '-', '_' and '.'")

    @property
    def protocol(self) -> str:
        return str(self.config.get("security.protocol", "PLAINTEXT")).strip().upper()

    @property
    def needs_login(self) -> bool:
        """On a cluster with SASL, people log in with their own credentials."""
        return self.protocol in _SECURED

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms of a login: with user name and password. First the one that the console uses itself."""
        if not self.needs_login:
            return ()
        own = str(self.config.get("sasl.mechanism", "")).strip().upper()
        first = (own,) if own in _PASSWORD_MECHANISMS else ()
        return (*first, *(name for name in _PASSWORD_MECHANISMS if name not in first))


@dataclass(frozen=True, kw_only=True)
class ConsoleSettings:
    """The options of `headrace console`."""

    clusters: tuple[ClusterSettings, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    write: bool = False
    """Whether changes are allowed on clusters without login. With login, ACLs decide."""
    interval_seconds: float = 5.0
    """The time between two collections."""
    history_hours: float = 24.0
    history_topic: str | None = HISTORY_TOPIC
    """None keeps the history in memory only."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names under which browsers may reach the console."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    secure_cookies: bool = False
    """Set behind a proxy that ends TLS."""
    decoders: tuple[str, ...] = ()
    """The values of --decoder."""
    session_idle_seconds: float = 3600.0
    session_seconds: float = 12 * 3600.0

    def __post_init__(self) -> None:
        names = [cluster.name for cluster in self.clusters]
        if not names:
            raise ConfigError("The console needs at least one cluster")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"The console has two clusters with the name {twice[0]!r}: give each its own")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both a certificate and its private key")

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the console over TLS."""
        return self.secure_cookies or self.tls_certificate is not None
