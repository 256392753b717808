"""The broker's SASL mechanisms: from the settings of a listener and a mechanism to a factory of exchanges."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.common.clock import Clock
from headrace.common.errors import ConfigError
from headrace.security.credentials import SCRAM_MECHANISMS, CredentialStore, ScramCredential, TokenCredential
from headrace.security.jaas import JaasEntry, parse_jaas_for
from headrace.security.kerberos import GssapiServer, KerberosAcceptor, KerberosIdentity
from headrace.security.oauth_keys import make_jwks_source
from headrace.security.oauth_validator import ClaimRules, SignedTokenValidator, UnsecuredTokenValidator
from headrace.security.oauthbearer import OAuthBearerServer
from headrace.security.plain import PlainServer, PlainUsers
from headrace.security.sasl import MECHANISMS, OAUTHBEARER, PLAIN, ServerMechanism
from headrace.security.sasl_keys import SERVER_KEYS
from headrace.security.scram import ScramServer, UnknownUsers

__all__ = [
    "CredentialStore",
    "SaslServerConfig",
    "ScramCredential",
    "ServerMechanismFactory",
    "TokenCredential",
    "make_server_mechanism_factory",
]

_logger = logging.getLogger(__name__)

_UNSECURED_OPTION = "unsecuredValidator"


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
    if mechanism == OAUTHBEARER:
        return _oauthbearer(jaas, config, clock)
    return _gssapi(jaas, config)


def _plain(jaas: JaasEntry | None) -> ServerMechanismFactory:
    if jaas is None:
        raise ConfigError(
            "The SASL mechanism PLAIN needs its users: set listener.name.<listener>.plain.sasl.jaas.config="
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="<password>";'
        )
    users = PlainUsers(jaas)
    return ServerMechanismFactory(lambda: PlainServer(users))


def _gssapi(jaas: JaasEntry | None, config: SaslServerConfig) -> ServerMechanismFactory:
    given = {key: value for key, value in SERVER_KEYS.select(config.values).items() if value is not None}
    values = SERVER_KEYS.parse(given)
    identity = KerberosIdentity.make(
        jaas,
        values["sasl_kerberos_service_name"],
        config.text("sasl.kerberos.principal") or None,
        config.text("sasl.kerberos.keytab") or None,
    )
    acceptor = KerberosAcceptor(identity, values["sasl_kerberos_principal_to_local_rules"])
    return ServerMechanismFactory(lambda: GssapiServer(acceptor))


def _oauthbearer(jaas: JaasEntry | None, config: SaslServerConfig, clock: Clock) -> ServerMechanismFactory:
    given = {key: value for key, value in SERVER_KEYS.select(config.values).items() if value is not None}
    values = SERVER_KEYS.parse(given)
    url = values["sasl_oauthbearer_jwks_endpoint_url"]
    options = {} if jaas is None else jaas.options
    if values["headrace_oauthbearer_unsecured_tokens"]:
        if url:
            raise ConfigError(
                "Set either sasl.oauthbearer.jwks.endpoint.url or headrace.oauthbearer.unsecured.tokens, not both"
            )
        validator = UnsecuredTokenValidator(_unsecured_rules(options), clock)
        _logger.warning("OAUTHBEARER accepts unsecured tokens: every client can claim to be any user. Only for tests")
        return ServerMechanismFactory(lambda: OAuthBearerServer(validator))
    if any(name.startswith(_UNSECURED_OPTION) for name in options):
        raise ConfigError(
            f"sasl.jaas.config: the options {_UNSECURED_OPTION}* are for tokens without a signature, which need "
            "headrace.oauthbearer.unsecured.tokens=true"
        )
    if not url:
        # Without keys anybody could make a valid token (CVE-2026-110985, CVE-2026-33557).
        raise ConfigError(
            "The SASL mechanism OAUTHBEARER needs the keys of the issuer of tokens: "
            "set sasl.oauthbearer.jwks.endpoint.url"
        )
    rules = ClaimRules(
        subject_claim=values["sasl_oauthbearer_sub_claim_name"],
        scope_claim=values["sasl_oauthbearer_scope_claim_name"],
        issuer=values["sasl_oauthbearer_expected_issuer"],
        audiences=values["sasl_oauthbearer_expected_audience"] or (),
        clock_skew_ms=values["sasl_oauthbearer_clock_skew_seconds"] * 1000,
    )
    keys = make_jwks_source(
        url,
        values["headrace_oauthbearer_allowed_urls"],
        values["sasl_oauthbearer_jwks_endpoint_refresh_ms"],
        values["sasl_oauthbearer_jwks_endpoint_retry_backoff_ms"],
        values["sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms"],
        clock,
    )
    signed = SignedTokenValidator(keys, rules, clock)
    return ServerMechanismFactory(lambda: OAuthBearerServer(signed), keys.close)


def _unsecured_rules(options: Mapping[str, str]) -> ClaimRules:
    """Returns the rules in the options `unsecuredValidator*`, which are Kafka's."""
    known = ("PrincipalClaimName", "ScopeClaimName", "RequiredScope", "AllowableClockSkewMs")
    given = {name: options.get(_UNSECURED_OPTION + name, "") for name in known}
    names = {name.removeprefix(_UNSECURED_OPTION) for name in options if name.startswith(_UNSECURED_OPTION)}
    if not names.issubset(known):
        raise ConfigError(f"sasl.jaas.config: expected {', '.join(_UNSECURED_OPTION + name for name in known)}")
    if not (given["AllowableClockSkewMs"] or "0").isdecimal():
        raise ConfigError(f"sasl.jaas.config: {_UNSECURED_OPTION}AllowableClockSkewMs must be a number of milliseconds")
    return ClaimRules(
        subject_claim=given["PrincipalClaimName"] or "sub",
        scope_claim=given["ScopeClaimName"] or "scope",
        clock_skew_ms=int(given["AllowableClockSkewMs"] or 0),
        required_scopes=frozenset(given["RequiredScope"].split()),
        needs_issue_time=False,
        checks_audience=False,
    )
