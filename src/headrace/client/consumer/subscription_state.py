"""What a consumer reads: the topics it asked for, the partitions it has, and the state of each.

    subscribe(topics)      the group decides which partitions       mode TOPICS
    subscribe(pattern)     the same, with all topics that match     mode PATTERN
    assign(partitions)     the user decides                         mode ASSIGNED

Shared by two threads: the loop (which fetches and keeps the membership) and the user's (which polls and seeks). `lock`
guards everything here and in the fetch buffer; methods take it themselves, and it may be taken around several (it is
reentrant). It is never held across an await or a call of the user's code.

Whoever changes what has to be fetched calls `changed` afterwards (any thread), which the consumer's core sets: it gets
the loop going.
"""

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import Enum

from headrace.client.consumer.partition_state import COMMITTED_OFFSET, NO_EPOCH, OffsetQuery, PartitionState
from headrace.client.errors import IllegalStateError, NotAssignedError
from headrace.client.types import OffsetAndMetadata
from headrace.common.types import TopicPartition

__all__ = ["ConsumerRebalanceListener", "SubscriptionMode", "SubscriptionState"]


class SubscriptionMode(Enum):
    NONE = "nothing"
    TOPICS = "topics"
    PATTERN = "a pattern"
    ASSIGNED = "partitions"


class ConsumerRebalanceListener:
    """What a program wants to do when partitions come and go. Override what is needed.

    Called within `poll` (or iteration, or `close`), by the thread that polls. With `headrace.aio` the methods may be
    coroutine functions.
    """

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> object:
        """Partitions are about to go to another member: the time to commit their offsets."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> object:
        """Partitions have come. With cooperative assignors only the new ones."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> object:
        """Partitions are gone already (the member was thrown out) and maybe read by others: too late to commit."""
        return self.on_partitions_revoked(lost)


