"""From the settings of an OAUTHBEARER client to the source of its tokens."""

import urllib.parse
from typing import TYPE_CHECKING

from headrace.common.clock import Clock
from headrace.common.errors import ConfigError
from headrace.security.jaas import JaasEntry
from headrace.security.oauth_tokens import (
    CallbackSource,
    EndpointSource,
    FileSource,
    ProviderSource,
    RefreshingToken,
    RefreshSchedule,
    TokenSource,
    UnsecuredSource,
)
from headrace.security.oauthbearer import check_extensions

if TYPE_CHECKING:
    from headrace.security.sasl_client import SaslClientConfig

__all__ = ["make_token"]

_EXTENSION_OPTION = "extension_"
_UNSECURED_OPTION = "unsecuredLogin"
_UNSECURED_CLAIMS = ("StringClaim_", "NumberClaim_", "ListClaim_")
_UNSECURED_SETTINGS = ("PrincipalClaimName", "ScopeClaimName", "LifetimeSeconds")
_UNSECURED_EXTENSION = "Extension_"


def make_token(config: "SaslClientConfig", jaas: JaasEntry | None, clock: Clock) -> RefreshingToken:
    """Returns the client's token. Raises ConfigError for missing or contradictory settings."""
    schedule = RefreshSchedule(
        config.login_refresh_window_factor,
        config.login_refresh_window_jitter,
        config.login_refresh_min_period_seconds,
        config.login_refresh_buffer_seconds,
    )
    return RefreshingToken(_make_source(config, jaas, clock), schedule, clock)


def _make_source(config: "SaslClientConfig", jaas: JaasEntry | None, clock: Clock) -> TokenSource:
    options = {} if jaas is None else jaas.options
    unsecured = any(name.startswith(_UNSECURED_OPTION) for name in options)
    sources = {
        "sasl_oauth_token_provider": config.oauth_token_provider is not None,
        "oauth_cb": config.oauth_cb is not None,
        "sasl.oauthbearer.token.endpoint.url": config.oauthbearer_token_endpoint_url is not None,
        "enable.sasl.oauthbearer.unsecure.jwt": config.enable_sasl_oauthbearer_unsecure_jwt,
        "unsecuredLoginStringClaim_sub in sasl.jaas.config": unsecured,
    }
    given = [name for name, is_set in sources.items() if is_set]
    if len(given) != 1:
        problem = f"but {' and '.join(given)} are set" if given else "but none is set"
        raise ConfigError(
            f"sasl.mechanism=OAUTHBEARER needs one source of tokens ({', '.join(list(sources)[:3])}), {problem}"
        )
    if config.oauthbearer_method == "oidc" and config.oauthbearer_token_endpoint_url is None:
        raise ConfigError("sasl.oauthbearer.method=oidc needs sasl.oauthbearer.token.endpoint.url")
    extensions = _extensions(config, options)
    if config.oauth_token_provider is not None:
        return ProviderSource(config.oauth_token_provider, extensions)
    if config.oauth_cb is not None:
        return CallbackSource(config.oauth_cb, config.oauthbearer_config or "", extensions)
    if config.oauthbearer_token_endpoint_url is not None:
        return _endpoint(config, config.oauthbearer_token_endpoint_url, options, extensions)
    if unsecured:
        return _unsecured(options, clock)
    return _unsecured_of_librdkafka(config.oauthbearer_config or "", clock)


def _extensions(config: "SaslClientConfig", options: dict[str, str]) -> dict[str, str]:
    extensions = {
        name.removeprefix(_EXTENSION_OPTION): value
        for name, value in options.items()
        if name.startswith(_EXTENSION_OPTION)
    }
    for item in filter(None, (config.oauthbearer_extensions or "").split(",")):
        name, equals, value = item.partition("=")
        if not equals:
            raise ConfigError("sasl.oauthbearer.extensions: expected key=value,key=value")
        extensions[name.strip()] = value.strip()
    return _checked(extensions)


def _checked(extensions: dict[str, str]) -> dict[str, str]:
    if problem := check_extensions(extensions):
        raise ConfigError(f"sasl.mechanism=OAUTHBEARER: {problem}")
    return extensions


