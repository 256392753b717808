import math

import pytest

from headrace.common.errors import HeadraceError
from headrace.common.ids import make_random
from headrace.common.metrics import Histogram, Meter, Metrics
from headrace.testing.clock import ManualClock


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(ManualClock())


def test_counter(metrics: Metrics) -> None:
    counter = metrics.counter("requests_total", api="FETCH")
    counter.add()
    counter.add(4)
    counter.value += 1
    assert counter.value == 6
    assert metrics.snapshot() == {'requests_total{api="FETCH"}': 6}


def test_same_name_and_labels_return_same_metric(metrics: Metrics) -> None:
    assert metrics.counter("a", x="1", y="2") is metrics.counter("a", y="2", x="1")
    assert metrics.counter("a", x="1") is not metrics.counter("a", x="2")
    assert metrics.histogram("h") is metrics.histogram("h")
    assert metrics.meter("m") is metrics.meter("m")
    assert metrics.gauge("g") is metrics.gauge("g")


def test_metric_name_has_one_kind(metrics: Metrics) -> None:
    metrics.counter("a", x="1")
    with pytest.raises(HeadraceError, match="Metric a is a counter and cannot also be a gauge"):
        metrics.gauge("a", x="2")


@pytest.mark.parametrize(("name", "labels"), [("1a", {}), ("a-b", {}), ("", {}), ("a", {"b-c": "1"})])
def test_rejects_names_invalid_in_prometheus(metrics: Metrics, name: str, labels: dict[str, str]) -> None:
    with pytest.raises(HeadraceError, match="Invalid metric name"):
        metrics.counter(name, **labels)


def test_label_values_are_escaped(metrics: Metrics) -> None:
    metrics.counter("a", topic='say "hi"\\\n')
    assert list(metrics.snapshot()) == ['a{topic="say \\"hi\\"\\\\\\n"}']


def test_gauges(metrics: Metrics) -> None:
    gauge = metrics.gauge("connections")
    gauge.set(3)
    assert gauge.value == 3
    size = 7
    computed = metrics.gauge("size", lambda: size)
    assert computed.value == 7
    size = 8
    assert metrics.snapshot() == {"connections": 3, "size": 8}
    with pytest.raises(HeadraceError, match="cannot be set"):
        computed.set(1)
    metrics.gauge("size", lambda: 0)
    assert metrics.snapshot()["size"] == 0


def test_failed_gauge_does_not_affect_others(metrics: Metrics) -> None:
    metrics.gauge("bad", lambda: 1 / 0)
    metrics.gauge("good", lambda: 1)
    snapshot = metrics.snapshot()
    assert snapshot["good"] == 1
    assert math.isnan(float(str(snapshot["bad"])))


def test_removed(metrics: Metrics) -> None:
    metrics.counter("a", topic="t").add()
    metrics.remove("a", topic="t")
    metrics.remove("a", topic="t")
    assert metrics.snapshot() == {}
    assert metrics.counter("a", topic="t").value == 0


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 1e6, 1e15])
def test_percentiles_are_near_exact_values(scale: float) -> None:
    random = make_random(7)
    values = sorted(scale * random.lognormvariate(0, 2) for _ in range(5000))
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    for percent in (1, 10, 50, 90, 99, 99.9):
        true = values[math.ceil(len(values) * percent / 100) - 1]
        assert histogram.percentile(percent) == pytest.approx(true, rel=1 / 15)
    assert histogram.percentile(100) == pytest.approx(values[-1], rel=1 / 15)
    assert (histogram.count, histogram.smallest, histogram.largest) == (5000, values[0], values[-1])
    assert histogram.total == pytest.approx(sum(values))


def test_one_value_is_every_percentile() -> None:
    histogram = Histogram()
    histogram.record(0.3)
    assert [histogram.percentile(percent) for percent in (0, 50, 100)] == [0.3] * 3


def test_empty_histogram(metrics: Metrics) -> None:
    metrics.histogram("h")
    assert metrics.snapshot()["h"] == {"count": 0, "sum": 0, "p50": 0, "p95": 0, "p99": 0, "p999": 0}


def test_zero_and_negative_values_have_a_bucket() -> None:
    histogram = Histogram()
    for value in (0, 0, -1, 5):
        histogram.record(value)
    assert histogram.percentile(50) <= 0
    assert histogram.percentile(100) == 5
    assert histogram.sample() == {
        "count": 4,
        "sum": 4,
        "mean": 1,
        "min": -1,
        "max": 5,
        "p50": -1,
        "p95": 5,
        "p99": 5,
        "p999": 5,
    }


def test_number_of_buckets_is_bounded() -> None:
    histogram = Histogram()
    for number in range(1, 100_000):
        histogram.record(number)
    assert len(histogram.buckets) <= 8 * 17


def test_meter_reports_steady_rate() -> None:
    clock = ManualClock()
    meter = Meter(clock)
    for _ in range(20):
        clock.advance(30_000)
        meter.mark(300)
        for minutes in (1, 5, 15):
            assert meter.rate(minutes) == pytest.approx(10)
    assert meter.count == 6000


def test_shorter_rates_decay_faster() -> None:
    clock = ManualClock()
    meter = Meter(clock)
    meter.mark(600)
    clock.advance(60_000)
    assert meter.rate() == pytest.approx(10)
    assert meter.rate() == pytest.approx(10), "reading twice changes nothing"
    clock.advance(60_000)
    assert meter.rate(1) == pytest.approx(10 / math.e)
    assert meter.rate(1) < meter.rate(5) < meter.rate(15) < 10


def test_new_meter_has_rate_zero(metrics: Metrics) -> None:
    metrics.meter("m").mark()
    assert metrics.snapshot()["m"] == {"count": 1, "rate_1m": 0, "rate_5m": 0, "rate_15m": 0}


def test_percentile_of_the_values_since_a_copy() -> None:
    histogram = Histogram()
    for _ in range(100):
        histogram.record(1000.0)
    copy = dict(histogram.buckets)
    assert histogram.percentile(50, copy) == 0.0
    for value in (1.0, 1.0, 16.0):
        histogram.record(value)
    assert histogram.percentile(50, copy) == pytest.approx(1.0, rel=0.07)
    assert histogram.percentile(99, copy) == pytest.approx(16.0, rel=0.07)
    assert histogram.percentile(50) == pytest.approx(1000.0, rel=0.07)