class SubscriptionState:
    """See the module."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.mode = SubscriptionMode.NONE
        self.pattern: re.Pattern[str] | None = None
        self.listener: ConsumerRebalanceListener | None = None
        self.changed: Callable[[], None] = _nothing
        self._topics: frozenset[str] = frozenset()
        self._states: dict[TopicPartition, PartitionState] = {}
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._commits_nothing = False
        self._moved: set[PartitionState] = set()
        """States whose `processed` is behind their `position`."""

    # What was asked for

    @property
    def topics(self) -> frozenset[str]:
        """The topics to join the group for: those subscribed to, or those that the pattern matched last."""
        return self._topics

    @property
    def is_subscribed(self) -> bool:
        """The group decides about the assignment."""
        return self.mode in (SubscriptionMode.TOPICS, SubscriptionMode.PATTERN)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Partitions that the group gave stay until the group takes them away, also if their topic is not asked for."""
        if isinstance(topics, str):
            raise TypeError(f"topics is a list of names, not the str {topics!r}")
        wanted = frozenset(topics)
        for topic in wanted:
            if not isinstance(topic, str):
                raise TypeError(f"a topic's name is a str, not {type(topic).__name__}")
        if wanted and pattern is not None:
            raise IllegalStateError("subscribe to either topics or a pattern, not to both")
        if not wanted and pattern is None:
            raise ValueError("subscribe to topics or to a pattern: neither is given; unsubscribe() ends a subscription")
        for method in ("on_partitions_assigned", "on_partitions_revoked"):
            if listener is not None and not callable(getattr(listener, method, None)):
                raise TypeError(f"a listener has a method {method}, which {type(listener).__name__} has not")
        compiled = re.compile(pattern) if pattern is not None else None
        with self.lock:
            self._check_mode(SubscriptionMode.TOPICS if compiled is None else SubscriptionMode.PATTERN)
            self.mode = SubscriptionMode.TOPICS if compiled is None else SubscriptionMode.PATTERN
            self._topics = wanted
            self.pattern = compiled
            self.listener = listener

    def match(self, known: Iterable[str]) -> bool:
        """Sets the topics of a pattern from all that exist; whether that changed anything. As in kafka-python the
        pattern has to match from the start of the name, as `re.match` does."""
        with self.lock:
            if self.pattern is None:
                return False
            found = frozenset(topic for topic in known if self.pattern.match(topic))
            if found == self._topics:
                return False
            self._topics = found
            return True

    def assign(self, tps: Iterable[TopicPartition]) -> None:
        """The user's own choice. Partitions that stay keep their positions."""
        wanted = frozenset(tps)
        for tp in wanted:
            if not isinstance(tp, TopicPartition):
                raise TypeError(f"a partition must be a TopicPartition, not {type(tp).__name__}")
        with self.lock:
            self._check_mode(SubscriptionMode.ASSIGNED)
            self.mode = SubscriptionMode.ASSIGNED
            self._topics = frozenset(tp.topic for tp in wanted)
            self._set_assigned(wanted)

    def unsubscribe(self) -> None:
        with self.lock:
            self._set_assigned(frozenset())
            self.mode = SubscriptionMode.NONE
            self.pattern = None
            self.listener = None
            self._topics = frozenset()

    def _check_mode(self, wanted: SubscriptionMode) -> None:
        if self.mode not in (SubscriptionMode.NONE, wanted):
            raise IllegalStateError(
                f"this consumer has {self.mode.value}, and {wanted.value} are another way: call unsubscribe() first"
                if wanted is SubscriptionMode.ASSIGNED or self.mode is SubscriptionMode.ASSIGNED
                else f"this consumer has subscribed to {self.mode.value} already: call unsubscribe() first"
            )

    # What it has

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return self._assigned

    def assign_from_group(self, tps: Iterable[TopicPartition]) -> None:
        """The partitions that the group gave, all of them. Those that stay keep their positions, the others start with
        their committed offset. Does nothing if the user has unsubscribed meanwhile."""
        with self.lock:
            if self.is_subscribed:
                self._set_assigned(frozenset(tps))

    def start_revoking(self, tps: Iterable[TopicPartition]) -> None:
        """Stops reading from partitions that are about to be taken away; positions can still be committed."""
        with self.lock:
            for tp in tps:
                if (state := self._states.get(tp)) is not None:
                    state.begin_stop()

    def _set_assigned(self, wanted: frozenset[TopicPartition]) -> None:
        for tp in self._assigned - wanted:
            state = self._states.pop(tp)
            state.stop()
            self._moved.discard(state)
        for tp in wanted:
            known = self._states.get(tp)
            if known is None or known.is_stopped:
                if known is not None:
                    known.stop()
                    self._moved.discard(known)
                state = self._states[tp] = PartitionState(tp)
                state.query_offset(COMMITTED_OFFSET)
        self._assigned = wanted

    def state(self, tp: TopicPartition) -> PartitionState:
        try:
            state = self._states.get(tp)
        except TypeError:  # a list of them, say, which cannot be a key
            state = None
        if state is None:
            if not isinstance(tp, TopicPartition):
                raise TypeError(f"a partition must be a TopicPartition, not {type(tp).__name__}")
            raise NotAssignedError(f"partition {tp} is not assigned to this consumer")
        return state

    def find(self, tp: TopicPartition) -> PartitionState | None:
        return self._states.get(tp)

    def states(self) -> Iterator[PartitionState]:
        """All partitions; the caller holds the lock while it goes through them."""
        return iter(self._states.values())

    # Where it reads

    def seek(self, tp: TopicPartition, offset: int, epoch: int = NO_EPOCH) -> None:
        with self.lock:
            state = self.state(tp)
            if not state.is_stopped:
                self._moved.discard(state)
                state.seek(offset, epoch)

    def query_offsets(self, tps: Iterable[TopicPartition], query: OffsetQuery) -> None:
        """The offset to go on at is looked up before the next fetch."""
        with self.lock:
            found = [self.state(tp) for tp in tps]
            for state in found:
                if not state.is_stopped:
                    self._moved.discard(state)
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

    # How far the user is

    def consumed(self, state: PartitionState, next_offset: int, epoch: int) -> None:
        """Records before `next_offset` are handed to the user. The caller holds the lock."""
        state.consumed(next_offset, epoch)
        self._moved.add(state)

    def start_iteration(self, state: PartitionState, epoch: int) -> None:
        """Records will be handed to the user one by one, with `PartitionState.move`; the last is of this epoch.

        It may be later than that of the others, which does no harm: a leader that does not have it tells of the one
        before. An epoch that is too early would look like a truncation.
        """
        with self.lock:
            state.processed = state.position
            state.processed_epoch = state.position_epoch = epoch
            self._moved.add(state)

    def mark_processed(self) -> None:
        """A poll begins: what was handed out before it has been processed."""
        if self._moved:
            with self.lock:
                for state in self._moved:
                    state.processed = state.position
                    state.processed_epoch = state.position_epoch
                self._moved.clear()

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The position of every partition that has one: what `commit()` without offsets commits."""
        with self.lock:
            return {
                tp: OffsetAndMetadata(state.position, "", state.position_epoch)
                for tp, state in self._states.items()
                if state.has_position
            }

    def offsets_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What an automatic commit may commit at this moment: everything that the user is surely done with."""
        if self._commits_nothing:
            return {}
        with self.lock:
            return {
                tp: OffsetAndMetadata(state.processed, "", state.processed_epoch)
                for tp, state in self._states.items()
                if state.processed >= 0
            }

    def disable_auto_commit(self) -> None:
        """Nobody knows what the user is done with: nothing is committed by itself any more."""
        self._commits_nothing = True


def _nothing() -> None:
    pass
