import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.storage.log_sim import DeferredRunner
from tests.support.storage.logs import (
    START_MS,
    TP,
    MakeLog,
    MakeManager,
    Properties,
    append,
    batches_of,
    contents,
    end_transaction,
    names_in,
    send,
)

from headrace.common.background import ThreadRunner
from headrace.common.errors import HeadraceError
from headrace.common.types import TopicPartition
from headrace.records import ControlType, encode_rows
from headrace.storage.cleaner import (
    CleanerConfig,
    CleaningCancelled,
    CleaningJob,
    finish_cleaning,
    log_to_clean,
    plan_cleaning,
)
from headrace.storage.config import LogConfig
from headrace.storage.loader import LoadReport
from headrace.storage.log import FetchIsolation, Log
from headrace.storage.retention import delete_old_segments
from headrace.storage.txn_index import AbortedTransaction
from headrace.testing.clock import ManualClock

COMPACT: Properties = {"cleanup.policy": "compact", "file.delete.delay.ms": 0}
SMALL = CleanerConfig(dedupe_buffer_bytes=1024)


def put(log: Log, key: bytes, value: bytes | None = b"v", **fields: Any) -> int:
    return append(log, key=key, value=value, **{"at": log.context.clock.time_ms(), **fields}).base_offset


def plan(log: Log, settings: CleanerConfig | None = None) -> CleaningJob:
    job = plan_cleaning(log, settings or CleanerConfig())
    assert job is not None
    return job


def clean(log: Log, settings: CleanerConfig | None = None) -> CleaningJob:
    """Rolls and cleans the log, and checks that it has the same content after reopening."""
    log.roll()
    job = plan(log, settings).run()
    assert finish_cleaning(log, job)
    for batch in batches_of(log):
        batch.check_crc()
    return job


def keys(log: Log) -> list[tuple[int, bytes | None]]:
    return [(offset, key) for offset, key, _ in contents(log)]


# ---- retained records


def test_retains_last_record_of_each_key(make_log: MakeLog) -> None:
    log = make_log(COMPACT)
    for number, key in enumerate([b"a", b"b", b"a", b"c", b"a"]):
        put(log, key, b"%d" % number)
    job = clean(log)
    assert contents(log) == [(1, b"b", b"1"), (3, b"c", b"3"), (4, b"a", b"4")]
    assert (job.stats.records_read, job.stats.records_kept, job.stats.keys) == (5, 3, 3)
    assert log.cleaned_up_to == job.cleaned_up_to == 5
    assert log.log_end_offset == 5


def test_removes_some_records_of_a_batch(make_log: MakeLog) -> None:
    log = make_log(COMPACT)
    append(log, encode_rows([(key, b"old", START_MS, ()) for key in (b"a", b"b", b"c")]))
    put(log, b"b", b"new")
    clean(log)
    assert contents(log) == [(0, b"a", b"old"), (2, b"c", b"old"), (3, b"b", b"new")]
    assert [(batch.base_offset, batch.last_offset, batch.count) for batch in batches_of(log)] == [(0, 2, 2), (3, 3, 1)]


def test_does_not_clean_active_segment(make_log: MakeLog) -> None:
    log = make_log(COMPACT)
    put(log, b"a")
    log.roll()
    put(log, b"a")
    assert plan(log).end_offset == 1
    clean_job = plan(log).run()
    finish_cleaning(log, clean_job)
    assert keys(log) == [(0, b"a"), (1, b"a")]


def test_removes_older_record_from_clean_part(make_log: MakeLog) -> None:
    log = make_log(COMPACT)
    put(log, b"a")
    put(log, b"b")
    clean(log)
    put(log, b"a")
    clean(log)
    assert keys(log) == [(1, b"b"), (2, b"a")]


def test_merges_small_segments(make_log: MakeLog, tmp_path: Path) -> None:
    log = make_log(COMPACT)
    for key in (b"a", b"b", b"a", b"c"):
        put(log, key)
        log.roll()
    assert log.segments.bases == [0, 1, 2, 3, 4]
    clean(log)
    assert log.segments.bases == [0, 4]
    assert {name for name in names_in(tmp_path / str(TP)) if name.endswith(".log")} == {f"{0:020}.log", f"{4:020}.log"}
    log.close()
    assert keys(make_log(COMPACT)) == [(1, b"b"), (2, b"a"), (3, b"c")]


