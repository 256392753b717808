"""A produce request that waits until its records are on all replicas in sync."""

from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.partition import Partition
from headrace.broker.purgatory import DelayedOperation
from headrace.common.errors import NotLeaderForPartitionError, RequestTimedOutError
from headrace.protocol.messages.produce import PartitionProduceResponse


class Waiting(NamedTuple):
    """A partition of the request whose records are not everywhere yet, and the reply that it will get."""

    partition: Partition
    last_offset: int
    reply: PartitionProduceResponse


class DelayedProduce(DelayedOperation):
    """Completes when for each partition one of these is so:

    A. this broker does not lead it any more, or has lost it: NOT_LEADER_OR_FOLLOWER;
    B. all replicas in sync have the records: no error;
    C. the request's timeout is over: REQUEST_TIMED_OUT.
    """

    def __init__(self, waiting: list[Waiting], timeout_ms: int, on_done: Callable[[], None]):
        super().__init__(timeout_ms)
        self._waiting = waiting
        self._epochs = [entry.partition.leader_epoch for entry in waiting]
        self._on_done = on_done

    def try_complete(self) -> bool:
        if all(self._is_settled(entry, epoch) for entry, epoch in zip(self._waiting, self._epochs, strict=True)):
            return self.force_complete()
        return False

    @staticmethod
    def _is_settled(entry: Waiting, epoch: int) -> bool:
        partition = entry.partition
        return not partition.is_leader or partition.leader_epoch != epoch or partition.is_replicated(entry.last_offset)

    def on_complete(self) -> None:
        for entry, epoch in zip(self._waiting, self._epochs, strict=True):
            partition = entry.partition
            if partition.is_replicated(entry.last_offset) and partition.leader_epoch == epoch:
                continue
            gone = not partition.is_leader or partition.leader_epoch != epoch
            entry.reply.error_code = NotLeaderForPartitionError.code if gone else RequestTimedOutError.code
            entry.reply.base_offset = -1
        self._on_done()
