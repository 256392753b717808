"""Embedded brokers with users and rights, with our clients and others."""

import asyncio
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from tests.support.records.other_clients import kafka

import headrace
from headrace.common.errors import HeadraceError, SaslAuthenticationFailedError, TopicAuthorizationFailedError
from headrace.testing import EmbeddedBroker, Security, allow, deny

SECONDS = 60
USERS = {"alice": 'a"l,i=c;e', "bob": "bob-secret", "root": "root-secret"}
ACLS = [allow("alice", ["READ", "WRITE"], topic="orders"), allow("bob", "READ", topic="orders", group="*")]


@pytest.fixture(scope="module", params=["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    security = Security(users=USERS, acls=ACLS, mechanism=request.param, super_users=["root"])
    with EmbeddedBroker(topics={"orders": 1}, security=security) as broker:
        yield broker


def test_our_clients(broker: EmbeddedBroker) -> None:
    with headrace.Producer(broker.client_config("alice")) as producer:
        assert producer.send("orders", b"x").get(timeout_ms=SECONDS * 1000).topic == "orders"
    denied, wrong = pytest.raises(TopicAuthorizationFailedError), pytest.raises(SaslAuthenticationFailedError)
    with headrace.Producer(**broker.client_config("bob", library="kafka-python"), enable_idempotence=False) as producer, denied:
        producer.send("orders", b"x").get(timeout_ms=SECONDS * 1000)
    with headrace.Admin(broker.client_config("alice", password="wrong")) as admin, wrong:
        admin.list_topics(timeout_ms=SECONDS * 1000)
    for user in (None, "root"):
        with headrace.Admin(broker.client_config(user)) as admin:
            assert len(admin.describe_acls()) == 4


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


def test_java_configs_are_those_of_our_clients(broker: EmbeddedBroker) -> None:
    with headrace.Admin(broker.client_config("alice", library="java")) as admin:
        assert admin.list_topics() == ["orders"]


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
