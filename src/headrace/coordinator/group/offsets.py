"""The committed offsets of one group, and the pending offsets of open transactions.

Only `replay` changes them. An offset that was written in a transaction is pending until the transaction's marker is
replayed. It does not overwrite a non-transactional commit that was written after it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.common.types import TopicPartition
from headrace.coordinator.group.records import OffsetCommitValue


class CommittedOffset(NamedTuple):
    """A committed offset with its metadata."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    """-1 if the broker's `offsets.retention.minutes` applies."""
    written: int
    """The position of its record among all records of the shard."""

    @classmethod
    def of(cls, value: OffsetCommitValue, written: int) -> "CommittedOffset":
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp_ms,
            value.expire_timestamp_ms,
            written,
        )

    def is_expired(self, since_ms: int, now_ms: int, retention_ms: int) -> bool:
        """`since_ms` is the start of the retention time, unless the client has set an expiration."""
        if self.expire_timestamp_ms >= 0:
            return now_ms >= self.expire_timestamp_ms
        return now_ms - since_ms >= retention_ms


class GroupOffsets:
    """The committed and pending offsets of a group."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[int, CommittedOffset]] = {}
        """By topic and partition."""
        self._pending: dict[int, dict[TopicPartition, CommittedOffset]] = {}
        """By producer id."""

    def __bool__(self) -> bool:
        return bool(self.committed or self._pending)

    def __iter__(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        for topic, partitions in self.committed.items():
            for partition, committed in partitions.items():
                yield TopicPartition(topic, partition), committed

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        partitions = self.committed.get(topic)
        return partitions.get(partition) if partitions is not None else None

    def commit(self, tp: TopicPartition, committed: CommittedOffset) -> None:
        self.committed.setdefault(tp.topic, {})[tp.partition] = committed

    def remove(self, tp: TopicPartition) -> None:
        """Removes the committed and the pending offsets of a partition."""
        partitions = self.committed.get(tp.topic)
        if partitions is not None:
            partitions.pop(tp.partition, None)
            if not partitions:
                del self.committed[tp.topic]
        for producer_id, offsets in list(self._pending.items()):
            offsets.pop(tp, None)
            if not offsets:
                del self._pending[producer_id]

    # ---- transactions

    def add_pending(self, producer_id: int, tp: TopicPartition, committed: CommittedOffset) -> None:
        self._pending.setdefault(producer_id, {})[tp] = committed

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        for tp, pending in self._pending.pop(producer_id, {}).items():
            stored = self.get(tp.topic, tp.partition)
            if committed and (stored is None or stored.written < pending.written):
                self.commit(tp, pending)

    def has_pending(self, topic: str, partition: int) -> bool:
        if not self._pending:
            return False
        tp = TopicPartition(topic, partition)
        return any(tp in offsets for offsets in self._pending.values())

    def pending_partitions(self) -> set[TopicPartition]:
        return {tp for offsets in self._pending.values() for tp in offsets}

    def all_partitions(self) -> set[TopicPartition]:
        return {tp for tp, _ in self} | self.pending_partitions()
