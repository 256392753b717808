"""JSON in Arrow columns: reads JSON objects as columns, and writes columns as JSON. For functions of Arrow flows.

`read_json` parses and types the rows in compiled code, as Spark's `from_json` would with the same schema. A row that is
not plain JSON (see `_json_reader`) goes to `json_rows`, which is slow and exact. So do all rows if compiled code does
not know a type: decimals of more than 18 digits or 6 decimals.

    rows = read_json(batch["value"], "id BIGINT, name STRING, tags ARRAY<STRING>")
    rows.columns    a struct array; null for rows without a value and for invalid rows
    rows.invalid    why a row is invalid, by its number

The writers build rows from pieces. What several rows share is written only once:

    head = json_members({"id": rows.columns.field("id")}, opening=b"{")       {"id":7
    tags = list_items(rows.columns.field("tags"))
    tag = json_members({"tag": rows.columns.field("tags").values})            ,"tag":"a"
    seq = json_members({"seq": tags.positions})                               ,"seq":0
    values = join_pieces((head, tags.lists), (tag, tags.elements), seq, b"}") {"id":7,"tag":"a","seq":0}

No Spark import, no state except readers, which are cached per schema and thread.
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.pipelines._json_reader import JsonReader
from headrace.pipelines._json_writer import join_rows, list_rows, write_rows
from headrace.pipelines.json_rows import RowParser
from headrace.pipelines.sql_schema import parse_sql_schema

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT, _JSON_TEXT, _INTEGER, _DECIMAL, _TIMESTAMP, _BOOLEAN, _STRUCT, _LIST, _MAP, _FLOATING, _DATE = range(1, 12)
_MAX_PRECISION = 18
_MAX_SCALE = 6
"""Java writes small numbers with more decimals in scientific notation."""
_MAX_READERS = 100
_TRIMMED = {b"json": b"trimmed"}
_JSON = {b"json": b"text"}

Fallback = Callable[[bytes], "bytes | str"]
"""Gets an unusual row. Returns it as plain JSON, or why it is invalid."""


@dataclass(frozen=True)
class JsonRows:
    """The result of `read_json`."""

    columns: "pa.StructArray"
    """Null for rows without a value and for invalid rows."""
    invalid: dict[int, str]
    """Why a row is invalid, by its number."""
    unusual: list[int]
    """The numbers of valid rows that are not plain JSON."""


@dataclass(frozen=True)
class ListItems:
    """The elements of lists, in order."""

    lists: "pa.Array"
    """The number of each element's list."""
    elements: "pa.Array"
    """The position of each element in `ListArray.values`."""
    positions: "pa.Array"
    """The position of each element in its list, from 0."""


def trimmed(name: str) -> "pa.Field":
    """Returns a text field that is trimmed of spaces when it is read, and null if it is empty."""
    import pyarrow as pa

    return pa.field(name, pa.string(), metadata=_TRIMMED)


def json_text(name: str) -> "pa.Field":
    """Returns a text field for an object or list of any content, as JSON text without white space."""
    import pyarrow as pa

    return pa.field(name, pa.string(), metadata=_JSON)


def can_read(schema: "pa.Schema") -> bool:
    """Returns whether compiled code can read all types of a schema."""
    try:
        _field_codes(schema, is_database_time=False)
    except TypeError:
        return False
    return True


def can_write(schema: "pa.Schema") -> bool:
    """Returns whether `json_members` can write all types of a schema."""
    try:
        for field in schema:
            _writer_code(field.name, field.type, is_raw=False)
    except TypeError:
        return False
    return True


def read_json(
    values: "pa.Array | pa.ChunkedArray",
    schema: "str | pa.Schema",
    fallback: Fallback | None = None,
    *,
    database_times: bool = False,
) -> JsonRows:
    """Reads JSON objects (binary or text) as the columns of a schema, which may be a SQL schema.

    `fallback` reads rows that are not plain JSON; without it, they are read as `from_json` does. `database_times`:
    timestamps must have the format of databases, `2026-01-31 23:59:59`. Raises TypeError if a type is not supported.
    """
    import pyarrow as pa

    if isinstance(schema, str):
        schema = parse_sql_schema(schema)
    if fallback is None:
        parser = RowParser(schema, database_times=database_times)
        if not can_read(schema):
            return _read_slowly(_one_array(values).cast(pa.binary()).to_pylist(), schema, parser)
        fallback = parser
    array = _one_array(values).cast(pa.binary())
    valid, offsets, data = array.buffers()
    offsets = memoryview(offsets if offsets is not None and offsets.size else bytes(4)).cast("B").cast("i")
    columns, validity, invalid, unusual = _reader(schema, database_times).read(
        b"" if data is None else memoryview(data).cast("B"), offsets, valid, array.offset, len(array), fallback
    )
    children = [_array(field.type, column) for field, column in zip(schema, columns, strict=True)]
    bitmap = None if validity[0] is None else pa.py_buffer(validity[0])
    struct = pa.struct(list(schema))
    rows = pa.StructArray.from_buffers(struct, len(array), [bitmap], validity[1], 0, children)
    return JsonRows(rows, invalid, unusual)


