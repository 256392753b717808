"""The broker's SASL mechanisms: from the settings of a listener and a mechanism to a factory of exchanges."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.common.clock import Clock
from headrace.common.errors import ConfigError
from headrace.security.credentials import SCRAM_MECHANISMS, CredentialStore, ScramCredential, TokenCredential
from headrace.security.jaas import JaasEntry, parse_jaas_for
from headrace.security.plain import PlainServer, PlainUsers
from headrace.security.sasl import MECHANISMS, PLAIN, ServerMechanism
from headrace.security.scram import ScramServer, UnknownUsers

__all__ = [
    "CredentialStore",
    "SaslServerConfig",
    "ScramCredential",
    "ServerMechanismFactory",
    "TokenCredential",
    "make_server_mechanism_factory",
]


@dataclass(frozen=True)
class SaslServerConfig:
    """The settings of one mechanism on one listener."""

    values: Mapping[str, object] = field(repr=False)
    """Values by Kafka's key, without the prefix of listener and mechanism: `sasl.jaas.config`, `sasl.oauthbearer.*`,
    `sasl.kerberos.*`, `headrace.oauthbearer.*`. Other keys are ignored."""

    def text(self, key: str) -> str:
        value = self.values.get(key)
        return "" if value is None else str(value)


class ServerMechanismFactory:
    """Creates the broker's side of exchanges."""

    def __init__(self, create: Callable[[], ServerMechanism], close: Callable[[], object] = lambda: None):
        self._create = create
        self._close = close

    def __call__(self) -> ServerMechanism:
        return self._create()

    def close(self) -> None:
        """Stops background work, such as the refresh of OAUTHBEARER's keys."""
        self._close()


def make_server_mechanism_factory(
    mechanism: str, config: SaslServerConfig, credentials: CredentialStore, clock: Clock
) -> ServerMechanismFactory:
    """Returns the factory of a mechanism. Raises ConfigError for bad settings.

    Call it at the start of the broker. It reads files and, for OAUTHBEARER with a URL, fetches keys: not on a loop that
    already serves connections. Close the factory with the listener.
    """
    if mechanism not in MECHANISMS:
        raise ConfigError(f"Unknown SASL mechanism {mechanism!r}: expected one of {', '.join(MECHANISMS)}")
    text = config.text("sasl.jaas.config")
    jaas = parse_jaas_for(mechanism, text) if text else None
    if mechanism == PLAIN:
        return _plain(jaas)
    if mechanism in SCRAM_MECHANISMS:
        unknown_users = UnknownUsers()
        scram = SCRAM_MECHANISMS[mechanism]
        return ServerMechanismFactory(lambda: ScramServer(scram, credentials, unknown_users, clock))
    raise ConfigError(f"The SASL mechanism {mechanism} is not supported yet")


def _plain(jaas: JaasEntry | None) -> ServerMechanismFactory:
    if jaas is None:
        raise ConfigError(
            "The SASL mechanism PLAIN needs its users: set listener.name.<listener>.plain.sasl.jaas.config="
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="<password>";'
        )
    users = PlainUsers(jaas)
    return ServerMechanismFactory(lambda: PlainServer(users))
