"""Sequence numbers of a partition."""

import pytest

from headrace.client.producer._batch import ProducerBatch
from headrace.client.producer.sequences import ProducerIdAndEpoch, Sequences
from headrace.common.types import TopicPartition
from headrace.records import encode_rows

TP = TopicPartition("t", 0)


def make(count: int, tp: TopicPartition = TP) -> ProducerBatch:
    data = encode_rows([(None, b"v", 0, None)] * count)
    return ProducerBatch.from_bytes(tp, data, 0.0, len(data))


def started(epoch: int = 0) -> Sequences:
    """Returns sequences after a first batch, so that several may be in flight. The next sequence is 0, after the
    highest."""
    sequences = Sequences()
    sequences.set_identity(ProducerIdAndEpoch(5, epoch))
    sequences.of(TP).last_acked = 2**31 - 1
    return sequences


def drain(sequences: Sequences, *counts: int) -> list[ProducerBatch]:
    batches = [make(count) for count in counts]
    for batch in batches:
        assert sequences.may_drain(batch)
        sequences.assign_sequence(batch)
    return batches


def test_needs_producer_id_to_drain() -> None:
    assert not Sequences().may_drain(make(1))


def test_first_batch_of_epoch_is_alone_in_flight() -> None:
    sequences = Sequences()
    sequences.set_identity(ProducerIdAndEpoch(5, 0))
    (first,) = drain(sequences, 1)
    assert not sequences.may_drain(make(1))
    assert sequences.may_drain(first), "it may be retried"
    sequences.handle_completed_batch(first)
    drain(sequences, 1, 1)


def test_sequences_are_contiguous_per_partition() -> None:
    sequences = started()
    first, second, third = drain(sequences, 3, 2, 4)
    assert [batch.base_sequence for batch in (first, second, third)] == [0, 3, 5]
    assert third.last_sequence == 8
    other = make(1, TopicPartition("t", 1))
    sequences.assign_sequence(other)
    assert other.base_sequence == 0


def test_sequences_wrap_around() -> None:
    sequences = started()
    sequences.of(TP).next, sequences.of(TP).last_acked = 2**31 - 2, 2**31 - 3
    first, second = drain(sequences, 3, 1)
    assert (first.base_sequence, first.last_sequence, second.base_sequence) == (2**31 - 2, 0, 1)
    sequences.handle_completed_batch(first)
    assert sequences.is_next(second)


def test_retried_batches_keep_sequence_and_order() -> None:
    sequences = started()
    first, second = drain(sequences, 1, 1)
    assert sequences.may_drain(first)
    assert not sequences.may_drain(second), "the batch before it is not acknowledged yet"
    sequences.assign_sequence(first)
    assert first.base_sequence == 0
    sequences.handle_completed_batch(first)
    assert sequences.may_drain(second)


def test_no_batch_gets_the_sequence_numbers_of_a_failed_one() -> None:
    sequences = started()
    first, second, third = drain(sequences, 3, 2, 4)
    sequences.handle_completed_batch(first)
    sequences.handle_failed_batch(second)
    assert (third.base_sequence, third.sequence_was_reset) == (5, False)
    assert not sequences.may_drain(make(1))
    sequences.handle_failed_batch(third)
    assert sequences.resolve() == [TP]


def test_unresolved_partition_drains_nothing_new() -> None:
    sequences = started()
    first, second, third = drain(sequences, 1, 1, 1)
    sequences.handle_completed_batch(first)
    sequences.handle_failed_batch(second)
    assert not sequences.may_drain(make(1))
    assert sequences.may_drain(third)
    assert sequences.resolve() == []
    sequences.handle_failed_batch(third)
    assert sequences.resolve() == [TP]


def test_resolved_partition_needs_no_bump() -> None:
    sequences = started()
    first, second = drain(sequences, 1, 1)
    sequences.handle_failed_batch(first)
    sequences.handle_completed_batch(second)  # leaders accept batches in sequence only, so the first one was written
    assert sequences.resolve() == []
    assert sequences.may_drain(make(1))
    assert not sequences.must_bump


def test_bump_renumbers_batches_in_flight() -> None:
    sequences = started()
    first, second = drain(sequences, 3, 2)
    sequences.request_bump(TP)
    assert not sequences.may_drain(first)
    assert sequences.bump()
    assert sequences.identity == (5, 1)
    assert [(batch.producer_epoch, batch.base_sequence) for batch in (first, second)] == [(1, 0), (1, 3)]
    assert not sequences.may_drain(make(1))
    sequences.handle_completed_batch(first)
    (third,) = drain(sequences, 1)
    assert (third.producer_epoch, third.base_sequence) == (1, 5)