def _read_slowly(values: list[bytes | None], schema: "pa.Schema", parser: RowParser) -> JsonRows:
    import pyarrow as pa

    rows = [None if value is None else parser.read(value) for value in values]
    invalid = {number: row for number, row in enumerate(rows) if isinstance(row, str)}
    columns = pa.array([row if isinstance(row, dict) else None for row in rows], pa.struct(list(schema)))
    return JsonRows(columns, invalid, [number for number, row in enumerate(rows) if isinstance(row, dict)])


def json_members(columns: "Mapping[str, pa.Array]", *, opening: bytes = b"", raw: Iterable[str] = ()) -> "pa.Array":
    """Returns the members of a JSON object per row, as a binary array: `,"name":value` for each value that is not null.

    With `opening`, for example `{`, a row begins with it in place of the first comma. The values of columns in `raw`
    are JSON text, which is written as it is.
    """
    arrays = {name: _one_array(array) for name, array in columns.items()}
    raw = frozenset(raw)
    count = len(next(iter(arrays.values())))
    if any(len(array) != count for array in arrays.values()):
        raise ValueError("columns have different lengths")
    coded = [_column_codes(name, array, name in raw) for name, array in arrays.items()]
    return _binary(count, *write_rows(coded, count, opening))


def join_pieces(*pieces: "bytes | pa.Array | tuple[pa.Array, pa.Array]") -> "pa.Array":
    """Returns the pieces of each row joined, as a binary array. A piece is the same bytes for every row, an array with
    one entry per row, or an array and the number of its entry for each row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    coded: list[Any] = []
    count: int | None = None
    for piece in pieces:
        if isinstance(piece, bytes):
            coded.append(piece)
            continue
        array, rows = piece if isinstance(piece, tuple) else (piece, None)
        array = _one_array(array)
        if array.null_count:
            raise ValueError("a piece of a row must not be null")
        if rows is not None:
            rows = _one_array(rows).cast(pa.int32())
            if len(rows) and not (
                rows.null_count == 0 and 0 <= pc.min(rows).as_py() <= pc.max(rows).as_py() < len(array)
            ):
                raise ValueError("a row has a number outside of its array")
        length = len(array if rows is None else rows)
        if count not in (None, length):
            raise ValueError(f"pieces have {count} and {length} rows")
        count = length
        _, offsets, data = array.buffers()
        numbers = None if rows is None else rows.buffers()[1].slice(rows.offset * 4)
        coded.append((offsets, array.offset, data if data is not None else b"", numbers) if length else b"")
    if count is None:
        raise ValueError("at least one piece must be an array")
    return _binary(count, *join_rows(coded, count))


def list_items(lists: "pa.ListArray", chosen: "pa.BooleanArray | None" = None) -> ListItems:
    """Returns the elements of all lists, or of the chosen lists."""
    import pyarrow as pa

    count = len(lists)
    if chosen is None:
        flags = b"\1" * count
    else:
        flags = bytes(memoryview(chosen.cast(pa.uint8()).fill_null(0).buffers()[1]))[:count] if count else b""
    offsets = lists.buffers()[1]
    numbers = memoryview(offsets if offsets is not None and offsets.size else bytes(4)).cast("B").cast("i")
    found = list_rows(numbers, lists.offset, count, flags)
    return ListItems(*(pa.Array.from_buffers(pa.int32(), len(each) // 4, [None, pa.py_buffer(each)]) for each in found))


# ---- schemas and buffers


_readers = threading.local()


def _reader(schema: "pa.Schema", is_database_time: bool) -> JsonReader:
    """Returns this thread's reader for a schema. A reader keeps its memory."""
    cache: dict[tuple[int, bool], tuple[pa.Schema, JsonReader]] = _readers.__dict__.setdefault("by_schema", {})
    key = id(schema), is_database_time
    if key not in cache:
        if len(cache) >= _MAX_READERS:
            cache.clear()
        cache[key] = schema, JsonReader(_field_codes(schema, is_database_time))
    return cache[key][1]


