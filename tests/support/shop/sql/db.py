"""Parses `ods_db` (row changes of the shop's database) and builds the rows for the topic of each table. Driver only:
builds column expressions.

The change is parsed first, with its row as text. The row is then parsed by the schema of its table. Changes of tables
without a route are counted but not written. They are no errors.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.support.shop.sql.column_cache import cached_column
from tests.support.shop.sql.deduplication import offset_of_position, parsed_frame, partition_of_position
from tests.support.shop.sql.reasons import check_common_fields, is_blank, parse_failure

from headrace.pipelines.pipeline import AT, SEQ, PipelineError
from headrace.shop import schemas
from headrace.shop.routes import Route, check_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

Routes = tuple[tuple[str, Route], ...]
_EXPECTED = {"ts": "a whole number", "xid": "a whole number"}
_TIMES = {"timestampFormat": "yyyy-MM-dd HH:mm:ss[.SSSSSS][.SSS]", "timeZone": "UTC"}
"""The timestamp format of databases."""
_ISO_TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "timeZone": "UTC"}


def is_single_json_value(text: "Column") -> "Column":
    """Returns whether a text is exactly one JSON value. Spark's parsers accept a value and ignore the text after it. So
    the text is parsed as the first element of a list. The second element is the hash of the text."""
    from pyspark.sql import functions as sf

    check = sf.xxhash64(text)
    with_check = sf.try_parse_json(sf.concat(sf.lit("["), text, sf.lit(","), check.cast("string"), sf.lit("]")))
    return sf.coalesce(sf.try_variant_get(with_check, "$[1]", "bigint") == check, sf.lit(False))


def parse_db(frame: "DataFrame", routes: Mapping[str, Route]) -> "DataFrame":
    """Returns the parsed frame (see `deduplication`) of `ods_db`. `event.data` is the row as it will be written."""
    change, rows, event, reason = _parsed(tuple(routes.items()))
    frame = frame.withColumn("change", change).withColumns(rows)
    return parsed_frame(frame.withColumn("event", event), reason)


@cached_column
def _parsed(routes: Routes) -> tuple["Column", dict[str, "Column"], "Column", "Column"]:
    """Returns the change as received, the rows of tables with a schema, the event built from both, and the reason why
    the event is invalid."""
    from pyspark.sql import functions as sf

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": schemas.CORRUPT}
    change = sf.from_json(sf.col("value").cast("string"), schemas.DB_EVENT, options)
    typed = {table: _schema(table, route) for table, route in routes if route.columns is not None}
    rows = {f"row_{number}": _parsed_row(table, schema) for number, (table, schema) in enumerate(typed.items())}
    written, mismatch = sf.col("change.data"), sf.lit(None).cast("string")
    for name, (table, schema) in zip(rows, typed.items(), strict=True):
        row, is_here = sf.col(name), sf.col("change.table") == table
        written = sf.when(is_here, _written(row, schema)).otherwise(written)
        mismatch = sf.when(is_here, _mismatch(row, schema)).otherwise(mismatch)
    event = sf.col("change").withField("data", written).withField("mismatch", mismatch)
    event = sf.when(sf.col("change").isNotNull(), event)
    untyped = [table for table, _ in routes if table not in typed]
    return change, rows, event, _reason(sf.col("event"), untyped)


def _schema(table: str, route: Route) -> "StructType":
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromDDL(str(route.columns))
    except PySparkException as error:
        raise PipelineError(
            f"routes, table {table}: columns {route.columns!r} are not a SQL schema (id BIGINT, name STRING)"
        ) from error
    if not isinstance(schema, StructType):
        raise PipelineError(
            f"routes, table {table}: columns {route.columns!r}: expected a list of columns (id BIGINT, name STRING)"
        )
    check_columns(table, schema.fieldNames())
    return schema


def _parsed_row(table: str, schema: "StructType") -> "Column":
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StringType, StructField, StructType

    with_corrupt = StructType([*schema.fields, StructField(schemas.CORRUPT, StringType())])
    options = {**_TIMES, "columnNameOfCorruptRecord": schemas.CORRUPT}
    data = sf.col("change.data")
    is_row = (sf.col("change.table") == table) & data.startswith("{")
    return sf.when(is_row, sf.from_json(data, with_corrupt, options))


def _written(row: "Column", schema: "StructType") -> "Column":
    """Returns the row as JSON with the types of its schema."""
    from pyspark.sql import functions as sf

    columns = (row[column.name].alias(column.name) for column in schema.fields)
    return sf.when(row.isNotNull(), sf.to_json(sf.struct(*columns), _ISO_TIMES)).otherwise(sf.col("change.data"))


def _mismatch(row: "Column", schema: "StructType") -> "Column":
    """Returns a message that names the first column whose value does not fit its type, or null."""
    from pyspark.sql import functions as sf

    messages = (
        sf.when(
            sf.get_json_object(sf.col("change.data"), f"$.{column.name}").isNotNull() & row[column.name].isNull(),
            sf.lit(f"data.{column.name} is not {column.dataType.simpleString()}"),
        )
        for column in schema.fields
    )
    is_corrupt = row[schemas.CORRUPT].isNotNull()
    return sf.when(is_corrupt, sf.coalesce(*messages, sf.lit("a column of data has a wrong type")))


def _reason(event: "Column", untyped: list[str]) -> "Column":
    """Returns the reason why an event is invalid, or null.

    `untyped`: tables whose rows are written as received. These rows and `old` may be text that only looks like JSON.
    """
    from pyspark.sql import functions as sf

    reason = check_common_fields(parse_failure(event, _EXPECTED), event)
    is_operation = event["type"].isin(*schemas.OPERATIONS)
    return (
        reason.when(is_blank(event["table"]), sf.lit("no table"))
        .when(is_blank(event["type"]), sf.lit("no type"))
        .when(
            ~is_operation,
            sf.concat(sf.lit("type "), event["type"], sf.lit(f" is none of {', '.join(schemas.OPERATIONS)}")),
        )
        .when(is_blank(event["data"]), sf.lit("no data"))
        .when(~event["data"].startswith("{"), sf.lit("data is not an object"))
        .when(event["mismatch"].isNotNull(), event["mismatch"])
        .when(event["table"].isin(*untyped) & ~is_single_json_value(event["data"]), sf.lit("data is not a JSON object"))
        .when(event["old"].startswith("{") & ~is_single_json_value(event["old"]), sf.lit("old is not a JSON object"))
    )


def rows_by_topic(routes: Mapping[str, Route]) -> dict[str, "Column"]:
    """Returns how many rows a change produces, by topic: one if its table has a route."""
    return _rows_by_topic(tuple(routes.items()))


@cached_column
def _rows_by_topic(routes: Routes) -> dict[str, "Column"]:
    from pyspark.sql import functions as sf

    tables: dict[str, list[str]] = {}
    for table, route in routes:
        tables.setdefault(route.topic, []).append(table)
    return {topic: sf.col("event.table").isin(*names) for topic, names in tables.items()}


def db_rows(events: "DataFrame", routes: Mapping[str, Route]) -> "DataFrame":
    """Returns the rows of valid changes: topic (null for tables without a route), key, value, `_at`, `_seq`."""
    routed, written = _steps(tuple(routes.items()))
    return events.select(*routed).select(*written)


@cached_column
def _steps(routes: Routes) -> tuple[list["Column | str"], list["Column | str"]]:
    from pyspark.sql import functions as sf

    event = sf.col("event")
    topic = sf.lit(None).cast("string")
    untyped = [table for table, route in routes if route.columns is None]
    for table, route in routes:
        topic = sf.when(event["table"] == table, sf.lit(route.topic)).otherwise(topic)
    head = sf.to_json(sf.struct(event["event_id"], event["ts"], event["type"].alias("op"), event["xid"]))
    members = sf.substring(event["data"].cast("binary"), sf.lit(2), sf.octet_length(event["data"]) - 2)
    typed = sf.when(sf.octet_length(event["data"]) > 2, sf.concat(sf.lit(b","), members)).otherwise(sf.lit(b""))
    data = sf.concat(sf.lit(b',"data":'), event["data"].cast("binary"))
    row = sf.when(event["table"].isin(*untyped), data).otherwise(typed) if untyped else typed
    old = sf.concat(sf.lit(b',"old":'), event["old"].cast("binary"))
    old = sf.when(event["old"].startswith("{"), old).otherwise(sf.lit(b""))
    partition, offset = (
        number.cast("string").cast("binary") for number in (partition_of_position(), offset_of_position())
    )
    value = sf.concat(
        sf.substring(sf.col("head").cast("binary"), sf.lit(1), sf.octet_length("head") - 1),
        row,
        old,
        sf.lit(b',"src":{"p":'),
        partition,
        sf.lit(b',"o":'),
        offset,
        sf.lit(b"}}"),
    )
    routed: list[Column | str] = [AT, "event", "key", topic.alias("topic"), head.alias("head")]
    return routed, ["topic", "key", value.alias("value"), AT, sf.lit(0).alias(SEQ)]
