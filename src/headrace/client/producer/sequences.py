"""Sequence numbers of an idempotent producer: brokers recognize repeated batches and notice missing ones (KIP-98, 360).

Each batch carries the producer ID, the producer epoch and the sequence number of its first record. A leader accepts a
partition's batches in sequence only, and responds to a batch that it already has with the batch's offset. So:

- A batch keeps its sequence number in all retries, and is retried before later batches are sent.
- Until the first batch of an epoch is acknowledged, its partition has no other batch in flight. A leader without state
  of a producer accepts any first sequence. So it could accept the second batch before the first, which would be lost.
- A batch that failed leaves the partition *unresolved*: it may have been written, even if the broker rejected the last
  attempt. No new batch is drained until all batches in flight have a response. Then, unless the log turned out to be
  complete, the epoch is bumped. No other batch gets the failed batch's sequence numbers in the same epoch: the broker
  would take it for a duplicate, and acknowledge it without writing it.
- After a bump, the sequence numbers of a partition restart at 0, also those of batches that wait for a retry.
- A batch that may have been written and is then split leaves *doubtful* parts. If the leader has the whole batch, it
  rejects the parts as out of order, and a retry in a new epoch would duplicate them.

Belongs to the event loop. Sequence numbers wrap from 2^31 - 1 to 0.
"""

from typing import NamedTuple

from headrace.client.producer._batch import ProducerBatch
from headrace.common.types import TopicPartition

__all__ = ["NO_PRODUCER", "PartitionSequences", "ProducerIdAndEpoch", "Sequences"]

NO_SEQUENCE = -1
_LAST_SEQUENCE = 2**31 - 1
_LAST_EPOCH = 2**15 - 1


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer towards brokers."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id >= 0


NO_PRODUCER = ProducerIdAndEpoch(-1, -1)


def _add(sequence: int, count: int) -> int:
    return (sequence + count) & _LAST_SEQUENCE


class PartitionSequences:
    """The sequence of one partition. `in_flight` are the batches with a sequence number that are not acknowledged, in
    order: sent, or waiting for a retry."""

    __slots__ = ("doubtful_parts", "identity", "in_flight", "last_acked", "next")

    def __init__(self, identity: ProducerIdAndEpoch):
        self.identity = identity
        self.next = 0
        self.last_acked = NO_SEQUENCE
        self.in_flight: list[ProducerBatch] = []
        self.doubtful_parts: set[ProducerBatch] = set()

    def restart(self, identity: ProducerIdAndEpoch, transactional: bool) -> None:
        """Restarts at 0 in a new epoch, and renumbers the batches in flight."""
        self.identity = identity
        self.next = 0
        self.last_acked = NO_SEQUENCE
        for batch in self.in_flight:
            batch.set_producer(identity.producer_id, identity.epoch, self.next, transactional)
            batch.sequence_was_reset = True
            self.next = _add(self.next, len(batch))


