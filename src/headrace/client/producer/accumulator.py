"""The record accumulator: queues of batches per partition, which of them are due, and which go into a request.

    queue of a partition        oldest  [ full ] [ full ] [ open ]  <- records
                                drain ─▶                              one batch of a partition per request

A batch is due if both hold:

- It is full or older than `linger.ms`, or a flush, a commit, exhausted memory or `close` requires it.
- Its partition has a leader, is not muted and has no retry backoff.

Any thread may call the methods up to the section "the loop". The event loop calls the others. The lock guards the
queues and is never held while callbacks, compression or other foreign code run. A record that fits the open batch of
its partition does not get here (see `_send`).
"""

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.errors import KafkaTimeoutError
from headrace.client.producer._batch import FutureRecordMetadata, ProducerBatch
from headrace.client.producer._send import PartitionQueue, SerializedRecord, TopicQueues
from headrace.client.producer.buffer_pool import BufferPool
from headrace.client.producer.partitioners import Loads, choose, weigh
from headrace.common.backoff import Backoff
from headrace.common.clock import Clock
from headrace.common.ids import Random
from headrace.common.types import TopicPartition
from headrace.records import Compression

if TYPE_CHECKING:
    from headrace.client.producer.idempotence import IdempotenceManager

__all__ = ["Accumulator", "AccumulatorConfig", "Flush", "Ready"]

NEVER = float("inf")
TOPIC_FORGOTTEN = -1
"""`append` returns this if the topic was dropped because it was not used for long: its metadata must be requested."""
MIDDLE_BYTES = 128 * 1024
"""A batch doubles up to this size, then it gets a large buffer: there is not one for each of many partitions."""
_LOADS_FRESH_SECONDS = 0.01
"""Queue lengths are sampled at this interval."""


class AccumulatorConfig(NamedTuple):
    """The accumulator's configs. Times are in seconds."""

    batch_bytes: int
    """The maximum size of a batch."""
    first_bytes: int
    """The initial size of a batch, and the bytes that a sticky partition gets before another one is chosen."""
    linger: float
    delivery_timeout: float
    max_request_bytes: int
    codec: Compression = Compression.NONE
    level: int | None = None
    adaptive: bool = True


class Ready(NamedTuple):
    """The result of `ready`: due queues by leader, the time of the next check, and topics without a leader."""

    by_leader: dict[int, list[PartitionQueue]]
    next_check: float
    leaderless: set[str]


class Flush:
    """A wait for all batches that existed when it started. `wake` is called once, when they are all done."""

    def __init__(self, pending: set[ProducerBatch], wake: Callable[[], None]):
        self.pending = pending
        self.wake = wake


