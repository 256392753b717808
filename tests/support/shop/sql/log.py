"""Parses `ods_log` (events of the shop's app) and builds one row per item. Driver only: builds column expressions,
which Spark's JVMs evaluate.

A row's value is assembled from pieces of JSON that are each built once: the fields that all rows of an event share, the
item's own fields, and the item's origin. All pieces are binary: Spark slices strings by counting characters, but slices
binary values directly.
"""

from typing import TYPE_CHECKING

from tests.support.shop.sql.column_cache import cached_column
from tests.support.shop.sql.deduplication import MARK, offset_of_position, parsed_frame, partition_of_position
from tests.support.shop.sql.event_history import KNOWN_DEVICE
from tests.support.shop.sql.reasons import check_common_fields, is_blank, parse_failure

from headrace.pipelines.pipeline import AT, SEQ
from headrace.shop import schemas

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DAY_MS = 86_400_000
_EXPECTED = {
    "ts": "a whole number",
    "common": "an object",
    "start": "an object",
    "start.loading_time": "a whole number",
    "start.open_ad_id": "a whole number",
    "start.open_ad_ms": "a whole number",
    "start.open_ad_skip_ms": "a whole number",
    "page": "an object",
    "page.during_time": "a whole number",
    "displays": "a list of displays",
    "actions": "a list of actions",
    "err": "an object",
    "err.error_code": "a whole number",
}


def parse_log(frame: "DataFrame") -> "DataFrame":
    """Returns the parsed frame (see `deduplication`) of `ods_log`."""
    return parsed_frame(frame.withColumn("event", _event()), _reason())


@cached_column
def _event() -> "Column":
    from pyspark.sql import functions as sf

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": schemas.CORRUPT}
    return sf.from_json(sf.col("value").cast("string"), schemas.LOG_EVENT, options)


@cached_column
def _reason() -> "Column":
    from pyspark.sql import functions as sf

    event = sf.col("event")
    reason = check_common_fields(parse_failure(event, _EXPECTED), event)
    return (
        reason.when(event["common"].isNull(), sf.lit("no common"))
        .when(is_blank(event["common"]["mid"]), sf.lit("no mid"))
        .when(event["start"].isNull() & event["page"].isNull(), sf.lit("neither start nor page"))
    )


@cached_column
def device_columns() -> list["Column"]:
    """Returns the columns for the event history: device, day, and whether the device claims to be new."""
    from pyspark.sql import functions as sf

    return [
        sf.xxhash64(sf.trim("event.common.mid")).alias("device"),
        sf.floor(sf.col("event.ts") / DAY_MS).cast("long").alias("day"),
        claims_to_be_new().cast("long").alias("new_flag"),
    ]


@cached_column
def rows_by_topic() -> dict[str, "Column"]:
    """Returns how many rows an event produces, by topic."""
    from pyspark.sql import functions as sf

    event = sf.col("event")
    counts = [
        event["start"].isNotNull(),
        event["page"].isNotNull(),
        _size(event["displays"]),
        _size(event["actions"]),
        event["err"].isNotNull(),
    ]
    return dict(zip(schemas.LOG_TOPICS, counts, strict=True))


def _size(array: "Column") -> "Column":
    from pyspark.sql import functions as sf

    return sf.coalesce(sf.array_size(array), sf.lit(0))


def claims_to_be_new() -> "Column":
    from pyspark.sql import functions as sf

    return sf.coalesce(sf.lower(sf.trim("event.common.is_new")).isin("1", "true"), sf.lit(False))


def log_rows(events: "DataFrame") -> "DataFrame":
    """Returns the rows of valid events: topic, key, value, `_at`, `_seq`."""
    for columns in _steps():
        events = events.select(*columns)
    return events


@cached_column
def _steps() -> list[list["Column | str"]]:
    """Returns the columns of successive selects. An expression that a later select uses more than once becomes a column
    first. Otherwise Spark would evaluate it every time."""
    from pyspark.sql import functions as sf

    event = sf.col("event")
    counted: list[Column | str] = [
        AT,
        event,
        sf.trim("event.common.mid").cast("binary").alias("key"),
        _shared().cast("binary").alias("shared"),
        _page_id().cast("binary").alias("page_id"),
        _tail().alias("tail"),
        event["start"].isNotNull().cast("int").alias("starts"),
        (event["start"].isNotNull().cast("int") + event["page"].isNotNull().cast("int")).alias("first_display"),
        _size(event["displays"]).alias("displays"),
        _size(event["actions"]).alias("actions"),
        event["err"].isNotNull().cast("int").alias("errors"),
    ]
    placed: list[Column | str] = [
        AT,
        "event",
        "key",
        sf.substring("shared", sf.lit(1), sf.length("shared") - 1).alias("shared"),
        _more_members(sf.col("page_id")).alias("page_id"),
        "tail",
        "starts",
        "first_display",
        (sf.col("first_display") + sf.col("displays")).alias("first_action"),
        (sf.col("first_display") + sf.col("displays") + sf.col("actions")).alias("first_error"),
        "errors",
    ]
    places = sf.sequence(sf.lit(0), sf.col("first_error") + sf.col("errors") - 1)
    items: list[Column | str] = ["*", sf.explode(places).alias(SEQ)]
    written: list[Column | str] = ["*", _own().cast("binary").alias("own")]
    return [counted, placed, items, written, [_topic().alias("topic"), "key", _value().alias("value"), AT, SEQ]]


