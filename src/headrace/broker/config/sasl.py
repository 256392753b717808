"""The configs of SASL: mechanisms of listeners, sessions, and how brokers authenticate with each other.

    SASL_KEYS          the keys of the broker
    SASL_LISTENER_KEYS those of them that may have the prefix of a listener, or of a listener and a mechanism

    sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
    listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
        username="broker" password="..." user_broker="..." user_alice="...";

`username` and `password` are those with which this broker logs in to other brokers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.common.config import ConfigKey, ConfigTable, ConfigType
from headrace.common.errors import ConfigError
from headrace.security.sasl import MECHANISMS
from headrace.security.sasl_keys import LOGIN_KEYS, SERVER_KEYS

_CLIENT_ONLY = frozenset(
    {
        "enable.sasl.oauthbearer.unsecure.jwt",
        "sasl.mechanism",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.method",
        "sasl.password",
        "sasl.username",
    }
)
"""Keys of clients that Kafka's brokers do not have."""

_LISTENER_KEYS = [
    ConfigKey(
        "sasl.enabled.mechanisms",
        ConfigType.LIST,
        ("GSSAPI",),
        "The SASL mechanisms that clients may use on listeners with SASL.",
        choices=MECHANISMS,
        dynamic=False,
    ),
    ConfigKey(
        "sasl.server.max.receive.size",
        ConfigType.INT,
        524_288,
        "The maximum size of a request before the client is authenticated. Larger ones close the connection.",
        low=1,
        dynamic=False,
    ),
    ConfigKey(
        "connections.max.reauth.ms",
        ConfigType.LONG,
        0,
        "How long a client may use a connection without authenticating again; connections that are used longer are "
        "closed. 0: as long as its credentials are valid.",
        low=0,
        dynamic=False,
    ),
]

SASL_LISTENER_KEYS = ConfigTable(
    {
        key.name: key
        for key in [*_LISTENER_KEYS, *SERVER_KEYS.keys.values(), *LOGIN_KEYS.keys.values()]
        if key.name not in _CLIENT_ONLY
    }.values()
)

SASL_KEYS = ConfigTable(
    [
        *SASL_LISTENER_KEYS.keys.values(),
        ConfigKey(
            "sasl.mechanism.inter.broker.protocol",
            ConfigType.STRING,
            "GSSAPI",
            "The SASL mechanism between brokers, if their listener has SASL.",
            choices=MECHANISMS,
            dynamic=False,
        ),
        ConfigKey(
            "connection.failed.authentication.delay.ms",
            ConfigType.INT,
            100,
            "How long to wait before a connection is closed whose authentication has failed. Nothing is read from it "
            "meanwhile.",
            low=0,
            dynamic=False,
        ),
    ]
)


@dataclass(frozen=True)
class SaslMechanismConfig:
    """The settings of one mechanism on one listener."""

    max_reauth_ms: int
    values: Mapping[str, Any] = field(repr=False)
    """The values of `SASL_LISTENER_KEYS` by the names of the keys."""


@dataclass(frozen=True)
class SaslListenerConfig:
    """The settings of one listener with SASL."""

    mechanisms: Mapping[str, SaslMechanismConfig]
    """The enabled mechanisms, in order."""
    max_receive_bytes: int


@dataclass(frozen=True)
class SaslConfig:
    """The settings of all listeners with SASL, and of the logins to other brokers."""

    listeners: Mapping[str, SaslListenerConfig]
    inter_broker_mechanism: str
    failure_delay_ms: int

    @classmethod
    def make(
        cls,
        values: Mapping[str, Any],
        listeners: Mapping[str, Mapping[str, Mapping[str, Any]]],
        login_listeners: tuple[str, ...],
    ) -> "SaslConfig":
        """Creates it from the values of the broker by attribute, and for each listener with SASL its values by
        mechanism; the mechanism "" has the values of the listener. Raises ConfigError.

        `login_listeners`: the listeners through which brokers connect to each other.
        """
        mechanism = values["sasl_mechanism_inter_broker_protocol"]
        made = {name: _listener(name, by_mechanism) for name, by_mechanism in listeners.items()}
        for name in login_listeners:
            if name in made and mechanism not in made[name].mechanisms:
                raise ConfigError(
                    f"sasl.mechanism.inter.broker.protocol={mechanism} must be one of the enabled mechanisms of the "
                    f"listener {name}, which brokers use to connect to each other: "
                    f"{', '.join(made[name].mechanisms)} (sasl.enabled.mechanisms)"
                )
        return cls(made, mechanism, values["connection_failed_authentication_delay_ms"])


def _listener(name: str, by_mechanism: Mapping[str, Mapping[str, Any]]) -> SaslListenerConfig:
    own = by_mechanism[""]
    enabled = own["sasl.enabled.mechanisms"]
    if not enabled:
        raise ConfigError(f"Listener {name} has SASL, so sasl.enabled.mechanisms must not be empty")
    mechanisms = {}
    for mechanism in enabled:
        values = by_mechanism.get(mechanism, own)
        mechanisms[mechanism] = SaslMechanismConfig(values["connections.max.reauth.ms"], values)
    return SaslListenerConfig(mechanisms, own["sasl.server.max.receive.size"])