def test_merged_segments_stay_within_limits(make_log: MakeLog) -> None:
    log = make_log({**COMPACT, "segment.bytes": 1024})
    for number in range(40):
        put(log, b"%d" % number, b"x" * 100)
    clean(log)
    assert len(log.segments) > 2
    assert all(segment.size <= 1024 for segment in log.segments)
    assert len(contents(log)) == 40


# ---- cleanable range


def manager_with(make_manager: MakeManager, topic_properties: Properties, **options: Any) -> Any:
    return make_manager(topic_properties={**COMPACT, **topic_properties}, **options)


def test_respects_min_cleanable_dirty_ratio(make_manager: MakeManager) -> None:
    with manager_with(make_manager, {"min.cleanable.dirty.ratio": 0.5}) as manager:
        log = manager.create(TP)
        for number in range(4):
            put(log, b"%d" % number)
        log.roll()
        assert log_to_clean(log).dirty_ratio == 1.0
        assert manager.clean_next() == TP
        assert log_to_clean(log).dirty_ratio == 0.0
        assert manager.clean_next() is None
        for key, ratio, cleaned in ((b"4", 1 / 5, None), (b"5", 2 / 6, None), (b"6", 3 / 7, None), (b"7", 4 / 8, TP)):
            put(log, key)
            log.roll()
            assert log_to_clean(log).dirty_ratio == pytest.approx(ratio)
            assert manager.clean_next() == cleaned


def test_cleans_dirtiest_log_first(make_manager: MakeManager) -> None:
    with manager_with(make_manager, {"min.cleanable.dirty.ratio": 0.1}) as manager:
        first, second = manager.create(TP), manager.create(TopicPartition("orders", 1))
        for log in (first, second):
            put(log, b"a")
            log.roll()
        assert {manager.clean_next(), manager.clean_next()} == {first.tp, second.tp}
        for log, count in ((first, 1), (second, 3)):
            for _ in range(count):
                put(log, b"b")
            log.roll()
        assert [manager.clean_next() for _ in range(3)] == [second.tp, first.tp, None]


def test_does_not_compact_log_with_policy_delete(make_manager: MakeManager) -> None:
    with make_manager(topic_properties={"min.cleanable.dirty.ratio": 0.0}) as manager:
        log = manager.create(TP)
        put(log, b"a")
        log.roll()
        assert manager.clean_next() is None


@pytest.mark.parametrize(("passed_ms", "end"), [(999, 0), (1000, 1), (1999, 1), (2000, 2)])
def test_respects_min_compaction_lag(make_log: MakeLog, clock: ManualClock, passed_ms: int, end: int) -> None:
    log = make_log({**COMPACT, "min.compaction.lag.ms": 1000})
    put(log, b"a", at=START_MS)
    log.roll()
    put(log, b"a", at=START_MS + 1000)
    log.roll()
    clock.advance(passed_ms)
    assert log_to_clean(log).end_offset == end
    if end == 0:
        assert plan_cleaning(log, CleanerConfig()) is None


def test_respects_max_compaction_lag(make_manager: MakeManager, clock: ManualClock) -> None:
    with manager_with(make_manager, {"min.cleanable.dirty.ratio": 1.0, "max.compaction.lag.ms": 1000}) as manager:
        log = manager.create(TP)
        put(log, b"a")
        log.roll()
        assert manager.clean_next() == TP
        put(log, b"a")
        log.roll()
        clock.advance(1000)
        assert not log_to_clean(log).overdue
        assert manager.clean_next() is None
        clock.advance(1)
        assert log_to_clean(log).overdue
        assert manager.clean_next() == TP