class Accumulator:
    """All batches of a producer that are queued or in flight."""

    def __init__(
        self,
        config: AccumulatorConfig,
        pool: BufferPool,
        clock: Clock,
        random: Random,
        backoff: Backoff,
        wake: Callable[[], None],
        idempotence: "IdempotenceManager | None" = None,
    ):
        """`wake` polls the sender. `idempotence` assigns sequence numbers and holds batches back."""
        self.config = config
        self.pool = pool
        self.topics: dict[str, TopicQueues] = {}
        self.next_check = NEVER
        """The time at which the sender polls next without a wake-up."""
        self.slow_leaders: frozenset[int] = frozenset()
        """Leaders that have accepted no batch for `partitioner.availability.timeout.ms`."""
        self._clock = clock
        self._random = random
        self._backoff = backoff
        self._wake = wake
        self._idempotence = idempotence
        self._lock = threading.Lock()
        self._loads: dict[str, tuple[Loads | None, float]] = {}
        self._busy: dict[PartitionQueue, None] = {}
        self._incomplete: dict[ProducerBatch, None] = {}
        self._flushes: list[Flush] = []
        self._closed: BaseException | None = None

    # ---- any thread

    def set_leaders(self, topic: str, leaders: list[int]) -> None:
        """Sets the leader of each partition of a topic, -1 for none."""
        with self._lock:
            queues = self.topics.get(topic)
            if queues is not None:
                queues.set_leaders(leaders)
                return
            queues = TopicQueues(topic)
            queues.set_leaders(leaders)
            self._choose_sticky(queues, self._clock.monotonic())
            self.topics[topic] = queues

    def append(self, record: SerializedRecord, buffer: bytearray | None = None) -> FutureRecordMetadata | int:
        """Appends a record to a batch, if necessary to a new one. If there is no memory for a new batch, returns the
        size that it needs. The caller waits for a buffer of that size and calls again with it. A buffer that turns out
        not to be needed goes back to the pool."""
        due = False
        try:
            with self._lock:
                if self._closed is not None:
                    raise self._closed
                now = self._clock.monotonic()
                queues = self.topics.get(record.topic)
                if queues is None:
                    return TOPIC_FORGOTTEN
                queue = queues.sticky if record.partition < 0 else queues.queues[record.partition]
                future = self._append_open(queue, record)
                if future is None and record.partition < 0 and self._sticky_is_full(queues, record.batch_size_bytes):
                    self._choose_sticky(queues, now)
                    due = True
                    queue = queues.sticky
                    future = self._append_open(queue, record)
                if future is not None:
                    return future
                due |= bool(queue.batches)
                size = max(self.config.first_bytes, record.batch_size_bytes)
                if buffer is None:
                    buffer = self.pool.take(size)
                    if buffer is None:
                        return size
                if self._idempotence is not None:
                    self._idempotence.maybe_add_partition(queue.tp)
                batch = ProducerBatch(queue.tp, buffer, now, self.config.codec, self.config.level, size)
                buffer = None
                future = record.append_to(batch)
                assert future is not None
                queue.open_batch = batch
                due |= self._enqueue(queue, batch)
                return future
        finally:
            if buffer is not None:
                self.pool.give_back(buffer, len(buffer))
            if due:
                self._wake()

    def _append_open(self, queue: PartitionQueue, record: SerializedRecord) -> FutureRecordMetadata | None:
        """Appends a record to the open batch of a queue. Closes the batch if the record does not fit."""
        batch = queue.open_batch
        if batch is None:
            return None
        future = record.append_to(batch)
        if future is None and self._grow(batch, record.batch_size_bytes):
            future = record.append_to(batch)
        if future is None:
            self._close_open(queue)
        return future

    def _grow(self, batch: ProducerBatch, more_bytes: int) -> bool:
        """Enlarges a batch for a record, if `batch.size` and the memory allow it."""
        needed = batch.size_in_bytes + more_bytes
        if batch.is_closed or needed > self.config.batch_bytes:
            return False
        if self.pool.large_bytes and needed > MIDDLE_BYTES:
            buffer = self.pool.exchange(batch.capacity)
            if buffer is None:
                return False
            batch.move(buffer)
            return True
        capacity = min(max(2 * batch.capacity, needed), self.config.batch_bytes)
        if not self.pool.take_over(capacity - batch.capacity):
            return False
        batch.grow(capacity)
        return True

    def _sticky_is_full(self, queues: TopicQueues, more_bytes: int) -> bool:
        """Returns True if the sticky partition, with the next record, has received its share of bytes."""
        return queues.sticky.closed_bytes - queues.sticky_from + more_bytes >= self.config.first_bytes

    def _choose_sticky(self, queues: TopicQueues, now: float) -> None:
        """Chooses the next sticky partition (KIP-794)."""
        loads, candidates = None, queues.available
        if self.slow_leaders:
            fast = [partition for partition in candidates if queues.queues[partition].leader not in self.slow_leaders]
            candidates = fast or candidates
        if self.config.adaptive and len(candidates) > 1:
            loads, fresh_until = self._loads.get(queues.topic, (None, 0.0))
            if fresh_until <= now:
                loads = weigh([(partition, len(queues.queues[partition].batches)) for partition in candidates])
                self._loads[queues.topic] = loads, now + _LOADS_FRESH_SECONDS
        queues.sticky = queues.queues[choose(self._random, len(queues.queues), candidates, loads)]
        queues.sticky_from = queues.sticky.closed_bytes

    def _close_open(self, queue: PartitionQueue) -> None:
        batch = queue.open_batch
        if batch is not None:
            batch.close()
            queue.closed_bytes += batch.size_in_bytes
            queue.open_batch = None

    def _enqueue(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Queues a new batch. Returns True if the sender must be woken to send it in time."""
        queue.batches.append(batch)
        self._incomplete[batch] = None
        self._busy[queue] = None
        return batch.is_closed or batch.created_at + self.config.linger < self.next_check

    def next_sticky(self, topic: str) -> int:
        """Returns the sticky partition, for a whole batch of records without keys, and chooses the next one."""
        with self._lock:
            queues = self.topics[topic]
            partition = queues.sticky.partition
            self._choose_sticky(queues, self._clock.monotonic())
            return partition

    def append_batch(self, tp: TopicPartition, batch: ProducerBatch) -> None:
        """Queues a complete batch behind the other batches of its partition."""
        with self._lock:
            if self._closed is not None:
                raise self._closed
            queue = self.topics[tp.topic].queues[tp.partition]
            if self._idempotence is not None:
                self._idempotence.maybe_add_partition(tp)
            self._close_open(queue)
            self._enqueue(queue, batch)
        self._wake()

    def flush(self, wake: Callable[[], None]) -> Flush | None:
        """Makes all batches due, and calls `wake` on the loop when they are done. Returns None if there are none."""
        with self._lock:
            if not self._incomplete:
                return None
            flush = Flush(set(self._incomplete), wake)
            self._flushes.append(flush)
        self._wake()
        return flush

    def leave(self, flush: Flush) -> None:
        """Ends a wait early."""
        with self._lock:
            if flush in self._flushes:
                self._flushes.remove(flush)

    @property
    def incomplete_count(self) -> int:
        """The number of batches that are queued or in flight."""
        return len(self._incomplete)

    def queued_batches(self) -> dict[TopicPartition, int]:
        with self._lock:
            return {queue.tp: len(queue.batches) for queue in self._busy}

    # ---- the loop

    def ready(self, now: float) -> Ready:
        """Returns the queues whose first batch is due."""
        by_leader: dict[int, list[PartitionQueue]] = {}
        leaderless: set[str] = set()
        next_check = NEVER
        with self._lock:
            send_all = self._must_send_all()
            for queue in self._busy:
                leader = queue.leader
                if leader < 0:
                    leaderless.add(queue.tp.topic)
                elif not queue.is_muted:
                    due = self._due_at(queue, send_all)
                    if due <= now:
                        by_leader.setdefault(leader, []).append(queue)
                    elif due < next_check:
                        next_check = due
        return Ready(by_leader, next_check, leaderless)

    def _due_at(self, queue: PartitionQueue, send_all: bool) -> float:
        batch: ProducerBatch = queue.batches[0]
        if batch.attempts > 0:
            # A new leader needs no backoff (KIP-951).
            return batch.retry_at if queue.leader == batch.leader_id else 0.0
        if send_all or batch.is_closed:
            return 0.0
        return batch.created_at + self.config.linger

    def drain(self, leader: int, queues: Iterable[PartitionQueue], now: float) -> list[ProducerBatch]:
        """Takes one due batch of each queue for a request to this leader, within `max.request.size`. Drained queues
        move to the end, so that none starves if not all fit."""
        drained: list[ProducerBatch] = []
        size = 0
        with self._lock:
            send_all = self._must_send_all()
            for queue in queues:
                if not queue.batches or queue.is_muted or self._due_at(queue, send_all) > now:
                    continue
                batch = queue.batches[0]
                if drained and size + batch.size_in_bytes > self.config.max_request_bytes:
                    break
                if self._idempotence is not None and not self._idempotence.may_drain(batch):
                    continue
                self._pop(queue)
                del self._busy[queue]
                if queue.batches:
                    self._busy[queue] = None
                size += batch.size_in_bytes
                drained.append(batch)
        for batch in drained:
            if self._idempotence is not None:
                self._idempotence.assign_sequence(batch)
            batch.build()
            batch.leader_id = leader
        return drained

    def _must_send_all(self) -> bool:
        return bool(self._flushes or self._closed is not None or self.pool.is_exhausted)

    def mute(self, batches: Iterable[ProducerBatch], muted: bool) -> None:
        """Mutes or unmutes partitions. No batch of a muted partition is due: this keeps the order without sequences."""
        for batch in batches:
            self.queue(batch.tp).is_muted = muted

    def queue(self, tp: TopicPartition) -> PartitionQueue:
        return self.topics[tp.topic].queues[tp.partition]

    def requeue(self, batch: ProducerBatch, now: float) -> None:
        """Puts a batch back to the front of its queue for a retry, in sequence with other retried batches."""
        batch.retry_at = now + self._backoff.wait_seconds(batch.attempts)
        batch.attempts += 1
        with self._lock:
            self._insert(batch)

    def _insert(self, batch: ProducerBatch) -> None:
        queue = self.queue(batch.tp)
        earlier_batches: list[ProducerBatch] = []
        if batch.has_sequence:
            while queue.batches and queue.batches[0].has_sequence and _follows(batch, queue.batches[0]):
                earlier_batches.append(queue.batches.popleft())
        queue.batches.appendleft(batch)
        queue.batches.extendleft(reversed(earlier_batches))
        self._busy[queue] = None

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replaces a split batch by its parts and releases its memory."""
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
        """Returns the creation time of the oldest queued batch, or `now` if there is none."""
        with self._lock:
            return min((queue.batches[0].created_at for queue in self._busy), default=now)

    def expire(self, now: float) -> list[ProducerBatch]:
        """Takes out the batches that are older than `delivery.timeout.ms`. The caller fails them."""
        expired: list[ProducerBatch] = []
        with self._lock:
            for queue in list(self._busy):
                while queue.batches and queue.batches[0].created_at + self.config.delivery_timeout <= now:
                    expired.append(self._pop(queue))
                if not queue.batches:
                    del self._busy[queue]
        return expired

    def take_queued(self) -> list[ProducerBatch]:
        """Takes out all queued batches. The caller fails them."""
        batches: list[ProducerBatch] = []
        with self._lock:
            for queue in self._busy:
                while queue.batches:
                    batches.append(self._pop(queue))
            self._busy.clear()
        return batches

    def _pop(self, queue: PartitionQueue) -> ProducerBatch:
        batch: ProducerBatch = queue.batches.popleft()
        if queue.open_batch is batch:
            self._close_open(queue)
        return batch

    def finished(self, batch: ProducerBatch, keep_memory: bool = False) -> None:
        """Removes a batch that is done and whose callbacks have run. Releases its memory, unless `keep_memory`: the
        network may still read it, and `release` follows. Ends flushes that waited for it."""
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
        """Returns the memory of a batch to the pool. Parts of split batches are short-lived and not counted."""
        is_counted = not batch.is_split
        data = batch.data
        buffer, size = batch.detach()
        if size and is_counted:
            self.pool.give_back(buffer, size)
            if buffer is None and isinstance(data, bytearray):
                self.pool.keep(data)

    def close(self, error: BaseException) -> None:
        """Makes `append` raise the error, and all queued batches due."""
        with self._lock:
            self._closed = error

    def forget_topic(self, topic: str) -> None:
        """Drops a topic that was not used for long, unless it has batches that are queued or in flight."""
        with self._lock:
            if topic in self.topics and not any(batch.tp.topic == topic for batch in self._incomplete):
                del self.topics[topic]
                self._loads.pop(topic, None)


def _follows(batch: ProducerBatch, other: ProducerBatch) -> bool:
    """Returns True if the batch follows another one of the same partition. Sequence numbers wrap around."""
    return ((batch.base_sequence - other.base_sequence) & 0x7FFFFFFF) < 2**30


def delivery_timeout_error(
    batch: ProducerBatch, timeout: float, last_error: BaseException | None = None
) -> KafkaTimeoutError:
    """Returns the error of a batch that was not acknowledged within `delivery.timeout.ms`, caused by `last_error`."""
    reason = "" if last_error is None else f"; last error: {last_error}"
    error = KafkaTimeoutError(
        f"Expiring {len(batch)} record(s) for {batch.tp}: not acknowledged within {timeout:g} s "
        f"(delivery.timeout.ms){reason}"
    )
    error.__cause__ = last_error
    return error
