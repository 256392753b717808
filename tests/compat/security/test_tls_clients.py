"""Other clients over TLS: certificates of brokers and clients, SASL over TLS, and what is wrong with either of them."""

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.helpers
import confluent_kafka as confluent
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from tests.support.broker.clients import install_kcat
from tests.support.broker.java_clients import Java, JavaError
from tests.support.security.sasl_broker import MODULES, USERS, jaas
from tests.support.security.tls import ALICE, CA, OTHER_CA, PASSWORD, SUBJECT, TlsFiles

import headrace
from headrace.admin import UserScramCredentialUpsertion
from headrace.security.distinguished_names import certificate_names
from headrace.testing import EmbeddedBroker
from headrace.testing.certificates import LOCAL_HOSTS

PATIENCE_SECONDS = 90.0
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
BAD_LISTENERS = ("EXPIRED", "FUTURE", "WRONGHOST", "UNTRUSTED")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker(files: TlsFiles) -> Iterator[EmbeddedBroker]:
    bad = {
        "EXPIRED": CA.issue("broker", hosts=LOCAL_HOSTS, valid_until=timedelta(hours=-1)),
        "FUTURE": CA.issue("broker", hosts=LOCAL_HOSTS, valid_from=timedelta(hours=1)),
        "WRONGHOST": CA.issue("broker", hosts=["other.example"]),
        "UNTRUSTED": OTHER_CA.issue("broker", hosts=LOCAL_HOSTS),
    }
    protocols = {
        "SSL": "SSL",
        "MUTUAL": "SSL",
        "SASL_SSL": "SASL_SSL",
        **dict.fromkeys(bad, "SSL"),
        "PLAIN": "PLAINTEXT",
    }
    properties = files.broker_properties(
        listeners=",".join(f"{name}://localhost:0" for name in protocols),
        security_inter_broker_protocol="PLAINTEXT",
        sasl_enabled_mechanisms=",".join(MECHANISMS),
        **{
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas("PLAIN"),
            **{
                f"listener.name.{name.lower()}.ssl.keystore.location": files.keystore(name, certificate)
                for name, certificate in bad.items()
            },
        },
    )
    with EmbeddedBroker(properties, topics={"t": 1}) as broker:
        with headrace.Admin({"bootstrap.servers": address(broker, "PLAIN")}) as admin:
            admin.alter_user_scram_credentials(
                [
                    UserScramCredentialUpsertion("alice", mechanism, USERS["alice"])  # type: ignore[arg-type]
                    for mechanism in MECHANISMS[1:]
                ]
            )
        yield broker


def address(broker: EmbeddedBroker, listener: str) -> str:
    ports = broker.call(lambda running: {bound.name: bound.port for bound in running.server.endpoints})
    return f"localhost:{ports[listener]}"


def eventually(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.01)


# ---- librdkafka


def librdkafka_config(broker: EmbeddedBroker, files: TlsFiles, listener: str, mechanism: str = "") -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": address(broker, listener),
        "security.protocol": "SASL_SSL" if mechanism else "SSL",
        "ssl.ca.location": files.ca,
    }
    if listener == "MUTUAL":
        config |= {"ssl.certificate.location": files.alice, "ssl.key.location": files.alice}
    if mechanism:
        config |= {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": USERS["alice"]}
    return config


@pytest.mark.parametrize(
    ("listener", "mechanism"), [("SSL", ""), ("MUTUAL", ""), *(("SASL_SSL", mechanism) for mechanism in MECHANISMS)]
)
def test_confluent(broker: EmbeddedBroker, files: TlsFiles, listener: str, mechanism: str) -> None:
    config = librdkafka_config(broker, files, listener, mechanism)
    reports: list[Any] = []
    producer = confluent.Producer(config)
    producer.produce(
        "t", b"confluent", partition=0, on_delivery=lambda error, message: reports.append((error, message))
    )
    assert producer.flush(PATIENCE_SECONDS) == 0
    ((error, message),) = reports
    assert error is None
    consumer = confluent.Consumer({**config, "group.id": "confluent"})
    try:
        consumer.assign([confluent.TopicPartition("t", 0, message.offset())])
        record = consumer.poll(PATIENCE_SECONDS)
        assert record is not None
        assert record.value() == b"confluent"
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("listener", "words"),
    [
        ("EXPIRED", "certificate verify failed"),
        ("FUTURE", "certificate verify failed"),
        ("WRONGHOST", "certificate verify failed"),
        ("UNTRUSTED", "certificate verify failed"),
        ("MUTUAL", "certificate required|alert"),
        ("SASL_SSL", "Authentication failed|authentication"),
        ("PLAIN", "SSL handshake failed|Disconnected|disconnected"),
    ],
)
def test_confluent_says_what_is_wrong(broker: EmbeddedBroker, files: TlsFiles, listener: str, words: str) -> None:
    config = librdkafka_config(broker, files, listener, "PLAIN" if listener == "SASL_SSL" else "")
    for name in ("ssl.certificate.location", "ssl.key.location"):
        config.pop(name, None)
    if listener == "SASL_SSL":
        config["sasl.password"] = "wrong"
    errors: list[str] = []
    producer = confluent.Producer({**config, "error_cb": lambda error: errors.append(error.str()), "log_level": 0})

    def failed() -> bool:
        producer.poll(0.05)
        return any(word in error for error in errors for word in words.split("|"))

    eventually(failed, lambda: errors)
    producer.purge()


