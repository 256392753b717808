"""Running Arrow flows: topics, tables, dead letters, settings, metrics and errors."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.broker.process import eventually
from tests.support.spark.topic_rows import put, records, values

import headrace
from headrace.admin import Admin
from headrace.common.types import TopicPartition
from headrace.pipelines import (
    ArrowFlow,
    Flow,
    Pipeline,
    PipelineError,
    Runner,
    RunSettings,
    Table,
    Task,
    Topic,
    arrow_pipeline,
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


def order(number: int) -> tuple[str, Any]:
    return f"o{number}", {"id": f"o{number}", "amount": number * 10, "ts": TS + number * 600_000}


def orders_pipeline(name: str) -> Pipeline:
    """Writes large orders to a topic, all orders to a table, and invalid records to the dead letters."""

    @arrow_pipeline(
        name,
        sources={"orders": Topic(f"{name}-orders")},
        outputs={"large": Topic(f"{name}-large", key="id"), "all": Table(name, time="ts")},
        settings={"large": 100},
    )
    def orders(rows: pa.RecordBatch, task: Task) -> Any:
        """Splits orders."""
        parsed = [_parse(value.as_py()) for value in rows["value"]]
        good = pa.array([order is not None for order in parsed])
        bad = pa.table(rows.filter(pc.invert(good)))
        table = pa.Table.from_pylist(
            [order for order in parsed if order],
            pa.schema([("id", pa.string()), ("amount", pa.int64()), ("ts", pa.int64())]),
        )
        task.figures["orders"] = task.figures.get("orders", 0) + table.num_rows
        return {
            "large": table.filter(pc.greater_equal(table["amount"], task.settings["large"])),
            "all": table,
            "dead_letters": bad.append_column("reason", pa.repeat(pa.scalar("not JSON"), bad.num_rows)),
        }

    return orders


def _parse(value: bytes | None) -> Any:
    try:
        return json.loads(value or b"")
    except ValueError:
        return None


def table_ids(spark: Any, settings: RunSettings, name: str) -> list[str]:
    return sorted(row.id for row in spark.read.parquet(f"{settings.warehouse}/{name}").collect())


def test_writes_topics_tables_and_dead_letters(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("asorted-orders", 2)
    put(servers, "asorted-orders", [*(order(number) for number in range(20)), ("bad", b"not json")])
    reports: list[Progress] = []
    summary = Runner(orders_pipeline("asorted"), spark, settings, on_progress=reports.append).run()
    assert sorted(value["id"] for value in values(servers, "asorted-large")) == sorted(f"o{n}" for n in range(10, 20))
    assert {record.key.decode() for record in records(servers, "asorted-large")} == {f"o{n}" for n in range(10, 20)}
    assert table_ids(spark, settings, "asorted") == sorted(f"o{n}" for n in range(20))
    (letter,) = values(servers, "asorted_dead_letters")
    assert (letter["reason"], letter["topic"], letter["key"], letter["value"]) == (
        "not JSON",
        "asorted-orders",
        "bad",
        "not json",
    )
    assert sum(progress.rows for progress in reports) == 21 == summary.rows
    assert reports[-1].lag == 0
    assert summary.outputs == {"asorted-large": 10, "asorted_dead_letters": 1, "asorted": 20}
    assert summary.flows["asorted"].figures == {"orders": 20}

    put(servers, "asorted-orders", [order(20), order(3)])
    changed = replace(settings, settings={"large": "1"})
    summary = Runner(orders_pipeline("asorted"), spark, changed).run()
    assert summary.outputs == {"asorted-large": 2, "asorted": 2}
    assert len(values(servers, "asorted-large")) == 12
    assert len(table_ids(spark, settings, "asorted")) == 22


def pass_on(name: str, transform: Any, **more: Any) -> Pipeline:
    """Returns a pipeline from the topic `<name>-in` to the topic `<name>-out`, unless `more` says otherwise."""
    more = {"sources": {"rows": Topic(f"{name}-in")}, "outputs": {"out": Topic(f"{name}-out")}, **more}
    flow = ArrowFlow("pass", more.pop("sources"), transform, more.pop("state", None))
    return Pipeline.of(name, [flow], **more)


def same_rows(rows: pa.RecordBatch, task: Task) -> Any:
    return {"out": rows.select(["key", "value"])}


def test_order_and_every_kind_of_record(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    """Tombstones, records without a key, and aborted and committed transactions, over several batches."""
    servers = broker.bootstrap_servers
    broker.create_topic("aorder-in", 3)
    sent: list[tuple[bytes | None, bytes | None]] = []
    with headrace.Producer(bootstrap_servers=servers, transactional_id="aorder") as producer:
        producer.init_transactions()
        for number in range(12):
            producer.begin_transaction()
            for index in range(25):
                key = None if index == 3 else f"k{index % 7}".encode()
                value = None if index == 5 else f"{number}/{index}".encode()
                producer.send("aorder-in", value, key=key)
                if number % 3 != 2:
                    sent.append((key, value))
            if number % 3 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    reports: list[Progress] = []
    small = replace(settings, max_rows_per_batch=60)
    Runner(pass_on("aorder", same_rows), spark, small, on_progress=reports.append).run()
    assert len([progress for progress in reports if progress.rows]) > 2
    assert sum(progress.rows for progress in reports) == len(sent)
    written = [(record.key, record.value) for record in records(servers, "aorder-out")]
    assert sorted(written, key=repr) == sorted(sent, key=repr)
    for key in {key for key, _ in sent if key is not None}:
        assert [row for row in written if row[0] == key] == [row for row in sent if row[0] == key]


def test_several_sources_are_one_query(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    servers = broker.bootstrap_servers
    for topic in ("atwo-a", "atwo-b", "atwo-x1", "atwo-x2"):
        broker.create_topic(topic, 2)
        put(servers, topic, [(f"k{number}", f"{topic}/{number}".encode()) for number in range(10)])

    def transform(rows: pa.RecordBatch, task: Task) -> Any:
        assert rows.schema.names == ["value", "offset"]
        prefix = f"{task.source}:{task.topic}:{task.partition}:".encode()
        return {"out": pa.table({"value": [prefix + value.as_py() for value in rows["value"]]})}

    columns = ("offset", "value")
    sources = {
        "a": Topic("atwo-a", columns=columns),
        "b": Topic("atwo-b", columns=columns),
        "x": Topic(pattern="atwo-x.*", columns=columns),
    }
    pipeline = pass_on("atwo", transform, sources=sources)
    summary = Runner(pipeline, spark, settings).run()
    assert (summary.rows, summary.outputs) == (40, {"atwo-out": 40})
    found = {tuple(record.value.decode().split(":")[:2]) for record in records(servers, "atwo-out")}
    assert found == {("a", "atwo-a"), ("b", "atwo-b"), ("x", "atwo-x1"), ("x", "atwo-x2")}
    put(servers, "atwo-b", [("k", b"more")])
    assert Runner(pipeline, spark, settings).run().rows == 1


def test_routes_rows_by_topic_with_headers(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("aroute-in", 1)
    with headrace.Producer(bootstrap_servers=servers) as producer:
        for number in range(4):
            producer.send("aroute-in", b"v", key=f"{number}".encode(), headers=[("n", f"{number}".encode())])

    def transform(rows: pa.RecordBatch, task: Task) -> Any:
        topics = [f"aroute-out{int(key.as_py()) % 2}" for key in rows["key"]]
        return {"out": rows.select(["key", "value", "headers"]).append_column("topic", pa.array(topics))}

    sources = {"rows": Topic("aroute-in", columns=("key", "value", "headers"))}
    pipeline = pass_on("aroute", transform, sources=sources, outputs={"out": Topic(None)})
    assert Runner(pipeline, spark, settings).run().outputs == {"other topics": 4}
    odd = records(servers, "aroute-out1")
    assert [(record.key, record.headers) for record in odd] == [(b"1", [("n", b"1")]), (b"3", [("n", b"3")])]


def test_polars_frames_and_several_places_of_an_output(
    spark: Any, broker: EmbeddedBroker, settings: RunSettings
) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("apolars-in", 2)
    put(servers, "apolars-in", [(f"k{number}", {"n": number}) for number in range(50)])

    def transform(rows: pa.RecordBatch, task: Task) -> Any:
        import polars as pl

        frame = pl.DataFrame(rows).with_columns(
            n=pl.col("value").cast(pl.String).str.json_path_match("$.n").cast(pl.Int64)
        )
        return {"out": frame.select("key", "n", "timestamp")}

    outputs = {"out": [Topic("apolars-out"), Topic("apolars-copy"), Table("apolars", time="timestamp")]}
    summary = Runner(pass_on("apolars", transform, outputs=outputs), spark, settings).run()
    assert summary.outputs == {"apolars-out": 50, "apolars-copy": 50, "apolars": 50}
    assert sorted(value["n"] for value in values(servers, "apolars-copy")) == list(range(50))
    assert sorted(row.n for row in spark.read.parquet(f"{settings.warehouse}/apolars").collect()) == list(range(50))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda rows: 1 / 0, r"ZeroDivisionError: division by zero \(test_arrow_flows.py:\d+\)"),
        (lambda rows: rows, "transform returned RecordBatch; expected rows by output name"),
        (
            lambda rows: {"other": rows},
            "transform returned an unknown output 'other'; expected one of: out, dead_letters",
        ),
        (lambda rows: {"out": [1]}, "output 'out': transform returned list; expected a pyarrow RecordBatch or Table"),
        (
            lambda rows: {"dead_letters": rows},
            "dead letters need the columns of the source and 'reason'; missing: reason",
        ),
        (
            lambda rows: {"out": pa.table({"n": pa.array([1], pa.duration("s"))})},
            "type duration.s. cannot be written as JSON",
        ),
    ],
)
def test_errors_of_the_transformation(
    spark: Any, broker: EmbeddedBroker, settings: RunSettings, returned: Any, message: str
) -> None:
    topic = f"aerror-{settings.checkpoint.split('/')[-2]}"
    broker.create_topic(topic, 1)
    put(broker.bootstrap_servers, topic, [("k", b"v"), ("k", b"w")])
    pipeline = pass_on("aerror", lambda rows, task: returned(rows), sources={"rows": Topic(topic)})
    with pytest.raises(PipelineError, match=f"^flow pass failed: flow pass, {topic}-0, offsets 0 to 1: .*{message}"):
        Runner(pipeline, spark, settings).run()
    assert records(broker.bootstrap_servers, "aerror-out") == []


class BrokenState:
    """A state that cannot be saved."""

    def take_delta(self) -> bytes:
        raise KeyError("no delta")


def test_errors_of_the_state_and_of_figures(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    broker.create_topic("astate-in", 1)
    put(broker.bootstrap_servers, "astate-in", [("k", b"v")])
    where = "flow pass failed: flow pass, astate-in-0, offsets 0 to 0"
    with pytest.raises(PipelineError, match=f"^{where}: KeyError: 'no delta'"):
        Runner(pass_on("astate", same_rows, state=lambda task: BrokenState()), spark, settings).run()

    def wrong_figure(rows: pa.RecordBatch, task: Task) -> Any:
        task.figures["rows"] = pa.scalar(1)
        return same_rows(rows, task)

    with pytest.raises(PipelineError, match=f"^{where}: the figure 'rows' is of type Int64Scalar; expected int or"):
        Runner(pass_on("astate", wrong_figure), spark, settings).run()
    assert records(broker.bootstrap_servers, "astate-out") == []


def test_another_kind_of_flow_needs_a_new_checkpoint(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    broker.create_topic("akind-in", 1)
    Runner(pass_on("akind", same_rows), spark, settings).run()
    flow = Flow("pass", {"rows": Topic("akind-in")}, split=lambda frame, batch: {"out": frame})
    with pytest.raises(PipelineError, match="use a new checkpoint directory"):
        Runner(Pipeline.of("akind", [flow], {"out": "akind-out"}), spark, settings).run()


def test_lost_records(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    """Records that were deleted before they were read fail the flow, or are skipped with `failOnDataLoss=false`."""
    servers = broker.bootstrap_servers
    broker.create_topic("aloss-in", 1)
    put(servers, "aloss-in", [(None, f"{number}".encode()) for number in range(10)])
    pipeline = pass_on("aloss", same_rows)
    Runner(pipeline, spark, replace(settings, source_options={"startingOffsets": "latest"})).run()
    put(servers, "aloss-in", [(None, f"{number}".encode()) for number in range(10, 20)])
    with Admin(bootstrap_servers=servers) as admin:
        admin.delete_records({TopicPartition("aloss-in", 0): 15})
    with pytest.raises(PipelineError, match="aloss-in-0 now begins at offset 15"):
        Runner(pipeline, spark, settings).run()
    Runner(pipeline, spark, replace(settings, source_options={"failOnDataLoss": "false"})).run()
    assert [int(record.value) for record in records(servers, "aloss-out")] == [15, 16, 17, 18, 19]


def test_runs_until_it_is_stopped_next_to_a_flow_of_frames(
    spark: Any, broker: EmbeddedBroker, settings: RunSettings
) -> None:
    """Both kinds of flows in one pipeline, in many small batches. A stop loses nothing."""
    servers = broker.bootstrap_servers
    broker.create_topic("amix-in", 2)
    flows = [
        ArrowFlow("arrow", {"rows": Topic("amix-in")}, same_rows),
        Flow("frames", {"rows": Topic("amix-in")}, split=lambda frame, batch: {"copy": frame.select("key", "value")}),
    ]
    pipeline = Pipeline.of("amix", flows, {"out": Topic("amix-out"), "copy": Topic("amix-copy")})
    endless = replace(settings, available_now=False, trigger="50 milliseconds")
    runner = Runner(pipeline, spark, endless)
    runner.start()
    for number in range(10):
        put(servers, "amix-in", [(f"k{number}", f"{number}".encode())])
        assert not runner.wait(0.2)
    eventually(lambda: not runner.wait(0.1) and runner.summary().rows >= 20, "all rows are read", DEADLINE)
    summary = runner.stop()
    assert summary.outputs == {"amix-out": 10, "amix-copy": 10}
    assert Runner(pipeline, spark, settings).run().rows == 0
    assert sorted(int(record.value) for record in records(servers, "amix-out")) == list(range(10))


def test_shared_content_is_read_once_in_the_driver(
    spark: Any, broker: EmbeddedBroker, settings: RunSettings, tmp_path: Path
) -> None:
    """Workers need not have a file of the driver."""
    servers = broker.bootstrap_servers
    broker.create_topic("ashared-in", 2)
    file = tmp_path / "suffix.txt"
    file.write_text("!")

    @arrow_pipeline(
        "ashared",
        sources={"rows": Topic("ashared-in")},
        outputs={"out": Topic("ashared-out")},
        settings={"file": str(file)},
        shared=lambda settings: Path(str(settings["file"])).read_bytes(),
    )
    def ashared(rows: pa.RecordBatch, task: Task) -> Any:
        return {"out": pa.table({"value": [value.as_py() + task.shared for value in rows["value"]]})}

    runner = Runner(ashared, spark, replace(settings, available_now=False, trigger="50 milliseconds"))
    runner.start()
    file.unlink()
    put(servers, "ashared-in", [(f"k{number}", f"{number}".encode()) for number in range(10)])
    eventually(lambda: not runner.wait(0.1) and runner.summary().rows == 10, "all rows are read", DEADLINE)
    runner.stop()
    assert sorted(record.value for record in records(servers, "ashared-out")) == [b"%d!" % n for n in range(10)]
    with pytest.raises(PipelineError, match=r"flow ashared cannot start: .*suffix\.txt"):
        Runner(ashared, spark, settings).run()
