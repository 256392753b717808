"""The subscription and assignment of a consumer, and the state of each assigned partition.

    subscribe(topics)      the group assigns partitions                    mode TOPICS
    subscribe(pattern)     the same, for all topics that match             mode PATTERN
    assign(partitions)     the user assigns partitions                     mode ASSIGNED

Two threads share it: the loop (fetches, keeps the group membership) and the user's thread (polls, seeks). `lock` guards
everything here and in the fetch buffer. Methods acquire it themselves. It is reentrant, so callers may hold it over
several calls. It is never held across an await or while user code runs.

Code that changes the partitions or offsets to fetch calls `changed` afterwards, from any thread. The consumer's core
sets this hook and lets the loop react.
"""

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import Enum

from headrace.client.consumer.partition_state import COMMITTED_OFFSET, NO_EPOCH, OffsetQuery, PartitionState
from headrace.client.errors import IllegalArgumentError, IllegalStateError, NotAssignedError
from headrace.client.types import OffsetAndMetadata
from headrace.common.types import TopicPartition

__all__ = ["ConsumerRebalanceListener", "SubscriptionMode", "SubscriptionState"]


class SubscriptionMode(Enum):
    """How partitions are assigned to a consumer."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "a pattern"
    ASSIGNED = "partitions"


class ConsumerRebalanceListener:
    """Callbacks that a program can implement to react to a rebalance. Override the methods you need.

    They are called within `poll` (or iteration, or `close`) in the thread that polls. With `headrace.aio` they may be
    coroutine functions.
    """

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> object:
        """Called before partitions are revoked: the last chance to commit their offsets."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> object:
        """Called after partitions were assigned. With cooperative assignors, `assigned` has only the new ones."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> object:
        """Called when partitions were lost because the group removed this member. Other members may own them
        already, so their offsets cannot be committed. Calls `on_partitions_revoked` by default."""
        return self.on_partitions_revoked(lost)


class SubscriptionState:
    """The subscription, the assignment and the partition states of one consumer."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.mode = SubscriptionMode.NONE
        self.pattern: re.Pattern[str] | None = None
        self.listener: ConsumerRebalanceListener | None = None
        self.changed: Callable[[], None] = _do_nothing
        self._topics: frozenset[str] = frozenset()
        self._states: dict[TopicPartition, PartitionState] = {}
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._auto_commit_disabled = False
        self._unprocessed: set[PartitionState] = set()
        """Partitions whose `processed` is behind their `position`."""

    # ---- subscription

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics. With a pattern, the topics that matched last."""
        return self._topics

    @property
    def is_subscribed(self) -> bool:
        """True if the group assigns the partitions."""
        return self.mode in (SubscriptionMode.TOPICS, SubscriptionMode.PATTERN)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Replaces the subscription. Assigned partitions stay until the group revokes them, even if their topic is no
        longer subscribed."""
        if isinstance(topics, str) or not isinstance(topics, Iterable):
            raise TypeError(f"topics must be a list of topic names, not the {type(topics).__name__} {topics!r}")
        names = frozenset(topics)
        for topic in names:
            if not isinstance(topic, str):
                raise TypeError(f"a topic name must be a str, not {type(topic).__name__}")
        if names and pattern is not None:
            raise IllegalStateError("Subscription to topics and to a pattern are mutually exclusive")
        if not names and pattern is None:
            raise ValueError("subscribe() needs topics or a pattern; use unsubscribe() to end a subscription")
        for method in ("on_partitions_assigned", "on_partitions_revoked"):
            if listener is not None and not callable(getattr(listener, method, None)):
                raise TypeError(f"a rebalance listener needs a method {method}; {type(listener).__name__} has none")
        compiled = None if pattern is None else _compile(pattern)
        with self.lock:
            self._check_mode(SubscriptionMode.TOPICS if compiled is None else SubscriptionMode.PATTERN)
            self.mode = SubscriptionMode.TOPICS if compiled is None else SubscriptionMode.PATTERN
            self._topics = names
            self.pattern = compiled
            self.listener = listener

    def match(self, topics: Iterable[str]) -> bool:
        """Sets the topics of a pattern from all existing topics. Returns True if they changed. As in kafka-python the
        pattern must match from the start of the name, like `re.match`."""
        with self.lock:
            if self.pattern is None:
                return False
            matching = frozenset(topic for topic in topics if self.pattern.match(topic))
            if matching == self._topics:
                return False
            self._topics = matching
            return True

    def assign(self, tps: Iterable[TopicPartition]) -> None:
        """Assigns partitions by the user. Partitions that were assigned before keep their positions."""
        partitions = frozenset(tps)
        with self.lock:
            self._check_mode(SubscriptionMode.ASSIGNED)
            self.mode = SubscriptionMode.ASSIGNED
            self._topics = frozenset(tp.topic for tp in partitions)
            self._set_assigned(partitions)

    def unsubscribe(self) -> None:
        with self.lock:
            self._set_assigned(frozenset())
            self.mode = SubscriptionMode.NONE
            self.pattern = None
            self.listener = None
            self._topics = frozenset()

    def _check_mode(self, mode: SubscriptionMode) -> None:
        if self.mode not in (SubscriptionMode.NONE, mode):
            raise IllegalStateError(
                "Subscription to topics, partitions and pattern are mutually exclusive: this consumer already uses "
                f"{self.mode.value}; call unsubscribe() first"
            )

    # ---- assignment

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return self._assigned

    def assign_from_group(self, tps: Iterable[TopicPartition]) -> None:
        """Sets the complete assignment from the group. Partitions that were assigned before keep their positions, new
        partitions start at their committed offset. Does nothing if the user has unsubscribed."""
        with self.lock:
            if self.is_subscribed:
                self._set_assigned(frozenset(tps))

    def start_revoking(self, tps: Iterable[TopicPartition]) -> None:
        """Stops fetching from partitions that are about to be revoked. Their positions can still be committed."""
        with self.lock:
            for tp in tps:
                if (state := self._states.get(tp)) is not None:
                    state.begin_stop()

    def _set_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        for tp in self._assigned - assigned:
            state = self._states.pop(tp)
            state.stop()
            self._unprocessed.discard(state)
        for tp in assigned:
            previous = self._states.get(tp)
            if previous is None or previous.is_stopped:
                if previous is not None:
                    previous.stop()
                    self._unprocessed.discard(previous)
                state = self._states[tp] = PartitionState(tp)
                state.query_offset(COMMITTED_OFFSET)
        self._assigned = assigned

    def state(self, tp: TopicPartition) -> PartitionState:
        state = self._states.get(tp)
        if state is None:
            raise NotAssignedError(f"No current assignment for partition {tp}: it is not assigned to this consumer")
        return state

    def find(self, tp: TopicPartition) -> PartitionState | None:
        return self._states.get(tp)

    def states(self) -> Iterator[PartitionState]:
        """Iterates over all partitions. The caller holds the lock during the iteration."""
        return iter(self._states.values())

    # ---- seek, pause, resume

    def seek(self, tp: TopicPartition, offset: int, epoch: int = NO_EPOCH) -> None:
        with self.lock:
            state = self.state(tp)
            if not state.is_stopped:
                self._unprocessed.discard(state)
                state.seek(offset, epoch)

    def query_offsets(self, tps: Iterable[TopicPartition], query: OffsetQuery) -> None:
        """Looks up the position before the next fetch."""
        with self.lock:
            states = [self.state(tp) for tp in tps]
            for state in states:
                if not state.is_stopped:
                    self._unprocessed.discard(state)
                    state.query_offset(query)

    def pause(self, tps: Iterable[TopicPartition]) -> None:
        with self.lock:
            for state in [self.state(tp) for tp in tps]:
                state.paused = True

    def resume(self, tps: Iterable[TopicPartition]) -> None:
        with self.lock:
            for state in [self.state(tp) for tp in tps]:
                state.paused = False

    def paused(self) -> set[TopicPartition]:
        with self.lock:
            return {tp for tp, state in self._states.items() if state.paused}

    # ---- progress of the user

    def consumed(self, state: PartitionState, next_offset: int, epoch: int) -> None:
        """Notes that records up to `next_offset` were returned to the user. The caller holds the lock."""
        state.consumed(next_offset, epoch)
        self._unprocessed.add(state)

    def start_iteration(self, state: PartitionState, version: int, epoch: int) -> None:
        """Prepares for returning records one by one with `PartitionState.advance`. `epoch` is that of the last record.

        Earlier records may have an earlier epoch. A late epoch is harmless: a leader that does not have it responds
        with the one before. An epoch that is too early would look like a truncation. So stale records, fetched before
        a seek, must not change the epoch of the new position.
        """
        with self.lock:
            if state.version == version:
                state.processed = state.position
                state.processed_epoch = state.position_epoch = epoch
                self._unprocessed.add(state)

    def mark_processed(self) -> None:
        """Marks all returned records as processed, when the next poll begins."""
        if self._unprocessed:
            with self.lock:
                for state in self._unprocessed:
                    state.processed = state.position
                    state.processed_epoch = state.position_epoch
                self._unprocessed.clear()

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the known positions: the offsets that `commit()` without arguments commits."""
        with self.lock:
            return {
                tp: OffsetAndMetadata(state.position, "", state.position_epoch)
                for tp, state in self._states.items()
                if state.has_position
            }

    def auto_commit_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets that an automatic commit may commit now: behind the records that were processed."""
        if self._auto_commit_disabled:
            return {}
        with self.lock:
            return {
                tp: OffsetAndMetadata(state.processed, "", state.processed_epoch)
                for tp, state in self._states.items()
                if state.processed >= 0
            }

    def disable_auto_commit(self) -> None:
        """Ends automatic commits, when it is unknown which records were processed."""
        self._auto_commit_disabled = True


def _compile(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    if not isinstance(pattern, str | re.Pattern):
        raise TypeError(f"pattern must be a str or a compiled regular expression, not {type(pattern).__name__}")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise IllegalArgumentError(f"pattern {pattern!r} is not a valid regular expression: {error}") from None


def _do_nothing() -> None:
    pass
