"""Between parsing and splitting: asks the flow's memory about the events of a batch. Runs in the driver.

A parsed frame has the columns

    _at      the place of the record in its source: partition and offset
    reason   why the record cannot be used, or null
    record   the record itself, if it cannot be used
    sent_ms  its timestamp
    key      that of the record
    event    what was parsed of it, if it can be used

Of these, one small row of numbers for each event goes to the driver. Back comes a frame of the few events about which
there is something to say, which Spark joins to the events without moving them.
"""

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.common.clock import SystemClock
from headrace.pipelines.pipeline import AT, DEAD_LETTERS, SOURCE_COLUMNS, Batch, Setting
from headrace.shop.column_cache import cached_column
from headrace.shop.memory import DUPLICATE, KNOWN, Memory, Sightings
from headrace.shop.state_files import StateFiles

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MARK = "_mark"
_OFFSET_BITS = 48
_SIGHTED = ("low", "high", "device", "day", "claim")
_ROWS_OF = "rows of "
_MARKED = re.compile(rb"[^\0]")


def place() -> "Column":
    """`_at`, for frames that do not come from the runner."""
    from pyspark.sql import functions as sf

    return sf.shiftleft(sf.col("partition").cast("long"), _OFFSET_BITS) + sf.col("offset")


def partition_of_place() -> "Column":
    from pyspark.sql import functions as sf

    return sf.shiftright(AT, _OFFSET_BITS)


def offset_of_place() -> "Column":
    from pyspark.sql import functions as sf

    return sf.col(AT).bitwiseAND(sf.lit((1 << _OFFSET_BITS) - 1))


@cached_column
def _numbers() -> list["Column | str"]:
    """What goes to the driver of every event: 128 bits of its id, as two numbers, among others."""
    from pyspark.sql import functions as sf

    event_id = sf.col("event.event_id")
    hashes = [sf.xxhash64(event_id).alias("low"), sf.xxhash64(sf.lit(1), event_id).alias("high")]
    return [AT, "sent_ms", sf.col("reason").isNull().alias("sound"), *hashes]


T = TypeVar("T")


@dataclass(frozen=True)
class _Owner:
    query_id: str
    application_id: str
    settings: dict[str, Setting]


class KeptByFlow(Generic[T]):
    """What flows keep between batches: one for each state directory, as long as the same query uses it, in the same
    Spark and with the same settings."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[_Owner, T]] = {}

    def of(self, batch: Batch, make: Callable[[Batch], T]) -> T:
        owner = _Owner(batch.query_id, str(batch.spark.sparkContext.applicationId), dict(batch.settings))
        with self._lock:
            known = self._kept.get(batch.state_dir)
            if known is None or known[0] != owner:
                known = self._kept[batch.state_dir] = (owner, make(batch))
            return known[1]


_memories: KeptByFlow[Memory] = KeptByFlow()


@dataclass(frozen=True)
class Judged:
    """A batch that was judged."""

    events: "DataFrame"
    """Those to be written: the columns of the parsed frame, and `_mark`, null or what memory says of it."""
    count: int
    """How many they are."""
    dead_letters: "DataFrame | None"


def judge(
    parsed: "DataFrame", batch: Batch, *sighting: "Column", rows: "Mapping[str, Column]", window_ms: int
) -> Judged:
    """Asks about each event of a parsed frame, which is computed once. `sighting`: device, day and claim, if any.
    `rows`: how many rows an event makes, by topic; they are added up here, in no time."""
    import pyarrow.compute as pc
    from pyspark.sql import functions as sf

    parsed = batch.keep(parsed)
    is_sound = sf.col("reason").isNull()
    counts = [column.cast("int").alias(f"{_ROWS_OF}{topic}") for topic, column in rows.items()]
    numbers = parsed.select(*_numbers(), *sighting, *counts).toArrow()
    sound = numbers.filter(numbers["sound"]).sort_by(AT)
    columns = {name: _buffer(sound[name]) for name in _SIGHTED if name in sound.column_names}
    memory = _memories.of(batch, lambda _: Memory(StateFiles(batch.spark, batch.state_dir), window_ms, SystemClock()))
    marks = memory.judge(
        batch.id,
        Sightings(
            columns["low"],
            columns["high"],
            columns.get("device"),
            columns.get("day"),
            columns.get("claim"),
            newest_ms=pc.max(numbers["sent_ms"]).as_py(),
        ),
    )
    batch.figures["duplicates"] = marks.count(DUPLICATE)
    if sighting:
        batch.figures.update(repaired=marks.count(KNOWN), new_devices=memory.new_devices)
    batch.rows_by_topic.update(_added_up(sound, marks, rows))
    bad_count = len(numbers) - len(sound)
    (letters,) = batch.pipeline.outputs[DEAD_LETTERS]
    batch.rows_by_topic[str(letters.name)] = bad_count
    bad = parsed.where(~is_sound).select("reason", AT, "record.*").coalesce(1) if bad_count else None
    events = _with_marks(parsed.where(is_sound), sound[AT], marks, batch)
    return Judged(events, len(marks) - marks.count(DUPLICATE), bad)


def _added_up(sound: Any, marks: bytearray, topics: Iterable[str]) -> dict[str, int]:
    """The rows that events make which are not dropped."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if DUPLICATE in marks:
        all_marks = pa.Array.from_buffers(pa.uint8(), len(marks), [None, pa.py_buffer(marks)])
        sound = sound.filter(pc.not_equal(all_marks, DUPLICATE))
    return {topic: pc.sum(sound[f"{_ROWS_OF}{topic}"]).as_py() or 0 for topic in topics}


def _with_marks(events: "DataFrame", places: Any, marks: bytearray, batch: Batch) -> "DataFrame":
    import pyarrow as pa
    from pyspark.sql import functions as sf

    rows = [found.start() for found in _MARKED.finditer(marks)]
    if not rows:
        return events.withColumn(MARK, sf.lit(None).cast("int"))
    table = pa.table({AT: places.take(pa.array(rows)), MARK: pa.array([marks[row] for row in rows], pa.int32())})
    small = batch.spark.createDataFrame(table)
    joined = events.join(sf.broadcast(small), on=AT, how="left")
    if DUPLICATE in marks:
        joined = joined.where(sf.col(MARK).isNull() | (sf.col(MARK) != DUPLICATE))
    return joined


def _buffer(column: Any) -> memoryview:
    """The numbers of an Arrow column without nulls."""
    import pyarrow as pa

    whole = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if whole.null_count:
        raise ValueError(f"{whole.null_count} events without a number")
    if not len(whole):
        return memoryview(b"").cast("q")
    assert whole.type == pa.int64()
    start = whole.offset * 8
    return memoryview(whole.buffers()[1])[start : start + len(whole) * 8].cast("q")


def with_places(frame: "DataFrame") -> "DataFrame":
    return frame if AT in frame.columns else frame.withColumn(AT, place())


def parsed_frame(frame: "DataFrame", reason: "Column") -> "DataFrame":
    """What is kept of records with the parsed `event` beside them."""
    return with_places(frame).withColumn("reason", reason).select(*_kept())


@cached_column
def _kept() -> list["Column | str"]:
    from pyspark.sql import functions as sf

    is_bad = sf.col("reason").isNotNull()
    return [
        AT,
        sf.unix_millis("timestamp").alias("sent_ms"),
        "reason",
        sf.when(is_bad, sf.struct(*SOURCE_COLUMNS)).alias("record"),
        "key",
        sf.when(~is_bad, sf.col("event")).alias("event"),
    ]
