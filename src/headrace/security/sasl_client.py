"""The client's SASL login: from settings to exchanges. Clients use it, and brokers that connect to brokers."""

from dataclasses import dataclass, field

from headrace.common.clock import Clock
from headrace.common.errors import ConfigError
from headrace.security.credentials import SCRAM_MECHANISMS
from headrace.security.jaas import JaasEntry, parse_jaas_for
from headrace.security.plain import PlainClient
from headrace.security.sasl import MECHANISMS, PLAIN, ClientMechanism
from headrace.security.scram import ScramClient, ScramKeyCache

__all__ = ["SaslClientConfig", "SaslLogin"]


@dataclass(frozen=True, kw_only=True)
class SaslClientConfig:
    """The `sasl.*` settings of a client. Credentials come from the JAAS configuration, or from user and password."""

    mechanism: str
    """`sasl.mechanism`."""
    jaas_config: str | None = field(default=None, repr=False)
    """`sasl.jaas.config`."""
    username: str | None = None
    """`sasl.username`, `sasl_plain_username`."""
    password: str | None = field(default=None, repr=False)
    """`sasl.password`, `sasl_plain_password`."""


class SaslLogin:
    """The identity of a client, made once from its configuration. Raises ConfigError."""

    def __init__(self, config: SaslClientConfig, clock: Clock):
        if config.mechanism not in MECHANISMS:
            raise ConfigError(f"sasl.mechanism={config.mechanism} is unknown: expected one of {', '.join(MECHANISMS)}")
        self.name = config.mechanism
        """The mechanism."""
        self._clock = clock
        self._jaas: JaasEntry | None = None
        if config.jaas_config:
            if config.username is not None or config.password is not None:
                raise ConfigError("Set either sasl.jaas.config, or sasl.username and sasl.password, not both")
            self._jaas = parse_jaas_for(self.name, config.jaas_config)
        self._username, self._password, self._is_token = "", "", False
        self._scram_keys = ScramKeyCache()
        if self.name == PLAIN or self.name in SCRAM_MECHANISMS:
            self._set_password(config)
        else:
            raise ConfigError(f"sasl.mechanism={self.name} is not supported yet")

    def _set_password(self, config: SaslClientConfig) -> None:
        if self._jaas is not None:
            self._username, self._password = self._jaas.require("username"), self._jaas.require("password")
            self._is_token = self._jaas.is_true("tokenauth")
            return
        for key, value in (("sasl.username", config.username), ("sasl.password", config.password)):
            if not value:
                raise ConfigError(f"sasl.mechanism={self.name} needs {key}, or sasl.jaas.config")
        self._username, self._password = config.username or "", config.password or ""

    async def mechanism(self, host: str) -> ClientMechanism:  # noqa: ARG002 - GSSAPI needs it
        """Returns a new exchange with the broker on a host. May fetch or refresh a token first.

        Raises SaslAuthenticationFailedError if there is no valid token.
        """
        if self.name == PLAIN:
            return PlainClient(self._username, self._password)
        return ScramClient(
            SCRAM_MECHANISMS[self.name], self._username, self._password, self._is_token, self._scram_keys
        )

    async def close(self) -> None:
        """Stops background work, such as the refresh of tokens."""
