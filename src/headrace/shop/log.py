"""Parses `ods_log` (events of the shop's app) and builds one row per item, as Arrow. No Spark import, no state.

A row's value is joined from pieces of JSON that are each built once: the fields that all rows of an event share, the
item's own fields, and the item's origin.
"""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from headrace.pipelines.json_columns import join_pieces, json_members, list_items, read_json, trimmed
from headrace.shop import schemas
from headrace.shop.rejection import NO_VALUE, EventParser, common_reason, has_common_fields
from headrace.shop.row_origin import row_origin

if TYPE_CHECKING:
    import pyarrow as pa

DAY_MS = 86_400_000
_EXPECTED = {
    "ts": "a whole number",
    "common": "an object",
    "start": "an object",
    "start.loading_time": "a whole number",
    "start.open_ad_id": "a whole number",
    "start.open_ad_ms": "a whole number",
    "start.open_ad_skip_ms": "a whole number",
    "page": "an object",
    "page.during_time": "a whole number",
    "displays": "a list of displays",
    "actions": "a list of actions",
    "err": "an object",
    "err.error_code": "a whole number",
}


@cache
def event_schema() -> "pa.Schema":
    """Returns the schema of an event. Text that rows contain trimmed is trimmed when it is read."""
    import pyarrow as pa

    start = [pa.field("entry", pa.string()), *_fields(schemas.START)[1:]]  # errors contain it as it is
    return pa.schema(
        [
            pa.field("event_id", pa.string()),
            pa.field("ts", pa.int64()),
            pa.field("common", pa.struct([trimmed(name) for name in (*schemas.COMMON_FIELDS, "is_new")])),
            pa.field("start", pa.struct(start)),
            pa.field("page", pa.struct(_fields(schemas.PAGE))),
            pa.field("displays", pa.list_(pa.struct(_fields(schemas.DISPLAY, is_trimmed=False)))),
            pa.field("actions", pa.list_(pa.struct(_fields(schemas.ACTION, is_trimmed=False)))),
            pa.field("err", pa.struct(_fields(schemas.ERROR))),
        ]
    )


def _fields(schema: str, is_trimmed: bool = True) -> "list[pa.Field]":
    from headrace.pipelines.sql_schema import parse_sql_schema

    return [
        trimmed(field.name) if is_trimmed and str(field.type) == "string" else field
        for field in parse_sql_schema(schema)
    ]


@cache
def _parser() -> EventParser:
    return EventParser(event_schema(), _EXPECTED)


@dataclass(frozen=True)
class LogEvents:
    """The events of a chunk."""

    event: "pa.StructArray"
    is_valid: "pa.BooleanArray"
    reasons: dict[int, str]
    """Why a record is invalid, by its number."""

    @property
    def claims_to_be_new(self) -> "pa.BooleanArray":
        import pyarrow as pa
        import pyarrow.compute as pc

        flag = pc.ascii_lower(self.event.field("common").field("is_new"))
        return pc.is_in(flag, pa.array(["1", "true"]))

    @property
    def device(self) -> "pa.StringArray":
        return self.event.field("common").field("mid")

    @property
    def day(self) -> "pa.Int64Array":
        """The day of each event, counted from 1970. Valid events are all after it."""
        import pyarrow.compute as pc

        return pc.divide(self.event.field("ts"), DAY_MS)


def parse_log(values: "pa.Array") -> LogEvents:
    """Parses and checks the values of records."""
    import pyarrow.compute as pc

    rows = read_json(values, event_schema(), _parser())
    event = rows.columns
    has_item = pc.or_(event.field("start").is_valid(), event.field("page").is_valid())
    is_valid = pc.and_(pc.and_(has_common_fields(event), has_item), event.field("common").field("mid").is_valid())
    reasons = {}
    for row in pc.indices_nonzero(pc.invert(is_valid)).to_pylist():
        reasons[row] = rows.invalid.get(row) or _reason(event[row].as_py())
    return LogEvents(event, is_valid, reasons)


def _reason(event: dict[str, Any] | None) -> str:
    if event is None:
        return NO_VALUE
    reason = common_reason(event)
    if reason is not None:
        return reason
    if event["common"] is None:
        return "no common"
    return "no mid" if event["common"]["mid"] is None else "neither start nor page"


def log_rows(
    events: LogEvents,
    is_written: "pa.BooleanArray",
    is_new: "pa.BooleanArray",
    partition: int,
    offsets: "pa.Int64Array",
) -> "dict[str, pa.RecordBatch]":
    """Returns the rows (key and value) of the chosen events by topic.

    `is_written`: valid and not a duplicate; `is_new`: the device is new; `offsets`: the offset of each record.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    event = events.event
    common, start, page, error = (_members(event.field(name)) for name in ("common", "start", "page", "err"))
    shared = {name: common[name] for name in schemas.COMMON_FIELDS}
    head = json_members(
        {"event_id": event.field("event_id"), "ts": event.field("ts"), **shared, "is_new": is_new}, opening=b"{"
    )
    page_id = json_members({"page_id": page["page_id"]})
    tail = row_origin(partition, offsets)
    rows: dict[str, pa.RecordBatch] = {}

    def add(topic: str, numbers: "pa.Array", *own: "pa.Array | tuple[pa.Array, pa.Array]") -> None:
        """Adds the rows of the events with these numbers."""
        if len(numbers):
            value = join_pieces((head, numbers), *own, (tail, numbers))
            rows[topic] = pa.record_batch({"key": events.device.take(numbers).cast(pa.binary()), "value": value})

    def add_item(topic: str, name: str, members: "dict[str, pa.Array]", *before: "pa.Array") -> None:
        """Adds a row for each event that has this object."""
        numbers = pc.indices_nonzero(pc.and_(is_written, event.field(name).is_valid())).cast(pa.int32())
        if len(numbers):
            own = json_members({field: values.take(numbers) for field, values in members.items()})
            add(topic, numbers, *((piece, numbers) for piece in before), own)

    def add_list(topic: str, name: str, renamed: "dict[str, str]") -> None:
        """Adds a row for each element of this list."""
        lists = event.field(name)
        items = list_items(lists, is_written)
        members = {renamed.get(field, field): values for field, values in _members(lists.values).items()}
        own = json_members(members)
        seq = json_members({"seq": items.positions})
        add(topic, items.lists, (page_id, items.lists), (own, items.elements), seq)

    add_item(schemas.DWD_START, "start", {**_not_negative(start), "entry": _trim(start["entry"])})
    add_item(schemas.DWD_PAGE, "page", _not_negative(page))
    add_list(schemas.DWD_DISPLAY, "displays", {})
    add_list(schemas.DWD_ACTION, "actions", {"ts": "action_ts"})
    add_item(schemas.DWD_ERROR, "err", {"entry": start["entry"], **_not_negative(error)}, page_id)
    return rows


def _members(struct: "pa.StructArray") -> "dict[str, pa.Array]":
    """Returns the fields of a struct, null where the struct is null."""
    return dict(zip((field.name for field in struct.type), struct.flatten(), strict=True))


def _not_negative(members: "dict[str, pa.Array]") -> "dict[str, pa.Array]":
    """Replaces negative durations and numbers by null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def clean(values: "pa.Array") -> "pa.Array":
        is_number = pa.types.is_integer(values.type)
        return pc.if_else(pc.less(values, 0), None, values) if is_number else values

    return {name: clean(values) for name, values in members.items()}


def _trim(text: "pa.StringArray") -> "pa.StringArray":
    import pyarrow.compute as pc

    text = pc.ascii_trim(text, " ")
    return pc.if_else(pc.equal(text, ""), None, text)