def test_kcat(broker: EmbeddedBroker, files: TlsFiles) -> None:
    if reason := install_kcat():
        pytest.skip(reason)

    def run(config: dict[str, Any], seconds: str = "60") -> subprocess.CompletedProcess[str]:
        servers = config.pop("bootstrap.servers")
        options = [option for name, value in config.items() for option in ("-X", f"{name}={value}")]
        return subprocess.run(
            ["kcat", "-b", servers, *options, "-L", "-m", seconds], capture_output=True, text=True, check=False
        )

    # Not SCRAM: librdkafka before 2.6.1 repeats the client's nonce in its last message. Kafka's brokers refuse that,
    # too, since CVE-2024-56128.
    for listener, mechanism in (("SSL", ""), ("MUTUAL", ""), ("SASL_SSL", "PLAIN")):
        done = run(librdkafka_config(broker, files, listener, mechanism))
        assert 'topic "t" with 1 partitions' in done.stdout, done.stderr
    wrong = librdkafka_config(broker, files, "SASL_SSL", "PLAIN")
    done = run({**wrong, "sasl.password": "wrong"}, "3")
    assert done.returncode != 0
    assert "uthentication fail" in done.stderr


# ---- kafka-python and aiokafka


def python_config(broker: EmbeddedBroker, files: TlsFiles, listener: str, mechanism: str = "") -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap_servers": address(broker, listener),
        "security_protocol": "SASL_SSL" if mechanism else "SSL",
        "ssl_cafile": files.ca,
    }
    if listener == "MUTUAL":
        config |= {"ssl_certfile": files.alice, "ssl_keyfile": files.alice}
    if mechanism:
        config |= {"sasl_mechanism": mechanism}
        config |= {"sasl_plain_username": "alice", "sasl_plain_password": USERS["alice"]}
    return config


KAFKA_PYTHON = """
import json, logging, sys, kafka
logging.disable()
for config in json.load(sys.stdin):
    try:
        producer = kafka.KafkaProducer(**config)
        print(producer.send("t", b"kafka-python", partition=0).get(60).topic)
        producer.close(timeout=60)
    except kafka.errors.KafkaError as error:
        print(type(error).__name__)
"""


