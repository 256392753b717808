"""The history of a partition, checked against an obvious model: a set and a dictionary."""

import random
import zlib
from array import array

import pytest

from headrace.shop.event_history import DUPLICATE, KNOWN_DEVICE, Devices, EventHistory

WINDOW_MS = 40_000
START_MS = 1_767_225_600_000
Visit = tuple[int, int, int, int]
"""Event id, device, day, and whether the device claims to be new."""


def int64s(*numbers: int) -> bytes:
    return array("q", numbers).tobytes()


def mark(history: EventHistory, *numbers: int, at_ms: int = 0) -> list[int]:
    """Adds records with these event ids, all with one timestamp."""
    generations = history.advance(int64s(*[START_MS + at_ms] * len(numbers)))
    return list(history.mark(int64s(*numbers), int64s(*(number * 7 for number in numbers)), generations))


def visit(history: EventHistory, *rows: Visit) -> list[int]:
    numbers, devices, days, new_flags = (int64s(*column) for column in zip(*rows, strict=True))
    generations = history.advance(int64s(*[START_MS] * len(rows)))
    return list(history.mark(numbers, numbers, generations, Devices(devices, days, new_flags)))


def pass_time(history: EventHistory, to_ms: int) -> None:
    """Adds so many records without valid events that the log time arrives at this time."""
    history.advance(int64s(*[START_MS + to_ms] * 31))


@pytest.fixture
def history() -> EventHistory:
    return EventHistory(WINDOW_MS)


def test_marks_all_copies_but_the_first(history: EventHistory) -> None:
    assert mark(history, 1, 2, 1, 3) == [0, 0, DUPLICATE, 0]
    assert mark(history, 4, 3, 2, 4) == [0, DUPLICATE, DUPLICATE, DUPLICATE]
    assert history.events == 4


def test_ids_that_share_half_of_their_hash_differ(history: EventHistory) -> None:
    generations = history.advance(int64s(*[START_MS] * 5))
    marks = history.mark(int64s(5, 5, 0, 0, 0), int64s(1, 2, 9, 0, 0), generations)
    assert list(marks) == [0, 0, 0, 0, DUPLICATE]


def test_no_records(history: EventHistory) -> None:
    assert mark(history) == []
    assert history.take_delta() == b""


def test_an_id_is_remembered_for_the_window_and_then_forgotten(history: EventHistory) -> None:
    mark(history, 1)
    for at_ms in range(0, WINDOW_MS, 1000):
        pass_time(history, at_ms)
    assert mark(history, 1, at_ms=WINDOW_MS) == [DUPLICATE]
    for at_ms in range(WINDOW_MS, WINDOW_MS * 3, 1000):
        pass_time(history, at_ms)
    assert mark(history, 1, at_ms=WINDOW_MS * 3) == [0]
    assert history.events == 1


def test_a_gap_in_the_log_forgets_nothing_at_once(history: EventHistory) -> None:
    mark(history, 1, 2)
    assert mark(history, 2, 3, at_ms=WINDOW_MS * 100) == [DUPLICATE, 0]
    pass_time(history, WINDOW_MS * 100 + 1000)
    assert mark(history, 1, 3, at_ms=WINDOW_MS * 100 + 1000) == [DUPLICATE, DUPLICATE]


def test_a_few_records_from_the_future_change_nothing(history: EventHistory) -> None:
    pass_time(history, 0)
    mark(history, 1)
    for number in range(1000):
        at_ms = 10**12 if number % 3 == 0 else 0
        mark(history, 10 + number, at_ms=at_ms)
    assert mark(history, 1) == [DUPLICATE]


def test_time_that_goes_far_back_does_not_keep_ids_forever(history: EventHistory) -> None:
    pass_time(history, 10**10)
    for number in range(200):
        pass_time(history, number * 1000)
        mark(history, number, at_ms=number * 1000)
    assert history.events < 60, "a window of 40 s, and a part of the generation before it"


def test_records_without_timestamps_do_not_change_the_time(history: EventHistory) -> None:
    mark(history, 1)
    history.advance(int64s(*[-1] * 100))
    assert mark(history, 1) == [DUPLICATE]


def test_marks_devices_that_are_not_new(history: EventHistory) -> None:
    assert visit(history, (1, 100, 5, 1), (2, 200, 5, 0), (3, 200, 5, 1)) == [0, 0, KNOWN_DEVICE]
    assert visit(history, (4, 100, 5, 1), (5, 100, 6, 1), (6, 300, 6, 1)) == [0, KNOWN_DEVICE, 0]
    assert visit(history, (6, 400, 7, 1)) == [DUPLICATE], "the device of a duplicate does not count"
    assert history.devices == 3