def _endpoint(config: "SaslClientConfig", url: str, options: dict[str, str], extensions: dict[str, str]) -> TokenSource:
    key = "sasl.oauthbearer.token.endpoint.url"
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return FileSource(url, config.oauthbearer_sub_claim_name, extensions)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{key} must be an https:, http: or file: URL")
    client_id = config.oauthbearer_client_credentials_client_id or options.get("clientId")
    client_secret = config.oauthbearer_client_credentials_client_secret or options.get("clientSecret")
    if not client_id or not client_secret:
        raise ConfigError(
            f"{key} needs sasl.oauthbearer.client.credentials.client.id and .client.secret, "
            "or the options clientId and clientSecret of sasl.jaas.config"
        )
    timeouts = [ms for ms in (config.login_connect_timeout_ms, config.login_read_timeout_ms) if ms is not None]
    return EndpointSource(
        url,
        client_id,
        client_secret,
        config.oauthbearer_scope or options.get("scope"),
        config.oauthbearer_header_urlencode,
        max(timeouts, default=10_000),
        config.login_retry_backoff_ms,
        config.login_retry_backoff_max_ms,
        config.oauthbearer_sub_claim_name,
        extensions,
    )


def _unsecured(options: dict[str, str], clock: Clock) -> UnsecuredSource:
    """Kafka's options `unsecuredLogin*`."""
    key = "sasl.jaas.config"
    claims: dict[str, object] = {}
    settings: dict[str, str] = {}
    extensions: dict[str, str] = {}
    for name, value in options.items():
        rest = name.removeprefix(_UNSECURED_OPTION)
        if rest == name:
            continue
        if rest in _UNSECURED_SETTINGS:
            settings[rest] = value
        elif rest.startswith(_UNSECURED_EXTENSION):
            extensions[rest.removeprefix(_UNSECURED_EXTENSION)] = value
        elif rest.startswith("StringClaim_"):
            claims[rest.removeprefix("StringClaim_")] = value
        elif rest.startswith("NumberClaim_"):
            claims[rest.removeprefix("NumberClaim_")] = _number(f"{key}: {name}", value)
        elif rest.startswith("ListClaim_") and value:
            # As in Kafka the first character is the separator.
            claims[rest.removeprefix("ListClaim_")] = value[1:].split(value[0])
        else:
            known = [_UNSECURED_OPTION + name for name in (*_UNSECURED_CLAIMS, *_UNSECURED_SETTINGS)]
            raise ConfigError(f"{key}: unknown option for unsecured tokens, expected one of {', '.join(known)}")
    subject_claim = settings.get("PrincipalClaimName") or "sub"
    if not isinstance(claims.get(subject_claim), str) or not claims[subject_claim]:
        raise ConfigError(f"{key} needs {_UNSECURED_OPTION}StringClaim_{subject_claim} with the name of the principal")
    lifetime = int(_number(f"{key}: {_UNSECURED_OPTION}LifetimeSeconds", settings.get("LifetimeSeconds") or "3600"))
    return UnsecuredSource(claims, clock, subject_claim, lifetime, _checked(extensions))


def _unsecured_of_librdkafka(text: str, clock: Clock) -> UnsecuredSource:
    """librdkafka's `sasl.oauthbearer.config` with `enable.sasl.oauthbearer.unsecure.jwt`."""
    key = "sasl.oauthbearer.config"
    values = dict(item.partition("=")[::2] for item in text.split())
    extensions = {
        name.removeprefix(_EXTENSION_OPTION): value
        for name, value in values.items()
        if name.startswith(_EXTENSION_OPTION)
    }
    known = ("principalClaimName", "principal", "scopeClaimName", "scope", "lifeSeconds")
    if not {name for name in values if not name.startswith(_EXTENSION_OPTION)}.issubset(known):
        raise ConfigError(f"{key}: expected {', '.join(known)} or extension_<name>, each with =value, between spaces")
    if not values.get("principal"):
        raise ConfigError(f"{key} needs principal=<name> for unsecured tokens")
    subject_claim = values.get("principalClaimName") or "sub"
    claims: dict[str, object] = {subject_claim: values["principal"]}
    if scope := values.get("scope"):
        claims[values.get("scopeClaimName") or "scope"] = scope.split(",")
    lifetime = int(_number(f"{key}: lifeSeconds", values.get("lifeSeconds") or "3600"))
    return UnsecuredSource(claims, clock, subject_claim, lifetime, _checked(extensions))


def _number(what: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{what} must be a number") from None
