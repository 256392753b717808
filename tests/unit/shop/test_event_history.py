"""The event history, checked against an obvious model: a set, a dictionary, and files in memory."""

import random
import struct
import zlib
from array import array
from dataclasses import replace

import pytest

from headrace.shop.event_history import DUPLICATE, KNOWN_DEVICE, EventColumns, EventHistory
from headrace.testing.clock import ManualClock

WINDOW_MS = 40_000


class FilesInMemory:
    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def list(self) -> list[str]:
        return sorted(self.content)

    def load(self, name: str) -> bytes:
        return self.content[name]

    def store(self, name: str, content: bytes) -> None:
        assert name not in self.content
        self.content[name] = content

    def remove(self, name: str) -> None:
        self.content.pop(name, None)


def int64s(*numbers: int) -> bytes:
    return array("q", numbers).tobytes()


def ids(*numbers: int) -> EventColumns:
    return EventColumns(int64s(*numbers), int64s(*(number * 7 for number in numbers)))


def at(newest_ms: int, *numbers: int) -> EventColumns:
    """Events whose newest timestamp is this long after the clock's start."""
    return replace(ids(*numbers), newest_ms=ManualClock().time_ms() + newest_ms)


def visits(*rows: tuple[int, int, int, int]) -> EventColumns:
    """Rows of event id, device, day, and whether the device claims to be new."""
    numbers, devices, days, new_flags = (int64s(*column) for column in zip(*rows, strict=True))
    return EventColumns(numbers, numbers, devices, days, new_flags)


@pytest.fixture
def files() -> FilesInMemory:
    return FilesInMemory()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def history(files: FilesInMemory, clock: ManualClock) -> EventHistory:
    clock.advance(WINDOW_MS * 1000)
    return EventHistory(files, WINDOW_MS, clock)


def test_marks_all_copies_but_the_first(history: EventHistory) -> None:
    assert history.mark_batch(0, ids(1, 2, 1, 3)) == bytes([0, 0, DUPLICATE, 0])
    assert history.mark_batch(1, ids(4, 3, 2, 4)) == bytes([0, DUPLICATE, DUPLICATE, DUPLICATE])
    assert history.events == 4


def test_ids_that_share_half_of_their_hash_differ(history: EventHistory) -> None:
    assert history.mark_batch(0, EventColumns(int64s(5, 5, 0, 0, 0), int64s(1, 2, 9, 0, 0))) == bytes(
        [0, 0, 0, 0, DUPLICATE]
    )
    assert history.mark_batch(1, EventColumns(int64s(5, 0), int64s(3, 0))) == bytes([0, DUPLICATE])


def test_batch_without_events(history: EventHistory) -> None:
    assert history.mark_batch(0, ids()) == b""
    assert history.mark_batch(1, ids(1)) == bytes([0])


