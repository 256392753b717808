"""The asyncio consumer. It runs on the event loop that `start` is called on, without a thread.

- Methods have the names and arguments of `headrace.Consumer`. Methods that wait are coroutines.
- The methods of a rebalance listener may be coroutine functions.
- `getone` and `getmany` are aiokafka's names.
"""

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from headrace.client.arguments import AnyPartition, OffsetLike, PartitionLike
from headrace.client.background import check_loop
from headrace.client.config.keywords import ConsumerKeywords
from headrace.client.consumer.abstract_consumer import AbstractConsumer, Records, Steps
from headrace.client.consumer.arguments import Offsets, check_timeout
from headrace.client.consumer.commit_future import CommitFuture
from headrace.client.consumer.core import ConsumerCore
from headrace.client.consumer.subscription_state import ConsumerRebalanceListener
from headrace.client.errors import IllegalStateError
from headrace.client.metric_names import KafkaMetric, MetricName, flatten
from headrace.client.types import K, OffsetAndMetadata, OffsetAndTimestamp, V
from headrace.common.clock import Clock
from headrace.common.errors import KafkaError
from headrace.common.ids import Random
from headrace.common.types import TopicPartition
from headrace.net.dialer import Dialer
from headrace.records import ConsumerRecord

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Consumer", "ConsumerRebalanceListener", "ConsumerRecord"]

T = TypeVar("T")


