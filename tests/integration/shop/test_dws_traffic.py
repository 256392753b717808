"""`dws-traffic`: sums per minute, late rows, and outputs; on plain frames and between topics."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as sf
from tests.support.shop.frames import TS, Run, reasons, run_to_the_end, source_frame
from tests.support.shop.sql.traffic import count_by_minute, parse_rows
from tests.support.spark.topic_rows import put, values

from headrace.pipelines import PipelineError, RunSettings
from headrace.shop.dws_traffic import SOURCES, dws_traffic, latest, minute_rows, sum_by_minute
from headrace.shop.minute_store import ChangedMinutes, Minute
from headrace.testing import EmbeddedBroker

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE_MS = 60_000


def view(mid: str, minute: float = 0) -> tuple[str, str, Any]:
    return "dwd_page", mid, {"event_id": f"{mid}-{minute}", "ts": TS + int(minute * MINUTE_MS), "mid": mid}


def order(number: int, minute: float = 0, op: str = "insert") -> tuple[str, str, Any]:
    row = {"event_id": f"o{number}", "ts": TS + int(minute * MINUTE_MS), "op": op, "id": number, "total_amount": 9.99}
    return "dwd_order", f"order_info:{number}", row


def payment(number: int, amount: float, minute: float = 0, status: str = "succeeded") -> tuple[str, str, Any]:
    row = {"event_id": f"p{number}", "ts": TS + int(minute * MINUTE_MS), "op": "insert", "payment_amount": amount}
    return "dwd_payment", f"payment_info:{number}", {**row, "payment_status": status}


def frame(spark: Any, *rows: tuple[str, str, Any]) -> Any:
    """Returns rows of several topics; each topic has its own offsets."""
    frames = [
        source_frame(spark, topic, [(key, value) for to, key, value in rows if to == topic])
        for topic in dict.fromkeys(topic for topic, _, _ in rows)
    ]
    whole = frames[0]
    for other in frames[1:]:
        whole = whole.unionByName(other)
    return whole


def minutes(found: dict[str, list[dict[str, Any]]]) -> dict[int, tuple[Any, ...]]:
    """Returns page views, visitors, orders and revenue by minute of the day."""
    return {
        int((row["minute"].replace(tzinfo=UTC) - MIDNIGHT) / timedelta(minutes=1)): (
            row["page_views"],
            row["visitors"],
            row["orders"],
            row["revenue"],
        )
        for row in found["dws_traffic"]
    }


def test_adds_up_minutes_over_batches(spark: Any, tmp_path: Path) -> None:
    run = Run(spark, dws_traffic, "traffic", tmp_path)
    first = frame(
        spark,
        view("a"),
        view("a", 0.5),
        view("b", 0.99),
        view("b", 1),
        order(1),
        order(1, 0.5, "update"),
        payment(1, 12.25),
        payment(2, 99, status="failed"),
    )
    assert minutes(run.batch(first)) == {0: (3, 2, 1, Decimal("12.25")), 1: (1, 1, 0, Decimal("0.00"))}
    second = frame(spark, view("a", 0.2), view("c", 0.3), payment(3, 0.8, 0.9), order(2, 2))
    found = run.batch(second)
    assert minutes(found) == {0: (5, 3, 1, Decimal("13.05")), 2: (0, 0, 1, Decimal("0.00"))}
    assert run.batch(second, batch_id=1) == found, "replayed"
    assert len({row["version"] for row in found["dws_traffic"]}) == 1


def test_payments_count_when_they_succeed(spark: Any, tmp_path: Path) -> None:
    def update(number: int, amount: float, minute: float, status: str, old: Any) -> tuple[str, str, Any]:
        topic, key, row = payment(number, amount, minute, status)
        return topic, key, {**row, "event_id": f"u{number}-{minute}", "op": "update", "old": old}

    rows = frame(
        spark,
        payment(1, 5, 0, "pending"),
        update(1, 5, 1, "succeeded", {"payment_status": "pending", "callback_time": None}),
        update(1, 5, 2, "succeeded", {"payment_type": "card", "callback_time": "2026-01-01 00:00:00"}),
        update(2, 7, 2, "succeeded", {"payment_status": None}),
        update(3, 9, 2, "succeeded", {"payment_status": "succeeded"}),
        update(4, 11, 2, "failed", {"payment_status": "pending"}),
        update(5, 13, 2, "succeeded", None),
    )
    found = Run(spark, dws_traffic, "traffic", tmp_path).batch(rows)
    assert {minute: numbers[3] for minute, numbers in minutes(found).items()} == {0: 0, 1: 5, 2: 7}


STRANGE: list[Any] = [
    *(
        None,
        b"",
        b" ",
        b"{",
        b"[]",
        b"7",
        b"\xff",
        b'{"event_id":"e"}',
        b'{"ts":5,"event_id":"e"}',
        {"event_id": " ", "ts": TS},
    ),
    *(
        {"event_id": "e", "ts": "x"},
        {"event_id": "e", "ts": TS, "payment_amount": "x"},
        {"event_id": "e", "ts": TS, "old": 7},
    ),
    *({"event_id": 5, "ts": TS, "mid": 7}, {"event_id": "e", "ts": 1 << 62}, {"event_id": "e", "ts": TS, "mid": None}),
    *(
        {"event_id": "e", "ts": TS, "op": op, "payment_amount": amount, "payment_status": status, "old": old}
        for op in ("insert", "update", None)
        for amount, status in ((1.5, "succeeded"), ("1,234.567", "succeeded"), (None, "succeeded"), (1, "failed"))
        for old in (None, {}, {"payment_status": "pending"}, {"payment_status": None}, {"payment_status": 5, "n": [1]})
    ),
    b'{"event_id":"e","ts":1767225600000,"op":"update","payment_amount":1e2,"payment_status":"succeeded",'
    b'"old":{"payment_status":"succeeded","payment_status":"x"}}',
    b"{'event_id':'e','ts':1767225600000,'mid':'q'} text",
]


@pytest.mark.parametrize("lateness", [1.0, 100_000_000.0])
def test_counts_and_reasons_are_those_of_sql(spark: Any, tmp_path: Path, lateness: float) -> None:
    """With records as they are, and with records counted by minute."""
    rows = [(topic, f"k{number}", value) for topic in SOURCES for number, value in enumerate(STRANGE)]
    rows += [view(f"m{number % 7}", number / 10) for number in range(100)]
    records = frame(spark, *rows)
    expected = parse_rows(records)
    run = Run(spark, dws_traffic, "traffic", tmp_path, lateness_minutes=lateness)
    parsed = run.parsed(records)
    estimate = sf.hll_sketch_estimate("visitors").alias("visitors")
    numbers = ("start_ms", "records", "page_views", "orders", "revenue", estimate)
    has_minute = sf.col("start_ms").isNotNull()
    found = sum_by_minute(parsed).where(has_minute).select(*numbers).orderBy("start_ms").collect()
    assert found == count_by_minute(expected).where(has_minute).select(*numbers).orderBy("start_ms").collect()
    assert len(found) == 10
    names = ("topic", "partition", "offset", "key", "value", "timestamp", "reason")
    invalid = parsed.where("reason IS NOT NULL").select(*names).orderBy("topic", "offset").collect()
    assert invalid == expected.where("reason IS NOT NULL").select(*names).orderBy("topic", "offset").collect()
    assert len(invalid) > 30
    whole = parsed.where("topic IS NOT NULL").count()
    assert whole == (len(rows) if lateness == 1 else len(invalid))


def test_late_and_invalid_rows_become_dead_letters(spark: Any, tmp_path: Path) -> None:
    run = Run(spark, dws_traffic, "traffic", tmp_path, lateness_minutes=10.0)
    run.batch(frame(spark, view("a", 30)))
    found = run.batch(
        frame(spark, view("b", 20), view("c", 19.9), ("dwd_page", "x", b"{"), ("dwd_page", "y", {"event_id": "y"}))
    )
    assert minutes(found) == {20: (1, 1, 0, Decimal("0.00"))}
    assert reasons(found) == {1: "more than 10 minutes late", 2: "not JSON", 3: "no ts"}
    assert run.figures == {"minutes": 1, "too_late": 1}


def test_estimates_visitors_of_a_busy_minute(spark: Any, tmp_path: Path) -> None:
    run = Run(spark, dws_traffic, "traffic", tmp_path)
    for half in range(2):
        found = run.batch(frame(spark, *(view(f"m{number}") for number in range(half * 2000, half * 2000 + 4000))))
    ((views, visitors, _, _),) = minutes(found).values()
    assert views == 8000
    assert abs(visitors - 6000) < 300


def test_minutes_have_one_partition_on_any_number_of_cores(spark: Any) -> None:
    """Tasks write in transactions, so a replayed batch must have the same tasks."""
    many = ChangedMinutes([Minute(TS + number * MINUTE_MS, page_views=1) for number in range(5)], version=1)
    assert spark.sparkContext.defaultParallelism > 1
    for changed in (many, ChangedMinutes([], version=1)):
        rows = minute_rows(changed, spark)
        assert rows.rdd.getNumPartitions() <= 1
        assert rows.count() == len(changed.minutes)


def test_rejects_invalid_settings(spark: Any, tmp_path: Path) -> None:
    Run(spark, dws_traffic, "traffic", tmp_path).batch(frame(spark, view("a")))  # its state must not be reused below
    with pytest.raises(PipelineError, match="lateness_minutes=0: expected at least 1"):
        Run(spark, dws_traffic, "traffic", tmp_path, lateness_minutes=0.0).batch(frame(spark, view("a")))


@pytest.fixture
def shop() -> Iterator[EmbeddedBroker]:
    """A separate broker, because the names of the shop's topics are fixed."""
    with EmbeddedBroker() as broker:
        for topic in SOURCES:
            broker.create_topic(topic, 2)
        yield broker


