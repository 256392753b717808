"""Sends what the accumulator has due, and finds out what became of it.

    poll ─▶ due queues by leader ─▶ drain ─▶ Produce ─▶ reply: done, again, split, or failed ─▶ poll

- A leader gets up to `max.in.flight.requests.per.connection` requests at a time. With idempotence their order does not
  matter: leaders take batches in sequence, and what came too early is sent again. Without, and with one in flight, a
  partition is muted while its batch is on the wire.
- A batch whose request got no answer, or an error that may pass, goes back to the front of its queue, until
  `delivery.timeout.ms` have passed since its first record; its leader is looked up again where the error says so, or
  taken from the reply (KIP-951).
- A batch that the broker finds too large is split.

Owned by the loop. Does no I/O itself: `Network` is the pool, or a test. `poll` is called when something may be due:
woken by an append, a reply, a connection, new metadata, or its own timer.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from headrace.client.errors import error_for, is_stale_metadata
from headrace.client.producer._batch import ProducerBatch
from headrace.client.producer._send import PartitionQueue
from headrace.client.producer.accumulator import NEVER, Accumulator, timed_out
from headrace.client.traffic import Traffic
from headrace.common.clock import Clock
from headrace.common.errors import (
    DuplicateSequenceNumberError,
    KafkaError,
    MessageSizeTooLargeError,
    NetworkExceptionError,
    OutOfOrderSequenceNumberError,
    UnknownProducerIdError,
)
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition
from headrace.net.errors import KafkaConnectionError
from headrace.net.nodes import Node
from headrace.protocol import Message
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

__all__ = ["Cluster", "Guard", "Network", "Sender", "SenderSettings"]

_logger = logging.getLogger(__name__)

_LAST_WITH_NAMES = 12


class SenderSettings(NamedTuple):
    acks: int = -1
    max_in_flight: int = 5
    retries: int = 2**31 - 1
    request_timeout_ms: int = 30_000
    delivery_timeout: float = 120.0
    availability_timeout: float = 0.0
    timer_slack: float = 0.0
    """What is due within so many seconds is due now: a timer would come later than that."""


class Network(Protocol):
    """What the sender asks of the pool of brokers."""

    def is_ready(self, node_id: int) -> bool: ...

    def connect(self, node_id: int) -> None:
        """Begins to connect, and polls the sender when it is settled how that went."""

    def ready_in(self, node_id: int) -> float:
        """Seconds until it makes sense to ask again, if a wait is due."""

    def produce(
        self,
        node_id: int,
        request: ProduceRequest,
        min_version: int | None,
        max_version: int | None,
        on_reply: "OnReply",
    ) -> None:
        """Sends now; raises KafkaError if that cannot be. `on_reply` is called later, not within this call."""


OnReply = Callable[[Message | None, BaseException | None], None]


class Cluster(Protocol):
    """What the sender asks of metadata."""

    def request_update(self, topics: set[str]) -> None: ...

    def topic_id(self, topic: str) -> Uuid: ...

    def note_leader(self, tp: TopicPartition, leader: int, leader_epoch: int, node: Node | None) -> object: ...


class Guard(Protocol):
    """What the sender asks of sequence numbers and transactions (`headrace.client.producer.transactions`)."""

    transactional_id: str | None

    def prepare(self) -> None:
        """Before each round: gets an identity, bumps the epoch, adds partitions, where that is due."""

    def versions(self) -> tuple[int | None, int | None]:
        """The lowest and the highest version of Produce that may be used."""

    def is_next(self, batch: ProducerBatch) -> bool: ...

    def is_unresolved(self, tp: TopicPartition) -> bool: ...

    def acked(self, batch: ProducerBatch) -> None: ...

    def failed(self, batch: ProducerBatch, error: BaseException, known_unwritten: bool) -> None: ...

    def replaced(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None: ...

    def may_retry(self) -> bool:
        """Whether it makes sense to send anything again."""

    def lost_sequence(self, tp: TopicPartition) -> bool:
        """A partition's sequence cannot go on. True if it begins again, and the batch may be sent again."""


