"""GSSAPI with a real KDC: our clients and brokers, kafka-python, kcat (librdkafka) and Kafka's Java client."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.apache_kafka.broker import KafkaBroker, KafkaUnavailable, kafka_classpath
from tests.support.apache_kafka.jvm import start_java
from tests.support.broker.clients import install_kcat
from tests.support.broker.process import free_port
from tests.support.net.wire_client import ConnectionEnded, WireClient
from tests.support.security.kdc import REALM, Kdc, KerberosUnavailable, install_gssapi, install_kerberos

import headrace
import headrace.aio
from headrace.common.errors import ConfigError, SaslAuthenticationFailedError
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.security.kerberos import GssapiClient, GssapiServer, KerberosAcceptor, KerberosIdentity, default_realm
from headrace.testing import EmbeddedBroker, EmbeddedCluster

pytestmark = pytest.mark.timeout(900)

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
SERVICE = "kafka/localhost"
RULES = rf"RULE:[2:$1@$0](admin@.*)s/.*/root/,RULE:[1:$1@$0](.*@{REALM.replace('.', '[.]')})s/@.*//"
JAVA_SECONDS = 240


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """A KDC that this process uses, with the package gssapi."""
    try:
        install_kerberos()
        package = install_gssapi()
    except KerberosUnavailable as error:
        pytest.skip(f"Kerberos is not available: {error}")
    kdc = Kdc(tmp_path_factory.mktemp("kdc"), free_port())
    kdc.start()
    kdc.add_principals(SERVICE, "alice", "bob", "admin/ops", "kafka/other")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(package)
        for name, value in kdc.environment.items():
            patch.setenv(name, value)
        yield kdc
    kdc.stop()


@pytest.fixture(scope="module")
def keytabs(kdc: Kdc) -> dict[str, Path]:
    return {name: kdc.keytab(name) for name in (SERVICE, "alice", "bob", "admin/ops", "kafka/other")}


@pytest.fixture(scope="module")
def broker(keytabs: dict[str, Path]) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(broker_properties(keytabs), topics={"t": 1}) as broker:
        broker.create_topic("of-alice")
        yield broker


def jaas(keytab: Path, principal: str, more: str = "") -> str:
    return f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}@{REALM}" {more};'


def broker_properties(keytabs: dict[str, Path]) -> dict[str, object]:
    return {
        "listeners": f"SASL_PLAINTEXT://localhost:{free_port()}",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": RULES,
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas(keytabs[SERVICE], SERVICE),
        "authorizer.class.name": "headrace",
        "super.users": "User:alice;User:root;User:kafka",
    }


def servers(broker: EmbeddedBroker) -> str:
    return f"localhost:{broker.port}"


def client_config(broker: EmbeddedBroker, keytab: Path, principal: str) -> dict[str, Any]:
    return client_config_of(servers(broker), keytab, principal)


def client_config_of(addresses: str, keytab: Path, principal: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": addresses,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": jaas(keytab, principal),
    }


# ---- our clients


def test_our_clients(broker: EmbeddedBroker, keytabs: dict[str, Path]) -> None:
    config = client_config(broker, keytabs["alice"], "alice")
    with headrace.Producer(config) as producer:
        assert producer.send("t", b"ours").get(timeout_ms=60_000).topic == "t"
    with headrace.Consumer({**config, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([headrace.TopicPartition("t", 0)])
        records = consumer.poll(timeout_ms=60_000)
        assert [record.value for found in records.values() for record in found][:1] == [b"ours"]

    async def topics() -> list[str]:
        async with headrace.aio.Admin(config) as admin:
            return await admin.list_topics(timeout_ms=60_000)

    assert "of-alice" in asyncio.run(topics())


def test_rules_make_users_of_principals(broker: EmbeddedBroker, keytabs: dict[str, Path]) -> None:
    """admin/ops is the super user root; bob has no rights."""
    with headrace.Admin(client_config(broker, keytabs["admin/ops"], "admin/ops")) as admin:
        assert "of-alice" in admin.list_topics(timeout_ms=60_000)
    with headrace.Admin(client_config(broker, keytabs["bob"], "bob")) as admin:
        assert admin.list_topics(timeout_ms=60_000) == []
    other = client_config(broker, keytabs["kafka/other"], "kafka/other")
    with headrace.Admin(other) as admin, pytest.raises(SaslAuthenticationFailedError, match="no rule of"):
        admin.list_topics(timeout_ms=60_000)


def test_librdkafkas_configs_and_ticket_caches(broker: EmbeddedBroker, keytabs: dict[str, Path], kdc: Kdc) -> None:
    config = client_config(broker, keytabs["alice"], "alice")
    del config["sasl.jaas.config"]
    with headrace.Admin(
        {**config, "sasl.kerberos.keytab": str(keytabs["alice"]), "sasl.kerberos.principal": f"alice@{REALM}"}
    ) as admin:
        assert "t" in admin.list_topics(timeout_ms=60_000)
    cache = f"FILE:{kdc.directory / 'of-alice'}"
    cached = {**config, "sasl.jaas.config": f'{MODULE} required useTicketCache=true ticketCache="{cache}";'}
    with headrace.Admin(cached) as admin, pytest.raises(SaslAuthenticationFailedError, match="run kinit first"):
        admin.list_topics(timeout_ms=60_000)
    kdc.run("kinit", "-c", cache, "-k", "-t", str(keytabs["alice"]), "alice")
    with headrace.Admin(cached) as admin:
        assert "t" in admin.list_topics(timeout_ms=60_000)
    with headrace.Admin(config) as admin, pytest.raises(SaslAuthenticationFailedError, match="run kinit first"):
        admin.list_topics(timeout_ms=60_000)


def test_wrong_keys_and_wrong_services(broker: EmbeddedBroker, keytabs: dict[str, Path]) -> None:
    no_key = pytest.raises(SaslAuthenticationFailedError, match=rf"no ticket for kafka@localhost.*{keytabs['bob']}")
    with headrace.Admin(client_config(broker, keytabs["bob"], "alice")) as admin, no_key:
        admin.list_topics(timeout_ms=60_000)
    unknown = client_config(broker, keytabs["alice"], "alice") | {"sasl.kerberos.domain.name": "nowhere"}
    with headrace.Admin(unknown) as admin, pytest.raises(SaslAuthenticationFailedError, match="kafka@nowhere"):
        admin.list_topics(timeout_ms=60_000)
    # A ticket for another service, whose key the broker does not have.
    other = client_config(broker, keytabs["alice"], "alice") | {"sasl.kerberos.domain.name": "other"}
    not_valid = pytest.raises(SaslAuthenticationFailedError, match="ticket is not valid for this broker")
    with headrace.Admin(other) as admin, not_valid:
        admin.list_topics(timeout_ms=60_000)


def test_garbage_closes_the_connection(broker: EmbeddedBroker) -> None:
    for token in (
        b"",
        b"\0",
        os.urandom(5000),
        b"\x60\x82\xff\xff\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01\x00",
    ):
        with WireClient(broker.address, timeout=60) as wire:
            assert wire.call(SaslHandshakeRequest(mechanism="GSSAPI"), 1).error_code == 0
            response = wire.call(SaslAuthenticateRequest(auth_bytes=token), 2)
            assert response.error_code == SaslAuthenticationFailedError.code
            with pytest.raises((ConnectionEnded, ConnectionError)):
                wire.receive_frame()


def test_brokers_log_in_to_each_other(keytabs: dict[str, Path]) -> None:
    properties = {
        **broker_properties(keytabs),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.kerberos.domain.name": "localhost",
        # The brokers' principal has two parts.
        "sasl.kerberos.principal.to.local.rules": "DEFAULT",
    }
    with EmbeddedCluster(2, properties, {"t": 1}, replication_factor=2) as cluster:
        config = {
            **client_config_of(cluster.bootstrap_servers, keytabs["alice"], "alice"),
            "sasl.kerberos.domain.name": "localhost",
        }
        with headrace.Producer({**config, "acks": "all"}) as producer:
            assert producer.send("t", b"x").get(timeout_ms=60_000).offset == 0
        cluster.wait_until_in_sync()


# ---- the mechanism


@pytest.fixture
def acceptor(keytabs: dict[str, Path]) -> KerberosAcceptor:
    identity = KerberosIdentity(f"{SERVICE}@{REALM}", str(keytabs[SERVICE]), None, "kafka")
    return KerberosAcceptor(identity, ("DEFAULT",))


@pytest.fixture
def client(keytabs: dict[str, Path]) -> GssapiClient:
    identity = KerberosIdentity(f"alice@{REALM}", str(keytabs["alice"]), None, "kafka")
    return GssapiClient(identity, "localhost", "MEMORY:test")


def test_exchange(acceptor: KerberosAcceptor, client: GssapiClient) -> None:
    server = GssapiServer(acceptor)
    message, rounds = client.initial_response(), 0
    while not client.complete:
        message = client.respond(server.respond(message))
        rounds += 1
    assert rounds == 3
    assert str(server.principal) == "User:alice"
    with pytest.raises(SaslAuthenticationFailedError, match="authentication is complete"):
        server.respond(b"")


def test_foreign_authorization_id_changes_nothing(acceptor: KerberosAcceptor, client: GssapiClient) -> None:
    """CVE-2017-12610."""
    server = GssapiServer(acceptor)
    message = client.respond(server.respond(client.initial_response()))
    client.respond(server.respond(message))
    server.respond(bytes(client._context.wrap(b"\1\0\0\0root", encrypt=False).message))
    assert str(server.principal) == "User:alice"


def test_recorded_ticket_is_refused(acceptor: KerberosAcceptor, client: GssapiClient) -> None:
    ticket = client.initial_response()
    GssapiServer(acceptor).respond(ticket)
    with pytest.raises(SaslAuthenticationFailedError, match="not valid"):
        GssapiServer(acceptor).respond(ticket)


@pytest.mark.parametrize("choice", [b"", b"\1\0", b"\4\0\0\0", b"\2\0\0\0"])
def test_security_layers_are_refused(acceptor: KerberosAcceptor, client: GssapiClient, choice: bytes) -> None:
    server = GssapiServer(acceptor)
    offer = server.respond(client.respond(server.respond(client.initial_response())))
    assert client._context.unwrap(offer).message == b"\1\1\0\0"
    with pytest.raises(SaslAuthenticationFailedError, match=r"sasl\.qop must be auth"):
        server.respond(bytes(client._context.wrap(choice, encrypt=False).message))
    assert not server.complete


def test_changed_choice_is_refused(acceptor: KerberosAcceptor, client: GssapiClient) -> None:
    server = GssapiServer(acceptor)
    choice = client.respond(server.respond(client.respond(server.respond(client.initial_response()))))
    with pytest.raises(SaslAuthenticationFailedError, match="not valid"):
        server.respond(choice[:-1] + bytes((choice[-1] ^ 1,)))
    assert not server.complete


def test_broker_without_its_key_does_not_start(keytabs: dict[str, Path], tmp_path: Path) -> None:
    assert default_realm() == REALM
    for keytab, problem in ((keytabs["alice"], "has no key of kafka/localhost"), (tmp_path / "x", "cannot be read")):
        wrong = {SERVICE: keytab}
        with pytest.raises(ConfigError, match=problem), EmbeddedBroker(broker_properties(wrong)):
            pass


# ---- other clients


def test_kafka_python(broker: EmbeddedBroker, keytabs: dict[str, Path], kdc: Kdc) -> None:
    kdc.run("kinit", "-k", "-t", str(keytabs["alice"]), "alice")
    config = {
        "bootstrap_servers": servers(broker),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        "sasl_kerberos_domain_name": "localhost",
    }
    program = (
        "import sys, kafka\n"
        f"producer = kafka.KafkaProducer(**{config!r})\n"
        "print(producer.send('of-alice', b'kafka-python').get(60).topic)\n"
    )
    # A process of its own: kafka-python looks for gssapi when it is imported.
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(install_gssapi())},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert shown.stdout.split() == ["of-alice"], shown.stderr


def test_kcat(broker: EmbeddedBroker, keytabs: dict[str, Path], kdc: Kdc) -> None:
    if reason := install_kcat():
        pytest.skip(reason)
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.keytab": keytabs["admin/ops"],
        "sasl.kerberos.principal": f"admin/ops@{REALM}",
    }
    command = ["kcat", "-b", servers(broker), "-L", *(f"-X{key}={value}" for key, value in options.items())]
    environment = {**os.environ, "KRB5CCNAME": f"FILE:{kdc.directory / 'of-kcat'}"}
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert 'topic "of-alice"' in shown.stdout, shown.stderr


def test_java(broker: EmbeddedBroker, keytabs: dict[str, Path], kdc: Kdc, tmp_path: Path) -> None:
    try:
        kafka_classpath()
    except KafkaUnavailable as error:
        pytest.skip(f"Apache Kafka is not available: {error}")
    config = client_config(broker, keytabs["alice"], "alice")
    properties = tmp_path / "client.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in config.items() if key != "bootstrap.servers"))
    process = start_java(
        "org.apache.kafka.tools.TopicCommand",
        ["--bootstrap-server", servers(broker), "--command-config", properties, "--list"],
        jvm_args=[f"-Djava.security.krb5.conf={kdc.environment['KRB5_CONFIG']}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, errors = process.communicate(timeout=JAVA_SECONDS)
    finally:
        process.kill()
    assert out.decode().split() == ["of-alice", "t"], errors.decode()


class KafkaWithKerberos(KafkaBroker):
    """Apache Kafka with another listener, which has GSSAPI."""

    sasl_port = 0

    def _settings(self) -> dict[str, object]:
        self.sasl_port = free_port()
        settings = super()._settings()
        for key in ("listeners", "advertised.listeners"):
            settings[key] = f"SASL_PLAINTEXT://localhost:{self.sasl_port},{settings[key]}"
        return settings | {
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
        }


def test_our_client_with_apache_kafka(keytabs: dict[str, Path], kdc: Kdc, tmp_path: Path) -> None:
    try:
        kafka_classpath()
    except KafkaUnavailable as error:
        pytest.skip(f"Apache Kafka is not available: {error}")
    properties = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas(keytabs[SERVICE], SERVICE),
    }
    jvm_args = ["-Xmx256m", f"-Djava.security.krb5.conf={kdc.environment['KRB5_CONFIG']}"]
    running = KafkaWithKerberos(tmp_path / "kafka", properties, jvm_args=jvm_args, start_timeout=JAVA_SECONDS)
    with running:
        config = {
            "bootstrap.servers": f"localhost:{running.sasl_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.jaas.config": jaas(keytabs["alice"], "alice"),
        }
        with headrace.Producer(config) as producer:
            assert producer.send("new", b"x").get(timeout_ms=60_000).topic == "new"
