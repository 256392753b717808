"""Sequence numbers: what makes a repeated request harmless and a lost one noticed (KIP-98, KIP-360).

Every batch of an idempotent producer has the producer's id and epoch and the sequence of its first record. A leader
takes a partition's batches in sequence only, and answers one that it has already with where that is. So:

- A batch keeps its sequence however often it is sent, and is drained before later ones while it is being sent again.
- Until the first batch of an epoch is acknowledged, a partition has no other in flight: a leader that knows nothing of
  a producer takes whatever sequence comes first, and if that were the second batch, the first would be lost.
- A batch that the broker refused for good was not written: those behind it close the gap (`failed`).
- A batch that was given up while its fate was unknown leaves the partition *unresolved*: nothing new is drained until
  all that is in flight has its answer, and then, unless the log turned out to have everything, the epoch is bumped.
- After a bump the sequences of a partition begin at 0 again, also those of batches that wait to be sent again.

Owned by the loop. Sequences wrap from 2^31 - 1 to 0.
"""

from typing import NamedTuple

from headrace.client.producer._batch import ProducerBatch
from headrace.common.types import TopicPartition

__all__ = ["NO_PRODUCER", "PartitionSequences", "ProducerIdentity", "Sequences"]

NO_SEQUENCE = -1
_LAST_SEQUENCE = 2**31 - 1
_LAST_EPOCH = 2**15 - 1


class ProducerIdentity(NamedTuple):
    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id >= 0


NO_PRODUCER = ProducerIdentity(-1, -1)


def _add(sequence: int, count: int) -> int:
    return (sequence + count) & _LAST_SEQUENCE


class PartitionSequences:
    """One partition. `in_flight` are the batches with a sequence and without an answer, in order, whether they are on
    the wire or wait to be sent again."""

    __slots__ = ("identity", "in_flight", "last_acked", "next")

    def __init__(self, identity: ProducerIdentity):
        self.identity = identity
        self.next = 0
        self.last_acked = NO_SEQUENCE
        self.in_flight: list[ProducerBatch] = []

    def begin_again(self, identity: ProducerIdentity, transactional: bool) -> None:
        """Sequences from 0 in a new epoch; what is in flight gets new ones."""
        self.identity = identity
        self.next = 0
        self.last_acked = NO_SEQUENCE
        for batch in self.in_flight:
            batch.set_producer(identity.producer_id, identity.epoch, self.next, transactional)
            batch.sequence_was_reset = True
            self.next = _add(self.next, len(batch))


