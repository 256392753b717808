"""The status that a run publishes: what a console reads while it runs and after its end."""

import logging
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.process import eventually
from tests.support.spark.topic_rows import put, records

from headrace.admin import Admin
from headrace.pipelines import (
    ArrowFlow,
    Flow,
    Pipeline,
    PipelineError,
    Runner,
    RunSettings,
    Table,
    Topic,
    parse_json,
    parse_records,
    run_status,
)
from headrace.pipelines.status import STATUS_TOPIC, FlowStatus
from headrace.pipelines.status_publisher import StatusWriter
from headrace.testing import EmbeddedBroker

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
SCHEMA = "id STRING, ts BIGINT"
DEADLINE = 120
TS = 1772600767089


@pytest.fixture
def settings(broker: EmbeddedBroker, tmp_path: Path) -> RunSettings:
    return RunSettings(
        broker.bootstrap_servers, str(tmp_path / "checkpoint"), warehouse=str(tmp_path / "tables"), available_now=True
    )


def published(broker: EmbeddedBroker, pipeline: str) -> list[FlowStatus]:
    statuses = [FlowStatus.from_json(record.value) for record in records(broker.bootstrap_servers, STATUS_TOPIC)]
    return [status for status in statuses if status.pipeline == pipeline]


def split(frame: Any, _batch: Any) -> Any:
    parsed = parse_json(frame, SCHEMA, required=["id"])
    return {"valid": parsed.good.select("data.*"), "dead_letters": parsed.bad}


def transform(batch: Any, task: Any) -> Any:
    parsed = parse_records(batch, SCHEMA, required=["id"])
    task.figures["valid"] = task.figures.get("valid", 0) + parsed.rows.num_rows
    return {"valid": parsed.rows, "dead_letters": parsed.bad}


@pytest.mark.parametrize("kind", ["arrow", "frames"])
def test_final_status_of_both_kinds_of_flows(
    kind: str, spark: Any, broker: EmbeddedBroker, settings: RunSettings
) -> None:
    name, source = f"status-{kind}", f"status-{kind}-in"
    broker.create_topic(source, 2)
    good = [(f"k{number}", {"id": f"k{number}", "ts": TS}) for number in range(20)]
    put(broker.bootstrap_servers, source, [*good, ("a", b"no json"), ("b", b"no json"), ("c", {"ts": TS})])
    sources = {"in": Topic(source)}
    flow = ArrowFlow("clean", sources, transform) if kind == "arrow" else Flow("clean", sources, split=split)
    outputs = {"valid": [Topic(f"{name}-out"), Table(f"{kind}_valid", time="ts")]}
    Runner(Pipeline.of(name, [flow], outputs), spark, settings).run()

    first, *_, last = published(broker, name)
    assert (first.state, first.batches, first.ended_ms) == ("starting", 0, None)
    assert (last.key, last.kind, last.state, last.error) == (f"{name}/clean", kind, "stopped", None)
    assert (last.rows_in, last.lag, last.restarts) == (23, 0, 0)
    assert last.rows_out == {f"{name}-out": 20, f"{kind}_valid": 20, last.dead_letter_topic: 3}
    assert last.dead_letters_by_reason == {"not JSON": 2, "no id": 1}
    assert last.dead_letters == 3
    assert last.figures == ({"valid": 20} if kind == "arrow" else {})
    assert (last.source_topics, last.output_topics) == ((source,), (f"{name}-out",))
    assert last.application_id == spark.sparkContext.applicationId
    assert last.query_id
    assert last.last_batch is not None
    assert last.last_batch.id == last.batches - 1
    assert last.ended_ms is not None
    assert first.started_ms == last.started_ms <= last.last_batch.started_ms <= last.ended_ms


def test_running_flow_publishes_batches_until_it_is_stopped(
    spark: Any, broker: EmbeddedBroker, settings: RunSettings
) -> None:
    broker.create_topic("status-live-in")
    put(broker.bootstrap_servers, "status-live-in", [("a", {"id": "a", "ts": TS})])
    flow = ArrowFlow("clean", {"in": Topic("status-live-in")}, transform)
    live = RunSettings(settings.bootstrap_servers, settings.checkpoint)
    runner = Runner(Pipeline.of("status-live", [flow], {"valid": "status-live-out"}), spark, live)
    runner.start()

    def newest() -> list[FlowStatus]:
        return published(broker, "status-live")[-1:] if STATUS_TOPIC in topics(broker) else []

    def shows_the_batch() -> bool:
        runner.wait(0.1)
        return any(status.rows_in == 1 for status in newest())

    try:
        eventually(shows_the_batch, "the batch in the status", DEADLINE)
        (status,) = newest()
        assert (status.state, status.rows_out) == ("running", {"status-live-out": 1})
        assert not status.is_lost(status.updated_ms)
    finally:
        runner.stop()
    assert published(broker, "status-live")[-1].state == "stopped"


def test_failed_flow_publishes_its_error(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    broker.create_topic("status-failed-in")
    put(broker.bootstrap_servers, "status-failed-in", [("a", {"id": "a"})])

    def fail(_batch: Any, _task: Any) -> Any:
        raise ValueError("this row is cursed")

    flow = ArrowFlow("clean", {"in": Topic("status-failed-in")}, fail)
    with pytest.raises(PipelineError, match="this row is cursed"):
        Runner(Pipeline.of("status-failed", [flow], {"valid": "status-failed-out"}), spark, settings).run()
    last = published(broker, "status-failed")[-1]
    assert last.state == "failed"
    assert "this row is cursed" in str(last.error)


def test_pipeline_does_not_need_the_status(
    spark: Any,
    broker: EmbeddedBroker,
    settings: RunSettings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(_options: Any) -> StatusWriter:
        raise OSError("no rights")

    monkeypatch.setattr(run_status, "open_status_topic", refuse)
    broker.create_topic("status-refused-in")
    put(broker.bootstrap_servers, "status-refused-in", [("a", {"id": "a", "ts": TS})])
    flow = ArrowFlow("clean", {"in": Topic("status-refused-in")}, transform)
    with caplog.at_level(logging.WARNING, "headrace.pipelines"):
        summary = Runner(Pipeline.of("status-refused", [flow], {"valid": "status-refused-out"}), spark, settings).run()
    assert summary.outputs == {"status-refused-out": 1}
    assert len([record for record in caplog.records if "no rights" in record.getMessage()]) == 1


def test_publishing_can_be_turned_off(spark: Any, tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("in")
        put(broker.bootstrap_servers, "in", [("a", {"id": "a", "ts": TS})])
        quiet = RunSettings(broker.bootstrap_servers, str(tmp_path), available_now=True, publish_status=False)
        flow = ArrowFlow("clean", {"in": Topic("in")}, transform)
        Runner(Pipeline.of("status-off", [flow], {"valid": "out"}), spark, quiet).run()
        assert STATUS_TOPIC not in topics(broker)


def topics(broker: EmbeddedBroker) -> set[str]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return set(admin.list_topics())