def _field_codes(fields: "Iterable[pa.Field]", is_database_time: bool) -> tuple[Any, ...]:
    return tuple(_field_code(field, is_database_time) for field in fields)


def _field_code(field: "pa.Field", is_database_time: bool) -> tuple[Any, ...]:
    """Returns a field as `JsonReader` expects it."""
    import pyarrow as pa

    kind = field.type
    metadata = field.metadata or {}
    if pa.types.is_string(kind):
        code = _JSON_TEXT if metadata.get(b"json") == b"text" else _TEXT
        return field.name, code, metadata.get(b"json") == b"trimmed", 0, 0, ()
    if pa.types.is_signed_integer(kind):
        return field.name, _INTEGER, False, kind.bit_width, 0, ()
    if _is_short_decimal(kind):
        return field.name, _DECIMAL, False, kind.precision, kind.scale, ()
    if kind in (pa.float64(), pa.float32()):
        return field.name, _FLOATING, False, kind.bit_width, 0, ()
    if kind == pa.timestamp("us", "UTC"):
        return field.name, _TIMESTAMP, is_database_time, 0, 0, ()
    if pa.types.is_boolean(kind):
        return field.name, _BOOLEAN, False, 0, 0, ()
    if kind == pa.date32():
        return field.name, _DATE, False, 0, 0, ()
    if pa.types.is_struct(kind):
        return field.name, _STRUCT, False, 0, 0, _field_codes(kind, is_database_time)
    if pa.types.is_list(kind):
        return field.name, _LIST, False, 0, 0, _field_codes([kind.value_field], is_database_time)
    if pa.types.is_map(kind) and kind.key_type == pa.string():
        return field.name, _MAP, False, 0, 0, _field_codes([kind.field(0)], is_database_time)
    raise TypeError(f"field {field.name}: type {kind} is not supported")


def _is_short_decimal(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_decimal128(kind) and kind.precision <= _MAX_PRECISION and 0 <= kind.scale <= _MAX_SCALE)


def _writer_code(name: str, kind: "pa.DataType", is_raw: bool) -> tuple[int, int, int]:
    """Returns a type as `write_rows` expects it: its code, its width and its scale."""
    import pyarrow as pa

    if pa.types.is_string(kind) or (is_raw and pa.types.is_binary(kind)):
        return _JSON_TEXT if is_raw else _TEXT, 0, 0
    if pa.types.is_signed_integer(kind):
        return _INTEGER, kind.bit_width // 8, 0
    if _is_short_decimal(kind):
        return _DECIMAL, 0, kind.scale
    if kind == pa.timestamp("us", "UTC"):
        return _TIMESTAMP, 0, 0
    if pa.types.is_boolean(kind):
        return _BOOLEAN, 0, 0
    if pa.types.is_struct(kind):
        for field in kind:
            _writer_code(field.name, field.type, is_raw=False)
        return _STRUCT, 0, 0
    raise TypeError(f"column {name}: type {kind} is not supported")


def _column_codes(name: str, array: "pa.Array", is_raw: bool) -> tuple[Any, ...]:
    """Returns a column as `write_rows` expects it."""
    kind = array.type
    code, width, scale = _writer_code(name, kind, is_raw)
    children: list[Any] = []
    if code == _STRUCT:
        children = [_column_codes(kind.field(i).name, array.field(i), False) for i in range(kind.num_fields)]
    begin = f",{json.dumps(name, ensure_ascii=False)}:".encode()
    return begin, code, width, scale, array.offset, array.buffers(), children


def _array(kind: "pa.DataType", column: tuple[int, tuple[Any, int], list[bytes], list[Any]]) -> "pa.Array":
    """Returns a column of `JsonReader.read` as an array."""
    import pyarrow as pa

    count, (bitmap, nulls), content, children = column
    buffers = [None if bitmap is None else pa.py_buffer(bitmap), *map(pa.py_buffer, content)]
    fields = [kind.field(i).type for i in range(kind.num_fields)]
    arrays = [_array(field, child) for field, child in zip(fields, children, strict=True)]
    return pa.Array.from_buffers(kind, count, buffers, nulls, 0, arrays or None)


def _binary(count: int, offsets: bytes, data: bytes) -> "pa.Array":
    import pyarrow as pa

    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)], 0)


def _one_array(values: "pa.Array | pa.ChunkedArray") -> "pa.Array":
    import pyarrow as pa

    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
