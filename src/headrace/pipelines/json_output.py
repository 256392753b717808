"""Writes Arrow rows as JSON objects, like Spark's `to_json(struct(*))`. Runs in Spark's Python workers. Pure.

    strings       escaped as Spark does: `"`, `\\`, and control characters; other characters are written unchanged
    timestamps    2026-03-04T05:06:07.089Z; without a time zone: 2026-03-04T05:06:07.089
    doubles       as in Java: 1.0, 1.5E10, "NaN"; with the fewest digits that identify the number (before Java 19 a few
                  numbers had one digit more)
    binary        base64
    nulls         are left out of objects, and written as null in lists and maps

Whole columns are converted at once. Only doubles, binary values and rare control characters take a step per value.
"""

import base64
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["column_to_json", "double_text", "rows_to_json"]

_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_CONTROL = "[\\x00-\\x1f]"
_CONTROL_PATTERN = re.compile(_CONTROL)


def rows_to_json(table: pa.Table | pa.RecordBatch) -> pa.Array:
    """Returns each row as the text of a JSON object."""
    columns = [_one_array(table.column(name)) for name in table.schema.names]
    return _objects(list(table.schema.names), columns, table.num_rows)


def column_to_json(column: pa.Array) -> pa.Array:
    """Returns each value as JSON text. Nulls stay null."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return column_to_json(column.dictionary_decode())
    for is_kind, convert in _CONVERTERS:
        if is_kind(kind):
            return convert(column)
    raise TypeError(f"values of type {kind} cannot be written as JSON")


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _objects(names: list[str], columns: list[pa.Array], rows: int) -> pa.Array:
    members = [
        pc.binary_join_element_wise(f",{json.dumps(name, ensure_ascii=False)}:", column_to_json(column), "")
        for name, column in zip(names, columns, strict=True)
    ]
    if not members:
        return pa.repeat(pa.scalar("{}"), rows)
    # Arrow can leave out nulls when it joins, but it loses rows in which all values are null.
    joined = pc.binary_join_element_wise("{", *(pc.fill_null(member, "") for member in members), "}", "")
    return pc.replace_substring(joined, "{,", "{", max_replacements=1)


def _quoted(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', column, '"', "")


def _text(column: pa.Array) -> pa.Array:
    column = column if pa.types.is_string(column.type) else column.cast(pa.string())
    column = pc.replace_substring(column, "\\", "\\\\")
    column = pc.replace_substring(column, '"', '\\"')
    has_control = pc.match_substring_regex(column, _CONTROL)
    if pc.any(has_control).as_py():
        escaped = [_escape_control(value) for value in column.filter(has_control).to_pylist()]
        column = pc.replace_with_mask(column, pc.fill_null(has_control, False), pa.array(escaped, pa.string()))
    return _quoted(column)


def _escape_control(text: str) -> str:
    return _CONTROL_PATTERN.sub(lambda match: _ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04X}", text)


def _plain(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _decimal(column: pa.Array) -> pa.Array:
    return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())


def double_text(value: float) -> str:
    """Returns a double as Java writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + exponent
    """The position of the decimal point, relative to the first digit."""
    if 1e-3 <= abs(value) < 1e7:
        whole = text[:point].ljust(point, "0") if point > 0 else "0"
        fraction = text[point:] if point > 0 else "0" * -point + text
        plain = f"{whole}.{fraction or '0'}"
    else:
        plain = f"{text[0]}.{text[1:] or '0'}E{point - 1}"
    return f"-{plain}" if sign else plain


def _double(column: pa.Array) -> pa.Array:
    texts = (None if value is None else double_text(value) for value in column.to_pylist())
    return pa.array([text if text is None or text[-1].isdigit() else f'"{text}"' for text in texts], pa.string())


def _float(column: pa.Array) -> pa.Array:
    # The shortest text that identifies the 32-bit number; as a 64-bit number it would have more digits.
    shortest = column.cast(pa.string()).to_pylist()
    return _double(pa.array([None if text is None else float(text) for text in shortest], pa.float64()))


def _timestamp(column: pa.Array) -> pa.Array:
    zone = column.type.tz
    in_utc = column.cast(pa.timestamp("us", zone)).cast(pa.timestamp("us"))
    text = pc.strftime(pc.floor_temporal(in_utc, unit="millisecond").cast(pa.timestamp("ms")), "%Y-%m-%dT%H:%M:%S")
    return pc.binary_join_element_wise('"', text, "Z" if zone else "", '"', "")


def _date(column: pa.Array) -> pa.Array:
    return _quoted(column.cast(pa.date32()).cast(pa.string()))


def _binary(column: pa.Array) -> pa.Array:
    values = column.to_pylist()
    return _quoted(pa.array([None if v is None else base64.b64encode(v).decode() for v in values], pa.string()))


def _list(column: pa.Array) -> pa.Array:
    values = pc.fill_null(column_to_json(column.flatten()), "null")
    return pc.binary_join_element_wise("[", _join_lists(column, values), "]", "")


def _join_lists(column: pa.Array, texts: pa.Array) -> pa.Array:
    """Joins the texts of the items of each list with commas."""
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int64())).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")
    return pc.if_else(column.is_valid(), joined, pa.scalar(None, pa.string()))


def _map(column: pa.Array) -> pa.Array:
    as_list = column.cast(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
    keys, items = as_list.flatten().flatten()
    key_texts = keys.cast(pa.string())
    members = pc.binary_join_element_wise(_text(key_texts), ":", pc.fill_null(column_to_json(items), "null"), "")
    return pc.binary_join_element_wise("{", _join_lists(as_list, members), "}", "")


def _struct(column: pa.Array) -> pa.Array:
    names = [field.name for field in column.type]
    objects = _objects(names, list(column.flatten()), len(column))
    return pc.if_else(column.is_valid(), objects, pa.scalar(None, pa.string()))


def _null(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


_CONVERTERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (_is_text, _text),
    (pa.types.is_integer, _plain),
    (pa.types.is_boolean, _plain),
    (pa.types.is_float64, _double),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_date, _date),
    (_is_binary, _binary),
    (pa.types.is_map, _map),
    (_is_list, _list),
    (pa.types.is_struct, _struct),
    (pa.types.is_null, _null),
)
