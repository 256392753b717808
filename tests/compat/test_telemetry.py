"""librdkafka pushes its metrics (KIP-714), and the broker shows them to Prometheus."""

import time
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families
from tests.support.broker.process import free_port

import headrace
from headrace.admin import ConfigResource, ConfigResourceType
from headrace.testing import EmbeddedBroker

DEADLINE_SECONDS = 90


@pytest.fixture
def broker() -> Iterator[tuple[EmbeddedBroker, str]]:
    port = free_port()
    with EmbeddedBroker({"headrace.metrics.listener": f"127.0.0.1:{port}"}) as found:
        yield found, f"http://127.0.0.1:{port}/metrics"


def test_librdkafka_pushes_metrics(broker: tuple[EmbeddedBroker, str]) -> None:
    embedded, url = broker
    with headrace.Admin(bootstrap_servers=embedded.bootstrap_servers) as admin:
        resource = ConfigResource(
            ConfigResourceType.CLIENT_METRICS,
            "producers",
            {"metrics": "*", "interval.ms": "200", "match": "client_id=shop"},
        )
        admin.alter_configs([resource])
    producer = Producer({"bootstrap.servers": embedded.bootstrap_servers, "client.id": "shop"})
    deadline = time.monotonic() + DEADLINE_SECONDS
    found: dict[str, dict[str, str]] = {}
    while not found and time.monotonic() < deadline:
        producer.produce("orders", b"x")
        producer.poll(0.1)
        with urllib.request.urlopen(url, timeout=30) as response:
            found = {
                sample.name: sample.labels
                for family in text_string_to_metric_families(response.read().decode())
                for sample in family.samples
                if sample.name.startswith("org_apache_kafka_producer_")
            }
    producer.flush(30)
    assert found, f"no metrics of the producer after {DEADLINE_SECONDS} seconds"
    labels = next(iter(found.values()))
    assert labels["client_id"] == "shop"
    assert "librdkafka" in labels["client_software"] or "confluent" in labels["client_software"]
