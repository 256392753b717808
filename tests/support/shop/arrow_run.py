"""Runs `ods-dwd` on plain record batches of one source partition, without a broker and without Spark."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
from tests.support.shop.frames import TS

from headrace.pipelines.arrow_flow import Task
from headrace.pipelines.pipeline import DEAD_LETTERS, Pipeline

PARTITION = 3
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
    figures: dict[str, int | float] = field(default_factory=dict)


def record_batch(
    source: str, records: Sequence[Record], first_offset: int = 0, sent_ms: int | None = TS, partition: int = PARTITION
) -> pa.RecordBatch:
    """Returns records as a source batch."""
    count = len(records)
    columns = [
        [key for key, _ in records],
        [value for _, value in records],
        [f"ods_{source}"] * count,
        [partition] * count,
        list(range(first_offset, first_offset + count)),
        [sent_ms and sent_ms * 1000] * count,
    ]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, _SCHEMA.types, strict=True)]
    return pa.record_batch(arrays, schema=_SCHEMA)


class ArrowRun:
    """The flow of `ods-dwd`, with the state of one source partition."""

    def __init__(self, pipeline: Pipeline, source: str, *, partition: int = PARTITION, **settings: Any) -> None:
        self.flow = cast(Any, pipeline.flows[0])
        self.task = Task(source, f"ods_{source}", partition, 0, {**pipeline.settings, **settings})
        self.task.state = self.flow.state(self.task)
        self.task.shared = self.flow.shared(self.task.settings)
        self.figures: dict[str, int | float] = {}

    def run(self, *chunks: pa.RecordBatch) -> Result:
        """Processes the chunks of a batch."""
        self.task.figures.clear()
        result = Result()
        for chunk in chunks:
            for output, rows in self.flow.transform(chunk, self.task).items():
                for row in rows.to_pylist():
                    if output == DEAD_LETTERS:
                        result.dead_letters.append((row["offset"], row["reason"], row["key"], row["value"]))
                    else:
                        result.rows.setdefault(row.get("topic", output), []).append((row["key"], row["value"]))
        self.figures = result.figures = dict(self.task.figures)
        return result

    def batch(self, events: Iterable[tuple[str, Any]], sent_ms: int | None = TS) -> dict[str, list[dict[str, Any]]]:
        """Processes a batch of events at offsets from 0: keys, and values that are bytes, None or JSON objects. Returns
        the rows of each topic, with `_key` in addition to the fields of the value, and dead letters."""
        records = [
            (key.encode(), value if value is None or isinstance(value, bytes) else json.dumps(value).encode())
            for key, value in events
        ]
        result = self.run(record_batch(self.task.source, records, 0, sent_ms, self.task.partition))
        topics: dict[str, list[dict[str, Any]]] = {
            topic: [{"_key": key.decode(), **json.loads(value)} for key, value in rows]
            for topic, rows in result.rows.items()
        }
        names = ("offset", "reason", "key", "value")
        letters = [dict(zip(names, letter, strict=True)) for letter in result.dead_letters]
        return topics | ({DEAD_LETTERS: letters} if letters else {})
