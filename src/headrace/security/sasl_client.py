"""The client's SASL login: from settings to exchanges. Clients use it, and brokers that connect to brokers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.common.clock import Clock
from headrace.common.errors import ConfigError
from headrace.security.credentials import SCRAM_MECHANISMS
from headrace.security.jaas import JaasEntry, parse_jaas_for
from headrace.security.kerberos import GssapiClient, KerberosIdentity, load_gssapi
from headrace.security.oauth_login import make_token
from headrace.security.oauth_tokens import RefreshingToken
from headrace.security.oauthbearer import OAuthBearerClient
from headrace.security.plain import PlainClient
from headrace.security.sasl import MECHANISMS, OAUTHBEARER, PLAIN, ClientMechanism
from headrace.security.sasl_keys import LOGIN_KEYS
from headrace.security.scram import ScramClient, ScramKeyCache

__all__ = ["SaslClientConfig", "SaslLogin", "TokenProvider"]


class TokenProvider(Protocol):
    """kafka-python's and aiokafka's interface: an object that returns OAuth tokens."""

    def token(self) -> Any:
        """Returns a token, or an awaitable of one. Called whenever a token is needed or expires soon."""


@dataclass(frozen=True, kw_only=True)
class SaslClientConfig:
    """The values of `LOGIN_KEYS`, under their names without `sasl.`, and the objects that provide tokens."""

    mechanism: str
    jaas_config: str | None = field(default=None, repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    kerberos_service_name: str | None = None
    kerberos_principal: str | None = None
    kerberos_keytab: str | None = None
    kerberos_domain_name: str | None = None
    login_callback_handler_class: str | None = None
    oauthbearer_token_endpoint_url: str | None = None
    oauthbearer_client_credentials_client_id: str | None = None
    oauthbearer_client_credentials_client_secret: str | None = field(default=None, repr=False)
    oauthbearer_scope: str | None = None
    oauthbearer_extensions: str | None = field(default=None, repr=False)
    oauthbearer_config: str | None = field(default=None, repr=False)
    oauthbearer_method: str = "default"
    enable_sasl_oauthbearer_unsecure_jwt: bool = False
    oauthbearer_header_urlencode: bool = False
    oauthbearer_jwt_retriever_class: str = ""
    oauthbearer_jwt_validator_class: str = ""
    oauthbearer_scope_claim_name: str = "scope"
    oauthbearer_sub_claim_name: str = "sub"
    login_connect_timeout_ms: int | None = None
    login_read_timeout_ms: int | None = None
    login_retry_backoff_ms: int = 100
    login_retry_backoff_max_ms: int = 10_000
    login_refresh_window_factor: float = 0.8
    login_refresh_window_jitter: float = 0.05
    login_refresh_min_period_seconds: int = 60
    login_refresh_buffer_seconds: int = 300
    oauth_token_provider: TokenProvider | None = field(default=None, repr=False)
    oauth_cb: Callable[[str], Any] | None = field(default=None, repr=False)
    """confluent-kafka's: a function that returns a token and the time when it expires."""

    @classmethod
    def load(
        cls,
        values: Mapping[str, object],
        oauth_token_provider: TokenProvider | None = None,
        oauth_cb: Callable[[str], Any] | None = None,
    ) -> "SaslClientConfig":
        """Creates it from values by Kafka's key, which may be parsed. Ignores other keys. Raises ConfigError.

        A broker that connects to other brokers passes the values of its inter-broker listener and mechanism.
        """
        given = {key: value for key, value in LOGIN_KEYS.select(values).items() if value is not None}
        parsed = {name.removeprefix("sasl_"): value for name, value in LOGIN_KEYS.parse(given).items()}
        return cls(**parsed, oauth_token_provider=oauth_token_provider, oauth_cb=oauth_cb)


class SaslLogin:
    """The identity of a client, made once from its configuration. Raises ConfigError."""

    def __init__(self, config: SaslClientConfig, clock: Clock):
        if config.mechanism not in MECHANISMS:
            raise ConfigError(f"sasl.mechanism={config.mechanism} is unknown: expected one of {', '.join(MECHANISMS)}")
        self.name = config.mechanism
        """The mechanism."""
        self._jaas: JaasEntry | None = None
        if config.jaas_config:
            if config.username is not None or config.password is not None:
                raise ConfigError("Set either sasl.jaas.config, or sasl.username and sasl.password, not both")
            self._jaas = parse_jaas_for(self.name, config.jaas_config)
        self._username, self._password, self._is_token = "", "", False
        self._scram_keys = ScramKeyCache()
        self._token: RefreshingToken | None = None
        self._kerberos: KerberosIdentity | None = None
        self._kerberos_host: str | None = None
        if self.name == PLAIN or self.name in SCRAM_MECHANISMS:
            self._set_password(config)
        elif self.name == OAUTHBEARER:
            self._token = make_token(config, self._jaas, clock)
        else:
            load_gssapi()
            self._kerberos = KerberosIdentity.make(
                self._jaas, config.kerberos_service_name, config.kerberos_principal, config.kerberos_keytab
            )
            self._kerberos_host = config.kerberos_domain_name

    def _set_password(self, config: SaslClientConfig) -> None:
        if self._jaas is not None:
            self._username, self._password = self._jaas.require("username"), self._jaas.require("password")
            self._is_token = self._jaas.is_true("tokenauth")
            return
        for key, value in (("sasl.username", config.username), ("sasl.password", config.password)):
            if not value:
                raise ConfigError(f"sasl.mechanism={self.name} needs {key}, or sasl.jaas.config")
        self._username, self._password = config.username or "", config.password or ""

    async def mechanism(self, host: str) -> ClientMechanism:
        """Returns a new exchange with the broker on a host. May fetch or refresh a token first.

        Raises SaslAuthenticationFailedError if there is no valid token.
        """
        if self._token is not None:
            token = await self._token.get()
            return OAuthBearerClient(token.value, token.extensions)
        if self._kerberos is not None:
            # Tickets are kept in memory under the name of this login, and end with the process.
            return GssapiClient(self._kerberos, self._kerberos_host or host, f"MEMORY:headrace-{id(self)}")
        if self.name == PLAIN:
            return PlainClient(self._username, self._password)
        return ScramClient(
            SCRAM_MECHANISMS[self.name], self._username, self._password, self._is_token, self._scram_keys
        )

    async def close(self) -> None:
        """Releases what the login holds. Call it with the client's end."""
