"""The counts of `dws-traffic` in Spark SQL: the reference for `traffic_counts`."""

from typing import Any

from pyspark.sql import functions as sf
from tests.support.shop.sql.reasons import check_common_fields, parse_failure

from headrace.shop import schemas
from headrace.shop.dws_traffic import SKETCH_BITS
from headrace.shop.minute_store import MINUTE_MS

_EVENT = (
    "event_id STRING, ts BIGINT, mid STRING, op STRING, payment_amount DECIMAL(16,2), payment_status STRING, "
    f"old MAP<STRING, STRING>, {schemas.CORRUPT} STRING"
)
_EXPECTED = {"ts": "a whole number", "payment_amount": "an amount", "old": "an object"}


def parse_rows(frame: Any) -> Any:
    """Adds `event`, `reason` (null if the row is valid) and `start_ms` (of its minute) to rows of the DWD topics."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": schemas.CORRUPT}
    parsed = frame.withColumn("event", sf.from_json(sf.col("value").cast("string"), _EVENT, options))
    event = sf.col("event")
    parsed = parsed.withColumn("reason", check_common_fields(parse_failure(event, _EXPECTED), event))
    start_ms = event["ts"] - event["ts"] % MINUTE_MS
    return parsed.withColumn("start_ms", sf.when(sf.col("reason").isNull(), start_ms))


def count_by_minute(rows: Any) -> Any:
    """Returns the numbers of each minute in these rows. Invalid rows count under the minute null."""
    event, topic = sf.col("event"), sf.col("topic")
    is_page, is_new_row = topic == schemas.DWD_PAGE, event["op"] == "insert"
    old_status = sf.coalesce(event["old"]["payment_status"], sf.lit(""))
    becomes_paid = (event["op"] == "update") & sf.map_contains_key(event["old"], "payment_status")
    becomes_paid &= old_status != schemas.PAID
    is_paid = (topic == schemas.DWD_PAYMENT) & (event["payment_status"] == schemas.PAID) & (is_new_row | becomes_paid)
    hundredths = (event["payment_amount"] * 100).cast("long")
    return rows.groupBy("start_ms").agg(
        sf.count("*").alias("records"),
        sf.count_if(is_page).alias("page_views"),
        sf.count_if((topic == schemas.DWD_ORDER) & is_new_row).alias("orders"),
        sf.coalesce(sf.sum(sf.when(is_paid, hundredths)), sf.lit(0)).alias("revenue"),
        sf.hll_sketch_agg(sf.when(is_page, event["mid"]), sf.lit(SKETCH_BITS)).alias("visitors"),
    )
