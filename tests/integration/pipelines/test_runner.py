"""Running pipelines from topics to topics and tables: each row once, however the run ends."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.process import eventually
from tests.support.spark.topic_rows import put, records, values

from headrace.pipelines import (
    Batch,
    Context,
    Flow,
    Pipeline,
    PipelineError,
    Runner,
    RunSettings,
    Table,
    Topic,
    frame_query,
    parse_json,
    pipeline,
)
from headrace.pipelines.progress import Progress
from headrace.testing import EmbeddedBroker

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
DEADLINE = 120
TS = 1772600767089  # 2026-03-04 05:06:07.089


@pytest.fixture
def settings(broker: EmbeddedBroker, tmp_path: Path) -> RunSettings:
    return RunSettings(
        broker.bootstrap_servers, str(tmp_path / "checkpoint"), warehouse=str(tmp_path / "tables"), available_now=True
    )


def orders_pipeline(name: str) -> Pipeline:
    """Writes large orders to a topic, all orders to a table, and invalid records to the dead letters."""

    @pipeline(
        name,
        sources={"orders": Topic(f"{name}-orders")},
        outputs={"large": Topic(f"{name}-large", key="id"), "all": Table(name, time="ts")},
        settings={"large": 100},
    )
    def orders(orders: Any, batch: Batch) -> Any:
        """Splits orders."""
        parsed = parse_json(orders, "id string, amount bigint, ts bigint", required=["id", "ts"])
        rows = parsed.good.select("data.*", "_at")
        return {
            "large": rows.where(rows.amount >= batch.settings["large"]),
            "all": rows,
            "dead_letters": parsed.bad,
        }

    return orders


def order(number: int) -> tuple[str, Any]:
    return f"o{number}", {"id": f"o{number}", "amount": number * 10, "ts": TS + number * 600_000}


def table_ids(spark: Any, settings: RunSettings, name: str) -> list[str]:
    return sorted(row.id for row in spark.read.parquet(f"{settings.warehouse}/{name}").collect())


def test_writes_topics_tables_and_dead_letters(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("sorted-orders", 2)
    put(servers, "sorted-orders", [*(order(number) for number in range(20)), ("bad", b"not json")])
    reports: list[Progress] = []
    summary = Runner(orders_pipeline("sorted"), spark, settings, on_progress=reports.append).run()
    assert sorted(value["id"] for value in values(servers, "sorted-large")) == sorted(f"o{n}" for n in range(10, 20))
    assert {record.key.decode() for record in records(servers, "sorted-large")} == {f"o{n}" for n in range(10, 20)}
    assert table_ids(spark, settings, "sorted") == sorted(f"o{n}" for n in range(20))
    (letter,) = values(servers, "sorted_dead_letters")
    assert (letter["reason"], letter["topic"], letter["key"], letter["value"]) == (
        "not JSON",
        "sorted-orders",
        "bad",
        "not json",
    )
    assert sum(progress.rows for progress in reports) == 21 == summary.rows
    assert reports[-1].lag == 0
    assert summary.outputs == {"sorted-large": 10, "sorted_dead_letters": 1, "sorted": 20}
    assert json.loads(reports[-1].as_json())["flow"] == "sorted"

    put(servers, "sorted-orders", [order(20), order(3)])
    changed = replace(settings, settings={"large": "1"})
    summary = Runner(orders_pipeline("sorted"), spark, changed).run()
    assert summary.outputs == {"sorted-large": 2, "sorted": 2}
    assert len(values(servers, "sorted-large")) == 12
    assert len(table_ids(spark, settings, "sorted")) == 22


def test_failed_batch_is_replayed_exactly_once(
    spark: Any, broker: EmbeddedBroker, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("half-orders", 2)
    put(servers, "half-orders", [*(order(number) for number in range(30)), ("bad", b"{")])

    def crash(*_: object, **__: object) -> int:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(frame_query, "write_table", crash)
        with pytest.raises(PipelineError, match="flow half failed: the disk is gone"):
            Runner(orders_pipeline("half"), spark, settings).run()
    assert len(values(servers, "half-large")) == 20, "topics are written first"
    put(servers, "half-orders", [order(30)])
    reports: list[Progress] = []
    for _ in range(2):
        Runner(orders_pipeline("half"), spark, settings, on_progress=reports.append).run()
        assert sorted(value["id"] for value in values(servers, "half-large")) == sorted(f"o{n}" for n in range(10, 31))
        assert table_ids(spark, settings, "half") == sorted(f"o{n}" for n in range(31))
        assert len(values(servers, "half_dead_letters")) == 1
    assert [progress.replayed for progress in reports if progress.rows] == [True, False]


def test_replay_of_written_tables_has_no_observations(
    spark: Any, broker: EmbeddedBroker, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("done-in", 1)
    put(broker.bootstrap_servers, "done-in", [(None, number) for number in range(3)])

    @pipeline("done", sources={"rows": "done-in"}, outputs={"kept": Table("done", time="timestamp")})
    def done(rows: Any, batch: Batch) -> Any:
        from pyspark.sql import functions as sf

        return {"kept": batch.observe(rows, many=sf.count("*"))}

    def crash(self: Any, observation: Any) -> Any:
        raise OSError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(frame_query.FrameFlowQuery, "_figures", crash)
        with pytest.raises(PipelineError, match="gone"):
            Runner(done, spark, settings).run()
    summary = Runner(done, spark, settings).run()
    assert (summary.flows["done"].figures, summary.outputs) == ({}, {"done": 0})
    put(broker.bootstrap_servers, "done-in", [(None, 3)])
    assert Runner(done, spark, settings).run().flows["done"].figures == {"many": 1}
    assert spark.read.parquet(f"{settings.warehouse}/done").count() == 4


class Gate:
    """A `split` that can be blocked, and that records its batches."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.batches: list[int] = []

    def __call__(self, frame: Any, batch: Batch) -> Any:
        self.batches.append(batch.id)
        self.entered.set()
        assert self.go_on.wait(DEADLINE)
        return {"copy": frame.select("key", "value", "_at")}


