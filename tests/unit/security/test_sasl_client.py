import asyncio
from pathlib import Path

import pytest
from tests.support.security.oauth import Issuer
from tests.support.security.sasl import CredentialsInMemory, authenticate

from headrace.common.errors import ConfigError
from headrace.security.credentials import SCRAM_MECHANISMS, ScramCredential
from headrace.security.sasl_client import SaslClientConfig, SaslLogin
from headrace.security.sasl_keys import LOGIN_HANDLERS
from headrace.security.sasl_server import SaslServerConfig, make_server_mechanism_factory
from headrace.testing.clock import ManualClock

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
STORE = CredentialsInMemory({"alice": ScramCredential.from_password(SCRAM_MECHANISMS["SCRAM-SHA-512"], "secret")})


@pytest.mark.parametrize(
    ("mechanism", "client", "server"),
    [
        ("PLAIN", {"username": "alice", "password": "secret"}, f"{PLAIN_MODULE} required user_alice=secret;"),
        (
            "PLAIN",
            {"jaas_config": f"{PLAIN_MODULE} required username=alice password=secret;"},
            f"{PLAIN_MODULE} required user_alice=secret;",
        ),
        ("SCRAM-SHA-512", {"username": "alice", "password": "secret"}, ""),
        ("SCRAM-SHA-512", {"jaas_config": f"{SCRAM_MODULE} required username=alice password=secret;"}, ""),
    ],
)
def test_login(mechanism: str, client: dict[str, str], server: str) -> None:
    login = SaslLogin(SaslClientConfig(mechanism=mechanism, **client), ManualClock())
    config = SaslServerConfig({"sasl.jaas.config": server})
    create = make_server_mechanism_factory(mechanism, config, STORE, ManualClock())
    for _ in range(2):
        client_side, server_side = asyncio.run(login.mechanism("broker")), create()
        assert client_side.name == mechanism
        authenticate(client_side, server_side)
        assert server_side.complete
        assert str(server_side.principal) == "User:alice"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"mechanism": "LOGIN"}, "sasl.mechanism=LOGIN is unknown: expected one of PLAIN"),
        ({"mechanism": "PLAIN"}, "needs sasl.username, or sasl.jaas.config"),
        ({"mechanism": "PLAIN", "username": "alice", "password": ""}, "needs sasl.password"),
        ({"mechanism": "PLAIN", "jaas_config": f"{SCRAM_MODULE} required;"}, "not for the mechanism PLAIN"),
        ({"mechanism": "PLAIN", "jaas_config": f"{PLAIN_MODULE} required username=a;"}, "option password"),
        (
            {"mechanism": "PLAIN", "username": "hunter2", "jaas_config": f"{PLAIN_MODULE} required;"},
            "either sasl.jaas.config, or",
        ),
    ],
)
def test_bad_settings(values: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        SaslLogin(SaslClientConfig(**values), ManualClock())
    assert "hunter2" not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    config = SaslClientConfig(mechanism="PLAIN", username="alice", password="hunter2", jaas_config="hunter2")
    assert "hunter2" not in repr(config)


def test_login_with_a_token(tmp_path: Path) -> None:
    clock = ManualClock()
    now = clock.time_ms() // 1000
    issuer = Issuer()
    keys, token = tmp_path / "keys.json", tmp_path / "token"
    keys.write_bytes(issuer.jwks_text())
    token.write_text(issuer.sign({"sub": "alice", "iat": now, "exp": now + 60}))
    create = make_server_mechanism_factory(
        "OAUTHBEARER", SaslServerConfig({"sasl.oauthbearer.jwks.endpoint.url": keys.as_uri()}), STORE, clock
    )
    login = SaslLogin(SaslClientConfig(mechanism="OAUTHBEARER", oauthbearer_token_endpoint_url=token.as_uri()), clock)
    server = create()
    authenticate(asyncio.run(login.mechanism("broker")), server)
    assert str(server.principal) == "User:alice"
    assert server.expires_at_ms == (now + 60) * 1000
    create.close()


def test_login_with_an_unsecured_token() -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    create = make_server_mechanism_factory(
        "OAUTHBEARER",
        SaslServerConfig({"headrace.oauthbearer.unsecured.tokens": "true"}),
        STORE,
        ManualClock(),
    )
    config = SaslClientConfig.load(
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{module} required unsecuredLoginStringClaim_sub=alice;",
            "sasl.login.callback.handler.class": LOGIN_HANDLERS[0],
        }
    )
    server = create()
    authenticate(asyncio.run(SaslLogin(config, ManualClock()).mechanism("broker")), server)
    assert str(server.principal) == "User:alice"


def test_values_by_kafkas_keys() -> None:
    config = SaslClientConfig.load({"sasl.mechanism": "PLAIN", "sasl.password": None, "ssl.protocol": "x"})
    assert config == SaslClientConfig.load({"sasl.mechanism": "PLAIN"})
    with pytest.raises(ConfigError, match="Java classes cannot be loaded"):
        SaslClientConfig.load({"sasl.login.callback.handler.class": "com.example.Handler"})
