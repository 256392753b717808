import pytest
from tests.support.security.sasl import CredentialsInMemory

from headrace.common.errors import ConfigError
from headrace.security.sasl_server import SaslServerConfig, make_server_mechanism_factory
from headrace.testing.clock import ManualClock

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
    ],
)
def test_bad_settings(mechanism: str, values: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        factory(mechanism, **values)
    assert "hunter2" not in str(caught.value)


def test_settings_are_not_shown() -> None:
    assert "secret" not in repr(SaslServerConfig({"sasl.jaas.config": "secret"}))
