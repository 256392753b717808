"""Property files written for Java clients."""

import pytest

from headrace.cli.common import client_config as client_config
from headrace.cli.common.client_config import configs_for, known_configs
from headrace.cli.common.connection import Connection
from headrace.client.config.admin import ADMIN_KEYS
from headrace.client.config.consumer import CONSUMER_KEYS
from headrace.client.config.producer import PRODUCER_KEYS

JAVA = {
    "security.protocol": "PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required;",
    "ssl.truststore.location": "/trusted.jks",
    "bootstrap.servers": "elsewhere:9092",
    "request.timeout.ms": "20000",
    "acks": "all",
    "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
    "fetch.min.bytes": "7",
    "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor,range",
    "interceptor.classes": "com.example.Interceptor",
}


@pytest.fixture(autouse=True)
def nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_config, "_WARNED", set())


def test_each_client_gets_the_configs_it_knows() -> None:
    connection = Connection("here:9092", known_configs(JAVA))
    for kind, table, some in (
        ("admin", ADMIN_KEYS, {"request.timeout.ms": "20000"}),
        ("producer", PRODUCER_KEYS, {"acks": "all"}),
        (
            "consumer",
            CONSUMER_KEYS,
            {"fetch.min.bytes": "7", "partition.assignment.strategy": "cooperative-sticky,range"},
        ),
    ):
        settings = connection.client_config(kind)
        assert settings.items() >= some.items()
        assert settings["bootstrap.servers"] == "here:9092"
        table.load(settings)  # and it takes them


def test_command_line_overrides_file() -> None:
    connection = Connection("here:9092", {"linger.ms": "5", "acks": "1"})
    settings = connection.client_config("producer", {"acks": "0"}, {"linger.ms": 0, "batch.size": 1})
    assert settings.items() >= {"linger.ms": "5", "acks": "0", "batch.size": 1}.items()


def test_warns_once_about_unknown_configs(capsys: pytest.CaptureFixture[str]) -> None:
    assert known_configs({"foo.bar": "1", "interceptor.classes": "X", "acks": "1"}) == {"acks": "1"}
    assert known_configs({"foo.bar": "1"}) == {}
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.endswith(": foo.bar, interceptor.classes\n")


def test_accepts_java_names_of_tls_configs(capsys: pytest.CaptureFixture[str]) -> None:
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "me.pem",
        "ssl.key.password": "secret",
        "ssl.endpoint.identification.algorithm": "",
        "sasl.mechanism": "PLAIN",
    }
    expected = {name: value for name, value in given.items() if not name.startswith("sasl.")}
    assert known_configs(given) == expected
    assert known_configs({"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}) == {
        "security.protocol": "SSL",
        "ssl.cafile": "ca.pem",
    }
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["ssl.truststore.location", "sasl.jaas.config"])
def test_keeps_configs_that_the_connection_needs(name: str) -> None:
    given = known_configs({"security.protocol": "SASL_SSL", name: "x"})
    assert configs_for("admin", given).keys() == {"security.protocol", name}