class Sequences:
    """The sequence numbers of all partitions of a producer, with its ID and epoch."""

    def __init__(self, transactional: bool = False):
        self.transactional = transactional
        self.identity = NO_PRODUCER
        self.must_bump = False
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self._unresolved: dict[TopicPartition, None] = {}
        self._to_renumber: dict[TopicPartition, None] = {}

    def of(self, tp: TopicPartition) -> PartitionSequences:
        """Returns the sequence of a partition."""
        partition = self._partitions.get(tp)
        if partition is None:
            partition = self._partitions[tp] = PartitionSequences(self.identity)
        return partition

    def set_identity(self, identity: ProducerIdAndEpoch) -> None:
        """Sets the result of InitProducerId, or of EndTxn with transaction version 2. All partitions restart."""
        self.identity = identity
        self._unresolved.clear()
        self._to_renumber.clear()

    # ---- draining

    def may_drain(self, batch: ProducerBatch) -> bool:
        """Returns True if the batch at the head of its partition's queue may be sent now."""
        if not self.identity.is_valid or self.must_bump:
            return False
        partition = self._partitions.get(batch.tp)
        if partition is None:
            return True
        if not batch.has_sequence:
            if partition.in_flight and (partition.last_acked < 0 or partition.identity != self.identity):
                return False
            return batch.tp not in self._unresolved
        # A retried batch must be the first one in flight: the batches before it are retried too.
        return not partition.in_flight or partition.in_flight[0].base_sequence == batch.base_sequence

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Assigns a sequence number to a batch that has none."""
        if batch.has_sequence:
            return
        partition = self.of(batch.tp)
        if partition.identity != self.identity:
            partition.restart(self.identity, self.transactional)
        batch.set_producer(partition.identity.producer_id, partition.identity.epoch, partition.next, self.transactional)
        partition.next = _add(partition.next, len(batch))
        partition.in_flight.append(batch)

    # ---- responses

    def is_next(self, batch: ProducerBatch) -> bool:
        """Returns True if the batch follows the last acknowledged one."""
        partition = self.of(batch.tp)
        return batch.base_sequence == (0 if partition.last_acked < 0 else _add(partition.last_acked, 1))

    def is_unresolved(self, tp: TopicPartition) -> bool:
        return tp in self._unresolved

    def doubtful_parts(self, tp: TopicPartition) -> set[ProducerBatch]:
        """Returns the parts of split batches whose records the leader may have, as parts of the whole batch."""
        return self.of(tp).doubtful_parts

    def handle_completed_batch(self, batch: ProducerBatch) -> None:
        partition = self.of(batch.tp)
        if batch in partition.doubtful_parts:
            partition.doubtful_parts.clear()  # the leader accepted a part, so it does not have the whole batch
        if not self._remove(partition, batch) or not _has_identity(batch, partition.identity):
            return
        # Responses may arrive out of order after a reconnect.
        if partition.last_acked < 0 or _is_after(batch.last_sequence, partition.last_acked):
            partition.last_acked = batch.last_sequence

    def handle_failed_batch(self, batch: ProducerBatch) -> None:
        partition = self.of(batch.tp)
        partition.doubtful_parts.discard(batch)
        if self._remove(partition, batch) and _has_identity(batch, partition.identity):
            self._unresolved[batch.tp] = None

    def replace_batch(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Gives the sequence numbers of a split batch to its parts."""
        if not batch.has_sequence:
            return
        partition = self.of(batch.tp)
        sequence = batch.base_sequence
        for part in parts:
            part.set_producer(batch.producer_id, batch.producer_epoch, sequence, self.transactional)
            sequence = _add(sequence, len(part))
        index = partition.in_flight.index(batch)
        partition.in_flight[index : index + 1] = parts
        if batch.attempts > 0:
            partition.doubtful_parts.discard(batch)
            partition.doubtful_parts.update(parts)

    def _remove(self, partition: PartitionSequences, batch: ProducerBatch) -> bool:
        for index, other in enumerate(partition.in_flight):
            if other is batch:
                del partition.in_flight[index]
                return True
        return False

    # ---- epoch bumps

    def resolve(self) -> list[TopicPartition]:
        """Resolves the unresolved partitions that have no batches in flight. Returns those that may miss records, whose
        sequence cannot continue."""
        incomplete: list[TopicPartition] = []
        for tp in list(self._unresolved):
            partition = self.of(tp)
            if partition.in_flight:
                continue
            del self._unresolved[tp]
            expected = 0 if partition.last_acked < 0 else _add(partition.last_acked, 1)
            if partition.next != expected:
                incomplete.append(tp)
        return incomplete

    def request_bump(self, tp: TopicPartition) -> None:
        """Requests an epoch bump, after which the partition's sequence restarts."""
        self.must_bump = True
        self._to_renumber[tp] = None

    def bump(self) -> bool:
        """Bumps the epoch, which needs no request without transactions. Returns False if the epochs are exhausted and a
        new producer ID is needed."""
        self.must_bump = False
        if self.identity.epoch >= _LAST_EPOCH:
            self.identity = NO_PRODUCER
            return False
        self.identity = ProducerIdAndEpoch(self.identity.producer_id, self.identity.epoch + 1)
        self._renumber()
        return True

    def _renumber(self) -> None:
        for tp in self._to_renumber:
            self.of(tp).restart(self.identity, self.transactional)
            self._unresolved.pop(tp, None)
        self._to_renumber.clear()

    def set_new_producer_id(self, identity: ProducerIdAndEpoch) -> None:
        """Sets the first producer ID, or the next one after `bump` returned False."""
        self.identity = identity
        self._renumber()


def _has_identity(batch: ProducerBatch, identity: ProducerIdAndEpoch) -> bool:
    return (batch.producer_id, batch.producer_epoch) == identity


def _is_after(sequence: int, other: int) -> bool:
    """Returns True if a sequence number follows another one. They wrap around."""
    return 0 < ((sequence - other) & _LAST_SEQUENCE) < 2**30