def test_does_not_clean_beyond_last_stable_offset(make_log: MakeLog) -> None:
    log = make_log(COMPACT)
    put(log, b"a")
    put(log, b"a")
    send(log, 1, transactional=True)
    put(log, b"a")
    log.roll()
    assert log_to_clean(log).end_offset == 2
    end_transaction(log, 1, replicated=False)
    assert log_to_clean(log).end_offset == 2
    log.update_high_watermark(1)
    assert log_to_clean(log).end_offset == 1
    log.update_high_watermark(log.log_end_offset)
    assert log_to_clean(log).end_offset == 4


# ---- tombstones


def test_retains_tombstone_for_delete_retention(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log({**COMPACT, "delete.retention.ms": 1000})
    put(log, b"a")
    put(log, b"a", None)
    put(log, b"b")
    clean(log)
    assert keys(log) == [(1, b"a"), (2, b"b")]
    assert [batch.delete_horizon_ms for batch in batches_of(log)] == [START_MS + 1000, None]
    clock.advance(999)
    put(log, b"c")
    clean(log)
    assert keys(log) == [(1, b"a"), (2, b"b"), (3, b"c")]
    assert batches_of(log)[0].delete_horizon_ms == START_MS + 1000, "it does not move"
    clock.advance(1)
    put(log, b"d")
    clean(log)
    assert keys(log) == [(2, b"b"), (3, b"c"), (4, b"d")]


# ---- transactions


def test_removes_aborted_records(make_log: MakeLog) -> None:
    log = make_log(COMPACT)
    put(log, b"a", b"good")
    send(log, 1, 0, key=b"a", value=b"bad", transactional=True)
    send(log, 1, 1, key=b"b", value=b"bad", transactional=True)
    end_transaction(log, 1, ControlType.ABORT)
    send(log, 1, 2, key=b"z")
    clean(log)
    assert contents(log) == [(0, b"a", b"good"), (4, b"z", b"x" * 50)]


def test_retains_committed_records(make_log: MakeLog) -> None:
    log = make_log(COMPACT)
    put(log, b"a", b"old")
    send(log, 1, 0, key=b"a", value=b"new", transactional=True)
    end_transaction(log, 1, ControlType.COMMIT)
    clean(log)
    assert contents(log) == [(1, b"a", b"new")]
    assert [batch.is_control for batch in batches_of(log)] == [False, True]


@pytest.mark.parametrize("control_type", list(ControlType))
def test_retains_marker_while_transaction_has_data_then_for_delete_retention(
    make_log: MakeLog, clock: ManualClock, control_type: ControlType
) -> None:
    log = make_log({**COMPACT, "delete.retention.ms": 1000})
    send(log, 1, 0, key=b"a", transactional=True)
    end_transaction(log, 1, control_type)
    send(log, 1, 1, key=b"z")

    def marker_horizons() -> list[int | None]:
        return [batch.delete_horizon_ms for batch in batches_of(log) if batch.is_control]

    clean(log)
    assert marker_horizons() == [None], "this cleaning met its data"
    put(log, b"a")
    clean(log)
    expected = None if control_type is ControlType.COMMIT else START_MS + 1000
    assert marker_horizons() == [expected]
    put(log, b"b")
    clean(log)
    assert marker_horizons() == [START_MS + 1000]
    clock.advance(999)
    put(log, b"c")
    clean(log)
    assert marker_horizons() == [START_MS + 1000]
    clock.advance(1)
    put(log, b"d")
    clean(log)
    assert marker_horizons() == []


def test_rewrites_transaction_index(make_log: MakeLog) -> None:
    """Includes a transaction that starts in the cleaned part and is aborted after it."""
    log = make_log(COMPACT)
    put(log, b"a")
    send(log, 1, 0, key=b"b", transactional=True)
    log.roll()
    send(log, 1, 1, key=b"c", transactional=True)
    end_transaction(log, 1, ControlType.ABORT)
    put(log, b"d")
    job = plan(log).run()
    assert finish_cleaning(log, job)
    assert keys(log) == [(0, b"a"), (2, b"c"), (4, b"d")]
    aborted = log.read(2, 10_000, FetchIsolation.TXN_COMMITTED).aborted
    assert aborted is not None
    assert [(entry.producer_id, entry.last_offset) for entry in aborted] == [(1, 3)]


def test_considers_abort_marker_in_active_segment(make_log: MakeLog) -> None:
    """Its records are in the cleaned part and must not replace committed ones."""
    log = make_log(COMPACT)
    put(log, b"a", b"good")
    send(log, 1, 0, key=b"a", value=b"bad", transactional=True)
    log.roll()
    end_transaction(log, 1, ControlType.ABORT)
    assert finish_cleaning(log, plan(log).run())
    assert contents(log) == [(0, b"a", b"good")]


def test_ignores_abort_of_earlier_transaction_in_clean_part(make_log: MakeLog) -> None:
    """The scan of the dirty part does not see it, and the same producer has a committed transaction there."""
    log = make_log(COMPACT)
    put(log, b"a", b"old")
    send(log, 1, 0, key=b"a", value=b"bad", transactional=True)
    end_transaction(log, 1, ControlType.ABORT)
    clean(log)
    send(log, 1, 1, key=b"a", value=b"new", transactional=True)
    end_transaction(log, 1, ControlType.COMMIT)
    clean(log)
    assert contents(log) == [(3, b"a", b"new")]


def test_keeps_rest_of_partly_cleaned_segment(make_log: MakeLog) -> None:
    """Even if later transactions are complete, since their markers may not be replicated yet."""
    log = make_log({**COMPACT, "delete.retention.ms": 0})
    put(log, b"a", b"old")
    put(log, b"a", b"new")
    send(log, 1, 0, key=b"b", transactional=True)
    send(log, 2, 0, key=b"c", transactional=True)
    end_transaction(log, 2, ControlType.ABORT)
    end_transaction(log, 3, ControlType.COMMIT)
    put(log, b"d", None)
    log.roll()
    rest = [bytes(batch.raw) for batch in batches_of(log)[2:]]
    for _ in range(2):
        job = plan(log).run()
        assert finish_cleaning(log, job)
        assert job.cleaned_up_to == 2
        assert [bytes(batch.raw) for batch in batches_of(log)[1:]] == rest
        assert log.segments.first.txn_index.entries() == [AbortedTransaction(2, 3, 4, 2)]
        log.cleaned_up_to = 0


def test_does_not_clean_batch_across_high_watermark(make_log: MakeLog) -> None:
    """Its unreplicated records may be truncated later, so they must not replace others."""
    log = make_log(COMPACT)
    put(log, b"a")
    put(log, b"a")
    append(log, encode_rows([(key, b"v", START_MS, ()) for key in (b"b", b"a", b"c")]), replicated=False)
    log.roll()
    log.update_high_watermark(3)
    assert log_to_clean(log).end_offset == 2
    assert finish_cleaning(log, plan(log).run())
    assert keys(log) == [(1, b"a"), (2, b"b"), (3, b"a"), (4, b"c")]
    assert plan_cleaning(log, SMALL) is None, "there is nothing more to do until the high watermark moves"


# ---- empty batches


def test_retains_empty_batch_of_producers_last_sequence(make_log: MakeLog) -> None:
    log = make_log(COMPACT)
    send(log, 1, 0, count=2, key=b"a")
    send(log, 1, 2, count=3, key=b"a")
    put(log, b"a")
    clean(log)
    assert keys(log) == [(5, b"a")]
    empty = batches_of(log)[0]
    assert (empty.count, empty.base_offset, empty.last_offset) == (0, 2, 4)
    assert (empty.producer_id, empty.base_sequence, empty.last_sequence) == (1, 2, 4)
    log.close()
    log = make_log(COMPACT)
    log.flush()
    assert log.producers.entries[1].last_sequence == 4
    assert send(log, 1, 2, count=3, key=b"a").duplicate
    send(log, 1, 5, key=b"b")
    clean(log)
    assert [batch.count for batch in batches_of(log)] == [1, 1], "once it has written again the empty one goes"


def test_retains_empty_batch_at_last_offset(make_log: MakeLog) -> None:
    log = make_log(COMPACT)
    put(log, b"a")
    send(log, 1, 0, key=b"b", transactional=True)
    log.roll()
    end_transaction(log, 1, ControlType.ABORT)
    send(log, 1, 1, key=b"c")
    assert finish_cleaning(log, plan(log).run())
    assert keys(log) == [(0, b"a"), (3, b"c")]
    assert [(batch.base_offset, batch.count) for batch in batches_of(log)] == [(0, 1), (1, 0), (2, 1), (3, 1)]


# ---- the map of keys


def test_small_map_needs_several_rounds(make_log: MakeLog) -> None:
    log = make_log(COMPACT)
    for round_number in range(2):
        for number in range(0, 100, 10):
            rows = [(b"%d" % key, b"%d" % round_number, START_MS, ()) for key in range(number, number + 10)]
            append(log, encode_rows(rows))
    log.roll()
    reached: list[int] = []
    while (job := plan_cleaning(log, SMALL)) is not None:
        assert finish_cleaning(log, job.run())
        reached.append(job.cleaned_up_to)
    assert len(reached) > 3
    assert reached == sorted(set(reached))
    assert reached[-1] == 200
    assert contents(log) == [(100 + key, b"%d" % key, b"1") for key in range(100)]


def test_batch_larger_than_map_disables_compaction(make_manager: MakeManager, caplog: pytest.LogCaptureFixture) -> None:
    properties = {"log.cleaner.dedupe.buffer.size": 1024}
    with manager_with(make_manager, {"min.cleanable.dirty.ratio": 0.0}, properties=properties) as manager:
        log = manager.create(TP)
        append(log, encode_rows([(b"%d" % key, b"", START_MS, ()) for key in range(100)]))
        log.roll()
        with pytest.raises(HeadraceError) as refused:
            plan(log, SMALL).run()
        assert str(refused.value).startswith("A batch has 100 records, but ")
        assert "increase log.cleaner.dedupe.buffer.size" in str(refused.value)
        assert manager.clean_next() == TP
        assert "Partition orders-0: compaction failed and is disabled until the topic's config changes" in caplog.text
        assert manager.clean_next() is None, "it would fail again"
        assert not [name for name in names_in(log.directory) if name.endswith(".cleaned")]
        assert len(contents(log)) == 100
        manager.update_configs({"orders": LogConfig.from_properties({**COMPACT, "min.cleanable.dirty.ratio": 0.0})})
        assert manager.clean_next() == TP, "other settings may help"


# ---- compact and delete


def test_compact_and_delete_policies_combine(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log({**COMPACT, "cleanup.policy": "compact,delete", "retention.ms": 1000})
    put(log, b"a")
    put(log, b"a")
    put(log, b"b")
    clean(log)
    assert keys(log) == [(1, b"a"), (2, b"b")]
    clock.advance(1001)
    put(log, b"c")
    assert delete_old_segments(log) == 1
    assert keys(log) == [(3, b"c")]
    put(log, b"c")
    clean(log)
    assert keys(log) == [(4, b"c")]
    assert log.cleaned_up_to == 5


# ---- throttling and cancellation


def test_throttles_to_configured_rate(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log(COMPACT)
    for number in range(10):
        put(log, b"%d" % number)
    job = clean(log, CleanerConfig(max_bytes_per_second=100.0))
    moved = job.stats.bytes_read + job.stats.bytes_written
    assert job.stats.bytes_read == 2 * job.stats.bytes_written
    assert clock.time_ms() - START_MS == pytest.approx(moved / 100 * 1000, abs=10)


def test_does_not_throttle_without_rate(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log(COMPACT)
    put(log, b"a")
    clean(log)
    assert clock.time_ms() == START_MS


def state_of(log: Log) -> tuple[list[int], list[tuple[int, bytes | None]], set[str], int | None]:
    return log.segments.bases, keys(log), names_in(log.directory), log.cleaned_up_to


def dirty_log(make_log: MakeLog, properties: Properties | None = None) -> Log:
    """Creates a log with offsets 0 to 5 of one key in three sealed segments."""
    log = make_log({**COMPACT, **(properties or {})})
    for number in range(6):
        put(log, b"a")
        if number % 2:
            log.roll()
    return log


def test_cancel_discards_job(make_log: MakeLog) -> None:
    log = dirty_log(make_log)
    before = state_of(log)
    job = plan(log)
    job.cancelled = True
    with pytest.raises(CleaningCancelled, match="Partition orders-0: compaction was cancelled"):
        job.run()
    assert state_of(log) == before


def test_cancel_while_writing_removes_files(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = dirty_log(make_log)
    before = state_of(log)
    job = plan(log)
    build = job._build_map

    def build_and_cancel(*given: Any) -> int:
        reached = build(*given)
        job.cancelled = True
        return reached

    monkeypatch.setattr(job, "_build_map", build_and_cancel)
    with pytest.raises(CleaningCancelled, match="orders-0"):
        job.run()
    assert state_of(log) == before


@pytest.mark.parametrize("change", ["truncate into", "truncate below", "retention", "start over"])
def test_discards_job_if_log_changed(make_log: MakeLog, change: str) -> None:
    log = dirty_log(make_log)
    job = plan(log).run()
    if change == "truncate into":
        log.truncate_to(5)
    elif change == "truncate below":
        log.truncate_to(2)
    elif change == "start over":
        log.truncate_fully_and_start_at(10)
    else:
        log.delete_records(3)
        assert delete_old_segments(log) == 1
    before = (log.segments.bases, keys(log), log.cleaned_up_to, log.log_start_offset, log.log_end_offset)
    assert finish_cleaning(log, job) is False
    assert (log.segments.bases, keys(log), log.cleaned_up_to, log.log_start_offset, log.log_end_offset) == before
    assert not [name for name in names_in(log.directory) if ".cleaned" in name or ".swap" in name]


def test_truncation_before_job_does_not_disable_compaction(make_manager: MakeManager) -> None:
    runner = DeferredRunner()
    with manager_with(make_manager, {"min.cleanable.dirty.ratio": 0.0}, runner=runner) as manager:
        log = manager.create(TP)
        for _ in range(6):
            put(log, b"a")
        log.roll()
        runner.run_all()
        assert manager.clean_next() == TP
        log.truncate_to(4)
        runner.run_all()
        assert keys(log) == [(offset, b"a") for offset in range(4)]
        log.roll()
        runner.run_all()
        assert manager.clean_next() == TP, "it is cleaned again"
        runner.run_all()
        assert keys(log) == [(3, b"a")]


def test_appends_during_job_are_kept(make_log: MakeLog) -> None:
    log = dirty_log(make_log)
    job = plan(log)
    put(log, b"a")
    log.roll()
    put(log, b"b")
    assert finish_cleaning(log, job.run())
    assert keys(log) == [(5, b"a"), (6, b"a"), (7, b"b")]


def test_deleting_log_cancels_job(make_manager: MakeManager) -> None:
    runner = DeferredRunner()
    with manager_with(make_manager, {"min.cleanable.dirty.ratio": 0.0}, runner=runner) as manager:
        log = manager.create(TP)
        put(log, b"a")
        put(log, b"a")
        log.roll()
        runner.run_all()
        assert manager.clean_next() == TP
        assert manager.clean_next() is None, "one at a time"
        manager.delete(TP)
        runner.run_all()
        assert manager.get(TP) is None
        assert manager.clean_next() is None


def test_job_finished_after_close_changes_nothing(make_manager: MakeManager) -> None:
    """The result arrives after the close, when another process may own the directory."""
    woken = threading.Event()
    runner = ThreadRunner(wake=woken.set)
    manager = manager_with(make_manager, {"min.cleanable.dirty.ratio": 0.0}, runner=runner).start()
    log = manager.create(TP)
    put(log, b"a")
    put(log, b"a")
    log.roll()
    runner.drain(wait=True)
    woken.clear()
    assert manager.clean_next() == TP
    assert woken.wait(10)
    manager.close()
    runner.close()
    assert {path.name for path in log.directory.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")} == set()
    with manager_with(make_manager, {}) as again:
        assert keys(again.create(TP)) == [(0, b"a"), (1, b"a")]
        assert again.load_reports[TP] == LoadReport()


def test_truncation_lowers_cleaned_offset(make_log: MakeLog) -> None:
    log = dirty_log(make_log)
    clean(log)
    assert log.cleaned_up_to == 6
    put(log, b"b")
    log.truncate_to(5)
    assert log.cleaned_up_to == 5
