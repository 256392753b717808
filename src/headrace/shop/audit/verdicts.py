"""Judges the records of the ODS topics without Spark: sound, broken, or unclear.

A record is sound here only if every strict reader of JSON would agree, and broken only if every tolerant reader would.
Everything in between (single quotes, numbers as text, duplicate names, extreme numbers, ...) is unclear. The format
leaves such records to Spark's parser, so Spark judges them (`expected`). In generated events nothing is unclear.

Uses only the formats and routes and no code of the pipeline. Pure Python.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.shop import schemas
from headrace.shop.routes import Route

__all__ = ["Judge", "Verdict", "judge_db", "judge_log"]


class Verdict(NamedTuple):
    """The verdict on a record: why it is broken, or the rows that it requires."""

    problem: str | None
    event_id: str = ""
    key: str | None = None
    """The key that its rows must have."""
    rows: tuple[tuple[str, int], ...] = ()
    """The number of rows by output topic."""


Judge = Callable[[bytes | None, bytes | None], Verdict | None]
"""Returns the verdict on a record with this key and value, or None if it is unclear."""
Check = Callable[[Any], bool]

_MAX_BYTES = 16_384
_MAX_NESTED = 400
_INT64 = 1 << 63
_INT32 = 1 << 31
_UNCLEAR = (b"\\ud", b"\\uD", b"_corrupt")
"""Surrogates, and the name of the column where Spark puts invalid events."""
_DIGITS = bytes(ord("0") if 48 <= byte <= 57 else byte for byte in range(256))
_LONG_NUMBER = b"0" * 19
"""Whole numbers without so many digits fit into 64 bits."""
_MAX_SHAPES = 10_000
_shapes: set[tuple[object, ...]] = set()
"""Names and types of fields that were checked before, and passed. Only a cache."""
_TOLERATED = re.compile(rb"'|[:,\[]\s*[-+]?(NaN|I[nN][fF])")
"""What tolerant readers of JSON accept."""
_TIME = re.compile(r"[1-9]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8]) ([01]\d|2[0-3]):[0-5]\d:[0-5]\d")
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_COLUMN = re.compile(r"\s*(\w+)\s+(BIGINT|INT|STRING|DOUBLE|TIMESTAMP|DECIMAL\(\d+,\d+\))\s*")


class _UnclearError(Exception):
    """The verdict on a record depends on the reader."""


def judge_log(_key: bytes | None, value: bytes | None) -> Verdict | None:
    """Judges a record of `ods_log`."""
    try:
        event = _parse(value)
        if isinstance(event, Verdict):
            return event
        common = _struct(event, "common", _COMMON) or {}
        if not (common.get("mid") or "").strip(" "):
            return Verdict("no mid")
        start, page, error = (_struct(event, name, checks) for name, checks in _STRUCTS)
        if start is None and page is None:
            return Verdict("neither start nor page")
        displays, actions = (_count(event, name, checks) for name, checks in _LISTS)
    except _UnclearError:
        return None
    counts = (start is not None, page is not None, displays, actions, error is not None)
    rows = tuple((topic, int(count)) for topic, count in zip(schemas.LOG_TOPICS, counts, strict=True) if count)
    return Verdict(None, event["event_id"], common["mid"].strip(" "), rows)


def judge_db(routes: Mapping[str, Route]) -> Judge:
    """Returns the judge of the records of `ods_db`."""
    tables = {table: (route.topic, _columns(route.columns)) for table, route in routes.items()}

    def judge(key: bytes | None, value: bytes | None) -> Verdict | None:
        try:
            event = _parse(value)
            if isinstance(event, Verdict):
                return event
            _check(event, _CHANGE)
            table, data, old = event.get("table"), event.get("data"), event.get("old")
            if not (table or "").strip(" "):
                return Verdict("no table")
            if event.get("type") not in schemas.OPERATIONS:
                return Verdict("no such type")
            if data is None:
                return Verdict("no data")
            if not isinstance(data, dict) or not (old is None or isinstance(old, dict)):
                return None
            topic, columns = tables.get(str(table), ("", {}))
            if columns is None:
                return None
            _check(data, columns)
            text = None if key is None else key.decode()
        except (_UnclearError, UnicodeDecodeError):
            return None
        return Verdict(None, event["event_id"], text, ((topic, 1),) if topic else ())

    return judge


def _parse(value: bytes | None) -> dict[str, Any] | Verdict:
    """Returns the event, or the verdict on a value without the fields that all events have."""
    if value is None or not value.lstrip(b" ").startswith(b"{"):
        return Verdict("not a JSON object")
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return Verdict("not a JSON object")
    if len(value) > _MAX_BYTES or value.count(b"{") + value.count(b"[") > _MAX_NESTED:
        raise _UnclearError
    if any(part in value for part in _UNCLEAR) or _LONG_NUMBER in value.translate(_DIGITS):
        raise _UnclearError
    try:
        event = _decode(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" or _TOLERATED.search(value):
            raise _UnclearError from None
        return Verdict("does not fit the format")
    event_id, ts = event.get("event_id"), event.get("ts")
    if event_id is None or (isinstance(event_id, str) and not event_id.strip(" ")):
        return Verdict("no event_id")
    if ts is None or isinstance(ts, str) or (type(ts) is int and not schemas.EARLIEST_TS <= ts <= schemas.LATEST_TS):
        return Verdict("no usable ts")
    if type(ts) is not int or not isinstance(event_id, str):
        raise _UnclearError
    assert isinstance(event, dict)
    return event


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(members)
    if len(fields) != len(members):
        raise _UnclearError  # duplicate names
    return fields


def _constant(_name: str) -> None:
    raise _UnclearError


_decode = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant).decode


# ---- types


def _is_text(value: Any) -> bool:
    return value is None or type(value) is str


def _is_long(value: Any) -> bool:
    return value is None or (type(value) is int and -_INT64 <= value < _INT64)


def _is_int(value: Any) -> bool:
    return value is None or (type(value) is int and -_INT32 <= value < _INT32)


def _is_number(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and abs(value) < 1e13)


def _is_time(value: Any) -> bool:
    return value is None or (type(value) is str and _TIME.fullmatch(value) is not None)


def _check(fields: Mapping[str, Any], checks: Mapping[str, Check]) -> None:
    for name, check in checks.items():
        if name in fields and not check(fields[name]):
            raise _UnclearError


def _check_types(fields: Mapping[str, Any], checks: Mapping[str, Check]) -> None:
    """Like `_check`, for checks that depend only on the types of fields."""
    shape = (id(checks), *fields, *map(type, fields.values()))
    if shape not in _shapes:
        _check(fields, checks)
        if len(_shapes) < _MAX_SHAPES:
            _shapes.add(shape)


def _struct(event: Mapping[str, Any], name: str, checks: Mapping[str, Check]) -> dict[str, Any] | None:
    fields = event.get(name)
    if fields is None:
        return None
    if not isinstance(fields, dict):
        raise _UnclearError
    _check_types(fields, checks)
    return fields


def _count(event: Mapping[str, Any], name: str, checks: Mapping[str, Check]) -> int:
    elements = event.get(name)
    if elements is None:
        return 0
    if not isinstance(elements, list):
        raise _UnclearError
    for element in elements:
        if element is None:
            continue
        if not isinstance(element, dict):
            raise _UnclearError
        _check_types(element, checks)
    return len(elements)


def _checks(schema: str) -> dict[str, Check]:
    """Returns a check for each column of a schema of the format: text and whole numbers."""
    members = (member.replace("`", "").split() for member in schema.split(","))
    return {name: _is_text if kind == "STRING" else _is_long for name, kind in members}


def _columns(schema: str | None) -> dict[str, Check] | None:
    """Returns a check for each column of a route, or None if a type is unclear."""
    checks: dict[str, Check] = {}
    for column in _split(schema) if schema else ():
        found = _COLUMN.fullmatch(column)
        if found is None:
            return None
        name, kind = found.groups()
        decimal = _DECIMAL.fullmatch(kind)
        if decimal is not None and int(decimal[1]) - int(decimal[2]) < 13:
            return None
        checks[name] = _is_number if decimal is not None else _TYPES[kind]
    return checks


def _split(schema: str) -> Sequence[str]:
    """Splits a schema at the commas between columns."""
    return re.split(r",(?![^(]*\))", schema)


_TYPES: Mapping[str, Check] = {
    "BIGINT": _is_long,
    "INT": _is_int,
    "STRING": _is_text,
    "DOUBLE": _is_number,
    "TIMESTAMP": _is_time,
}
_COMMON: Mapping[str, Check] = dict.fromkeys((*schemas.COMMON_FIELDS, "is_new"), _is_text)
_STRUCTS = (
    ("start", _checks(schemas.START)),
    ("page", _checks(schemas.PAGE)),
    ("err", _checks(schemas.ERROR)),
)
_LISTS = (("displays", _checks(schemas.DISPLAY)), ("actions", _checks(schemas.ACTION)))
_CHANGE: Mapping[str, Check] = {
    **dict.fromkeys(("database", "table", "type"), _is_text),
    "xid": _is_long,
}
