"""The pipeline `ods-dwd`: turns the shop's raw events into clean rows, one per item. See docs/shop.md.

One Arrow flow for both ODS topics. Nothing is shuffled: the task of a source partition parses its records, compares
them with the history of the partition, and writes their rows. So every output topic has the rows of a key in the order
of their records in the ODS topic.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from headrace.pipelines.arrow_flow import ArrowFlow, Task
from headrace.pipelines.pipeline import DEAD_LETTERS, SOURCE_COLUMNS, Pipeline, PipelineError, Topic
from headrace.shop import schemas
from headrace.shop._event_keys import hash_texts
from headrace.shop.db import Tables, db_rows, parse_db
from headrace.shop.event_history import DUPLICATE, KNOWN_DEVICE, Devices, EventHistory
from headrace.shop.log import LogEvents, log_rows, parse_log
from headrace.shop.routes import ROUTES, Route, load_routes

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = "rows"
"""The output of rows whose topic is not an output of the pipeline; the column `topic` routes each row."""
LOG, DB = "log", "db"
Routes = tuple[tuple[str, Route], ...]


def split_log(batch: "pa.RecordBatch", task: Task) -> "dict[str, pa.RecordBatch]":
    """Processes records of `ods_log`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    events = parse_log(batch["value"])
    before = task.state.devices
    marks = _mark(batch, task, events.event.field("event_id"), events.is_valid, events)
    is_known = pc.equal(marks, KNOWN_DEVICE)
    is_written = pc.and_(events.is_valid, pc.not_equal(marks, DUPLICATE))
    _add(task, repaired=pc.sum(is_known).as_py() or 0, new_devices=task.state.devices - before)
    is_new = pc.and_not(events.claims_to_be_new, is_known)
    rows: dict[str, pa.RecordBatch] = dict(log_rows(events, is_written, is_new, task.partition, batch["offset"]))
    return rows | _dead_letters(batch, events.reasons)


def split_db(batch: "pa.RecordBatch", task: Task, tables: Tables) -> "dict[str, pa.RecordBatch]":
    """Processes records of `ods_db`."""
    import pyarrow.compute as pc

    changes = parse_db(batch["value"], tables)
    marks = _mark(batch, task, changes.event.field("event_id"), changes.is_valid)
    is_written = pc.and_(changes.is_valid, pc.not_equal(marks, DUPLICATE))
    rows = db_rows(changes, tables.routes, is_written, batch["key"], task.partition, batch["offset"])
    written = sum(len(each) for each in rows.values())
    _add(task, unrouted=(pc.sum(is_written).as_py() or 0) - written)
    return rows | _dead_letters(batch, changes.reasons)


def _mark(
    batch: "pa.RecordBatch",
    task: Task,
    event_ids: "pa.StringArray",
    is_valid: "pa.BooleanArray",
    events: LogEvents | None = None,
) -> "pa.UInt8Array":
    """Compares the valid events with the history of the partition. Returns one mark per record, 0 for most."""
    import pyarrow as pa
    import pyarrow.compute as pc

    history: EventHistory = task.state
    millis = pc.divide(batch["timestamp"].cast(pa.int64()), 1000).fill_null(-1)
    generations = pa.Array.from_buffers(
        pa.int64(), len(batch), [None, pa.py_buffer(history.advance(_view(millis, "q")))]
    )
    rows = pc.indices_nonzero(is_valid).cast(pa.int32())
    lows, highs = _hashes(event_ids, rows)
    devices = None
    if events is not None:
        new_flags = events.claims_to_be_new.cast(pa.int64()).take(rows)
        days = events.day.take(rows)
        devices = Devices(_hashes(events.device, rows)[0], _view(days, "q"), _view(new_flags, "q"))
    marks = history.mark(lows, highs, _view(generations.take(rows), "q"), devices)
    _add(task, duplicates=marks.count(DUPLICATE))
    all_marks = bytearray(len(batch))
    if any(marks):
        for row, mark in zip(rows.to_pylist(), marks, strict=True):
            all_marks[row] = mark
    return pa.Array.from_buffers(pa.uint8(), len(batch), [None, pa.py_buffer(all_marks)])


