"""The offsets that a batch reads, and how they are split into tasks."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.common.types import TopicPartition
from headrace.spark.planning import OffsetRange, backlog, prorate, ranges_between, split_ranges

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def test_shares_a_limit_by_backlog() -> None:
    start, end = {P0: 0, P1: 100, P2: 5}, {P0: 900, P1: 200, P2: 5}
    assert prorate(start, end, 100) == {P0: 90, P1: 110, P2: 5}
    assert prorate(start, end, 1000) == end
    assert prorate(start, end, 5000) == end


def test_no_partition_starves() -> None:
    start, end = {P0: 0, P1: 0}, {P0: 1_000_000, P1: 1}
    assert prorate(start, end, 10) == {P0: 9, P1: 1}


def test_end_before_start_is_kept() -> None:
    assert prorate({P0: 10, P1: 0}, {P0: 5, P1: 100}, 10) == {P0: 5, P1: 10}


offsets = st.integers(0, 10_000)
tps = st.sampled_from([P0, P1, P2])


@given(st.dictionaries(tps, st.tuples(offsets, offsets)), st.integers(1, 5000))
def test_prorating_makes_progress_within_the_backlog(bounds: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    start = {tp: min(pair) for tp, pair in bounds.items()}
    end = {tp: max(pair) for tp, pair in bounds.items()}
    found = prorate(start, end, limit)
    assert found.keys() == end.keys()
    for tp in found:
        assert start[tp] <= found[tp] <= end[tp]
        assert (found[tp] > start[tp]) == (end[tp] > start[tp])
    assert backlog(start, found) <= max(limit, 0) + len(bounds)


def test_one_task_per_partition_with_records() -> None:
    ranges = ranges_between({P1: 5, P0: 0, P2: 3}, {P1: 9, P0: 10, P2: 3})
    assert ranges == [OffsetRange(P0, 0, 10), OffsetRange(P1, 5, 9)]
    assert split_ranges(ranges) == ranges


def test_splits_partitions_into_min_partitions() -> None:
    ranges = [OffsetRange(P0, 0, 90), OffsetRange(P1, 0, 10)]
    found = split_ranges(ranges, min_partitions=4)
    assert found == [OffsetRange(P0, 0, 30), OffsetRange(P0, 30, 60), OffsetRange(P0, 60, 90), OffsetRange(P1, 0, 10)]
    assert split_ranges(ranges, min_partitions=2) == ranges
    assert len(split_ranges([OffsetRange(P0, 0, 3)], min_partitions=10)) == 3


def test_limits_records_per_task() -> None:
    found = split_ranges([OffsetRange(P0, 0, 10), OffsetRange(P1, 7, 9)], max_records=4)
    assert found == [OffsetRange(P0, 0, 3), OffsetRange(P0, 3, 6), OffsetRange(P0, 6, 10), OffsetRange(P1, 7, 9)]


@given(
    st.lists(st.tuples(offsets, st.integers(0, 500)), max_size=5),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 50),
)
def test_parts_cover_the_ranges(
    parts: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [OffsetRange(TopicPartition("t", number), at, at + size) for number, (at, size) in enumerate(parts)]
    found = split_ranges(ranges, min_partitions, max_records)
    for whole in ranges:
        pieces = [piece for piece in found if piece.tp == whole.tp]
        assert [offset for piece in pieces for offset in range(piece.start, piece.end)] == list(
            range(whole.start, whole.end)
        )
    assert all(piece.size > 0 for piece in found)
    if max_records is not None:
        assert all(piece.size <= max_records for piece in found)
    if min_partitions is not None:
        assert len(found) >= min(min_partitions, sum(each.size for each in ranges))