class Sequences:
    """The sequences of all partitions of a producer, and its identity."""

    def __init__(self, transactional: bool = False):
        self.transactional = transactional
        self.identity = NO_PRODUCER
        self.must_bump = False
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self._unresolved: dict[TopicPartition, None] = {}
        self._to_renumber: dict[TopicPartition, None] = {}

    def of(self, tp: TopicPartition) -> PartitionSequences:
        found = self._partitions.get(tp)
        if found is None:
            found = self._partitions[tp] = PartitionSequences(self.identity)
        return found

    def set_identity(self, identity: ProducerIdentity) -> None:
        """What InitProducerId (or, with transactions of version 2, EndTxn) gave. All partitions begin again."""
        self.identity = identity
        self._unresolved.clear()
        self._to_renumber.clear()

    # ---- draining

    def may_drain(self, batch: ProducerBatch) -> bool:
        """Whether the batch at the head of its partition may go out now."""
        if not self.identity.is_valid or self.must_bump:
            return False
        partition = self._partitions.get(batch.tp)
        if partition is None:
            return True
        if not batch.has_sequence:
            if partition.in_flight and (partition.last_acked < 0 or partition.identity != self.identity):
                return False
            return batch.tp not in self._unresolved
        # One that is sent again must be the first without an answer: those before it are to be sent again too.
        return not partition.in_flight or partition.in_flight[0].base_sequence == batch.base_sequence

    def drained(self, batch: ProducerBatch) -> None:
        """Gives a new batch its sequence."""
        if batch.has_sequence:
            return
        partition = self.of(batch.tp)
        if partition.identity != self.identity:
            partition.begin_again(self.identity, self.transactional)
        batch.set_producer(partition.identity.producer_id, partition.identity.epoch, partition.next, self.transactional)
        partition.next = _add(partition.next, len(batch))
        partition.in_flight.append(batch)

    # ---- answers

    def is_next(self, batch: ProducerBatch) -> bool:
        """Whether the batch is the one behind the last that was acknowledged."""
        partition = self.of(batch.tp)
        return batch.base_sequence == (0 if partition.last_acked < 0 else _add(partition.last_acked, 1))

    def is_unresolved(self, tp: TopicPartition) -> bool:
        return tp in self._unresolved

    def acked(self, batch: ProducerBatch) -> None:
        partition = self.of(batch.tp)
        if not self._remove(partition, batch) or not _is_of(batch, partition.identity):
            return
        # Replies may come out of order when connections change.
        if partition.last_acked < 0 or _is_after(batch.last_sequence, partition.last_acked):
            partition.last_acked = batch.last_sequence

    def failed(self, batch: ProducerBatch, known_unwritten: bool) -> None:
        """The batch has been given up. `known_unwritten`: the broker said that it did not write it."""
        partition = self.of(batch.tp)
        if not batch.has_sequence or not self._remove(partition, batch):
            return
        if not _is_of(batch, partition.identity):
            return
        if not known_unwritten:
            self._unresolved[batch.tp] = None
            return
        # The broker refuses those behind it, which are on the wire with sequences that do not follow, and they are sent
        # again with these.
        for other in partition.in_flight:
            if _is_of(other, partition.identity) and _is_after(other.base_sequence, batch.base_sequence):
                sequence = (other.base_sequence - len(batch)) & _LAST_SEQUENCE
                other.set_producer(
                    partition.identity.producer_id, partition.identity.epoch, sequence, self.transactional
                )
                other.sequence_was_reset = True
        partition.next = (partition.next - len(batch)) & _LAST_SEQUENCE

    def replaced(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """A batch was split: its parts take over its sequences."""
        if not batch.has_sequence:
            return
        partition = self.of(batch.tp)
        sequence = batch.base_sequence
        for part in parts:
            part.set_producer(batch.producer_id, batch.producer_epoch, sequence, self.transactional)
            sequence = _add(sequence, len(part))
        index = partition.in_flight.index(batch)
        partition.in_flight[index : index + 1] = parts

    def _remove(self, partition: PartitionSequences, batch: ProducerBatch) -> bool:
        for index, other in enumerate(partition.in_flight):
            if other is batch:
                del partition.in_flight[index]
                return True
        return False

    # ---- bumps

    def resolve(self) -> list[TopicPartition]:
        """Looks after unresolved partitions that have nothing in flight any more. Returns those where records may be
        missing, so that the sequence cannot go on; the others are fine again."""
        broken: list[TopicPartition] = []
        for tp in list(self._unresolved):
            partition = self.of(tp)
            if partition.in_flight:
                continue
            del self._unresolved[tp]
            expected = 0 if partition.last_acked < 0 else _add(partition.last_acked, 1)
            if partition.next != expected:
                broken.append(tp)
        return broken

    def request_bump(self, tp: TopicPartition) -> None:
        """The partition's sequence is lost: it is to begin again in a new epoch."""
        self.must_bump = True
        self._to_renumber[tp] = None

    def bump(self) -> bool:
        """Takes the next epoch, which an idempotent producer does without asking. False if epochs are used up and a new
        producer id is needed."""
        self.must_bump = False
        if self.identity.epoch >= _LAST_EPOCH:
            self.identity = NO_PRODUCER
            return False
        self.identity = ProducerIdentity(self.identity.producer_id, self.identity.epoch + 1)
        self._renumber()
        return True

    def _renumber(self) -> None:
        for tp in self._to_renumber:
            self.of(tp).begin_again(self.identity, self.transactional)
            self._unresolved.pop(tp, None)
        self._to_renumber.clear()

    def has_new_identity(self, identity: ProducerIdentity) -> None:
        """A new id after `bump` found none left."""
        self.identity = identity
        self._renumber()


def _is_of(batch: ProducerBatch, identity: ProducerIdentity) -> bool:
    return (batch.producer_id, batch.producer_epoch) == identity


def _is_after(sequence: int, other: int) -> bool:
    """Whether one sequence is behind another; they wrap around."""
    return 0 < ((sequence - other) & _LAST_SEQUENCE) < 2**30
