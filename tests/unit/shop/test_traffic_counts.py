"""Counts of records by minute. tests/integration/shop compares them with SQL."""

import json
from typing import Any

import pyarrow as pa
from tests.support.shop.frames import TS

from headrace.shop.traffic_counts import CLOCK_DIFFERENCE_MS, count_records
from headrace.testing.clock import ManualClock

MINUTE_MS = 60_000


def records(topic: str, *values: Any) -> pa.RecordBatch:
    contents = [value if value is None or isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    count = len(contents)
    return pa.record_batch(
        {
            "key": pa.array([b"k"] * count, pa.binary()),
            "value": pa.array(contents, pa.binary()),
            "topic": pa.array([topic] * count, pa.string()),
            "partition": pa.array([1] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([TS * 1000] * count, pa.timestamp("us", "UTC")),
        }
    )


def view(mid: str | None, ts: int = TS) -> dict[str, Any]:
    return {"event_id": "e", "ts": ts, "mid": mid}


def count(batch: pa.RecordBatch, now_ms: int = TS, lateness: float = 10.0) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = count_records(
        batch, {"lateness_minutes": lateness}, ManualClock(time_ms=now_ms)
    ).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def test_a_row_per_minute_and_a_row_per_visitor() -> None:
    batch = records(
        "dwd_page", view("a"), view("b", TS + 1), view("a", TS + 59_999), view("a", TS + 60_000), view(None)
    )
    zero = {"records": 0, "page_views": 0, "orders": 0, "revenue": 0}
    assert count(batch) == [
        {"start_ms": TS, "records": 4, "page_views": 4, "orders": 0, "revenue": 0},
        {"start_ms": TS + 60_000, "records": 1, "page_views": 1, "orders": 0, "revenue": 0},
        {"start_ms": TS, "mid": "a", **zero},
        {"start_ms": TS, "mid": "b", **zero},
        {"start_ms": TS + 60_000, "mid": "a", **zero},
    ]


def test_orders_and_revenue() -> None:
    order = {"event_id": "o", "ts": TS}
    orders = count(records("dwd_order", *({**order, "op": op} for op in ("insert", "update", "insert", None))))
    assert [(row["records"], row["orders"]) for row in orders] == [(4, 2)]
    paid = {**order, "payment_status": "succeeded", "payment_amount": 12.345}
    batch = records(
        "dwd_payment",
        {**paid, "op": "insert"},
        {**paid, "op": "update", "old": {"payment_status": None}},
        {**paid, "op": "update", "old": {"payment_status": "succeeded"}},
        {**paid, "op": "update", "old": None},
        {**paid, "op": "insert", "payment_status": "failed"},
        {**paid, "op": "insert", "payment_amount": None},
    )
    assert [(row["records"], row["revenue"]) for row in count(batch)] == [(6, 2 * 1235)]


def test_records_that_may_be_late_stay_as_they_are() -> None:
    first_safe = TS - 10 * MINUTE_MS + CLOCK_DIFFERENCE_MS
    found = count(records("dwd_page", view("a", first_safe), view("b", first_safe - 1)))
    assert [row.get("offset") for row in found] == [None, None, 1]
    late = found[-1]
    assert (late["start_ms"], late["records"], late["page_views"], late["mid"]) == (first_safe - MINUTE_MS, 1, 1, "b")
    assert (late["topic"], late["partition"], late["key"]) == ("dwd_page", 1, b"k")
    assert "reason" not in late


def test_invalid_records_have_a_reason_and_no_minute() -> None:
    found = count(
        records("dwd_page", b"oops", view("a"), None, {"event_id": "e", "ts": 5}, {"event_id": "e", "ts": "x"})
    )
    assert [(row["offset"], row["reason"], row["records"]) for row in found if "reason" in row] == [
        (0, "not JSON", 1),
        (2, "no value", 1),
        (3, "ts 5 is out of range: expected milliseconds since 1970", 1),
        (4, "ts is not a whole number", 1),
    ]
    assert all("start_ms" not in row for row in found if "reason" in row)


def test_no_records() -> None:
    assert count(records("dwd_page")) == []
