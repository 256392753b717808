"""After a failed write, a producer's later batches get the storage error, and none is lost or written twice."""

import errno
from pathlib import Path

import pytest
from tests.support.storage.logs import MakeLog, make_batch, new_log

from headrace.common.errors import KafkaStorageError, OutOfOrderSequenceNumberError
from headrace.storage.files import DiskFullError
from headrace.storage.log import Log
from headrace.testing.clock import ManualClock
from headrace.testing.disks import FaultyFileSystem


def send(log: Log, sequence: int, producer_id: int = 7, epoch: int = 0, value: bytes = b"x") -> int:
    batch = make_batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, value=value)
    return log.append_as_leader(batch, 0).base_offset


@pytest.mark.parametrize("known", [True, False], ids=["known producer", "new producer"])
def test_batches_in_flight_get_the_storage_error_until_the_failed_one_is_written(
    make_log: MakeLog, known: bool
) -> None:
    files = FaultyFileSystem()
    log = make_log(files=files)
    first = 0
    if known:
        assert send(log, 0) == 0
        first = 1
    files.fail("write", "*.log", errno.ENOSPC)
    with pytest.raises(DiskFullError, match="No space left on device"):
        send(log, first)
    for sequence in (first + 1, first + 2):
        with pytest.raises(KafkaStorageError, match=f"before sequence number {first}, which failed: .*No space left"):
            send(log, sequence)
    files.heal()
    with pytest.raises(KafkaStorageError, match=f"before sequence number {first}, which failed"):
        send(log, first + 1)  # was on its way when the disk had space again
    assert [send(log, sequence) for sequence in range(first, first + 3)] == [first, first + 1, first + 2]
    assert send(log, first + 2) == first + 2, "a duplicate"
    with pytest.raises(OutOfOrderSequenceNumberError):
        send(log, first + 5)


def test_failed_write_affects_no_other_producer(make_log: MakeLog) -> None:
    files = FaultyFileSystem()
    log = make_log(files=files)
    send(log, 0, producer_id=1)
    files.fail("write", "*.log", errno.ENOSPC, times=1)
    with pytest.raises(DiskFullError):
        send(log, 0, producer_id=2)
    assert send(log, 1, producer_id=1) == 1
    assert log.append_as_leader(make_batch(), 0).base_offset == 2


def test_new_epoch_starts_over(make_log: MakeLog) -> None:
    """A producer that gives up on the failed batch gets a new epoch."""
    files = FaultyFileSystem()
    log = make_log(files=files)
    files.fail("write", "*.log", errno.ENOSPC, times=1)
    with pytest.raises(DiskFullError):
        send(log, 5)
    assert send(log, 0, epoch=1) == 0
    assert send(log, 1, epoch=1) == 1


def test_earlier_batch_is_not_held_back(make_log: MakeLog) -> None:
    """The earlier batch failed before it reached the log, for example for lack of in-sync replicas."""
    files = FaultyFileSystem()
    log = make_log(files=files)
    files.fail("write", "*.log", errno.ENOSPC, times=1)
    with pytest.raises(DiskFullError):
        send(log, 5)
    assert [send(log, sequence) for sequence in (4, 5)] == [0, 1]


def test_later_batch_is_held_back_after_the_sequence_numbers_wrap(make_log: MakeLog) -> None:
    files = FaultyFileSystem()
    log = make_log(files=files)
    files.fail("write", "*.log", errno.ENOSPC, times=1)
    with pytest.raises(DiskFullError):
        send(log, 2**31 - 1)
    with pytest.raises(KafkaStorageError, match="sequence number 0 cannot be appended before"):
        send(log, 0)


def test_failed_write_of_a_follower_holds_back_no_producer(make_log: MakeLog, tmp_path: Path) -> None:
    """After it has become the leader, the producer sends again what the former leader did not acknowledge."""
    leader = new_log(tmp_path / "leader", ManualClock())
    for sequence in range(3):
        send(leader, sequence)
    files = FaultyFileSystem()
    follower = make_log(files=files)
    files.fail("write", "*.log", errno.ENOSPC, times=1)
    fetched = leader.read(0, 10_000).slice
    assert fetched is not None
    with pytest.raises(DiskFullError):
        follower.append_as_follower(fetched.read())
    assert [send(follower, sequence) for sequence in range(3)] == [0, 1, 2]


def test_failed_roll_holds_back_later_batches(make_log: MakeLog) -> None:
    files = FaultyFileSystem()
    log = make_log({"segment.bytes": 1024}, files=files)
    send(log, 0, value=b"x" * 900)
    files.fail("open", "*1.log", errno.ENOSPC, times=1)
    with pytest.raises(DiskFullError, match="Cannot append"):
        send(log, 1, value=b"x" * 900)
    with pytest.raises(KafkaStorageError, match="before sequence number 1, which failed: Cannot append"):
        send(log, 2)
    assert [send(log, sequence) for sequence in (1, 2)] == [1, 2]


def test_remembers_a_bounded_number_of_producers(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.storage.failed_appends._MAX_PRODUCERS", 2)
    files = FaultyFileSystem()
    log = make_log(files=files)
    files.fail("write", "*.log", errno.ENOSPC, times=3)
    for producer_id in (1, 2, 3):
        with pytest.raises(DiskFullError):
            send(log, 0, producer_id)
    assert send(log, 1, producer_id=1) == 0, "the oldest failure is forgotten"
    for producer_id in (2, 3):
        with pytest.raises(KafkaStorageError, match="before sequence number 0"):
            send(log, 1, producer_id)
