"""What the records of the ODS topics ask for: which rows have to be in which topics, and what is broken.

Written apart from the pipelines, from the description of the formats (`shop.schemas`) alone: an audit that used the
code that it judges would share its mistakes. Makes columns in the driver; the work is done in Spark's JVMs.

A record's verdict has the columns

    topic, partition, offset, timestamp, key   where it is, and what is known of it
    event_id                                   null if it is broken
    problem                                    what is broken, or null
    rows                                       array of (topic, rows): what has to be in the outputs
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from headrace.pipelines.shop import schemas

_LOG = (
    "event_id STRING, ts BIGINT, common STRUCT<mid: STRING>, start STRING, page STRING, "
    "displays ARRAY<STRING>, actions ARRAY<STRING>, err STRING, _bad STRING"
)
_DB = "event_id STRING, ts BIGINT, `table` STRING, type STRING, data STRING, _bad STRING"
_ROWS = "array<struct<topic:string,rows:int>>"


def judge_log(frame: DataFrame) -> DataFrame:
    """The verdict on each record of `ods_log`."""
    event = sf.col("event")
    problem = (
        _problem(event)
        .when(_is_blank(event["common"]["mid"]), sf.lit("no mid"))
        .when(event["start"].isNull() & event["page"].isNull(), sf.lit("neither start nor page"))
    )
    counts = {
        schemas.DWD_START: sf.when(event["start"].isNotNull(), 1),
        schemas.DWD_PAGE: sf.when(event["page"].isNotNull(), 1),
        schemas.DWD_DISPLAY: sf.size(event["displays"]),
        schemas.DWD_ACTION: sf.size(event["actions"]),
        schemas.DWD_ERROR: sf.when(event["err"].isNotNull(), 1),
    }
    rows = sf.array(
        *(
            sf.struct(sf.lit(topic).alias("topic"), sf.coalesce(count, sf.lit(0)).cast("int").alias("rows"))
            for topic, count in counts.items()
        )
    )
    return _verdicts(frame, _LOG, problem, sf.filter(rows, lambda each: each["rows"] > 0))


def judge_db(frame: DataFrame, routes: Mapping[str, str]) -> DataFrame:
    """The verdict on each record of `ods_db`; `routes` names the topic of each table that has one."""
    event = sf.col("event")
    problem = (
        _problem(event)
        .when(_is_blank(event["table"]), sf.lit("no table"))
        .when(~sf.coalesce(event["type"], sf.lit("")).isin(*schemas.OPERATIONS), sf.lit("no such type"))
        .when(~sf.coalesce(event["data"], sf.lit("")).startswith("{"), sf.lit("no data"))
    )
    topics = sf.create_map(*(sf.lit(each) for route in routes.items() for each in route))
    topic = topics[event["table"]]
    one = sf.array(sf.struct(topic.alias("topic"), sf.lit(1).alias("rows")))
    return _verdicts(frame, _DB, problem, sf.when(topic.isNotNull(), one))


def _verdicts(frame: DataFrame, schema: str, problem: Column, rows: Column) -> DataFrame:
    text = sf.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_bad"}
    parsed = frame.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        sf.col("key").cast("string").alias("key"),
        sf.coalesce(sf.ltrim(text).startswith("{") & sf.is_valid_utf8(text), sf.lit(False)).alias("is_object"),
        sf.from_json(text, schema, options).alias("event"),
    )
    judged = parsed.withColumn("problem", problem)
    sound = sf.col("problem").isNull()
    return judged.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        sf.when(sound, sf.col("event")["event_id"]).alias("event_id"),
        "problem",
        sf.coalesce(sf.when(sound, rows).cast(_ROWS), sf.array().cast(_ROWS)).alias("rows"),
    )


def _problem(event: Column) -> Column:
    """What can be wrong with any event."""
    in_time = event["ts"].between(schemas.EARLIEST_TS, schemas.LATEST_TS)
    return (
        sf.when(~sf.col("is_object"), sf.lit("no JSON object"))
        .when(event.isNull() | event["_bad"].isNotNull(), sf.lit("does not fit the format"))
        .when(_is_blank(event["event_id"]), sf.lit("no event_id"))
        .when(~sf.coalesce(in_time, sf.lit(False)), sf.lit("no usable ts"))
    )


def _is_blank(column: Column) -> Column:
    return sf.coalesce(sf.trim(column), sf.lit("")) == ""
