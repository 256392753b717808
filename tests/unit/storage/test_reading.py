import pytest
from tests.support.storage.logs import (
    START_MS,
    MakeLog,
    append,
    end_transaction,
    make_batch,
    make_batch_at,
    send,
)

from headrace.common.errors import OffsetOutOfRangeError
from headrace.records import ControlType
from headrace.storage.log import FetchIsolation, Log, ReadResult
from headrace.storage.retention import delete_old_segments
from headrace.storage.txn_index import AbortedTransaction

SIZE = len(make_batch())


def bases(result: ReadResult) -> list[int]:
    return [batch.base_offset for batch in result.slice.batches()] if result.slice is not None else []


def filled(make_log: MakeLog, count: int = 6, **properties: object) -> Log:
    """Appends batches of one record each."""
    log = make_log(properties)
    for _ in range(count):
        append(log)
    return log


# ---- sizes


@pytest.mark.parametrize(
    ("max_bytes", "size"),
    [(0, SIZE), (1, SIZE), (SIZE, SIZE), (SIZE + 1, SIZE + 1), (3 * SIZE, 3 * SIZE), (10**9, 4 * SIZE)],
)
def test_returns_first_batch_whole(make_log: MakeLog, max_bytes: int, size: int) -> None:
    result = filled(make_log).read(2, max_bytes)
    assert result.slice is not None
    assert (len(result.slice), result.slice.base_offset) == (size, 2)
    assert len(result.slice.read()) == size
    assert bases(result) == list(range(2, 2 + size // SIZE))


@pytest.mark.parametrize(("max_bytes", "size"), [(0, None), (1, None), (SIZE - 1, None), (SIZE, SIZE)])
def test_omits_first_batch_larger_than_limit(make_log: MakeLog, max_bytes: int, size: int | None) -> None:
    found = filled(make_log).read(2, max_bytes, first_batch_whole=False).slice
    assert (None if found is None else len(found)) == size


def test_read_within_batch_starts_with_batch(make_log: MakeLog) -> None:
    log = make_log()
    append(log, count=5)
    append(log, count=5)
    found = log.read(7, 10**6).slice
    assert found is not None
    assert found.base_offset == 5


@pytest.mark.parametrize("interval", [0, 1, 200, 4096])
def test_finds_every_offset_with_index(make_log: MakeLog, interval: int) -> None:
    log = filled(make_log, 40, **{"index.interval.bytes": interval, "segment.bytes": 2000})
    for offset in range(40):
        assert bases(log.read(offset, 1)) == [offset]
    log.close()
    log = make_log()
    for offset in range(40):
        assert bases(log.read(offset, 1)) == [offset]


def test_slice_ends_with_segment(make_log: MakeLog) -> None:
    log = filled(make_log, 3)
    log.roll()
    append(log)
    assert bases(log.read(1, 10**6)) == [1, 2]
    assert bases(log.read(3, 10**6)) == [3]


# ---- isolation


def test_isolation_limits_reads(make_log: MakeLog) -> None:
    log = filled(make_log, 1)
    send(log, 1, transactional=True)
    append(log)
    append(log, replicated=False)
    assert (log.last_stable_offset, log.high_watermark, log.log_end_offset) == (1, 3, 4)
    read = {isolation: log.read(0, 10**6, isolation) for isolation in FetchIsolation}
    assert {isolation: bases(result) for isolation, result in read.items()} == {
        FetchIsolation.LOG_END: [0, 1, 2, 3],
        FetchIsolation.HIGH_WATERMARK: [0, 1, 2],
        FetchIsolation.TXN_COMMITTED: [0],
    }
    for result in read.values():
        assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (3, 1, 0)
    assert read[FetchIsolation.LOG_END].aborted is None
    assert read[FetchIsolation.TXN_COMMITTED].aborted == []


def test_read_beyond_limit_returns_nothing(make_log: MakeLog) -> None:
    log = filled(make_log, 3)
    log.update_high_watermark(1)
    for isolation, offsets in ((FetchIsolation.LOG_END, [3]), (FetchIsolation.HIGH_WATERMARK, [1, 2, 3])):
        for offset in offsets:
            assert log.read(offset, 10**6, isolation).slice is None
    assert log.read(2, 10**6, FetchIsolation.TXN_COMMITTED) == ReadResult(None, 1, 1, 0, [])


def test_high_watermark_is_limited_to_log(make_log: MakeLog) -> None:
    log = filled(make_log, 3)
    assert log.update_high_watermark(99) == 3
    log.delete_records(2)
    assert log.update_high_watermark(0) == 2


def test_transaction_may_start_below_log_start(make_log: MakeLog) -> None:
    log = make_log()
    send(log, 1, transactional=True)
    append(log)
    log.delete_records(2)
    assert log.last_stable_offset == 2


@pytest.mark.parametrize("offset", [-1, 1, 7])
def test_rejects_offset_out_of_range(make_log: MakeLog, offset: int) -> None:
    log = filled(make_log, 6)
    log.delete_records(2)
    with pytest.raises(
        OffsetOutOfRangeError, match=f"offset {offset} for partition orders-0, .* from offset 2 up to 6"
    ):
        log.read(offset, 100)
    assert log.read(6, 100).slice is None
    assert bases(log.read(2, 1)) == [2]


def test_reads_empty_log(make_log: MakeLog) -> None:
    log = make_log()
    assert log.read(0, 100) == ReadResult(None, 0, 0, 0)
    assert log.find_timestamp(0) is None
    assert log.max_timestamp() is None
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 1 for partition orders-0, .* from offset 0 up to 0"):
        log.read(1, 100)


def test_slice_outlives_segment(make_log: MakeLog) -> None:
    log = filled(make_log, 3, **{"retention.bytes": 0, "file.delete.delay.ms": 0})
    found = log.read(0, 10**6).slice
    assert found is not None
    before = found.read()
    assert delete_old_segments(log) == 1
    log.close()
    assert found.read() == before
    assert [batch.base_offset for batch in found.batches()] == [0, 1, 2]


def test_read_skips_gap(make_log: MakeLog) -> None:
    log = make_log()
    log.append_as_follower(make_batch(base_offset=0))
    log.append_as_follower(make_batch(base_offset=10))
    for offset in range(1, 11):
        assert bases(log.read(offset, 1)) == [10]


# ---- aborted transactions


def test_returns_aborted_transactions(make_log: MakeLog) -> None:
    log = make_log()
    send(log, 1, transactional=True)  # 0
    send(log, 2, transactional=True)  # 1
    end_transaction(log, 1, ControlType.ABORT)  # 2
    log.roll()
    send(log, 1, 1, transactional=True)  # 3
    end_transaction(log, 1, ControlType.COMMIT)  # 4
    end_transaction(log, 2, ControlType.ABORT)  # 5
    append(log)  # 6
    first, second = AbortedTransaction(1, 0, 2, 1), AbortedTransaction(2, 1, 5, 6)
    for _ in range(2):
        log.update_high_watermark(log.log_end_offset)
        read = [log.read(offset, 10**6, FetchIsolation.TXN_COMMITTED).aborted for offset in range(7)]
        assert read[:3] == [[first, second]] * 3
        assert read[3:] == [[second]] * 3 + [[]]
        assert log.read(0, 10**6, FetchIsolation.HIGH_WATERMARK).aborted is None
        log.close()
        log = make_log()


def test_omits_abort_without_data(make_log: MakeLog) -> None:
    log = make_log()
    append(log)
    end_transaction(log, 1, ControlType.ABORT)
    assert log.read(0, 10**6, FetchIsolation.TXN_COMMITTED).aborted == []


# ---- time


def test_finds_first_record_at_or_after_timestamp(make_log: MakeLog) -> None:
    log = make_log({"index.interval.bytes": 0})
    append(log, make_batch_at(START_MS + 10, START_MS + 20))
    append(log, make_batch_at(START_MS + 30))
    log.roll()
    append(log, make_batch_at(START_MS + 40))
    for reopened in range(2):
        for ahead_ms, found in ((0, (10, 0)), (10, (10, 0)), (11, (20, 1)), (30, (30, 2)), (31, (40, 3)), (41, None)):
            expected = None if found is None else (START_MS + found[0], found[1])
            assert log.find_timestamp(START_MS + ahead_ms) == expected, (reopened, ahead_ms)
        assert log.max_timestamp() == (START_MS + 40, 3)
        log.close()
        log = make_log()


def test_finds_timestamps_out_of_order(make_log: MakeLog) -> None:
    """The record may follow newer ones, or be in a batch whose newest record comes first."""
    log = make_log({"index.interval.bytes": 0})
    append(log, make_batch_at(START_MS + 50, START_MS + 90, START_MS + 20))
    append(log, make_batch_at(START_MS + 10))
    append(log, make_batch_at(START_MS + 95, START_MS + 60))
    for ahead_ms, found in ((5, (50, 0)), (51, (90, 1)), (91, (95, 4)), (96, None)):
        expected = None if found is None else (START_MS + found[0], found[1])
        assert log.find_timestamp(START_MS + ahead_ms) == expected
    assert log.max_timestamp() == (START_MS + 95, 4)


def test_max_timestamp_may_be_in_old_segment(make_log: MakeLog) -> None:
    log = make_log()
    append(log, make_batch_at(START_MS + 10, START_MS + 90, START_MS + 90))
    log.roll()
    append(log, make_batch_at(START_MS + 20))
    assert log.max_timestamp() == (START_MS + 90, 1), "the first offset that has it"
    assert log.find_timestamp(START_MS + 15) == (START_MS + 90, 1)


def test_timestamp_lookup_ignores_records_below_log_start(make_log: MakeLog) -> None:
    log = make_log()
    append(log, make_batch_at(START_MS + 10, START_MS + 20, START_MS + 30))
    log.delete_records(2)
    assert log.find_timestamp(START_MS) == (START_MS + 30, 2)


def test_timestamp_lookup_without_timestamps(make_log: MakeLog) -> None:
    log = make_log()
    append(log, make_batch_at(-1, -1))
    assert log.max_timestamp() is None
    assert log.find_timestamp(0) is None
