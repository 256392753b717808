"""What was fetched and not yet handed out: for each partition a queue of replies, of errors and of its end.

The loop puts in, the thread that polls takes out; everything here is guarded by the lock of the SubscriptionState. An
entry has the version of its partition at the time of the request: once that has changed (a seek, a reset, the partition
is gone), it is dropped when its turn comes. Entries of paused partitions, and of those that are being stopped or
validated, stay until they are wanted again.

Partitions take turns: after one entry of a partition the next partition comes. When the loop leaves partitions out
because of what is waiting here, it says with `call_when_taken` how much of that has to go, and `took` tells it.
"""

from collections import deque
from collections.abc import Callable

from headrace.client.consumer.partition_state import FetchState, PartitionState
from headrace.common.types import TopicPartition
from headrace.records import FetchedRecords

_NEVER = -1


class CompletedFetch:
    """One thing that came for a partition: records, an error, or the news that its end is reached."""

    __slots__ = ("eof_offset", "error", "records", "size", "state", "version")

    def __init__(
        self,
        state: PartitionState,
        records: FetchedRecords | None = None,
        error: Exception | None = None,
        eof_offset: int = -1,
    ):
        self.state = state
        self.version = state.version
        self.records = records
        self.error = error
        self.eof_offset = eof_offset
        self.size = 0 if records is None else records.size_in_bytes

    @property
    def is_stale(self) -> bool:
        return self.state.version != self.version


class FetchBuffer:
    """See the module."""

    def __init__(self) -> None:
        self.size_in_bytes = 0
        """Of all replies that are not used up."""
        self.on_drained: Callable[[], None] = _nothing
        self._call_at_bytes = _NEVER
        self._queues: dict[TopicPartition, deque[CompletedFetch]] = {}
        self._order: deque[TopicPartition] = deque()

    def put(self, entry: CompletedFetch) -> None:
        tp = entry.state.tp
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = deque()
            self._order.append(tp)
        queue.append(entry)
        self.size_in_bytes += entry.size

    def waiting_bytes(self, tp: TopicPartition) -> int:
        """What waits for a partition, without what is stale."""
        queue = self._queues.get(tp)
        return 0 if queue is None else sum(entry.size for entry in queue if not entry.is_stale)

    def has(self, tp: TopicPartition) -> bool:
        queue = self._queues.get(tp)
        return queue is not None and any(not entry.is_stale for entry in queue)

    def has_error(self, tp: TopicPartition) -> bool:
        queue = self._queues.get(tp)
        return queue is not None and any(entry.error is not None and not entry.is_stale for entry in queue)

    def next(self) -> CompletedFetch | None:
        """The entry whose turn it is, which stays here until `done`; None if nothing can be handed out now."""
        for _ in range(len(self._order)):
            tp = self._order[0]
            queue = self._queues[tp]
            while queue and queue[0].is_stale:
                self._drop(queue)
            if not queue:
                del self._queues[tp]
                self._order.popleft()
                continue
            state = queue[0].state
            if state.state is FetchState.ACTIVE and not state.paused:
                return queue[0]
            self._order.rotate(-1)
        return None

    def done(self, entry: CompletedFetch) -> None:
        """An entry is used up; the next partition's turn."""
        tp = entry.state.tp
        queue = self._queues.get(tp)
        if queue and queue[0] is entry:
            self._drop(queue)
            if self._order[0] == tp:
                self._order.rotate(-1)

    def call_when_taken(self, size: int) -> None:
        """Has `took` called once, when so many bytes have gone or a partition has no more than one entry left."""
        self._call_at_bytes = max(0, self.size_in_bytes - size)

    def _drop(self, queue: deque[CompletedFetch]) -> None:
        self.size_in_bytes -= queue.popleft().size
        if self._call_at_bytes != _NEVER and (self.size_in_bytes <= self._call_at_bytes or len(queue) <= 1):
            self._call_at_bytes = _NEVER
            self.on_drained()

    def drop_stale(self) -> None:
        """Lets go of what is stale, wherever it stands."""
        for tp in list(self._queues):
            queue = self._queues[tp]
            kept = deque(entry for entry in queue if not entry.is_stale)
            if len(kept) != len(queue):
                self.size_in_bytes += sum(entry.size for entry in kept) - sum(entry.size for entry in queue)
                self._queues[tp] = kept

    def clear(self) -> None:
        self._queues.clear()
        self._order.clear()
        self.size_in_bytes = 0


def _nothing() -> None:
    pass
