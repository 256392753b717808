"""The pipeline `dws-traffic`: page views, visitors, orders and revenue of each minute. See docs/shop.md.

Each batch counts its rows by the minute of their event; the driver adds that to what it knows of those minutes
(`minutes`) and writes them anew, with a higher version. So a minute is there within seconds, and late rows still find
their way into it: the newest version counts.
"""

from typing import TYPE_CHECKING, Any

from headrace.common.clock import SystemClock
from headrace.pipelines.pipeline import DEAD_LETTERS, Batch, Flow, Frames, Pipeline, PipelineError, Table, Topic
from headrace.shop import schemas
from headrace.shop.deduplication import KeptByFlow
from headrace.shop.minutes import MINUTE_MS, Changed, Minute, Minutes
from headrace.shop.reasons import in_common, refused
from headrace.shop.state_files import StateFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRAFFIC = "dws_traffic"
SOURCES = (schemas.DWD_PAGE, schemas.DWD_ORDER, schemas.DWD_PAYMENT)
ROW = "minute TIMESTAMP, page_views BIGINT, visitors BIGINT, orders BIGINT, revenue DECIMAL(18,2), version BIGINT"
"""What is written for a minute, to the topic (as JSON) and to the table."""
SKETCH_BITS = 14
"""2^14 registers: visitors are right within 0.8 % (one standard deviation), and exact up to about a thousand."""

_EVENT = (
    "event_id STRING, ts BIGINT, mid STRING, op STRING, payment_amount DECIMAL(16,2), payment_status STRING, "
    f"old MAP<STRING, STRING>, {schemas.CORRUPT} STRING"
)
_EXPECTED = {"ts": "a whole number", "payment_amount": "an amount", "old": "an object"}


def latest(traffic: "DataFrame") -> "DataFrame":
    """Each minute once, in its newest version, with the columns of `ROW`: of the table, or of the topic's records."""
    from pyspark.sql import functions as sf

    if "value" in traffic.columns:
        traffic = traffic.select(sf.from_json(sf.col("value").cast("string"), ROW).alias("row")).select("row.*")
    names = [field.split()[0] for field in ROW.split(", ")]
    newest = traffic.groupBy("minute").agg(sf.max_by(sf.struct(*names), "version").alias("row"))
    return newest.select("row.*").orderBy("minute")


def split_traffic(frame: "DataFrame", batch: Batch) -> Frames:
    """A batch of the DWD topics."""
    from pyspark.sql import functions as sf

    rows = parse_rows(frame)
    minutes = _minutes.of(batch, _make_minutes)
    horizon_ms = minutes.horizon_ms(batch.id)
    found: list[Minute] = []
    refused_rows = late_rows = 0
    for row in count_by_minute(rows).toArrow().to_pylist():
        if row["start_ms"] is None:
            refused_rows += row["records"]
        elif row["start_ms"] < horizon_ms:
            late_rows += row["records"]
        else:
            found.append(Minute(row["start_ms"], row["page_views"], row["orders"], row["revenue"], row["visitors"]))
    changed = minutes.add(batch.id, found)
    batch.figures.update(minutes=len(changed.minutes), too_late=late_rows)
    frames = {TRAFFIC: minute_rows(changed, batch.spark)}
    if refused_rows or late_rows:
        is_late = sf.col("start_ms") < horizon_ms
        late = sf.when(is_late, sf.lit(f"more than {batch.settings['lateness_minutes']:g} minutes late"))
        reason = sf.coalesce(sf.col("reason"), late)
        dead = rows.withColumn("reason", reason).where(sf.col("reason").isNotNull())
        frames[DEAD_LETTERS] = dead.drop("event", "start_ms").coalesce(1)
    return frames


def parse_rows(frame: "DataFrame") -> "DataFrame":
    """Rows of the DWD topics with `event`, `reason` (null if it can be used) and the `start_ms` of their minute."""
    from pyspark.sql import functions as sf

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": schemas.CORRUPT}
    parsed = frame.withColumn("event", sf.from_json(sf.col("value").cast("string"), _EVENT, options))
    event = sf.col("event")
    parsed = parsed.withColumn("reason", in_common(refused(event, _EXPECTED), event))
    start_ms = event["ts"] - event["ts"] % MINUTE_MS
    return parsed.withColumn("start_ms", sf.when(sf.col("reason").isNull(), start_ms))


