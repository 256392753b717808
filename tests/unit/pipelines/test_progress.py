"""Progress, totals and the line on a terminal, without Spark."""

import io
import json
from typing import Any

from headrace.pipelines.progress import BatchResult, Progress, ProgressLine, Summary, Totals, batch_progress, source_lag
from headrace.testing.clock import ManualClock

REPORTED: dict[str, Any] = {
    "batchId": 7,
    "timestamp": "2026-03-04T05:06:07.089Z",
    "numInputRows": 500,
    "durationMs": {"addBatch": 1500, "triggerExecution": 2000},
    "sources": [
        {"endOffset": {"a": {"0": 10, "1": 20}}, "latestOffset": {"a": {"0": 13, "1": 20}}},
        {"endOffset": '{"b": {"0": 5}, "@from": {"b": {"0": 1}}}', "latestOffset": '{"b": {"0": 6}}'},
    ],
    "stateOperators": [{"numRowsTotal": 3}, {"numRowsTotal": 4}],
}


def test_combines_spark_report_and_batch_result() -> None:
    progress = batch_progress("p", "f", REPORTED, BatchResult({"out": 450, "p_dead_letters": 50}, {"late": 2}))
    assert (progress.batch_id, progress.rows, progress.seconds, progress.lag) == (7, 500, 2.0, 4)
    assert (progress.rows_per_second, progress.state_rows) == (250.0, 7)
    document = json.loads(progress.as_json())
    assert document["outputs"] == {"out": 450, "p_dead_letters": 50}
    assert (document["rows_per_second"], document["phases_ms"]["addBatch"], document["figures"]) == (
        250.0,
        1500,
        {"late": 2},
    )


def test_lag_is_unknown_without_reported_offsets() -> None:
    assert source_lag([]) is None
    assert source_lag([{"endOffset": {"a": {"0": 1}}, "latestOffset": None}]) is None
    assert source_lag([{"endOffset": "7", "latestOffset": "8"}]) is None
    assert source_lag([{"endOffset": "x", "latestOffset": "y"}]) is None


def test_lag_ignores_new_partitions() -> None:
    assert source_lag([{"endOffset": {"a": {"0": 4}}, "latestOffset": {"a": {"0": 5, "1": 100}}}]) == 1


def progress(batch_id: int, **more: Any) -> Progress:
    given = {"rows": 100, "seconds": 0.5, "lag": 10, "outputs": {"out": 90, "p_dead_letters": 10}, **more}
    return Progress("p", "f", batch_id, "2026-03-04T05:06:07.089Z", **given)


def test_totals_add_up() -> None:
    totals = Totals()
    totals.add(progress(0, figures={"late": 1, "worst": "a"}))
    totals.add(progress(1, lag=0, outputs={"out": 5, "table": 1}, figures={"late": 2, "worst": "b"}))
    assert (totals.batches, totals.rows, totals.busy_seconds, totals.lag) == (2, 200, 1.0, 0)
    assert totals.outputs == {"out": 95, "p_dead_letters": 10, "table": 1}
    assert totals.figures == {"late": 3, "worst": "b"}
    summary = Summary("p", 3.0, {"f": totals, "g": Totals()})
    assert (summary.rows, summary.rows_per_second, summary.outputs["out"]) == (200, 200.0, 95)
    assert Summary("p", 3.0, {}).rows_per_second == 0.0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminal_line_is_updated_in_place() -> None:
    clock, terminal = ManualClock(), Terminal()
    line = ProgressLine(terminal, clock=clock)
    line.batch(progress(0))
    clock.advance(2000)
    line.batch(progress(1, lag=None))
    line.end()
    first, second = terminal.getvalue().split("\r\x1b[K")[1:]
    assert first == "f batch 0: 100 rows in 0.5 s (200/s, lag 10)  |  100 rows, 10 dead letters in 0 s"
    assert second == "f batch 1: 100 rows in 0.5 s (200/s)  |  200 rows, 20 dead letters in 2 s\n"


def test_prints_a_line_every_interval_without_a_terminal() -> None:
    clock, stream = ManualClock(), io.StringIO()
    line = ProgressLine(stream, every=10.0, clock=clock)
    for batch_id in range(25):
        line.batch(progress(batch_id, outputs={}))
        clock.advance(1000)
    line.end()
    assert [text.split(":")[0] for text in stream.getvalue().splitlines()] == ["f batch 10", "f batch 20"]


def test_end_prints_nothing_without_batches() -> None:
    terminal = Terminal()
    ProgressLine(terminal).end()
    assert terminal.getvalue() == ""
