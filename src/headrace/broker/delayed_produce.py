"""A produce request with acks=all that waits until all in-sync replicas have its records."""

from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.partition import Partition
from headrace.broker.purgatory import DelayedOperation
from headrace.common.errors import NotEnoughReplicasAfterAppendError, NotLeaderForPartitionError, RequestTimedOutError
from headrace.protocol.messages.produce import PartitionProduceResponse


class UnreplicatedAppend(NamedTuple):
    """A partition of the request that is not fully replicated yet, and its part of the response."""

    partition: Partition
    last_offset: int
    response: PartitionProduceResponse


class DelayedProduce(DelayedOperation):
    """Completes when one of these cases holds for each partition:

    A. this broker no longer leads the partition, or has lost it: NOT_LEADER_OR_FOLLOWER
    B. all in-sync replicas have the records: no error, or NOT_ENOUGH_REPLICAS_AFTER_APPEND if they are fewer than
       `min.insync.replicas` by now
    C. the request's timeout has passed: REQUEST_TIMED_OUT.

    A new leader epoch that keeps the leader changes nothing: the records stay in the log, and the wait goes on.
    """

    def __init__(self, appends: list[UnreplicatedAppend], timeout_ms: int, on_done: Callable[[], None]):
        super().__init__(timeout_ms)
        self._appends = appends
        self._on_done = on_done

    def try_complete(self) -> bool:
        for partition, last_offset, _ in self._appends:
            if partition.is_leader and not partition.is_replicated(last_offset):
                return False
        return self.force_complete()

    def on_complete(self) -> None:
        for append in self._appends:
            if not append.partition.is_leader:
                append.response.error_code = NotLeaderForPartitionError.code
            elif not append.partition.is_replicated(append.last_offset):
                append.response.error_code = RequestTimedOutError.code
            elif not append.partition.has_enough_replicas:
                append.response.error_code = NotEnoughReplicasAfterAppendError.code
            else:
                continue
            append.response.base_offset = -1
        self._on_done()
