"""Lookups in a segment, compared with a linear search."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.storage.logs import START_MS, make_batch

from headrace.common.errors import CorruptRecordError
from headrace.records import BATCH_HEADER_BYTES, RecordBatch
from headrace.storage import segment as segment_module
from headrace.storage.files import FileSystem
from headrace.storage.segment import BatchPosition, LogSegment, SegmentFiles, read_batches

BASE = 1000

Shape = tuple[int, int, int, int]
"""A batch: gap before it, number of records, record size, timestamp."""

shapes = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from([0, 40, 400]), st.integers(-1, 5)),
    min_size=1,
    max_size=12,
)


def fill(segment: LogSegment, shapes: list[Shape], interval: int) -> list[BatchPosition]:
    """Appends batches one by one. Returns their positions."""
    segment.create()
    placed: list[BatchPosition] = []
    offset = BASE
    for gap, count, size, time in shapes:
        at = START_MS + time if time >= 0 else -1
        data = make_batch(count, value=b"v" * size, at=at, base_offset=offset + gap)
        batch = RecordBatch(data)
        placed.append(BatchPosition.of(batch, segment.size))
        segment.append(data, [BatchPosition.of(batch, 0)], interval)
        offset = batch.next_offset
    return placed


def segment_in(directory: Path, file_sizes: SegmentFiles | None = None) -> LogSegment:
    return LogSegment(directory, BASE, FileSystem(), created_ms=0, file_sizes=file_sizes)


def sealed_and_opened_again(segment: LogSegment) -> LogSegment:
    segment.seal()
    sizes = [segment.path(suffix).stat().st_size for suffix in (".log", ".index", ".timeindex")]
    return segment_in(segment.path().parent, SegmentFiles(*sizes))


@settings(max_examples=60)
@given(shapes, st.sampled_from([0, 100, 500, 10_000]), st.booleans(), st.sampled_from([61, 100, 8192]))
def test_lookups_match_linear_search(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[Shape], interval: int, sealed: bool, look_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segment_module, "_LOOKUP_BYTES", look_bytes)
        segment = segment_in(tmp_path_factory.mktemp("found"))
        placed = fill(segment, shapes, interval)
        if sealed:
            segment = sealed_and_opened_again(segment)
        assert list(segment.positions()) == placed
        for offset in range(BASE, placed[-1].last_offset + 3):
            expected = next((batch for batch in placed if batch.last_offset >= offset), None)
            assert segment.find(offset) == expected
        newest = max(placed, key=lambda batch: batch.max_timestamp)
        if newest.max_timestamp >= 0:
            assert segment.max_timestamp == (newest.max_timestamp, newest.last_offset)
        else:
            assert segment.max_timestamp[0] == -1
        for time in range(START_MS, START_MS + 7):
            for least in (BASE, placed[-1].base_offset):
                found = next((b for b in placed if b.max_timestamp >= time and b.last_offset >= least), None)
                expected_record = (found.max_timestamp, max(least, found.base_offset)) if found else None
                assert segment.find_timestamp(time, least) == expected_record


@settings(max_examples=60)
@given(shapes, st.integers(BATCH_HEADER_BYTES, 1500), st.integers(0, 11))
def test_reads_in_chunks_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[Shape], chunk_bytes: int, first: int
) -> None:
    segment = segment_in(tmp_path_factory.mktemp("read"))
    placed = fill(segment, shapes, 0)[first:]
    start = placed[0].position if placed else segment.size
    read = list(read_batches(segment.file, segment.size, start, chunk_bytes))
    assert [BatchPosition.of(batch, at) for at, batch in read] == placed
    for _, batch in read:
        batch.check_crc()


@pytest.mark.parametrize("missing", [1, 60, 70])
def test_read_raises_at_incomplete_batch(tmp_path: Path, missing: int) -> None:
    segment = segment_in(tmp_path)
    placed = fill(segment, [(0, 1, 40, 0), (0, 1, 40, 0)], 0)
    segment.size -= missing
    batches = segment.batches()
    assert next(batches)[0] == 0
    with pytest.raises(
        CorruptRecordError, match=rf"{segment.path()}: batch at byte {placed[1].position} is incomplete"
    ):
        next(batches)
    headers = segment.headers()
    next(headers)
    with pytest.raises(CorruptRecordError):
        next(headers)


def test_index_entries_respect_interval(tmp_path: Path) -> None:
    """Entries are at least the interval apart, and at most one batch more."""
    segment = segment_in(tmp_path)
    placed = fill(segment, [(0, 1, 40, 0)] * 20, 300)
    size = placed[0].size
    positions = [position for _, position in segment.offset_index.entries()]
    assert positions[0] == (300 // size + 1) * size
    assert {behind - before for before, behind in itertools.pairwise(positions)} == {positions[0]}


def test_rename_includes_all_files(tmp_path: Path) -> None:
    segment = segment_in(tmp_path)
    fill(segment, [(0, 1, 40, 0)] * 3, 0)
    segment.seal()
    segment.rename(".swap")
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{BASE:020d}{suffix}.swap" for suffix in (".log", ".index", ".timeindex")
    }
    segment.rename("")
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{BASE:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")
    }
    found = segment.find(BASE + 1)
    assert found is not None
    assert segment.load(found).base_offset == BASE + 1
