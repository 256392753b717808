"""Kafka's `sasl.*` configs that mechanisms read: of the side that logs in, and of the broker that authenticates."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headrace.common.config import ConfigKey, ConfigTable, ConfigType
from headrace.security.sasl import MECHANISMS

__all__ = ["LOGIN_KEYS", "SERVER_KEYS"]

INT, LONG, DOUBLE = ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE
BOOLEAN, STRING, LIST, PASSWORD = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST, ConfigType.PASSWORD

_OAUTH_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
LOGIN_HANDLERS = (
    f"{_OAUTH_PACKAGE}OAuthBearerLoginCallbackHandler",
    f"{_OAUTH_PACKAGE}secured.OAuthBearerLoginCallbackHandler",
)
VALIDATOR_HANDLERS = (
    f"{_OAUTH_PACKAGE}OAuthBearerValidatorCallbackHandler",
    f"{_OAUTH_PACKAGE}secured.OAuthBearerValidatorCallbackHandler",
)
RETRIEVERS = tuple(f"{_OAUTH_PACKAGE}{name}JwtRetriever" for name in ("Default", "ClientCredentials", "File"))
VALIDATORS = tuple(f"{_OAUTH_PACKAGE}{name}JwtValidator" for name in ("Default", "Broker", "Client"))


def _one_of(*names: str) -> Callable[[str], str | None]:
    """Returns the check of a key with a class name: only some of Kafka's classes mean something here."""

    def check(value: str) -> str | None:
        return None if value in names else f"Java classes cannot be loaded, only accepted: {', '.join(names)}"

    return check


def _key(name: str, kind: ConfigType, default: Any, doc: str, **limits: Any) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, dynamic=False, **limits)


_JAAS = _key(
    "sasl.jaas.config",
    PASSWORD,
    None,
    "The login module and its options, in Kafka's JAAS syntax: "
    '`org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";`.',
)
_SERVICE_NAME = _key(
    "sasl.kerberos.service.name", STRING, None, "GSSAPI: the service in the principal of the brokers, `kafka`."
)
_CLAIMS = (
    _key("sasl.oauthbearer.scope.claim.name", STRING, "scope", "OAUTHBEARER: the claim with the scopes of a token."),
    _key("sasl.oauthbearer.sub.claim.name", STRING, "sub", "OAUTHBEARER: the claim with the principal of a token."),
)
_VALIDATOR = _key(
    "sasl.oauthbearer.jwt.validator.class",
    STRING,
    VALIDATORS[0],
    "OAUTHBEARER: Kafka's own classes are accepted. A broker always verifies signatures.",
    check=_one_of(*VALIDATORS),
)

