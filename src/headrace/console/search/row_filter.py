"""Decides about one record at a time: for browsing, for the live tail, and as the reference of `column_filter`.

The text of a key, value or header is what its decoder makes of it. The decoders `auto`, `text` and `json` leave the
bytes as they are; bytes that are not UTF-8 become U+FFFD. If another decoder fails, the field counts as missing.
"""

import json
from array import array
from collections.abc import Sequence

from headrace.console.decoders.decoder import DecodeError, Decoder, to_json_value, to_text
from headrace.console.search.conditions import Condition, JsonPath
from headrace.pipelines._json_fields import FieldFinder

__all__ = ["RowFilter", "parts_at", "text_of"]

Headers = Sequence[tuple[str, bytes | None]]
_RAW = ("auto", "text", "json")


def is_raw(decoder: Decoder) -> bool:
    """Returns True if the text of a decoder is the bytes themselves."""
    return decoder.name in _RAW


def text_of(decoder: Decoder, data: bytes | None) -> str | None:
    """Returns the text that conditions see."""
    if data is None:
        return None
    if is_raw(decoder):
        return data.decode(errors="replace")
    try:
        return to_text(decoder.object_of(data))
    except DecodeError:
        return None


def parts_at(path: JsonPath, text: str | None) -> list[str]:
    """Returns the texts of the parts that a path selects. null is missing."""
    if text is None:
        return []
    if path.members is not None:
        return _field_at(path.members, text.encode())
    try:
        value = to_json_value(json.loads(text))
    except (ValueError, RecursionError, DecodeError):
        return []
    return [_part(part) for part in path.select(value) if part is not None]


def _field_at(members: tuple[str, ...], data: bytes) -> list[str]:
    """Finds a field with the scanner that searches use, so that both have the same opinion of JSON that is not
    valid."""
    ends = memoryview(array("i", (0, len(data))))
    ((field_ends, field, present),) = FieldFinder([members]).find(ends, memoryview(data or b" "), 0, 1)
    size = memoryview(field_ends).cast("i")[1]
    return [bytes(field[:size]).decode(errors="replace")] if present[0] else []


def _part(value: object) -> str:
    return to_text(value)


class RowFilter:
    """The conditions on one record."""

    def __init__(self, conditions: Sequence[Condition], key_decoder: Decoder, value_decoder: Decoder):
        self._conditions = conditions
        self._key_decoder = key_decoder
        self._value_decoder = value_decoder

    def __bool__(self) -> bool:
        return bool(self._conditions)

    def matches(self, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        """Returns True if the record meets all conditions."""
        return all(self._meets(condition, key, value, headers) != condition.negate for condition in self._conditions)

    def _meets(self, condition: Condition, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        if condition.field == "header":
            return self._meets_header(condition, headers)

        def in_key() -> bool:
            return _meets(condition, text_of(self._key_decoder, key))

        def in_value() -> bool:
            return _meets(condition, text_of(self._value_decoder, value))

        if condition.field == "key":
            return in_key()
        if condition.field == "value":
            return in_value()
        return in_key() or in_value()

    def _meets_header(self, condition: Condition, headers: Headers) -> bool:
        values = [value for name, value in headers if condition.header in (None, name)]
        if condition.op == "exists":
            return bool(values)
        if condition.op == "missing":
            return not values
        return any(
            condition.matches_text(None if value is None else value.decode(errors="replace")) for value in values
        )


def _meets(condition: Condition, text: str | None) -> bool:
    if condition.path is None:
        return condition.matches_text(text)
    parts = parts_at(condition.path, text)
    if condition.op in ("exists", "missing"):
        return bool(parts) == (condition.op == "exists")
    return any(condition.matches_text(part) for part in parts)
