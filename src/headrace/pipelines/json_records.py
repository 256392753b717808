"""Parses the values of records as JSON, for functions of Arrow flows: the counterpart of `parse_json`.

    parsed = parse_records(records, "id STRING, amount DOUBLE, ts BIGINT", required=["id"])
    return {"orders": parsed.rows, "dead_letters": parsed.bad}

The rules and the reasons are those of `parse_json`, with one difference: see `json_times`. No Spark import, no state.

Invariant: every record is in either `records` or `bad`, in its order.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.pipelines.json_columns import read_json
from headrace.pipelines.pipeline import PipelineError
from headrace.pipelines.sql_schema import SqlSchemaError, parse_sql_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ParsedRecords", "parse_records"]


class ParsedRecords(NamedTuple):
    """The result of `parse_records`."""

    rows: "pa.RecordBatch"
    """The parsed fields of valid records, with the columns of the schema."""
    records: "pa.RecordBatch"
    """The valid records: row n was parsed from record n."""
    bad: "pa.RecordBatch"
    """The other records, with the column `reason`."""


def parse_records(
    records: "pa.RecordBatch", schema: "str | pa.Schema", *, required: Iterable[str] = ()
) -> ParsedRecords:
    """Parses the column `value` as JSON objects. Records that are not JSON objects, or do not fit the schema, get a
    reason.

    `schema`: a SQL schema (`"id STRING, tags ARRAY<STRING>"`), or an Arrow schema with the types of SQL. Fields in
    `required` must be present and not null (`"id"`, or `"common.mid"` for a nested field).
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        fields = parse_sql_schema(schema) if isinstance(schema, str) else schema
        parsed = read_json(records["value"], fields)
    except (SqlSchemaError, TypeError) as error:
        raise PipelineError(f"parse_records: schema {schema!r}: {error}") from error
    reasons: dict[int, str] = dict.fromkeys(pc.indices_nonzero(records["value"].is_null()).to_pylist(), "no value")
    reasons |= parsed.invalid
    for name in required:
        for row in pc.indices_nonzero(_field(parsed.columns, name).is_null()).to_pylist():
            reasons.setdefault(row, f"no {name}")
    if not reasons:
        no_reasons = pa.nulls(0, pa.string())  # `pa.array([])` would import pandas, which takes a second
        return ParsedRecords(_rows(parsed.columns), records, records.slice(0, 0).append_column("reason", no_reasons))
    bad = sorted(reasons)
    text = pa.array([reasons[row] for row in bad], pa.string())
    flags = bytearray(b"\1" * len(records))
    for row in bad:
        flags[row] = 0
    is_good = pa.Array.from_buffers(pa.uint8(), len(flags), [None, pa.py_buffer(flags)]).cast(pa.bool_())
    return ParsedRecords(
        _rows(parsed.columns.filter(is_good)),
        records.filter(is_good),
        records.take(pa.array(bad, pa.int64())).append_column("reason", text),
    )


def _rows(columns: "pa.StructArray") -> "pa.RecordBatch":
    import pyarrow as pa

    return pa.RecordBatch.from_struct_array(columns)


def _field(columns: "pa.StructArray", name: str) -> "Any":
    """Returns a field, which is null where an object around it is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array: Any = columns
    for part in name.split("."):
        if not pa.types.is_struct(array.type) or array.type.get_field_index(part) < 0:
            raise PipelineError(f"parse_records: the required field {name!r} is not in the schema")
        array = pc.struct_field(array, part)
    return array
