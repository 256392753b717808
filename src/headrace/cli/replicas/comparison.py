"""Compares what the replicas of a partition returned, batch by batch. Pure.

replica 1    batches 0-4  5-9  10-12    high watermark 13
replica 2    batches 0-4  5-9           high watermark 10      equal up to 10, lag 3
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.client.replica_reader import BatchChecksum, ReplicaRead
from headrace.common.errors import OffsetOutOfRangeError
from headrace.common.types import TopicPartition


@dataclass(slots=True)
class Comparison:
    """The result for a partition."""

    next_offset: int
    """All replicas are equal, or were compared, below it."""
    max_high_watermark: int
    differences: list[str] = field(default_factory=list)
    """Sentences, as Kafka's tool prints them."""

    @property
    def lag(self) -> int:
        return max(0, self.max_high_watermark - self.next_offset)


def compare(tp: TopicPartition, offset: int, reads: Mapping[int, ReplicaRead]) -> Comparison:
    """Compares the replicas of a partition from an offset on. `reads` has all of them, by broker."""
    result = Comparison(offset, max((read.high_watermark for read in reads.values()), default=-1))
    errors = {broker: read for broker, read in reads.items() if read.error is not None}
    if errors:
        return _with_errors(tp, result, reads, errors)
    if not reads:
        return result
    (first_id, first), *others = sorted(reads.items())
    queues = {broker: [batch for batch in read.batches if batch.last_offset >= offset] for broker, read in others}
    for index, batch in enumerate(batch for batch in first.batches if batch.last_offset >= offset):
        if any(len(batches) <= index for batches in queues.values()):
            break
        found = {broker: batches[index] for broker, batches in queues.items()}
        result.differences += _differences(tp, first_id, batch, found)
        result.next_offset = min([batch.last_offset, *(other.last_offset for other in found.values())]) + 1
        if any(other.last_offset != batch.last_offset for other in found.values()):
            break  # the next fetch begins where both have a batch
    return result


def _differences(
    tp: TopicPartition, first_id: int, batch: BatchChecksum, found: Mapping[int, BatchChecksum]
) -> list[str]:
    sentences: list[str] = []
    for broker, other in sorted(found.items()):
        if other.last_offset != batch.last_offset:
            sentences.append(
                f"partition {tp}: replica {first_id}'s offset {batch.last_offset} doesn't match replica {broker}'s "
                f"offset {other.last_offset}"
            )
        elif other.checksum != batch.checksum:
            sentences.append(
                f"partition {tp} has unmatched checksum at offset {batch.last_offset}; replica {first_id}'s checksum "
                f"{batch.checksum}; replica {broker}'s checksum {other.checksum}"
            )
    return sentences


def _with_errors(
    tp: TopicPartition, result: Comparison, reads: Mapping[int, ReplicaRead], errors: Mapping[int, ReplicaRead]
) -> Comparison:
    """Retention may have deleted the offset on all replicas meanwhile. Otherwise one replica lacks records."""
    starts = [read.log_start_offset for read in reads.values()]
    if (
        all(isinstance(read.error, OffsetOutOfRangeError) for read in errors.values())
        and max(starts) > result.next_offset
    ):
        result.next_offset = max(starts)
        return result
    result.differences += [
        f"partition {tp}: replica {broker} cannot be read at offset {result.next_offset}: {read.error}"
        for broker, read in sorted(errors.items())
    ]
    return result
