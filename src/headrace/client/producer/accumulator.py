"""Batches that wait to be sent: which partitions have some, which of them are due, and which go into a request.

    queue of a partition        oldest  [ full ] [ full ] [ open ]  <- records
                                drain ─▶                              a partition gives one batch to a request

A batch is due when it is full, or older than `linger.ms`, or a flush, a commit, a lack of memory or the end of the
producer hurries it, and its partition has a leader, is not muted, and is not waiting to try again.

`append` is any thread's; the rest is the loop's. The lock guards queues and books, and is not held while callbacks, the
codec or anyone else's code run. A record that fits the open batch of its partition does not come here (see `_send`).
"""

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from headrace.client.errors import KafkaTimeoutError
from headrace.client.producer._batch import FutureRecordMetadata, ProducerBatch
from headrace.client.producer._send import PartitionQueue, SendRequest, TopicQueues
from headrace.client.producer.buffer_pool import BufferPool
from headrace.client.producer.partitioners import Loads, choose, weigh
from headrace.common.backoff import Backoff
from headrace.common.clock import Clock
from headrace.common.ids import Random
from headrace.common.types import TopicPartition
from headrace.records import Compression

__all__ = ["Accumulator", "AccumulatorSettings", "Flush", "Order", "Ready"]

NEVER = float("inf")
TOPIC_FORGOTTEN = -1
"""What `append` returns for a topic that nobody has used for so long that it must be asked for again."""
MIDDLE_BYTES = 128 * 1024
"""What a batch grows to, step by step, before it gets a large buffer: with many partitions there is none for each."""
_LOADS_FRESH_SECONDS = 0.01
"""Queue lengths are looked at no more often than that."""


class AccumulatorSettings(NamedTuple):
    batch_bytes: int
    """What a batch may grow to."""
    first_bytes: int
    """What a batch begins with; also what a sticky partition gets before another is chosen."""
    linger: float
    delivery_timeout: float
    max_request_bytes: int
    codec: Compression = Compression.NONE
    level: int | None = None
    adaptive: bool = True


class Order(Protocol):
    """Who decides whether a batch may go out now, and gives it its place (sequence numbers)."""

    def may_drain(self, batch: ProducerBatch) -> bool: ...

    def drained(self, batch: ProducerBatch) -> None: ...


class Ready(NamedTuple):
    """What `ready` found: queues that are due by leader, when to look again, topics that lack a leader."""

    by_leader: dict[int, list[PartitionQueue]]
    next_check: float
    leaderless: set[str]


class Flush:
    """A wait for the batches of a moment. `wake` is called once, when they are all done."""

    def __init__(self, pending: set[ProducerBatch], wake: Callable[[], None]):
        self.pending = pending
        self.wake = wake