class _Leader:
    """What is known of a broker that batches go to."""

    __slots__ = ("in_flight", "stalled_since")

    def __init__(self) -> None:
        self.in_flight = 0
        self.stalled_since = NEVER


class Sender:
    def __init__(
        self,
        settings: SenderSettings,
        accumulator: Accumulator,
        network: Network,
        cluster: Cluster,
        clock: Clock,
        guard: Guard | None = None,
    ):
        self.settings = settings
        self._accumulator = accumulator
        self._network = network
        self._cluster = cluster
        self._clock = clock
        self._guard = guard
        self._mutes = guard is None and settings.max_in_flight == 1
        self._leaders: dict[int, _Leader] = {}
        self._in_flight: dict[ProducerBatch, None] = {}
        self._next_expiry = 0.0
        self.traffic = Traffic()
        self.awaits_reply = False
        """Whether something is due that only a reply can set free, so that `poll` must follow the next one."""
        self.retries = 0
        self.unreachable: dict[int, BaseException] = {}
        """Leaders that could not be connected to the last time, and why."""

    @property
    def in_flight_count(self) -> int:
        """Batches without an answer."""
        return len(self._in_flight)

    def in_flight_of(self, node_id: int) -> int:
        leader = self._leaders.get(node_id)
        return 0 if leader is None else leader.in_flight

    # ---- out

    def poll(self) -> float:
        """Does what is due, and returns when (by the clock) to call again if nothing happens before."""
        now = self._clock.monotonic()
        accumulator = self._accumulator
        accumulator.next_check = NEVER  # who appends while this runs must wake it again
        self.awaits_reply = self._mutes
        if now >= self._next_expiry:
            self._expire(now)
        if self._guard is not None:
            self._guard.prepare()
        now += self.settings.timer_slack
        ready = accumulator.ready(now)
        if ready.leaderless:
            self._cluster.request_update(ready.leaderless)
        next_check = min(ready.next_check, self._next_expiry)
        for node_id, queues in ready.by_leader.items():
            next_check = min(next_check, self._serve(node_id, queues, now))
        if self.settings.availability_timeout:
            self._note_slow(now)
        accumulator.next_check = next_check
        return next_check

    def _serve(self, node_id: int, queues: list[PartitionQueue], now: float) -> float:
        """As many requests to one leader as it may get. Returns when to look again."""
        leader = self._leaders.get(node_id)
        if leader is None:
            leader = self._leaders[node_id] = _Leader()
        while leader.in_flight < self.settings.max_in_flight:
            if not self._network.is_ready(node_id):
                leader.stalled_since = min(leader.stalled_since, now)
                wait = self._network.ready_in(node_id)
                if wait > 0:
                    return now + wait
                self._network.connect(node_id)
                return NEVER
            batches = self._accumulator.drain(node_id, queues, now)
            if not batches:
                self.awaits_reply = True
                return NEVER
            leader.stalled_since = NEVER
            self._send(node_id, leader, batches)
            if not any(queue.batches for queue in queues):
                return NEVER
        self.awaits_reply = True
        leader.stalled_since = min(leader.stalled_since, now)
        return NEVER

    def _send(self, node_id: int, leader: _Leader, batches: list[ProducerBatch]) -> None:
        topics: dict[str, TopicProduceData] = {}
        sent: dict[tuple[str | Uuid, int], ProducerBatch] = {}
        min_version, max_version = (None, None) if self._guard is None else self._guard.versions()
        for batch in batches:
            name, partition = batch.tp.topic, batch.tp.partition
            topic = topics.get(name)
            if topic is None:
                topic_id = self._cluster.topic_id(name)
                topic = topics[name] = TopicProduceData(name=name, topic_id=topic_id)
                if topic_id == ZERO_UUID:
                    max_version = _LAST_WITH_NAMES if max_version is None else min(max_version, _LAST_WITH_NAMES)
            topic.partition_data.append(PartitionProduceData(index=partition, records=batch.data))
            sent[name, partition] = sent[topic.topic_id, partition] = batch
            batch.in_flight = True
            self._in_flight[batch] = None
        request = ProduceRequest(
            transactional_id=None if self._guard is None else self._guard.transactional_id,
            acks=self.settings.acks,
            timeout_ms=self.settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        if self._mutes:
            self._accumulator.mute(batches, True)

        def on_reply(reply: Message | None, error: BaseException | None) -> None:
            leader.in_flight -= 1
            self._replied(batches, sent, reply, error)

        leader.in_flight += 1
        try:
            self._network.produce(node_id, request, min_version, max_version, on_reply)
        except Exception as error:  # noqa: BLE001 - whatever it is, these batches have to hear of it
            on_reply(None, error)

    def _note_slow(self, now: float) -> None:
        timeout = self.settings.availability_timeout
        slow = frozenset(node_id for node_id, each in self._leaders.items() if now - each.stalled_since > timeout)
        self._accumulator.slow_leaders = slow

    # ---- back

    def _replied(
        self,
        batches: list[ProducerBatch],
        sent: dict[tuple[str | Uuid, int], ProducerBatch],
        reply: Message | None,
        error: BaseException | None,
    ) -> None:
        now = self._clock.monotonic()
        answered: set[ProducerBatch] = set()
        for batch in batches:
            batch.in_flight = False
            self._in_flight.pop(batch, None)
        if self._mutes:
            self._accumulator.mute(batches, False)
        if error is None and self.settings.acks == 0:
            for batch in batches:
                self._complete(batch, -1, -1)
            return
        if isinstance(reply, ProduceResponse):
            nodes = {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in reply.node_endpoints}
            for topic in reply.responses:
                for part in topic.partition_responses:
                    found = sent.get((topic.name or topic.topic_id, part.index))
                    if found is not None and found not in answered:
                        answered.add(found)
                        self._answered(found, part, nodes, now)
            error = NetworkExceptionError("the broker's reply does not speak of this partition")
        if error is None:
            error = KafkaError("there was no reply")
        stale: set[str] = set()
        for batch in batches:
            if batch not in answered:
                self._handle_failed_batch(batch, error, now)
                stale.add(batch.tp.topic)
        if stale and (isinstance(error, KafkaConnectionError) or is_stale_metadata(error)):
            self._cluster.request_update(stale)

    def _answered(
        self, batch: ProducerBatch, part: PartitionProduceResponse, nodes: dict[int, Node], now: float
    ) -> None:
        error = error_for(part.error_code, part.error_message)
        if error is None:
            self._complete(batch, part.base_offset, part.log_append_time_ms)
            return
        if isinstance(error, DuplicateSequenceNumberError):
            # It is in the log, so long ago that the broker does not know where.
            self._complete(batch, part.base_offset, part.log_append_time_ms)
            return
        if is_stale_metadata(error):
            leader = part.current_leader
            if leader is not None and leader.leader_id >= 0:
                node = nodes.get(leader.leader_id)
                self._cluster.note_leader(batch.tp, leader.leader_id, leader.leader_epoch, node)
            self._cluster.request_update({batch.tp.topic})
        if isinstance(error, MessageSizeTooLargeError) and len(batch) > 1 and not batch.is_done:
            self._split(batch)
            return
        record_errors: dict[int, BaseException] | None = None
        if part.record_errors:
            record_errors = {
                each.batch_index: type(error)(each.batch_index_error_message or part.error_message or str(error))
                for each in part.record_errors
            }
        self._handle_failed_batch(batch, error, now, record_errors)

    def _handle_failed_batch(
        self,
        batch: ProducerBatch,
        error: BaseException,
        now: float,
        record_errors: dict[int, BaseException] | None = None,
    ) -> None:
        """Sends the batch again if that may help, or fails it."""
        if batch.is_done:
            # Its time was up while it was on the wire; only its memory is still to be given back.
            self._accumulator.release(batch)
            return
        expired = now >= batch.created_at + self.settings.delivery_timeout
        if not expired and batch.attempts < self.settings.retries and self._may_retry(batch, error):
            self.retries += 1
            _logger.debug("%s is sent again: %s", batch, error)
            batch.last_error = error
            self._accumulator.requeue(batch, now)
            self.awaits_reply = True
            return
        if expired:
            error = timed_out(batch, self.settings.delivery_timeout, error)
        # A broker that said no, for good, has not written it. Whoever did not answer may have.
        known_unwritten = isinstance(error, KafkaError) and not error.retriable and error.code >= 0
        self._fail(batch, error, known_unwritten, record_errors)

    def _may_retry(self, batch: ProducerBatch, error: BaseException) -> bool:
        guard = self._guard
        if guard is not None and not guard.may_retry():
            return False
        if guard is not None and batch.has_sequence:
            if isinstance(error, OutOfOrderSequenceNumberError):
                # One before it is to be sent again, and then this one too. If there is none, records were lost.
                if not guard.is_unresolved(batch.tp) and (batch.sequence_was_reset or not guard.is_next(batch)):
                    return True
                return guard.lost_sequence(batch.tp)
            if isinstance(error, UnknownProducerIdError):
                # The log has let go of all that this producer wrote, by retention or by truncation.
                return guard.lost_sequence(batch.tp)
        return isinstance(error, KafkaError) and error.retriable

    def _complete(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None:
        if self._guard is not None:
            self._guard.acked(batch)
        if batch.complete(base_offset, log_append_time):
            self.traffic.note_batch(batch.tp, len(batch), batch.size_in_bytes)
            self._accumulator.finished(batch)
        else:
            self._accumulator.release(batch)

    def _fail(
        self,
        batch: ProducerBatch,
        error: BaseException,
        known_unwritten: bool,
        record_errors: dict[int, BaseException] | None = None,
    ) -> None:
        if self._guard is not None:
            self._guard.failed(batch, error, known_unwritten)
        if batch.fail(error, record_errors):
            self._accumulator.finished(batch, keep_memory=batch.in_flight)

    def fail_all(self, batches: list[ProducerBatch], error: BaseException, known_unwritten: bool = True) -> None:
        """For batches that were taken out of the accumulator."""
        for batch in batches:
            self._fail(batch, error, known_unwritten and not batch.has_sequence)

    def fail_in_flight(self, error: BaseException) -> None:
        """When no more replies will come."""
        for batch in list(self._in_flight):
            batch.in_flight = False
            self._fail(batch, error, known_unwritten=False)
        self._in_flight.clear()

    def _split(self, batch: ProducerBatch) -> None:
        """Into halves at most, so that it ends, whatever limit the topic has."""
        target = min(self._accumulator.settings.batch_bytes, max(batch.size_in_bytes // 2, 1))
        parts = batch.split(target)
        _logger.debug("%s is too large for its topic, and split into %d", batch, len(parts))
        if self._guard is not None:
            self._guard.replaced(batch, parts)
        self._accumulator.replace(batch, parts)
        self.awaits_reply = True

    def _trouble(self, batch: ProducerBatch) -> BaseException | None:
        """What has kept a batch from being acknowledged, as far as that is known."""
        leader = self._accumulator.queue(batch.tp).leader
        return self.unreachable.get(leader, batch.last_error)

    def _expire(self, now: float) -> None:
        timeout = self.settings.delivery_timeout
        for batch in self._accumulator.expire(now):
            # One that was never sent is known not to be there.
            self._fail(batch, timed_out(batch, timeout, self._trouble(batch)), known_unwritten=not batch.attempts)
        oldest = now
        for batch in list(self._in_flight):
            if not batch.is_done:
                if batch.created_at + timeout <= now:
                    self._fail(batch, timed_out(batch, timeout, self._trouble(batch)), known_unwritten=False)
                else:
                    oldest = min(oldest, batch.created_at)
        self._next_expiry = min(oldest, self._accumulator.oldest(now)) + timeout
