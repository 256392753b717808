"""After a failed write, a producer's later batches get the storage error, and none is lost or written twice."""

import errno

import pytest
from tests.support.storage.logs import MakeLog, make_batch

from headrace.common.errors import KafkaStorageError, OutOfOrderSequenceNumberError
from headrace.storage.files import DiskFullError
from headrace.storage.log import Log
from headrace.testing.disks import FaultyFileSystem


def send(log: Log, sequence: int, producer_id: int = 7, epoch: int = 0) -> int:
    batch = make_batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
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
