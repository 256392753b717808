from typing import Any

import pytest
from tests.support.storage.logs import START_MS, MakeLog, append, end_transaction, make_batch, make_marker, send

from headrace.common.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from headrace.records import ControlType, RecordBatch, read_marker
from headrace.storage.producer_state import AppendOrigin, LastBatch, ProducerStateManager, check_client_batch
from headrace.testing.clock import ManualClock

LAST_SEQUENCE = 2**31 - 1


def data(sequence: int = 0, *, producer_id: int = 1, epoch: int = 0, count: int = 1, **fields: Any) -> RecordBatch:
    return RecordBatch(
        make_batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)
    )


def marker(
    control_type: ControlType, *, producer_id: int = 1, base_offset: int = 0, epoch: int = 0, coordinator_epoch: int = 0
) -> RecordBatch:
    made = RecordBatch(make_marker(control_type, producer_id, epoch=epoch, coordinator_epoch=coordinator_epoch))
    made.patch_base_offset(base_offset)
    return made


def states_with(*batches: RecordBatch) -> ProducerStateManager:
    states = ProducerStateManager()
    for batch in batches:
        states.apply(batch)
    return states


def check(states: ProducerStateManager, batch: RecordBatch, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    states.check(batch, origin)


# ---- epochs and sequence numbers, in the order of the module's table


def test_accepts_unknown_producer_with_any_sequence() -> None:
    check(ProducerStateManager(), data(17, epoch=3))


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_fences_older_epoch(origin: AppendOrigin) -> None:
    states = states_with(data(epoch=5))
    with pytest.raises(InvalidProducerEpochError, match="Epoch 4 of producer 1 is smaller than the last seen epoch 5"):
        check(states, data(1, epoch=4), origin)


def test_newer_epoch_must_start_with_sequence_0() -> None:
    states = states_with(data(epoch=5, count=3))
    check(states, data(0, epoch=6))
    with pytest.raises(OutOfOrderSequenceNumberError, match="Invalid sequence number for new epoch 6 of producer 1: 3"):
        check(states, data(3, epoch=6))


def test_rejects_out_of_order_sequence() -> None:
    states = states_with(data(0, count=3))
    check(states, data(3))
    for sequence in (4, 2, 0):
        with pytest.raises(
            OutOfOrderSequenceNumberError, match=f"Out of order sequence number for producer 1: {sequence} "
        ):
            check(states, data(sequence))


def test_sequence_wraps_to_0() -> None:
    states = states_with(data(LAST_SEQUENCE))
    check(states, data(0))
    with pytest.raises(OutOfOrderSequenceNumberError, match="Out of order sequence number for producer 1: 1"):
        check(states, data(1))


def test_accepts_batch_across_sequence_wrap() -> None:
    around = data(LAST_SEQUENCE - 1, count=4)
    assert around.last_sequence == 1
    states = states_with(around)
    assert states.entries[1].last_sequence == 1
    check(states, data(2))
    assert states.find_duplicate(data(LAST_SEQUENCE - 1, count=4)) is not None


def test_does_not_check_replicated_batches() -> None:
    check(states_with(data(0, epoch=5)), data(99, epoch=1), AppendOrigin.REPLICATION)


def test_check_changes_nothing() -> None:
    states = states_with(data(0))
    before = repr(states.entries)
    check(states, data(1, transactional=True))
    assert repr(states.entries) == before


# ---- duplicates


def test_recognizes_duplicates_of_last_five_batches() -> None:
    states = states_with(*(data(sequence, base_offset=100 + sequence) for sequence in range(6)))
    for sequence in range(1, 6):
        found = states.find_duplicate(data(sequence))
        assert found is not None
        assert (found.base_offset, found.last_offset) == (100 + sequence, 100 + sequence)
    assert states.find_duplicate(data(0)) is None
    with pytest.raises(OutOfOrderSequenceNumberError, match="Out of order sequence number for producer 1: 0"):
        check(states, data(0))


@pytest.mark.parametrize(
    "other",
    [
        data(0, count=2),
        data(1, count=3),
        data(0, count=3, epoch=1),
        data(0, count=3, producer_id=2),
    ],
    ids=["fewer records", "later", "newer epoch", "other producer"],
)
def test_other_batches_are_not_duplicates(other: RecordBatch) -> None:
    assert states_with(data(0, count=3)).find_duplicate(other) is None


def test_duplicate_append_returns_offsets_of_first(make_log: MakeLog) -> None:
    log = make_log()
    send(log, 1, 0, count=3)
    send(log, 1, 3, count=2)
    again = send(log, 1, 0, count=3)
    assert again.duplicate
    assert (again.base_offset, again.last_offset, again.max_timestamp) == (0, 2, START_MS)
    assert log.log_end_offset == 5


def test_duplicate_append_returns_append_time_of_first(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log({"message.timestamp.type": "LogAppendTime"})
    first = send(log, 1, 0)
    clock.advance(5_000)
    assert send(log, 1, 0).log_append_time_ms == first.log_append_time_ms == START_MS


def test_new_epoch_clears_cached_batches() -> None:
    states = states_with(data(0), data(1), data(0, epoch=1))
    assert [kept.base_sequence for kept in states.entries[1].batches] == [0]
    assert states.entries[1].epoch == 1


def test_rejects_two_batches_of_one_producer(make_log: MakeLog) -> None:
    log = make_log()
    twice = make_batch(producer_id=1, producer_epoch=0, base_sequence=0) * 2
    with pytest.raises(InvalidRecordError, match="Producer 1 has more than one batch in one append"):
        log.append_as_leader(twice, 0)
    assert log.log_end_offset == 0
    two = b"".join(make_batch(producer_id=producer, producer_epoch=0, base_sequence=0) for producer in (1, 2))
    assert log.append_as_leader(two, 0).last_offset == 1


# ---- headers


@pytest.mark.parametrize(
    ("batch", "named"),
    [
        (marker(ControlType.COMMIT), "Clients are not allowed to write control records"),
        (RecordBatch(make_batch(transactional=True)), "A transactional batch must have a producer id"),
        (data(-1), "Invalid sequence number -1 in a batch of producer 1"),
        (data(0, epoch=-1), "Invalid producer epoch -1 in a batch of producer 1"),
    ],
)
def test_rejects_invalid_client_headers(batch: RecordBatch, named: str) -> None:
    with pytest.raises(InvalidRecordError, match=named):
        check_client_batch(batch)


def test_accepts_valid_client_headers() -> None:
    check_client_batch(RecordBatch(make_batch()))
    check_client_batch(data(0, transactional=True))


# ---- markers


def test_fences_marker_of_older_coordinator() -> None:
    states = states_with(marker(ControlType.COMMIT, coordinator_epoch=7))
    old = marker(ControlType.COMMIT, coordinator_epoch=6)
    with pytest.raises(
        TransactionCoordinatorFencedError,
        match="coordinator epoch 6, which is smaller than the last seen epoch 7",
    ):
        states.check(old, AppendOrigin.COORDINATOR, read_marker(old.records()))
    same = marker(ControlType.COMMIT, coordinator_epoch=7)
    states.check(same, AppendOrigin.COORDINATOR, read_marker(same.records()))


def test_fences_marker_of_older_producer_epoch(make_log: MakeLog) -> None:
    log = make_log()
    send(log, 1, epoch=5, transactional=True)
    with pytest.raises(InvalidProducerEpochError, match="Epoch 4 of producer 1 is smaller than the last seen epoch 5"):
        end_transaction(log, 1, epoch=4)


def test_marker_with_newer_epoch_fences_old_producer(make_log: MakeLog) -> None:
    """As a coordinator does when it aborts the transaction of a producer that timed out."""
    log = make_log()
    send(log, 1, epoch=5, transactional=True)
    end_transaction(log, 1, ControlType.ABORT, epoch=6)
    with pytest.raises(InvalidProducerEpochError, match="Epoch 5 of producer 1 is smaller than the last seen epoch 6"):
        send(log, 1, 1, epoch=5, transactional=True)
    with pytest.raises(OutOfOrderSequenceNumberError, match="Out of order sequence number for producer 1: 1"):
        send(log, 1, 1, epoch=6)
    send(log, 1, 0, epoch=6)


def test_rejects_write_outside_open_transaction(make_log: MakeLog) -> None:
    log = make_log()
    append(log)
    send(log, 1, transactional=True)
    with pytest.raises(InvalidTxnStateError, match="ongoing transaction that started at offset 1"):
        send(log, 1, 1)
    end_transaction(log, 1)
    send(log, 1, 1)


def test_marker_completes_transaction() -> None:
    states = states_with(data(0, base_offset=10, transactional=True), data(1, base_offset=11, transactional=True))
    completed = states.apply(marker(ControlType.ABORT, base_offset=12))
    assert completed is not None
    assert (completed.producer_id, completed.first_offset, completed.last_offset) == (1, 10, 12)
    assert completed.aborted
    assert states.apply(marker(ControlType.COMMIT, base_offset=13)) is None, "there is nothing left to end"
    assert states.end_offset == 14


# ---- the first unstable offset


def test_no_unstable_offset_without_transactions() -> None:
    assert states_with(data(0)).first_unstable_offset() is None


def test_first_unstable_offset_of_several_transactions() -> None:
    states = states_with(
        data(0, producer_id=1, base_offset=10, transactional=True),
        data(0, producer_id=2, base_offset=11, transactional=True),
        data(0, producer_id=3, base_offset=12, transactional=True),
    )
    assert states.first_unstable_offset() == 10
    completed = states.apply(marker(ControlType.COMMIT, producer_id=1, base_offset=13))
    assert completed is not None
    assert states.last_stable_offset_after(completed) == 11
    assert states.first_unstable_offset() == 10, "its marker is not replicated yet"
    states.on_high_watermark_updated(13)
    assert states.first_unstable_offset() == 10
    states.on_high_watermark_updated(14)
    assert states.first_unstable_offset() == 11
    completed = states.apply(marker(ControlType.ABORT, producer_id=3, base_offset=14))
    assert completed is not None
    assert states.last_stable_offset_after(completed) == 11
    states.apply(marker(ControlType.ABORT, producer_id=2, base_offset=15))
    states.on_high_watermark_updated(16)
    assert states.first_unstable_offset() is None


def test_transactions_may_end_in_any_order() -> None:
    states = states_with(
        data(0, producer_id=1, base_offset=10, transactional=True),
        data(0, producer_id=2, base_offset=11, transactional=True),
        marker(ControlType.COMMIT, producer_id=2, base_offset=12),
        marker(ControlType.COMMIT, producer_id=1, base_offset=13),
    )
    assert states.first_unstable_offset() == 10
    states.on_high_watermark_updated(13)
    assert states.first_unstable_offset() == 10
    states.on_high_watermark_updated(14)
    assert states.first_unstable_offset() is None


# ---- expiration


def test_removes_expired_producers(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log()
    day_ms = 86_400_000
    send(log, 1)
    send(log, 2, transactional=True)
    clock.advance(1)
    send(log, 3, at=clock.time_ms())
    clock.advance(day_ms - 2)
    assert log.remove_expired_producers(day_ms) == []
    clock.advance(1)
    assert log.remove_expired_producers(day_ms) == [1]
    clock.advance(1)
    assert log.remove_expired_producers(day_ms) == [3]
    assert set(log.producers.entries) == {2}, "its transaction is open"
    send(log, 1, 55, at=clock.time_ms())
    assert log.producers.entries[1].last_sequence == 55


# ---- compaction


def test_returns_last_batch_of_each_producer() -> None:
    states = states_with(
        data(0, base_offset=10, count=2),
        marker(ControlType.COMMIT, producer_id=2, base_offset=12, epoch=4),
    )
    assert states.last_batches() == {1: LastBatch(11, 0), 2: LastBatch(None, 4)}
    assert LastBatch(11, 0).is_in(data(0, base_offset=10, count=2))
    assert not LastBatch(11, 0).is_in(data(0, base_offset=10))
    assert LastBatch(None, 4).is_in(marker(ControlType.COMMIT, epoch=4))
    assert not LastBatch(None, 4).is_in(marker(ControlType.COMMIT, epoch=3))
    assert not LastBatch(None, 4).is_in(data(0, epoch=4))