LOGIN_KEYS = ConfigTable(
    [
        _key(
            "sasl.mechanism",
            STRING,
            "GSSAPI",
            "The SASL mechanism, if `security.protocol` is SASL_PLAINTEXT or SASL_SSL.",
            choices=MECHANISMS,
        ),
        _JAAS,
        _key(
            "sasl.username",
            STRING,
            None,
            "PLAIN and SCRAM: the user, in place of `sasl.jaas.config`. kafka-python's `sasl_plain_username`.",
        ),
        _key(
            "sasl.password",
            PASSWORD,
            None,
            "PLAIN and SCRAM: the password, in place of `sasl.jaas.config`. kafka-python's `sasl_plain_password`.",
        ),
        replace(_SERVICE_NAME, default="kafka"),
        _key(
            "sasl.kerberos.principal", STRING, None, "GSSAPI: the client's principal, in place of `sasl.jaas.config`."
        ),
        _key(
            "sasl.kerberos.keytab",
            STRING,
            None,
            "GSSAPI: the file with the client's key. Without it the ticket cache of `kinit` is used.",
        ),
        _key(
            "sasl.kerberos.domain.name",
            STRING,
            None,
            "GSSAPI: the host in the principal of the brokers, if it is not the one that the client connects to.",
        ),
        _key(
            "sasl.login.callback.handler.class",
            STRING,
            None,
            "OAUTHBEARER: Kafka's own class is accepted; without a token endpoint it has no effect.",
            check=_one_of(*LOGIN_HANDLERS),
        ),
        _key(
            "sasl.oauthbearer.token.endpoint.url",
            STRING,
            None,
            "OAUTHBEARER: where tokens come from: the http(s) URL of an OAuth 2 token endpoint, which the client asks "
            "with the grant client_credentials, or the `file:` URL of a file with a token.",
        ),
        _key(
            "sasl.oauthbearer.client.credentials.client.id",
            STRING,
            None,
            "OAUTHBEARER: the client's id at the token endpoint; or `clientId` in `sasl.jaas.config`.",
        ),
        _key(
            "sasl.oauthbearer.client.credentials.client.secret",
            PASSWORD,
            None,
            "OAUTHBEARER: the client's secret at the token endpoint; or `clientSecret` in `sasl.jaas.config`.",
        ),
        _key(
            "sasl.oauthbearer.scope",
            STRING,
            None,
            "OAUTHBEARER: the scope to request at the token endpoint; or `scope` in `sasl.jaas.config`.",
        ),
        _key(
            "sasl.oauthbearer.extensions",
            STRING,
            None,
            "OAUTHBEARER: SASL extensions, `key=value,...`; or `extension_<key>` in `sasl.jaas.config`.",
        ),
        _key(
            "sasl.oauthbearer.config",
            STRING,
            None,
            "OAUTHBEARER: the argument of `oauth_cb`; or the content of unsecured tokens as in librdkafka, "
            "`principal=alice scope=a,b lifeSeconds=600 extension_x=y`.",
        ),
        _key(
            "sasl.oauthbearer.method",
            STRING,
            "default",
            "OAUTHBEARER: `oidc` requires `sasl.oauthbearer.token.endpoint.url`, as in librdkafka.",
            choices=("default", "oidc"),
        ),
        _key(
            "enable.sasl.oauthbearer.unsecure.jwt",
            BOOLEAN,
            False,
            "OAUTHBEARER: send tokens without a signature, with the content of `sasl.oauthbearer.config`. For tests.",
        ),
        _key(
            "sasl.oauthbearer.header.urlencode",
            BOOLEAN,
            False,
            "OAUTHBEARER: URL-encode the client's id and secret in the header of the request to the token endpoint.",
        ),
        _key(
            "sasl.oauthbearer.jwt.retriever.class",
            STRING,
            RETRIEVERS[0],
            "OAUTHBEARER: Kafka's own classes are accepted.",
            check=_one_of(*RETRIEVERS),
        ),
        _VALIDATOR,
        *_CLAIMS,
        _key("sasl.login.connect.timeout.ms", INT, None, "The timeout of connecting to the token endpoint.", low=1),
        _key("sasl.login.read.timeout.ms", INT, None, "The timeout of reading from the token endpoint.", low=1),
        _key("sasl.login.retry.backoff.ms", LONG, 100, "The wait before asking the token endpoint again.", low=0),
        _key("sasl.login.retry.backoff.max.ms", LONG, 10_000, "The longest wait before asking it again.", low=0),
        _key(
            "sasl.login.refresh.window.factor",
            DOUBLE,
            0.8,
            "Refresh a token after this part of its lifetime.",
            low=0.5,
            high=1.0,
        ),
        _key(
            "sasl.login.refresh.window.jitter",
            DOUBLE,
            0.05,
            "The largest random part of its lifetime after which a token is refreshed later.",
            low=0.0,
            high=0.25,
        ),
        _key(
            "sasl.login.refresh.min.period.seconds",
            INT,
            60,
            "The shortest time between two refreshes.",
            low=0,
            high=900,
        ),
        _key(
            "sasl.login.refresh.buffer.seconds",
            INT,
            300,
            "Refresh a token this long before it expires, if that is earlier.",
            low=0,
            high=3600,
        ),
    ]
)
"""What a client, or a broker that connects to other brokers, logs in with."""

SERVER_KEYS = ConfigTable(
    [
        _JAAS,
        _SERVICE_NAME,
        _key(
            "sasl.kerberos.principal.to.local.rules",
            LIST,
            ("DEFAULT",),
            "GSSAPI: the rules that turn Kerberos principals into user names; the first that matches is used.",
        ),
        _key(
            "sasl.server.callback.handler.class",
            STRING,
            None,
            "OAUTHBEARER: Kafka's own class is accepted; tokens are verified with or without it.",
            check=_one_of(*VALIDATOR_HANDLERS),
        ),
        _key(
            "sasl.oauthbearer.jwks.endpoint.url",
            STRING,
            None,
            "OAUTHBEARER: the keys that tokens are verified with, as a JWKS: a `file:` URL, or an https URL that "
            "`headrace.oauthbearer.allowed.urls` contains. Required.",
        ),
        _key(
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            LONG,
            3_600_000,
            "OAUTHBEARER: how often the keys are read again. A token with an unknown key also causes it.",
            low=1,
        ),
        _key(
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            LONG,
            100,
            "OAUTHBEARER: the wait before a failed refresh of the keys is repeated; doubles with each failure.",
            low=1,
        ),
        _key(
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            LONG,
            10_000,
            "OAUTHBEARER: the longest wait before a failed refresh of the keys is repeated.",
            low=1,
        ),
        _key(
            "sasl.oauthbearer.expected.issuer", STRING, None, "OAUTHBEARER: the issuer (`iss`) that tokens must have."
        ),
        _key(
            "sasl.oauthbearer.expected.audience",
            LIST,
            None,
            "OAUTHBEARER: tokens must be for one of these audiences (`aud`). Without it, tokens with an audience are "
            "rejected.",
        ),
        _key(
            "sasl.oauthbearer.clock.skew.seconds",
            INT,
            30,
            "OAUTHBEARER: how much the clocks of the broker and of the issuer of tokens may differ.",
            low=0,
        ),
        _VALIDATOR,
        *_CLAIMS,
        _key(
            "headrace.oauthbearer.allowed.urls",
            LIST,
            (),
            "OAUTHBEARER: the https URLs that the broker may request. In Kafka it is the system property "
            "`org.apache.kafka.sasl.oauthbearer.allowed.urls`.",
        ),
        _key(
            "headrace.oauthbearer.unsecured.tokens",
            BOOLEAN,
            False,
            "OAUTHBEARER: accept tokens without a signature, which anybody can make. Only for tests.",
        ),
    ]
)
"""What a broker's mechanisms read. Each may have the prefix of a listener and a mechanism."""
