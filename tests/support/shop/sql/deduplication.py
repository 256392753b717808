"""Removes duplicate events from a parsed batch and marks devices that are not new. Runs in the driver.

A parsed frame has these columns:

    _at      the position of the record in its source: partition and offset
    reason   why the record is invalid, or null
    record   the source record, if it is invalid
    sent_ms  the record's timestamp
    key      the record's key
    event    the parsed event, if it is valid

1. Spark sends one small row of integers per event to the driver.
2. The driver compares the rows with the flow's `EventHistory`.
3. The driver returns the few events that need a mark as a small frame.
4. Spark joins this frame to the events without moving them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.shop.sql.column_cache import cached_column
from tests.support.shop.sql.event_history import DUPLICATE, KNOWN_DEVICE, EventColumns, EventHistory

from headrace.common.clock import SystemClock
from headrace.pipelines.pipeline import AT, DEAD_LETTERS, SOURCE_COLUMNS, Batch
from headrace.shop.flow_state import FlowStateCache
from headrace.shop.state_store import StateDirectory

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MARK = "_mark"
_OFFSET_BITS = 48
_EVENT_COLUMNS = ("id_low", "id_high", "device", "day", "new_flag")
_ROWS_OF = "rows of "
_NONZERO = re.compile(rb"[^\0]")


def position() -> "Column":
    """Returns `_at`, for frames that the runner did not read."""
    from pyspark.sql import functions as sf

    return sf.shiftleft(sf.col("partition").cast("long"), _OFFSET_BITS) + sf.col("offset")


def partition_of_position() -> "Column":
    from pyspark.sql import functions as sf

    return sf.shiftright(AT, _OFFSET_BITS)


def offset_of_position() -> "Column":
    from pyspark.sql import functions as sf

    return sf.col(AT).bitwiseAND(sf.lit((1 << _OFFSET_BITS) - 1))


@cached_column
def _driver_columns() -> list["Column | str"]:
    """Returns the columns that each event sends to the driver. Two of them hold 128 bits of its id."""
    from pyspark.sql import functions as sf

    event_id = sf.col("event.event_id")
    hashes = [sf.xxhash64(event_id).alias("id_low"), sf.xxhash64(sf.lit(1), event_id).alias("id_high")]
    return [AT, "sent_ms", sf.col("reason").isNull().alias("valid"), *hashes]


_histories: FlowStateCache[EventHistory] = FlowStateCache()


@dataclass(frozen=True)
class DeduplicatedBatch:
    """A batch after deduplication."""

    events: "DataFrame"
    """The events to write: the columns of the parsed frame and `_mark`, which is null or `KNOWN_DEVICE`."""
    count: int
    """The number of events to write."""
    dead_letters: "DataFrame | None"


def deduplicate(
    parsed: "DataFrame", batch: Batch, *device_columns: "Column", rows: "Mapping[str, Column]", window_ms: int
) -> DeduplicatedBatch:
    """Compares the events of a parsed frame with the flow's history. The frame is computed once.

    `device_columns`: device, day and new_flag, if the events have devices. `rows`: the number of rows that an event
    produces, by topic. They are summed up here, so the runner does not need to count them.
    """
    import pyarrow.compute as pc
    from pyspark.sql import functions as sf

    parsed = batch.keep(parsed)
    is_valid = sf.col("reason").isNull()
    counts = [column.cast("int").alias(f"{_ROWS_OF}{topic}") for topic, column in rows.items()]
    collected = parsed.select(*_driver_columns(), *device_columns, *counts).toArrow()
    valid = collected.filter(collected["valid"]).sort_by(AT)
    columns = {name: _int64_buffer(valid[name]) for name in _EVENT_COLUMNS if name in valid.column_names}
    history = _histories.get(
        batch, lambda _: EventHistory(StateDirectory(batch.spark, batch.state_dir), window_ms, SystemClock())
    )
    marks = history.mark_batch(
        batch.id,
        EventColumns(
            columns["id_low"],
            columns["id_high"],
            columns.get("device"),
            columns.get("day"),
            columns.get("new_flag"),
            newest_ms=pc.max(collected["sent_ms"]).as_py(),
        ),
    )
    batch.figures["duplicates"] = marks.count(DUPLICATE)
    if device_columns:
        batch.figures.update(repaired=marks.count(KNOWN_DEVICE), new_devices=history.new_devices)
    batch.rows_by_topic.update(_count_rows(valid, marks, rows))
    invalid_count = len(collected) - len(valid)
    (dead_letters,) = batch.pipeline.outputs[DEAD_LETTERS]
    batch.rows_by_topic[str(dead_letters.name)] = invalid_count
    invalid = parsed.where(~is_valid).select("reason", AT, "record.*").coalesce(1) if invalid_count else None
    events = _join_marks(parsed.where(is_valid), valid[AT], marks, batch)
    return DeduplicatedBatch(events, len(marks) - marks.count(DUPLICATE), invalid)


def _count_rows(valid: Any, marks: bytearray, topics: Iterable[str]) -> dict[str, int]:
    """Returns the number of rows that the events produce without duplicates, by topic."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if DUPLICATE in marks:
        all_marks = pa.Array.from_buffers(pa.uint8(), len(marks), [None, pa.py_buffer(marks)])
        valid = valid.filter(pc.not_equal(all_marks, DUPLICATE))
    return {topic: pc.sum(valid[f"{_ROWS_OF}{topic}"]).as_py() or 0 for topic in topics}


def _join_marks(events: "DataFrame", positions: Any, marks: bytearray, batch: Batch) -> "DataFrame":
    import pyarrow as pa
    from pyspark.sql import functions as sf

    marked = [match.start() for match in _NONZERO.finditer(marks)]
    if not marked:
        return events.withColumn(MARK, sf.lit(None).cast("int"))
    table = pa.table({AT: positions.take(pa.array(marked)), MARK: pa.array([marks[row] for row in marked], pa.int32())})
    small = batch.spark.createDataFrame(table)
    joined = events.join(sf.broadcast(small), on=AT, how="left")
    if DUPLICATE in marks:
        joined = joined.where(sf.col(MARK).isNull() | (sf.col(MARK) != DUPLICATE))
    return joined


def _int64_buffer(column: Any) -> memoryview:
    """Returns the values of an Arrow column of 64-bit integers, which must not have nulls."""
    import pyarrow as pa

    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if array.null_count:
        raise ValueError(f"{array.null_count} events have a null where an integer was expected")
    if not len(array):
        return memoryview(b"").cast("q")
    assert array.type == pa.int64()
    start = array.offset * 8
    return memoryview(array.buffers()[1])[start : start + len(array) * 8].cast("q")


def with_positions(frame: "DataFrame") -> "DataFrame":
    return frame if AT in frame.columns else frame.withColumn(AT, position())


def parsed_frame(frame: "DataFrame", reason: "Column") -> "DataFrame":
    """Returns the parsed frame (see above) of records that have the parsed `event` as a column."""
    return with_positions(frame).withColumn("reason", reason).select(*_parsed_columns())


@cached_column
def _parsed_columns() -> list["Column | str"]:
    from pyspark.sql import functions as sf

    is_invalid = sf.col("reason").isNotNull()
    return [
        AT,
        sf.unix_millis("timestamp").alias("sent_ms"),
        "reason",
        sf.when(is_invalid, sf.struct(*SOURCE_COLUMNS)).alias("record"),
        "key",
        sf.when(~is_invalid, sf.col("event")).alias("event"),
    ]
