"""The clients' `sasl.*` keys: Kafka's, with the names that librdkafka and kafka-python have for them."""

from typing import Any

from headrace.client.config.mapping import ConfigMapping
from headrace.common.config import ConfigKey
from headrace.security.sasl_client import SaslClientConfig
from headrace.security.sasl_keys import LOGIN_KEYS

__all__ = ["SASL_ALIASES", "SASL_KEYS", "SASL_REFUSED", "SASL_UNUSED", "check_token_provider", "sasl_client_config"]

SASL_KEYS: tuple[ConfigKey, ...] = tuple(LOGIN_KEYS.keys.values())

SASL_ALIASES = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.plain.username": "sasl.username",
    "sasl.plain.password": "sasl.password",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
}
"""librdkafka's and kafka-python's names."""

SASL_UNUSED: tuple[str, ...] = (
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
)
"""GSSAPI gets and renews tickets itself."""

_PROVIDER = "Java classes cannot be loaded: use `sasl_oauth_token_provider` or `oauth_cb`"
_ASSERTION = "the grant jwt-bearer is not supported: use `sasl_oauth_token_provider` or `oauth_cb`"
SASL_REFUSED = {
    "sasl.kerberos.name": "use `sasl.kerberos.service.name` and `sasl.kerberos.domain.name`",
    "sasl.client.callback.handler.class": _PROVIDER,
    "sasl.login.class": _PROVIDER,
    **dict.fromkeys(
        (
            "sasl.oauthbearer.grant.type",
            "sasl.oauthbearer.assertion.algorithm",
            "sasl.oauthbearer.assertion.claim.aud",
            "sasl.oauthbearer.assertion.claim.exp.seconds",
            "sasl.oauthbearer.assertion.claim.iss",
            "sasl.oauthbearer.assertion.claim.jti.include",
            "sasl.oauthbearer.assertion.claim.nbf.seconds",
            "sasl.oauthbearer.assertion.claim.sub",
            "sasl.oauthbearer.assertion.file",
            "sasl.oauthbearer.assertion.private.key.file",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.template.file",
        ),
        _ASSERTION,
    ),
}


def check_token_provider(value: Any) -> str | None:
    """The check of `sasl.oauth.token.provider`."""
    return None if callable(getattr(value, "token", None)) and not isinstance(value, type) else "an object with token()"


def sasl_client_config(config: ConfigMapping) -> SaslClientConfig:
    """Returns the SASL settings of a client's parsed configuration."""
    values = {key.name: config[key.attribute] for key in SASL_KEYS}
    return SaslClientConfig.load(values, config["sasl_oauth_token_provider"], config["oauth_cb"])
