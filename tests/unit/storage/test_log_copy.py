"""Copies of logs that change meanwhile."""

from random import Random

import pytest
from tests.support.storage.copying import copy_log, start_move, truncate_future
from tests.support.storage.logs import TP, MakeManager, append, batches_of, make_batch

from headrace.common.ids import Uuid
from headrace.storage.log import Log
from headrace.storage.log_copy import LogCopy, Read, Simple, Truncate, common_end
from headrace.storage.manager import LogManager
from headrace.storage.retention import delete_old_segments

ID = Uuid.parse("L4tkSDvtSWyV2FJpQYyZlA")


def begin(manager: LogManager, records: int = 10, count: int = 1) -> tuple[Log, Log]:
    log = manager.create(TP, ID)
    for _ in range(records):
        append(log, count=count)
    other = next(directory for directory in manager.directories if directory is not manager.directory_of(TP))
    return log, start_move(manager, TP, other)


def raw(log: Log) -> list[bytes]:
    return [bytes(batch.raw) for batch in batches_of(log)]


def finish(manager: LogManager, log: Log) -> Log:
    """Copies the rest, and returns the new log, which has the same records."""
    expected, offsets = raw(log), (log.log_start_offset, log.high_watermark, log.log_end_offset)
    assert copy_log(manager, TP)
    moved = manager.get(TP)
    assert moved is not None
    assert moved is not log
    assert raw(moved) == expected
    assert (moved.log_start_offset, moved.high_watermark, moved.log_end_offset) == offsets
    assert moved.epochs.entries == log.epochs.entries
    return moved


def test_stops_without_logs(make_manager: MakeManager) -> None:
    with make_manager("one", "two") as manager:
        copy = LogCopy(TP, manager.futures)
        assert copy.next(100) is Simple.STOP
        assert copy.lag == 0
        begin(manager)
        assert copy.lag == 10
        manager.futures.delete(TP)
        assert copy.next(100) is Simple.STOP


def test_empty_log(make_manager: MakeManager) -> None:
    with make_manager("one", "two") as manager:
        log, _ = begin(manager, 0)
        moved = finish(manager, log)
        assert append(moved).base_offset == 0


def test_log_that_starts_in_the_middle_of_a_batch(make_manager: MakeManager) -> None:
    with make_manager("one", "two", topic_properties={"segment.bytes": 2000}) as manager:
        log, _ = begin(manager, 12, count=5)
        log.delete_records(33)
        delete_old_segments(log)
        moved = finish(manager, log)
        assert moved.log_start_offset == 33
        assert moved.segments.first.base_offset == 30


def test_retention_overtakes_the_copy(make_manager: MakeManager) -> None:
    with make_manager("one", "two", topic_properties={"segment.bytes": 1024}) as manager:
        log, future = begin(manager, 30)
        copy_log(manager, TP, max_steps=1, max_bytes=300)
        assert 0 < future.log_end_offset < 10
        log.delete_records(25)
        delete_old_segments(log)
        finish(manager, log)


def test_log_is_truncated_and_goes_on_in_another_epoch(make_manager: MakeManager) -> None:
    with make_manager("one", "two") as manager:
        log, future = begin(manager, 20)
        copy_log(manager, TP, max_steps=4, max_bytes=500)
        copied = future.log_end_offset
        assert 8 < copied < 20
        log.truncate_to(5)
        for _ in range(10):
            log.append_as_leader(make_batch(key=b"other"), 2)
        assert common_end(log, future) == 5
        finish(manager, log)


def test_log_is_truncated_while_a_slice_is_read(make_manager: MakeManager) -> None:
    with make_manager("one", "two") as manager:
        log, future = begin(manager, 20)
        copy = LogCopy(TP, manager.futures)
        step = copy.next(300)
        assert isinstance(step, Read)
        records = step.slice.read()
        log.truncate_to(0)
        assert copy.append(step, records) == 0
        assert future.log_end_offset == 0
        log.append_as_leader(make_batch(key=b"other"), 2)
        assert copy.append(step, records) == 0
        assert future.log_end_offset == 0
        manager.futures.delete(TP)
        assert copy.append(step, records) == 0