def test_writes_topic_and_table(spark: Any, shop: EmbeddedBroker, tmp_path: Path) -> None:
    servers = shop.bootstrap_servers
    how = RunSettings(servers, str(tmp_path / "checkpoint"), warehouse=str(tmp_path / "tables"), available_now=True)
    put_rows(servers, view("a"), view("b"), order(1), payment(1, 5), view("z", 1))
    run_to_the_end(dws_traffic, spark, how)
    put_rows(servers, view("c", 0.5), payment(2, 7.5))
    run_to_the_end(dws_traffic, spark, how)
    expected = [(3, 3, 1, Decimal("12.50")), (1, 1, 0, Decimal("0.00"))]
    topic = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
    topic = latest(topic.option("subscribe", "dws_traffic").load())
    table = latest(spark.read.parquet(f"{how.warehouse}/dws_traffic"))
    for traffic in (topic, table):
        rows = traffic.collect()
        assert [(row.page_views, row.visitors, row.orders, row.revenue) for row in rows] == expected
    written = values(servers, "dws_traffic")
    assert len(written) == 3, "two minutes, one of them in two versions"
    assert set(written[0]) == {"minute", "page_views", "visitors", "orders", "revenue", "version"}


def put_rows(servers: str, *rows: tuple[str, str, Any]) -> None:
    for topic, key, value in rows:
        put(servers, topic, [(key, json.dumps(value).encode())])
