"""Faults on the way to the topics: broken, late and duplicate events.

Every kind of broken event is unusable for a pipeline, which must not drop it silently: bytes that are not JSON, JSON
that is not an event, and events without an id, a device or a time.

Pure Python, no I/O.
"""

from collections.abc import Callable, Mapping

from headrace.common.ids import Random
from headrace.shop.datagen.visits import DB, LOG

Breaker = Callable[[str, Random], str | bytes | None]
"""Turns the JSON of a valid event into the value that is sent instead."""


def _truncate(value: str, random: Random) -> str:
    return value[: random.randrange(1, len(value))]


def _rename(field: str) -> Breaker:
    return lambda value, _: value.replace(f'"{field}":', f'"x_{field}":', 1)


_COMMON_BREAKS: Mapping[str, Breaker] = {
    "cut off": _truncate,
    "not text": lambda _, random: b"\xff\xfe" + random.randbytes(60),
    "not JSON": lambda value, _: f"event {value[2:40]}",
    "an array": lambda value, _: f"[{value}]",
    "empty": lambda _value, _: "",
    "null": lambda _value, _: None,
    "no event_id": _rename("event_id"),
    "no ts": _rename("ts"),
    "ts is text": lambda value, _: value.replace('"ts":', '"ts":"yesterday","x_ts":', 1),
}

BREAKS: Mapping[int, Mapping[str, Breaker]] = {
    LOG: {**_COMMON_BREAKS, "no mid": _rename("mid"), "no common": _rename("common")},
    DB: {**_COMMON_BREAKS, "no table": _rename("table"), "no data": _rename("data")},
}
"""Ways to break an event, by topic and name."""
