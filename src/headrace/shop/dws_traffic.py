"""The pipeline `dws-traffic`: page views, visitors, orders and revenue of each minute. See docs/shop.md.

The tasks that read the records count them by the minute of their event (`traffic_counts`), and Spark adds up their
counts. The driver adds these to the stored minutes (`minute_store`) and writes the changed minutes again, with a higher
version. The newest version of a minute counts. So a minute appears within seconds and still includes late rows.
"""

from typing import TYPE_CHECKING, Any

from headrace.common.clock import SystemClock
from headrace.pipelines.pipeline import (
    DEAD_LETTERS,
    SOURCE_COLUMNS,
    Batch,
    Flow,
    Frames,
    Pipeline,
    PipelineError,
    Table,
    Topic,
)
from headrace.shop import schemas
from headrace.shop.flow_state import FlowStateCache
from headrace.shop.minute_store import MINUTE_MS, ChangedMinutes, Minute, MinuteStore
from headrace.shop.state_store import StateDirectory
from headrace.shop.traffic_counts import CLOCK_DIFFERENCE_MS, COLUMNS, NUMBERS, count_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRAFFIC = "dws_traffic"
SOURCE = "dwd"
SOURCES = (schemas.DWD_PAGE, schemas.DWD_ORDER, schemas.DWD_PAYMENT)
ROW = "minute TIMESTAMP, page_views BIGINT, visitors BIGINT, orders BIGINT, revenue DECIMAL(18,2), version BIGINT"
"""The columns of a minute, in the topic (as JSON) and in the table."""
SKETCH_BITS = 14
"""2^14 registers: the number of visitors has a standard error of 0.8 %, and is exact up to about a thousand."""


def latest(traffic: "DataFrame") -> "DataFrame":
    """Returns the newest version of each minute, with the columns of `ROW`. Accepts the table or the topic's
    records."""
    from pyspark.sql import functions as sf

    if "value" in traffic.columns:
        traffic = traffic.select(sf.from_json(sf.col("value").cast("string"), ROW).alias("row")).select("row.*")
    names = [field.split()[0] for field in ROW.split(", ")]
    newest = traffic.groupBy("minute").agg(sf.max_by(sf.struct(*names), "version").alias("row"))
    return newest.select("row.*").orderBy("minute")


def split_traffic(frame: "DataFrame", batch: Batch) -> Frames:
    """Processes a batch of rows that `count_records` returned."""
    from pyspark.sql import functions as sf

    minutes = _stores.get(batch, _create_store)
    horizon_ms = minutes.horizon_ms(batch.id)
    counted: list[Minute] = []
    records = invalid_rows = late_rows = 0
    for row in sum_by_minute(frame).toArrow().to_pylist():
        records += row["records"]
        if row["start_ms"] is None:
            invalid_rows += row["records"]
        elif row["start_ms"] < horizon_ms:
            late_rows += row["records"]
            if row["whole_records"] != row["records"]:
                raise PipelineError(
                    f"rows are late, but a worker did not expect that: its clock is more than "
                    f"{CLOCK_DIFFERENCE_MS // MINUTE_MS} minutes behind the driver's"
                )
        else:
            counted.append(Minute(row["start_ms"], row["page_views"], row["orders"], row["revenue"], row["visitors"]))
    changed = minutes.add(batch.id, counted)
    batch.figures.update(minutes=len(changed.minutes), too_late=late_rows)
    batch.records_read[SOURCE] = records
    frames = {TRAFFIC: minute_rows(changed, batch.spark)}
    if invalid_rows or late_rows:
        is_late = sf.col("start_ms") < horizon_ms
        late = sf.when(is_late, sf.lit(f"more than {batch.settings['lateness_minutes']:g} minutes late"))
        dead = frame.where(sf.col("topic").isNotNull()).withColumn("reason", sf.coalesce(sf.col("reason"), late))
        frames[DEAD_LETTERS] = dead.where(sf.col("reason").isNotNull()).select(*SOURCE_COLUMNS, "reason").coalesce(1)
    return frames


def sum_by_minute(frame: "DataFrame") -> "DataFrame":
    """Returns the numbers of each minute. Invalid records count under the minute null."""
    from pyspark.sql import functions as sf

    return frame.groupBy("start_ms").agg(
        *(sf.sum(name).alias(name) for name in NUMBERS),
        sf.count("topic").alias("whole_records"),
        sf.hll_sketch_agg("mid", sf.lit(SKETCH_BITS)).alias("visitors"),
    )


def minute_rows(changed: ChangedMinutes, spark: "SparkSession") -> "DataFrame":
    """Returns the rows to write, in one partition. Spark would create one per core, and a replay on another number of
    cores would have other tasks."""
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


def merge_sketches(spark: "SparkSession", pairs: list[tuple[bytes, bytes]]) -> list[bytes]:
    """Returns the union of each pair of sketches."""
    import pyarrow as pa
    from pyspark.sql import functions as sf

    columns: dict[str, Any] = {
        "number": pa.array(range(len(pairs)), pa.int64()),
        "one": pa.array([first for first, _ in pairs], pa.binary()),
        "other": pa.array([second for _, second in pairs], pa.binary()),
    }
    merged = spark.createDataFrame(pa.table(columns)).select("number", sf.hll_union("one", "other").alias("merged"))
    return [bytes(sketch) for sketch in merged.toArrow().sort_by("number")["merged"].to_pylist()]


def _create_store(batch: Batch) -> MinuteStore:
    lateness = float(batch.settings["lateness_minutes"])
    if lateness < 1:
        raise PipelineError(f"setting lateness_minutes={lateness:g}: expected at least 1 minute")
    files = StateDirectory(batch.spark, batch.state_dir)
    return MinuteStore(
        files, round(lateness * MINUTE_MS), SystemClock(), lambda pairs: merge_sketches(batch.spark, pairs)
    )


_stores: FlowStateCache[MinuteStore] = FlowStateCache()

dws_traffic = Pipeline.of(
    "dws-traffic",
    [
        Flow(
            "traffic",
            {SOURCE: Topic(",".join(SOURCES), parse=count_records, parsed_columns=COLUMNS)},
            split=split_traffic,
            ordered=False,
        )
    ],
    {TRAFFIC: [Topic(TRAFFIC, key="minute"), Table(TRAFFIC, time="minute")]},
    description="""\
    The shop's traffic, orders and revenue per minute.

    Counts the clean rows of ods-dwd by the minute of their event. Writes a minute whenever it changes, with a higher
    version each time; the newest version counts. Rows that arrive more than lateness_minutes late become dead letters.
    """,
    settings={"lateness_minutes": 1440.0},
)
