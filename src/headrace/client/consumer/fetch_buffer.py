"""Completed fetches that the user has not consumed: per partition a queue of records, errors and ends of partition.

- The loop adds fetches, the thread that polls removes them. The lock of the SubscriptionState guards everything here.
- A completed fetch keeps its partition's version at the time of the request. If the version has changed since (a seek,
  a reset, a revoked partition), the fetch is stale and is dropped.
- Fetches of paused partitions, and of partitions that are being revoked or validated, stay until they can be consumed.
- Partitions take turns: after one fetch of a partition follows the next partition.
- When the buffer is full, the fetcher leaves partitions out. It then sets with `notify_when_drained` how many bytes
  must be consumed before `on_drained` runs.
"""

from collections import deque
from collections.abc import Callable

from headrace.client.consumer.partition_state import FetchState, PartitionState
from headrace.common.types import TopicPartition
from headrace.records import FetchedRecords

_NEVER = -1


class CompletedFetch:
    """The result of a fetch for one partition: records, an error, or the offset where the partition ends."""

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
        """True if the position has changed since the fetch was sent."""
        return self.state.version != self.version


class FetchBuffer:
    """The completed fetches of all partitions."""

    def __init__(self) -> None:
        self.size_in_bytes = 0
        """The size of all fetches that are not fully consumed."""
        self.on_drained: Callable[[], None] = _do_nothing
        self._notify_at_bytes = _NEVER
        self._queues: dict[TopicPartition, deque[CompletedFetch]] = {}
        self._order: deque[TopicPartition] = deque()

    def put(self, fetch: CompletedFetch) -> None:
        tp = fetch.state.tp
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = deque()
            self._order.append(tp)
        queue.append(fetch)
        self.size_in_bytes += fetch.size

    def buffered_bytes(self, tp: TopicPartition) -> int:
        """Returns the buffered bytes of a partition, without stale fetches."""
        queue = self._queues.get(tp)
        return 0 if queue is None else sum(fetch.size for fetch in queue if not fetch.is_stale)

    def has(self, tp: TopicPartition) -> bool:
        queue = self._queues.get(tp)
        return queue is not None and any(not fetch.is_stale for fetch in queue)

    def has_error(self, tp: TopicPartition) -> bool:
        queue = self._queues.get(tp)
        return queue is not None and any(fetch.error is not None and not fetch.is_stale for fetch in queue)

    def next(self) -> CompletedFetch | None:
        """Returns the fetch to consume next, or None if there is none. The fetch stays here until `done`."""
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

    def done(self, fetch: CompletedFetch) -> None:
        """Removes a fully consumed fetch and moves on to the next partition."""
        tp = fetch.state.tp
        queue = self._queues.get(tp)
        if queue and queue[0] is fetch:
            self._drop(queue)
            if self._order[0] == tp:
                self._order.rotate(-1)

    def notify_when_drained(self, size: int) -> None:
        """Calls `on_drained` once, after `size` bytes were consumed or a partition has at most one fetch left."""
        self._notify_at_bytes = max(0, self.size_in_bytes - size)

    def _drop(self, queue: deque[CompletedFetch]) -> None:
        self.size_in_bytes -= queue.popleft().size
        if self._notify_at_bytes != _NEVER and (self.size_in_bytes <= self._notify_at_bytes or len(queue) <= 1):
            self._notify_at_bytes = _NEVER
            self.on_drained()

    def drop_stale(self) -> None:
        """Removes all stale fetches."""
        for tp in list(self._queues):
            queue = self._queues[tp]
            current_fetches = deque(fetch for fetch in queue if not fetch.is_stale)
            if len(current_fetches) != len(queue):
                self.size_in_bytes += sum(fetch.size for fetch in current_fetches) - sum(fetch.size for fetch in queue)
                self._queues[tp] = current_fetches

    def clear(self) -> None:
        self._queues.clear()
        self._order.clear()
        self.size_in_bytes = 0


def _do_nothing() -> None:
    pass
