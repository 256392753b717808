import asyncio
import math

from headrace.console.history import History
from headrace.testing.clock import ManualClock

HOUR_MS = 3_600_000


def store(history: History, everything: bool = True) -> dict[str, bytes | None]:
    stored: dict[str, bytes | None] = {}

    async def put(key: str, value: bytes | None) -> None:
        stored[key] = value

    asyncio.run(history.flush(put, everything=everything))
    return stored


def known(values: list[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def test_recent_points_are_as_fine_as_they_were_recorded() -> None:
    clock = ManualClock(100_000_000)
    history = History(clock, 24)
    for value in range(10):
        history.record("group.lag:g", value)
        clock.advance(10_000)
    now_ms = clock.time_ms()
    points = history.points(["group.lag:g", "group.lag:other"], now_ms - 100_000, now_ms, 300)
    assert points.values["group.lag:g"] == [float(value) for value in range(10)]
    assert len(points.times_ms) == 10
    assert all(math.isnan(value) for value in points.values["group.lag:other"])


def test_older_points_are_averages_of_longer_steps() -> None:
    clock = ManualClock(3_600_000_000)
    history = History(clock, 24)
    for minute in range(24 * 60):
        history.record("group.lag:g", minute)
        clock.advance(60_000)
    now_ms = clock.time_ms()
    values = history.points(["group.lag:g"], now_ms - 24 * HOUR_MS, now_ms, 24).values["group.lag:g"]
    assert len(values) in (24, 25)
    found = known(values)
    assert found == sorted(found)
    assert 0 <= found[0] < 61
    assert found[-1] > 1350
    later = history.points(["group.lag:g"], now_ms, now_ms + HOUR_MS, 10).values["group.lag:g"]
    assert known(later) == []


def test_a_gap_stays_unknown_and_old_values_go() -> None:
    clock = ManualClock(1_000_000_000)
    history = History(clock, 1)
    history.record("messages_in", 5)
    clock.advance(600_000)
    history.record("messages_in", 7)
    now_ms = clock.time_ms() + 10_000
    assert known(history.points(["messages_in"], now_ms - 650_000, now_ms, 100).values["messages_in"]) == [5, 7]
    clock.advance(108_000_000)
    history.record("messages_in", 9)
    now_ms = clock.time_ms() + 10_000
    assert known(history.points(["messages_in"], 0, now_ms, 2000).values["messages_in"]) == [9]


def test_a_clock_that_is_set_back_loses_nothing() -> None:
    clock = ManualClock(1_000_000_000)
    history = History(clock, 1)
    history.record("messages_in", 5)
    clock.now_ms -= 100_000
    history.record("messages_in", 7)
    clock.advance(110_000)
    assert known(history.points(["messages_in"], 999_990_000, clock.time_ms(), 100).values["messages_in"]) == [5]


def test_history_survives_in_the_topic() -> None:
    clock = ManualClock(2_000_000_000)
    history = History(clock, 24)
    for value in range(600):
        history.record("messages_in", value)
        history.record("topic.messages_in:a/b", 1)
        clock.advance(10_000)
    stored = store(history)
    assert all(key.startswith("history/") for key in stored)

    restored = History(clock, 24)
    restored.record("messages_in", 1000)
    for key, value in stored.items():
        restored.restored(key, value)
    now_ms = clock.time_ms() + 10_000
    values = known(restored.points(["messages_in"], now_ms - 6_100_000, now_ms, 1000).values["messages_in"])
    assert values == [*map(float, range(600)), 1000.0]
    assert "topic.messages_in:a/b" in restored


def test_a_record_of_another_console_or_of_nonsense_is_ignored() -> None:
    clock = ManualClock(2_000_000_000)
    history = History(clock, 24)
    for key, value in (
        ("history/messages_in/0", b""),
        ("history/messages_in/0", None),
        ("history/messages_in/0", b"x" * 13),
        ("history/colour/0", b"\x00" * 16),
        ("history/0", b"\x00" * 16),
        ("history/messages_in/0", b"\xff" * 16),
        ("history/messages_in/0", b"\xff" * 7 + b"\x00" + b"\x0a\x00\x00\x00" + b"\x00" * 4),
    ):
        history.restored(key, value)
    assert len(history) == 0


def test_only_what_is_due_is_written() -> None:
    clock = ManualClock(2_000_000_000)
    history = History(clock, 24)
    history.record("messages_in", 1)
    assert store(history, everything=False) == {}
    clock.advance(301_000)
    history.record("messages_in", 2)
    assert len(store(history, everything=False)) >= 1
    assert store(history, everything=False) == {}


def test_unknown_values_are_not_recorded() -> None:
    history = History(ManualClock(1_000_000), 24)
    history.record("messages_in", None)
    history.record("messages_in", math.nan)
    assert len(history) == 0
    history.record("messages_in", 1)
    history.forget(["messages_in", "other"])
    assert history.names() == []
