"""Text for Prometheus, and the endpoint."""

import urllib.error
import urllib.request

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from headrace import Consumer, Producer
from headrace.common.errors import ConfigError
from headrace.metrics import render, serve_metrics
from headrace.monitoring.endpoint import EndpointError

NOWHERE = "127.0.0.1:1"


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as response:
        return str(response.read().decode())


def test_render_both_formats() -> None:
    with (
        Producer(bootstrap_servers=NOWHERE, client_id='say "hi"') as producer,
        Consumer(bootstrap_servers=NOWHERE, client_id="c") as consumer,
    ):
        content_type, text = render(producer, consumer)
        assert content_type.startswith("text/plain")
        found = {sample.name: sample for family in parse_text(text.decode()) for sample in family.samples}
        sent = found["kafka_producer_producer_metrics_record_send_total"]
        assert (sent.labels, sent.value) == ({"client_id": 'say "hi"'}, 0)
        content_type, text = render(producer, consumer, accept="application/openmetrics-text; version=1.0.0")
        assert content_type.startswith("application/openmetrics-text")
        names = {family.name: family.type for family in parse_openmetrics(text.decode())}
        assert names["kafka_consumer_consumer_fetch_manager_metrics_records_consumed"] == "counter"
        assert names["kafka_consumer_consumer_metrics_connection_count"] == "gauge"


def test_endpoint_reports_open_clients() -> None:
    producer = Producer(bootstrap_servers=NOWHERE, client_id="p")
    with serve_metrics("127.0.0.1:0", producer) as server:
        assert 'headrace_client_up{client_id="p",kind="producer"} 1.0' in get(server.url)
        assert get(server.url.replace("/metrics", "/readyz")) == "ok\n"
        producer.close()
        text = get(server.url)
        assert "headrace_client_up" not in text
        assert "process_cpu_seconds_total" in text
    with pytest.raises(urllib.error.URLError):
        get(server.url)


def test_bad_addresses() -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        serve_metrics("nonsense")
    with serve_metrics("127.0.0.1:0") as server, pytest.raises(EndpointError, match=str(server.port)):
        serve_metrics(f"127.0.0.1:{server.port}")
