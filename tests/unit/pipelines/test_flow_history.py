"""The history of a flow: what its status says in the course of a run."""

from typing import Any

from headrace.pipelines.arrow_flow import ArrowFlow
from headrace.pipelines.flow_history import Application, FlowHistory
from headrace.pipelines.pipeline import Flow, Pipeline, Table, Topic
from headrace.pipelines.progress import MAX_REASONS, OTHER_REASONS, Progress
from headrace.pipelines.run_settings import RunSettings
from headrace.testing.clock import ManualClock


def transform(records: Any) -> Any:
    return {"large": records}


FLOW = ArrowFlow("large", {"orders": Topic("b, a"), "all": Topic(pattern="x.*")}, transform)
PIPELINE = Pipeline.of(
    "orders", [FLOW], {"large": [Topic("large"), Table("large_table", time="ts")], "routed": Topic(None)}
)
SETTINGS = RunSettings("localhost:1", "checkpoints", trigger="1 second")


def history(clock: ManualClock, pipeline: Pipeline = PIPELINE) -> FlowHistory:
    application = Application("local-1", "local[2]", "here")
    return FlowHistory(pipeline, pipeline.flows[0], SETTINGS, {"least": 1}, application, clock)


def batch(number: int, rows: int = 1000, seconds: float = 0.5, **more: Any) -> Progress:
    outputs = {"large": rows * 2, "large_table": rows}
    return Progress("orders", "large", number, "2026-03-04T05:06:07.089Z", rows, seconds, 7, outputs, **more)


def test_status_before_the_first_batch() -> None:
    clock = ManualClock()
    status = history(clock).status()
    assert (status.key, status.kind, status.state) == ("orders/large", "arrow", "starting")
    assert status.sources == {
        "orders": {"topics": ["b", "a"], "pattern": None},
        "all": {"topics": [], "pattern": "x.*"},
    }
    assert status.outputs == {
        "large": {"topics": ["large"], "tables": ["large_table"]},
        "routed": {"topics": [], "tables": [], "by_row": True},
    }
    assert (status.source_topics, status.output_topics, status.tables) == (("a", "b"), ("large",), ("large_table",))
    assert (status.dead_letter_topic, status.settings, status.trigger) == (
        "orders_dead_letters",
        {"least": 1},
        "1 second",
    )
    assert (status.started_ms, status.updated_ms, status.ended_ms) == (clock.time_ms(), clock.time_ms(), None)
    assert (status.last_batch, status.lag) == (None, None)


def test_dead_letters_in_a_table_have_no_topic() -> None:
    flow = Flow("f", {"orders": Topic("orders")}, split=lambda frame, _: {"large": frame})
    pipeline = Pipeline.of("p", [flow], {"large": "large", "dead_letters": Table("dead", time="timestamp")})
    status = history(ManualClock(), pipeline).status()
    assert (status.kind, status.dead_letter_topic) == ("frames", None)


def test_batches_add_up() -> None:
    clock = ManualClock()
    flow = history(clock)
    flow.query_started("q", "r")
    flow.batch(batch(4, figures={"late": 1}, dead_letters={"not JSON": 2}))
    clock.advance(500)
    flow.batch(batch(5, figures={"late": 2}, dead_letters={"not JSON": 1, "no id": 4}))
    status = flow.status()
    assert (status.state, status.query_id, status.run_id) == ("running", "q", "r")
    assert (status.batches, status.rows_in, status.rows_out) == (2, 2000, {"large": 4000, "large_table": 2000})
    assert (status.lag, status.figures) == (7, {"late": 3})
    assert (status.dead_letters, status.dead_letters_by_reason) == (7, {"not JSON": 3, "no id": 4})
    last = status.last_batch
    assert last is not None
    assert (last.id, last.started_ms, last.duration_ms, last.rows_in) == (5, 1772600767089, 500, 1000)
    assert (status.rows_in_per_second, status.rows_out_per_second) == (2000.0, 6000.0)


def test_rates_cover_the_last_seconds() -> None:
    clock = ManualClock()
    flow = history(clock)
    for number in range(60):
        clock.advance(1000)
        flow.batch(batch(number, rows=100 if number < 30 else 500, seconds=1.0))
    assert flow.status().rows_in_per_second == 500.0
    clock.advance(9_000)
    assert 0 < flow.status().rows_in_per_second < 500
    clock.advance(2_000)
    assert flow.status().rows_in_per_second == 0.0


def test_rate_of_long_batches_is_that_of_the_last_one() -> None:
    clock = ManualClock()
    flow = history(clock)
    for number in range(3):
        clock.advance(60_000)
        flow.batch(batch(number, rows=6000, seconds=60.0))
    assert flow.status().rows_in_per_second == 100.0
    clock.advance(60_000)
    assert flow.status().rows_in_per_second == 50.0


def test_error_of_a_restart_disappears_with_the_next_batch() -> None:
    flow = history(ManualClock())
    flow.is_running()
    flow.restarted("a task was lost")
    assert (flow.status().state, flow.status().restarts, flow.status().error) == ("running", 1, "a task was lost")
    flow.batch(batch(1))
    assert (flow.status().restarts, flow.status().error) == (1, None)


def test_end() -> None:
    clock = ManualClock()
    stopped, failed = history(clock), history(clock)
    stopped.batch(batch(1))
    stopped.ended()
    failed.ended("no such column")
    assert (stopped.status().state, stopped.status().ended_ms) == ("stopped", clock.time_ms())
    assert (stopped.status().error, stopped.status().rows_in_per_second) == (None, 0.0)
    assert (failed.status().state, failed.status().error) == ("failed", "no such column")


def test_number_of_reasons_is_limited() -> None:
    flow = history(ManualClock())
    for number in range(MAX_REASONS + 5):
        flow.batch(batch(number, dead_letters={f"reason {number}": 1}))
    flow.batch(batch(99, dead_letters={"reason 0": 1, OTHER_REASONS: 3}))
    reasons = flow.status().dead_letters_by_reason
    assert (len(reasons), reasons["reason 0"], reasons[OTHER_REASONS]) == (MAX_REASONS + 1, 2, 8)
    assert flow.status().dead_letters == MAX_REASONS + 5 + 4
