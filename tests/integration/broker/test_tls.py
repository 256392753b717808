"""Listeners with TLS of a real broker: certificates, principals, errors, hostile bytes, reloading."""

import asyncio
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.security.sasl_broker import jaas
from tests.support.security.tls import ALICE, CA, OTHER_CA, PASSWORD, SUBJECT, TlsFiles

import headrace
import headrace.aio
from headrace.admin import ConfigResource, ConfigResourceType, UserScramCredentialUpsertion
from headrace.cli.main import main
from headrace.client.errors import SslAuthenticationError
from headrace.common.errors import ConfigError, InvalidRequestError, KafkaError, SaslAuthenticationFailedError
from headrace.testing import EmbeddedBroker
from headrace.testing.certificates import LOCAL_HOSTS

DEADLINE_SECONDS = 60.0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker(files: TlsFiles) -> Iterator[EmbeddedBroker]:
    properties = files.broker_properties(
        listeners="SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0,SASL_SSL://127.0.0.1:0,PLAIN://127.0.0.1:0",
        listener_security_protocol_map="SSL:SSL,MUTUAL:SSL,SASL_SSL:SASL_SSL,PLAIN:PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256",
        security_inter_broker_protocol="PLAINTEXT",
        **{
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas("PLAIN"),
        },
    )
    with EmbeddedBroker(properties, topics={"t": 1}) as broker:
        yield broker


def address(broker: EmbeddedBroker, listener: str = "SSL") -> str:
    ports = broker.call(lambda running: {bound.name: bound.port for bound in running.server.endpoints})
    return f"localhost:{ports[listener]}"


def round_trip(config: dict[str, Any], value: bytes = b"value") -> None:
    with headrace.Producer(config) as producer:
        metadata = producer.send("t", value).get(timeout_ms=DEADLINE_SECONDS * 1000)
    with headrace.Consumer(config) as consumer:
        tp = headrace.TopicPartition("t", 0)
        consumer.assign([tp])
        consumer.seek(tp, metadata.offset)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            for records in consumer.poll(1000).values():
                assert records[0].value == value
                return
        raise AssertionError("no record arrived")


def principals(broker: EmbeddedBroker, listener: str) -> set[str]:
    return broker.call(
        lambda running: {
            str(connection.principal)
            for connection in running.server.connections
            if connection.listener_name == listener
        }
    )