class Accumulator:
    def __init__(
        self,
        settings: AccumulatorSettings,
        pool: BufferPool,
        clock: Clock,
        random: Random,
        backoff: Backoff,
        wake: Callable[[], None],
        order: Order | None = None,
        admit: Callable[[TopicPartition], None] | None = None,
    ):
        """`wake` makes the loop look at what is due. `admit` hears of every partition that a batch is opened for, in
        the thread that sends."""
        self.settings = settings
        self.pool = pool
        self.topics: dict[str, TopicQueues] = {}
        self.next_check = NEVER
        """When the loop looks again of its own accord."""
        self.slow_leaders: frozenset[int] = frozenset()
        """Leaders that have taken nothing for `partitioner.availability.timeout.ms`."""
        self._clock = clock
        self._random = random
        self._backoff = backoff
        self._wake = wake
        self._order = order
        self._admit = admit
        self._lock = threading.Lock()
        self._loads: dict[str, tuple[Loads | None, float]] = {}
        self._busy: dict[PartitionQueue, None] = {}
        self._incomplete: dict[ProducerBatch, None] = {}
        self._flushes: list[Flush] = []
        self._closed: BaseException | None = None

    # ---- any thread

    def set_leaders(self, topic: str, leaders: list[int]) -> None:
        """What is known of a topic's partitions: the leader of each, -1 for none."""
        with self._lock:
            queues = self.topics.get(topic)
            if queues is not None:
                queues.set_leaders(leaders)
                return
            queues = TopicQueues(topic)
            queues.set_leaders(leaders)
            self._stick(queues, self._clock.monotonic())
            self.topics[topic] = queues

    def append(self, request: SendRequest, buffer: bytearray | None = None) -> FutureRecordMetadata | int:
        """Puts a record into a batch, a new one if need be. Returns the bytes that a new batch needs if there is no
        memory for it: to be called again with a buffer of that size. A buffer that was given is used or given back."""
        due = False
        try:
            with self._lock:
                if self._closed is not None:
                    raise self._closed
                now = self._clock.monotonic()
                queues = self.topics.get(request.topic)
                if queues is None:
                    return TOPIC_FORGOTTEN
                queue = queues.sticky if request.partition < 0 else queues.queues[request.partition]
                future = self._append_open(queue, request)
                if future is None and request.partition < 0 and self._has_enough(queues, request.largest_size):
                    self._stick(queues, now)
                    due = True
                    queue = queues.sticky
                    future = self._append_open(queue, request)
                if future is not None:
                    return future
                due |= bool(queue.batches)
                size = max(self.settings.first_bytes, request.largest_size)
                if buffer is None:
                    buffer = self.pool.take(size)
                    if buffer is None:
                        return size
                if self._admit is not None:
                    self._admit(queue.tp)
                batch = ProducerBatch(queue.tp, buffer, now, self.settings.codec, self.settings.level, size)
                buffer = None
                future = request.append_to(batch)
                assert future is not None
                queue.open_batch = batch
                due |= self._enqueue(queue, batch)
                return future
        finally:
            if buffer is not None:
                self.pool.give_back(buffer, len(buffer))
            if due:
                self._wake()

    def _append_open(self, queue: PartitionQueue, request: SendRequest) -> FutureRecordMetadata | None:
        """Puts a record into the open batch of a queue, or closes that if it does not fit."""
        batch = queue.open_batch
        if batch is None:
            return None
        future = request.append_to(batch)
        if future is None and self._grow(batch, request.largest_size):
            future = request.append_to(batch)
        if future is None:
            self._close_open(queue)
        return future

    def _grow(self, batch: ProducerBatch, more_bytes: int) -> bool:
        """Makes room for a record, if the batch may be so large and there is memory."""
        wanted = batch.size_in_bytes + more_bytes
        if batch.is_closed or wanted > self.settings.batch_bytes:
            return False
        if self.pool.large_bytes and wanted > MIDDLE_BYTES:
            buffer = self.pool.exchange(batch.capacity)
            if buffer is None:
                return False
            batch.move(buffer)
            return True
        capacity = min(max(2 * batch.capacity, wanted), self.settings.batch_bytes)
        if not self.pool.take_over(capacity - batch.capacity):
            return False
        batch.grow(capacity)
        return True

    def _has_enough(self, queues: TopicQueues, more_bytes: int) -> bool:
        """Whether the sticky partition has had its share, with the record that is to come."""
        return queues.sticky.closed_bytes - queues.sticky_from + more_bytes >= self.settings.first_bytes

    def _stick(self, queues: TopicQueues, now: float) -> None:
        loads, among = None, queues.available
        if self.slow_leaders:
            among = [index for index in among if queues.queues[index].leader not in self.slow_leaders] or among
        if self.settings.adaptive and len(among) > 1:
            loads, fresh_until = self._loads.get(queues.topic, (None, 0.0))
            if fresh_until <= now:
                loads = weigh([(index, len(queues.queues[index].batches)) for index in among])
                self._loads[queues.topic] = loads, now + _LOADS_FRESH_SECONDS
        queues.sticky = queues.queues[choose(self._random, len(queues.queues), among, loads)]
        queues.sticky_from = queues.sticky.closed_bytes

    def _close_open(self, queue: PartitionQueue) -> None:
        batch = queue.open_batch
        if batch is not None:
            batch.close()
            queue.closed_bytes += batch.size_in_bytes
            queue.open_batch = None

    def _enqueue(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Returns whether the loop would otherwise look too late."""
        queue.batches.append(batch)
        self._incomplete[batch] = None
        self._busy[queue] = None
        return batch.is_closed or batch.created_at + self.settings.linger < self.next_check

    def next_sticky(self, topic: str) -> int:
        """The partition for a batch of records without keys; another one each time."""
        with self._lock:
            queues = self.topics[topic]
            chosen = queues.sticky.partition
            self._stick(queues, self._clock.monotonic())
            return chosen

    def append_batch(self, tp: TopicPartition, batch: ProducerBatch) -> None:
        """Queues a batch that is complete already, behind what its partition has."""
        with self._lock:
            if self._closed is not None:
                raise self._closed
            queue = self.topics[tp.topic].queues[tp.partition]
            if self._admit is not None:
                self._admit(tp)
            self._close_open(queue)
            self._enqueue(queue, batch)
        self._wake()

    def flush(self, wake: Callable[[], None]) -> Flush | None:
        """Hurries everything that is here now, and calls `wake` (from the loop) when that is done. None if nothing
        is."""
        with self._lock:
            if not self._incomplete:
                return None
            flush = Flush(set(self._incomplete), wake)
            self._flushes.append(flush)
        self._wake()
        return flush

    def leave(self, flush: Flush) -> None:
        """Gives up a wait."""
        with self._lock:
            if flush in self._flushes:
                self._flushes.remove(flush)

    @property
    def incomplete_count(self) -> int:
        """Batches that are queued or in flight."""
        return len(self._incomplete)

    def queued_batches(self) -> dict[TopicPartition, int]:
        with self._lock:
            return {queue.tp: len(queue.batches) for queue in self._busy}

    # ---- the loop

    def ready(self, now: float) -> Ready:
        by_leader: dict[int, list[PartitionQueue]] = {}
        leaderless: set[str] = set()
        next_check = NEVER
        with self._lock:
            hurry = self._is_hurried()
            for queue in self._busy:
                leader = queue.leader
                if leader < 0:
                    leaderless.add(queue.tp.topic)
                elif not queue.is_muted:
                    due = self._due_at(queue, hurry)
                    if due <= now:
                        by_leader.setdefault(leader, []).append(queue)
                    elif due < next_check:
                        next_check = due
        return Ready(by_leader, next_check, leaderless)

    def _due_at(self, queue: PartitionQueue, hurry: bool) -> float:
        batch: ProducerBatch = queue.batches[0]
        if batch.attempts > 0:
            # With a new leader there is no reason to wait (KIP-951).
            return batch.retry_at if queue.leader == batch.leader_id else 0.0
        if hurry or batch.is_closed:
            return 0.0
        return batch.created_at + self.settings.linger

    def drain(self, leader: int, queues: Iterable[PartitionQueue], now: float) -> list[ProducerBatch]:
        """One due batch of each queue for a request to this leader, within `max.request.size`. Queues that gave one go
        to the end, so that none starves when not all fit."""
        drained: list[ProducerBatch] = []
        size = 0
        with self._lock:
            hurry = self._is_hurried()
            for queue in queues:
                if not queue.batches or queue.is_muted or self._due_at(queue, hurry) > now:
                    continue
                batch = queue.batches[0]
                if drained and size + batch.size_in_bytes > self.settings.max_request_bytes:
                    break
                if self._order is not None and not self._order.may_drain(batch):
                    continue
                self._pop(queue)
                del self._busy[queue]
                if queue.batches:
                    self._busy[queue] = None
                size += batch.size_in_bytes
                drained.append(batch)
        for batch in drained:
            if self._order is not None:
                self._order.drained(batch)
            batch.build()
            batch.drained_at = now
            batch.leader_id = leader
        return drained

    def _is_hurried(self) -> bool:
        return bool(self._flushes or self._closed is not None or self.pool.is_exhausted)

    def mute(self, batches: Iterable[ProducerBatch], muted: bool) -> None:
        """While a partition is muted nothing of it is due: with one request in flight, order needs no sequences."""
        for batch in batches:
            self.queue(batch.tp).is_muted = muted

    def queue(self, tp: TopicPartition) -> PartitionQueue:
        return self.topics[tp.topic].queues[tp.partition]

    def requeue(self, batch: ProducerBatch, now: float) -> None:
        """Back to the front, to be sent again; among others that are sent again, in sequence."""
        batch.retry_at = now + self._backoff.wait_seconds(batch.attempts)
        batch.attempts += 1
        with self._lock:
            self._insert(batch)

    def _insert(self, batch: ProducerBatch) -> None:
        queue = self.queue(batch.tp)
        before: list[ProducerBatch] = []
        if batch.has_sequence:
            while queue.batches and queue.batches[0].has_sequence and _follows(batch, queue.batches[0]):
                before.append(queue.batches.popleft())
        queue.batches.appendleft(batch)
        queue.batches.extendleft(reversed(before))
        self._busy[queue] = None

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Queues the parts of a batch that was split, and gives back the memory of the whole."""
        with self._lock:
            self._incomplete.pop(batch, None)
            for flush in self._flushes:
                if batch in flush.pending:
                    flush.pending.remove(batch)
                    flush.pending.update(parts)
            for part in reversed(parts):
                self._incomplete[part] = None
                self._insert(part)
        self.release(batch)

    def oldest(self, now: float) -> float:
        """When the oldest batch that waits was opened; now if none does."""
        with self._lock:
            return min((queue.batches[0].created_at for queue in self._busy), default=now)

    def expire(self, now: float) -> list[ProducerBatch]:
        """Takes out the batches that have waited for longer than `delivery.timeout.ms`; the caller fails them."""
        expired: list[ProducerBatch] = []
        with self._lock:
            for queue in list(self._busy):
                while queue.batches and queue.batches[0].created_at + self.settings.delivery_timeout <= now:
                    expired.append(self._pop(queue))
                if not queue.batches:
                    del self._busy[queue]
        return expired

    def take_unsent(self, also_sent: bool = False) -> list[ProducerBatch]:
        """Takes out what was never sent, or all that is queued; the caller fails it."""
        taken: list[ProducerBatch] = []
        with self._lock:
            for queue in list(self._busy):
                kept = [batch for batch in queue.batches if batch.has_sequence and not also_sent]
                while queue.batches:
                    batch = self._pop(queue)
                    if batch not in kept:
                        taken.append(batch)
                queue.batches.extend(kept)
                if not kept:
                    del self._busy[queue]
        return taken

    def _pop(self, queue: PartitionQueue) -> ProducerBatch:
        batch: ProducerBatch = queue.batches.popleft()
        if queue.open_batch is batch:
            self._close_open(queue)
        return batch

    def finished(self, batch: ProducerBatch, keep_memory: bool = False) -> None:
        """The batch is done and its callbacks have run: its memory goes back, and flushes hear of it. With
        `keep_memory` the network may still read it, and `release` comes later."""
        done: list[Flush] = []
        with self._lock:
            self._incomplete.pop(batch, None)
            for flush in self._flushes:
                flush.pending.discard(batch)
                if not flush.pending:
                    done.append(flush)
            for flush in done:
                self._flushes.remove(flush)
        if not keep_memory:
            self.release(batch)
        for flush in done:
            flush.wake()

    def release(self, batch: ProducerBatch) -> None:
        """Gives back the memory of a batch; parts of split ones are not counted, as their time is short."""
        is_counted = not batch.is_split
        data = batch.data
        buffer, size = batch.detach()
        if size and is_counted:
            self.pool.give_back(buffer, size)
            if buffer is None and isinstance(data, bytearray):
                self.pool.keep(data)

    def close(self, error: BaseException) -> None:
        """No more records: `append` raises the error. What is here is due at once."""
        with self._lock:
            self._closed = error

    def forget_topic(self, topic: str) -> None:
        """Drops a topic that has no batches here or in flight, as when nothing was sent to it for long."""
        with self._lock:
            if topic in self.topics and not any(batch.tp.topic == topic for batch in self._incomplete):
                del self.topics[topic]
                self._loads.pop(topic, None)


def _follows(batch: ProducerBatch, other: ProducerBatch) -> bool:
    """Whether the batch comes behind another one of the same partition; sequences wrap around."""
    return ((batch.base_sequence - other.base_sequence) & 0x7FFFFFFF) < 2**30


def timed_out(batch: ProducerBatch, timeout: float, last: BaseException | None = None) -> KafkaTimeoutError:
    """`last` is what stood in the way."""
    why = "" if last is None else f"; the last error: {last}"
    error = KafkaTimeoutError(
        f"{len(batch)} records for {batch.tp} were not acknowledged within {timeout:g} s (delivery.timeout.ms){why}"
    )
    error.__cause__ = last
    return error