def copy_pipeline(name: str, split: Callable[[Any, Batch], Any], **more: Any) -> Pipeline:
    flow = Flow("copy", {"in": Topic(f"{name}-in")}, split=split, **more)
    return Pipeline.of(name, [flow], {"copy": f"{name}-out"})


def test_stop_lets_the_running_batch_finish(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("stop-in", 1)
    put(servers, "stop-in", [(None, number) for number in range(10)])
    gate = Gate()
    one_by_one = replace(settings, available_now=False, max_rows_per_batch=5)
    runner = Runner(copy_pipeline("stop", gate), spark, one_by_one)
    runner.start()
    assert gate.entered.wait(DEADLINE)
    assert not runner.wait(timeout=0)
    runner.request_stop()
    gate.go_on.set()
    assert runner.wait(DEADLINE)
    assert runner.summary().rows == 5
    assert sorted(values(servers, "stop-out")) == [*range(5)]
    assert runner.stop().flows["copy"].batches == 1

    rest = Runner(copy_pipeline("stop", gate), spark, settings)
    assert rest.run().rows == 5
    assert gate.batches.count(0) == 1, "the batch at the stop was committed"
    assert sorted(values(servers, "stop-out")) == [*range(10)]


def test_failed_flow_stops_all_flows(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    for topic in ("pair-in", "pair-other"):
        broker.create_topic(topic, 1)
    put(broker.bootstrap_servers, "pair-in", [(None, 1)])

    def broken(frame: Any, batch: Batch) -> Any:
        raise ValueError("no idea\nwhat to do")

    def fine(frame: Any, batch: Batch) -> Any:
        return {"copy": frame}

    pair = Pipeline.of(
        "pair",
        [Flow("broken", {"in": Topic("pair-in")}, split=broken), Flow("fine", {"in": Topic("pair-other")}, split=fine)],
        {"copy": "pair-out"},
    )
    runner = Runner(pair, spark, replace(settings, available_now=False))
    runner.start()
    with pytest.raises(PipelineError, match=r"^flow broken failed: no idea what to do$"):
        runner.wait(DEADLINE)
    assert spark.streams.active == []


def test_several_sources_and_observed_figures(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    servers = broker.bootstrap_servers
    for topic in ("both-left", "both-right"):
        broker.create_topic(topic, 1)
    put(servers, "both-left", [("a", 1), ("b", 2)])
    put(servers, "both-right", [("c", 3)])

    @pipeline(
        "both",
        sources={"left": "both-left", "right": Topic(pattern="both-r.*", columns=("value", "partition", "offset"))},
        outputs={"out": Topic(None), "lefts": Topic("both-lefts"), "rights": Topic("both-rights", partitions=3)},
    )
    def both(left: Any, right: Any, batch: Batch) -> Any:
        from pyspark.sql import functions as sf

        total = batch.observe(left, sum_of_left=sf.sum(sf.col("value").cast("string").cast("long")))
        lefts = total.select(sf.lit("both-lefts").alias("topic"), "key", "value")
        rights = right.select(sf.lit("both-rights").alias("topic"), sf.lit("k").alias("key"), "value")
        return {"out": lefts.unionByName(rights)}

    summary = Runner(both, spark, settings).run()
    assert summary.outputs == {"both-lefts": 2, "both-rights": 1}
    assert summary.flows["both"].figures == {"sum_of_left": 3}
    assert [(record.key, record.value) for record in records(servers, "both-rights")] == [(b"k", b"3")]
    assert sorted(values(servers, "both-lefts")) == [1, 2]


def test_stateful_pipeline(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("counts-in", 1)
    put(servers, "counts-in", [(None, {"city": city}) for city in ("Graz", "Linz", "Graz")])

    @pipeline(
        "counts",
        sources={"visits": "counts-in"},
        outputs={"cities": [Topic("counts-out", key="city"), Table("counts", time="at")]},
        stateful=True,
        output_mode="update",
    )
    def counts(visits: Any, context: Context) -> Any:
        from pyspark.sql import functions as sf

        assert context.flow == "counts"
        city = sf.get_json_object(visits.value.cast("string"), "$.city").alias("city")
        return visits.groupBy(city).agg(sf.count("*").alias("visits"), sf.max("timestamp").alias("at"))

    Runner(counts, spark, settings).run()
    put(servers, "counts-in", [(None, {"city": "Wien"}), (None, {"city": "Graz"})])
    summary = Runner(counts, spark, settings).run()
    latest = {value["city"]: value["visits"] for value in values(servers, "counts-out")}
    assert latest == {"Graz": 3, "Linz": 1, "Wien": 1}
    assert summary.outputs == {"counts-out": 2, "counts": 2}
    assert spark.read.parquet(f"{settings.warehouse}/counts").count() == 4


def test_order_per_key_and_headers(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("order-in", 3)
    put(servers, "order-in", [(f"k{number % 5}", number) for number in range(200)])

    def shuffled(frames: Any, context: Context) -> Any:
        from pyspark.sql import functions as sf

        return frames["in"].withColumn("mixed", sf.hash("offset"))

    def split(frame: Any, batch: Batch) -> Any:
        assert "headers" in frame.columns
        return {"copy": frame.orderBy("mixed").select("key", "value", "headers", "_at")}

    source = Topic("order-in", columns=("key", "value", "partition", "offset", "headers"))
    flow = Flow("copy", {"in": source}, prepare=shuffled, split=split)
    ordered = Pipeline.of("order", [flow], {"copy": Topic("order-out", partitions=2)})
    Runner(ordered, spark, replace(settings, max_rows_per_batch=60)).run()
    by_key: dict[bytes, list[int]] = {}
    for record in records(servers, "order-out"):
        by_key.setdefault(record.key, []).append(int(record.value))
    assert by_key == {f"k{key}".encode(): [*range(key, 200, 5)] for key in range(5)}


def test_checks_settings_before_start(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    wrong = orders_pipeline("wrong")
    with pytest.raises(PipelineError, match=r"writes tables \(wrong\): a warehouse directory is required"):
        Runner(wrong, spark, replace(settings, warehouse=None))
    with pytest.raises(PipelineError, match="no setting 'huge'; its settings: large"):
        Runner(wrong, spark, replace(settings, settings={"huge": "1"}))
    with pytest.raises(PipelineError, match="trigger 'soon'"):
        Runner(wrong, spark, replace(settings, trigger="soon"))
    with pytest.raises(PipelineError, match="topic 'wrong-orders' of source 'orders' does not exist"):
        Runner(wrong, spark, settings).run()


def test_rejects_checkpoint_of_other_sources(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    broker.create_topic("mine-in", 1)

    def split(frame: Any, batch: Batch) -> Any:
        return {"copy": frame}

    Runner(copy_pipeline("mine", split), spark, settings).run()
    other = Pipeline.of("mine", [Flow("copy", {"other": Topic("mine-in")}, split=split)], {"copy": "mine-out"})
    with pytest.raises(
        PipelineError, match=r"reads other, but its checkpoint .* was created for in: use a new checkpoint"
    ):
        Runner(other, spark, settings).run()


def test_rejects_prepare_that_returns_no_stream(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    broker.create_topic("plain-in", 1)
    flow = Flow("copy", {"in": Topic("plain-in")}, prepare=lambda frames, context: frames)  # type: ignore[arg-type,return-value]
    with pytest.raises(PipelineError, match="prepare returned dict; expected one streaming frame"):
        Runner(Pipeline.of("plain", [flow], {"copy": "plain-out"}), spark, settings).run()


def test_start_failure_is_reported_in_one_line(
    spark: Any, broker: EmbeddedBroker, settings: RunSettings, tmp_path: Path
) -> None:
    broker.create_topic("cannot-in", 1)
    cannot = copy_pipeline("cannot", lambda frame, batch: {"copy": frame})
    file = tmp_path / "file"
    file.write_text("not a directory")
    for wrong, message in (
        (replace(settings, source_options={"startingOffsets": "somewhere"}), "somewhere"),
        (replace(settings, client={"isolation.levels": "x"}), "isolation.levels"),
        (replace(settings, checkpoint=str(file)), str(file)),
    ):
        with pytest.raises(PipelineError) as caught:
            Runner(cannot, spark, wrong).run()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    assert spark.streams.active == []


def test_retries_when_python_workers_start_slowly(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    broker.create_topic("slow-in", 1)
    put(broker.bootstrap_servers, "slow-in", [(None, 1)])
    tries = []

    def split(frame: Any, batch: Batch) -> Any:
        tries.append(batch.id)
        if len(tries) < limit:
            raise RuntimeError("Python worker failed to connect back.")
        return {"copy": frame}

    limit = 2
    assert Runner(copy_pipeline("slow", split), spark, settings).run().outputs == {"slow-out": 1}
    assert tries[:2] == [0, 0]
    assert values(broker.bootstrap_servers, "slow-out") == [1]
    put(broker.bootstrap_servers, "slow-in", [(None, 2)])
    tries.clear()
    limit = 100
    with pytest.raises(PipelineError, match="flow copy failed: Python worker failed to connect back"):
        Runner(copy_pipeline("slow", split), spark, settings).run()
    assert 1 <= len(tries) <= 6, "fails after at most five retries"


def test_retries_failure_that_occurs_after_the_runner_looked(
    spark: Any, broker: EmbeddedBroker, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("late-in", 1)
    put(broker.bootstrap_servers, "late-in", [(None, 1)])
    tries = []
    may_restart = frame_query.FrameFlowQuery.may_restart
    looks = []

    def split(frame: Any, batch: Batch) -> Any:
        tries.append(batch.id)
        if len(tries) == 1:
            raise RuntimeError("Python worker failed to connect back.")
        return {"copy": frame}

    def look_before_failure(query: frame_query.FrameFlowQuery) -> bool:
        looks.append(may_restart(query))
        eventually(lambda: len(looks) > 1 or not query.active, "the query fails", DEADLINE)
        return looks[-1]

    monkeypatch.setattr(frame_query.FrameFlowQuery, "may_restart", look_before_failure)
    assert Runner(copy_pipeline("late", split), spark, settings).run().outputs == {"late-out": 1}
    assert looks[0] is False
    assert tries == [0, 0]


def test_restarts_failed_flow_while_others_continue(
    spark: Any, broker: EmbeddedBroker, settings: RunSettings, caplog: pytest.LogCaptureFixture
) -> None:
    servers = broker.bootstrap_servers
    for topic in ("again-fine", "again-in"):
        broker.create_topic(topic, 1)
    tries = []

    def fine(frame: Any, batch: Batch) -> Any:
        return {"copy": frame}

    def fails_once(frame: Any, batch: Batch) -> Any:
        from pyspark.sql import functions as sf

        tries.append(batch.id)
        if tries == [0, 1, 2]:
            return {"copy": frame.withColumn("value", sf.raise_error(sf.lit("not today")).cast("binary"))}
        return {"copy": frame}

    flows = [
        Flow("fine", {"in": Topic("again-fine")}, split=fine),
        Flow("broken", {"in": Topic("again-in")}, split=fails_once),
    ]
    reports: list[Progress] = []
    both = Pipeline.of("again", flows, {"copy": "again-out"})
    runner = Runner(both, spark, replace(settings, available_now=False), on_progress=reports.append)
    runner.start()
    for number in range(5):
        put(servers, "again-in", [(None, number)])
        written = [*range(number + 1)]
        eventually(
            lambda expected=written: not runner.wait(0.1) and values(servers, "again-out") == expected,
            f"{written} are written",
            DEADLINE,
        )
    summary = runner.stop()
    assert tries[:4] == [0, 1, 2, 2]
    assert "Pipeline again: flow broken failed and restarts from its checkpoint:" in caplog.text
    assert values(servers, "again-out") == [*range(5)]
    assert sum(progress.rows for progress in reports) == 5 == summary.rows, "every batch is reported exactly once"


def test_second_failure_ends_the_flow(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    broker.create_topic("never-in", 1)
    put(broker.bootstrap_servers, "never-in", [(None, 1)])
    tries = []

    def split(frame: Any, batch: Batch) -> Any:
        from pyspark.sql import functions as sf

        tries.append(batch.id)
        return {"copy": frame.withColumn("value", sf.raise_error(sf.lit("not ever")).cast("binary"))}

    with pytest.raises(PipelineError, match=r"flow copy failed: .*not ever"):
        Runner(copy_pipeline("never", split), spark, settings).run()
    assert tries == [0, 0]
