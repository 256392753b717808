import pytest

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.credentials import CredentialCache
from headrace.broker.sasl_listeners import BrokerLogin, NoBrokerLogin, SaslMechanisms, broker_login
from headrace.common.clock import SystemClock
from headrace.common.errors import ConfigError
from headrace.common.ids import make_random

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SASL = {
    "listeners": "SASL_PLAINTEXT://:9092,PLAINTEXT://:9093",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} username="b" password="p" user_b="p";',
}


def test_settings_of_listeners_and_mechanisms() -> None:
    config = BrokerConfig.from_properties(
        {
            **SASL,
            "connections.max.reauth.ms": "1000",
            "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "2000",
            "listener.name.sasl_plaintext.sasl.server.max.receive.size": "3000",
        }
    ).sasl
    (listener,) = config.listeners.values()
    assert list(listener.mechanisms) == ["SCRAM-SHA-256", "PLAIN"]
    assert listener.mechanisms["SCRAM-SHA-256"].max_reauth_ms == 1000
    assert listener.mechanisms["PLAIN"].max_reauth_ms == 2000
    assert listener.max_receive_bytes == 3000
    assert config.failure_delay_ms == 100
    mechanisms = SaslMechanisms(config, CredentialCache(), SystemClock())
    made = mechanisms.listeners["SASL_PLAINTEXT"]
    assert list(made.mechanisms) == ["SCRAM-SHA-256", "PLAIN"]
    assert made.max_reauth_ms == {"SCRAM-SHA-256": 1000, "PLAIN": 2000}
    assert made.mechanisms["PLAIN"]() is not made.mechanisms["PLAIN"]()
    mechanisms.close()


def test_a_listener_without_sasl_needs_nothing() -> None:
    config = BrokerConfig.from_properties({"sasl.enabled.mechanisms": "PLAIN"}).sasl
    assert config.listeners == {}
    assert broker_login("PLAINTEXT", config, SystemClock(), make_random(), 1000, must_exist=True) is None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-256"}, "sasl.mechanism.inter.broker.protocol=PLAIN must be one of"),
        ({"sasl.enabled.mechanisms": ""}, "must not be empty"),
        ({"sasl.enabled.mechanisms": "PLAIN,MD5"}, "must be one of: PLAIN"),
        ({"sasl.server.max.receive.size": "0"}, "at least 1"),
        ({"listener.name.sasl_plaintext.md5.sasl.jaas.config": "x"}, "there is no listener sasl_plaintext.md5"),
        ({"sasl.login.class": "x.Y"}, "Java classes cannot be loaded"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace(".", r"\.")):
        BrokerConfig.from_properties({**SASL, **changes})


def test_errors_name_listener_and_mechanism_and_no_password() -> None:
    config = BrokerConfig.from_properties(
        {**SASL, "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} user_b="top-secret" oops'}
    )
    with pytest.raises(ConfigError, match="Listener SASL_PLAINTEXT, SASL mechanism PLAIN: ") as caught:
        SaslMechanisms(config.sasl, CredentialCache(), SystemClock())
    assert "top-secret" not in str(caught.value)
    assert "top-secret" not in repr(config.sasl)


def test_login_to_other_brokers() -> None:
    def login(must_exist: bool, jaas: str) -> object:
        config = BrokerConfig.from_properties({**SASL, "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas})
        return broker_login("SASL_PLAINTEXT", config.sasl, SystemClock(), make_random(), 1000, must_exist=must_exist)

    assert isinstance(login(True, f'{PLAIN_MODULE} username="b" password="p";'), BrokerLogin)
    only_users = f'{PLAIN_MODULE} user_alice="a";'
    assert isinstance(login(False, only_users), NoBrokerLogin)  # a cluster of one
    with pytest.raises(ConfigError, match=r"cannot log in to other brokers: .*plain\.sasl\.jaas\.config"):
        login(True, only_users)
