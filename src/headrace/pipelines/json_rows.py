"""Reads one JSON object by a schema exactly as Spark's `from_json` does, and writes it as `to_json` does.

The slow path of `json_columns`, for rows that are not plain JSON, and for types that the compiled reader does not know.
Values are Python objects: text, int, float, bool, Decimal, dict, list; maps are lists of entries, timestamps are
microseconds and dates are days since 1970.

Timestamps are ISO 8601, or only the format of databases (`json_times`); or they are numbers of seconds.

If a value does not fit its type, Spark continues with the next token. What it reads after that decides which fields
have a value, so the readers below follow it token by token.

Pure Python, no state.
"""

import math
import re
import struct
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from headrace.pipelines.json_times import parse_database_time, parse_date, parse_time, write_date, write_time
from headrace.pipelines.json_tokens import (
    Kind,
    NotJson,
    Rules,
    Token,
    float_of,
    is_strict_json,
    java_float,
    java_name,
    replace_surrogates,
    tokenize,
    write_double,
    write_text,
    write_tokens,
)
from headrace.pipelines.sql_schema import sql_name

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
Reader = Callable[["_Cursor"], Any]
_INT64 = 1 << 63
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_EXACT = Context(prec=5000, rounding=ROUND_HALF_UP, Emin=-999_999_999, Emax=999_999_999)
_FLOAT_NAMES = ("NaN", "+INF", "+Infinity", "Infinity", "-INF", "-Infinity")
_MICROS = 1_000_000
_SMALLEST_NORMAL_FLOAT = 2.0**-126


class Mismatch(Exception):
    """A value does not fit its type. `partial`: what was read nevertheless, if there is anything."""

    def __init__(self, partial: Any = None) -> None:
        super().__init__()
        self.partial = partial


class ObjectReader:
    """Reads objects of one schema. `database_times`: timestamps must have the format of databases."""

    def __init__(self, schema: "pa.Schema", *, database_times: bool = False) -> None:
        self._fields = _Readers(parse_database_time if database_times else parse_time).of_fields(schema)

    def read(self, text: str) -> tuple[Row | None, bool]:
        """Returns the row, and whether all of the text fits. The row is None if the text is not a JSON object."""
        try:
            tokens = tokenize(text)
        except NotJson:
            return None, False
        if not tokens or tokens[0].kind != Kind.START_OBJECT:
            return None, False
        try:
            return _read_object(_Cursor(tokens), self._fields), True
        except Mismatch as mismatch:
            return mismatch.partial, False


