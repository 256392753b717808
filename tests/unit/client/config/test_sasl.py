from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.config.sasl import sasl_client_config


class Provider:
    def token(self) -> str:
        return "token"


def test_names_of_all_clients() -> None:
    for names in (("sasl_plain_username", "sasl_plain_password"), ("sasl.username", "sasl.password")):
        config = PRODUCER_KEYS.load({names[0]: "alice", names[1]: "secret", "sasl.mechanisms": "PLAIN"})
        sasl = sasl_client_config(config)
        assert (sasl.mechanism, sasl.username, sasl.password) == ("PLAIN", "alice", "secret")


def test_the_defaults_are_kafkas() -> None:
    sasl = sasl_client_config(PRODUCER_KEYS.load())
    assert sasl.mechanism == "GSSAPI"
    assert sasl.login_refresh_window_factor == 0.8
    assert sasl.oauthbearer_sub_claim_name == "sub"
    assert sasl.password is None


def test_objects_that_provide_tokens() -> None:
    provider = Provider()
    config = PRODUCER_KEYS.load(
        {"sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.config": "x=1"},
        sasl_oauth_token_provider=provider,
        oauth_cb=lambda text: (text, 1.0),
    )
    sasl = sasl_client_config(config)
    assert sasl.oauth_token_provider is provider
    assert sasl.oauth_cb is not None
    assert sasl.oauth_cb("a") == ("a", 1.0)
    assert sasl.oauthbearer_client_credentials_client_id == "me"


def test_no_secret_is_shown() -> None:
    config = PRODUCER_KEYS.load(
        {
            "sasl.jaas.config": "hunter2",
            "sasl.password": "hunter2",
            "sasl.oauthbearer.client.secret": "hunter2",
        }
    )
    assert "hunter2" not in repr(config)
    assert "hunter2" not in repr(sasl_client_config(config))
