"""Why records of the ODS topics are invalid. No Spark import, no state.

Valid records are recognized column by column. Only the others are looked at one by one, to find the reason.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.pipelines.json_rows import ObjectReader, has_value, write_plain
from headrace.pipelines.json_tokens import is_strict_json
from headrace.shop.schemas import EARLIEST_TS, LATEST_TS

if TYPE_CHECKING:
    import pyarrow as pa

NO_VALUE = "no value"


class EventParser:
    """Reads events that are not plain JSON: the fallback of `read_json`.

    `expected`: the types of fields that are not text, by path (`page.during_time`).
    """

    def __init__(self, schema: "pa.Schema", expected: Mapping[str, str]) -> None:
        self._schema = schema
        self._reader = ObjectReader(schema)
        self._expected = expected

    def __call__(self, value: bytes) -> bytes | str:
        row = self.read(value)
        return row if isinstance(row, str) else write_plain(row, self._schema)

    def read(self, value: bytes) -> dict[str, Any] | str:
        """Returns the event, or why it is invalid."""
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return "not UTF-8 text"
        row, fits = self._reader.read(text)
        if fits and row is not None:
            return row
        if not text.strip(" "):
            return "empty value"
        if not is_strict_json(text):
            return "not JSON"
        if not text.lstrip(" ").startswith("{"):
            return "not a JSON object"
        for path, kind in self._expected.items():
            if _get(row, path) is None and has_value(text, *path.split(".")):
                return f"{path} is not {kind}"
        return "a field has a wrong type"


def _get(row: dict[str, Any] | None, path: str) -> Any:
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def has_common_fields(event: "pa.StructArray") -> "pa.BooleanArray":
    """Returns whether each event has an id and a plausible time."""
    import pyarrow.compute as pc

    ts = event.field("ts")
    has_time = pc.and_(pc.greater_equal(ts, EARLIEST_TS), pc.less_equal(ts, LATEST_TS))
    has_id = pc.not_equal(pc.ascii_trim(event.field("event_id"), " "), "")
    return pc.and_(event.is_valid(), pc.and_(has_id, has_time).fill_null(False))


def common_reason(event: Mapping[str, Any]) -> str | None:
    """Returns why an event has no id or no plausible time, or None."""
    ts = event["ts"]
    if is_blank(event["event_id"]):
        return "no event_id"
    if ts is None:
        return "no ts"
    if not EARLIEST_TS <= ts <= LATEST_TS:
        return f"ts {ts} is out of range: expected milliseconds since 1970"
    return None


def is_blank(text: str | None) -> bool:
    return text is None or not text.strip(" ")
