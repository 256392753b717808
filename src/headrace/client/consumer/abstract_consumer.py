"""The part that the blocking consumer and the asyncio consumer share.

    headrace.Consumer      \
                             AbstractConsumer  -->  ConsumerCore, on the event loop
    headrace.aio.Consumer  /

Methods that never wait are complete here. Methods that wait are written once as generators of steps (`_poll_steps`,
`_position_steps`, ...), which do no waiting themselves. A step is one of:

    float        wait until `_ready` is set, for this many seconds at most
    awaitable    the result of a user callback; the asyncio consumer awaits it, the blocking consumer ignores it

Each consumer runs the steps in its own way (`_run_steps`): in the calling thread, or as a coroutine on the loop.

Threads: everything here belongs to the thread (or task) that polls. Work for the loop is only scheduled
(`ConsumerCore.call`).
"""

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from headrace.client.arguments import AnyPartition, OffsetLike, PartitionLike, to_offsets, to_partition, to_partitions
from headrace.client.config.consumer import CONSUMER_KEYS
from headrace.client.config.types import ConsumerConfig
from headrace.client.consumer.arguments import (
    Offsets,
    check_max_records,
    check_timestamp,
    seek_target,
    split_topics_and_config,
)
from headrace.client.consumer.core import ConsumerCore
from headrace.client.consumer.fetch_collector import CollectedRecords
from headrace.client.consumer.partition_state import EARLIEST_OFFSET, LATEST_OFFSET, OffsetQuery
from headrace.client.consumer.subscription_state import ConsumerRebalanceListener, SubscriptionState
from headrace.client.core import ClientCore
from headrace.client.errors import IllegalStateError, KafkaTimeoutError, NotAssignedError, WakeupError
from headrace.client.types import ConsumerGroupMetadata, K, V
from headrace.common.types import TopicPartition
from headrace.records import ConsumerRecord

__all__ = ["AbstractConsumer", "Records", "Steps"]

_logger = logging.getLogger(__name__)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Records: TypeAlias = dict[TopicPartition, list[ConsumerRecord[K, V]]]
Steps: TypeAlias = Generator[float | Awaitable[object], None, T]


class _Event(Protocol):
    """`InterruptibleEvent` or `asyncio.Event`."""

    def set(self) -> None: ...

    def clear(self) -> None: ...


class _Future(Protocol[T_co]):
    """`LoopFuture` or `asyncio.Future`."""

    def done(self) -> bool: ...

    def result(self) -> T_co: ...

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None: ...


