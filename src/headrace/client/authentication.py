"""How a client authenticates with brokers: SASL, from its configuration. Owner: the loop."""

from headrace.client.config.sasl import sasl_client_config
from headrace.client.config.types import ClientConfig
from headrace.common.clock import Clock
from headrace.common.errors import ConfigError
from headrace.common.ids import Random
from headrace.net.broker_connection import BrokerConnection
from headrace.security.sasl_authenticator import SaslAuthenticator
from headrace.security.sasl_client import SaslLogin

__all__ = ["ClientAuthentication"]

_CREDENTIALS = ("sasl_jaas_config", "sasl_username", "sasl_password")


class ClientAuthentication:
    """Authenticates each connection of a client (`NetConfig.authenticate`). All connections share one login."""

    def __init__(self, login: SaslLogin, random: Random, timeout_ms: float):
        self._login = login
        self._authenticator = SaslAuthenticator(login, random, timeout_ms)

    @classmethod
    def make(cls, config: ClientConfig, clock: Clock, random: Random) -> "ClientAuthentication | None":
        """Returns None if `security.protocol` has no SASL. Raises ConfigError."""
        protocol = config.security_protocol
        if protocol.startswith("SASL_"):
            return cls(SaslLogin(sasl_client_config(config), clock), random, config.request_timeout_ms)
        for name in _CREDENTIALS:
            if config[name] is not None:
                raise ConfigError(
                    f"{name.replace('_', '.')} is set, but security.protocol={protocol} does not use it: expected "
                    f"{'SASL_SSL' if protocol == 'SSL' else 'SASL_PLAINTEXT or SASL_SSL'}"
                )
        return None

    async def __call__(self, connection: BrokerConnection) -> float | None:
        return await self._authenticator(connection)

    async def close(self) -> None:
        """Ends the refresh of tokens."""
        await self._login.close()