class _Cursor:
    """The current token of a text."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def next_until(self, end: Kind) -> bool:
        """Moves to the next token. Returns False if there is none, or if it has this kind."""
        self.at += 1
        return self.at < len(self.tokens) and self.token.kind != end

    def skip_children(self) -> None:
        """Moves to the end of the object or list that begins here."""
        depth = 0
        while True:
            if self.token.kind in (Kind.START_OBJECT, Kind.START_ARRAY):
                depth += 1
            elif self.token.kind in (Kind.END_OBJECT, Kind.END_ARRAY):
                depth -= 1
            if depth <= 0:
                return
            self.at += 1


def _read_object(cursor: _Cursor, fields: dict[str, Reader]) -> Row:
    row: Row = {}
    fits = True
    while cursor.next_until(Kind.END_OBJECT):
        name = cursor.token.name
        if name is None or name not in fields:
            cursor.skip_children()
            continue
        try:
            row[name] = fields[name](cursor)
        except Mismatch as mismatch:
            fits = False
            if mismatch.partial is None:
                cursor.skip_children()
            else:
                row[name] = mismatch.partial
    if not fits:
        raise Mismatch(row)
    return row


class _Readers:
    """Creates the functions that read the value at a cursor, by type."""

    def __init__(self, parse_time: Callable[[str], int | None]) -> None:
        self._parse_time = parse_time

    def of_fields(self, fields: "Iterable[pa.Field]") -> dict[str, Reader]:
        return {field.name: self._of_type(field.type) for field in fields}

    def _of_type(self, kind: "pa.DataType") -> Reader:
        read = self._of_value(kind)

        def read_or_null(cursor: _Cursor) -> Any:
            while cursor.token.kind == Kind.FIELD_NAME:
                cursor.at += 1
            return None if cursor.token.kind == Kind.NULL else read(cursor)

        return read_or_null

    def _of_value(self, kind: "pa.DataType") -> Reader:
        import pyarrow as pa

        if pa.types.is_string(kind):
            return _read_text
        if pa.types.is_signed_integer(kind):
            return _integer_reader(kind.bit_width)
        if pa.types.is_decimal128(kind):
            return lambda cursor: _read_decimal(cursor, kind.precision, kind.scale)
        if kind == pa.timestamp("us", "UTC"):
            return lambda cursor: _read_timestamp(cursor, self._parse_time)
        if kind in (pa.float64(), pa.float32()):
            return lambda cursor: _read_float(cursor, kind.bit_width)
        if pa.types.is_boolean(kind):
            return _read_boolean
        if kind == pa.date32():
            return _read_date
        if pa.types.is_struct(kind):
            fields = self.of_fields(kind)
            return lambda cursor: _read_object(_expect(cursor, Kind.START_OBJECT), fields)
        if pa.types.is_list(kind):
            element = self._of_type(kind.value_type)
            return lambda cursor: _read_list(_expect(cursor, Kind.START_ARRAY), element)
        if pa.types.is_map(kind) and kind.key_type == pa.string():
            item = self._of_type(kind.item_type)
            return lambda cursor: _read_map(_expect(cursor, Kind.START_OBJECT), item)
        raise TypeError(f"type {kind} is not supported")


def _expect(cursor: _Cursor, kind: Kind) -> _Cursor:
    if cursor.token.kind != kind:
        raise Mismatch
    return cursor


def _read_text(cursor: _Cursor) -> str:
    if cursor.token.kind == Kind.STRING:
        return replace_surrogates(cursor.token.value)
    if cursor.token.kind in (Kind.END_OBJECT, Kind.END_ARRAY):
        raise Mismatch
    text, cursor.at = write_tokens(cursor.tokens, cursor.at)
    return text


def _integer_reader(bits: int) -> Reader:
    highest = 255 if bits == 8 else (1 << (bits - 1)) - 1  # Java's parser accepts unsigned bytes

    def read(cursor: _Cursor) -> int:
        value = cursor.token.value
        if cursor.token.kind != Kind.INTEGER or not -(1 << (bits - 1)) <= value <= highest:
            raise Mismatch
        return int(value if bits != 8 or value < 128 else value - 256)

    return read


def _read_decimal(cursor: _Cursor, precision: int, scale: int) -> Decimal:
    token = cursor.token
    if token.kind == Kind.INTEGER:
        text = str(token.value)
    elif token.kind in (Kind.FLOAT, Kind.STRING):
        text = token.value.replace(",", "") if token.kind == Kind.STRING else token.value
    else:
        raise Mismatch
    if not _DECIMAL.fullmatch(text):
        raise Mismatch
    try:
        number = _EXACT.create_decimal(text)
        if number and number.adjusted() > precision:
            raise Mismatch
        number = number.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    except InvalidOperation as error:
        raise Mismatch from error
    if len(number.as_tuple().digits) > precision:
        raise Mismatch
    return number + 0 if number else abs(number)


def _read_float(cursor: _Cursor, bits: int) -> float:
    token = cursor.token
    if token.kind == Kind.INTEGER:
        digits = f"{token.value}e0"
    elif token.kind == Kind.FLOAT or (token.kind == Kind.STRING and token.value in _FLOAT_NAMES):
        digits = token.value
    else:
        raise Mismatch
    return float_of(digits) if bits == 64 else _float32_of(digits)


def _float32_of(digits: str) -> float:
    """Returns the nearest 32-bit number. A double that is halfway between two of them is first moved towards the exact
    number."""
    number = float_of(digits)
    if abs(number) < _SMALLEST_NORMAL_FLOAT:
        is_halfway = number * 2.0**150 % 2 == 1
    else:
        is_halfway = int.from_bytes(struct.pack("<d", number), "little") & 0x1FFFFFFF == 0x10000000
    if is_halfway:
        exact, rounded = _EXACT.create_decimal(digits), Decimal(number)
        if exact != rounded:
            number = math.nextafter(number, math.inf if exact > rounded else -math.inf)
    return _to_float32(number)


def _to_float32(number: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _read_boolean(cursor: _Cursor) -> bool:
    if cursor.token.kind not in (Kind.TRUE, Kind.FALSE):
        raise Mismatch
    return cursor.token.kind == Kind.TRUE


def _read_timestamp(cursor: _Cursor, parse: Callable[[str], int | None]) -> int:
    token = cursor.token
    if token.kind == Kind.INTEGER and -_INT64 <= token.value < _INT64:
        micros = token.value * _MICROS
        return int((micros + _INT64) % (2 * _INT64) - _INT64)  # seconds; Spark lets them overflow
    time = parse(token.value) if token.kind == Kind.STRING else None
    if time is None:
        raise Mismatch
    return time


def _read_date(cursor: _Cursor) -> int:
    days = parse_date(cursor.token.value) if cursor.token.kind == Kind.STRING else None
    if days is None:
        raise Mismatch
    return days


def _read_list(cursor: _Cursor, element: Reader) -> list[Any]:
    values = []
    fits = True
    while cursor.next_until(Kind.END_ARRAY):
        try:
            values.append(element(cursor))
        except Mismatch as mismatch:
            if mismatch.partial is None:
                raise
            fits = False
            values.append(mismatch.partial)
    if not fits:
        raise Mismatch(values)
    return values


def _read_map(cursor: _Cursor, item: Reader) -> list[tuple[str, Any]]:
    """Reads a map as its entries. Spark keeps entries with the same name. A map with an entry that does not fit is read
    to its end, but has no value then."""
    entries: list[tuple[str, Any]] = []
    fits = is_complete = True
    while cursor.next_until(Kind.END_OBJECT):
        name = replace_surrogates(str(cursor.token.name))
        try:
            entries.append((name, item(cursor)))
        except Mismatch as mismatch:
            fits = False
            if mismatch.partial is None:
                is_complete = False
                cursor.skip_children()
            else:
                entries.append((name, mismatch.partial))
    if not fits:
        raise Mismatch(entries if is_complete else None)
    return entries


class RowParser:
    """Reads rows that are not plain JSON: the default fallback of `read_json`. The reasons are those of
    `headrace.pipelines.parse_json`."""

    def __init__(self, schema: "pa.Schema", *, database_times: bool = False) -> None:
        self._schema = schema
        self._reader = ObjectReader(schema, database_times=database_times)

    def __call__(self, value: bytes) -> bytes | str:
        """Returns a row as plain JSON, or why it is invalid."""
        row = self.read(value)
        return row if isinstance(row, str) else write_plain(row, self._schema)

    def read(self, value: bytes) -> Row | str:
        """Returns a row, or why it is invalid."""
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return "not UTF-8 text"
        row, fits = self._reader.read(text)
        if fits and row is not None:
            return row
        if not is_strict_json(text):
            return "not JSON"
        if not text.lstrip(" ").startswith("{"):
            return "not a JSON object"
        mismatches = [
            f"{field.name} is not {sql_name(field.type)}"
            for field in self._schema
            if (row or {}).get(field.name) is None and has_value(text, field.name)
        ]
        return f"JSON that does not fit the schema{': ' if mismatches else ''}{', '.join(mismatches)}"


def has_value(text: str, *names: str) -> bool:
    """Returns whether `get_json_object` finds a value that is not null in nested objects with these names."""
    try:
        tokens = tokenize(text, Rules.PATH)
    except NotJson:
        return False
    return bool(tokens) and _find(_Cursor(tokens), list(names))


def _find(cursor: _Cursor, names: list[str]) -> bool:
    if not names:
        token = cursor.token
        cursor.skip_children()
        return not (token.kind == Kind.STRING and replace_surrogates(token.value) != token.value)
    if cursor.token.kind != Kind.START_OBJECT:
        cursor.skip_children()
        return False
    found = False
    while cursor.next_until(Kind.END_OBJECT):
        name = cursor.token.name
        cursor.at += 1
        if found or name != names[0] or cursor.tokens[cursor.at].kind == Kind.NULL:
            cursor.skip_children()
        else:
            found = _find(cursor, names[1:])
    return found


# ---- writing


def write_plain(row: Row, schema: "pa.Schema") -> bytes:
    """Returns a row as plain JSON that the compiled reader accepts from a fallback."""
    return _write_object(row, schema, is_plain=True).encode()


def write_json(row: Row, schema: "pa.Schema") -> bytes:
    """Returns a row as `to_json` writes it, with times as ISO 8601 in UTC."""
    return _write_object(row, schema, is_plain=False).encode()


def _write_object(row: Row, fields: "Iterable[pa.Field]", is_plain: bool) -> str:
    members = (
        f"{write_text(field.name)}:{_write(row[field.name], field.type, is_plain)}"
        for field in fields
        if row.get(field.name) is not None
    )
    return f"{{{','.join(members)}}}"


def _write(value: Any, kind: "pa.DataType", is_plain: bool) -> str:
    import pyarrow as pa

    if value is None:
        return "null"
    if isinstance(value, str):
        return write_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return f"{value:f}" if is_plain else _java_decimal(value)
    if isinstance(value, float):
        return write_double(value) if kind == pa.float64() else _write_float32(value)
    if pa.types.is_struct(kind):
        return _write_object(value, kind, is_plain)
    if pa.types.is_list(kind):
        return f"[{','.join(_write(each, kind.value_type, is_plain) for each in value)}]"
    if pa.types.is_map(kind):
        entries = (f"{write_text(name)}:{_write(each, kind.item_type, is_plain)}" for name, each in value)
        return f"{{{','.join(entries)}}}"
    if pa.types.is_timestamp(kind) and not is_plain:
        return f'"{write_time(value)}"'
    if pa.types.is_date(kind) and not is_plain:
        return f'"{write_date(value)}"'
    return str(value)


def _java_decimal(number: Decimal) -> str:
    """Returns a decimal as Java's `BigDecimal.toString` writes it."""
    text = str(number)
    return text if "E" not in text or "E+" in text else text.replace("E-0", "E-")


def _write_float32(number: float) -> str:
    if number != number or number in (float("inf"), float("-inf")):
        return f'"{java_name(number)}"'
    digits = next(
        text for text in (f"{number:.{size}g}" for size in range(1, 18)) if _to_float32(float(text)) == number
    )
    return java_float(digits)