def test_kafka_python(broker: EmbeddedBroker, files: TlsFiles) -> None:
    """In a process of its own, because it does not close all its sockets."""
    good = [
        python_config(broker, files, listener, mechanism)
        for listener, mechanism in (("SSL", ""), ("MUTUAL", ""), ("SASL_SSL", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512"))
    ]
    bad = [python_config(broker, files, listener) for listener in BAD_LISTENERS]
    bad.append({**python_config(broker, files, "SASL_SSL", "PLAIN"), "sasl_plain_password": "wrong"})
    done = subprocess.run(
        [sys.executable, "-c", KAFKA_PYTHON],
        input=json.dumps([*good, *({**config, "bootstrap_timeout_ms": 500} for config in bad)]),
        capture_output=True,
        text=True,
        check=True,
    )
    results = done.stdout.split()
    assert results[: len(good)] == ["t"] * len(good), done.stderr
    assert len(results) == len(good) + len(bad)
    assert "t" not in results[len(good) :]


def test_aiokafka(broker: EmbeddedBroker, files: TlsFiles) -> None:
    async def use(listener: str, mechanism: str = "", **changes: str) -> None:
        config = {**python_config(broker, files, listener, mechanism), **changes}
        names = {"ssl_cafile": "cafile", "ssl_certfile": "certfile", "ssl_keyfile": "keyfile"}
        tls = {name: config.pop(key) for key, name in names.items() if key in config}
        context = aiokafka.helpers.create_ssl_context(**tls)
        producer = aiokafka.AIOKafkaProducer(**config, ssl_context=context)
        try:
            await producer.start()
            await producer.send_and_wait("t", b"aiokafka")
        finally:
            await producer.stop()

    async def main() -> None:
        for listener, mechanism in (("SSL", ""), ("MUTUAL", ""), ("SASL_SSL", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-256")):
            await use(listener, mechanism)
        for listener in BAD_LISTENERS:
            with pytest.raises(aiokafka.errors.KafkaError):
                await use(listener)
        with pytest.raises(aiokafka.errors.KafkaError):
            await use("SASL_SSL", "PLAIN", sasl_plain_password="wrong")

    asyncio.run(main())


# ---- Java


@pytest.fixture(scope="module")
def java(apache_kafka: None, broker: EmbeddedBroker) -> Iterator[Java]:
    with Java(address(broker, "PLAIN")) as running:
        yield running


def java_config(broker: EmbeddedBroker, files: TlsFiles, listener: str, mechanism: str = "") -> dict[str, str]:
    """PEM on the listener SSL, and PKCS12 elsewhere."""
    config = {
        "bootstrap.servers": address(broker, listener),
        "security.protocol": "SASL_SSL" if mechanism else "SSL",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": files.pkcs12_truststore,
        "ssl.truststore.password": PASSWORD,
    }
    if listener == "SSL":
        config |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": files.ca}
        del config["ssl.truststore.password"]
    if listener == "MUTUAL":
        config |= {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": files.pkcs12("java", CA.issue("alice", subject=SUBJECT)),
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
        }
    if mechanism:
        login = f'username="alice" password="{USERS["alice"]}"'
        config |= {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{MODULES[mechanism]} required {login};"}
    return config


def test_java_clients(java: Java, broker: EmbeddedBroker, files: TlsFiles) -> None:
    for listener, mechanism in (("SSL", ""), ("MUTUAL", ""), ("SASL_SSL", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512")):
        configs = java_config(broker, files, listener, mechanism)
        assert java.call("round_trip", topic="t", configs=configs) == "java"


def test_java_clients_say_what_is_wrong(java: Java, broker: EmbeddedBroker, files: TlsFiles) -> None:
    for listener in BAD_LISTENERS:
        with pytest.raises(JavaError, match=r"SslAuthenticationException|SSL handshake failed"):
            java.call("round_trip", configs=java_config(broker, files, listener))
    no_certificate = {**java_config(broker, files, "SSL"), "bootstrap.servers": address(broker, "MUTUAL")}
    with pytest.raises(JavaError, match=r"SslAuthenticationException|SSL handshake failed|authentication"):
        java.call("round_trip", configs=no_certificate)
    wrong = java_config(broker, files, "SASL_SSL", "PLAIN")
    wrong["sasl.jaas.config"] = wrong["sasl.jaas.config"].replace(USERS["alice"], "wrong")
    with pytest.raises(JavaError, match="SaslAuthenticationException"):
        java.call("round_trip", configs=wrong)


def test_kafkas_tools(java: Java, broker: EmbeddedBroker, files: TlsFiles, tmp_path: Path) -> None:
    """They also change the broker's certificate at run time."""
    configs = java_config(broker, files, "MUTUAL")
    servers = configs.pop("bootstrap.servers")
    properties = tmp_path / "client.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in configs.items()))
    common = ("--bootstrap-server", servers, "--command-config", properties)
    assert java.bare_tool("kafka-topics", *common, "--list").out.splitlines()[-1] == "t"
    new = files.keystore("broker-2", CA.issue("broker", hosts=LOCAL_HOSTS, subject={"O": "Example"}))
    change = f"listener.name.mutual.ssl.keystore.location={new}"
    alter = (*common, "--alter", "--entity-type", "brokers", "--entity-name", 0, "--add-config")
    assert "Completed updating config" in java.bare_tool("kafka-configs", *alter, change).out
    assert java.bare_tool("kafka-topics", *common, "--list").out.splitlines()[-1] == "t"


def test_distinguished_names_are_those_of_java(java: Java) -> None:
    texts = ("alice", " a ", "Example, Inc.", 'a+b=c<d>e#f;g"h\\i', "#x", "Müller", "日本 \r", "a\0b", "\n")
    names = [
        *(
            [x509.NameAttribute(NameOID.COMMON_NAME, text), x509.NameAttribute(NameOID.COUNTRY_NAME, "DE")]
            for text in texts
        ),
        [
            x509.NameAttribute(oid, "value")
            for oid in (
                NameOID.EMAIL_ADDRESS,
                NameOID.DOMAIN_COMPONENT,
                NameOID.USER_ID,
                NameOID.STREET_ADDRESS,
                NameOID.STATE_OR_PROVINCE_NAME,
                NameOID.LOCALITY_NAME,
                NameOID.SERIAL_NUMBER,
                NameOID.TITLE,
                NameOID.GIVEN_NAME,
            )
        ],
    ]
    subjects = [x509.Name(attributes) for attributes in names]
    subjects.append(
        x509.Name(
            [
                x509.RelativeDistinguishedName(
                    [x509.NameAttribute(NameOID.COMMON_NAME, "b"), x509.NameAttribute(NameOID.USER_ID, "a")]
                ),
                x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "o")]),
            ]
        )
    )
    for subject in subjects:
        der = CA.issue_to(subject).certificate.public_bytes(Encoding.DER)
        theirs = java.call("distinguished_name", certificate=base64.b64encode(der).decode())
        assert certificate_names(der).subject == theirs
    assert ALICE.startswith("User:CN=alice,")
