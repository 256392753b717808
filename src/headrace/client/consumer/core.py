"""The consumer behind its faces: puts together subscription, positions, fetching and membership.

Made on a loop and owned by it. What the thread that polls may call is marked "any thread": it reads the subscription
and the buffer under their lock, or asks the loop to do something without waiting.

    changed()  -->  work() on the loop:  metadata tracks the topics -> positions are found -> fetches go out
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from headrace.client import serialization
from headrace.client.config.common import ClientSettings
from headrace.client.consumer.auto_offset_reset_strategy import AutoOffsetResetStrategy
from headrace.client.consumer.deserializers import prepare
from headrace.client.consumer.fetch_buffer import FetchBuffer
from headrace.client.consumer.fetch_collector import FetchCollector
from headrace.client.consumer.fetcher import Fetcher, FetchLimits
from headrace.client.consumer.list_offsets import ListOffsetData, list_offsets
from headrace.client.consumer.offset_fetcher import OffsetFetcher
from headrace.client.consumer.subscription_state import SubscriptionMode, SubscriptionState
from headrace.client.consumer.user_callbacks import UserCallbacks
from headrace.client.core import ClientCore
from headrace.client.errors import IllegalStateError
from headrace.client.group.consumer_coordinator import ConsumerCoordinator
from headrace.client.metadata import check_name
from headrace.client.metadata_cache import ClusterView
from headrace.client.statistics_sources import consumer_source
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata
from headrace.common.clock import Clock
from headrace.common.errors import ConfigError, KafkaError, UnknownTopicOrPartitionError
from headrace.common.ids import Random
from headrace.common.types import TopicPartition
from headrace.net.dialer import Dialer

_logger = logging.getLogger(__name__)

READ_COMMITTED = "read_committed"
_ABANDON_MS = 1000


class ConsumerCore:
    """See the module."""

    def __init__(
        self,
        settings: ClientSettings,
        notify: Callable[[], None],
        subscription: SubscriptionState | None = None,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        dialer: Dialer | None = None,
    ):
        """`notify` wakes a poll that waits; it is called on the loop, and from the thread that polls."""
        if settings.fetch_max_wait_ms >= settings.request_timeout_ms:
            raise ConfigError(
                f"fetch.max.wait.ms ({settings.fetch_max_wait_ms}) has to be below request.timeout.ms "
                f"({settings.request_timeout_ms}), or every fetch without records would time out"
            )
        policy = AutoOffsetResetStrategy(settings.auto_offset_reset)
        room = settings.fetch_max_bytes + settings.max_partition_fetch_bytes
        if settings.receive_message_max_bytes < room:
            settings = settings.replace(receive_message_max_bytes=room)
        self.settings = settings
        self.client = ClientCore(settings, clock=clock, random=random, dialer=dialer)
        self.loop = self.client.loop
        self.subscription = subscription or SubscriptionState()
        self.subscription.changed = self.changed
        self.buffer = FetchBuffer()
        self.buffer.took = self.changed
        self.user_callbacks = UserCallbacks(self.loop, notify)
        self.coordinator: ConsumerCoordinator | None = None
        if settings.group_id:
            told = self._committed if settings.interceptors else None
            self.coordinator = ConsumerCoordinator(self.client, settings, self.subscription, self, on_commit=told)
        self._notify = notify
        self._read_committed = settings.isolation_level == READ_COMMITTED
        self._errors: dict[object, Exception] = {}
        """What the next polls raise: one for each partition, and one of the group."""
        self._work_is_due = False
        self._is_abandoned = False
        self.offset_fetcher = OffsetFetcher(
            self.client.pool,
            self.client.metadata,
            self.subscription,
            committed=self.coordinator.commits if self.coordinator is not None else None,
            policy=policy,
            read_committed=self._read_committed,
            backoff=self.client.backoff,
            clock=self.client.clock,
            found=self._positions_found,
            failed=self._partition_failed,
        )
        self.fetcher = Fetcher(
            self.client.pool,
            self.client.metadata,
            self.subscription,
            self.buffer,
            self.offset_fetcher,
            _limits(settings),
            self.client.backoff,
            notify,
        )
        self.collector = FetchCollector(
            self.subscription,
            self.buffer,
            prepare(settings.key_deserializer),
            prepare(settings.value_deserializer),
            settings.on_partition_eof,
        )
        self.client.statistics.add(consumer_source(self))
        self._unlisten = self.client.metadata.on_change(self._metadata_changed)
        self.closed = False

    async def start(self) -> None:
        if self.coordinator is not None:
            await self.coordinator.start()
        self.subscription_changed()

    # What changed

    def changed(self) -> None:
        """Any thread: the subscription, a position or the room in the buffer is not what it was."""
        if not self._work_is_due:
            self._work_is_due = True
            self.call(self._work)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Any thread: has a function called on the loop, soon."""
        try:
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            _logger.debug("the consumer's loop has ended")

    def _work(self) -> None:
        self._work_is_due = False
        if self.closed:
            return
        with self.subscription.lock:
            self.buffer.sweep()
        self.offset_fetcher.work()
        self.fetcher.kick()

    def _positions_found(self) -> None:
        self.fetcher.kick()
        self._notify()

    def subscription_changed(self) -> None:
        """Other topics or partitions than before are wanted; on the loop."""
        metadata, subscription = self.client.metadata, self.subscription
        is_pattern = subscription.mode is SubscriptionMode.PATTERN
        metadata.track_all(is_pattern)
        if is_pattern:
            self._match(metadata.view)
        metadata.set_tracked(subscription.topics)
        self._take_all(metadata.view)
        if self.coordinator is not None:
            self.coordinator.subscription_changed()
        self._work()

    def _metadata_changed(self, old: ClusterView, new: ClusterView) -> None:  # noqa: ARG002
        subscription = self.subscription
        if subscription.mode is SubscriptionMode.PATTERN and self._match(new):
            self.client.metadata.set_tracked(subscription.topics)
            if self.coordinator is not None:
                self.coordinator.subscription_changed()
        for name in subscription.topics:
            topic = new.topic(name)
            if topic is not None and topic.error is not None and not topic.error.retriable:
                self._errors[name] = topic.error(f"topic {name}: {(topic.error.__doc__ or '').strip()}")
                self._notify()
        self._take_all(new)
        self._work()

    def _match(self, view: ClusterView) -> bool:
        return self.subscription.match(view.names(include_internal=not self.settings.exclude_internal_topics))

    def _take_all(self, view: ClusterView) -> None:
        """Without a group a subscription means all partitions of its topics, as in kafka-python."""
        if self.coordinator is not None or not self.subscription.is_subscribed:
            return
        wanted = [
            TopicPartition(name, each.partition)
            for name in self.subscription.topics
            if (topic := view.topic(name)) is not None
            for each in topic.partitions
        ]
        if self.subscription.assigned != frozenset(wanted):
            self.subscription.assign_from_group(wanted)

    # Errors for the user

    def _partition_failed(self, tp: TopicPartition, error: Exception) -> None:
        self._errors[tp] = error
        self._notify()

    def raise_error(self) -> None:
        """Any thread: raises what went wrong meanwhile, one at a time."""
        for key in list(self._errors):  # the loop may add to it meanwhile
            error = self._errors.pop(key, None)
            if error is not None and (not isinstance(key, TopicPartition) or key in self.subscription.assigned):
                raise error

    def forget_errors(self, tps: Iterable[TopicPartition]) -> None:
        """Any thread: reading goes on elsewhere, so these do not matter any more."""
        for tp in tps:
            self._errors.pop(tp, None)

    # What membership asks (RebalanceHooks)

    async def at_poll(self) -> None:
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

    # Polls

    def poll_began(self) -> None:
        """Any thread."""
        self.subscription.user_is_done()
        if self.coordinator is not None:
            self.coordinator.poll_began()

    def poll_ended(self) -> None:
        """Any thread."""
        if self.coordinator is not None:
            self.coordinator.poll_ended()

    # Questions

    def _group(self) -> ConsumerCoordinator:
        if self.coordinator is None:
            raise IllegalStateError("this consumer has no group: offsets are committed for a group.id")
        return self.coordinator

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: float | None) -> None:
        await self._group().commits.commit(offsets, timeout_ms=timeout_ms)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        callback: Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], object] | None,
    ) -> "asyncio.Future[None]":
        """On the loop. The callback is a callback of the user's."""
        if callback is None:
            return self._group().commits.commit_async(offsets)

        def tell(done: Mapping[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None:
            self.user_callbacks.add(lambda: callback(done, error))

        return self._group().commits.commit_async(offsets, tell)

    def _committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None:
        if error is None:
            for interceptor in self.settings.interceptors:
                self.user_callbacks.add(partial(_tell_commit, interceptor, offsets))

    async def committed(
        self, tps: Iterable[TopicPartition], timeout_ms: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self._group().commits.committed(tps, timeout_ms=timeout_ms)

    def group_metadata(self) -> ConsumerGroupMetadata:
        return self._group().group_metadata()

    async def offsets_at(
        self, wanted: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, ListOffsetData]:
        if not wanted:
            return {}
        for tp in wanted:
            if not isinstance(tp, TopicPartition):
                raise TypeError(f"a partition is a TopicPartition, not {type(tp).__name__}")
        return await list_offsets(
            self.client.pool,
            self.client.metadata,
            wanted,
            read_committed=self._read_committed,
            timeout_ms=self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms,
            backoff=self.client.backoff,
        )

    async def topics(self, timeout_ms: float | None = None) -> set[str]:
        timeout = self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        view = await self.client.metadata.update_all(timeout)
        return set(view.names(include_internal=not self.settings.exclude_internal_topics))

    async def partitions_for_topic(self, topic: str, timeout_ms: float | None = None) -> set[int] | None:
        """None if there is no such topic, or none yet."""
        timeout = self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        metadata = self.client.metadata
        check_name(topic)
        info = metadata.view.topic(topic)
        if info is None or info.error is not None:
            info = (await metadata.update({topic}, timeout)).topic(topic)
            if info is None or info.error is UnknownTopicOrPartitionError:
                return None
        info = await metadata.topic(topic, timeout)
        return {each.partition for each in info.partitions}

    async def metrics(self) -> dict[str, Any]:
        return self.client.statistics.take()

    def lag(self, tp: TopicPartition) -> int | None:
        """Any thread."""
        with self.subscription.lock:
            state = self.subscription.state(tp)
            end = state.end_offset(self._read_committed)
            return max(0, end - state.position) if end >= 0 and state.has_position else None

    # The end

    async def unsubscribe(self) -> None:
        """Gives everything up and leaves the group. The user's turns have to be taken meanwhile."""
        if self.coordinator is not None and self.subscription.is_subscribed:
            await self.coordinator.leave()
        self.subscription.unsubscribe()
        self._errors.clear()
        self.subscription_changed()

    async def abandon(self) -> None:
        """Closes without the user, who has forgotten to: nobody is told, and nothing is committed, as nobody knows what
        has been processed."""
        self.subscription.listener = None
        self._is_abandoned = True
        await self.close(autocommit=False, timeout_ms=_ABANDON_MS)

    async def close(self, *, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """The user's turns have to be taken meanwhile."""
        if self.closed:
            return
        try:
            if self.coordinator is not None:
                if not autocommit:
                    self.subscription.commit_nothing()
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
            serialization.close(self.settings.key_deserializer, self.settings.value_deserializer)
            self._notify()


def _tell_commit(interceptor: Any, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    try:
        interceptor.on_commit(offsets)
    except Exception:
        _logger.exception("the interceptor %r failed in on_commit", interceptor)


def _limits(settings: ClientSettings) -> FetchLimits:
    return FetchLimits(
        min_bytes=settings.fetch_min_bytes,
        max_bytes=settings.fetch_max_bytes,
        max_wait_ms=settings.fetch_max_wait_ms,
        max_partition_bytes=settings.max_partition_fetch_bytes,
        max_queued_bytes=settings.queued_max_messages_kbytes * 1024,
        check_crcs=settings.check_crcs,
        read_committed=settings.isolation_level == READ_COMMITTED,
        sessions=settings.enable_incremental_fetch_sessions,
        partition_eof=settings.enable_partition_eof,
        rack=settings.client_rack,
        metadata_max_age_ms=settings.metadata_max_age_ms,
    )


def offsets_to_commit_from(
    offsets: Mapping[TopicPartition, Any] | None, subscription: SubscriptionState
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets of a commit: those of the user (numbers will do), or the positions."""
    if offsets is None:
        return subscription.positions()
    given: dict[TopicPartition, OffsetAndMetadata] = {}
    for tp, offset in offsets.items():
        if not isinstance(tp, TopicPartition):
            raise TypeError(f"offsets are committed for a TopicPartition, not for {type(tp).__name__}")
        made = OffsetAndMetadata(offset) if isinstance(offset, int) else OffsetAndMetadata(*offset)
        if made.offset < 0:
            raise ValueError(f"{tp}: an offset to commit is at least 0, not {made.offset}")
        given[tp] = made._replace(metadata=made.metadata or "")
    return given