def test_other_partitions_change_epoch_when_empty() -> None:
    sequences = started()
    other = TopicPartition("t", 1)
    batch = make(2, other)
    sequences.assign_sequence(batch)
    sequences.request_bump(TP)
    sequences.bump()
    assert (batch.producer_epoch, batch.base_sequence) == (0, 0)
    assert sequences.may_drain(batch), "it may be retried in the old epoch"
    assert not sequences.may_drain(make(1, other)), "new batches wait until the old epoch has none in flight"
    sequences.handle_completed_batch(batch)
    fresh = make(1, other)
    assert sequences.may_drain(fresh)
    sequences.assign_sequence(fresh)
    assert (fresh.producer_epoch, fresh.base_sequence) == (1, 0)


def test_acknowledged_partition_changes_epoch_when_empty() -> None:
    """The new epoch restarts at 0. A batch of the new epoch behind one of the old epoch would renumber that one. The
    leader may have it: it would be written twice."""
    sequences = started()
    other = TopicPartition("t", 1)
    first, second, third = make(1, other), make(1, other), make(1, other)
    sequences.assign_sequence(first)
    sequences.handle_completed_batch(first)
    sequences.assign_sequence(second)
    sequences.request_bump(TP)
    sequences.bump()
    assert not sequences.may_drain(third)
    sequences.handle_completed_batch(second)
    assert sequences.may_drain(third)
    sequences.assign_sequence(third)
    assert (third.producer_epoch, third.base_sequence) == (1, 0)


def test_new_epoch_resolves_partitions() -> None:
    sequences = started()
    (batch,) = drain(sequences, 1)
    sequences.handle_failed_batch(batch)
    sequences.set_identity(ProducerIdAndEpoch(5, 1))
    assert sequences.resolve() == []
    (fresh,) = drain(sequences, 1)
    assert (fresh.producer_epoch, fresh.base_sequence) == (1, 0)


def test_exhausted_epochs_need_new_producer_id() -> None:
    sequences = started(epoch=2**15 - 1)
    (batch,) = drain(sequences, 2)
    sequences.request_bump(TP)
    assert not sequences.bump()
    assert not sequences.identity.is_valid
    sequences.set_new_producer_id(ProducerIdAndEpoch(9, 0))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 0, 0)


def test_parts_of_split_batch_take_over_sequences() -> None:
    sequences = started()
    first, second = drain(sequences, 5, 1)
    parts = [make(2), make(3)]
    sequences.replace_batch(first, parts)
    assert [part.base_sequence for part in parts] == [0, 2]
    assert sequences.may_drain(parts[0])
    assert not sequences.may_drain(parts[1])
    sequences.handle_completed_batch(parts[0])
    sequences.handle_completed_batch(parts[1])
    assert sequences.is_next(second)


def test_parts_are_doubtful_if_the_whole_batch_may_be_written() -> None:
    sequences = started()
    first, second = drain(sequences, 5, 1)
    first.attempts = 1
    parts = [make(2), make(3)]
    sequences.replace_batch(first, parts)
    assert sequences.doubtful_parts(TP) == set(parts)
    parts[1].attempts = 1
    smaller = [make(1), make(2)]
    sequences.replace_batch(parts[1], smaller)
    assert sequences.doubtful_parts(TP) == {parts[0], *smaller}
    sequences.handle_failed_batch(parts[0])
    assert sequences.doubtful_parts(TP) == set(smaller)
    sequences.handle_completed_batch(smaller[0])
    assert not sequences.doubtful_parts(TP), "the leader accepted a part, so it does not have the whole batch"
    assert sequences.of(TP).in_flight == [smaller[1], second]


def test_parts_of_a_batch_in_its_first_attempt_are_not_doubtful() -> None:
    sequences = started()
    (batch,) = drain(sequences, 2)
    sequences.replace_batch(batch, [make(1), make(1)])
    assert not sequences.doubtful_parts(TP)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_responses_in_any_order(order: tuple[int, int]) -> None:
    sequences = started()
    batches = drain(sequences, 1, 1)
    for index in order:
        sequences.handle_completed_batch(batches[index])
    (third,) = drain(sequences, 1)
    assert sequences.is_next(third)
