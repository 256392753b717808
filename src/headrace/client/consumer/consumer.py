"""The blocking consumer. Names, arguments and what they return are kafka-python's.

A thread of its own runs the loop that fetches ahead and keeps the membership; `poll` takes what is there and makes
records of it in the caller's thread, which is also where rebalance listeners and callbacks of commits run.
"""

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from headrace.client.background import LoopThread
from headrace.client.consumer.core import ConsumerCore, offsets_given
from headrace.client.consumer.list_offsets import EARLIEST, LATEST
from headrace.client.consumer.partition_state import EARLIEST_OFFSET, LATEST_OFFSET, OffsetQuery
from headrace.client.consumer.rows import Portion
from headrace.client.consumer.subscription import ConsumerRebalanceListener
from headrace.client.consumer_keys import CONSUMER_KEYS
from headrace.client.errors import IllegalStateError, KafkaTimeoutError, WakeupError
from headrace.client.settings import ClientSettings
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp
from headrace.common.clock import SystemClock
from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition
from headrace.records import ConsumerRecord

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Consumer", "ConsumerRebalanceListener", "ConsumerRecord"]

T = TypeVar("T")
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Consumer:
    """Reads records from topics.

        with Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            for record in consumer:
                print(record.topic, record.partition, record.offset, record.key, record.value)

    Settings are keyword arguments (`group_id=...`) or a mapping with Kafka's names (`Consumer({"group.id": ...})`). Not
    for several threads at once, except `wakeup`.
    """

    def __init__(self, *topics: "str | Mapping[str, object]", **configs: object):
        given: dict[str, object] = {}
        names: list[str] = []
        for each in topics:
            if isinstance(each, str):
                names.append(each)
            else:
                given.update(each)
        settings = ClientSettings.load(CONSUMER_KEYS, given, **configs)
        self.config = settings
        self._clock = SystemClock()
        self._ready = threading.Event()
        self._polling = threading.RLock()
        self._wakeup = False
        self._closed = False
        self._portion: Portion | None = None
        """What iteration has taken and not yet given to the user."""
        self._index = 0
        self._thread = LoopThread("headrace-consumer")
        try:
            self._core = self._thread.run(_make(settings, self._ready.set))
        except BaseException:
            self._thread.stop()
            raise
        self._subscription = self._core.subscription
        if names:
            self.subscribe(names, listener=settings.rebalance_listener)

    # What to read

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: "str | re.Pattern[str] | None" = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Reads topics, or all topics that a regular expression matches from their start. The partitions are shared
        with the other members of the group; without a `group_id` this consumer gets them all. Takes the place of an
        earlier subscription."""
        self._check_open()
        self._subscription.subscribe(topics, pattern, listener)
        self._thread.call(self._core.subscription_changed)

    def subscription(self) -> set[str] | None:
        """The topics subscribed to; None if there is no subscription."""
        return set(self._subscription.topics) if self._subscription.is_subscribed else None

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions and no others, whatever other consumers do."""
        self._check_open()
        self._subscription.assign(partitions)
        self._thread.call(self._core.subscription_changed)

    def assignment(self) -> set[TopicPartition]:
        return set(self._subscription.assigned)

    def unsubscribe(self) -> None:
        """Gives up all topics and partitions, and leaves the group."""
        self._check_open()
        self._rewind()
        self._subscription.user_is_done()
        self._serve(self._core.unsubscribe())

    # Reading

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records by partition: at most `max_records` (`max_poll_records` if not given), at least one if there is any
        within `timeout_ms`. With `update_offsets=False` the positions stay: the next poll returns the same."""
        limit = self.config.max_poll_records if max_records is None else max_records
        if limit <= 0:
            raise ValueError(f"max_records is at least 1, not {limit}")
        found = self._wait(timeout_ms, lambda: self._core.rows.take(limit))
        if not found:
            return {}
        if not update_offsets:
            for tp, records in found.items():
                self.seek(tp, records[0].offset)
        for interceptor in self.config.interceptors:
            found = interceptor.on_consume(found) or found
        return found

    def poll_arrow(self, timeout_ms: float = 0, max_records: int | None = None) -> "pa.Table":
        """As `poll`, but one Arrow table with the columns topic, partition, offset, timestamp, timestamp_type, key,
        value and headers, and without deserializers. Without `max_records`: everything that has been fetched."""
        table = self._wait(timeout_ms, lambda: self._core.rows.take_arrow(max_records))
        return self._core.rows.take_arrow(0) if table is None else table

    def _wait(self, timeout_ms: float, take: Callable[[], T]) -> T | None:
        """What a function takes, as soon as that is something. Meanwhile the user's turns are taken."""
        if timeout_ms < 0:
            raise ValueError(f"timeout_ms is at least 0, not {timeout_ms}")
        if not self._polling.acquire(blocking=False):
            raise IllegalStateError("another thread is polling: a consumer is for one thread at a time")
        try:
            self._check_open()
            core, ready = self._core, self._ready
            self._rewind()
            core.poll_began()
            deadline = 0.0
            try:
                while True:
                    ready.clear()
                    self._check_wakeup()
                    core.raise_error()
                    if len(core.turns):
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

    def _check_wakeup(self) -> None:
        if self._wakeup:
            self._wakeup = False
            raise WakeupError("wakeup() was called")

    def _take_turns(self) -> None:
        """Runs what the loop wants to have run. The first error comes out of here, when all are done."""
        turns = self._core.turns
        failure: BaseException | None = None
        while (turn := turns.take()) is not None:
            try:
                if turn.function is not None:
                    turn.function()
            except Exception as error:  # noqa: BLE001 - the user's own
                failure = failure or error
            finally:
                turns.finish(turn)
        if failure is not None:
            raise failure

    def _serve(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs something on the loop that needs the user's turns."""
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
        if failure is not None:
            raise failure
        return result

    def wakeup(self) -> None:
        """Makes a poll that is under way, or the next one, raise WakeupError. May be called from any thread."""
        self._wakeup = True
        self._ready.set()

    # Iteration

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records, one by one, until none came for `consumer_timeout_ms`. The position moves record by record, and a
        seek, a pause or the loss of a partition counts from the very next record on."""
        timeout_ms = self.config.consumer_timeout_ms
        lock, moved = self._subscription.lock, self._subscription.moved
        while not self._closed:
            portion = self._portion
            if portion is None:
                found = self._wait(timeout_ms if timeout_ms >= 0 else float("inf"), self._next_portion)
                if not found:
                    return
                self._portion, self._index = portion, _ = found[0], 0
            state, version, records, next_offset, epoch = portion
            last = len(records) - 1
            while (index := self._index) <= last:
                record = records[index]
                with lock:
                    if state.version != version or not state.is_fetchable:
                        break
                    # Whoever asks for the next record is done with the one before.
                    moved(state, record.offset + 1 if index < last else next_offset, epoch)
                self._index = index + 1
                yield record
            self._rewind()

    def __next__(self) -> ConsumerRecord:
        return next(iter(self))

    def _next_portion(self) -> list[Portion]:
        while (portion := self._core.rows.portion(self.config.max_poll_records)) is not None:
            if portion.records:
                return [portion]
            with self._subscription.lock:
                if portion.state.version == portion.version:
                    self._subscription.consumed(portion.state, portion.next_offset, portion.leader_epoch)
        return []

    def _rewind(self) -> None:
        """Iteration ended in the middle of a portion: the rest is fetched again, if it is wanted again."""
        portion, self._portion = self._portion, None
        if portion is not None and self._index < len(portion.records):
            self._core.rows.rewind(portion.state, portion.version)

    # Positions

    def seek(self, partition: TopicPartition, offset: "int | OffsetAndMetadata") -> None:
        """The next poll returns records from an offset on. Takes effect at once, also for what was fetched already."""
        where = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        if not isinstance(where.offset, int) or isinstance(where.offset, bool) or where.offset < 0:
            raise ValueError(f"an offset is an int of at least 0, not {offset!r}")
        self._subscription.seek(partition, where.offset, where.leader_epoch)
        self._moved([partition])

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Goes to the oldest record of partitions, or of all that are assigned."""
        self._ask(partitions, EARLIEST_OFFSET)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Goes behind the newest record of partitions, or of all that are assigned."""
        self._ask(partitions, LATEST_OFFSET)

    def seek_to_tail(self, count: int, *partitions: TopicPartition) -> None:
        """Goes to the last `count` offsets of partitions, or of all that are assigned."""
        if count < 0:
            raise ValueError(f"count is at least 0, not {count}")
        self._ask(partitions, OffsetQuery("tail", tail=count))

    def seek_to_timestamp(self, timestamp: int, *partitions: TopicPartition) -> None:
        """Goes to the first record that is not older, in milliseconds; to the end if all are."""
        if timestamp < 0:
            raise ValueError(f"a timestamp is milliseconds since 1970, not {timestamp}")
        self._ask(partitions, OffsetQuery("time", timestamp))

    def _ask(self, partitions: tuple[TopicPartition, ...], query: OffsetQuery) -> None:
        tps = partitions or tuple(self._subscription.assigned)
        if not tps:
            raise IllegalStateError("no partitions are assigned to this consumer")
        self._subscription.ask(tps, query)
        self._moved(tps)

    def _moved(self, tps: Iterable[TopicPartition]) -> None:
        self._core.forget_errors(tps)
        self._core.changed()

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

    def pause(self, *partitions: TopicPartition) -> None:
        """Returns no more records of partitions until they are resumed. They stay assigned."""
        self._subscription.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._subscription.resume(partitions)
        self._core.changed()
        self._ready.set()

    def paused(self) -> set[TopicPartition]:
        return self._subscription.paused()

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset behind the last record of a partition, as the last fetch told; None before."""
        with self._subscription.lock:
            highwater = self._subscription.state(partition).high_watermark
        return highwater if highwater >= 0 else None

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets lie between the position and the end, as the last fetch told; None before."""
        return self._core.lag(partition)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition that is not older than a time in milliseconds; None if all are."""
        for tp, timestamp in timestamps.items():
            if timestamp < 0:
                raise ValueError(f"{tp}: a timestamp is milliseconds since 1970, not {timestamp}")
        found = self._run(self._core.offsets_at(timestamps, timeout_ms))
        return {
            tp: OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch) if each.offset >= 0 else None
            for tp, each in found.items()
        }

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        found = self._run(self._core.offsets_at(dict.fromkeys(partitions, EARLIEST), timeout_ms))
        return {tp: each.offset for tp, each in found.items()}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets that the next records will get; with `read_committed` those of the first open transaction."""
        found = self._run(self._core.offsets_at(dict.fromkeys(partitions, LATEST), timeout_ms))
        return {tp: each.offset for tp, each in found.items()}

    # The group

    def commit(
        self, offsets: "Mapping[TopicPartition, OffsetAndMetadata | int] | None" = None, timeout_ms: float | None = None
    ) -> None:
        """Commits offsets (those of the next records to read), or all positions, and waits for it."""
        given = offsets_given(offsets, self._subscription)
        self._run(self._core.commit(given, timeout_ms))
        self._commit_told(given, None)

    def commit_async(
        self,
        offsets: "Mapping[TopicPartition, OffsetAndMetadata | int] | None" = None,
        callback: Callable[[Offsets, KafkaError | None], object] | None = None,
    ) -> "Future[None]":
        """Commits without waiting. `callback(offsets, error)` is called by a later poll, commit or close."""
        self._check_open()
        given = offsets_given(offsets, self._subscription)
        chosen = callback or self.config.default_offset_commit_callback

        async def commit() -> None:
            await self._core.commit_async(given, chosen)

        future = asyncio.run_coroutine_threadsafe(commit(), self._thread.loop)
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future

    def _commit_told(self, offsets: Offsets, error: KafkaError | None) -> None:
        for interceptor in self.config.interceptors:
            interceptor.on_commit(offsets)
        if (callback := self.config.default_offset_commit_callback) is not None:
            callback(offsets, error)

    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> "int | OffsetAndMetadata | None":
        """The group's last committed offset, as a number or with its metadata; None if there is none."""
        if not isinstance(partition, TopicPartition):
            raise TypeError(f"a partition is a TopicPartition, not {type(partition).__name__}")
        found = self._run(self._core.committed([partition], timeout_ms))[partition]
        return found if metadata or found is None else found.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer's membership at the moment, for `Producer.send_offsets_to_transaction`."""
        return self._core.group_metadata()

    def enforce_rebalance(self, reason: str = "the program asked for it") -> None:
        """Has the group share its partitions anew."""
        if self._core.membership is None:
            raise IllegalStateError("this consumer has no group")
        self._thread.call(self._core.membership.request_rejoin, reason)

    # The cluster

    def topics(self) -> set[str]:
        """The names of all topics; asks the cluster."""
        return self._run(self._core.topics())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of a topic's partitions."""
        return self._run(self._core.partitions_for_topic(topic))

    def bootstrap_connected(self) -> bool:
        """Whether the cluster is known."""
        return bool(self._core.client.metadata.view.nodes)

    # The end

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commits (if that happens by itself), leaves the group and frees everything. May be called twice."""
        if self._closed:
            return
        self._rewind()
        if autocommit:
            self._subscription.user_is_done()
        self._closed = True
        try:
            self._serve(self._core.close(autocommit=autocommit, timeout_ms=timeout_ms))
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error nobody knows what was processed: others shall read it again.
        self.close(autocommit=kind is None)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._subscription.assigned)} partitions"
        return f"<Consumer group_id={self.config.group_id!r}, {state}>"

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("this consumer is closed")

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            self._check_open()
        return self._thread.run(work)


async def _make(settings: ClientSettings, notify: Callable[[], None]) -> ConsumerCore:
    core = ConsumerCore(settings, notify)
    await core.start()
    return core
