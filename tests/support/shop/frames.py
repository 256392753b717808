"""Runs the shop's pipelines on plain frames: batches without a broker, and rows as Python objects."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.pipelines import PipelineError, Runner, RunSettings
from headrace.pipelines.pipeline import DEAD_LETTERS, Batch, Pipeline, batch_scope
from headrace.spark.mapped_stream import with_schema

TS = 1_767_225_600_000  # 2026-01-01
DAY_MS = 86_400_000
Event = tuple[str, Any]
"""A key and a value: bytes and None stay unchanged, everything else is written as JSON."""


def source_frame(
    spark: Any, topic: str, records: Iterable[Event | tuple[str, Any, int, int]], sent_ms: int | None = TS
) -> Any:
    """Returns records as a source frame; by default in partition 0, at offsets from 0."""
    sent = sent_ms and sent_ms * 1000
    rows = []
    for number, (key, value, *where) in enumerate(records):
        content = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        partition, offset = where or (0, number)
        rows.append((key.encode(), content, topic, partition, offset, sent))
    columns = list(zip(*rows, strict=True)) or [()] * 6
    kinds = (pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", tz="UTC"))
    names = ("key", "value", "topic", "partition", "offset", "timestamp")
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return spark.createDataFrame(pa.table(dict(zip(names, arrays, strict=True))))


class Run:
    """A flow of a pipeline that processes one batch after the other."""

    def __init__(self, spark: Any, pipeline: Pipeline, flow: str, directory: Path, **settings: Any) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.flow = next(each for each in pipeline.flows if each.name == flow)
        self.directory = directory
        self.settings = {**pipeline.settings, **settings}
        self.next_id = 0
        self.figures: dict[str, int | float] = {}

    def parsed(self, frame: Any) -> Any:
        """Returns what the tasks that read the records would return."""
        (topic,) = self.flow.sources.values()
        if topic.parse is None:
            return frame
        parse, settings = topic.parse, self.settings
        columns = StructType.fromDDL(topic.parsed_columns)
        schema = to_arrow_schema(columns, timezone="UTC")
        return frame.select(*topic.columns).mapInArrow(
            lambda batches: (with_schema(parse(batch, settings), schema) for batch in batches), columns
        )

    def batch(self, frame: Any, batch_id: int | None = None) -> dict[str, list[dict[str, Any]]]:
        """Processes a batch. Returns the rows of each topic, with `_key` in addition to the fields of the value, and
        dead letters."""
        batch_id = self.next_id if batch_id is None else batch_id
        self.next_id = batch_id + 1
        batch = Batch(
            spark=self.spark,
            pipeline=self.pipeline,
            flow=self.flow.name,
            settings=self.settings,
            bootstrap_servers="",
            state_dir=str(self.directory / self.flow.name),
            id=batch_id,
            query_id=str(self.directory),
        )
        assert self.flow.split is not None
        with batch_scope(batch):
            frames = self.flow.split(self.parsed(frame), batch)
            found = {output: frame.collect() for output, frame in frames.items()}
            self.figures = dict(batch.figures)
            for observation in batch.observed:
                self.figures.update(observation.get)
        return _rows_by_topic(found)


def _rows_by_topic(found: Mapping[str, list[Any]]) -> dict[str, list[dict[str, Any]]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for output, rows in found.items():
        for row in rows:
            if output == DEAD_LETTERS or "value" not in row:
                topics.setdefault(output, []).append(row.asDict())
            else:
                content = {"_key": bytes(row.key).decode(), **json.loads(row.value)}
                topics.setdefault(row.topic, []).append(content)
    return topics


def run_to_the_end(pipeline: Pipeline, spark: Any, how: RunSettings) -> None:
    """Runs a pipeline over the existing records. Spark gives a query's Python process 10 s to start, which is too short
    on a busy machine."""
    for _ in range(5):
        try:
            Runner(pipeline, spark, how).run()
            return
        except PipelineError as error:
            if "failed to connect back" not in str(error):
                raise
    raise AssertionError("Spark's Python processes do not start")


def reasons(rows: Mapping[str, list[dict[str, Any]]]) -> dict[int, str]:
    """Returns the reasons of dead letters by offset."""
    return {row["offset"]: row["reason"] for row in rows.get(DEAD_LETTERS, [])}


def common(mid: str = "m1", is_new: str = "0", **more: Any) -> dict[str, Any]:
    text = {name: f"{name}-{mid}" for name in ("uid", "sid", "vc", "ch", "os", "ar", "md", "ba")}
    return {"mid": mid, **text, "is_new": is_new, **more}


def page(event_id: str, mid: str = "m1", ts: int = TS, is_new: str = "0", **more: Any) -> Event:
    content = {"page_id": "home", "last_page_id": None, "during_time": 5, "item": None, "item_type": None}
    return mid, {"event_id": event_id, "ts": ts, "common": common(mid, is_new), "page": content, **more}


def change(event_id: str, table: str = "order_info", number: int = 1, kind: str = "insert", **more: Any) -> Event:
    data = {
        "id": number,
        "user_id": 7,
        "mid": "m1",
        "total_amount": 12.50,
        "sku_count": 2,
        "area": "DE-BE",
        "order_status": "created",
        "create_time": "2026-01-01 00:00:01",
        "operate_time": "2026-01-01 00:00:01",
    }
    event = {"event_id": event_id, "database": "shop", "table": table, "type": kind, "ts": TS, "xid": 5, "data": data}
    return f"{table}:{number}", {**event, **more}
