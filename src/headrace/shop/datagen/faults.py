"""What goes wrong on the way to the topics: events that are broken, come late, or come twice.

Each kind of broken event is one that a pipeline cannot use and must not drop silently: bytes that are no JSON, JSON
that is no event, and events that lack what tells who, what and when.

Pure Python, no I/O.
"""

from collections.abc import Callable, Mapping

from headrace.common.ids import Random
from headrace.shop.datagen.visits import DB, LOG

Broken = Callable[[str, Random], str | bytes | None]
"""From a sound event's JSON to what is sent in its place."""


def _cut_off(value: str, random: Random) -> str:
    return value[: random.randrange(1, len(value))]


def _renamed(field: str) -> Broken:
    return lambda value, _: value.replace(f'"{field}":', f'"x_{field}":', 1)


_EVERYWHERE: Mapping[str, Broken] = {
    "cut off": _cut_off,
    "not text": lambda _, random: b"\xff\xfe" + random.randbytes(60),
    "not JSON": lambda value, _: f"event {value[2:40]}",
    "an array": lambda value, _: f"[{value}]",
    "empty": lambda _value, _: "",
    "null": lambda _value, _: None,
    "no event_id": _renamed("event_id"),
    "no ts": _renamed("ts"),
    "ts is text": lambda value, _: value.replace('"ts":', '"ts":"yesterday","x_ts":', 1),
}

BREAKS: Mapping[int, Mapping[str, Broken]] = {
    LOG: {**_EVERYWHERE, "no mid": _renamed("mid"), "no common": _renamed("common")},
    DB: {**_EVERYWHERE, "no table": _renamed("table"), "no data": _renamed("data")},
}
"""Ways to break an event, by topic and name."""