def test_events_expire_after_the_window(history: EventHistory, files: FilesInMemory) -> None:
    history.mark_batch(0, at(0, 1))
    assert history.mark_batch(1, at(WINDOW_MS - 1000, 1, 2)) == bytes([DUPLICATE, 0])
    history.mark_batch(2, at(WINDOW_MS * 3 // 2))
    assert history.mark_batch(3, at(WINDOW_MS * 3 // 2, 1, 2)) == bytes([0, DUPLICATE])
    history.mark_batch(4, at(WINDOW_MS * 10, 7))
    history.mark_batch(5, at(WINDOW_MS * 10, 8))
    history.mark_batch(6, at(WINDOW_MS * 10, 9))
    assert files.list() == [f"batch-00000000000{number}" for number in (4, 5, 6)]
    assert history.events == 3


def test_events_expire_by_log_time(files: FilesInMemory, clock: ManualClock) -> None:
    EventHistory(files, WINDOW_MS, clock).mark_batch(0, at(0, 1))
    clock.advance(WINDOW_MS * 100)
    history = EventHistory(files, WINDOW_MS, clock)
    assert history.mark_batch(1, at(1000, 1, 2)) == bytes([DUPLICATE, 0]), (
        "the pipeline was down for long, but only a second passed in the log"
    )
    clock.advance(WINDOW_MS * 100)
    assert history.mark_batch(2, at(2000, 2, 3)) == bytes([DUPLICATE, 0]), (
        "the clock moved far, but only a second passed in the log"
    )
    many = at(WINDOW_MS * 100, 3, 4)
    assert history.mark_batch(3, many) == bytes([DUPLICATE, 0]), (
        "the batch spans many windows, but begins where the last one ended"
    )
    assert EventHistory(files, WINDOW_MS, clock).mark_batch(3, many) == bytes([DUPLICATE, 0]), "replayed"
    assert history.mark_batch(4, at(3000, 1, 4)) == bytes([0, DUPLICATE]), "log time does not go back"
    assert EventHistory(files, WINDOW_MS, clock).mark_batch(5, at(3000, 4)) == bytes([DUPLICATE])


def test_log_time_of_missing_and_future_timestamps(files: FilesInMemory, clock: ManualClock) -> None:
    history = EventHistory(files, WINDOW_MS, clock)
    assert history.mark_batch(0, ids()) == b"", "an empty batch does not move log time"
    history.mark_batch(1, at(-WINDOW_MS * 9, 1))
    history.mark_batch(2, ids())
    history.mark_batch(3, at(WINDOW_MS * 100, 2))
    assert history.mark_batch(4, at(0, 2, 1)) == bytes([DUPLICATE, 0]), "log time does not pass the clock"
    clock.advance(WINDOW_MS * 2)
    history.mark_batch(5, ids(7))
    assert history.mark_batch(6, ids(2, 7)) == bytes([0, DUPLICATE]), "records without timestamps use the clock"
    no_timestamp = EventColumns(int64s(8), int64s(8), newest_ms=-1)
    clock.advance(WINDOW_MS * 2)
    history.mark_batch(7, no_timestamp)
    assert history.mark_batch(8, ids(7)) == bytes([0])


def test_replay_returns_the_same_marks(files: FilesInMemory, clock: ManualClock) -> None:
    history = EventHistory(files, WINDOW_MS, clock)
    history.mark_batch(0, visits((1, 100, 20, 0), (2, 200, 20, 1)))
    clock.advance(WINDOW_MS * 10)
    batch = visits((1, 100, 20, 0), (3, 100, 20, 1), (4, 200, 21, 1))
    first = history.mark_batch(1, batch)
    assert first == bytes([DUPLICATE, KNOWN_DEVICE, KNOWN_DEVICE])
    assert history.mark_batch(1, batch) == first, "in the same process"
    clock.advance(WINDOW_MS * 10)
    again = EventHistory(files, WINDOW_MS, clock)
    assert again.mark_batch(1, batch) == first, "long after, in a new process"
    more = visits((4, 200, 21, 0), (5, 200, 21, 0))
    assert again.mark_batch(2, more) == bytes([DUPLICATE, 0])
    assert again.mark_batch(3, more) == bytes([0, DUPLICATE]), "log time continues after the replay"


def test_window_may_change_between_runs(files: FilesInMemory, clock: ManualClock) -> None:
    EventHistory(files, WINDOW_MS, clock).mark_batch(0, ids(1))
    clock.advance(WINDOW_MS)
    longer = EventHistory(files, WINDOW_MS * 10, clock)
    assert longer.mark_batch(1, ids(1, 2)) == bytes([DUPLICATE, 0])
    clock.advance(WINDOW_MS * 20)
    longer.mark_batch(2, ids(3))
    assert longer.mark_batch(3, ids(1, 2)) == bytes([0, 0])
    shorter = EventHistory(files, WINDOW_MS // 10, clock)
    assert shorter.mark_batch(4, ids(1)) == bytes([DUPLICATE])
    clock.advance(WINDOW_MS)
    shorter.mark_batch(5, ids(3))
    assert shorter.mark_batch(6, ids(1)) == bytes([0])


def test_batch_without_a_file_is_not_a_replay(files: FilesInMemory, clock: ManualClock) -> None:
    history = EventHistory(files, WINDOW_MS, clock)
    history.mark_batch(0, ids(1))
    history.mark_batch(1, ids(2))
    del files.content["batch-000000000001"]
    assert EventHistory(files, WINDOW_MS, clock).mark_batch(1, ids(2, 1)) == bytes([0, DUPLICATE])


def test_marks_known_devices_that_claim_to_be_new(history: EventHistory) -> None:
    assert history.mark_batch(0, visits((1, 100, 20, 1), (2, 200, 20, 0))) == bytes([0, 0])
    rows = [
        ((3, 100, 20, 1), 0),  # still its first day
        ((4, 100, 21, 1), KNOWN_DEVICE),
        ((5, 100, 21, 0), 0),
        ((6, 200, 20, 1), KNOWN_DEVICE),  # its first event did not claim to be new
        ((7, 300, 21, 1), 0),
        ((8, 300, 20, 1), 0),  # late: moves the first day back
        ((9, 300, 21, 1), KNOWN_DEVICE),
        ((9, 300, 22, 1), DUPLICATE),  # duplicates do not count
    ]
    assert history.mark_batch(1, visits(*(row for row, _ in rows))) == bytes(mark for _, mark in rows)
    assert history.devices == 3


def test_marks_do_not_depend_on_batch_boundaries(clock: ManualClock) -> None:
    chance = random.Random(6)
    rows = [
        (chance.randrange(4000), chance.randrange(300), chance.randrange(20, 24), chance.randrange(2))
        for _ in range(5000)
    ]
    whole = EventHistory(FilesInMemory(), WINDOW_MS, clock).mark_batch(0, visits(*rows))
    seen: set[int] = set()
    first: dict[int, int] = {}
    for (number, device, day, new_flag), mark in zip(rows, whole, strict=True):
        expected = DUPLICATE if number in seen else 0
        if not expected:
            expected = KNOWN_DEVICE if new_flag and first.get(device, day) < day else 0
            day_if_first = day if new_flag else day - 1
            first[device] = min(first.get(device, day_if_first), day_if_first)
        seen.add(number)
        assert mark == expected
    for size in (1, 7, 1000):
        files = FilesInMemory()
        history = EventHistory(files, WINDOW_MS, clock)
        marks = bytearray()
        for batch_id, first_row in enumerate(range(0, min(len(rows), size * 100), size)):
            if batch_id % 3 == 0:
                history = EventHistory(files, WINDOW_MS, clock)
            marks += history.mark_batch(batch_id, visits(*rows[first_row : first_row + size]))
        assert marks == whole[: len(marks)]


def test_snapshot_keeps_first_days_beyond_the_window(
    files: FilesInMemory, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.shop.event_history._DEVICES_BEFORE_SNAPSHOT", 4)
    history = EventHistory(files, WINDOW_MS, clock)
    for batch_id in range(12):
        history.mark_batch(batch_id, visits((batch_id, batch_id % 6, 20, 1), (100 + batch_id, 7 + batch_id % 6, 20, 0)))
        clock.advance(WINDOW_MS)
    names = files.list()
    assert sum(name.startswith("devices-") for name in names) == 1
    assert sum(name.startswith("batch-") for name in names) < 10
    again = EventHistory(files, WINDOW_MS, clock)
    rows = [(200 + device, device, 21, 1) for device in range(13)]
    expected = bytes([KNOWN_DEVICE] * 6 + [0] + [KNOWN_DEVICE] * 6)
    assert again.mark_batch(12, visits(*rows)) == expected
    assert EventHistory(files, WINDOW_MS, clock).mark_batch(12, visits(*rows)) == expected, "replayed"
    assert again.mark_batch(13, visits((300, 6, 22, 1))) == bytes([KNOWN_DEVICE])


def test_ignores_snapshots_newer_than_the_batch(files: FilesInMemory, clock: ManualClock) -> None:
    history = EventHistory(files, WINDOW_MS, clock)
    history.mark_batch(0, visits((1, 100, 20, 0)))
    files.store("devices-000000000001", b"of a later batch")
    assert EventHistory(files, WINDOW_MS, clock).mark_batch(1, visits((2, 100, 20, 1))) == bytes([KNOWN_DEVICE])


def test_rejects_damaged_files(files: FilesInMemory, clock: ManualClock) -> None:
    EventHistory(files, WINDOW_MS, clock).mark_batch(0, ids(1, 2, 3))
    whole = files.content["batch-000000000000"]
    for broken in (whole[:-1], whole[:10], b"", whole[:50] + bytes([whole[50] ^ 1]) + whole[51:]):
        files.content["batch-000000000000"] = broken
        with pytest.raises(ValueError, match="batch-000000000000 is damaged"):
            EventHistory(files, WINDOW_MS, clock).mark_batch(1, ids(1))
    other = struct.pack("<Q", 9) + whole[8:-4]
    files.content["batch-000000000000"] = other + struct.pack("<I", zlib.crc32(other))
    with pytest.raises(ValueError, match="format 9; expected 1"):
        EventHistory(files, WINDOW_MS, clock).mark_batch(1, ids(1))


def test_many_ids(history: EventHistory) -> None:
    chance = random.Random(1)
    numbers = [chance.getrandbits(63) for _ in range(100_000)]
    assert not any(history.mark_batch(0, ids(*[number // 7 for number in numbers])))
    assert all(history.mark_batch(1, ids(*[number // 7 for number in numbers])))
    assert history.events == 100_000
    assert history.size_bytes < 100_000 * 50


def test_rejects_buffers_of_different_lengths(history: EventHistory) -> None:
    with pytest.raises(ValueError, match="expected equal lengths"):
        history.mark_batch(0, EventColumns(int64s(1, 2), int64s(1)))
