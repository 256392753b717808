import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.files import FileSystem
from headrace.storage.index import CorruptIndexError, OffsetIndex, TimeIndex

BASE = 1000
FILES = FileSystem()
NOWHERE = Path("nowhere")

GROWING = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 100)), max_size=40)
"""Differences of offsets (or timestamps) and positions (or offsets) between entries."""


def entries_of(steps: list[tuple[int, int]], first: int, second: int) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    for step, other in steps:
        first, second = first + step, second + other
        entries.append((first, second))
    return entries


def offset_index(entries: list[tuple[int, int]], path: Path = NOWHERE) -> OffsetIndex:
    index = OffsetIndex(path, BASE, FILES, None)
    for entry in entries:
        index.append(*entry)
    return index


def time_index(entries: list[tuple[int, int]], path: Path = NOWHERE) -> TimeIndex:
    index = TimeIndex(path, BASE, FILES, None)
    for entry in entries:
        index.maybe_append(*entry)
    return index


@given(GROWING, st.integers(BASE - 5, BASE + 220))
def test_offset_lookup_matches_linear_search(steps: list[tuple[int, int]], offset: int) -> None:
    entries = entries_of(steps, BASE, 0)
    below = [entry for entry in entries if entry[0] <= offset]
    assert offset_index(entries).lookup(offset) == (below[-1] if below else (BASE - 1, 0))


@given(GROWING, st.integers(0, 300))
def test_time_lookup_matches_linear_search(steps: list[tuple[int, int]], timestamp: int) -> None:
    entries = entries_of(steps, 50, BASE)
    older = [entry for entry in entries if entry[0] < timestamp]
    assert time_index(entries).lookup(timestamp) == (older[-1] if older else (-1, BASE - 1))


@given(GROWING, st.integers(BASE - 5, BASE + 220))
def test_offset_index_truncation_matches_filter(steps: list[tuple[int, int]], offset: int) -> None:
    entries = entries_of(steps, BASE, 0)
    index = offset_index(entries)
    index.truncate_to(offset)
    assert index.entries() == [entry for entry in entries if entry[0] < offset]


@given(GROWING, st.integers(BASE - 5, BASE + 4200))
def test_time_index_truncation_matches_filter(steps: list[tuple[int, int]], offset: int) -> None:
    entries = entries_of(steps, 50, BASE)
    index = time_index(entries)
    index.truncate_to(offset)
    assert index.entries() == [entry for entry in entries if entry[1] < offset]


def test_last_entry() -> None:
    assert offset_index([]).last() == (BASE - 1, 0)
    assert offset_index([(1003, 10), (1007, 20)]).last() == (1007, 20)
    assert time_index([]).last() == (-1, BASE - 1)
    assert time_index([(5, 1003), (9, 1007)]).last() == (9, 1007)


@pytest.mark.parametrize("offset", [1003, 1002])
def test_rejects_offset_that_does_not_increase(offset: int) -> None:
    index = offset_index([(1003, 10)])
    with pytest.raises(ValueError, match=f"nowhere: offset {offset} is not greater than the last entry"):
        index.append(offset, 20)
    assert index.entries() == [(1003, 10)]


def test_skips_timestamp_that_does_not_increase() -> None:
    index = time_index([(5, 1003)])
    index.maybe_append(5, 1004)
    index.maybe_append(4, 1005)
    index.maybe_append(-1, 1006)
    assert index.entries() == [(5, 1003)]


def test_index_files_have_kafka_format(tmp_path: Path) -> None:
    offsets, times = offset_index([(1003, 10), (1007, 20)], tmp_path / "i"), time_index([(5, 1003)], tmp_path / "t")
    assert (offsets.exists, times.exists) == (False, False)
    offsets.save()
    times.save()
    assert (offsets.exists, times.exists) == (True, True)
    assert (tmp_path / "i").read_bytes() == struct.pack(">iiii", 3, 10, 7, 20)
    assert (tmp_path / "t").read_bytes() == struct.pack(">qi", 5, 3)


def test_save_appends_new_entries(tmp_path: Path) -> None:
    index = offset_index([(1003, 10)], tmp_path / "i")
    index.save()
    index.append(1007, 20)
    assert (tmp_path / "i").stat().st_size == 8
    index.save()
    assert (tmp_path / "i").read_bytes() == struct.pack(">iiii", 3, 10, 7, 20)


def test_empty_index_has_empty_file(tmp_path: Path) -> None:
    index = offset_index([], tmp_path / "i")
    index.seal()
    assert (tmp_path / "i").read_bytes() == b""
    assert index.entries() == []


def test_sealed_index_is_mapped_and_can_be_truncated(tmp_path: Path) -> None:
    index = offset_index([(1003, 10), (1007, 20)], tmp_path / "i")
    index.seal()
    assert len(index) == 2
    assert index.lookup(1005) == (1003, 10)
    index.truncate_to(1007)
    assert (tmp_path / "i").read_bytes() == struct.pack(">ii", 3, 10)
    index.append(1009, 30)
    index.save()
    assert OffsetIndex(tmp_path / "i", BASE, FILES, 16).entries() == [(1003, 10), (1009, 30)]


def test_open_does_not_read(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "i", BASE, FILES, 16)
    assert len(index) == 2
    assert index.exists
    with pytest.raises(FileNotFoundError):
        index.lookup(BASE)


def test_reset_does_not_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"not a multiple")
    index = TimeIndex(path, BASE, FILES, 14)
    index.reset()
    assert path.read_bytes() == b""
    assert index.entries() == []


@pytest.mark.parametrize(("kind", "size"), [(OffsetIndex, 8), (TimeIndex, 12)])
def test_check_rejects_wrong_file_size(kind: type[OffsetIndex | TimeIndex], size: int) -> None:
    kind(NOWHERE, BASE, FILES, 2 * size).check()
    with pytest.raises(CorruptIndexError, match=f"nowhere has {size + 1} bytes, not a multiple of {size}"):
        kind(NOWHERE, BASE, FILES, size + 1).check()


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ([], 0),
        ([(3, 10), (7, 20)], 2),
        ([(3, 10), (0, 0), (0, 0)], 1),
        ([(0, 0), (0, 0)], 0),
        ([(0, 70), (3, 80)], 2),
        ([(3, 10), (3, 20)], 1),
        ([(3, 10), (7, 10)], 1),
        ([(3, 10), (7, 20), (5, 30), (9, 40)], 2),
    ],
)
def test_drops_torn_tail_of_offset_index(tmp_path: Path, written: list[tuple[int, int]], kept: int) -> None:
    path = tmp_path / "i"
    path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in written))
    index = OffsetIndex(path, BASE, FILES, path.stat().st_size)
    index.drop_torn_tail()
    assert index.entries() == [(BASE + offset, position) for offset, position in written[:kept]]
    assert path.stat().st_size == 8 * kept


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ([], 0),
        ([(5, 0), (9, 3)], 2),
        ([(5, 0), (0, 0)], 1),
        ([(0, 0), (0, 0)], 0),
        ([(5, 3), (9, 3)], 2),
        ([(5, 3), (5, 4)], 1),
        ([(5, 3), (9, 2)], 1),
    ],
)
def test_drops_torn_tail_of_time_index(tmp_path: Path, written: list[tuple[int, int]], kept: int) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in written))
    index = TimeIndex(path, BASE, FILES, path.stat().st_size)
    index.drop_torn_tail()
    assert index.entries() == [(timestamp, BASE + offset) for timestamp, offset in written[:kept]]
