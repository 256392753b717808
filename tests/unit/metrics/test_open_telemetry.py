"""Observable instruments, with OpenTelemetry's SDK."""

import subprocess
import sys

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from headrace import Producer, TopicPartition
from headrace.metrics import instrument_opentelemetry

NOWHERE = "127.0.0.1:1"


def collect(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict, float]]]:
    data = reader.get_metrics_data()
    return {
        metric.name: [(dict(point.attributes), point.value) for point in metric.data.data_points]
        for resource in (data.resource_metrics if data else [])
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_each_collection_reads_the_clients_once() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with Producer(bootstrap_servers=NOWHERE, client_id="p") as producer:
        statistics = producer._core.client.statistics
        peek, reads = statistics.peek, []
        statistics.peek = lambda: reads.append(1) or peek()
        instruments = instrument_opentelemetry(producer, meter_provider=provider)
        for records in (3, 5):
            producer._core.sender.traffic.note_batch(TopicPartition("t", 0), records, 60)
            found = collect(reader)
        assert found["kafka.producer.record_send_total"] == [({"client-id": "p", "topic": "t"}, 8)]
        assert found["kafka.producer.buffer_total_bytes"][0][0] == {"client-id": "p"}
        assert len(reads) == 2
        instruments.close()
        assert not collect(reader).get("kafka.producer.record_send_total")
    provider.shutdown()


def test_missing_package_is_named() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None
from headrace.common.extras import MissingExtraError
try:
    from headrace.metrics import instrument_opentelemetry
except MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "needs opentelemetry" in done.stdout
    assert "headrace[opentelemetry]" in done.stdout


def test_importing_the_package_imports_neither() -> None:
    code = "import sys, headrace.metrics; print([n for n in sys.modules if 'telemetry' in n or 'prometheus' in n])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
