"""Parses `ods_db` (row changes of the shop's database) and builds the rows for the topic of each table, as Arrow. No
Spark import, no state.

The change is parsed first, with its row as text. The row is then parsed by the schema of its table. Changes of tables
without a route are counted but not written. They are no errors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from headrace.pipelines.json_columns import join_pieces, json_members, json_text, read_json
from headrace.pipelines.json_tokens import is_single_json_value
from headrace.shop import schemas
from headrace.shop.rejection import NO_VALUE, EventParser, common_reason, has_common_fields, is_blank
from headrace.shop.routes import Route
from headrace.shop.row_origin import row_origin
from headrace.shop.table_rows import TableRows

if TYPE_CHECKING:
    import pyarrow as pa

_EXPECTED = {"ts": "a whole number", "xid": "a whole number"}


@cache
def _schema() -> "pa.Schema":
    import pyarrow as pa

    text = [pa.field(name, pa.string()) for name in ("event_id", "table", "type")]
    numbers = [pa.field(name, pa.int64()) for name in ("ts", "xid")]
    return pa.schema([*text, *numbers, json_text("data"), json_text("old")])


@cache
def _parser() -> EventParser:
    return EventParser(_schema(), _EXPECTED)


class Tables:
    """The tables with a route."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        self.routes = dict(routes)
        self.typed = {
            table: TableRows(table, route.columns) for table, route in routes.items() if route.columns is not None
        }
        self.untyped = frozenset(routes) - frozenset(self.typed)


@dataclass(frozen=True)
class Changes:
    """The changes of a chunk."""

    event: "pa.StructArray"
    is_valid: "pa.BooleanArray"
    reasons: dict[int, str]
    """Why a record is invalid, by its number."""
    rows: "dict[str, tuple[pa.Array, pa.Array]]" = field(default_factory=dict)
    """The rows of each table with a route: the numbers of their changes, and the rows as JSON members."""


def parse_db(values: "pa.Array", tables: Tables) -> Changes:
    """Parses and checks the values of records."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parsed = read_json(values, _schema(), _parser())
    event = parsed.columns
    is_operation = pc.is_in(event.field("type"), pa.array(schemas.OPERATIONS))
    has_table = pc.not_equal(pc.ascii_trim(event.field("table"), " "), "").fill_null(False)
    has_data = pc.starts_with(event.field("data"), "{").fill_null(False)
    is_valid = pc.and_(pc.and_(has_common_fields(event), is_operation), pc.and_(has_table, has_data))
    reasons = {}
    for number in pc.indices_nonzero(pc.invert(is_valid)).to_pylist():
        reasons[number] = parsed.invalid.get(number) or _reason(event[number].as_py())
    rows = {}
    for table, route in tables.routes.items():
        numbers = pc.indices_nonzero(pc.and_(is_valid, pc.equal(event.field("table"), table))).cast(pa.int32())
        if not len(numbers):
            continue
        data = event.field("data").take(numbers)
        if route.columns is None:
            rows[table] = (numbers, json_members({"data": data}, raw=["data"]))
        else:
            members, invalid = tables.typed[table].members(data)
            rows[table] = (numbers, members)
            reasons |= {numbers[row].as_py(): reason for row, reason in invalid.items()}
    for number in parsed.unusual:
        if number not in reasons:
            reason = _text_reason(event[number].as_py(), tables)
            if reason is not None:
                reasons[number] = reason
    if len(reasons) > len(is_valid) - (is_valid.true_count or 0):
        is_valid = pa.array([number not in reasons for number in range(len(is_valid))])
    return Changes(event, is_valid, reasons, rows)


def _reason(event: dict[str, Any] | None) -> str:
    if event is None:
        return NO_VALUE
    reason = common_reason(event)
    if reason is not None:
        return reason
    if is_blank(event["table"]):
        return "no table"
    if is_blank(event["type"]):
        return "no type"
    if event["type"] not in schemas.OPERATIONS:
        return f"type {event['type']} is none of {', '.join(schemas.OPERATIONS)}"
    return "no data" if is_blank(event["data"]) else "data is not an object"


def _text_reason(event: dict[str, Any], tables: Tables) -> str | None:
    """Returns why text that is written as received is not JSON, or None."""
    if event["table"] in tables.untyped and not is_single_json_value(event["data"]):
        return "data is not a JSON object"
    if (event["old"] or "").startswith("{") and not is_single_json_value(event["old"]):
        return "old is not a JSON object"
    return None


def db_rows(
    changes: Changes,
    routes: Mapping[str, Route],
    is_written: "pa.BooleanArray",
    keys: "pa.Array",
    partition: int,
    offsets: "pa.Int64Array",
) -> "dict[str, pa.RecordBatch]":
    """Returns the rows (key and value) of the chosen changes by topic.

    `is_written`: valid and not a duplicate; `keys`, `offsets`: those of the records.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    event = changes.event
    names = {"event_id": "event_id", "ts": "ts", "op": "type", "xid": "xid"}
    head = json_members({name: event.field(source) for name, source in names.items()}, opening=b"{")
    has_old = pc.starts_with(event.field("old"), "{").fill_null(False)
    old = json_members({"old": pc.if_else(has_old, event.field("old"), None)}, raw=["old"])
    tail = row_origin(partition, offsets)
    found: dict[str, list[pa.Table]] = {}
    for table, (numbers, members) in changes.rows.items():
        chosen = is_written.take(numbers)
        numbers, members = numbers.filter(chosen), members.filter(chosen)
        if len(numbers):
            value = join_pieces((head, numbers), members, (old, numbers), (tail, numbers))
            rows = pa.table({"number": numbers, "key": keys.take(numbers), "value": value})
            found.setdefault(routes[table].topic, []).append(rows)
    return {topic: _in_order(tables) for topic, tables in found.items()}


def _in_order(tables: "list[pa.Table]") -> "pa.RecordBatch":
    """Returns the rows of several tables in the order of their changes."""
    import pyarrow as pa

    rows = tables[0] if len(tables) == 1 else pa.concat_tables(tables).sort_by("number")
    rows = rows.drop_columns("number").combine_chunks()
    return pa.record_batch({name: rows[name].chunk(0) for name in rows.column_names})
