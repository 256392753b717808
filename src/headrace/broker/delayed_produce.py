"""A produce request with acks=all that waits until all in-sync replicas have its records."""

from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.partition import Partition
from headrace.broker.purgatory import DelayedOperation
from headrace.common.errors import NotLeaderForPartitionError, RequestTimedOutError
from headrace.protocol.messages.produce import PartitionProduceResponse


class UnreplicatedAppend(NamedTuple):
    """A partition of the request that is not fully replicated yet, and its part of the response."""

    partition: Partition
    last_offset: int
    response: PartitionProduceResponse


class DelayedProduce(DelayedOperation):
    """Completes when one of these cases holds for each partition:

    A. this broker no longer leads the partition, or has lost it: NOT_LEADER_OR_FOLLOWER
    B. all in-sync replicas have the records: no error
    C. the request's timeout has passed: REQUEST_TIMED_OUT.
    """

    def __init__(self, appends: list[UnreplicatedAppend], timeout_ms: int, on_done: Callable[[], None]):
        super().__init__(timeout_ms)
        self._appends = appends
        self._epochs = [append.partition.leader_epoch for append in appends]
        self._on_done = on_done

    def try_complete(self) -> bool:
        if all(self._is_settled(append, epoch) for append, epoch in zip(self._appends, self._epochs, strict=True)):
            return self.force_complete()
        return False

    @staticmethod
    def _is_settled(append: UnreplicatedAppend, epoch: int) -> bool:
        partition = append.partition
        return not partition.is_leader or partition.leader_epoch != epoch or partition.is_replicated(append.last_offset)

    def on_complete(self) -> None:
        for append, epoch in zip(self._appends, self._epochs, strict=True):
            partition = append.partition
            if partition.is_replicated(append.last_offset) and partition.leader_epoch == epoch:
                continue
            lost_leadership = not partition.is_leader or partition.leader_epoch != epoch
            append.response.error_code = (
                NotLeaderForPartitionError.code if lost_leadership else RequestTimedOutError.code
            )
            append.response.base_offset = -1
        self._on_done()