def _by_kind(start: "Column", page: "Column", display: "Column", action: "Column", error: "Column") -> "Column":
    """Chooses by the kind of the row's item. The items of an event are numbered kind by kind."""
    from pyspark.sql import functions as sf

    seq = sf.col(SEQ)
    return (
        sf.when((seq >= sf.col("first_display")) & (seq < sf.col("first_action")), display)
        .when(seq < sf.col("starts"), start)
        .when(seq < sf.col("first_display"), page)
        .when(seq < sf.col("first_error"), action)
        .otherwise(error)
    )


def _topic() -> "Column":
    from pyspark.sql import functions as sf

    return _by_kind(*(sf.lit(topic) for topic in schemas.LOG_TOPICS))


def _own() -> "Column":
    """Returns the item's own fields as a JSON object."""
    from pyspark.sql import functions as sf

    event = sf.col("event")
    action = sf.get(event["actions"], sf.col(SEQ) - sf.col("first_action"))
    return _by_kind(
        start=sf.to_json(sf.struct(*_clean(event["start"], schemas.START))),
        page=sf.to_json(sf.struct(*_clean(event["page"], schemas.PAGE))),
        display=sf.to_json(sf.get(event["displays"], sf.col(SEQ) - sf.col("first_display"))),
        action=sf.to_json(
            sf.struct(
                *(action[name].alias(name) for name in ("action_id", "item", "item_type")),
                action["ts"].alias("action_ts"),
            )
        ),
        error=sf.to_json(sf.struct(event["start"]["entry"].alias("entry"), *_clean(event["err"], schemas.ERROR))),
    )


def _value() -> "Column":
    from pyspark.sql import functions as sf

    nothing, page_id = sf.lit(b""), sf.col("page_id")
    by_page = sf.when(sf.col(SEQ) >= sf.col("first_display"), page_id).otherwise(nothing)
    seq = _by_kind(nothing, nothing, _seq_after("first_display"), _seq_after("first_action"), nothing)
    return sf.concat("shared", by_page, _more_members(sf.col("own")), seq, "tail")


def _shared() -> "Column":
    """Returns the fields that all rows of an event share."""
    from pyspark.sql import functions as sf

    event = sf.col("event")
    is_new = claims_to_be_new() & ~sf.coalesce(sf.col(MARK) == KNOWN_DEVICE, sf.lit(False))
    common = (_clean_text(event["common"][name]).alias(name) for name in schemas.COMMON_FIELDS)
    return sf.to_json(sf.struct(event["event_id"], event["ts"], *common, is_new.alias("is_new")))


def _clean(struct: "Column", schema: str) -> list["Column"]:
    """Trims text. Replaces empty text, negative durations and negative numbers by null."""
    from pyspark.sql import functions as sf

    columns = []
    for name, kind in (member.split() for member in schema.split(",")):
        column = struct[name]
        cleaned = _clean_text(column) if kind == "STRING" else sf.when(column >= 0, column)
        columns.append(cleaned.alias(name))
    return columns


def _clean_text(column: "Column") -> "Column":
    from pyspark.sql import functions as sf

    return sf.nullif(sf.trim(column), sf.lit(""))


def _more_members(json: "Column") -> "Column":
    """Returns a comma and the members of a JSON object, or nothing for an empty object or null."""
    from pyspark.sql import functions as sf

    inner = sf.substring(json, sf.lit(2), sf.length(json) - 2)
    return sf.when(sf.length(json) > 2, sf.concat(sf.lit(b","), inner)).otherwise(sf.lit(b""))


def _page_id() -> "Column":
    from pyspark.sql import functions as sf

    return sf.to_json(sf.struct(_clean_text(sf.col("event.page.page_id")).alias("page_id")))


def _seq_after(first: str) -> "Column":
    from pyspark.sql import functions as sf

    return sf.concat(sf.lit(b',"seq":'), (sf.col(SEQ) - sf.col(first)).cast("string").cast("binary"))


def _tail() -> "Column":
    """Returns the origin of the row and the end of its JSON object."""
    from pyspark.sql import functions as sf

    partition, offset = (
        number.cast("string").cast("binary") for number in (partition_of_position(), offset_of_position())
    )
    return sf.concat(sf.lit(b',"src":{"p":'), partition, sf.lit(b',"o":'), offset, sf.lit(b"}}"))
