import asyncio

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from headrace.monitoring.exposition import process_families, render


def families() -> list[GaugeMetricFamily]:
    found = GaugeMetricFamily("a", "Text.", labels=("topic",))
    found.add_metric(('quoted "name"\n',), 1.5)
    return [found, GaugeMetricFamily("b", "Text.", value=2)]


@pytest.mark.parametrize("accept", ["", "text/plain", "text/plain;version=0.0.4", "*/*"])
def test_text(accept: str) -> None:
    content_type, body = asyncio.run(render(families(), accept))
    assert content_type.startswith("text/plain")
    samples = [sample for family in parse_text(body.decode()) for sample in family.samples]
    assert [(sample.name, sample.labels, sample.value) for sample in samples] == [
        ("a", {"topic": 'quoted "name"\n'}, 1.5),
        ("b", {}, 2.0),
    ]


def test_openmetrics() -> None:
    content_type, body = asyncio.run(render(families(), "application/openmetrics-text; version=1.0.0"))
    assert content_type.startswith("application/openmetrics-text")
    assert body.count(b"# EOF\n") == 1
    assert body.endswith(b"# EOF\n")
    assert [family.name for family in parse_openmetrics(body.decode())] == ["a", "b"]


def test_process() -> None:
    names = {family.name for family in process_families()}
    assert {"process_open_fds", "process_resident_memory_bytes", "python_gc_collections"} <= names