def count_by_minute(rows: "DataFrame") -> "DataFrame":
    """The numbers of each minute in these rows; rows that cannot be used are counted under no minute."""
    from pyspark.sql import functions as sf

    event, topic = sf.col("event"), sf.col("topic")
    is_page, is_new_row = topic == schemas.DWD_PAGE, event["op"] == "insert"
    before = sf.coalesce(event["old"]["payment_status"], sf.lit(""))
    has_become = (event["op"] == "update") & sf.map_contains_key(event["old"], "payment_status")
    has_become &= before != schemas.PAID
    is_paid = (topic == schemas.DWD_PAYMENT) & (event["payment_status"] == schemas.PAID) & (is_new_row | has_become)
    hundredths = (event["payment_amount"] * 100).cast("long")
    return rows.groupBy("start_ms").agg(
        sf.count("*").alias("records"),
        sf.count_if(is_page).alias("page_views"),
        sf.count_if((topic == schemas.DWD_ORDER) & is_new_row).alias("orders"),
        sf.coalesce(sf.sum(sf.when(is_paid, hundredths)), sf.lit(0)).alias("revenue"),
        sf.hll_sketch_agg(sf.when(is_page, event["mid"]), sf.lit(SKETCH_BITS)).alias("visitors"),
    )


def minute_rows(changed: Changed, spark: "SparkSession") -> "DataFrame":
    """What is written for these minutes, in one partition: Spark would make one for each core, and a batch that is
    replayed on other cores would have other tasks."""
    import pyarrow as pa
    from pyspark.sql import functions as sf

    minutes = changed.minutes
    columns = {
        "start_ms": pa.array([minute.start_ms for minute in minutes], pa.int64()),
        "page_views": pa.array([minute.page_views for minute in minutes], pa.int64()),
        "sketch": pa.array([minute.visitors for minute in minutes], pa.binary()),
        "orders": pa.array([minute.orders for minute in minutes], pa.int64()),
        "revenue": pa.array([minute.revenue for minute in minutes], pa.int64()),
    }
    visitors = sf.coalesce(sf.hll_sketch_estimate("sketch"), sf.lit(0))
    return (
        spark.createDataFrame(pa.table(columns))
        .coalesce(1)
        .select(
            sf.timestamp_millis("start_ms").alias("minute"),
            "page_views",
            visitors.alias("visitors"),
            "orders",
            (sf.col("revenue").cast("decimal(18,0)") / 100).cast("decimal(18,2)").alias("revenue"),
            sf.lit(changed.version).cast("long").alias("version"),
        )
    )


def unite(spark: "SparkSession", pairs: list[tuple[bytes, bytes]]) -> list[bytes]:
    """The union of each pair of sketches."""
    import pyarrow as pa
    from pyspark.sql import functions as sf

    columns: dict[str, Any] = {
        "number": pa.array(range(len(pairs)), pa.int64()),
        "one": pa.array([one for one, _ in pairs], pa.binary()),
        "other": pa.array([other for _, other in pairs], pa.binary()),
    }
    united = spark.createDataFrame(pa.table(columns)).select("number", sf.hll_union("one", "other").alias("both"))
    found = united.toArrow().sort_by("number")
    return [bytes(sketch) for sketch in found["both"].to_pylist()]


def _make_minutes(batch: Batch) -> Minutes:
    lateness = float(batch.settings["lateness_minutes"])
    if lateness < 1:
        raise PipelineError(f"setting lateness_minutes={lateness:g}: expected at least 1")
    files = StateFiles(batch.spark, batch.state_dir)
    return Minutes(files, round(lateness * MINUTE_MS), SystemClock(), lambda pairs: unite(batch.spark, pairs))


_minutes: KeptByFlow[Minutes] = KeptByFlow()

dws_traffic = Pipeline.of(
    "dws-traffic",
    [Flow("traffic", {"dwd": Topic(",".join(SOURCES))}, split=split_traffic, ordered=False)],
    {TRAFFIC: [Topic(TRAFFIC, key="minute"), Table(TRAFFIC, time="minute")]},
    description="""\
    The shop's traffic, orders and revenue per minute.

    Counts the clean rows of ods-dwd by the minute in which they happened. A minute is written whenever it has changed,
    with a higher version each time: the newest counts. Rows that come more than lateness_minutes late are dead letters.
    """,
    settings={"lateness_minutes": 1440.0},
)
