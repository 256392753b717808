"""What tools show of numbers: percentiles, charts, progress, tables, rates of groups."""

import pytest

from headrace.cli.common.output import table_lines
from headrace.cli.common.progress import Progress, in_parts, in_time
from headrace.cli.groups import group_views
from headrace.cli.perf import perf_stats
from headrace.cli.perf.perf_stats import DeliveryCounts, Latencies, Series, bar_lines, letters, spark_line
from headrace.client.admin.types import GroupDescription
from headrace.common.types import TopicPartition
from headrace.testing.clock import ManualClock


def latencies(*values: float) -> Latencies:
    found = Latencies()
    for value in values:
        found.add(value)
    return found


def test_percentiles() -> None:
    found = latencies(*map(float, range(1, 101)))
    assert found.percentiles(0.5, 0.99, 0.999) == [51, 100, 100]
    assert (found.mean, found.largest, found.count) == (50.5, 100, 100)
    assert Latencies().percentiles(0.5) == [0]


def test_a_million_latencies_are_thinned_out_evenly() -> None:
    found = latencies(*(float(number % 1000) for number in range(1_000_000)))
    assert found.count == 1_000_000
    assert len(found._kept) < 500_000
    assert found.percentiles(0.5)[0] == pytest.approx(500, abs=5)


def test_histogram_has_them_all() -> None:
    found = latencies(*(1.5**number for number in range(20)))
    bars = found.histogram()
    assert sum(count for _, _, count in bars) == 20
    assert len(bars) <= 12
    assert all(low < high for low, high, _ in bars)
    assert len(bar_lines(found)) == len(bars)
    assert sum(count for _, _, count in latencies(3.0).histogram()) == 1
    assert bar_lines(Latencies()) == []


def test_spark_line() -> None:
    assert spark_line([0, 4, 8]) == " ▄█"
    assert len(spark_line(list(range(1000)), 60)) == 60
    assert spark_line([]) == ""
    series = Series()
    series.add(2, 5)
    assert series.counts == [0, 0, 5]


def test_progress_lines() -> None:
    clock = ManualClock()
    progress = Progress("records", 1000, clock, shown=False)
    clock.advance(2000)
    progress.add(250)
    assert progress.line(clock.monotonic(), "note") == "25% · 250 of 1,000 records · 125/s · 6 s left · note"
    assert Progress("bytes", None, clock, shown=False).line(clock.monotonic()) == "0 bytes · 0/s"


@pytest.mark.parametrize(("seconds", "text"), [(3.4, "3 s"), (60, "1 min 00 s"), (3661, "1 h 01 min"), (-1, "0 s")])
def test_times_for_people(seconds: float, text: str) -> None:
    assert in_time(seconds) == text


def test_tables() -> None:
    assert table_lines(("NAME", "SIZE"), [("a", 10), ("long name", None)]) == [
        "NAME       SIZE",
        "a            10",
        "long name     -",
    ]


def lag(committed: int | None, end: int) -> group_views.GroupLag:
    return group_views.GroupLag(
        GroupDescription("g"), (group_views.PartitionLag(TopicPartition("t", 0), committed, end, None, None),)
    )


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (lag(0, 100), lag(50, 100), "reads 25/s, written 0/s: lag will be zero in 2 s"),
        (lag(0, 100), lag(10, 200), "reads 5/s, written 50/s: lag is growing"),
        (lag(0, 100), lag(10, 110), "reads 5/s, written 5/s: lag is constant"),
        (lag(0, 100), lag(100, 100), "reads 50/s, written 0/s: no lag"),
        (lag(None, 100), lag(None, 100), "reads 0/s, written 0/s: no lag"),
    ],
)
def test_rates(before: group_views.GroupLag, now: group_views.GroupLag, said: str) -> None:
    assert group_views.Rates(before, now, 2.0).summary(now.total) == said


def test_assignments_in_a_cell() -> None:
    partitions = [TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0)]
    assert group_views.assignment_text(partitions) == "a:0,b:0,1"


def test_a_line_of_progress_fits_into_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    clock = ManualClock()
    with Progress("records", total=1_000_000, clock=clock, shown=True) as progress:
        clock.advance(1000)
        progress.add(1000, lambda: "p50 1 p99 2 ms")
    shown = capsys.readouterr().err.split("\r")[1]
    assert shown == "0% · 1,000 of 1,000,000 recor"


def test_recent_latencies() -> None:
    latencies = Latencies()
    assert latencies.recent() == ""
    for number in range(2000):
        latencies.add(number)
    assert latencies.recent() == "p50 1500 p99 1990 ms"


def test_big_work_in_portions(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(in_parts("topics", [1, 2, 3, 4, 5], 2)) == [[1, 2], [3, 4], [5]]
    assert list(in_parts("topics", [], 2)) == []
    assert capsys.readouterr().err == ""


class _Future:
    def __init__(self) -> None:
        self.is_done = False
        self.exception: Exception | None = None

    def end(self, error: Exception | None = None) -> None:
        self.is_done, self.exception = True, error


def test_only_what_was_acknowledged_counts() -> None:
    outcomes = DeliveryCounts()
    futures = [_Future() for _ in range(4)]
    for number, future in enumerate(futures):
        outcomes.add(future, 10, marked=number > 1)
    outcomes.check()
    assert outcomes.records == [0, 0]
    futures[0].end()
    futures[2].end()
    outcomes.check()
    assert (outcomes.records, outcomes.bytes) == ([1, 0], [10, 0])  # the second keeps the third back
    error = ValueError("first")
    futures[1].end(error)
    futures[3].end(ValueError("second"))
    outcomes.check_all()
    assert (outcomes.records, outcomes.bytes) == ([1, 1], [10, 10])
    assert (outcomes.failed, outcomes.error) == (2, error)


def test_one_that_takes_long_does_not_keep_the_others_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_stats, "_SWEEP", 8)
    outcomes = DeliveryCounts()
    outcomes.add(_Future(), 1)
    for _ in range(100):
        done = _Future()
        done.end()
        outcomes.add(done, 1)
        outcomes.check()
    assert outcomes.records[0] >= 80


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, 200_000])
def test_letters(size: int) -> None:
    made = letters(size)
    assert len(made) == size
    assert made[:100].isupper() or size == 0
