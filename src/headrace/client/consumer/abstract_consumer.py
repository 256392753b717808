"""What both faces of the consumer share: everything that needs no waiting.

Belongs to the thread that polls. What has to happen on the loop is only asked for here.
"""

import logging
import re
from collections.abc import Iterable, Mapping

from headrace.client.config.common import ClientSettings
from headrace.client.config.consumer import CONSUMER_KEYS
from headrace.client.consumer.core import ConsumerCore
from headrace.client.consumer.fetch_collector import CollectedRecords
from headrace.client.consumer.list_offsets import ListOffsetData
from headrace.client.consumer.partition_state import EARLIEST_OFFSET, LATEST_OFFSET, OffsetQuery
from headrace.client.consumer.subscription_state import ConsumerRebalanceListener, SubscriptionState
from headrace.client.errors import IllegalStateError, NotAssignedError, WakeupError
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp
from headrace.common.types import TopicPartition
from headrace.records import ConsumerRecord

__all__ = ["AbstractConsumer", "Offsets", "at_times", "check_limit", "check_timeout", "only_offsets", "wanted_times"]

_logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class AbstractConsumer:
    """See the module. A face sets `_core`, and says how a poll that waits is woken."""

    def __init__(self, topics: "tuple[str | Mapping[str, object], ...]", configs: dict[str, object]):
        given: dict[str, object] = {}
        names: list[str] = []
        for each in topics:
            if isinstance(each, str):
                names.append(each)
            elif isinstance(each, Mapping):
                given.update(each)
            else:
                raise TypeError(f"topics are given as str, each an argument of its own, not as {type(each).__name__}")
        self.config = ClientSettings.load(CONSUMER_KEYS, given, **configs)
        """The settings; `config.group_id`, say."""
        self._subscription = SubscriptionState()
        self._made: ConsumerCore | None = None
        self._not_made = "this consumer is not started: await start(), or use async with"
        self._closed = False
        self._is_closing = False
        """Listeners that are told of the end may still use the consumer."""
        self._wakeup = False
        self._portion: CollectedRecords | None = None
        """What iteration has taken and not yet given to the user."""
        self._index = 0
        if names:
            self._subscription.subscribe(names, listener=self.config.rebalance_listener)

    @property
    def _core(self) -> ConsumerCore:
        if self._closed:
            raise IllegalStateError("this consumer is closed")
        if self._made is None:
            raise IllegalStateError(self._not_made)
        return self._made

    def _wake(self) -> None:
        """Wakes a poll that waits; from any thread."""
        raise NotImplementedError

    def _tell_loop(self) -> None:
        if self._made is not None:
            self._made.call(self._made.subscription_changed)

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
        self._tell_loop()

    def subscription(self) -> set[str] | None:
        """The topics subscribed to; None if there is no subscription."""
        return set(self._subscription.topics) if self._subscription.is_subscribed else None

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions and no others, whatever other consumers do."""
        self._check_open()
        self._subscription.assign(partitions)
        self._tell_loop()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads at the moment: assigned by the user, or by the group."""
        return set(self._subscription.assigned)

    # Where to read

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
            raise NotAssignedError("no partitions are assigned to this consumer")
        self._subscription.ask(tps, query)
        self._moved(tps)

    def _moved(self, tps: Iterable[TopicPartition]) -> None:
        if self._made is not None:
            self._made.forget_errors(tps)
        self._subscription.changed()

    def pause(self, *partitions: TopicPartition) -> None:
        """Returns no more records of partitions until they are resumed. They stay assigned."""
        self._subscription.pause(partitions)
        self._subscription.changed()

    def resume(self, *partitions: TopicPartition) -> None:
        """Ends what `pause` began."""
        self._subscription.resume(partitions)
        self._subscription.changed()
        self._wake()

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._subscription.paused()

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset behind the last record of a partition, as the last fetch told; None before."""
        with self._subscription.lock:
            highwater = self._subscription.state(partition).high_watermark
        return highwater if highwater >= 0 else None

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets lie between the position and the end, as the last fetch told; None before."""
        return self._core.lag(partition)

    # The group and the cluster

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer's membership at the moment, for `Producer.send_offsets_to_transaction`."""
        return self._core.group_metadata()

    def enforce_rebalance(self, reason: str = "the program asked for it") -> None:
        """Has the group share its partitions anew."""
        if self._core.coordinator is None:
            raise IllegalStateError("this consumer has no group")
        self._core.call(self._core.coordinator.request_rejoin, reason)

    def bootstrap_connected(self) -> bool:
        """Whether the cluster is known."""
        return self._made is not None and bool(self._made.client.metadata.view.nodes)

    # Inside

    def _put_back(self) -> None:
        """Iteration ended in the middle of a portion: the rest comes next, if it is still wanted. With interceptors it
        is fetched again: a poll shows them all that it returns."""
        portion, self._portion = self._portion, None
        if portion is not None and self._index < len(portion.records):
            if self.config.interceptors:
                self._core.collector.rewind(portion.state, portion.version)
            else:
                self._core.collector.put_back(portion, self._index)

    def _next_portion(self) -> list[CollectedRecords]:
        while (portion := self._core.collector.collect_partition(self.config.max_poll_records)) is not None:
            if portion.records and self.config.interceptors:
                tp = portion.state.tp
                portion = portion._replace(records=list(self._intercept({tp: portion.records}).get(tp, ())))
            if portion.records:
                return [portion]
            with self._subscription.lock:
                if portion.state.version == portion.version:
                    self._subscription.consumed(portion.state, portion.next_offset, portion.leader_epoch)
        return []

    def _polled(
        self, found: dict[TopicPartition, list[ConsumerRecord]], update_offsets: bool
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What the user gets of what a poll has found."""
        if not update_offsets:
            for tp, records in found.items():
                self.seek(tp, records[0].offset)
        return self._intercept(found)

    def _intercept(
        self, found: dict[TopicPartition, list[ConsumerRecord]]
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        for interceptor in self.config.interceptors:
            try:
                changed = interceptor.on_consume(found)
                found = found if changed is None else changed
            except Exception:
                # The records are taken: an error in place of them would lose them.
                _logger.exception(
                    "the interceptor %r failed in on_consume; the records go on as they were", interceptor
                )
        return found

    def wakeup(self) -> None:
        """Makes a poll that is under way, or the next one, raise WakeupError. May be called from any thread."""
        self._wakeup = True
        self._wake()

    def _check_wakeup(self) -> None:
        if self._wakeup:
            self._wakeup = False
            raise WakeupError("wakeup() was called")

    def _check_closing(self) -> None:
        """A poll does not go on when somebody else closes the consumer."""
        if self._is_closing or self._closed:
            raise IllegalStateError("this consumer is closed")

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("this consumer is closed")

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._subscription.assigned)} partitions"
        return f"<Consumer group_id={self.config.group_id!r}, {state}>"


def check_timeout(timeout_ms: float) -> float:
    """For how long a poll waits: a number, as in kafka-python."""
    if not isinstance(timeout_ms, int | float):
        raise TypeError(
            f"timeout_ms is a number of milliseconds, not {type(timeout_ms).__name__}; float('inf') waits for ever"
        )
    if not timeout_ms >= 0:
        raise ValueError(f"timeout_ms is at least 0, not {timeout_ms}")
    return timeout_ms


def check_limit(max_records: int) -> int:
    if not isinstance(max_records, int):
        raise TypeError(f"max_records is a whole number, not {type(max_records).__name__}")
    if max_records <= 0:
        raise ValueError(f"max_records is at least 1, not {max_records}")
    return max_records


def wanted_times(timestamps: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    for tp, timestamp in timestamps.items():
        if timestamp < 0:
            raise ValueError(f"{tp}: a timestamp is milliseconds since 1970, not {timestamp}")
    return timestamps


def at_times(found: Mapping[TopicPartition, ListOffsetData]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    return {
        tp: OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch) if each.offset >= 0 else None
        for tp, each in found.items()
    }


def only_offsets(found: Mapping[TopicPartition, ListOffsetData]) -> dict[TopicPartition, int]:
    return {tp: each.offset for tp, each in found.items()}