def test_agrees_with_a_model() -> None:
    rng = random.Random(4)
    history = EventHistory(WINDOW_MS)
    seen: set[int] = set()
    first_days: dict[int, int] = {}
    for _ in range(200):
        rows = [
            (rng.randrange(500), rng.randrange(40), rng.randrange(10), rng.randrange(2))
            for _ in range(rng.randrange(1, 20))
        ]
        expected = []
        for number, device, day, is_new in rows:
            if number in seen:
                expected.append(DUPLICATE)
                continue
            seen.add(number)
            before = first_days.get(device, day)
            first_days[device] = min(first_days.get(device, day), day if is_new else day - 1)
            expected.append(KNOWN_DEVICE if is_new and before < day else 0)
        assert visit(history, *rows) == expected


def run(history: EventHistory, rng: random.Random, chunks: int) -> list[list[int]]:
    """Adds random chunks, with time that moves on."""
    found = []
    for _ in range(chunks):
        count = rng.randrange(0, 30)
        times = [START_MS + rng.randrange(-5000, 5000) + history.events * 100 for _ in range(count)]
        numbers = [rng.randrange(1, 300) for _ in range(count)]
        devices = Devices(int64s(*numbers), int64s(*[rng.randrange(9) for _ in numbers]), int64s(*[1] * count))
        marks = history.mark(int64s(*numbers), int64s(*numbers), history.advance(int64s(*times)), devices)
        found.append(list(marks))
    return found


def test_deltas_and_snapshots_restore_the_state() -> None:
    for seed in range(20):
        original, rng = EventHistory(WINDOW_MS), random.Random(seed)
        snapshot, deltas = b"", []
        for step in range(10):
            run(original, rng, rng.randrange(3))
            deltas.append(original.take_delta())
            if step == 4:
                snapshot, deltas = original.snapshot(), []
        copy = EventHistory(WINDOW_MS)
        copy.restore(snapshot)
        for delta in deltas:
            copy.apply_delta(delta)
        assert (copy.events, copy.devices) == (original.events, original.devices)
        assert copy.take_delta() == b"", "applied deltas are not written again"
        assert run(copy, random.Random(-seed), 5) == run(original, random.Random(-seed), 5)
        assert copy.take_delta() == original.take_delta()


def test_a_delta_contains_only_changes(history: EventHistory) -> None:
    mark(history, *range(1000))
    assert len(history.take_delta()) > 16_000
    pass_time(history, 0)
    history.take_delta()
    assert history.take_delta() == b""
    mark(history, 5)
    assert len(history.take_delta()) < 500, "the time, but no ids"


def test_merging_keeps_what_both_partitions_know() -> None:
    one, other = EventHistory(WINDOW_MS), EventHistory(WINDOW_MS)
    visit(one, (1, 100, 5, 1), (2, 200, 3, 1))
    pass_time(other, WINDOW_MS * 50)
    mark(other, 3, at_ms=WINDOW_MS * 50)
    visit(other, (9, 100, 2, 1))
    one.merge(other)
    assert one.devices == 2
    assert mark(one, 1, 2, 3, 4, at_ms=WINDOW_MS * 50) == [0, 0, DUPLICATE, 0], "ids of `visit` and `mark` differ"
    assert visit(one, (1, 100, 3, 1), (10, 100, 3, 1)) == [DUPLICATE, KNOWN_DEVICE]
    merged = EventHistory(WINDOW_MS)
    merged.restore(one.snapshot())
    assert (merged.events, merged.devices) == (one.events, one.devices)


def test_damaged_state_is_rejected(history: EventHistory) -> None:
    mark(history, 1, 2, 3)
    snapshot = history.snapshot()
    for damaged in (snapshot[:-1], snapshot[:50] + b"\x01" + snapshot[51:], b"x" * 10):
        with pytest.raises(ValueError, match="checksum"):
            EventHistory(WINDOW_MS).restore(damaged)
    other_format = b"\x07" + snapshot[1:-4]
    other_format += zlib.crc32(other_format).to_bytes(4, "little")
    with pytest.raises(ValueError, match="format 7"):
        EventHistory(WINDOW_MS).restore(other_format)
    with pytest.raises(ValueError, match="empty history"):
        history.restore(snapshot)


def test_memory_per_event_and_device(history: EventHistory) -> None:
    count = 200_000
    numbers = array("q", (number * 0x9E3779B97F4A7C1 % (1 << 63) for number in range(1, count + 1)))
    generations = history.advance(int64s(*[START_MS] * count))
    devices = Devices(numbers, int64s(*[1] * count), int64s(*[1] * count))
    history.mark(numbers, numbers, generations, devices)
    assert history.size_bytes / count < 43 + 32


def test_window_must_not_be_too_short() -> None:
    with pytest.raises(ValueError, match="too short"):
        EventHistory(3)
