"""The blocking consumer. Names, arguments and return values are those of kafka-python.

A background thread runs the event loop that fetches ahead and keeps the group membership. `poll` takes fetched data and
decodes the records in the calling thread, which also runs rebalance listeners and commit callbacks.
"""

import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from headrace.client.arguments import AnyPartition, OffsetLike, PartitionLike
from headrace.client.background import FORKED, LoopThread
from headrace.client.config.keywords import ConsumerKeywords
from headrace.client.consumer.abstract_consumer import AbstractConsumer, Records, Steps
from headrace.client.consumer.arguments import Offsets, check_timeout
from headrace.client.consumer.commit_future import CommitFuture
from headrace.client.consumer.core import ConsumerCore
from headrace.client.consumer.subscription_state import ConsumerRebalanceListener
from headrace.client.errors import IllegalStateError
from headrace.client.metric_names import KafkaMetric, MetricName, flatten
from headrace.client.types import K, OffsetAndMetadata, OffsetAndTimestamp, V
from headrace.client.waiting import InterruptibleEvent
from headrace.common.clock import SystemClock
from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition
from headrace.records import ConsumerRecord

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Consumer", "ConsumerRebalanceListener", "ConsumerRecord"]

T = TypeVar("T")


class Consumer(AbstractConsumer[K, V]):
    """Reads records from topics.

        with Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            for record in consumer:
                print(record.topic, record.partition, record.offset, record.key, record.value)

    Configs are keyword arguments (`group_id=...`) or a mapping with Kafka's names (`Consumer({"group.id": ...})`). Only
    one thread at a time may use a consumer, but any thread may call `wakeup`.
    """

    def __init__(self, *topics: str | Mapping[str, object], **keywords: Unpack[ConsumerKeywords[K, V]]):
        super().__init__(topics, keywords)
        self._clock = SystemClock()
        self._ready: InterruptibleEvent = InterruptibleEvent()
        self._polling = threading.RLock()
        self._thread, core = LoopThread.start("headrace-consumer", self._start_core)
        self._started_core = core
        self._thread.close_automatically(self, core.abandon)

    async def _start_core(self) -> ConsumerCore:
        core = ConsumerCore(self.config, self._ready.set, self._subscription)
        await core.start()
        return core

    def _forked(self) -> None:
        """Disables this consumer in the child process of a fork."""
        self._started_core = None
        self._is_closing = True
        self._not_started = FORKED

    def _wake(self) -> None:
        self._ready.set()

    def _monotonic(self) -> float:
        return self._clock.monotonic()

    # ---- running on the loop

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and waits for it."""
        return self._thread.run(work)

    def _run_steps(self, steps: Steps[T]) -> T:
        try:
            while True:
                step = next(steps)
                if isinstance(step, float):
                    self._ready.wait(step)
        except StopIteration as finished:
            result: T = finished.value
            return result
        finally:
            steps.close()

    def _serve(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop that depends on user callbacks."""
        return self._run_steps(self._serve_steps(self._thread.submit(work)))

    def _check_thread(self) -> None:
        if self._thread.is_current:
            raise IllegalStateError("A blocking call from a callback of the client would wait for itself")

    # ---- polling

    def poll(self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True) -> Records[K, V]:
        """Returns fetched records by partition, at most `max_records` (default: `max_poll_records`).

        Waits up to `timeout_ms` for the first record. With `update_offsets=False` the positions do not move, so the
        next poll returns the same records.
        """
        return self._finish_poll(self._poll(timeout_ms, self._collect(max_records)), update_offsets)

    def poll_arrow(self, timeout_ms: float = 0, max_records: int | None = None) -> "pa.Table":
        """Returns fetched records like `poll`, as one Arrow table with the columns topic, partition, offset, timestamp,
        timestamp_type, key, value and headers. Does not deserialize. Without `max_records` it returns everything that
        has been fetched."""
        table = self._poll(timeout_ms, self._collect_arrow(max_records))
        return self._core.collector.collect_arrow(0) if table is None else table

    def _poll(self, timeout_ms: float, collect: Callable[[], T]) -> T | None:
        check_timeout(timeout_ms)
        if not self._polling.acquire(blocking=False):
            raise IllegalStateError(
                "Consumer is not safe for multi-threaded access: another thread is polling. Use one consumer per thread"
            )
        try:
            return self._run_steps(self._poll_steps(timeout_ms, collect))
        finally:
            self._polling.release()

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Yields records one by one until no record arrives for `consumer_timeout_ms`. The position moves with each
        record. A seek, a pause or a lost partition takes effect with the next record."""
        lock = self._subscription.lock
        while not self._closed:
            if self._current is None:
                collected = self._poll(self._iteration_timeout_ms, self._collect_for_iteration)
                if not collected:
                    return
                self._current = collected[0]
            current = self._start_iteration(self._current)
            advance, version, records = current.state.advance, current.version, current.records
            last = len(records) - 1
            while (index := current.index) <= last:
                record = records[index]
                with lock:
                    if not advance(version, record.offset + 1 if index < last else current.next_offset):
                        break
                current.index = index + 1
                yield record
            self._return_unread(current)

    def __next__(self) -> ConsumerRecord[K, V]:
        return next(iter(self))

    # ---- offsets

    def position(self, partition: PartitionLike, timeout_ms: float | None = None) -> int:
        """Returns the offset of the next record. Waits until it is known."""
        return self._run_steps(self._position_steps(partition, timeout_ms))

    def offsets_for_times(
        self, timestamps: Mapping[AnyPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns, for each partition, the offset of the first record whose timestamp (milliseconds) is equal or later,
        or None."""
        return self._run(self._core.offsets_for_times(timestamps, timeout_ms))

    def beginning_offsets(
        self, partitions: Iterable[PartitionLike], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition."""
        return self._run(self._core.beginning_offsets(partitions, timeout_ms))

    def end_offsets(
        self, partitions: Iterable[PartitionLike], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the high watermark of each partition, or with `read_committed` the last stable offset."""
        return self._run(self._core.end_offsets(partitions, timeout_ms))

    def commit(
        self, offsets: "Mapping[AnyPartition, OffsetLike] | None" = None, timeout_ms: float | None = None
    ) -> None:
        """Commits offsets (of the next records to read), or all positions, and waits for the response."""
        self._run(self._core.commit(self._to_offsets(offsets), timeout_ms))

    def commit_async(
        self,
        offsets: "Mapping[AnyPartition, OffsetLike] | None" = None,
        callback: Callable[[Offsets, KafkaError | None], object] | None = None,
    ) -> CommitFuture:
        """Commits without waiting. A later poll, or close, calls `callback(offsets, error)`."""
        core, offsets_to_commit = self._core, self._to_offsets(offsets)
        core.check_group()

        async def commit() -> None:
            await core.commit_async(offsets_to_commit, callback)

        return CommitFuture(self._thread.submit(commit()), offsets_to_commit)

    @overload
    def committed(
        self, partition: PartitionLike, metadata: Literal[False] = False, timeout_ms: float | None = None
    ) -> int | None: ...

    @overload
    def committed(
        self, partition: PartitionLike, metadata: Literal[True], timeout_ms: float | None = None
    ) -> OffsetAndMetadata | None: ...

    def committed(
        self, partition: PartitionLike, metadata: bool = False, timeout_ms: float | None = None
    ) -> "int | OffsetAndMetadata | None":
        """Returns the group's last committed offset, as an int or with its metadata, or None if there is none."""
        offset = self._run(self._core.committed(partition, timeout_ms))
        return offset if metadata or offset is None else offset.offset

    # ---- cluster

    def topics(self) -> set[str]:
        """Requests the names of all topics from the cluster."""
        return self._run(self._core.topics())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Returns a topic's partition numbers, or None if the topic does not exist."""
        return self._run(self._core.partitions_for_topic(topic))

    @overload
    def metrics(self, raw: Literal[False] = False) -> dict[str, Any]: ...

    @overload
    def metrics(self, raw: Literal[True]) -> dict[MetricName, KafkaMetric]: ...

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """Returns the statistics that `stats_cb` would receive now, with librdkafka's names. Resets the windows. With
        `raw`, returns a flat mapping of MetricName to KafkaMetric."""
        statistics = self._run(self._core.metrics())
        return flatten(statistics) if raw else statistics

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Waits until the brokers of the cluster are known. Raises KafkaTimeoutError after `timeout_ms`. With
        `refresh`, requests them even if they are known."""
        self._run(self._core.bootstrap(timeout_ms, refresh))

    # ---- unsubscribing and closing

    def unsubscribe(self) -> None:
        """Gives up all topics and partitions, and leaves the group."""
        core = self._core
        self._check_thread()
        self._return_unread()
        self._subscription.mark_processed()
        self._serve(core.unsubscribe())

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commits offsets if `enable_auto_commit` is on, leaves the group and frees all resources. May be called
        twice."""
        if self._closed or self._is_closing:
            return
        core = self._core
        self._check_thread()
        self._is_closing = True
        self._ready.set()  # ends a poll in another thread
        try:
            with self._polling:
                self._return_unread()
                if autocommit:
                    self._subscription.mark_processed()
                self._serve(core.close(autocommit=autocommit, timeout_ms=timeout_ms))
        finally:
            self._closed = True
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error it is unknown which records were processed: the group must read them again.
        self.close(autocommit=kind is None)