class AbstractConsumer(Generic[K, V]):
    """The base class of both consumers. A subclass creates `_ready` and sets `_started_core`."""

    _ready: _Event
    """Set by the core when a poll may have something to do: records, an error, a user callback."""

    def __init__(self, arguments: "tuple[str | Mapping[str, object], ...]", keywords: Mapping[str, object]):
        topics, config = split_topics_and_config(arguments)
        self.config = CONSUMER_KEYS.load(config, **keywords)
        """The parsed configuration, for example `config.group_id` or `config["group_id"]`."""
        self._subscription = SubscriptionState()
        self._started_core: ConsumerCore | None = None
        self._not_started = "This consumer is not started: await start(), or use async with"
        self._closed = False
        self._is_closing = False
        """True once `close` has begun. Rebalance listeners that `close` calls may still use the consumer."""
        self._wakeup = False
        self._current: CollectedRecords | None = None
        """The records that iteration is returning."""
        if topics:
            self._subscription.subscribe(topics, listener=self.config.rebalance_listener)

    @property
    def _core(self) -> ConsumerCore:
        self._check_open()
        if self._started_core is None:
            raise IllegalStateError(self._not_started)
        return self._started_core

    @property
    def _running_client(self) -> ClientCore[ConsumerConfig] | None:
        """The shared part of the client, for `headrace.metrics`, or None if it is not running here."""
        return None if self._started_core is None or self._closed else self._started_core.client

    def _wake(self) -> None:
        """Wakes a waiting poll. Any thread may call it."""
        raise NotImplementedError

    def _monotonic(self) -> float:
        """Returns the time in seconds that deadlines are measured with."""
        raise NotImplementedError

    def _subscription_changed(self) -> None:
        if self._started_core is not None:
            self._started_core.call(self._started_core.subscription_changed)

    # ---- subscription and assignment

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: "str | re.Pattern[str] | None" = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribes to topics, or to all topics whose names match a regular expression from the start.

        The members of the group share the partitions. Without a `group_id` this consumer reads all of them. Replaces an
        earlier subscription.
        """
        self._check_open()
        self._subscription.subscribe(topics, pattern, listener)
        self._subscription_changed()

    def subscription(self) -> set[str] | None:
        """Returns the subscribed topics, or None if there is no subscription."""
        return set(self._subscription.topics) if self._subscription.is_subscribed else None

    def assign(self, partitions: Iterable[PartitionLike]) -> None:
        """Assigns partitions to this consumer directly, without group management. Replaces an earlier assignment."""
        self._check_open()
        self._subscription.assign(to_partitions(partitions))
        self._subscription_changed()

    def assignment(self) -> set[TopicPartition]:
        """Returns the partitions that are assigned to this consumer, by the user or by the group."""
        return set(self._subscription.assigned)

    # ---- seek, pause, resume

    def seek(self, partition: PartitionLike, offset: OffsetLike) -> None:
        """Sets the offset of the next record that a poll returns. Drops records of the partition that were already
        fetched."""
        tp, target = to_partition(partition), seek_target(offset)
        self._subscription.seek(tp, target.offset, target.leader_epoch)
        self._after_seek([tp])

    def seek_to_beginning(self, *partitions: PartitionLike) -> None:
        """Seeks to the first offset of partitions, or of all assigned partitions."""
        self._seek_by_query(partitions, EARLIEST_OFFSET)

    def seek_to_end(self, *partitions: PartitionLike) -> None:
        """Seeks to the end of partitions, or of all assigned partitions."""
        self._seek_by_query(partitions, LATEST_OFFSET)

    def seek_to_tail(self, count: int, *partitions: PartitionLike) -> None:
        """Seeks to `count` offsets before the end of partitions, or of all assigned partitions."""
        if not isinstance(count, int) or count < 0:
            raise ValueError(f"count must be an int and at least 0, not {count!r}")
        self._seek_by_query(partitions, OffsetQuery("tail", tail=count))

    def seek_to_timestamp(self, timestamp: int, *partitions: PartitionLike) -> None:
        """Seeks to the first record whose timestamp (milliseconds) is equal or later, or to the end if there is
        none."""
        self._seek_by_query(partitions, OffsetQuery("time", check_timestamp(timestamp)))

    def _seek_by_query(self, partitions: tuple[PartitionLike, ...], query: OffsetQuery) -> None:
        tps = to_partitions(partitions) or list(self._subscription.assigned)
        if not tps:
            raise NotAssignedError("No partitions are assigned to this consumer")
        self._subscription.query_offsets(tps, query)
        self._after_seek(tps)

    def _after_seek(self, tps: Iterable[TopicPartition]) -> None:
        if self._started_core is not None:
            self._started_core.forget_errors(tps)
        self._subscription.changed()

    def pause(self, *partitions: PartitionLike) -> None:
        """Stops returning records of partitions until `resume`. The partitions stay assigned."""
        self._subscription.pause(to_partitions(partitions))
        self._subscription.changed()

    def resume(self, *partitions: PartitionLike) -> None:
        """Resumes partitions that were paused."""
        self._subscription.resume(to_partitions(partitions))
        self._subscription.changed()
        self._wake()

    def paused(self) -> set[TopicPartition]:
        """Returns the paused partitions."""
        return self._subscription.paused()

    def highwater(self, partition: PartitionLike) -> int | None:
        """Returns the high watermark of a partition as of the last fetch, or None before the first fetch."""
        tp = to_partition(partition)
        with self._subscription.lock:
            highwater = self._subscription.state(tp).high_watermark
        return highwater if highwater >= 0 else None

    def current_lag(self, partition: PartitionLike) -> int | None:
        """Returns the number of offsets from the position to the end as of the last fetch, or None before the first
        fetch."""
        return self._core.lag(to_partition(partition))

    # ---- group and cluster

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the current group membership, for `Producer.send_offsets_to_transaction`."""
        return self._core.group_metadata()

    def enforce_rebalance(self, reason: str = "enforce_rebalance() was called") -> None:
        """Makes the group rebalance."""
        self._core.enforce_rebalance(reason)

    def bootstrap_connected(self) -> bool:
        """Returns True if the brokers of the cluster are known."""
        return self._started_core is not None and bool(self._started_core.client.metadata.view.nodes)

    def _to_offsets(self, offsets: "Mapping[AnyPartition, OffsetLike] | None") -> Offsets:
        """Returns the offsets of a commit: those of the user, or the positions of all partitions."""
        return self._subscription.positions() if offsets is None else to_offsets(offsets)

    # ---- polling

    def wakeup(self) -> None:
        """Makes the current poll, or the next one, raise WakeupError. Any thread may call it."""
        self._wakeup = True
        self._wake()

    def _poll_steps(self, timeout_ms: float, collect: Callable[[], T]) -> Steps[T | None]:
        """Calls `collect` until it returns records, and returns them, or None after `timeout_ms`. Runs the user
        callbacks that are due."""
        core, ready = self._core, self._ready
        deadline = self._monotonic() + timeout_ms / 1000
        self._return_unread()
        core.poll_began()
        try:
            while True:
                ready.clear()
                self._check_not_closing()
                self._check_wakeup()
                core.raise_error()
                if len(core.user_callbacks):
                    yield from self._callback_steps()
                    self._check_not_closing()
                collected = collect()
                if len(collected):  # type: ignore[arg-type]
                    return collected
                seconds_left = deadline - self._monotonic()
                if seconds_left <= 0:
                    return None
                yield seconds_left
        finally:
            core.poll_ended()

    def _callback_steps(self) -> Steps[None]:
        """Runs all user callbacks that are due, then raises the first error of one."""
        assert self._started_core is not None
        callbacks = self._started_core.user_callbacks
        failure: Exception | None = None
        while (callback := callbacks.take()) is not None:
            try:
                if callback.function is not None and inspect.isawaitable(result := callback.function()):
                    yield result
            except Exception as error:  # noqa: BLE001 - user code may raise anything
                failure = failure or error
            finally:
                callbacks.finish(callback)
        if failure is not None:
            raise failure

    def _serve_steps(self, future: "_Future[T]") -> Steps[T]:
        """Waits for a future of the core and runs the user callbacks that it depends on. Raises the first error of a
        callback at the end."""
        future.add_done_callback(lambda _: self._ready.set())
        failure: Exception | None = None
        while not future.done():
            self._ready.clear()
            try:
                yield from self._callback_steps()
            except Exception as error:  # noqa: BLE001 - user code may raise anything
                failure = failure or error
            if not future.done():
                yield float("inf")
        result = future.result()
        yield from self._callback_steps()
        if failure is not None:
            raise failure
        return result

    def _position_steps(self, partition: PartitionLike, timeout_ms: float | None) -> Steps[int]:
        """Waits until the position of a partition is known."""
        tp = to_partition(partition)
        timeout = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._monotonic() + timeout / 1000
        while True:
            self._ready.clear()
            core = self._core
            with self._subscription.lock:
                position = self._subscription.state(tp).position
            if position >= 0:
                return position
            core.raise_error()
            seconds_left = deadline - self._monotonic()
            if seconds_left <= 0:
                raise KafkaTimeoutError(
                    f"Timeout of {timeout:.0f} ms expired before the position for partition {tp} could be determined"
                )
            yield seconds_left

    def _collect(self, max_records: int | None) -> Callable[[], Records[K, V]]:
        limit = self.config.max_poll_records if max_records is None else check_max_records(max_records)
        return lambda: self._core.collector.collect(limit)

    def _collect_arrow(self, max_records: int | None) -> Callable[[], Any]:
        limit = None if max_records is None else check_max_records(max_records)
        return lambda: self._core.collector.collect_arrow(limit)

    def _finish_poll(self, records: Records[K, V] | None, update_offsets: bool) -> Records[K, V]:
        """Returns the collected records to the user, after the interceptors. Restores the positions unless
        `update_offsets`."""
        if not records:
            return {}
        if not update_offsets:
            for tp, of_partition in records.items():
                self.seek(tp, of_partition[0].offset)
        return self._intercept(records)

    def _intercept(self, records: Records[K, V]) -> Records[K, V]:
        for interceptor in self.config.interceptors:
            try:
                changed = interceptor.on_consume(records)
                records = records if changed is None else changed
            except Exception:
                # The position is already behind the records: raising here would lose them.
                _logger.exception("Interceptor %r failed in on_consume; its input is passed on unchanged", interceptor)
        return records

    # ---- iteration

    @property
    def _iteration_timeout_ms(self) -> float:
        timeout_ms: float = self.config.consumer_timeout_ms
        return timeout_ms if timeout_ms >= 0 else float("inf")

    def _collect_for_iteration(self) -> list[CollectedRecords]:
        """Returns the next records of one partition as a list of one item, or an empty list if there are none."""
        collector = self._core.collector
        while (collected := collector.collect_partition(self.config.max_poll_records)) is not None:
            if collected.records and self.config.interceptors:
                tp = collected.state.tp
                collected.records = list(self._intercept({tp: collected.records}).get(tp, ()))
            if collected.records:
                return [collected]
            with self._subscription.lock:
                if collected.state.version == collected.version:
                    self._subscription.consumed(collected.state, collected.next_offset, collected.leader_epoch)
        return []

    def _start_iteration(self, current: CollectedRecords) -> CollectedRecords:
        """Prepares for returning records one by one (see `PartitionState.advance`)."""
        self._subscription.start_iteration(current.state, current.version, current.leader_epoch)
        return current

    def _return_unread(self, current: CollectedRecords | None = None) -> None:
        """Returns the records that iteration did not reach to the collector. With interceptors they are fetched again,
        because interceptors see all records that a poll returns.

        With `current` it does nothing if iteration has moved on to other records.
        """
        if self._current is None or (current is not None and current is not self._current):
            return
        current, self._current = self._current, None
        if current.index < len(current.records):
            if self.config.interceptors:
                self._core.collector.rewind(current.state, current.version)
            else:
                self._core.collector.put_back(current)
            current.index = len(current.records)  # an iterator that is still in use has no more of them

    # ---- checks

    def _check_wakeup(self) -> None:
        if self._wakeup:
            self._wakeup = False
            raise WakeupError("wakeup() was called")

    def _check_not_closing(self) -> None:
        """Ends a poll while another thread or task closes the consumer."""
        if self._is_closing or self._closed:
            raise IllegalStateError("This consumer has already been closed")

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("This consumer has already been closed")

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._subscription.assigned)} partitions"
        return f"<Consumer group_id={self.config.group_id!r}, {state}>"
