"""What flows remember, against an obvious model: a set, a dictionary, and files in memory."""

import random
import struct
import zlib
from array import array
from dataclasses import replace

import pytest

from headrace.shop.memory import DUPLICATE, KNOWN, Memory, Sightings
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


def longs(*numbers: int) -> bytes:
    return array("q", numbers).tobytes()


def ids(*numbers: int) -> Sightings:
    return Sightings(longs(*numbers), longs(*(number * 7 for number in numbers)))


def at(newest_ms: int, *numbers: int) -> Sightings:
    """So long after the clock's beginning."""
    return replace(ids(*numbers), newest_ms=ManualClock().time_ms() + newest_ms)


def visits(*rows: tuple[int, int, int, int]) -> Sightings:
    """Id, device, day, whether it says that it is new."""
    numbers, devices, days, claims = (longs(*column) for column in zip(*rows, strict=True))
    return Sightings(numbers, numbers, devices, days, claims)


@pytest.fixture
def files() -> FilesInMemory:
    return FilesInMemory()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def memory(files: FilesInMemory, clock: ManualClock) -> Memory:
    clock.advance(WINDOW_MS * 1000)
    return Memory(files, WINDOW_MS, clock)


def test_the_first_copy_stands(memory: Memory) -> None:
    assert memory.judge(0, ids(1, 2, 1, 3)) == bytes([0, 0, DUPLICATE, 0])
    assert memory.judge(1, ids(4, 3, 2, 4)) == bytes([0, DUPLICATE, DUPLICATE, DUPLICATE])
    assert memory.events == 4


def test_ids_that_share_half_of_their_hash_are_two(memory: Memory) -> None:
    assert memory.judge(0, Sightings(longs(5, 5, 0, 0, 0), longs(1, 2, 9, 0, 0))) == bytes([0, 0, 0, 0, DUPLICATE])
    assert memory.judge(1, Sightings(longs(5, 0), longs(3, 0))) == bytes([0, DUPLICATE])


def test_a_batch_without_events(memory: Memory) -> None:
    assert memory.judge(0, ids()) == b""
    assert memory.judge(1, ids(1)) == bytes([0])


