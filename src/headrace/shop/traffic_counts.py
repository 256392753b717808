"""Counts records of the DWD topics by minute, for `dws-traffic`. Runs in Spark's Python workers, no Spark import, pure.

`count_records` returns few rows for many records:

    minute       a row for each minute: its numbers
    visitors     a row for each minute and visitor
    record       a row for each record that is, or may be, a dead letter: with the columns of the source

Which records are late is known only in the driver. A record that is late there is certainly older than the allowed
lateness, by any clock that is at most `CLOCK_DIFFERENCE_MS` behind. So only such records are returned as they are.

Invariant: the numbers of all rows of a minute add up to the numbers of its records.
"""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from headrace.common.clock import Clock, SystemClock
from headrace.pipelines.json_columns import read_json
from headrace.pipelines.pipeline import SOURCE_COLUMNS, Setting
from headrace.pipelines.sql_schema import parse_sql_schema
from headrace.shop import schemas
from headrace.shop.minute_store import MINUTE_MS
from headrace.shop.rejection import NO_VALUE, EventParser, common_reason, has_common_fields

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = (
    "start_ms BIGINT, records BIGINT, page_views BIGINT, orders BIGINT, revenue BIGINT, mid STRING, reason STRING, "
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
)
"""The columns of the rows. `start_ms` is null for invalid records, `topic` is null for rows that are no records, and
`revenue` is in hundredths."""
NUMBERS = ("records", "page_views", "orders", "revenue")
CLOCK_DIFFERENCE_MS = 5 * MINUTE_MS

_EVENT = (
    "event_id STRING, ts BIGINT, mid STRING, op STRING, payment_amount DECIMAL(16,2), payment_status STRING, "
    "old MAP<STRING, STRING>"
)
_EXPECTED = {"ts": "a whole number", "payment_amount": "an amount", "old": "an object"}


@cache
def _parser() -> EventParser:
    return EventParser(parse_sql_schema(_EVENT), _EXPECTED)


def count_records(
    records: "pa.RecordBatch", settings: Mapping[str, Setting], clock: Clock | None = None
) -> "pa.RecordBatch":
    """Returns the rows of a record batch."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parsed = read_json(records["value"], parse_sql_schema(_EVENT), _parser())
    is_valid = has_common_fields(parsed.columns)
    counted = _numbers(records, parsed.columns, is_valid)
    lateness_ms = round(float(settings["lateness_minutes"]) * MINUTE_MS)
    safe_from_ms = (clock or SystemClock()).time_ms() - lateness_ms + CLOCK_DIFFERENCE_MS
    is_safe = pc.fill_null(pc.greater_equal(counted["start_ms"], safe_from_ms), False)
    safe = counted.filter(is_safe)
    rows = [_schema().empty_table(), _minutes(safe), _visitors(safe)]
    others = pc.indices_nonzero(pc.invert(is_safe))
    if len(others):
        reasons = pa.array([None] * len(records), pa.string())
        invalid = pc.indices_nonzero(pc.invert(is_valid)).to_pylist()
        if invalid:
            texts = [parsed.invalid.get(row) or _reason(parsed.columns[row].as_py()) for row in invalid]
            reasons = pc.replace_with_mask(reasons, pc.invert(is_valid), pa.array(texts, pa.string()))
        kept = pa.table(records.select(SOURCE_COLUMNS)).take(others)
        whole = counted.take(others).append_column("reason", reasons.take(others))
        for name in SOURCE_COLUMNS:
            whole = whole.append_column(name, kept[name])
        rows.append(whole)
    table = pa.concat_tables(rows, promote_options="default")
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=_schema())


@cache
def _schema() -> "pa.Schema":
    """Returns the schema of `COLUMNS`."""
    import pyarrow as pa

    kinds = {
        "BIGINT": pa.int64(),
        "INT": pa.int32(),
        "STRING": pa.string(),
        "BINARY": pa.binary(),
        "TIMESTAMP": pa.timestamp("us", "UTC"),
    }
    return pa.schema([(name, kinds[kind]) for name, kind in (column.split() for column in COLUMNS.split(", "))])


def _numbers(records: "pa.RecordBatch", event: "pa.StructArray", is_valid: "pa.BooleanArray") -> "pa.Table":
    """Returns the numbers of each record. Invalid records have no minute."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ts = pc.if_else(is_valid, event.field("ts"), pa.scalar(None, pa.int64()))
    is_page = pc.and_(is_valid, pc.equal(records["topic"], schemas.DWD_PAGE))
    is_order = pc.and_(is_valid, pc.equal(records["topic"], schemas.DWD_ORDER))
    is_new = pc.fill_null(pc.equal(event.field("op"), "insert"), False)
    return pa.table(
        {
            "start_ms": pc.multiply(pc.divide(ts, MINUTE_MS), MINUTE_MS),
            "records": pa.repeat(pa.scalar(1, pa.int64()), len(records)),
            "page_views": is_page.cast(pa.int64()),
            "orders": pc.and_(is_order, is_new).cast(pa.int64()),
            "revenue": _revenue(records, event, is_valid),
            "mid": pc.if_else(is_page, event.field("mid"), pa.scalar(None, pa.string())),
        }
    )


def _revenue(records: "pa.RecordBatch", event: "pa.StructArray", is_valid: "pa.BooleanArray") -> "pa.Array":
    """Returns the amount of each record that is a payment which has just succeeded; otherwise 0."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_paid = pc.equal(event.field("payment_status"), schemas.PAID)
    is_payment = pc.and_(is_valid, pc.equal(records["topic"], schemas.DWD_PAYMENT))
    revenue = [0] * len(records)
    for row in pc.indices_nonzero(pc.fill_null(pc.and_(is_payment, is_paid), False)).to_pylist():
        payment = event[row].as_py()
        if payment["payment_amount"] is not None and _has_just_succeeded(payment):
            revenue[row] = int(payment["payment_amount"].scaleb(2))
    return pa.array(revenue, pa.int64())


def _has_just_succeeded(payment: Mapping[str, Any]) -> bool:
    if payment["op"] == "insert":
        return True
    before = [status for name, status in payment["old"] or () if name == "payment_status"]
    return payment["op"] == "update" and bool(before) and before[0] != schemas.PAID


def _minutes(counted: "pa.Table") -> "pa.Table":
    sums = counted.group_by("start_ms", use_threads=False).aggregate([(name, "sum") for name in NUMBERS])
    return sums.select(["start_ms", *(f"{name}_sum" for name in NUMBERS)]).rename_columns(["start_ms", *NUMBERS])


def _visitors(counted: "pa.Table") -> "pa.Table":
    import pyarrow as pa
    import pyarrow.compute as pc

    pages = counted.filter(pc.is_valid(counted["mid"])).select(["start_ms", "mid"])
    visitors = pages.group_by(["start_ms", "mid"], use_threads=False).aggregate([])
    for name in NUMBERS:
        visitors = visitors.append_column(name, pa.repeat(pa.scalar(0, pa.int64()), len(visitors)))
    return visitors


def _reason(event: Mapping[str, Any] | None) -> str | None:
    return NO_VALUE if event is None else common_reason(event)
