from pathlib import Path

import pytest
from tests.support.storage.logs import (
    START_MS,
    TP,
    MakeLog,
    append,
    batches_of,
    contents,
    make_batch,
    names_in,
    new_log,
)

from headrace.storage.log import Log
from headrace.testing.clock import ManualClock

SIZE = len(make_batch())
FAR = 2**31


def bases(log: Log) -> list[int]:
    return log.segments.bases


def test_rolls_when_segment_is_full(make_log: MakeLog) -> None:
    log = make_log({"segment.bytes": max(1024, 10 * SIZE)})
    for _ in range(1024 // SIZE if 10 * SIZE < 1024 else 10):
        append(log)
    assert bases(log) == [0]
    full = log.log_end_offset
    append(log)
    assert bases(log) == [0, full]
    assert log.segments.first.size <= log.config.segment_bytes
    assert len(batches_of(log)) == full + 1


def test_roll_creates_files(make_log: MakeLog, tmp_path: Path) -> None:
    log = make_log()
    append(log)
    log.roll()
    assert names_in(tmp_path / str(TP)) == {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000001.log",
        "00000000000000000001.snapshot",
        "leader-epoch-checkpoint",
    }
    assert log.recovery_point == 1, "the old segment is flushed"
    assert log.segments.first.time_index.entries() == [(START_MS, 0)]


def test_roll_of_empty_segment_does_nothing(make_log: MakeLog) -> None:
    log = make_log()
    assert log.roll() is log.segments.first
    append(log)
    active = log.roll()
    assert log.roll() is active
    assert bases(log) == [0, 1]


# ---- time


@pytest.mark.parametrize(("passed_ms", "rolled"), [(1000, False), (1001, True)])
def test_rolls_by_record_timestamps(make_log: MakeLog, clock: ManualClock, passed_ms: int, rolled: bool) -> None:
    log = make_log({"segment.ms": 1000})
    append(log, at=START_MS - 5000)
    clock.advance(100_000)
    append(log, at=START_MS - 5000)
    assert bases(log) == [0], "the clock does not count"
    append(log, at=START_MS - 5000 + passed_ms)
    assert bases(log) == ([0, 2] if rolled else [0])


def test_rolls_by_newest_batch_of_append(make_log: MakeLog) -> None:
    log = make_log({"segment.ms": 1000})
    append(log)
    append(log, make_batch() + make_batch(at=START_MS + 1001))
    assert bases(log) == [0, 1]


@pytest.mark.parametrize(("policy", "rolled"), [("compact", True), ("compact,delete", True), ("delete", False)])
def test_compacted_topic_rolls_within_max_compaction_lag(make_log: MakeLog, policy: str, rolled: bool) -> None:
    log = make_log({"cleanup.policy": policy, "segment.ms": 5000, "max.compaction.lag.ms": 1000})
    append(log)
    append(log, at=START_MS + 1000)
    assert bases(log) == [0]
    append(log, at=START_MS + 1001)
    assert bases(log) == ([0, 2] if rolled else [0])


def test_older_timestamps_do_not_roll(make_log: MakeLog) -> None:
    log = make_log({"segment.ms": 1000})
    append(log)
    append(log, at=START_MS - 500_000)
    assert bases(log) == [0]


def test_rolls_by_clock_without_timestamps(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log({"segment.ms": 1000})
    append(log, at=-1)
    clock.advance(1000)
    append(log, at=-1)
    assert bases(log) == [0]
    clock.advance(1)
    append(log, at=-1)
    assert bases(log) == [0, 2]


def test_first_batch_timestamp_survives_restart(make_log: MakeLog) -> None:
    log = make_log({"segment.ms": 1000})
    append(log, at=START_MS - 5000)
    append(log, at=START_MS - 4500)
    log.close()
    log = make_log({"segment.ms": 1000})
    append(log, at=START_MS - 3999)
    assert bases(log) == [0, 2]


def test_empty_segment_does_not_roll_by_time(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log({"segment.ms": 1000})
    clock.advance(100_000)
    append(log)
    assert bases(log) == [0]


def test_jitter_is_within_limits(tmp_path: Path, clock: ManualClock) -> None:
    seen: set[int] = set()
    for seed in range(40):
        log = new_log(tmp_path / str(seed), clock, {"segment.ms": 1000, "segment.jitter.ms": 5}, seed=seed)
        seen.add(log.segments.active.jitter_ms)
        append(log)
        seen.add(log.roll().jitter_ms)
    assert seen == {0, 1, 2, 3, 4}


def test_jitter_is_less_than_segment_ms(tmp_path: Path, clock: ManualClock) -> None:
    for seed in range(20):
        log = new_log(tmp_path / str(seed), clock, {"segment.ms": 3, "segment.jitter.ms": 5000}, seed=seed)
        assert 0 <= log.segments.active.jitter_ms < 3


def test_jitter_shortens_segment_ms(make_log: MakeLog) -> None:
    log = make_log({"segment.ms": 1000})
    log.segments.active.jitter_ms = 300
    append(log)
    append(log, at=START_MS + 700)
    assert bases(log) == [0]
    append(log, at=START_MS + 701)
    assert bases(log) == [0, 2]


# ---- indexes


def test_rolls_when_offset_index_is_full(make_log: MakeLog) -> None:
    """The index has room for 5 entries of 8 bytes; the second batch adds the first entry."""
    log = make_log({"segment.index.bytes": 40, "index.interval.bytes": 0})
    for _ in range(6):
        append(log, at=-1)
    assert len(log.segments.active.offset_index) == 5
    assert bases(log) == [0]
    append(log, at=-1)
    assert bases(log) == [0, 6]


def test_rolls_when_time_index_is_full(make_log: MakeLog) -> None:
    """The index has room for 3 entries of 12 bytes; one is reserved for the last entry."""
    log = make_log({"segment.index.bytes": 36, "index.interval.bytes": 0})
    for number in range(5):
        append(log, at=START_MS + number)
    assert bases(log) == [0, 3]
    assert len(log.segments.first.time_index) == 2
    assert all(len(segment.time_index) <= 3 for segment in log.segments)


# ---- offsets


def test_rolls_for_offset_too_far_from_base(make_log: MakeLog) -> None:
    log = make_log()
    log.append_as_follower(make_batch(base_offset=0))
    log.append_as_follower(make_batch(base_offset=FAR - 1))
    assert bases(log) == [0]
    log.append_as_follower(make_batch(base_offset=FAR))
    assert bases(log) == [0, FAR]
    assert [record[0] for record in contents(log)] == [0, FAR - 1, FAR]


def test_replaces_empty_segment_for_offset_too_far_from_base(make_log: MakeLog, tmp_path: Path) -> None:
    """The empty segment is replaced."""
    log = make_log()
    log.append_as_follower(make_batch(2, base_offset=FAR - 1))
    assert bases(log) == [FAR - 1]
    assert [record[0] for record in contents(log)] == [FAR - 1, FAR]
    log.close()


def test_batch_far_beyond_others_starts_new_segment(make_log: MakeLog) -> None:
    log = make_log()
    log.append_as_follower(make_batch(base_offset=0))
    log.append_as_follower(make_batch(base_offset=5 * FAR))
    assert bases(log) == [0, 5 * FAR]
    assert log.log_end_offset == 5 * FAR + 1
    found = log.read(1, 10_000).slice
    assert found is not None
    assert found.base_offset == 5 * FAR
    log.close()
    again = make_log()
    assert [record[0] for record in contents(again)] == [0, 5 * FAR]


def test_next_segment_starts_at_log_end_despite_gap(make_log: MakeLog) -> None:
    log = make_log({"segment.bytes": 1024})
    log.append_as_follower(make_batch(count=10, base_offset=0))
    log.append_as_follower(make_batch(count=10, base_offset=50))
    assert bases(log) == [0, 10]


def test_next_segment_starts_at_log_end_despite_gap_at_high_offsets(make_log: MakeLog) -> None:
    log = make_log({"segment.bytes": 1024})
    log.truncate_fully_and_start_at(2 * FAR)
    log.append_as_follower(make_batch(count=10, base_offset=2 * FAR))
    log.append_as_follower(make_batch(count=10, base_offset=2 * FAR + 50))
    assert bases(log) == [2 * FAR, 2 * FAR + 10]


def test_sealing_truncates_preallocated_segment(make_log: MakeLog, tmp_path: Path) -> None:
    log = make_log({"preallocate": True, "segment.bytes": 100_000})
    append(log)
    log.roll()
    append(log)
    sizes = [(tmp_path / str(TP) / f"{base:020}.log").stat().st_size for base in (0, 1)]
    assert sizes == [SIZE, 100_000]
    assert log.size_in_bytes == 2 * SIZE
    log.close()
    assert (tmp_path / str(TP) / f"{1:020}.log").stat().st_size == SIZE
