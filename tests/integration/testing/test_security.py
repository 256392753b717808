"""Embedded brokers with users and rights, with our clients and others."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from tests.support.records.other_clients import kafka

import headrace
from headrace.common.errors import HeadraceError, SaslAuthenticationFailedError, TopicAuthorizationFailedError
from headrace.testing import EmbeddedBroker, EmbeddedCluster, Security, allow, deny
from headrace.testing.certificates import CertificateAuthority

SECONDS = 60
USERS = {"alice": 'a"l,i=c;e', "bob": "bob-secret", "root": "root-secret"}
ACLS = [allow("alice", ["READ", "WRITE"], topic="orders"), allow("bob", "READ", topic="orders", group="*")]


KINDS: dict[str, dict[str, Any]] = {
    "PLAIN": {"mechanism": "PLAIN"},
    "SCRAM-SHA-256": {"mechanism": "SCRAM-SHA-256"},
    "SCRAM-SHA-512": {},
    "SCRAM over TLS": {"tls": True},
    "SCRAM over mutual TLS": {"mutual_tls": True},
    "certificates": {"mutual_tls": True, "mechanism": None},
}


@pytest.fixture(scope="module", params=KINDS)
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    security = Security(users=USERS, acls=ACLS, super_users=["root"], **KINDS[request.param])
    with EmbeddedBroker(topics={"orders": 1}, security=security) as broker:
        yield broker


def test_our_clients(broker: EmbeddedBroker) -> None:
    with headrace.Producer(broker.client_config("alice")) as producer:
        assert producer.send("orders", b"x").get(timeout_ms=SECONDS * 1000).topic == "orders"
    denied = pytest.raises(TopicAuthorizationFailedError)
    with (
        headrace.Producer(**broker.client_config("bob", library="kafka-python"), enable_idempotence=False) as producer,
        denied,
    ):
        producer.send("orders", b"x").get(timeout_ms=SECONDS * 1000)
    for user in (None, "root"):
        with headrace.Admin(broker.client_config(user)) as admin:
            assert len(admin.describe_acls()) == 4


def test_wrong_password(broker: EmbeddedBroker) -> None:
    config = broker.client_config("alice", password="wrong")
    if "sasl.mechanism" not in config:
        return  # only certificates
    with headrace.Admin(config) as admin, pytest.raises(SaslAuthenticationFailedError):
        admin.list_topics(timeout_ms=SECONDS * 1000)


def test_librdkafka(broker: EmbeddedBroker) -> None:
    delivered: list[Any] = []
    producer = confluent_kafka.Producer(broker.client_config("alice", library="confluent"))
    producer.produce("orders", b"x", callback=lambda error, _: delivered.append(error))
    producer.flush(SECONDS)
    assert delivered == [None]


def test_kafka_python(broker: EmbeddedBroker) -> None:
    producer = kafka.KafkaProducer(**broker.client_config("alice", library="kafka-python"))
    assert producer.send("orders", b"x").get(SECONDS).topic == "orders"
    producer.close()


def test_aiokafka(broker: EmbeddedBroker) -> None:
    async def send() -> str:
        async with AIOKafkaProducer(**broker.client_config("alice", library="aiokafka")) as producer:
            return str((await producer.send_and_wait("orders", b"x")).topic)

    assert asyncio.run(send()) == "orders"


def test_java_configs(broker: EmbeddedBroker) -> None:
    config = broker.client_config("alice", library="java")
    if not config["security.protocol"].endswith("SSL"):
        with headrace.Admin(config) as admin:
            assert admin.list_topics() == ["orders"]
    else:
        assert config["ssl.truststore.type"] == "PEM"
        assert "BEGIN CERTIFICATE" in Path(config["ssl.truststore.location"]).read_text()


def test_users_survive_a_restart_and_denials_come_first() -> None:
    acls = [allow("*", "ALL", topic="*"), deny("bob", "READ", topic="secret-*")]
    with EmbeddedBroker(topics={"secret-1": 1, "open": 1}, security=Security(users=USERS, acls=acls)) as broker:
        for clean in (True, False):
            broker.restart(clean=clean)
            with headrace.Admin(broker.client_config("bob")) as admin:
                assert admin.list_topics() == ["open", "secret-1"]
            with headrace.Consumer(broker.client_config("bob")) as consumer:
                consumer.assign([headrace.TopicPartition("secret-1", 0)])
                with pytest.raises(TopicAuthorizationFailedError):
                    consumer.poll(timeout_ms=SECONDS * 1000)


def test_without_acls_everybody_may_do_everything() -> None:
    with EmbeddedBroker(topics={"t": 1}, security=Security(users=USERS)) as broker:
        with headrace.Admin(broker.client_config("bob")) as admin:
            assert admin.list_topics() == ["t"]
        with pytest.raises(HeadraceError, match="There is no user 'eve'"):
            broker.client_config("eve")


def test_broker_without_security() -> None:
    with EmbeddedBroker() as broker:
        assert broker.client_config() == {"bootstrap.servers": broker.bootstrap_servers}
        with pytest.raises(HeadraceError, match="has no users"):
            broker.client_config("alice")


def test_client_without_or_with_a_foreign_certificate(tmp_path: Path) -> None:
    security = Security(users=["alice"], mutual_tls=True, mechanism=None, acls=[allow("alice", "ALL", topic="*")])
    with EmbeddedBroker(topics={"t": 1}, security=security) as broker:
        good = broker.client_config("alice")
        foreign = str(CertificateAuthority().issue("alice").write_keystore(tmp_path / "foreign.pem"))
        for changes in ({"ssl.certfile": None, "ssl.keyfile": None}, {"ssl.certfile": foreign, "ssl.keyfile": foreign}):
            with headrace.Admin({**good, **changes}) as admin, pytest.raises(HeadraceError):
                admin.list_topics(timeout_ms=3000)
        other = broker.certificate_authority.issue("bob").write_keystore(tmp_path / "bob.pem")
        with headrace.Admin({**good, "ssl.certfile": str(other), "ssl.keyfile": str(other)}) as admin:
            assert admin.list_topics() == []


@pytest.mark.parametrize("kind", ["SCRAM-SHA-512", "SCRAM over TLS", "certificates"])
def test_cluster(kind: str) -> None:
    security = Security(users=USERS, acls=ACLS, **KINDS[kind])
    with EmbeddedCluster(2, topics={"orders": 1}, security=security) as cluster:
        with headrace.Producer(cluster.client_config("alice")) as producer:
            producer.send("orders", b"x").get(timeout_ms=SECONDS * 1000)
            cluster.kill(cluster.leader("orders"))
            producer.send("orders", b"y").get(timeout_ms=SECONDS * 1000)
        with headrace.Admin(cluster.client_config("bob")) as admin:
            assert admin.list_topics() == ["orders"]
