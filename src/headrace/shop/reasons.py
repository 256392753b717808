"""Why a record cannot be used: expressions that answer with a sentence, or null. Driver only: makes expressions.

What is asked of every record is cheap: comparisons with null. What finds out more is asked only about records that
Spark's parser has refused already.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.shop.schemas import CORRUPT, EARLIEST_TS, LATEST_TS

if TYPE_CHECKING:
    from pyspark.sql import Column


def blank(column: "Column") -> "Column":
    from pyspark.sql import functions as sf

    return column.isNull() | (sf.trim(column) == "")


def is_one_value(text: "Column") -> "Column":
    """Whether a text is JSON of one value, and nothing after it. Spark's parsers take what comes first and leave the
    rest: here it must be followed by a number that nobody could have put there."""
    from pyspark.sql import functions as sf

    check = sf.xxhash64(text)
    with_check = sf.try_parse_json(sf.concat(sf.lit("["), text, sf.lit(","), check.cast("string"), sf.lit("]")))
    return sf.coalesce(sf.try_variant_get(with_check, "$[1]", "bigint") == check, sf.lit(False))


def refused(event: "Column", expected: Mapping[str, str]) -> "Column":
    """The beginning of a chain of reasons: records that the parser refused. `expected`: type of fields that are not
    text, by their path (`page.during_time`)."""
    from pyspark.sql import functions as sf

    value = sf.col("value")
    text = value.cast("string")
    return (
        sf.when(value.isNull(), sf.lit("no value"))
        .when(event.isNull() | event[CORRUPT].isNotNull(), _why_refused(text, event, expected))
        .when(~sf.is_valid_utf8(text), sf.lit("not UTF-8 text"))
    )


def in_common(reason: "Column", event: "Column") -> "Column":
    """What every event must have."""
    from pyspark.sql import functions as sf

    ts = event["ts"]
    return (
        reason.when(blank(event["event_id"]), sf.lit("no event_id"))
        .when(ts.isNull(), sf.lit("no ts"))
        .when(
            ~ts.between(EARLIEST_TS, LATEST_TS),
            sf.concat(sf.lit("ts "), ts.cast("string"), sf.lit(" is out of range: expected milliseconds since 1970")),
        )
    )


def _why_refused(text: "Column", event: "Column", expected: Mapping[str, str]) -> "Column":
    from pyspark.sql import functions as sf

    misfits = [
        sf.when(
            sf.get_json_object(text, f"$.{path}").isNotNull() & field(event, path).isNull(),
            sf.lit(f"{path} is not {kind}"),
        )
        for path, kind in expected.items()
    ]
    return (
        sf.when(~sf.is_valid_utf8(text), sf.lit("not UTF-8 text"))
        .when(sf.trim(text) == "", sf.lit("empty value"))
        .when(sf.try_parse_json(text).isNull(), sf.lit("not JSON"))
        .when(~sf.ltrim(text).startswith("{"), sf.lit("not a JSON object"))
        .otherwise(sf.coalesce(*misfits, sf.lit("a field has a wrong type")))
    )


def field(event: "Column", path: str) -> "Column":
    for name in path.split("."):
        event = event[name]
    return event
