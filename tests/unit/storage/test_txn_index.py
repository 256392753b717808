import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.files import FileSystem
from headrace.storage.index import CorruptIndexError
from headrace.storage.txn_index import AbortedTransaction, TransactionIndex

BASE = 10
FILES = FileSystem()
FIRST = AbortedTransaction(1, 10, 15, 12)
SECOND = AbortedTransaction(2, 12, 20, 21)


def make(path: Path, *entries: AbortedTransaction) -> TransactionIndex:
    index = TransactionIndex(path, BASE, FILES, None)
    for entry in entries:
        index.append(entry)
    return index


def reopened(path: Path) -> TransactionIndex:
    return TransactionIndex(path, BASE, FILES, path.stat().st_size)


def packed(entry: AbortedTransaction, version: int = 0) -> bytes:
    return struct.pack(
        ">hqqqq", version, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset
    )


def test_index_file_has_kafka_format(tmp_path: Path) -> None:
    path = tmp_path / "t"
    index = make(path, FIRST, SECOND)
    assert (index.exists, index.needs_sync) == (False, False)
    index.save()
    assert (index.exists, index.needs_sync) == (True, True)
    assert path.read_bytes() == packed(FIRST) + packed(SECOND)
    assert len(path.read_bytes()) == 68
    assert reopened(path).entries() == [FIRST, SECOND]


def test_no_file_without_entries(tmp_path: Path) -> None:
    index = make(tmp_path / "t")
    index.save()
    assert not index.exists
    assert not (tmp_path / "t").exists()


def test_save_appends_new_entries(tmp_path: Path) -> None:
    path = tmp_path / "t"
    index = make(path, FIRST)
    index.save()
    changes = index.changes
    index.save()
    assert index.changes == changes
    index.append(SECOND)
    index.save()
    assert reopened(path).entries() == [FIRST, SECOND]


def test_rejects_last_offset_that_does_not_increase(tmp_path: Path) -> None:
    index = make(tmp_path / "t", FIRST)
    with pytest.raises(ValueError, match="last offset 15 is not greater than the last entry"):
        index.append(AbortedTransaction(2, 11, 15, 16))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (packed(FIRST)[:-1], "has 33 bytes, not a multiple of 34"),
        (packed(FIRST, version=1), "has an entry of version 1; expected 0"),
        (packed(AbortedTransaction(1, 15, 15, 16)), "has offsets 15 to 15 out of order"),
        (packed(AbortedTransaction(1, 3, 9, 16)), "has offsets 3 to 9 out of order"),
        (packed(SECOND) + packed(FIRST), "has last offset 15 after last offset 20"),
    ],
)
def test_rejects_damaged_file(tmp_path: Path, content: bytes, named: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(content)
    index = reopened(path)
    with pytest.raises(CorruptIndexError, match=named) as refused:
        index.check()
    assert str(path) in str(refused.value)
    index.reset()
    assert path.read_bytes() == b""
    assert index.entries() == []


@pytest.mark.parametrize(("offset", "kept"), [(21, 2), (20, 1), (16, 1), (15, 0), (0, 0)])
@pytest.mark.parametrize("saved", [False, True])
def test_truncates_entries(tmp_path: Path, offset: int, kept: int, saved: bool) -> None:
    path = tmp_path / "t"
    index = make(path, FIRST, SECOND)
    if saved:
        index.save()
    index.truncate_to(offset)
    assert index.entries() == [FIRST, SECOND][:kept]
    index.save()
    assert (path.read_bytes() if path.exists() else b"") == b"".join(map(packed, [FIRST, SECOND][:kept]))


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 6)), max_size=12),
    st.integers(10, 80),
    st.integers(0, 40),
)
def test_overlapping_matches_linear_search(steps: list[tuple[int, int]], first: int, length: int) -> None:
    """As in a log, the last stable offset is not above the first offset of an open transaction. Transactions start
    at even offsets and end at odd ones, since no offset is both."""
    last, entries = BASE + 1, []
    for number, (before, step) in enumerate(steps):
        last += 2 * step
        entries.append((number, last - 2 * before + 1, last))
    index = TransactionIndex(Path("nowhere"), BASE, FILES, None)
    for number, begin, end in entries:
        later = [other[1] for other in entries[number + 1 :] if other[1] < end]
        index.append(AbortedTransaction(number, begin, end, min(later, default=end + 1)))
    found, _ = index.overlapping(first, first + length)
    assert [entry.producer_id for entry in found] == [
        number for number, begin, end in entries if end >= first and begin < first + length
    ]


def test_overlapping_reports_completeness(tmp_path: Path) -> None:
    index = make(tmp_path / "t", FIRST, SECOND)
    assert index.overlapping(10, 12) == ([FIRST], True)
    assert index.overlapping(10, 13) == ([FIRST, SECOND], True)
    assert index.overlapping(10, 21) == ([FIRST, SECOND], True)
    assert index.overlapping(10, 22) == ([FIRST, SECOND], False)
    assert index.overlapping(16, 22) == ([SECOND], False)
    assert make(tmp_path / "u").overlapping(0, 100) == ([], False)


def test_rebuild_keeps_damaged_file_until_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "t"
    make(path, FIRST, SECOND).save()
    damaged = path.read_bytes()[:-1]
    path.write_bytes(damaged)
    index = reopened(path)
    index.forget()
    index.append(SECOND)
    assert path.read_bytes() == damaged, "a kill now must not leave a file that looks complete"
    index.replace()
    assert path.read_bytes() == packed(SECOND)
    assert reopened(path).entries() == [SECOND]
    index.append(AbortedTransaction(3, 21, 22, 23))
    index.save()
    assert len(reopened(path).entries()) == 2


def test_replace_without_entries(tmp_path: Path) -> None:
    path = tmp_path / "t"
    make(path).replace()
    assert not path.exists()
    path.write_bytes(b"damaged")
    index = reopened(path)
    index.forget()
    index.replace()
    assert path.read_bytes() == b""
