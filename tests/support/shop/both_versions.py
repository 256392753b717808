"""Runs the Arrow version of `ods-dwd` and its SQL reference on the same records, and returns comparable results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.support.shop.sql.ods_dwd import make_ods_dwd as make_reference

from headrace.pipelines.arrow_flow import Task
from headrace.pipelines.pipeline import DEAD_LETTERS, Batch, Pipeline, batch_scope
from headrace.shop.ods_dwd import make_ods_dwd
from headrace.shop.routes import ROUTES, Route

TS = 1_767_225_600_000  # 2026-01-01
_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
Record = tuple[bytes | None, bytes | None]
"""A key and a value."""


@dataclass
class Result:
    """What a version wrote: the records of each topic in order, dead letters with their reasons, and figures."""

    rows: dict[str, list[tuple[bytes, bytes]]] = field(default_factory=dict)
    dead_letters: list[tuple[int, str, bytes | None, bytes | None]] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)


def record_batch(source: str, records: Sequence[Record], first_offset: int = 0, sent_ms: int = TS) -> pa.RecordBatch:
    """Returns records of partition 3 as a source batch."""
    count = len(records)
    columns = [
        [key for key, _ in records],
        [value for _, value in records],
        [f"ods_{source}"] * count,
        [3] * count,
        list(range(first_offset, first_offset + count)),
        [sent_ms * 1000] * count,
    ]
    return pa.record_batch([pa.array(column, kind) for column, kind in zip(columns, _SCHEMA.types, strict=True)], schema=_SCHEMA)


class ArrowVersion:
    """The Arrow version, with the state of one source partition."""

    def __init__(self, source: str, routes: Mapping[str, Route] = ROUTES, **settings: Any) -> None:
        self._flow = make_ods_dwd(routes).flows[0]
        self._task = Task(source, f"ods_{source}", 3, 0, {"dedup_minutes": 10.0, "routes": "", **settings})
        self._task.state = self._flow.state(self._task)

    def run(self, *chunks: pa.RecordBatch) -> Result:
        self._task.figures.clear()
        result = Result()
        for chunk in chunks:
            for output, rows in self._flow.transform(chunk, self._task).items():
                self._add(result, output, rows)
        result.figures = dict(self._task.figures)
        return result

    @staticmethod
    def _add(result: Result, output: str, rows: Any) -> None:
        for row in rows.to_pylist():
            if output == DEAD_LETTERS:
                result.dead_letters.append((row["offset"], row["reason"], row["key"], row["value"]))
            else:
                result.rows.setdefault(row.get("topic", output), []).append((row["key"], row["value"]))


class SqlVersion:
    """The SQL reference."""

    def __init__(
        self, spark: Any, directory: Path, source: str, routes: Mapping[str, Route] = ROUTES, **settings: Any
    ) -> None:
        self._spark = spark
        self._pipeline: Pipeline = make_reference(routes)
        self._flow = next(flow for flow in self._pipeline.flows if flow.name == source)
        self._directory = directory
        self._settings = {**self._pipeline.settings, **settings}
        self._next_id = 0

    def run(self, *chunks: pa.RecordBatch) -> Result:
        frame = self._spark.createDataFrame(pa.Table.from_batches(chunks))
        batch = Batch(
            spark=self._spark,
            pipeline=self._pipeline,
            flow=self._flow.name,
            settings=self._settings,
            bootstrap_servers="",
            state_dir=str(self._directory / self._flow.name),
            id=self._next_id,
            query_id=str(self._directory),
        )
        self._next_id += 1
        result = Result()
        with batch_scope(batch):
            frames = self._flow.split(frame, batch)
            for output, found in frames.items():
                for row in sorted(found.toArrow().to_pylist(), key=lambda row: (row["_at"], row.get("_seq", 0))):
                    if output == DEAD_LETTERS:
                        result.dead_letters.append((row["offset"], row["reason"], row["key"], row["value"]))
                    else:
                        result.rows.setdefault(row["topic"], []).append((row["key"], row["value"]))
        result.figures = dict(batch.figures)
        return result
