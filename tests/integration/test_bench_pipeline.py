"""The rules and reports of the `pipeline` benchmark: percentiles, slopes, what is sustained, and tables."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.long_pipeline import LongRun, Sample, progress_line
from bench.long_pipeline import report_lines as long_report_lines
from bench.pipeline import figures
from bench.pipeline.processes import (
    BROKER,
    COMPONENTS,
    DRIVER,
    GENERATOR,
    JVM,
    WORKERS,
    cpu_by_component,
    disk_mb,
    find_processes,
    memory_mb,
)
from bench.pipeline.report import report_lines, spread
from bench.pipeline.sides import ALL_SIDES, ARROW, SQL, SQL_PIPELINE, find_sides
from bench.pipeline.steady import Window
from bench.pipeline.workspace import DEAD_LETTERS, DWD, MetricsFile

from headrace.pipelines.loading import load_pipeline
from headrace.pipelines.pipeline import Flow


@pytest.mark.parametrize(
    ("percent", "expected"), [(50, 5), (99, 10), (90, 9), (91, 10), (100, 10), (1, 1), (0, 1)], ids=str
)
def test_percentile_is_the_smallest_value_that_enough_values_do_not_exceed(percent: float, expected: float) -> None:
    assert figures.percentile([10, 3, 1, 2, 5, 4, 7, 6, 9, 8], percent) == expected


def test_percentile_of_one_value() -> None:
    assert figures.percentile([7], 99) == 7


def test_slope_of_a_noisy_line() -> None:
    assert figures.slope([(x, 3 * x + (-1) ** x) for x in range(200)]) == pytest.approx(3, abs=0.01)
    assert figures.slope([(2, 5), (2, 9)]) == 0
    assert figures.slope([]) == 0


def sawtooth(start: int, growth: float, seconds: int = 60, period: int = 10, height: int = 200_000) -> list[int]:
    """Returns the lag of a pipeline with batches of `period` seconds."""
    return [round(start + growth * second + height * (second % period) / period) for second in range(seconds)]


def test_sustained_if_the_lag_of_long_batches_does_not_grow() -> None:
    assert figures.is_sustained(20_000, 20_010, sawtooth(50_000, 0))
    assert figures.is_sustained(20_000, 20_010, sawtooth(500_000, -2000))
    assert figures.is_sustained(20_000, 20_010, sawtooth(50_000, 0)[4:])  # the window cuts a batch


def test_not_sustained_if_the_lag_grows_or_too_little_is_written() -> None:
    assert not figures.is_sustained(20_000, 20_010, sawtooth(50_000, 1000))
    assert not figures.is_sustained(20_000, 19_000, sawtooth(50_000, 0))


@pytest.mark.parametrize(
    ("limit", "start", "expected", "tried"),
    [
        (40, 20, 40, [20, 30, 40, 50]),
        (40, 50, 40, [50, 40]),
        (99, 40, 50, [40, 50]),
        (5, 20, 0, [20, 10]),
        (10, 10, 10, [10, 20]),
    ],
)
def test_search_for_the_highest_rate(limit: int, start: int, expected: int, tried: list[int]) -> None:
    asked: list[int] = []

    def sustained(rate: int) -> bool:
        asked.append(rate)
        return rate <= limit

    assert figures.highest_sustained((10, 20, 30, 40, 50), start, sustained) == expected
    assert asked == tried


def test_memory_that_only_fluctuates_is_flat() -> None:
    flat = [(10.0 * n, 900 + 30 * (n % 5)) for n in range(300)]
    per_hour, share, is_flat = figures.memory_growth(flat)
    assert is_flat
    assert abs(per_hour) < 5
    assert abs(share) < 0.01


def test_memory_that_grows_is_not_flat() -> None:
    per_hour, share, is_flat = figures.memory_growth([(10.0 * n, 500 + n) for n in range(300)])
    assert not is_flat
    assert per_hour == pytest.approx(360)
    assert share > 0.4


def batch(flow: str, second: int, seconds: float, rows: int) -> dict[str, object]:
    return {"flow": flow, "time": f"2026-01-01T00:00:{second:02}.000Z", "seconds": seconds, "rows": rows}


def test_rates_of_a_catch_up() -> None:
    batches = [batch("log", 0, 10, 1000), batch("db", 0, 5, 100), batch("log", 10, 2, 1000), batch("log", 12, 2, 900)]
    assert figures.busy_rate(batches) == pytest.approx(3000 / 14)
    assert figures.warm_rate(batches) == pytest.approx(1900 / 4)
    assert figures.warm_rate(batches[:1]) == pytest.approx(100)
    assert figures.warm_rate(batches[:2]) == pytest.approx(110)


def test_resources_for_a_number_of_events_per_day() -> None:
    peak, slots, cores = figures.needed(86_400 * 10_000, slot_rate=10_000, broker_us=14)
    assert (peak, slots, cores) == (30_000, 5, 1)


def test_metrics_file_leaves_an_incomplete_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(path)
    assert metrics.rows() == 0
    path.write_text(json.dumps({"rows": 3}) + "\n" + '{"ro')
    assert metrics.rows() == 3
    with path.open("a") as file:
        file.write('ws": 4}\n')
    assert metrics.rows() == 7


def test_processes_by_component_with_their_cpu_time_and_memory() -> None:
    sleep = "import sys; print(flush=True); sys.stdin.read()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleep!r}])"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # the child runs
        found = find_processes(os.getpid(), None, process.pid)
        assert len(found[DRIVER]) == 2
        assert process.pid in found[DRIVER]
        assert found[JVM] == found[WORKERS] == found[GENERATOR] == []
        assert {os.getpid(), *found[DRIVER]} <= set(found[BROKER])
        assert cpu_by_component(found)[DRIVER] >= 0
        rss, pss = memory_mb(found[DRIVER])
        assert 1 < pss <= rss
    finally:
        process.communicate()
    assert memory_mb([process.pid]) == (0, 0)


def test_disk_use(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(bytes(2_000_000))
    assert disk_mb(tmp_path) == 2


def test_unknown_side_is_an_error() -> None:
    with pytest.raises(SystemExit, match="unknown version polars; expected some of Arrow, SQL, connector"):
        find_sides(["polars"], "file.py")
    arrow, sql = find_sides([ARROW, SQL], "file.py")
    assert "ods-dwd" in arrow.command
    assert "file.py" in sql.command


def test_peer_is_a_pipeline_of_data_frame_flows_with_the_same_topics() -> None:
    peer, ours = load_pipeline(str(SQL_PIPELINE)), load_pipeline("ods-dwd")
    assert all(isinstance(flow, Flow) for flow in peer.flows)
    assert peer.name == ours.name
    topics = {topic.name for topic in peer.topics}
    assert topics == {topic.name for topic in ours.topics} == {*DWD, DEAD_LETTERS}


def window(side: str, rate: int) -> dict[str, object]:
    cpu = dict.fromkeys((*COMPONENTS, "measuring"), 1.2)
    memory = dict.fromkeys(COMPONENTS, 100.0)
    measured = Window(
        side, rate, 60.0, sawtooth(1000, 0), rate * 60, rate * 60, cpu, 0.1, [(0.0, memory)] * 9, [0.5, 0.7, 0.6]
    )
    measured.latencies_ms = [float(number) for number in range(1, 1001)]
    return measured.summary()


def phase(name: str, seconds: float) -> dict[str, object]:
    return {"phase": name, "seconds": seconds, "cpu": {DRIVER: seconds / 10, JVM: seconds / 2, WORKERS: 0.0}}


def results() -> dict[str, object]:
    catch_up = {"events": 600_000, "seconds": 60.0, "with_start": 10_000.0, "while_busy": 12_000.0}
    data = {
        "rate": {"highest": {ARROW: [40_000, 45_000, 40_000]}, "windows": [window(ARROW, 20_000)]},
        "latency": [window(side, 10_000) for side in ALL_SIDES],
        "start": {
            "first": [{"side": ARROW, "first_row": 30.0, "all_rows": 31.0}],
            "later": [{"side": ARROW, "first_row": 12.5, "all_rows": 13.0}],
        },
        "profile": [[phase("imports", 0.1), phase("start of the JVM", 0.9), phase("first visible row", 12.5)]],
        "cpu": [window(ARROW, rate) for rate in (20_000, 40_000)],
        "catchup": [{**catch_up, "side": ARROW, "warm": 20_000.0, "master": "local[2]"}],
        "scaling": [
            {**catch_up, "side": ARROW, "warm": warm, "master": master}
            for master, warm in (("local[1]", 20_000.0), ("local[2]", 30_000.0), ("two one-core workers", 34_000.0))
        ],
        "memory": [window(ARROW, 20_000)],
        "demo": [{"side": ARROW, "events": 100_000, "seconds": seconds} for seconds in (50.0, 70.0, 55.0)],
    }
    return {part: {"when": "today", "load": 0.5, "rounds": 3, "data": value} for part, value in data.items()}


def test_report_has_goals_and_a_section_per_part() -> None:
    lines = report_lines(results())
    assert "| highest sustained rate, events/s | **40,000** [40,000, 45,000, 40,000] |  |  | ≥ 40,000 |  |" in lines
    assert "| latency at 10,000 events/s, p99, s | **1.0** | **1.0** | **1.0** | ≤ 2 |  |" in lines
    assert "| first rows from a cold start, s | **12.5** |  |  | ≤ 12 | missed |" in lines
    assert len([line for line in lines if line.startswith("## ")]) == 9
    assert "| start of the JVM | **11.6** | 1.2 | 5.8 | 0.0 |" in lines
    assert "| `make run`: 100,000 events with the audit, s | **55.0** [50.0, 70.0, 55.0] |  |  | ≤ 60 |  |" in lines
    assert "| Arrow | local[2] | 2 | **30,000** | 1.50 |" in lines
    (ten_billion,) = (line for line in lines if line.startswith("| 10 billion |"))
    assert ten_billion == "| 10 billion | 115,741 | 347,222 | 32 | 1 | 347 | 9.0 |"


def test_report_on_some_parts_only() -> None:
    some = {"start": results()["start"]}
    assert len([line for line in report_lines(some) if line.startswith("## ")]) == 1
    lines = report_lines({"rate": results()["rate"]})
    assert [line for line in lines if line.startswith("#")][2:] == ["## Processor time per event", "### Extrapolation"]
    assert any("from 3.0 µs of processor time of Spark and its workers" in line for line in lines)


def test_spread_shows_rounds_only_if_there_are_several() -> None:
    assert spread([]) == ""
    assert spread([1.25], 1) == "**1.2**"
    assert spread([1, 2, 9]) == "**2** [1, 2, 9]"


def long_run(mb_per_sample: float = 0.0) -> LongRun:
    result = LongRun(1000, 30, "ods-dwd", audit="all rows are there", audit_passed=True)
    for number in range(180):
        memory = dict.fromkeys(COMPONENTS, 300 + mb_per_sample * number)
        cpu = dict.fromkeys(COMPONENTS, number * 2.5)
        events = number * 10_000
        result.samples.append(Sample(number * 10.0, events, events - 500, memory, memory, cpu, [900.0], 5.0, 1000.0))
    return result


def test_verdict_on_a_long_run() -> None:
    good = long_run()
    assert good.problems() == []
    assert "**Verdict: flat memory, steady lag, and a clean audit.**" in long_report_lines(good, 0.1)
    assert "| broker | 300 | 300 | 300 | +0.0 | +0.0% | yes | 0.25 |" in long_report_lines(good, 0.1)
    assert "lag 0.5 s  latency 0.90 s" in progress_line(good.samples, 1000)


def test_verdict_names_every_problem_of_a_long_run() -> None:
    bad = long_run(mb_per_sample=1.0)
    bad.audit_passed = False
    problems = bad.problems()
    assert problems[0].startswith("the memory of broker grew by 360 MB")
    assert len(problems) == len(COMPONENTS) + 1
    early = LongRun(1000, 30, "ods-dwd", failure="the run failed: no broker")
    assert early.problems() == ["the run failed: no broker", "there are too few samples for a verdict"]
    assert any("the run failed: no broker" in line for line in long_report_lines(early, 0.1))
