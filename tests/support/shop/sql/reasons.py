"""Column expressions that return why a record is invalid, or null. Driver only: builds expressions.

Every record is checked by cheap comparisons with null. Costly checks run only for records that Spark's parser
rejected.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.shop.schemas import CORRUPT, EARLIEST_TS, LATEST_TS

if TYPE_CHECKING:
    from pyspark.sql import Column


def is_blank(column: "Column") -> "Column":
    from pyspark.sql import functions as sf

    return column.isNull() | (sf.trim(column) == "")


def parse_failure(event: "Column", expected: Mapping[str, str]) -> "Column":
    """Starts a chain of reasons with the reasons for records that the parser rejected.

    `expected`: the types of fields that are not text, by path (`page.during_time`).
    """
    from pyspark.sql import functions as sf

    value = sf.col("value")
    text = value.cast("string")
    return (
        sf.when(value.isNull(), sf.lit("no value"))
        .when(event.isNull() | event[CORRUPT].isNotNull(), _mismatch(text, event, expected))
        .when(~sf.is_valid_utf8(text), sf.lit("not UTF-8 text"))
    )


def check_common_fields(reason: "Column", event: "Column") -> "Column":
    """Appends the checks that apply to all events."""
    from pyspark.sql import functions as sf

    ts = event["ts"]
    return (
        reason.when(is_blank(event["event_id"]), sf.lit("no event_id"))
        .when(ts.isNull(), sf.lit("no ts"))
        .when(
            ~ts.between(EARLIEST_TS, LATEST_TS),
            sf.concat(sf.lit("ts "), ts.cast("string"), sf.lit(" is out of range: expected milliseconds since 1970")),
        )
    )


def _mismatch(text: "Column", event: "Column", expected: Mapping[str, str]) -> "Column":
    from pyspark.sql import functions as sf

    messages = [
        sf.when(
            sf.get_json_object(text, f"$.{path}").isNotNull() & _field(event, path).isNull(),
            sf.lit(f"{path} is not {kind}"),
        )
        for path, kind in expected.items()
    ]
    return (
        sf.when(~sf.is_valid_utf8(text), sf.lit("not UTF-8 text"))
        .when(sf.trim(text) == "", sf.lit("empty value"))
        .when(sf.try_parse_json(text).isNull(), sf.lit("not JSON"))
        .when(~sf.ltrim(text).startswith("{"), sf.lit("not a JSON object"))
        .otherwise(sf.coalesce(*messages, sf.lit("a field has a wrong type")))
    )


def _field(event: "Column", path: str) -> "Column":
    for name in path.split("."):
        event = event[name]
    return event
