"""Running Arrow flows: topics, tables, dead letters, settings, metrics and errors."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.spark.topic_rows import put, records, values

from headrace.pipelines import (
    ArrowFlow,
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
