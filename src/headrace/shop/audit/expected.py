"""Spark's judgement of records of the ODS topics: the rows that they require in each output topic, and broken records.

The audit asks for it only about unclear records (see `verdicts`), because it takes a Spark session.

Uses only the formats and routes (`shop.schemas`, `shop.routes`) and no other code of the pipeline: an audit with shared
code would share its mistakes. The driver builds columns, and Spark's JVMs evaluate them.

A verdict on a record has these columns:

    topic, partition, offset, timestamp   the record's position and timestamp
    event_id                              null if the record is broken
    problem                               the reason why the record is broken, or null
    key                                   the key that its rows must have
    rows                                  array of (topic, rows): the rows that the outputs must contain
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from headrace.common.extras import requires_extra
from headrace.shop import schemas
from headrace.shop.audit.checks import Place, SecondJudge, UnclearRecord
from headrace.shop.audit.verdicts import Verdict
from headrace.shop.routes import Route

with requires_extra("spark"):
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIMES = {"timestampFormat": "yyyy-MM-dd HH:mm:ss[.SSSSSS][.SSS]", "timeZone": "UTC"}
"""The timestamp format of databases."""
_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": schemas.CORRUPT}
_ROWS = "array<struct<topic:string,rows:int>>"


_COLUMNS = "topic STRING, partition INT, offset BIGINT, key BINARY, value BINARY"


def spark_judge(routes: Mapping[str, Route], master: str, conf: Mapping[str, str] | None) -> SecondJudge:
    """Returns a judge that starts a Spark session, uses it, and stops it. A session that is already active is used, and
    keeps running."""

    def judge(records: Sequence[UnclearRecord]) -> Mapping[Place, Verdict]:
        from pyspark.sql import SparkSession

        from headrace.pipelines.sessions import quiet_session

        active = SparkSession.getActiveSession()
        spark = active or quiet_session("headrace audit", master, conf, processes_rows=False)
        try:
            return judge_on_spark(spark, records, routes)
        finally:
            if active is None:
                spark.stop()

    return judge


def judge_on_spark(
    spark: "SparkSession", records: Sequence[UnclearRecord], routes: Mapping[str, Route]
) -> dict[Place, Verdict]:
    """Returns the verdict on each record."""
    frame = spark.createDataFrame(list(records), _COLUMNS).withColumn("timestamp", sf.lit(0).cast("timestamp"))
    log, db = (frame.where(sf.col("topic") == topic) for topic in (schemas.ODS_LOG, schemas.ODS_DB))
    rows = log_verdicts(log).unionByName(db_verdicts(db, routes)).collect()
    return {
        (row["topic"], row["partition"], row["offset"]): Verdict(
            row["problem"],
            row["event_id"] or "",
            row["key"],
            tuple((each["topic"], each["rows"]) for each in row["rows"]),
        )
        for row in rows
    }


def log_verdicts(frame: DataFrame) -> DataFrame:
    """Returns the verdict on each record of `ods_log`."""
    event = sf.col("event")
    problem = (
        _problem(event)
        .when(_is_blank(event["common"]["mid"]), sf.lit("no mid"))
        .when(event["start"].isNull() & event["page"].isNull(), sf.lit("neither start nor page"))
    )
    counts = {
        schemas.DWD_START: sf.when(event["start"].isNotNull(), 1),
        schemas.DWD_PAGE: sf.when(event["page"].isNotNull(), 1),
        schemas.DWD_DISPLAY: sf.array_size(event["displays"]),
        schemas.DWD_ACTION: sf.array_size(event["actions"]),
        schemas.DWD_ERROR: sf.when(event["err"].isNotNull(), 1),
    }
    rows = sf.array(
        *(
            sf.struct(sf.lit(topic).alias("topic"), sf.coalesce(count, sf.lit(0)).cast("int").alias("rows"))
            for topic, count in counts.items()
        )
    )
    rows = sf.filter(rows, lambda row: row["rows"] > 0)
    return _verdicts(frame, schemas.LOG_EVENT, problem, rows, sf.trim(event["common"]["mid"]))


def db_verdicts(frame: DataFrame, routes: Mapping[str, Route]) -> DataFrame:
    """Returns the verdict on each record of `ods_db`."""
    event = sf.col("event")
    problem = (
        _problem(event)
        .when(_is_blank(event["table"]), sf.lit("no table"))
        .when(~sf.coalesce(event["type"], sf.lit("")).isin(*schemas.OPERATIONS), sf.lit("no such type"))
        .when(~sf.coalesce(event["data"], sf.lit("")).startswith("{"), sf.lit("no data"))
    )
    topic = sf.lit(None).cast("string")
    for table, route in routes.items():
        is_here = event["table"] == table
        topic = sf.when(is_here, sf.lit(route.topic)).otherwise(topic)
        if route.columns is not None:
            problem = problem.when(
                is_here & ~_fits(event["data"], route.columns), sf.lit("data does not fit its table")
            )
        else:
            problem = problem.when(is_here & ~_is_json(event["data"]), sf.lit("data is not a JSON object"))
    problem = problem.when(event["old"].startswith("{") & ~_is_json(event["old"]), sf.lit("old is not a JSON object"))
    one_row = sf.array(sf.struct(topic.alias("topic"), sf.lit(1).alias("rows")))
    return _verdicts(frame, schemas.DB_EVENT, problem, sf.when(topic.isNotNull(), one_row), sf.col("key"))


def _fits(row: Column, columns: str) -> Column:
    """Returns whether a table's row, as JSON, fits the table's columns."""
    parsed = sf.from_json(row, f"{columns}, {schemas.CORRUPT} STRING", {**_OPTIONS, **_TIMES})
    return parsed[schemas.CORRUPT].isNull()


def _is_json(text: Column) -> Column:
    """Returns whether a text is one JSON value: a value appended to it must become the second element of a list."""
    seconds = (
        sf.try_variant_get(sf.try_parse_json(sf.concat(sf.lit("["), text, sf.lit(f",{number}]"))), "$[1]", "int")
        == number
        for number in (1, 2)
    )
    return reduce(Column.__and__, (sf.coalesce(second, sf.lit(False)) for second in seconds))


def _verdicts(frame: DataFrame, schema: str, problem: Column, rows: Column, key: Column) -> DataFrame:
    text = sf.col("value").cast("string")
    parsed = frame.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        sf.col("key").cast("string").alias("key"),
        sf.coalesce(sf.ltrim(text).startswith("{") & sf.is_valid_utf8(text), sf.lit(False)).alias("is_object"),
        sf.from_json(text, schema, _OPTIONS).alias("event"),
    )
    verdicts = parsed.withColumn("problem", problem)
    is_valid = sf.col("problem").isNull()
    return verdicts.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        key.alias("key"),
        sf.when(is_valid, sf.col("event")["event_id"]).alias("event_id"),
        "problem",
        sf.coalesce(sf.when(is_valid, rows).cast(_ROWS), sf.array().cast(_ROWS)).alias("rows"),
    )


def _problem(event: Column) -> Column:
    """Returns the problems that any event can have."""
    in_time = event["ts"].between(schemas.EARLIEST_TS, schemas.LATEST_TS)
    return (
        sf.when(~sf.col("is_object"), sf.lit("not a JSON object"))
        .when(event.isNull() | event[schemas.CORRUPT].isNotNull(), sf.lit("does not fit the format"))
        .when(_is_blank(event["event_id"]), sf.lit("no event_id"))
        .when(~sf.coalesce(in_time, sf.lit(False)), sf.lit("no usable ts"))
    )


def _is_blank(column: Column) -> Column:
    return sf.coalesce(sf.trim(column), sf.lit("")) == ""
