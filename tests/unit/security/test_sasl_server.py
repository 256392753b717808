import pytest
from tests.support.security.oauth import unsecured_token
from tests.support.security.sasl import CredentialsInMemory

from headrace.common.errors import ConfigError
from headrace.security.oauthbearer import OAuthBearerClient
from headrace.security.sasl_server import SaslServerConfig, make_server_mechanism_factory
from headrace.testing.clock import ManualClock

OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
UNSECURED = {"headrace_oauthbearer_unsecured_tokens": "true"}
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def factory(mechanism: str, **values: str):
    config = SaslServerConfig({key.replace("_", "."): value for key, value in values.items()})
    return make_server_mechanism_factory(mechanism, config, CredentialsInMemory(), ManualClock())


def test_every_exchange_is_a_new_one() -> None:
    create = factory("PLAIN", sasl_jaas_config=f"{PLAIN_MODULE} required user_alice=secret;")
    server = create()
    server.respond(b"\0alice\0secret")
    assert server.complete
    assert not create().complete
    create.close()


def test_scram_needs_no_settings() -> None:
    assert factory("SCRAM-SHA-256")().respond(b"n,,n=alice,r=abc").startswith(b"r=abc")


@pytest.mark.parametrize(
    ("mechanism", "values", "problem"),
    [
        ("LOGIN", {}, "Unknown SASL mechanism 'LOGIN': expected one of PLAIN, SCRAM"),
        ("PLAIN", {}, "needs its users: set listener.name.<listener>.plain.sasl.jaas.config"),
        ("PLAIN", {"sasl_jaas_config": "hunter2"}, "unknown login module"),
        ("SCRAM-SHA-256", {"sasl_jaas_config": f"{PLAIN_MODULE} required;"}, "not for the mechanism"),
        ("OAUTHBEARER", {}, "needs the keys of the issuer of tokens: set sasl.oauthbearer.jwks.endpoint.url"),
        (
            "OAUTHBEARER",
            {"sasl_oauthbearer_jwks_endpoint_url": "https://issuer/keys"},
            "add the URL to headrace.oauthbearer.allowed.urls",
        ),
        ("OAUTHBEARER", {"sasl_oauthbearer_jwks_endpoint_url": "file:///x", **UNSECURED}, "not both"),
        ("OAUTHBEARER", {"sasl_oauthbearer_clock_skew_seconds": "-1"}, "Value must be at least 0"),
        (
            "OAUTHBEARER",
            {"sasl_jaas_config": f"{OAUTH_MODULE} required unsecuredValidatorScopeClaimName=x;"},
            "which need headrace.oauthbearer.unsecured.tokens=true",
        ),
        (
            "OAUTHBEARER",
            {"sasl_jaas_config": f"{OAUTH_MODULE} required unsecuredValidatorHunter2=x;", **UNSECURED},
            "expected unsecuredValidatorPrincipalClaimName",
        ),
        (
            "OAUTHBEARER",
            {"sasl_jaas_config": f"{OAUTH_MODULE} required unsecuredValidatorAllowableClockSkewMs=x;", **UNSECURED},
            "must be a number of milliseconds",
        ),
    ],
)
def test_bad_settings(mechanism: str, values: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        factory(mechanism, **values)
    assert "hunter2" not in str(caught.value)


def test_settings_are_not_shown() -> None:
    assert "secret" not in repr(SaslServerConfig({"sasl.jaas.config": "secret"}))


def test_unsecured_tokens_with_kafkas_options() -> None:
    options = (
        "unsecuredValidatorPrincipalClaimName=user unsecuredValidatorRequiredScope=kafka "
        "unsecuredValidatorAllowableClockSkewMs=3000"
    )
    create = factory("OAUTHBEARER", sasl_jaas_config=f"{OAUTH_MODULE} required {options};", **UNSECURED)
    now = ManualClock().time_ms() / 1000
    for claims, valid in (
        ({"user": "alice", "exp": now - 2, "scope": "kafka"}, True),
        ({"user": "alice", "exp": now - 3, "scope": "kafka"}, False),
        ({"user": "alice", "exp": now + 9}, False),
        ({"sub": "alice", "exp": now + 9, "scope": "kafka"}, False),
    ):
        server = create()
        server.respond(OAuthBearerClient(unsecured_token(claims)).initial_response())
        assert server.complete == valid
