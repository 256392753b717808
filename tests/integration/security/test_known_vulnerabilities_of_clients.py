"""Vulnerabilities that Kafka's clients had: class names in configs, URLs, and buffers of expired batches.

`test_known_vulnerabilities.py` has those of brokers.
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.process import eventually
from tests.support.client.producer_logs import read_values

import headrace
from headrace.common.errors import ConfigError, HeadraceError
from headrace.testing import EmbeddedBroker

JAAS = "com.sun.security.auth.module.{} required {};"
DANGEROUS_MODULES = {
    "JndiLoginModule": 'user.provider.url="ldap://127.0.0.1/x" useFirstPass="true" group.provider.url="x"',
    "LdapLoginModule": 'userProvider="ldap://127.0.0.1/"',
    "UnixLoginModule": "",
}
SASL = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT"}
CLIENTS = [headrace.Producer, headrace.Consumer, headrace.Admin]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI"])
@pytest.mark.parametrize("module", DANGEROUS_MODULES)
def test_login_modules_of_clients(client: Any, mechanism: str, module: str) -> None:
    """CVE-2023-25194: JndiLoginModule and the like made Kafka's clients execute foreign code."""
    config = {**SASL, "sasl.mechanism": mechanism, "sasl.jaas.config": JAAS.format(module, DANGEROUS_MODULES[module])}
    with pytest.raises(ConfigError, match="unknown login module"):
        client(config)


@pytest.fixture
def tempting_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that could be imported. It must not be."""
    (tmp_path / "tempting_module.py").write_text("class Plugin:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "tempting_module.Plugin"
    assert "tempting_module" not in sys.modules


CLASSES_OF_CLIENTS = (
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "ssl.engine.factory.class",
    "security.providers",
    "config.providers",
    "metric.reporters",
    "interceptor.classes",
    "key.serializer",
    "partitioner.class",
)


@pytest.mark.parametrize("name", CLASSES_OF_CLIENTS)
def test_class_names_in_configs_of_clients(tempting_module: str, name: str) -> None:
    """CVE-2023-25194: no name in a config is imported, and only settings without effect are accepted."""
    try:
        headrace.Producer({"bootstrap.servers": "127.0.0.1:1", name: tempting_module}).close(timeout_ms=0)
    except (HeadraceError, TypeError):
        return
    assert name == "metric.reporters"


CLASSES_OF_BROKERS = (
    "authorizer.class.name",
    "principal.builder.class",
    "client.quota.callback.class",
    "create.topic.policy.class.name",
    "alter.config.policy.class.name",
    "replica.selector.class",
    "remote.log.storage.manager.class.name",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "sasl.oauthbearer.jwt.validator.class",
    "ssl.engine.factory.class",
    "security.providers",
)


@pytest.mark.parametrize("name", CLASSES_OF_BROKERS)
def test_class_names_in_configs_of_brokers(tempting_module: str, name: str) -> None:
    """CVE-2023-25194: no name in a config is imported, and only settings without effect are accepted."""
    try:
        EmbeddedBroker({name: tempting_module}).__enter__().close()
    except HeadraceError:
        return
    assert name == "remote.log.storage.manager.class.name"


def test_dangerous_login_modules_of_brokers() -> None:
    """CVE-2023-25194."""
    for module, options in DANGEROUS_MODULES.items():
        properties = {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS.format(module, options),
        }
        with pytest.raises(ConfigError, match="unknown login module"), EmbeddedBroker(properties):
            pass


@pytest.mark.parametrize(
    "url",
    ["http://169.254.169.254/token", "file:///etc/passwd", "ftp://127.0.0.1/token", "https://user:secret@h/token"],
)
def test_token_urls_of_clients(url: str) -> None:
    """CVE-2025-27817: what a URL returns does not reach brokers or messages if it is not a token."""
    config = {
        **SASL,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": "my-secret",
        "sasl.login.connect.timeout.ms": 100,
        "sasl.login.retry.backoff.max.ms": 100,
    }
    with pytest.raises(HeadraceError) as caught, headrace.Admin(config) as admin:
        admin.list_topics(timeout_ms=500)
    assert "root:" not in str(caught.value)
    assert "secret" not in str(caught.value)


# ---- buffers

BATCH_BYTES = 20_000
FIRST = 200


def test_buffer_of_an_expired_batch_is_not_reused_in_flight() -> None:
    """CVE-2026-35554: the batches of one topic expire while their requests are on the way to a broker that does not
    read. Records of another topic, which get the memory, must not appear in those requests."""
    with EmbeddedBroker(topics={"first": 1, "second": 1}) as broker:
        config = {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": False,
            "acks": 1,
            "batch.size": BATCH_BYTES,
            "linger.ms": 0,
            "buffer.memory": BATCH_BYTES * FIRST * 2,
            "max.in.flight.requests.per.connection": 1000,
            "max.request.size": BATCH_BYTES * 2,
            "delivery.timeout.ms": 1500,
            "request.timeout.ms": 1500,
        }
        with headrace.Producer(config) as producer:
            for topic in ("first", "second"):
                producer.send(topic, topic.encode() * 3000).get(timeout_ms=60_000)
            broker.pause()
            expired = [producer.send("first", b"first" * 3000) for _ in range(FIRST)]
            for future in expired:
                with pytest.raises(HeadraceError):
                    future.get(timeout_ms=60_000)
            later = [producer.send("second", b"second" * 3000) for _ in range(FIRST)]
            broker.resume()
            for future in later:
                with suppress(HeadraceError):  # some may expire, too
                    future.get(timeout_ms=60_000)
            eventually(lambda: accepts(producer), "the broker responds")
        for topic in ("first", "second"):
            values = set(read_values(broker, topic))
            assert values == {topic.encode() * 3000}, {value[:20] for value in values if value}


def accepts(producer: headrace.Producer) -> bool:
    with suppress(HeadraceError):
        return bool(producer.send("second", b"second" * 3000).get(timeout_ms=60_000))
    return False