def wait_for_log(caplog: pytest.LogCaptureFixture, words: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while words not in caplog.text:
        assert time.monotonic() < deadline, caplog.text
        time.sleep(0.01)


# ---- clients


def test_clients_without_a_certificate_are_anonymous(broker: EmbeddedBroker, files: TlsFiles) -> None:
    round_trip(files.client_config(address(broker)))
    with headrace.Admin(files.client_config(address(broker), files.alice)) as admin:
        admin.list_topics()
        assert principals(broker, "SSL") == {"User:ANONYMOUS"}  # the listener does not ask for certificates


def test_the_certificate_is_the_principal(broker: EmbeddedBroker, files: TlsFiles) -> None:
    config = files.client_config(address(broker, "MUTUAL"), files.alice)
    round_trip(config, os.urandom(900_000))
    with headrace.Admin(config) as admin:
        admin.list_topics()
        assert principals(broker, "MUTUAL") == {ALICE}


def test_a_missing_client_certificate(
    broker: EmbeddedBroker, files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        headrace.Admin(files.client_config(address(broker, "MUTUAL"))) as admin,
        pytest.raises(SslAuthenticationError, match=r"requires a client certificate.*set ssl\.keystore\.location"),
    ):
        admin.list_topics()
    wait_for_log(caplog, "on MUTUAL: the client sent no certificate, but ssl.client.auth=required")


def test_clients_refuse_another_authority(broker: EmbeddedBroker, files: TlsFiles) -> None:
    config = files.client_config(address(broker), ssl_cafile=files.other_ca)
    with (
        headrace.Admin(config) as admin,
        pytest.raises(SslAuthenticationError, match=r"is not accepted.*Set ssl\.truststore\.location"),
    ):
        admin.list_topics()


def test_clients_refuse_another_host_name(files: TlsFiles) -> None:
    keystore = files.keystore("wrong-host", CA.issue("broker", hosts=["other.example"]))
    with EmbeddedBroker(files.broker_properties(ssl_keystore_location=keystore)) as broker:
        config = files.client_config(broker.bootstrap_servers)
        with (
            headrace.Admin(config) as admin,
            pytest.raises(SslAuthenticationError, match="Connect by a name of the certificate"),
        ):
            admin.list_topics()
        with headrace.Admin({**config, "ssl.check.hostname": False}) as admin:
            admin.list_topics()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_sasl_over_tls(broker: EmbeddedBroker, files: TlsFiles, mechanism: str) -> None:
    servers = address(broker, "SASL_SSL")
    config = files.client_config(servers, security_protocol="SASL_SSL", sasl_mechanism=mechanism)
    config |= {"sasl.username": "alice", "sasl.password": "alice-secret"}
    if mechanism != "PLAIN":
        add_scram_users_over(broker)
    round_trip(config)
    with headrace.Admin(config) as admin:
        admin.list_topics()
        assert "User:alice" in principals(broker, "SASL_SSL")
    with (
        headrace.Admin({**config, "sasl.password": "wrong"}) as admin,
        pytest.raises(SaslAuthenticationFailedError),
    ):
        admin.list_topics()


def add_scram_users_over(broker: EmbeddedBroker) -> None:
    with headrace.Admin({"bootstrap.servers": address(broker, "PLAIN")}) as admin:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", "alice-secret")])


# ---- other bytes


def test_plaintext_gets_a_clear_log_line(
    broker: EmbeddedBroker, files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    port = int(address(broker).partition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as plain:
        plain.sendall(b"\0\0\0\x10" + bytes(16))
        plain.settimeout(DEADLINE_SECONDS)
        assert plain.recv(10) == b""
    wait_for_log(caplog, "on SSL: the client does not speak TLS: it sent plaintext. Set security.protocol=SSL")
    plain_port = int(address(broker, "PLAIN").partition(":")[2])
    with (
        headrace.Admin(files.client_config(f"localhost:{plain_port}")) as admin,
        pytest.raises(KafkaError, match=r"security\.protocol=PLAINTEXT"),
    ):
        admin.list_topics(timeout_ms=2000)
    wait_for_log(caplog, "this looks like a TLS handshake")


def test_unfinished_handshakes_hold_no_other_client(broker: EmbeddedBroker, files: TlsFiles) -> None:
    port = int(address(broker).partition(":")[2])
    unfinished = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    try:
        for index, sock in enumerate(unfinished):
            sock.sendall(b"\x16\x03\x01\x02\x00\x01" if index % 2 else b"\x16\x03\x01\x00\x05hello")
        round_trip(files.client_config(address(broker)))
    finally:
        for sock in unfinished:
            sock.close()
    broker.wait_until(
        lambda running: not [each for each in running.server.connections if each.listener_name == "SSL"],
        DEADLINE_SECONDS * 1000,
    )


def test_idle_connections_are_closed_during_the_handshake(files: TlsFiles) -> None:
    with (
        EmbeddedBroker(files.broker_properties(connections_max_idle_ms=200)) as broker,
        socket.create_connection(broker.address) as sock,
    ):
        sock.settimeout(DEADLINE_SECONDS)
        assert sock.recv(10) == b""


# ---- settings


def test_versions_and_ciphers(files: TlsFiles) -> None:
    properties = files.broker_properties(
        ssl_enabled_protocols="TLSv1.2", ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    )
    with EmbeddedBroker(properties, topics={"t": 1}) as broker:
        context = ssl.create_default_context(cafile=files.ca)
        with (
            socket.create_connection(broker.address) as sock,
            context.wrap_socket(sock, server_hostname="localhost") as tls,
        ):
            assert tls.version() == "TLSv1.2"
            cipher = tls.cipher()
            assert cipher is not None
            assert cipher[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
        round_trip(files.client_config(broker.bootstrap_servers))


def test_mapping_rules_and_pkcs12(files: TlsFiles) -> None:
    properties = files.broker_properties(
        ssl_keystore_location=files.pkcs12("broker", CA.issue("broker", hosts=LOCAL_HOSTS, use_rsa=True)),
        ssl_keystore_password=PASSWORD,
        ssl_keystore_type="PKCS12",
        ssl_truststore_location=files.pkcs12_truststore,
        ssl_truststore_password=PASSWORD,
        ssl_client_auth="requested",
        ssl_principal_mapping_rules="RULE:^CN=([a-z]+),OU=sales.*$/$1/U,RULE:^CN=nobody$/x/",
    )
    with EmbeddedBroker(properties, topics={"t": 1}) as broker:
        with headrace.Admin(files.client_config(broker.bootstrap_servers, files.alice)) as admin:
            admin.list_topics()
            assert principals(broker, "SSL") == {"User:ALICE"}
        with headrace.Admin(files.client_config(broker.bootstrap_servers)) as admin:
            admin.list_topics()
            assert "User:ANONYMOUS" in principals(broker, "SSL")
        other = files.keystore("other", CA.issue("other"))
        with (
            headrace.Admin(files.client_config(broker.bootstrap_servers, other)) as admin,
            pytest.raises(KafkaError),
        ):
            admin.list_topics(timeout_ms=2000)


def test_a_broker_with_wrong_settings_does_not_start(files: TlsFiles) -> None:
    def error_of(**changes: object) -> str:
        with pytest.raises(ConfigError) as raised, EmbeddedBroker(files.broker_properties(**changes)):
            pass
        return str(raised.value)

    prefix = "listener.name.ssl.ssl"
    assert error_of(ssl_keystore_location="") == (
        f"{prefix}.keystore.location is missing: a listener with TLS needs a file with its private key and its "
        f"certificate (or {prefix}.keystore.key and {prefix}.keystore.certificate.chain)"
    )
    assert "cannot be read: No such file" in error_of(ssl_keystore_location="/no/such/file")
    assert "only some suites of TLS 1.3" in error_of(ssl_cipher_suites="TLS_AES_128_GCM_SHA256")
    assert "invalid rule" in error_of(ssl_principal_mapping_rules="RULE:x")
    assert "Java classes cannot be loaded" in error_of(ssl_engine_factory_class="com.example.Factory")


# ---- reloading


def serial(broker: EmbeddedBroker, files: TlsFiles) -> bytes | None:
    """Returns the certificate that a new connection gets."""
    context = ssl.create_default_context(cafile=files.ca)
    with (
        socket.create_connection(broker.address) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as tls,
    ):
        return tls.getpeercert(True)


def test_certificates_are_reloaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = TlsFiles(tmp_path)
    caplog.set_level(logging.INFO)
    subject = {"O": "Example"}
    with EmbeddedBroker(files.broker_properties(), topics={"t": 1}) as broker:
        config = files.client_config(broker.bootstrap_servers)
        first = serial(broker, files)
        with headrace.Producer(config) as producer:
            producer.send("t", b"1").get(timeout_ms=DEADLINE_SECONDS * 1000)
            connections = set(open_connections(broker))

            # A changed file.
            files.keystore("broker", CA.issue("broker", hosts=LOCAL_HOSTS, subject=subject))
            wait_for_log(caplog, "listener SSL has new certificates")
            second = serial(broker, files)
            assert second != first
            # An invalid one.
            (tmp_path / "broker.pem").write_text("-----BEGIN nonsense")
            wait_for_log(caplog, "a file has changed, but keeping the old certificates")
            assert serial(broker, files) == second

            # Another file, by IncrementalAlterConfigs.
            new = files.keystore("new", CA.issue("broker", hosts=LOCAL_HOSTS, subject=subject))
            alter(config, {"listener.name.ssl.ssl.keystore.location": new})
            third = serial(broker, files)
            assert third not in (first, second)
            for certificate, words in (
                (CA.issue("other", hosts=LOCAL_HOSTS), "has the distinguished name 'CN=other'"),
                (CA.issue("broker", hosts=["localhost"], subject=subject), "lacks alternative names"),
                (OTHER_CA.issue("broker", hosts=LOCAL_HOSTS, subject=subject), "would not accept the new certificate"),
            ):
                refused = files.keystore("refused", certificate)
                with pytest.raises(InvalidRequestError, match=words):
                    alter(config, {"listener.name.ssl.ssl.keystore.location": refused})
            with pytest.raises(InvalidRequestError, match="cannot be read: No such file"):
                alter(config, {"listener.name.ssl.ssl.keystore.location": "/no/such/file"})
            with pytest.raises(InvalidRequestError, match="only per-listener using the listener prefix"):
                alter(config, {"ssl.keystore.location": new})
            assert serial(broker, files) == third

            # A password, which nobody sees.
            pkcs12 = files.pkcs12("new", CA.issue("broker", hosts=LOCAL_HOSTS, subject=subject))
            names = ("listener.name.ssl.ssl.keystore.location", "listener.name.ssl.ssl.keystore.password")
            alter(config, dict(zip(names, (pkcs12, PASSWORD), strict=True)))
            assert serial(broker, files) != third
            with headrace.Admin(config) as admin:
                resource = ConfigResource(ConfigResourceType.BROKER, "0")
                described = admin.describe_configs([resource])
            assert names[1] in repr(described)
            assert PASSWORD not in repr(described)

            producer.send("t", b"2").get(timeout_ms=DEADLINE_SECONDS * 1000)
            assert connections <= set(open_connections(broker))  # the producer keeps its connections
    assert PASSWORD not in caplog.text


def open_connections(broker: EmbeddedBroker) -> list[tuple[str, int]]:
    return broker.call(lambda running: [connection.peer for connection in running.server.connections])


def alter(config: dict[str, Any], changes: dict[str, str]) -> None:
    with headrace.Admin(config) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, "0", changes)])


def test_many_clients_connect_at_once(broker: EmbeddedBroker, files: TlsFiles) -> None:
    errors: list[BaseException] = []

    def connect() -> None:
        try:
            with headrace.Admin(files.client_config(address(broker, "MUTUAL"), files.alice)) as admin:
                admin.list_topics()
        except BaseException as error:  # noqa: BLE001 - asserted below
            errors.append(error)

    threads = [threading.Thread(target=connect) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert errors == []


def test_expired_and_future_certificates(files: TlsFiles) -> None:
    for validity, words in (
        ({"valid_until": timedelta(hours=-1)}, "certificate has expired"),
        ({"valid_from": timedelta(hours=1)}, "certificate is not yet valid"),
    ):
        keystore = files.keystore("invalid", CA.issue("broker", hosts=LOCAL_HOSTS, **validity))
        with (
            EmbeddedBroker(files.broker_properties(ssl_keystore_location=keystore)) as broker,
            headrace.Admin(files.client_config(broker.bootstrap_servers)) as admin,
            pytest.raises(SslAuthenticationError, match=words),
        ):
            admin.list_topics()


def test_all_kinds_of_clients_and_stores(broker: EmbeddedBroker, files: TlsFiles) -> None:
    servers = address(broker, "MUTUAL")
    alice = CA.issue("alice", subject=SUBJECT)
    base = {"bootstrap.servers": servers, "security.protocol": "SSL"}
    stores: list[dict[str, Any]] = [
        {
            "ssl.truststore.location": files.pkcs12_truststore,
            "ssl.truststore.password": PASSWORD,
            "ssl.keystore.location": files.pkcs12("alice", alice),
            "ssl.keystore.password": PASSWORD,
        },
        {
            "ssl.truststore.certificates": CA.certificate_pem,
            "ssl.keystore.key": alice.key_pem("key-secret"),
            "ssl.keystore.certificate.chain": alice.chain_pem,
            "ssl.key.password": "key-secret",
        },
        {"ssl.ca.location": files.ca, "ssl.certificate.location": files.alice, "ssl.key.location": files.alice},
    ]
    for store in stores:
        round_trip({**base, **store})

    async def asynchronously(config: dict[str, Any]) -> None:
        async with headrace.aio.Producer(config) as producer:
            await producer.send_and_wait("t", b"x")

    asyncio.run(asynchronously({**base, **stores[1]}))


def test_tools_over_tls(broker: EmbeddedBroker, files: TlsFiles, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"security.protocol=SSL\nssl.truststore.location={files.ca}\nssl.truststore.type=PEM\n"
        f"ssl.keystore.location={files.alice}\nssl.keystore.type=PEM\n"
    )
    arguments = ["topics", "--bootstrap-server", address(broker, "MUTUAL"), "--command-config", str(properties)]
    result = CliRunner().invoke(main, [*arguments, "--list"], catch_exceptions=False)
    assert (result.exit_code, result.stdout.split()) == (0, ["t"])
