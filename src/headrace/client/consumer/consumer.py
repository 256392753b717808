"""The blocking consumer. Names, arguments and what they return are kafka-python's.

A thread of its own runs the loop that fetches ahead and keeps the membership; `poll` takes what is there and makes
records of it in the caller's thread, which is also where rebalance listeners and callbacks of commits run.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from headrace.client.background import FORKED, LoopThread
from headrace.client.consumer.abstract_consumer import (
    AbstractConsumer,
    Offsets,
    at_times,
    check_limit,
    check_timeout,
    only_offsets,
    wanted_times,
)
from headrace.client.consumer.core import ConsumerCore, offsets_to_commit_from
from headrace.client.consumer.list_offsets import EARLIEST, LATEST
from headrace.client.consumer.subscription_state import ConsumerRebalanceListener
from headrace.client.errors import IllegalStateError, KafkaTimeoutError
from headrace.client.types import OffsetAndMetadata, OffsetAndTimestamp
from headrace.common.clock import SystemClock
from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition
from headrace.records import ConsumerRecord

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Consumer", "ConsumerRebalanceListener", "ConsumerRecord"]

T = TypeVar("T")


class Consumer(AbstractConsumer):
    """Reads records from topics.

        with Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            for record in consumer:
                print(record.topic, record.partition, record.offset, record.key, record.value)

    Settings are keyword arguments (`group_id=...`) or a mapping with Kafka's names (`Consumer({"group.id": ...})`). Not
    for several threads at once, except `wakeup`.
    """

    def __init__(self, *topics: "str | Mapping[str, object]", **configs: object):
        super().__init__(topics, configs)
        self._clock = SystemClock()
        self._ready = threading.Event()
        self._polling = threading.RLock()
        self._thread = LoopThread("headrace-consumer")
        try:
            self._made = self._thread.run(self._make_core())
        except BaseException:
            self._thread.stop()
            raise
        self._thread.look_after(self, self._made.abandon)

    def _forked(self) -> None:
        self._made = None
        self._is_closing = True
        self._not_made = FORKED

    async def _make_core(self) -> ConsumerCore:
        core = ConsumerCore(self.config, self._ready.set, self._subscription)
        await core.start()
        return core

    def _wake(self) -> None:
        self._ready.set()

    def unsubscribe(self) -> None:
        """Gives up all topics and partitions, and leaves the group."""
        self._check_open()
        self._check_thread()
        self._put_back()
        self._subscription.user_is_done()
        self._serve(self._core.unsubscribe())

    # Reading

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records by partition: at most `max_records` (`max_poll_records` if not given), at least one if there is any
        within `timeout_ms`. With `update_offsets=False` the positions stay: the next poll returns the same."""
        limit = self.config.max_poll_records if max_records is None else check_limit(max_records)
        found = self._wait(timeout_ms, lambda: self._core.collector.collect(limit))
        if not found:
            return {}
        return self._polled(found, update_offsets)

    def poll_arrow(self, timeout_ms: float = 0, max_records: int | None = None) -> "pa.Table":
        """As `poll`, but one Arrow table with the columns topic, partition, offset, timestamp, timestamp_type, key,
        value and headers, and without deserializers. Without `max_records`: everything that has been fetched."""
        limit = None if max_records is None else check_limit(max_records)
        table = self._wait(timeout_ms, lambda: self._core.collector.collect_arrow(limit))
        return self._core.collector.collect_arrow(0) if table is None else table

    def _wait(self, timeout_ms: float, take: Callable[[], T]) -> T | None:
        """What a function takes, as soon as that is something. Meanwhile the user's turns are taken."""
        check_timeout(timeout_ms)
        if not self._polling.acquire(blocking=False):
            raise IllegalStateError("another thread is polling: a consumer is for one thread at a time")
        try:
            core, ready = self._core, self._ready
            self._put_back()
            core.poll_began()
            deadline = 0.0
            try:
                while True:
                    ready.clear()
                    self._check_closing()
                    self._check_wakeup()
                    core.raise_error()
                    if len(core.user_callbacks):
                        self._take_turns()
                    found = take()
                    if len(found):  # type: ignore[arg-type]
                        return found
                    now = self._clock.monotonic()
                    deadline = deadline or now + min(timeout_ms / 1000, threading.TIMEOUT_MAX)
                    if now >= deadline:
                        return None
                    ready.wait(deadline - now)
            finally:
                core.poll_ended()
        finally:
            self._polling.release()

    def _take_turns(self) -> None:
        """Runs what the loop wants to have run. The first error comes out of here, when all are done."""
        assert self._made is not None
        callbacks = self._made.user_callbacks
        failure: BaseException | None = None
        while (callback := callbacks.take()) is not None:
            try:
                if callback.function is not None:
                    callback.function()
            except Exception as error:  # noqa: BLE001 - the user's own
                failure = failure or error
            finally:
                callbacks.finish(callback)
        if failure is not None:
            raise failure

    def _check_thread(self) -> None:
        if self._thread.is_current:
            raise IllegalStateError("a blocking call from a callback of the client would wait for itself")

    def _serve(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs something on the loop that needs the user's callbacks."""
        future = asyncio.run_coroutine_threadsafe(work, self._thread.loop)
        future.add_done_callback(lambda _: self._ready.set())
        failure: BaseException | None = None
        while not future.done():
            self._ready.clear()
            try:
                self._take_turns()
            except Exception as error:  # noqa: BLE001 - the user's own
                failure = failure or error
            if not future.done():
                self._ready.wait()
        result = future.result()
        self._take_turns()
        if failure is not None:
            raise failure
        return result

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records, one by one, until none came for `consumer_timeout_ms`. The position moves record by record, and a
        seek, a pause or the loss of a partition counts from the very next record on."""
        timeout_ms = self.config.consumer_timeout_ms
        lock = self._subscription.lock
        while not self._closed:
            if self._portion is None:
                found = self._wait(timeout_ms if timeout_ms >= 0 else float("inf"), self._next_portion)
                if not found:
                    return
                self._portion, self._index = found[0], 0
            state, version, records, next_offset, epoch = self._portion
            move = state.move
            last = len(records) - 1
            self._subscription.moving(state, epoch)
            while (index := self._index) <= last:
                record = records[index]
                with lock:
                    if not move(version, record.offset + 1 if index < last else next_offset):
                        break
                self._index = index + 1
                yield record
            self._put_back()

    def __next__(self) -> ConsumerRecord:
        return next(iter(self))

    # Positions

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record; waits until it is known."""
        self._check_open()
        timeout = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._clock.monotonic() + timeout / 1000
        while True:
            self._ready.clear()
            with self._subscription.lock:
                position = self._subscription.state(partition).position
            if position >= 0:
                return position
            self._core.raise_error()
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise KafkaTimeoutError(f"the position of {partition} was not found in {timeout:.0f} ms")
            self._ready.wait(left)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition that is not older than a time in milliseconds; None if all are."""
        return at_times(self._run(self._core.offsets_at(wanted_times(timestamps), timeout_ms)))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets of the oldest records."""
        return only_offsets(self._run(self._core.offsets_at(dict.fromkeys(partitions, EARLIEST), timeout_ms)))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets that the next records will get; with `read_committed` those of the first open transaction."""
        return only_offsets(self._run(self._core.offsets_at(dict.fromkeys(partitions, LATEST), timeout_ms)))

    # The group

    def commit(
        self, offsets: "Mapping[TopicPartition, OffsetAndMetadata | int] | None" = None, timeout_ms: float | None = None
    ) -> None:
        """Commits offsets (those of the next records to read), or all positions, and waits for it."""
        self._run(self._core.commit(offsets_to_commit_from(offsets, self._subscription), timeout_ms))

    def commit_async(
        self,
        offsets: "Mapping[TopicPartition, OffsetAndMetadata | int] | None" = None,
        callback: Callable[[Offsets, KafkaError | None], object] | None = None,
    ) -> "Future[None]":
        """Commits without waiting. `callback(offsets, error)` is called by a later poll or by close."""
        core, given = self._core, offsets_to_commit_from(offsets, self._subscription)
        chosen = callback or self.config.default_offset_commit_callback

        async def commit() -> None:
            await core.commit_async(given, chosen)

        future = asyncio.run_coroutine_threadsafe(commit(), self._thread.loop)
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future

    @overload
    def committed(
        self, partition: TopicPartition, metadata: Literal[False] = False, timeout_ms: float | None = None
    ) -> int | None: ...

    @overload
    def committed(
        self, partition: TopicPartition, metadata: Literal[True], timeout_ms: float | None = None
    ) -> OffsetAndMetadata | None: ...

    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> "int | OffsetAndMetadata | None":
        """The group's last committed offset, as a number or with its metadata; None if there is none."""
        if not isinstance(partition, TopicPartition):
            raise TypeError(f"a partition is a TopicPartition, not {type(partition).__name__}")
        found = self._run(self._core.committed([partition], timeout_ms))[partition]
        return found if metadata or found is None else found.offset

    # The cluster

    def topics(self) -> set[str]:
        """The names of all topics; asks the cluster."""
        return self._run(self._core.topics())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of a topic's partitions; None if there is no such topic."""
        return self._run(self._core.partitions_for_topic(topic))

    def metrics(self) -> dict[str, Any]:
        """What `stats_cb` would be told at this moment, with librdkafka's names. Windows begin anew."""
        return self._run(self._core.metrics())

    # The end

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commits (if that happens by itself), leaves the group and frees everything. May be called twice."""
        if self._closed or self._is_closing:
            return
        core = self._core
        self._check_thread()
        self._is_closing = True
        self._ready.set()  # another thread may be in a poll, which ends now
        try:
            with self._polling:
                self._put_back()
                if autocommit:
                    self._subscription.user_is_done()
                self._serve(core.close(autocommit=autocommit, timeout_ms=timeout_ms))
        finally:
            self._closed = True
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error nobody knows what was processed: others shall read it again.
        self.close(autocommit=kind is None)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(work)
