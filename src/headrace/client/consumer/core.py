"""The part of a consumer that runs on the event loop: creates and connects subscription, fetcher and group membership.

    changed()  -->  _work() on the loop:  drop stale fetches -> look up offsets -> send fetch requests

| part | owns |
|---|---|
| `SubscriptionState` | subscription, assignment, and position of each partition; its lock guards the fetch buffer too |
| `OffsetFetcher` | looks up positions: committed offsets, offsets by timestamp, validation after a leader change |
| `Fetcher` | sends fetch requests, puts responses into the `FetchBuffer` |
| `FetchCollector` | takes records out of the `FetchBuffer`, in the thread that polls |
| `ConsumerCoordinator` | group membership and commits; None without a `group.id` |
| `UserCallbacks` | listeners and commit callbacks that the thread that polls has to run |

Owner: the event loop it is created on. The thread that polls may call the methods marked "Thread-safe": they acquire
the subscription's lock or schedule work on the loop.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from headrace.client import serialization
from headrace.client.arguments import AnyPartition, PartitionLike, to_partition, to_partition_keys, to_partitions
from headrace.client.config.types import ConsumerConfig
from headrace.client.consumer.arguments import Offsets, check_timestamp
from headrace.client.consumer.auto_offset_reset_strategy import AutoOffsetResetStrategy
from headrace.client.consumer.deserializers import prepare
from headrace.client.consumer.fetch_buffer import FetchBuffer
from headrace.client.consumer.fetch_collector import FetchCollector
from headrace.client.consumer.fetcher import Fetcher, FetchLimits
from headrace.client.consumer.list_offsets import EARLIEST, LATEST, ListOffsetData, list_offsets
from headrace.client.consumer.offset_fetcher import OffsetFetcher
from headrace.client.consumer.subscription_state import SubscriptionMode, SubscriptionState
from headrace.client.consumer.user_callbacks import UserCallbacks
from headrace.client.core import ClientCore
from headrace.client.errors import IllegalStateError, KafkaTimeoutError
from headrace.client.group.consumer_coordinator import ConsumerCoordinator
from headrace.client.metadata import check_name
from headrace.client.metadata_cache import ClusterView
from headrace.client.statistics_sources import consumer_source
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp
from headrace.common.clock import Clock
from headrace.common.errors import ConfigError, KafkaError, UnknownTopicOrPartitionError
from headrace.common.ids import Random
from headrace.common.types import TopicPartition
from headrace.net.dialer import Dialer

__all__ = ["ConsumerCore"]

_logger = logging.getLogger(__name__)

READ_COMMITTED = "read_committed"
_ABANDON_MS = 1000


class ConsumerCore:
    """The loop's side of a consumer. Both public consumers delegate to it. Implements `RebalanceHooks`."""

    def __init__(
        self,
        config: ConsumerConfig,
        notify: Callable[[], None],
        subscription: SubscriptionState | None = None,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        dialer: Dialer | None = None,
    ):
        """`notify` wakes a waiting poll. It is called on the loop and from the thread that polls."""
        if config.fetch_max_wait_ms >= config.request_timeout_ms:
            raise ConfigError(
                f"fetch.max.wait.ms ({config.fetch_max_wait_ms}) must be less than request.timeout.ms "
                f"({config.request_timeout_ms}); otherwise every fetch without records would time out"
            )
        reset_strategy = AutoOffsetResetStrategy(config.auto_offset_reset)
        room = config.fetch_max_bytes + config.max_partition_fetch_bytes
        if config.receive_message_max_bytes < room:
            config = replace(config, receive_message_max_bytes=room)
        self.config = config
        self.client = ClientCore(config, clock=clock, random=random, dialer=dialer)
        self.loop = self.client.loop
        self.subscription = subscription or SubscriptionState()
        self.subscription.changed = self.changed
        self.buffer = FetchBuffer()
        self.buffer.on_drained = self.changed
        self.user_callbacks = UserCallbacks(self.loop, notify)
        self.coordinator: ConsumerCoordinator | None = None
        if config.group_id:
            on_commit = self._call_commit_interceptors if config.interceptors else None
            self.coordinator = ConsumerCoordinator(self.client, config, self.subscription, self, on_commit=on_commit)
        self._notify = notify
        self._read_committed = config.isolation_level == READ_COMMITTED
        self._errors: dict[object, Exception] = {}
        """Errors that the next polls raise, by partition, by topic, or under "group"."""
        self._work_is_due = False
        self._is_abandoned = False
        self.offset_fetcher = OffsetFetcher(
            self.client.pool,
            self.client.metadata,
            self.subscription,
            committed=self.coordinator.commits if self.coordinator is not None else None,
            reset_strategy=reset_strategy,
            read_committed=self._read_committed,
            backoff=self.client.backoff,
            clock=self.client.clock,
            on_positions_found=self._on_positions_found,
            on_error=self._partition_failed,
        )
        self.fetcher = Fetcher(
            self.client.pool,
            self.client.metadata,
            self.subscription,
            self.buffer,
            self.offset_fetcher,
            _fetch_limits(config),
            self.client.backoff,
            notify,
        )
        self.collector = FetchCollector(
            self.subscription,
            self.buffer,
            prepare(config.key_deserializer),
            prepare(config.value_deserializer),
            config.on_partition_eof,
        )
        self.client.statistics.add(consumer_source(self), self.collector.traffic)
        self._unlisten = self.client.metadata.on_change(self._metadata_changed)
        self.closed = False

    async def start(self) -> None:
        if self.coordinator is not None:
            await self.coordinator.start()
        self.subscription_changed()

    # ---- reacting to changes

    def changed(self) -> None:
        """Lets the loop react to a change of the subscription, a position or the free buffer space. Thread-safe."""
        if not self._work_is_due:
            self._work_is_due = True
            self.call(self._work)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Schedules a function call on the loop. Thread-safe."""
        try:
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            _logger.debug("The consumer's event loop has stopped; %r is not called", function)

    def _work(self) -> None:
        self._work_is_due = False
        if self.closed:
            return
        with self.subscription.lock:
            self.buffer.drop_stale()
        self.offset_fetcher.send_requests()
        self.fetcher.send_requests()

    def _on_positions_found(self) -> None:
        self.fetcher.send_requests()
        self._notify()

    def subscription_changed(self) -> None:
        """Applies a new subscription or assignment. On the loop."""
        metadata, subscription = self.client.metadata, self.subscription
        is_pattern = subscription.mode is SubscriptionMode.PATTERN
        metadata.track_all(is_pattern)
        if is_pattern:
            self._match_pattern(metadata.view)
        metadata.set_tracked(subscription.topics)
        self._assign_all(metadata.view)
        if self.coordinator is not None:
            self.coordinator.subscription_changed()
        self._work()

    def _metadata_changed(self, old: ClusterView, new: ClusterView) -> None:  # noqa: ARG002
        subscription = self.subscription
        if subscription.mode is SubscriptionMode.PATTERN and self._match_pattern(new):
            self.client.metadata.set_tracked(subscription.topics)
            if self.coordinator is not None:
                self.coordinator.subscription_changed()
        for name in subscription.topics:
            topic = new.topic(name)
            if topic is not None and topic.error is not None and not topic.error.retriable:
                self._errors[name] = topic.error(f"topic {name}: {(topic.error.__doc__ or '').strip()}")
                self._notify()
        self._assign_all(new)
        self._work()

    def _match_pattern(self, view: ClusterView) -> bool:
        return self.subscription.match(view.names(include_internal=not self.config.exclude_internal_topics))

    def _assign_all(self, view: ClusterView) -> None:
        """Without a group, assigns all partitions of the subscribed topics, as kafka-python does."""
        if self.coordinator is not None or not self.subscription.is_subscribed:
            return
        tps = [
            TopicPartition(name, info.partition)
            for name in self.subscription.topics
            if (topic := view.topic(name)) is not None
            for info in topic.partitions
        ]
        if self.subscription.assigned != frozenset(tps):
            self.subscription.assign_from_group(tps)

    # ---- errors for the user

    def _partition_failed(self, tp: TopicPartition, error: Exception) -> None:
        self._errors[tp] = error
        self._notify()

    def raise_error(self) -> None:
        """Raises one error that occurred on the loop, if there is one. Thread-safe."""
        for key in list(self._errors):  # the loop may add errors concurrently
            error = self._errors.pop(key, None)
            if error is not None and (not isinstance(key, TopicPartition) or key in self.subscription.assigned):
                raise error

    def forget_errors(self, tps: Iterable[TopicPartition]) -> None:
        """Drops the errors of partitions whose position the user has changed. Thread-safe."""
        for tp in tps:
            self._errors.pop(tp, None)

    # ---- rebalance hooks

    async def wait_for_poll(self) -> None:
        if not self._is_abandoned:
            await self.user_callbacks.wait(None)

    async def revoked(self, tps: frozenset[TopicPartition]) -> None:
        if (listener := self.subscription.listener) is not None:
            await self.user_callbacks.wait(lambda: listener.on_partitions_revoked(tps))

    async def assigned(self, tps: frozenset[TopicPartition]) -> None:
        self._work()
        if (listener := self.subscription.listener) is not None:
            await self.user_callbacks.wait(lambda: listener.on_partitions_assigned(tps))
        self._notify()

    async def lost(self, tps: frozenset[TopicPartition]) -> None:
        if (listener := self.subscription.listener) is not None:
            lost = getattr(listener, "on_partitions_lost", listener.on_partitions_revoked)
            await self.user_callbacks.wait(lambda: lost(tps))

    def failed(self, error: Exception) -> None:
        self._errors["group"] = error
        self._notify()

    # ---- polls

    def poll_began(self) -> None:
        """Marks the records of earlier polls as processed and tells the coordinator that a poll begins. Thread-safe."""
        self.subscription.mark_processed()
        if self.coordinator is not None:
            self.coordinator.poll_began()

    def poll_ended(self) -> None:
        """Tells the coordinator that a poll has ended. Thread-safe."""
        if self.coordinator is not None:
            self.coordinator.poll_ended()

    # ---- the group

    def _group(self) -> ConsumerCoordinator:
        if self.coordinator is None:
            raise IllegalStateError(
                "This consumer has no group: to use group management or offset commits, set group.id"
            )
        return self.coordinator

    def check_group(self) -> None:
        """Raises IllegalStateError if this consumer has no group. Thread-safe."""
        self._group()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the current group membership. Thread-safe."""
        return self._group().group_metadata()

    def enforce_rebalance(self, reason: str) -> None:
        """Schedules a rejoin of the group. Thread-safe."""
        self.call(self._group().request_rejoin, reason)

    async def commit(self, offsets: Offsets, timeout_ms: float | None) -> None:
        await self._group().commits.commit(offsets, timeout_ms=timeout_ms)

    def commit_async(
        self, offsets: Offsets, callback: Callable[[Offsets, KafkaError | None], object] | None
    ) -> "asyncio.Future[None]":
        """Commits on the loop. A later poll runs `callback`, or else `default.offset.commit.callback`."""
        user_callback = callback or self.config.default_offset_commit_callback
        if user_callback is None:
            return self._group().commits.commit_async(offsets)

        def add_callback(committed: Offsets, error: KafkaError | None) -> None:
            self.user_callbacks.add(lambda: user_callback(committed, error))

        return self._group().commits.commit_async(offsets, add_callback)

    def _call_commit_interceptors(self, offsets: Offsets, error: KafkaError | None) -> None:
        if error is None:
            for interceptor in self.config.interceptors:
                self.user_callbacks.add(partial(_call_on_commit, interceptor, offsets))

    async def committed(self, partition: PartitionLike, timeout_ms: float | None) -> OffsetAndMetadata | None:
        tp = to_partition(partition)
        return (await self._group().commits.committed([tp], timeout_ms=timeout_ms))[tp]

    # ---- offsets, topics, statistics

    async def offsets_for_times(
        self, timestamps: Mapping[AnyPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        requested = to_partition_keys(timestamps, "timestamps")
        requested = {tp: check_timestamp(timestamp) for tp, timestamp in requested.items()}
        offsets = await self._list_offsets(requested, timeout_ms)
        return {tp: OffsetAndTimestamp(*data) if data.offset >= 0 else None for tp, data in offsets.items()}

    async def beginning_offsets(
        self, partitions: Iterable[PartitionLike], timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        offsets = await self._list_offsets(dict.fromkeys(to_partitions(partitions), EARLIEST), timeout_ms)
        return {tp: data.offset for tp, data in offsets.items()}

    async def end_offsets(
        self, partitions: Iterable[PartitionLike], timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        offsets = await self._list_offsets(dict.fromkeys(to_partitions(partitions), LATEST), timeout_ms)
        return {tp: data.offset for tp, data in offsets.items()}

    async def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, ListOffsetData]:
        if not timestamps:
            return {}
        try:
            return await list_offsets(
                self.client.pool,
                self.client.metadata,
                timestamps,
                read_committed=self._read_committed,
                timeout_ms=self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms,
                backoff=self.client.backoff,
            )
        except UnknownTopicOrPartitionError as error:  # after retries: kafka-python and Java's client raise a timeout
            raise KafkaTimeoutError(f"Failed to get offsets by timestamps: {error}") from error

    async def topics(self, timeout_ms: float | None = None) -> set[str]:
        timeout = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        view = await self.client.metadata.update_all(timeout)
        return set(view.names(include_internal=not self.config.exclude_internal_topics))

    async def partitions_for_topic(self, topic: str, timeout_ms: float | None = None) -> set[int] | None:
        """Returns the partition numbers of a topic, or None if the topic does not exist (yet)."""
        timeout = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        metadata = self.client.metadata
        check_name(topic)
        info = metadata.view.topic(topic)
        if info is None or info.error is not None:
            info = (await metadata.update({topic}, timeout)).topic(topic)
            if info is None or info.error is UnknownTopicOrPartitionError:
                return None
        info = await metadata.topic(topic, timeout)
        return {partition.partition for partition in info.partitions}

    async def bootstrap(self, timeout_ms: float | None, refresh: bool) -> None:
        """Waits until the brokers are known."""
        if refresh or not self.client.metadata.view.nodes:
            await self.client.metadata.update_brokers(float("inf") if timeout_ms is None else timeout_ms)

    async def metrics(self) -> dict[str, Any]:
        return self.client.statistics.take()

    def lag(self, tp: TopicPartition) -> int | None:
        """Returns the number of offsets from the position to the end, or None if either is unknown. Thread-safe."""
        with self.subscription.lock:
            state = self.subscription.state(tp)
            end = state.end_offset(self._read_committed)
            return max(0, end - state.position) if end >= 0 and state.has_position else None

    # ---- closing

    async def unsubscribe(self) -> None:
        """Gives up the assignment and leaves the group. The caller has to run user callbacks meanwhile."""
        if self.coordinator is not None and self.subscription.is_subscribed:
            await self.coordinator.leave()
        self.subscription.unsubscribe()
        self._errors.clear()
        self.subscription_changed()

    async def abandon(self) -> None:
        """Closes a consumer that the user forgot to close. Runs no user callbacks and commits nothing, because it is
        unknown which records were processed."""
        self.subscription.listener = None
        self._is_abandoned = True
        await self.close(autocommit=False, timeout_ms=_ABANDON_MS)

    async def close(self, *, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """The caller has to run user callbacks meanwhile."""
        if self.closed:
            return
        try:
            if self.coordinator is not None:
                if not autocommit:
                    self.subscription.disable_auto_commit()
                await self.coordinator.close(timeout_ms=timeout_ms)
        finally:
            self.closed = True
            self._unlisten()
            await self.fetcher.close()
            await self.offset_fetcher.close()
            await self.client.close()
            self.subscription.unsubscribe()
            with self.subscription.lock:
                self.buffer.clear()
            serialization.close(self.config.key_deserializer, self.config.value_deserializer)
            self._notify()


def _call_on_commit(interceptor: Any, offsets: Offsets) -> None:
    try:
        interceptor.on_commit(offsets)
    except Exception:
        _logger.exception("Interceptor %r failed in on_commit; the offsets are committed", interceptor)


def _fetch_limits(config: ConsumerConfig) -> FetchLimits:
    return FetchLimits(
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        max_wait_ms=config.fetch_max_wait_ms,
        max_partition_bytes=config.max_partition_fetch_bytes,
        max_queued_bytes=config.queued_max_messages_kbytes * 1024,
        check_crcs=config.check_crcs,
        max_inflated_bytes=config.fetch_max_inflated_bytes,
        read_committed=config.isolation_level == READ_COMMITTED,
        sessions=config.enable_incremental_fetch_sessions,
        partition_eof=config.enable_partition_eof,
        rack=config.client_rack,
        metadata_max_age_ms=config.metadata_max_age_ms,
    )