def test_what_is_older_than_the_window_is_forgotten(memory: Memory, files: FilesInMemory) -> None:
    memory.judge(0, at(0, 1))
    assert memory.judge(1, at(WINDOW_MS - 1000, 1, 2)) == bytes([DUPLICATE, 0])
    memory.judge(2, at(WINDOW_MS * 3 // 2))
    assert memory.judge(3, at(WINDOW_MS * 3 // 2, 1, 2)) == bytes([0, DUPLICATE])
    memory.judge(4, at(WINDOW_MS * 10, 7))
    memory.judge(5, at(WINDOW_MS * 10, 8))
    memory.judge(6, at(WINDOW_MS * 10, 9))
    assert files.list() == [f"batch-00000000000{number}" for number in (4, 5, 6)]
    assert memory.events == 3


def test_time_is_that_of_the_log(files: FilesInMemory, clock: ManualClock) -> None:
    Memory(files, WINDOW_MS, clock).judge(0, at(0, 1))
    clock.advance(WINDOW_MS * 100)
    memory = Memory(files, WINDOW_MS, clock)
    assert memory.judge(1, at(1000, 1, 2)) == bytes([DUPLICATE, 0]), "down for long, a second in the log"
    clock.advance(WINDOW_MS * 100)
    assert memory.judge(2, at(2000, 2, 3)) == bytes([DUPLICATE, 0]), "slow"
    many = at(WINDOW_MS * 100, 3, 4)
    assert memory.judge(3, many) == bytes([DUPLICATE, 0]), "begins where the last ended, and spans long"
    assert Memory(files, WINDOW_MS, clock).judge(3, many) == bytes([DUPLICATE, 0]), "replayed"
    assert memory.judge(4, at(3000, 1, 4)) == bytes([0, DUPLICATE]), "it does not go back"
    assert Memory(files, WINDOW_MS, clock).judge(5, at(3000, 4)) == bytes([DUPLICATE])


def test_time_without_timestamps_and_from_the_future(files: FilesInMemory, clock: ManualClock) -> None:
    memory = Memory(files, WINDOW_MS, clock)
    assert memory.judge(0, ids()) == b"", "nothing at all: time stands"
    memory.judge(1, at(-WINDOW_MS * 9, 1))
    memory.judge(2, ids())
    memory.judge(3, at(WINDOW_MS * 100, 2))
    assert memory.judge(4, at(0, 2, 1)) == bytes([DUPLICATE, 0]), "no further than the clock"
    clock.advance(WINDOW_MS * 2)
    memory.judge(5, ids(7))
    assert memory.judge(6, ids(2, 7)) == bytes([0, DUPLICATE]), "without timestamps it is the clock's"
    no_time = Sightings(longs(8), longs(8), newest_ms=-1)
    clock.advance(WINDOW_MS * 2)
    memory.judge(7, no_time)
    assert memory.judge(8, ids(7)) == bytes([0])


def test_a_replay_is_judged_as_the_first_time(files: FilesInMemory, clock: ManualClock) -> None:
    memory = Memory(files, WINDOW_MS, clock)
    memory.judge(0, visits((1, 100, 20, 0), (2, 200, 20, 1)))
    clock.advance(WINDOW_MS * 10)
    batch = visits((1, 100, 20, 0), (3, 100, 20, 1), (4, 200, 21, 1))
    first = memory.judge(1, batch)
    assert first == bytes([DUPLICATE, KNOWN, KNOWN])
    assert memory.judge(1, batch) == first, "in the same process"
    clock.advance(WINDOW_MS * 10)
    again = Memory(files, WINDOW_MS, clock)
    assert again.judge(1, batch) == first, "after a restart, long after"
    more = visits((4, 200, 21, 0), (5, 200, 21, 0))
    assert again.judge(2, more) == bytes([DUPLICATE, 0])
    assert again.judge(3, more) == bytes([0, DUPLICATE]), "time goes on after it"


def test_the_window_may_change(files: FilesInMemory, clock: ManualClock) -> None:
    Memory(files, WINDOW_MS, clock).judge(0, ids(1))
    clock.advance(WINDOW_MS)
    longer = Memory(files, WINDOW_MS * 10, clock)
    assert longer.judge(1, ids(1, 2)) == bytes([DUPLICATE, 0])
    clock.advance(WINDOW_MS * 20)
    longer.judge(2, ids(3))
    assert longer.judge(3, ids(1, 2)) == bytes([0, 0])
    shorter = Memory(files, WINDOW_MS // 10, clock)
    assert shorter.judge(4, ids(1)) == bytes([DUPLICATE])
    clock.advance(WINDOW_MS)
    shorter.judge(5, ids(3))
    assert shorter.judge(6, ids(1)) == bytes([0])


def test_a_batch_whose_file_was_not_finished_is_new(files: FilesInMemory, clock: ManualClock) -> None:
    memory = Memory(files, WINDOW_MS, clock)
    memory.judge(0, ids(1))
    memory.judge(1, ids(2))
    del files.content["batch-000000000001"]
    assert Memory(files, WINDOW_MS, clock).judge(1, ids(2, 1)) == bytes([0, DUPLICATE])


def test_new_visitors(memory: Memory) -> None:
    assert memory.judge(0, visits((1, 100, 20, 1), (2, 200, 20, 0))) == bytes([0, 0])
    rows = [
        ((3, 100, 20, 1), 0),  # still its first day
        ((4, 100, 21, 1), KNOWN),
        ((5, 100, 21, 0), 0),
        ((6, 200, 20, 1), KNOWN),  # it was known when it was first seen
        ((7, 300, 21, 1), 0),
        ((8, 300, 20, 1), 0),  # late: it was here the day before
        ((9, 300, 21, 1), KNOWN),
        ((9, 300, 22, 1), DUPLICATE),  # a copy is no sighting
    ]
    assert memory.judge(1, visits(*(row for row, _ in rows))) == bytes(mark for _, mark in rows)
    assert memory.devices == 3


def test_the_answer_does_not_depend_on_how_the_log_is_cut_into_batches(clock: ManualClock) -> None:
    chance = random.Random(6)
    rows = [
        (chance.randrange(4000), chance.randrange(300), chance.randrange(20, 24), chance.randrange(2))
        for _ in range(5000)
    ]
    whole = Memory(FilesInMemory(), WINDOW_MS, clock).judge(0, visits(*rows))
    seen: set[int] = set()
    first: dict[int, int] = {}
    for (number, device, day, claim), mark in zip(rows, whole, strict=True):
        expected = DUPLICATE if number in seen else 0
        if not expected:
            expected = KNOWN if claim and first.get(device, day) < day else 0
            day_if_first = day if claim else day - 1
            first[device] = min(first.get(device, day_if_first), day_if_first)
        seen.add(number)
        assert mark == expected
    for size in (1, 7, 1000):
        files = FilesInMemory()
        memory = Memory(files, WINDOW_MS, clock)
        cut = bytearray()
        for batch_id, at in enumerate(range(0, min(len(rows), size * 100), size)):
            if batch_id % 3 == 0:
                memory = Memory(files, WINDOW_MS, clock)
            cut += memory.judge(batch_id, visits(*rows[at : at + size]))
        assert cut == whole[: len(cut)]


def test_first_days_outlive_the_window_in_one_file(
    files: FilesInMemory, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.shop.memory._DEVICES_BEFORE_SNAPSHOT", 4)
    memory = Memory(files, WINDOW_MS, clock)
    for batch_id in range(12):
        memory.judge(batch_id, visits((batch_id, batch_id % 6, 20, 1), (100 + batch_id, 7 + batch_id % 6, 20, 0)))
        clock.advance(WINDOW_MS)
    names = files.list()
    assert sum(name.startswith("devices-") for name in names) == 1
    assert sum(name.startswith("batch-") for name in names) < 10
    again = Memory(files, WINDOW_MS, clock)
    rows = [(200 + device, device, 21, 1) for device in range(13)]
    expected = bytes([KNOWN] * 6 + [0] + [KNOWN] * 6)
    assert again.judge(12, visits(*rows)) == expected
    assert Memory(files, WINDOW_MS, clock).judge(12, visits(*rows)) == expected, "replayed"
    assert again.judge(13, visits((300, 6, 22, 1))) == bytes([KNOWN])


def test_a_file_for_all_devices_that_is_newer_than_the_batch_is_not_used(
    files: FilesInMemory, clock: ManualClock
) -> None:
    memory = Memory(files, WINDOW_MS, clock)
    memory.judge(0, visits((1, 100, 20, 0)))
    files.store("devices-000000000001", b"of a later batch")
    assert Memory(files, WINDOW_MS, clock).judge(1, visits((2, 100, 20, 1))) == bytes([KNOWN])


def test_damaged_files_are_refused(files: FilesInMemory, clock: ManualClock) -> None:
    Memory(files, WINDOW_MS, clock).judge(0, ids(1, 2, 3))
    whole = files.content["batch-000000000000"]
    for broken in (whole[:-1], whole[:10], b"", whole[:50] + bytes([whole[50] ^ 1]) + whole[51:]):
        files.content["batch-000000000000"] = broken
        with pytest.raises(ValueError, match="batch-000000000000 is damaged"):
            Memory(files, WINDOW_MS, clock).judge(1, ids(1))
    other = struct.pack("<Q", 9) + whole[8:-4]
    files.content["batch-000000000000"] = other + struct.pack("<I", zlib.crc32(other))
    with pytest.raises(ValueError, match="format 9; expected 1"):
        Memory(files, WINDOW_MS, clock).judge(1, ids(1))


def test_many_ids(memory: Memory) -> None:
    chance = random.Random(1)
    numbers = [chance.getrandbits(63) for _ in range(100_000)]
    assert not any(memory.judge(0, ids(*[number // 7 for number in numbers])))
    assert all(memory.judge(1, ids(*[number // 7 for number in numbers])))
    assert memory.events == 100_000
    assert memory.size_bytes < 100_000 * 50


def test_buffers_of_different_lengths_are_refused(memory: Memory) -> None:
    with pytest.raises(ValueError, match="expected the same length"):
        memory.judge(0, Sightings(longs(1, 2), longs(1)))
