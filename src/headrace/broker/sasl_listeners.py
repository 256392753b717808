"""Creates what the configs of SASL describe: the mechanisms of listeners, and the logins to other brokers."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from headrace.broker.authentication import SaslListener
from headrace.broker.config.sasl import SaslConfig, SaslMechanismConfig
from headrace.common.clock import Clock
from headrace.common.errors import ConfigError, KafkaError
from headrace.common.ids import Random
from headrace.common.logs import RateLimitedLog
from headrace.net.broker_connection import BrokerConnection
from headrace.net.errors import KafkaConnectionError
from headrace.security.credentials import CredentialStore
from headrace.security.sasl import ServerMechanism
from headrace.security.sasl_authenticator import SaslAuthenticator
from headrace.security.sasl_client import SaslClientConfig, SaslLogin
from headrace.security.sasl_server import SaslServerConfig, ServerMechanismFactory, make_server_mechanism_factory

_logger = logging.getLogger(__name__)


class SaslMechanisms:
    """The mechanisms of all listeners. `close` ends their background work."""

    def __init__(self, config: SaslConfig, credentials: CredentialStore, clock: Clock):
        """Reads files, and may fetch keys: not on the broker's loop. Raises ConfigError."""
        self.listeners: dict[str, SaslListener] = {}
        self._factories: list[ServerMechanismFactory] = []
        try:
            for name, listener in config.listeners.items():
                mechanisms: dict[str, Callable[[], ServerMechanism]] = {}
                for mechanism, settings in listener.mechanisms.items():
                    mechanisms[mechanism] = self._make(name, mechanism, settings, credentials, clock)
                max_reauth_ms = {mechanism: each.max_reauth_ms for mechanism, each in listener.mechanisms.items()}
                self.listeners[name] = SaslListener(mechanisms, max_reauth_ms, listener.max_receive_bytes)
        except BaseException:
            self.close()
            raise

    def _make(
        self, listener: str, mechanism: str, settings: SaslMechanismConfig, credentials: CredentialStore, clock: Clock
    ) -> ServerMechanismFactory:
        try:
            factory = make_server_mechanism_factory(mechanism, SaslServerConfig(settings.values), credentials, clock)
        except ConfigError as error:
            raise ConfigError(f"Listener {listener}, SASL mechanism {mechanism}: {error}") from None
        self._factories.append(factory)
        return factory

    def close(self) -> None:
        for factory in self._factories:
            factory.close()
        self._factories.clear()


class BrokerLogin:
    """How a broker authenticates with other brokers on a listener with SASL (`NetConfig.authenticate`)."""

    def __init__(self, listener: str, config: SaslConfig, clock: Clock, random: Random, timeout_ms: float):
        """Raises ConfigError if the listener has no credentials for this broker."""
        mechanism = config.inter_broker_mechanism
        values = config.listeners[listener].mechanisms[mechanism].values
        try:
            _check_token_url(values)
            self._login = SaslLogin(SaslClientConfig.load({**values, "sasl.mechanism": mechanism}), clock)
        except ConfigError as error:
            raise ConfigError(
                f"This broker cannot log in to other brokers: {error} "
                f"(listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config)"
            ) from None
        self._authenticator = SaslAuthenticator(self._login, random, timeout_ms)
        self._problems = RateLimitedLog(_logger, clock)

    async def __call__(self, connection: BrokerConnection) -> float | None:
        """Authenticates. A broker that refuses it is one that cannot be reached: its callers try again later."""
        try:
            return await self._authenticator(connection)
        except KafkaError as error:
            if not isinstance(error, KafkaConnectionError):
                self._problems.log(str(connection), f"This broker cannot log in to another one, will retry: {error}")
            raise KafkaConnectionError(str(error)) from error

    async def close(self) -> None:
        await self._login.close()


def _check_token_url(values: Mapping[str, Any]) -> None:
    """Like the URL of keys: whoever writes this config must not choose the servers that a broker sends requests to
    (CVE-2025-27817)."""
    url = values.get("sasl.oauthbearer.token.endpoint.url") or ""
    if url and not url.startswith("file:") and url not in (values.get("headrace.oauthbearer.allowed.urls") or ()):
        raise ConfigError(
            "sasl.oauthbearer.token.endpoint.url is not allowed: add the URL to headrace.oauthbearer.allowed.urls"
        )


class NoBrokerLogin:
    """The login of a broker without credentials for other brokers: of a cluster of one, which needs none."""

    def __init__(self, problem: str):
        self._problem = problem

    async def __call__(self, _: BrokerConnection) -> float | None:
        raise KafkaConnectionError(self._problem)

    async def close(self) -> None: ...


def broker_login(
    listener: str, config: SaslConfig, clock: Clock, random: Random, timeout_ms: float, *, must_exist: bool
) -> BrokerLogin | NoBrokerLogin | None:
    """Returns the login for a listener, or None if the listener has no SASL. Raises ConfigError, with `must_exist` also
    if the broker has no credentials."""
    if listener not in config.listeners:
        return None
    try:
        return BrokerLogin(listener, config, clock, random, timeout_ms)
    except ConfigError as error:
        if must_exist:
            raise
        return NoBrokerLogin(str(error))