def _hashes(texts: "pa.StringArray", rows: "pa.Int32Array") -> tuple[bytes, bytes]:
    _, offsets, data = texts.buffers()
    numbers = memoryview(offsets).cast("B").cast("i")[texts.offset :] if offsets else memoryview(bytes(4)).cast("i")
    return hash_texts(memoryview(data).cast("B") if data else b"", numbers, _view(rows, "i"))


def _view(array: "pa.Array", kind: Literal["i", "q"]) -> memoryview:
    """Returns the values of an array without nulls."""
    if not len(array):
        return memoryview(b"").cast(kind)
    width = array.type.bit_width // 8
    start = array.offset * width
    return memoryview(array.buffers()[1]).cast("B")[start : start + len(array) * width].cast(kind)


def _add(task: Task, **figures: int) -> None:
    for name, number in figures.items():
        task.figures[name] = task.figures.get(name, 0) + number


def _dead_letters(batch: "pa.RecordBatch", reasons: Mapping[int, str]) -> "dict[str, pa.RecordBatch]":
    import pyarrow as pa

    if not reasons:
        return {}
    rows = sorted(reasons)
    invalid = batch.select(SOURCE_COLUMNS).take(pa.array(rows, pa.int32()))
    reason = pa.array([reasons[row] for row in rows], pa.string())
    return {DEAD_LETTERS: invalid.append_column("reason", reason)}


def _window_ms(task: Task) -> int:
    minutes = float(task.settings["dedup_minutes"])
    if not 0 < minutes <= 1440:
        raise PipelineError(f"setting dedup_minutes={minutes:g}: expected more than 0 and at most 1440 minutes")
    return round(minutes * 60_000)


def make_ods_dwd(routes: Mapping[str, Route] = ROUTES, *, name: str = "ods-dwd") -> Pipeline:
    """Returns the pipeline with these routes. `{**ROUTES, "my_table": Route("dwd_mine")}` adds a route in a user's
    file."""
    topics = dict.fromkeys([*schemas.LOG_TOPICS, *(route.topic for route in routes.values())])
    frozen = tuple(routes.items())

    def transform(batch: "pa.RecordBatch", task: Task) -> "dict[str, pa.RecordBatch | pa.Table]":
        if task.source == LOG:
            return dict(split_log(batch, task))
        rows = split_db(batch, task, _tables(task.shared))
        return _route_other_topics(rows, topics)

    flow: Any = ArrowFlow(
        "events",
        {LOG: Topic(schemas.ODS_LOG), DB: Topic(schemas.ODS_DB)},
        transform=transform,
        state=lambda task: EventHistory(_window_ms(task)),
        shared=lambda settings: _all_routes(frozen, str(settings["routes"])),
    )
    return Pipeline.of(
        name,
        [flow],
        {ROWS: Topic(None), **{topic: Topic(topic) for topic in topics}},
        description=_DESCRIPTION,
        settings={"dedup_minutes": 10.0, "routes": ""},
    )


def _route_other_topics(
    rows: "dict[str, pa.RecordBatch]", topics: Mapping[str, object]
) -> "dict[str, pa.RecordBatch | pa.Table]":
    """Moves rows of topics that are no outputs to the output `rows`."""
    import pyarrow as pa

    outputs: dict[str, pa.RecordBatch | pa.Table] = {}
    routed = []
    for topic, found in rows.items():
        if topic in topics or topic == DEAD_LETTERS:
            outputs[topic] = found
        else:
            routed.append(found.append_column("topic", pa.array([topic] * len(found), pa.string())))
    if routed:
        outputs[ROWS] = pa.Table.from_batches(routed)
    return outputs


def _all_routes(routes: Routes, file: str) -> Routes:
    """Returns the routes of the pipeline and of a file, which only the driver reads. Raises if one is invalid."""
    extended = tuple(load_routes(file, dict(routes)).items()) if file else routes
    _tables(extended)
    return extended


@lru_cache(maxsize=8)
def _tables(routes: Routes) -> Tables:
    return Tables(dict(routes))


_DESCRIPTION = """\
An online shop: turns raw app and database events into clean rows.

Reads the events of the app (ods_log) and the changes of the database (ods_db); checks, types and cleans them; removes
duplicates that arrive within dedup_minutes; corrects the flag of new visitors; and writes one row for each start, page,
display, action and error, and for each change of an order, payment, refund or cart.
"""

ods_dwd = make_ods_dwd()
