"""Secured clusters: brokers prove to each other who they are by certificates, or by SASL over TLS, and an authorizer
decides."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.security.sasl_broker import USERS, jaas
from tests.support.security.tls import CA, TlsFiles

import headrace
from headrace.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    ConfigResourceType,
    ResourcePattern,
    ResourceType,
)
from headrace.common.errors import TopicAuthorizationFailedError
from headrace.testing.certificates import LOCAL_HOSTS
from headrace.testing.cluster import EmbeddedCluster

BROKERS = "User:CN=broker,O=Example"
ADMIN = "User:CN=admin"
PATIENCE_MS = 90_000
AUTHORIZER = {"authorizer.class.name": "headrace", "super.users": f"{BROKERS};{ADMIN};User:broker"}


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def produce(config: dict[str, Any], partition: int = 0) -> int:
    with headrace.Producer({**config, "acks": "all"}) as producer:
        return producer.send("t", b"x", partition=partition).get(timeout_ms=PATIENCE_MS).offset


def test_mutual_tls_between_brokers(files: TlsFiles) -> None:
    """Replication, controller requests, transactions, failover, and new certificates of a running broker."""
    own = {number: files.keystore(f"broker-{number}", certificate()) for number in (1, 2, 3)}
    properties = files.broker_properties(ssl_client_auth="required", **AUTHORIZER)
    per_broker = {number: {"ssl.keystore.location": path} for number, path in own.items()}
    with EmbeddedCluster(3, properties, {"t": 2}, broker_properties=per_broker) as cluster:
        admin_keystore = files.keystore("admin", CA.issue("admin"))
        admin_config = files.client_config(cluster.bootstrap_servers, admin_keystore)
        alice = files.client_config(cluster.bootstrap_servers, files.alice)
        produce(admin_config)
        with headrace.Producer(alice) as producer, pytest.raises(TopicAuthorizationFailedError):
            producer.send("t", b"x").get(timeout_ms=PATIENCE_MS)
        with headrace.Admin(admin_config) as admin:
            admin.create_acls(
                [
                    ACL(
                        "User:CN=alice,OU=sales,O=Example\\, Inc.,C=DE",
                        "*",
                        ACLOperation.ALL,
                        ACLPermissionType.ALLOW,
                        ResourcePattern(resource, "t" if resource is ResourceType.TOPIC else "x"),
                    )
                    for resource in (ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID)
                ]
            )
            with headrace.Producer({**alice, "transactional.id": "x"}) as producer:
                producer.init_transactions()
                producer.begin_transaction()
                futures = [producer.send("t", b"x", partition=partition) for partition in (0, 1)]
                producer.commit_transaction()
                assert {future.get(timeout_ms=PATIENCE_MS).partition for future in futures} == {0, 1}
            cluster.wait_until_in_sync()
            # A new certificate for broker 1, then another leader.
            new = files.keystore("broker-1-new", certificate())
            changes = {"listener.name.ssl.ssl.keystore.location": new}
            admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, "1", changes)])
            produce(alice)
            victim = next(number for number in (2, 3) if number != cluster.leader("t", 0))
            cluster.restart(victim)
            cluster.wait_until_in_sync()
            produce(alice, partition=1)


def certificate() -> Any:
    return CA.issue("broker", hosts=LOCAL_HOSTS, subject={"O": "Example"})


def test_sasl_over_tls_between_brokers(files: TlsFiles, caplog: pytest.LogCaptureFixture) -> None:
    properties = files.broker_properties(
        "SASL_SSL",
        **AUTHORIZER,
        **{
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas("PLAIN"),
        },
    )
    with EmbeddedCluster(3, properties, {"t": 1}) as cluster:
        config = files.client_config(cluster.bootstrap_servers, security_protocol="SASL_SSL", sasl_mechanism="PLAIN")
        config |= {"sasl.username": "broker", "sasl.password": USERS["broker"]}
        produce(config)
        cluster.kill(cluster.leader("t", 0))
        produce(config)
    assert "cannot log in" not in caplog.text
    assert not any(password in caplog.text for password in USERS.values())
