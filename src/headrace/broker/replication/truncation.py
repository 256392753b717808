"""Where a follower truncates its log, so that it becomes a prefix of its leader's log (KIP-101, KIP-279).

The follower tells the leader the epoch of its last record. The leader answers with the largest epoch that it knows up
to there, and the offset at which that epoch ends in its log:

    leader     epoch 3: 0-99    epoch 5: 100-...        the follower's last epoch is 4; the answer is (3, 100)
    follower   epoch 3: 0-119   epoch 4: 120-129        its epoch 3 ends at 120: both have 0-99, truncate to 100

If the follower does not know the epoch in the answer, it truncates to the end of its largest smaller epoch, and asks
again. In a clean election the result is never below the high watermark, since all in-sync replicas have those records.
"""

from typing import NamedTuple

from headrace.common.errors import CorruptRecordError, InvalidRecordError
from headrace.common.types import Buffer
from headrace.records import split_batches
from headrace.storage.log import Log

UNDEFINED = -1


class EpochEnd(NamedTuple):
    """The leader's answer: a leader epoch and its end offset in the leader's log, each UNDEFINED if unknown."""

    leader_epoch: int
    end_offset: int


class Truncation(NamedTuple):
    """The offset to truncate to. If it is not final, the follower has to ask again."""

    offset: int
    is_final: bool


def truncation_to(log: Log, leader: EpochEnd) -> Truncation:
    """Returns where a follower's log ends to be equal to its leader's."""
    end = log.log_end_offset
    if leader.end_offset == UNDEFINED:
        return Truncation(min(log.high_watermark, end), True)
    if leader.leader_epoch == UNDEFINED:
        return Truncation(min(leader.end_offset, end), True)
    epoch, epoch_end = log.end_offset_for_epoch(leader.leader_epoch)
    if epoch == UNDEFINED:
        return Truncation(min(leader.end_offset, end), True)
    if epoch != leader.leader_epoch:
        return Truncation(min(epoch_end, end), False)
    return Truncation(min(epoch_end, leader.end_offset, end), True)


def start_of_first_batch(log: Log, records: Buffer) -> int | None:
    """Returns where an empty log has to begin, so that fetched records can be appended; None if it need not change.

    The leader's log start may be in the middle of a batch, after DeleteRecords. A follower that begins there gets the
    whole batch:

        leader      batch 0-9, log start 6
        follower    empty, begins at 6; it must begin at 0 to append the batch, and then adopts the log start 6
    """
    end = log.log_end_offset
    if log.log_start_offset != end:
        return None
    try:
        batches = split_batches(records, allow_partial=True)
    except (CorruptRecordError, InvalidRecordError):
        return None
    return batches[0].base_offset if batches and batches[0].base_offset < end <= batches[0].last_offset else None