class Consumer(AbstractConsumer[K, V]):
    """Reads records from topics.

        async with Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            async for record in consumer:
                print(record.topic, record.partition, record.offset, record.key, record.value)

    Takes the same configs as `headrace.Consumer`. Only one task at a time may use a consumer, but any task may call
    `wakeup`.
    """

    def __init__(
        self,
        *topics: str | Mapping[str, object],
        clock: Clock | None = None,
        random: Random | None = None,
        dialer: Dialer | None = None,
        **keywords: Unpack[ConsumerKeywords[K, V]],
    ):
        """Configs are keyword arguments or a mapping. `clock`, `random` and `dialer` replace time, randomness and
        sockets in tests."""
        super().__init__(topics, keywords)
        self._clock = clock
        self._random = random
        self._dialer = dialer
        self._ready: asyncio.Event = asyncio.Event()
        self._is_polling = False

    async def start(self) -> None:
        """Starts the consumer on the running loop. Does not wait for a broker."""
        if self._started_core is not None:
            raise IllegalStateError("This consumer was already started")
        self._check_open()
        core = ConsumerCore(
            self.config,
            self._ready.set,
            self._subscription,
            clock=self._clock,
            random=self._random,
            dialer=self._dialer,
        )
        self._started_core = core
        await core.start()

    def _wake(self) -> None:
        if self._started_core is not None:
            self._started_core.call(self._ready.set)

    def _monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    # ---- running steps

    async def _run_steps(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    await (_wait_for(self._ready, step) if isinstance(step, float) else step)
                except BaseException as error:  # noqa: BLE001 - the steps handle it, or raise it again
                    step = steps.throw(error)
                else:
                    step = next(steps)
        except StopIteration as finished:
            result: T = finished.value
            return result

    async def _serve(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine that depends on user callbacks."""
        task = asyncio.ensure_future(work)
        try:
            return await self._run_steps(self._serve_steps(task))
        except BaseException:
            task.cancel()
            raise

    # ---- polling

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> Records[K, V]:
        """Returns fetched records by partition, like `headrace.Consumer.poll`."""
        return self._finish_poll(await self._poll(timeout_ms, self._collect(max_records)), update_offsets)

    async def getmany(self, *, timeout_ms: float = 0, max_records: int | None = None) -> Records[K, V]:
        """aiokafka's name for `poll`."""
        return await self.poll(timeout_ms, max_records)

    async def getone(self) -> ConsumerRecord[K, V]:
        """Waits for the next record and returns it."""
        async for record in self._iterate_until(float("inf")):
            return record
        raise IllegalStateError("This consumer has already been closed")

    async def poll_arrow(self, timeout_ms: float = 0, max_records: int | None = None) -> "pa.Table":
        """Returns fetched records as one Arrow table, like `headrace.Consumer.poll_arrow`."""
        table = await self._poll(timeout_ms, self._collect_arrow(max_records))
        return self._core.collector.collect_arrow(0) if table is None else table

    async def _poll(self, timeout_ms: float, collect: Callable[[], T]) -> T | None:
        check_timeout(timeout_ms)
        if self._is_polling:
            raise IllegalStateError(
                "Consumer is not safe for concurrent access: another task is polling. Use one consumer per task"
            )
        check_loop(self._core.loop)
        self._is_polling = True
        try:
            # A program that always finds records must not keep the loop from fetching more.
            await asyncio.sleep(0)
            return await self._run_steps(self._poll_steps(timeout_ms, collect))
        finally:
            self._is_polling = False

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Yields records one by one until no record arrives for `consumer_timeout_ms`. The position moves with each
        record. A seek, a pause or a lost partition takes effect with the next record."""
        return self._iterate_until(self._iteration_timeout_ms)

    async def __anext__(self) -> ConsumerRecord[K, V]:
        return await anext(aiter(self))

    async def _iterate_until(self, timeout_ms: float) -> AsyncIterator[ConsumerRecord[K, V]]:
        while not self._closed:
            if self._current is None:
                collected = await self._poll(timeout_ms, self._collect_for_iteration)
                if not collected:
                    return
                self._current = collected[0]
            current = self._start_iteration(self._current)
            advance, version, records = current.state.advance, current.version, current.records
            last = len(records) - 1
            while (index := current.index) <= last:
                record = records[index]
                # No lock: only the loop, which runs this, changes the state.
                if not advance(version, record.offset + 1 if index < last else current.next_offset):
                    break
                current.index = index + 1
                yield record
            self._return_unread(current)

    # ---- offsets

    async def position(self, partition: PartitionLike, timeout_ms: float | None = None) -> int:
        """Returns the offset of the next record. Waits until it is known."""
        return await self._run_steps(self._position_steps(partition, timeout_ms))

    async def offsets_for_times(
        self, timestamps: Mapping[AnyPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns, for each partition, the offset of the first record whose timestamp (milliseconds) is equal or later,
        or None."""
        return await self._core.offsets_for_times(timestamps, timeout_ms)

    async def beginning_offsets(
        self, partitions: Iterable[PartitionLike], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition."""
        return await self._core.beginning_offsets(partitions, timeout_ms)

    async def end_offsets(
        self, partitions: Iterable[PartitionLike], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the high watermark of each partition, or with `read_committed` the last stable offset."""
        return await self._core.end_offsets(partitions, timeout_ms)

    async def commit(
        self, offsets: "Mapping[AnyPartition, OffsetLike] | None" = None, timeout_ms: float | None = None
    ) -> None:
        """Commits offsets (of the next records to read), or all positions, and waits for the response."""
        await self._core.commit(self._to_offsets(offsets), timeout_ms)

    def commit_async(
        self,
        offsets: "Mapping[AnyPartition, OffsetLike] | None" = None,
        callback: Callable[[Offsets, KafkaError | None], object] | None = None,
    ) -> CommitFuture:
        """Commits without waiting. The future may be awaited. A later poll calls `callback(offsets, error)`."""
        offsets_to_commit = self._to_offsets(offsets)
        return CommitFuture(self._core.commit_async(offsets_to_commit, callback), offsets_to_commit)

    @overload
    async def committed(
        self, partition: PartitionLike, metadata: Literal[False] = False, timeout_ms: float | None = None
    ) -> int | None: ...

    @overload
    async def committed(
        self, partition: PartitionLike, metadata: Literal[True], timeout_ms: float | None = None
    ) -> OffsetAndMetadata | None: ...

    async def committed(
        self, partition: PartitionLike, metadata: bool = False, timeout_ms: float | None = None
    ) -> "int | OffsetAndMetadata | None":
        """Returns the group's last committed offset, as an int or with its metadata, or None if there is none."""
        offset = await self._core.committed(partition, timeout_ms)
        return offset if metadata or offset is None else offset.offset

    # ---- cluster

    async def topics(self) -> set[str]:
        """Requests the names of all topics from the cluster."""
        return await self._core.topics()

    async def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Returns a topic's partition numbers, or None if the topic does not exist."""
        return await self._core.partitions_for_topic(topic)

    @overload
    async def metrics(self, raw: Literal[False] = False) -> dict[str, Any]: ...

    @overload
    async def metrics(self, raw: Literal[True]) -> dict[MetricName, KafkaMetric]: ...

    async def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """Returns the statistics that `stats_cb` would receive now, with librdkafka's names. Resets the windows. With
        `raw`, returns a flat mapping of MetricName to KafkaMetric."""
        statistics = await self._core.metrics()
        return flatten(statistics) if raw else statistics

    async def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Waits until the brokers of the cluster are known. Raises KafkaTimeoutError after `timeout_ms`. With
        `refresh`, requests them even if they are known."""
        await self._core.bootstrap(timeout_ms, refresh)

    # ---- unsubscribing and closing

    async def unsubscribe(self) -> None:
        """Gives up all topics and partitions, and leaves the group."""
        core = self._core
        self._return_unread()
        self._subscription.mark_processed()
        await self._serve(core.unsubscribe())

    async def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commits offsets if `enable_auto_commit` is on, leaves the group and frees all resources. May be called
        twice."""
        if self._closed or self._is_closing or self._started_core is None:
            self._closed = self._closed or self._started_core is None
            return
        core = self._started_core
        check_loop(core.loop)
        self._return_unread()
        if autocommit:
            self._subscription.mark_processed()
        self._is_closing = True
        self._ready.set()  # ends a poll in another task
        try:
            await self._serve(core.close(autocommit=autocommit, timeout_ms=timeout_ms))
        finally:
            self._closed = True

    async def stop(self) -> None:
        """aiokafka's name for `close`."""
        await self.close()

    def __del__(self) -> None:
        if getattr(self, "_started_core", None) is not None and not self._closed:
            warnings.warn(
                "a headrace Consumer was left open: await close()", ResourceWarning, source=self, stacklevel=2
            )

    async def __aenter__(self) -> Self:
        if self._started_core is None:
            await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error it is unknown which records were processed: the group must read them again.
        await self.close(autocommit=kind is None)


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    """Returns when an event is set or the time is up."""
    if seconds == float("inf"):
        await event.wait()
        return
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
