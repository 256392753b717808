"""Parses JSON, finds a reason for each invalid row, and builds dead letters.

Driver only: the functions build column expressions.

A dead letter is a record with the key of its source record and a JSON value:

    reason                       why the record is invalid
    topic, partition, offset     the position of the source record
    timestamp                    the timestamp of the source record, in milliseconds
    key, value                   as text, truncated to 100,000 characters
    key_encoding, encoding       "base64" if the bytes of the key or value are not UTF-8
    value_bytes                  the length of the value in bytes, if it was truncated

Invariants:
- Every row is in either `good` or `bad`.
- A dead letter is never too large for its topic.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from headrace.pipelines.pipeline import SOURCE_COLUMNS, PipelineError, current_batch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

MAX_CHARS = 100_000
"""The maximum length of a key or value. A character takes up to six bytes in JSON; a record may have 1 MB by
default."""
_CORRUPT = "_corrupt"
_REASON = "_reason"


class Parsed(NamedTuple):
    """The result of `parse_json`: `good` has the source's columns and the parsed struct, `bad` the source's columns and
    `reason`."""

    good: "DataFrame"
    bad: "DataFrame"


def parse_json(
    frame: "DataFrame", schema: "str | StructType", *, required: Iterable[str] = (), into: str = "data"
) -> Parsed:
    """Parses the column `value` as JSON objects. Rows that are not JSON objects, or do not fit the schema, get a
    reason.

    Fields in `required` must be present and not null (`"id"`, or `"common.mid"` for a nested field). In a batch each
    row is parsed only once, however often the two frames are used.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StringType, StructField, StructType

    struct = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
    if not isinstance(struct, StructType):
        raise PipelineError(f"parse_json: schema {schema!r} is not a list of fields")
    with_corrupt = StructType([*struct.fields, StructField(_CORRUPT, StringType())])
    columns = frame.columns
    if into in columns:
        raise PipelineError(f"parse_json: the frame already has a column {into!r}; choose another name with `into`")
    text = sf.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = frame.withColumn(into, sf.from_json(text, with_corrupt, options))
    parsed = parsed.withColumn(_REASON, _reason(struct, tuple(required), into))
    batch = current_batch()
    if batch is not None and not frame.isStreaming:
        parsed = batch.keep(parsed)
    good = parsed.where(sf.col(_REASON).isNull())
    bad = parsed.where(sf.col(_REASON).isNotNull())
    return Parsed(
        good.select(*columns, sf.col(into).dropFields(_CORRUPT).alias(into)),
        bad.select(*columns, sf.col(_REASON).alias("reason")),
    )


def _reason(struct: "StructType", required: tuple[str, ...], into: str) -> "Column":
    """Returns why a row is invalid, or null. Costly checks run only for rows that the parser rejected."""
    from pyspark.sql import functions as sf

    value, data = sf.col("value"), sf.col(into)
    text = value.cast("string")
    mismatches = [
        sf.when(
            data[field.name].isNull() & sf.get_json_object(text, f"$['{field.name}']").isNotNull(),
            sf.lit(f"{field.name} is not {field.dataType.simpleString()}"),
        )
        for field in struct.fields
        if "'" not in field.name
    ]
    fields = sf.concat_ws(", ", *mismatches)
    mismatch = sf.when(fields == "", sf.lit("JSON that does not fit the schema")).otherwise(
        sf.concat(sf.lit("JSON that does not fit the schema: "), fields)
    )
    reason = (
        sf.when(value.isNull(), sf.lit("no value"))
        .when(
            data.isNull() | data[_CORRUPT].isNotNull(),
            sf.when(~sf.is_valid_utf8(text), sf.lit("not UTF-8 text"))
            .when(sf.try_parse_json(text).isNull(), sf.lit("not JSON"))
            .when(~sf.ltrim(text).startswith("{"), sf.lit("not a JSON object"))
            .otherwise(mismatch),
        )
        .when(~sf.is_valid_utf8(text), sf.lit("not UTF-8 text"))
    )
    for name in required:
        field_value = data
        for part in name.split("."):
            field_value = field_value[part]
        reason = reason.when(field_value.isNull(), sf.lit(f"no {name}"))
    return reason


def dead_letter_value(reason: "Column") -> "Column":
    """Returns the value of a dead letter as JSON text, for rows with the columns of a source."""
    from pyspark.sql import functions as sf

    key, value = sf.col("key"), sf.col("value")
    return sf.to_json(
        sf.struct(
            reason.alias("reason"),
            sf.col("topic"),
            sf.col("partition"),
            sf.col("offset"),
            sf.unix_millis("timestamp").alias("timestamp"),
            _short_text(key).alias("key"),
            _encoding(key).alias("key_encoding"),
            _short_text(value).alias("value"),
            _encoding(value).alias("encoding"),
            sf.when(sf.length(_full_text(value)) > MAX_CHARS, sf.octet_length(value)).alias("value_bytes"),
        )
    )


def dead_letter_key() -> "Column":
    """Returns the key of a dead letter: the record's key, or null if it is too long to fit together with the value."""
    from pyspark.sql import functions as sf

    return sf.when(sf.octet_length("key") <= MAX_CHARS, sf.col("key"))


def check_dead_letters(frame: "DataFrame") -> None:
    """Raises `PipelineError` if a frame for the reserved output `dead_letters` lacks columns."""
    missing = [name for name in ("reason", *SOURCE_COLUMNS) if name not in frame.columns]
    if missing:
        raise PipelineError(f"dead letters need the columns of the source and 'reason'; missing: {', '.join(missing)}")


def _full_text(column: "Column") -> "Column":
    from pyspark.sql import functions as sf

    text = column.cast("string")
    return sf.when(sf.is_valid_utf8(text), text).otherwise(sf.translate(sf.base64(column), "\r\n", ""))


def _short_text(column: "Column") -> "Column":
    from pyspark.sql import functions as sf

    return sf.substring(_full_text(column), 1, MAX_CHARS)


def _encoding(column: "Column") -> "Column":
    from pyspark.sql import functions as sf

    return sf.when(~sf.is_valid_utf8(column.cast("string")), sf.lit("base64"))
