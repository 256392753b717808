import asyncio

import pytest

from headrace.common.errors import ConfigError
from headrace.security.jaas import LOGIN_MODULES, parse_jaas
from headrace.security.oauth_login import make_token
from headrace.security.oauth_tokens import Token
from headrace.security.oauth_validator import decode_token
from headrace.security.sasl_client import SaslClientConfig
from headrace.testing.clock import ManualClock

MODULE = LOGIN_MODULES["OAUTHBEARER"][0]
CLOCK = ManualClock()
URL = "sasl.oauthbearer.token.endpoint.url"


class Provider:
    def token(self) -> str:
        return "opaque"


def make(options: str | None = None, values: dict[str, object] | None = None, **objects):
    config = SaslClientConfig.load({"sasl.mechanism": "OAUTHBEARER", **(values or {})}, **objects)
    return make_token(config, parse_jaas(f"{MODULE} required {options};") if options else None, CLOCK)


def token(*args, **options) -> Token:
    return asyncio.run(make(*args, **options).get())


def test_unsecured_tokens_of_kafkas_options() -> None:
    result = token(
        "unsecuredLoginStringClaim_sub=alice unsecuredLoginNumberClaim_level=7 unsecuredLoginListClaim_fruits='|a|b' "
        "unsecuredLoginLifetimeSeconds=60 unsecuredLoginExtension_traceId='123'"
    )
    now = CLOCK.time_ms() / 1000
    assert decode_token(result.value)[1] == {
        "sub": "alice",
        "level": 7,
        "fruits": ["a", "b"],
        "iat": now,
        "exp": now + 60,
    }
    assert result.extensions == {"traceId": "123"}
    assert token("unsecuredLoginStringClaim_user=bob unsecuredLoginPrincipalClaimName=user").principal == "bob"


def test_unsecured_tokens_of_librdkafkas_config() -> None:
    text = "principal=alice scope=a,b lifeSeconds=60 extension_traceId=123"
    values = {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": text}
    result = token(None, values)
    claims = decode_token(result.value)[1]
    assert (claims["sub"], claims["scope"], result.extensions) == ("alice", ["a", "b"], {"traceId": "123"})


def test_objects_with_extensions() -> None:
    values = {"sasl.oauthbearer.extensions": "a=1, b=2", "sasl.oauthbearer.config": "x=y"}
    result = token("extension_c=3", values, oauth_token_provider=Provider())
    assert (result.value, result.extensions) == ("opaque", {"a": "1", "b": "2", "c": "3"})
    result = token(None, values, oauth_cb=lambda text: (text, CLOCK.time_ms()))
    assert (result.value, result.extensions) == ("x=y", {"a": "1", "b": "2"})


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ("clientId=me clientSecret=hunter2 scope=a", {}),
        (
            None,
            {
                "sasl.oauthbearer.client.credentials.client.id": "me",
                "sasl.oauthbearer.client.credentials.client.secret": "hunter2",
                "sasl.oauthbearer.method": "oidc",
            },
        ),
    ],
)
def test_credentials_of_an_endpoint(options: str | None, values: dict[str, object]) -> None:
    assert make(options, {URL: "https://issuer/token", **values}) is not None


@pytest.mark.parametrize(
    ("options", "values", "problem"),
    [
        (None, {}, "needs one source of tokens .sasl_oauth_token_provider, oauth_cb, .*but none is set"),
        ("unsecuredLoginStringClaim_sub=x", {URL: "https://a"}, "are set$"),
        (None, {URL: "ftp://a"}, "must be an https:, http: or file: URL"),
        (None, {URL: "https://"}, "must be an https:, http: or file: URL"),
        ("clientId=me", {URL: "https://a"}, "needs sasl.oauthbearer.client.credentials.client.id and .client.secret"),
        ("unsecuredLoginStringClaim_sub=x", {"sasl.oauthbearer.method": "oidc"}, "oidc needs"),
        ("unsecuredLoginStringClaim_user=x", {}, "needs unsecuredLoginStringClaim_sub"),
        ("unsecuredLoginStringClaim_sub=x unsecuredLoginLifetimeSeconds=long", {}, "must be a number"),
        ("unsecuredLoginStringClaim_sub=x unsecuredLoginHunter2=x", {}, "unknown option for unsecured tokens"),
        ("unsecuredLoginStringClaim_sub=x unsecuredLoginExtension_a1=x", {}, "consist of letters"),
        ("extension_auth=x", {URL: "file:///x"}, "cannot have the name auth"),
        (None, {URL: "file:///x", "sasl.oauthbearer.extensions": "hunter2"}, "expected key=value"),
        (None, {"enable.sasl.oauthbearer.unsecure.jwt": True}, "needs principal=<name>"),
        (
            None,
            {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": "principal=x hunter2"},
            "expected principalClaimName, principal",
        ),
    ],
)
def test_bad_settings(options: str | None, values: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        make(options, values)
    assert "hunter2" not in str(caught.value)