def test_log_is_restarted_at_another_offset(make_manager: MakeManager) -> None:
    with make_manager("one", "two") as manager:
        log, _ = begin(manager, 10)
        copy_log(manager, TP, max_steps=2)
        log.truncate_fully_and_start_at(1000)
        finish(manager, log)
    with make_manager("one", "two") as manager:
        log = manager.create(TP, ID)
        other = next(directory for directory in manager.directories if directory is not manager.directory_of(TP))
        start_move(manager, TP, other)
        copy_log(manager, TP, max_steps=1)
        log.truncate_fully_and_start_at(500)
        finish(manager, log)


def test_log_ends_in_a_gap(make_manager: MakeManager) -> None:
    """After a truncation within a batch's offsets that compaction had removed, the log ends behind its last batch."""
    with make_manager("one", "two") as manager:
        log, _ = begin(manager, 3)
        log.append_as_follower(_at(make_batch(), 10))
        log.truncate_to(7)
        log.update_high_watermark(7)
        assert log.log_end_offset == 7
        moved = finish(manager, log)
        assert append(moved).base_offset == 7


def _at(batch: bytearray, offset: int) -> bytearray:
    batch[:8] = offset.to_bytes(8, "big")
    batch[12:16] = (0).to_bytes(4, "big")
    return batch


def test_waits_for_syncs_and_truncations(make_manager: MakeManager) -> None:
    with make_manager("one", "two") as manager:
        log, future = begin(manager, 3)
        log.flush()
        copy = LogCopy(TP, manager.futures)
        step = copy.next(10_000)
        assert isinstance(step, Read)
        assert copy.append(step, step.slice.read())
        assert future.recovery_point == 0
        assert copy.next(10_000) is Simple.FLUSH
        log.checkpoint_limit = 2
        assert copy.next(10_000) is Simple.WAIT
        log.checkpoint_limit = None
        future.flush()
        assert copy.next(10_000) is Simple.REPLACE
        assert log.begin_truncation(2) is not None
        step = copy.next(10_000)
        assert isinstance(step, Truncate)
        assert step == Truncate(2, False)
        truncate_future(manager, TP, step)
        assert copy.next(10_000) is Simple.WAIT
        log.sync_truncation()
        finish(manager, log)


@pytest.mark.parametrize("seed", range(12))
def test_random_changes(make_manager: MakeManager, seed: int) -> None:
    """Appends, truncations, retention, restarts in random order; the copy always ends up equal."""
    random = Random(seed)
    topic = {"segment.bytes": 1024, "index.interval.bytes": 100}
    manager = make_manager("one", "two", topic_properties=topic).start()
    begin(manager, 10, count=3)
    epoch = 0
    for _ in range(60):
        log = manager.get(TP)
        assert log is not None
        choice = random.randrange(10)
        if choice < 4:
            log.append_as_leader(make_batch(random.randint(1, 4), key=b"%d" % random.randrange(10**9)), epoch)
            log.update_high_watermark(log.log_end_offset)
        elif choice == 4:
            epoch += 1
            log.truncate_to(random.randint(log.log_start_offset, log.log_end_offset))
            log.update_high_watermark(log.log_end_offset)
        elif choice == 5:
            log.delete_records(random.randint(log.log_start_offset, log.high_watermark))
            delete_old_segments(log)
        elif choice == 6 and random.random() < 0.3:
            epoch += 1
            log.truncate_fully_and_start_at(log.log_end_offset + random.randrange(50))
        elif choice == 7 and random.random() < 0.4:
            epoch += 1
            if random.random() < 0.5:
                manager.close()
            else:
                manager.abandon()
            manager = make_manager("one", "two", topic_properties=topic, seed=epoch).start()
            restarted = manager.get(TP)
            assert restarted is not None
            restarted.update_high_watermark(restarted.log_end_offset)
        elif choice > 7:
            expected = raw(log)
            if not copy_log(manager, TP, max_steps=random.randint(1, 4), max_bytes=random.choice((100, 400, 2000))):
                continue
            moved = manager.get(TP)
            assert moved is not None
            assert raw(moved) == expected
            other = next(directory for directory in manager.directories if directory is not manager.directory_of(TP))
            start_move(manager, TP, other)
    log = manager.get(TP)
    assert log is not None
    finish(manager, log)
    manager.close()
