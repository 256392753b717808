import pytest

from headrace.broker.config.listener_security import (
    LISTENER_KEYS,
    PrefixedKey,
    check_prefixed,
    prefixed_key,
    security_of,
    split_prefixed,
)
from headrace.common.errors import ConfigError
from headrace.net.listeners import Listener


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("listener.name.external.ssl.keystore.location", PrefixedKey("external", "", "ssl.keystore.location")),
        ("listener.name.my.own.ssl.client.auth", PrefixedKey("my.own", "", "ssl.client.auth")),
        ("listener.name.sasl_ssl.plain.ssl.protocol", PrefixedKey("sasl_ssl", "plain", "ssl.protocol")),
        ("listener.name.a.scram-sha-256.ssl.protocol", PrefixedKey("a", "scram-sha-256", "ssl.protocol")),
        ("listener.name.plain.ssl.protocol", PrefixedKey("plain", "", "ssl.protocol")),
        ("ssl.protocol", None),
    ],
)
def test_splits_prefixed_names(name: str, expected: PrefixedKey | None) -> None:
    assert split_prefixed(name) == expected


def test_unknown_keys_of_a_listener() -> None:
    with pytest.raises(ConfigError, match=r"listener.name.a.ssl.x: unknown configuration key 'ssl.x'"):
        split_prefixed("listener.name.a.ssl.x")
    assert prefixed_key("listener.name.a.ssl.x") is None
    assert prefixed_key("listener.name.a.ssl.protocol") is LISTENER_KEYS.keys["ssl.protocol"]


def test_keys_without_effect_are_noted() -> None:
    assert list(check_prefixed("listener.name.a.num.network.threads", "3", ["A"])) == [
        "listener.name.a.num.network.threads has no effect: one event loop replaces these threads and queues"
    ]


def test_a_listener_has_its_own_values_over_those_of_the_broker() -> None:
    properties = {
        "ssl.client.auth": "required",
        "ssl.key.password": "all",
        "listener.name.a.ssl.key.password": "own",
        "listener.name.a.plain.ssl.key.password": "plain",
        "listener.name.ab.ssl.key.password": "other",
    }
    security = security_of(Listener("A", "", 1, "SSL"), properties)
    assert (security.protocol, security.uses_tls, security.uses_sasl) == ("SSL", True, False)
    assert security.values["ssl.key.password"] == "own"
    assert security.values["ssl.client.auth"] == "required"
    assert security.values["ssl.enabled.protocols"] == ("TLSv1.2", "TLSv1.3")
    assert security.for_mechanism("PLAIN")["ssl.key.password"] == "plain"
    assert security.for_mechanism("GSSAPI")["ssl.key.password"] == "own"
    assert security_of(Listener("B", "", 1, "SSL"), properties).values["ssl.key.password"] == "all"


def test_client_certificates_on_sasl_listeners_need_a_value_of_the_listener_itself() -> None:
    listener = Listener("A", "", 1, "SASL_SSL")
    properties = {"ssl.client.auth": "required"}
    assert security_of(listener, properties).values["ssl.client.auth"] == "none"
    properties["listener.name.a.ssl.client.auth"] = "requested"
    assert security_of(listener, properties).values["ssl.client.auth"] == "requested"
