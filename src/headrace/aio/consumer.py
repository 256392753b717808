"""The consumer for asyncio. Lives on the loop that `start` is called on, and on no other thread.

Names and arguments are those of `headrace.Consumer`; what waits is awaited. Rebalance listeners may have coroutine
functions for methods. `getone` and `getmany` are aiokafka's names.
"""

import asyncio
import inspect
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from headrace.client.background import check_loop
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
from headrace.common.clock import Clock
from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition
from headrace.net.dialer import Dialer
from headrace.records import ConsumerRecord

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Consumer", "ConsumerRebalanceListener", "ConsumerRecord"]

T = TypeVar("T")


class Consumer(AbstractConsumer):
    """Reads records from topics.

        async with Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            async for record in consumer:
                print(record.topic, record.partition, record.offset, record.key, record.value)

    Settings are those of `headrace.Consumer`. For one task at a time, except `wakeup`.
    """

    def __init__(
        self,
        *topics: "str | Mapping[str, object]",
        clock: Clock | None = None,
        dialer: Dialer | None = None,
        **configs: object,
    ):
        """Settings are keyword arguments or a mapping. `clock` and `dialer` are for tests without time and sockets."""
        super().__init__(topics, configs)
        self._clock = clock
        self._dialer = dialer
        self._ready = asyncio.Event()
        self._is_polling = False

    async def start(self) -> None:
        """Makes the consumer live on the running loop. Needs no broker yet."""
        if self._made is not None:
            raise IllegalStateError("this consumer was started before")
        self._check_open()
        core = ConsumerCore(self.config, self._ready.set, self._subscription, clock=self._clock, dialer=self._dialer)
        self._made = core
        await core.start()

    def _wake(self) -> None:
        if self._made is not None:
            self._made.call(self._ready.set)

    async def unsubscribe(self) -> None:
        """Gives up all topics and partitions, and leaves the group."""
        core = self._core
        self._put_back()
        self._subscription.user_is_done()
        await self._serve(core.unsubscribe())

    # Reading

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """As `headrace.Consumer.poll`."""
        limit = self.config.max_poll_records if max_records is None else check_limit(max_records)
        found = await self._wait(timeout_ms, lambda: self._core.collector.collect(limit))
        if not found:
            return {}
        return self._polled(found, update_offsets)

    async def getmany(
        self, *, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """aiokafka's name for `poll`."""
        return await self.poll(timeout_ms, max_records)

    async def getone(self) -> ConsumerRecord:
        """The next record, however long that takes."""
        async for record in self._iterate(float("inf")):
            return record
        raise IllegalStateError("this consumer is closed")

    async def poll_arrow(self, timeout_ms: float = 0, max_records: int | None = None) -> "pa.Table":
        """As `headrace.Consumer.poll_arrow`."""
        limit = None if max_records is None else check_limit(max_records)
        table = await self._wait(timeout_ms, lambda: self._core.collector.collect_arrow(limit))
        return self._core.collector.collect_arrow(0) if table is None else table

    async def _wait(self, timeout_ms: float, take: Callable[[], T]) -> T | None:
        """What a function takes, as soon as that is something. Meanwhile the user's turns are taken."""
        check_timeout(timeout_ms)
        if self._is_polling:
            raise IllegalStateError("another task is polling: a consumer is for one task at a time")
        core, ready = self._core, self._ready
        check_loop(core.loop)
        deadline = core.loop.time() + timeout_ms / 1000
        self._is_polling = True
        try:
            # A program that always finds something must not keep the loop from fetching more.
            await asyncio.sleep(0)
            self._put_back()
            core.poll_began()
            while True:
                ready.clear()
                self._check_wakeup()
                core.raise_error()
                if len(core.user_callbacks):
                    await self._take_turns()
                self._check_closing()
                found = take()
                if len(found):  # type: ignore[arg-type]
                    return found
                left = deadline - core.loop.time()
                if left <= 0:
                    return None
                await _wait_for(ready, left)
        finally:
            core.poll_ended()
            self._is_polling = False

    async def _take_turns(self) -> None:
        """Runs what the core wants to have run. The first error comes out of here, when all are done."""
        assert self._made is not None
        callbacks = self._made.user_callbacks
        failure: BaseException | None = None
        while (callback := callbacks.take()) is not None:
            try:
                if callback.function is not None:
                    result = callback.function()
                    if inspect.isawaitable(result):
                        await result
            except Exception as error:  # noqa: BLE001 - the user's own
                failure = failure or error
            finally:
                callbacks.finish(callback)
        if failure is not None:
            raise failure

    async def _serve(self, work: Any) -> None:
        """Runs something that needs the user's callbacks."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self._ready.set())
        failure: BaseException | None = None
        try:
            while not task.done():
                self._ready.clear()
                try:
                    await self._take_turns()
                except Exception as error:  # noqa: BLE001 - the user's own
                    failure = failure or error
                if not task.done():
                    await self._ready.wait()
        except BaseException:
            task.cancel()
            raise
        await task
        await self._take_turns()
        if failure is not None:
            raise failure

    # Iteration

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Records, one by one, until none came for `consumer_timeout_ms`. The position moves record by record, and a
        seek, a pause or the loss of a partition counts from the very next record on."""
        timeout_ms = self.config.consumer_timeout_ms
        return self._iterate(timeout_ms if timeout_ms >= 0 else float("inf"))

    async def __anext__(self) -> ConsumerRecord:
        return await anext(aiter(self))

    async def _iterate(self, timeout_ms: float) -> AsyncIterator[ConsumerRecord]:
        while not self._closed:
            if self._portion is None:
                found = await self._wait(timeout_ms, self._next_portion)
                if not found:
                    return
                self._portion, self._index = found[0], 0
            state, version, records, next_offset, epoch = self._portion
            move = state.move
            last = len(records) - 1
            self._subscription.moving(state, epoch)
            while (index := self._index) <= last:
                record = records[index]
                if not move(version, record.offset + 1 if index < last else next_offset):
                    break
                self._index = index + 1
                yield record
            self._put_back()

    # Positions

    async def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record; waits until it is known."""
        core = self._core
        timeout = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = core.loop.time() + timeout / 1000
        while True:
            self._ready.clear()
            position = self._subscription.state(partition).position
            if position >= 0:
                return position
            core.raise_error()
            left = deadline - core.loop.time()
            if left <= 0:
                raise KafkaTimeoutError(f"the position of {partition} was not found in {timeout:.0f} ms")
            await _wait_for(self._ready, left)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition that is not older than a time in milliseconds; None if all are."""
        return at_times(await self._core.offsets_at(wanted_times(timestamps), timeout_ms))

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets of the oldest records."""
        return only_offsets(await self._core.offsets_at(dict.fromkeys(partitions, EARLIEST), timeout_ms))

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets that the next records will get; with `read_committed` those of the first open transaction."""
        return only_offsets(await self._core.offsets_at(dict.fromkeys(partitions, LATEST), timeout_ms))

    # The group

    async def commit(
        self, offsets: "Mapping[TopicPartition, OffsetAndMetadata | int] | None" = None, timeout_ms: float | None = None
    ) -> None:
        """Commits offsets (those of the next records to read), or all positions, and waits for it."""
        await self._core.commit(offsets_to_commit_from(offsets, self._subscription), timeout_ms)

    def commit_async(
        self,
        offsets: "Mapping[TopicPartition, OffsetAndMetadata | int] | None" = None,
        callback: Callable[[Offsets, KafkaError | None], object] | None = None,
    ) -> "asyncio.Future[None]":
        """Commits without waiting; the future may be awaited. `callback(offsets, error)` is called by a later poll."""
        chosen = callback or self.config.default_offset_commit_callback
        return self._core.commit_async(offsets_to_commit_from(offsets, self._subscription), chosen)

    @overload
    async def committed(
        self, partition: TopicPartition, metadata: Literal[False] = False, timeout_ms: float | None = None
    ) -> int | None: ...

    @overload
    async def committed(
        self, partition: TopicPartition, metadata: Literal[True], timeout_ms: float | None = None
    ) -> OffsetAndMetadata | None: ...

    async def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> "int | OffsetAndMetadata | None":
        """The group's last committed offset, as a number or with its metadata; None if there is none."""
        if not isinstance(partition, TopicPartition):
            raise TypeError(f"a partition is a TopicPartition, not {type(partition).__name__}")
        found = (await self._core.committed([partition], timeout_ms))[partition]
        return found if metadata or found is None else found.offset

    # The cluster

    async def topics(self) -> set[str]:
        """The names of all topics; asks the cluster."""
        return await self._core.topics()

    async def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of a topic's partitions; None if there is no such topic."""
        return await self._core.partitions_for_topic(topic)

    async def metrics(self) -> dict[str, Any]:
        """What `stats_cb` would be told at this moment, with librdkafka's names. Windows begin anew."""
        return await self._core.metrics()

    # The end

    async def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commits (if that happens by itself), leaves the group and frees everything. May be called twice."""
        if self._closed or self._is_closing or self._made is None:
            self._closed = self._closed or self._made is None
            return
        core = self._made
        check_loop(core.loop)
        self._put_back()
        if autocommit:
            self._subscription.user_is_done()
        self._is_closing = True
        self._ready.set()  # another task may be in a poll, which ends now
        try:
            await self._serve(core.close(autocommit=autocommit, timeout_ms=timeout_ms))
        finally:
            self._closed = True

    def __del__(self) -> None:
        if getattr(self, "_made", None) is not None and not self._closed:
            warnings.warn(
                "a headrace Consumer was left open: await close()", ResourceWarning, source=self, stacklevel=2
            )

    async def stop(self) -> None:
        """aiokafka's name for `close`."""
        await self.close()

    async def __aenter__(self) -> Self:
        if self._made is None:
            await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error nobody knows what was processed: others shall read it again.
        await self.close(autocommit=kind is None)


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    """Returns when an event is set, or time is up."""
    if seconds == float("inf"):
        await event.wait()
        return
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
