"""Sends the accumulator's batches that are due, and handles the responses.

    poll ─▶ due queues by leader ─▶ drain ─▶ Produce ─▶ response: complete, retry, split or fail ─▶ poll

- A leader gets up to `max.in.flight.requests.per.connection` requests at a time. With idempotence, their order does not
  matter: leaders accept batches in sequence, and a batch that arrived too early is retried. Without idempotence and
  with one request in flight, a partition is muted while its batch is in flight.
- A batch whose request got no response, or a retriable error, goes back to the front of its queue, until
  `delivery.timeout.ms` after its first record. If the error means stale metadata, the metadata is updated. The response
  may also name the new leader (KIP-951).
- A batch that is too large for the broker is split.

Belongs to the event loop. `poll` is called after an append, a response, a new connection, new metadata, or its timer.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from headrace.client.errors import error_for, is_stale_metadata
from headrace.client.producer._batch import ProducerBatch
from headrace.client.producer._send import PartitionQueue
from headrace.client.producer.accumulator import NEVER, Accumulator, delivery_timeout_error
from headrace.client.producer.idempotence import IdempotenceManager
from headrace.client.producer.metadata import ProducerMetadata
from headrace.client.producer.network_client import NetworkClient
from headrace.client.traffic import Traffic
from headrace.common.clock import Clock
from headrace.common.errors import (
    DuplicateSequenceNumberError,
    InvalidRecordError,
    KafkaError,
    MessageSizeTooLargeError,
    NetworkExceptionError,
    OutOfOrderSequenceNumberError,
    UnknownProducerIdError,
)
from headrace.common.ids import ZERO_UUID, Uuid
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

__all__ = ["Sender", "SenderConfig"]

_logger = logging.getLogger(__name__)

_LAST_VERSION_WITH_NAMES = 12
"""Later versions of Produce identify topics by ID only."""


_DROPPED_WITH_INVALID_RECORDS = (
    "Failed to append record because it was part of a batch which had one or more invalid records"
)


class SenderConfig(NamedTuple):
    """The sender's configs. Timeouts without a unit are in seconds."""

    acks: int = -1
    max_in_flight: int = 5
    retries: int = 2**31 - 1
    request_timeout_ms: int = 30_000
    delivery_timeout: float = 120.0
    availability_timeout: float = 0.0
    timer_slack: float = 0.0
    """A batch that is due within this time is due now, because a timer would fire too late."""


class _Leader:
    """A broker that batches are sent to."""

    __slots__ = ("in_flight", "stalled_since")

    def __init__(self) -> None:
        self.in_flight = 0
        self.stalled_since = NEVER


class Sender:
    """Sends batches to partition leaders and completes, retries, splits or fails them."""

    def __init__(
        self,
        config: SenderConfig,
        accumulator: Accumulator,
        network: NetworkClient,
        metadata: ProducerMetadata,
        clock: Clock,
        wake: Callable[[], None],
        idempotence: IdempotenceManager | None = None,
    ):
        """`wake` calls `poll` soon."""
        self.config = config
        self._accumulator = accumulator
        self._network = network
        self._metadata = metadata
        self._clock = clock
        self._wake = wake
        self._idempotence = idempotence
        self._mutes = idempotence is None and config.max_in_flight == 1
        self._leaders: dict[int, _Leader] = {}
        self._in_flight: dict[ProducerBatch, None] = {}
        self._next_expiry = 0.0
        self.traffic = Traffic()
        self._poll_after_response = False
        """True if a batch is due that can be sent only after a response."""
        self.retries = 0

    @property
    def in_flight_count(self) -> int:
        """The number of batches that wait for a response."""
        return len(self._in_flight)

    # ---- sending

    def poll(self) -> float:
        """Sends all batches that are due. Returns the time of the next call, unless an event comes before."""
        now = self._clock.monotonic()
        accumulator = self._accumulator
        accumulator.next_check = NEVER  # an append during this poll must wake the sender
        self._poll_after_response = self._mutes
        if now >= self._next_expiry:
            self._expire(now)
        if self._idempotence is not None:
            self._idempotence.prepare()
        now += self.config.timer_slack
        ready = accumulator.ready(now)
        if ready.leaderless:
            self._metadata.request_update(ready.leaderless)
        next_check = min(ready.next_check, self._next_expiry)
        for node_id, queues in ready.by_leader.items():
            next_check = min(next_check, self._send_to_leader(node_id, queues, now))
        if self.config.availability_timeout:
            self._update_slow_leaders(now)
        accumulator.next_check = next_check
        return next_check

    def _send_to_leader(self, node_id: int, queues: list[PartitionQueue], now: float) -> float:
        """Sends requests to a leader up to its in-flight limit. Returns the time of the next check."""
        leader = self._leaders.get(node_id)
        if leader is None:
            leader = self._leaders[node_id] = _Leader()
        while leader.in_flight < self.config.max_in_flight:
            if not self._network.is_ready(node_id):
                leader.stalled_since = min(leader.stalled_since, now)
                delay = self._network.reconnect_delay(node_id)
                if delay > 0:
                    return now + delay
                self._network.connect(node_id)
                return NEVER
            batches = self._accumulator.drain(node_id, queues, now)
            if not batches:
                self._poll_after_response = True
                return NEVER
            leader.stalled_since = NEVER
            self._send_produce(node_id, leader, batches)
            if not any(queue.batches for queue in queues):
                return NEVER
        self._poll_after_response = True
        leader.stalled_since = min(leader.stalled_since, now)
        return NEVER

    def _send_produce(self, node_id: int, leader: _Leader, batches: list[ProducerBatch]) -> None:
        topics: dict[str, TopicProduceData] = {}
        batches_by_partition: dict[tuple[str | Uuid, int], ProducerBatch] = {}
        idempotence = self._idempotence
        min_version, max_version = (None, None) if idempotence is None else idempotence.produce_versions()
        for batch in batches:
            name, partition = batch.tp.topic, batch.tp.partition
            topic = topics.get(name)
            if topic is None:
                topic_id = self._metadata.topic_id(name)
                topic = topics[name] = TopicProduceData(name=name, topic_id=topic_id)
                if topic_id == ZERO_UUID:
                    max_version = min(max_version or _LAST_VERSION_WITH_NAMES, _LAST_VERSION_WITH_NAMES)
            topic.partition_data.append(PartitionProduceData(index=partition, records=batch.data))
            batches_by_partition[name, partition] = batches_by_partition[topic.topic_id, partition] = batch
            batch.in_flight = True
            self._in_flight[batch] = None
        request = ProduceRequest(
            transactional_id=None if idempotence is None else idempotence.transactional_id,
            acks=self.config.acks,
            timeout_ms=self.config.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        if self._mutes:
            self._accumulator.mute(batches, True)

        def on_response(response: Message | None, error: BaseException | None) -> None:
            leader.in_flight -= 1
            self._handle_response(batches, batches_by_partition, response, error)
            if self._poll_after_response:
                self._wake()

        leader.in_flight += 1
        try:
            self._network.produce(node_id, request, min_version, max_version, on_response)
        except Exception as error:  # noqa: BLE001 - any error must fail or retry these batches
            leader.in_flight -= 1
            self._handle_response(batches, batches_by_partition, None, error)

    def _update_slow_leaders(self, now: float) -> None:
        timeout = self.config.availability_timeout
        self._accumulator.slow_leaders = frozenset(
            node_id for node_id, leader in self._leaders.items() if now - leader.stalled_since > timeout
        )

    # ---- responses

    def _handle_response(
        self,
        batches: list[ProducerBatch],
        batches_by_partition: dict[tuple[str | Uuid, int], ProducerBatch],
        response: Message | None,
        error: BaseException | None,
    ) -> None:
        """Handles the response to a Produce request, or the error instead of one.

        The keys of `batches_by_partition` are pairs of topic name or topic ID, and partition.
        """
        now = self._clock.monotonic()
        completed: set[ProducerBatch] = set()
        for batch in batches:
            batch.in_flight = False
            self._in_flight.pop(batch, None)
        if self._mutes:
            self._accumulator.mute(batches, False)
        if error is None and self.config.acks == 0:
            for batch in batches:
                self._complete(batch, -1, -1)
            return
        if isinstance(response, ProduceResponse):
            nodes = {
                endpoint.node_id: Node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
                for endpoint in response.node_endpoints
            }
            for topic in response.responses:
                for partition in topic.partition_responses:
                    batch_sent = batches_by_partition.get((topic.name or topic.topic_id, partition.index))
                    if batch_sent is not None and batch_sent not in completed:
                        completed.add(batch_sent)
                        self._handle_partition_response(batch_sent, partition, nodes, now)
            error = NetworkExceptionError("The Produce response does not contain this partition")
        if error is None:
            error = KafkaError("There was no Produce response")
        stale: set[str] = set()
        for batch in batches:
            if batch not in completed:
                self._handle_failed_batch(batch, error, now)
                stale.add(batch.tp.topic)
        if stale and (isinstance(error, KafkaConnectionError) or is_stale_metadata(error)):
            self._metadata.request_update(stale)

    def _handle_partition_response(
        self, batch: ProducerBatch, partition: PartitionProduceResponse, nodes: dict[int, Node], now: float
    ) -> None:
        error = error_for(partition.error_code, partition.error_message)
        if error is None:
            self._complete(batch, partition.base_offset, partition.log_append_time_ms)
            return
        if isinstance(error, DuplicateSequenceNumberError):
            # The batch is in the log, but the broker no longer knows its offset.
            self._complete(batch, partition.base_offset, partition.log_append_time_ms)
            return
        if is_stale_metadata(error):
            leader = partition.current_leader
            if leader is not None and leader.leader_id >= 0:
                node = nodes.get(leader.leader_id)
                self._metadata.note_leader(batch.tp, leader.leader_id, leader.leader_epoch, node)
            self._metadata.request_update({batch.tp.topic})
        if isinstance(error, MessageSizeTooLargeError) and len(batch) > 1 and not batch.is_done:
            self._split(batch)
            return
        self._handle_failed_batch(batch, error, now, _record_errors(partition, error))

    def _handle_failed_batch(
        self,
        batch: ProducerBatch,
        error: BaseException,
        now: float,
        record_errors: dict[int, BaseException] | None = None,
    ) -> None:
        """Retries a batch if the error is retriable, or fails it."""
        if batch.is_done:
            # The batch expired while it was in flight; only its memory is left to release.
            self._accumulator.release(batch)
            return
        expired = now >= batch.created_at + self.config.delivery_timeout
        if not expired and batch.attempts < self.config.retries and self._may_retry(batch, error):
            self.retries += 1
            _logger.debug("Retrying %s: %s", batch, error)
            batch.last_error = error
            self._accumulator.requeue(batch, now)
            self._poll_after_response = True
            return
        if expired:
            error = delivery_timeout_error(batch, self.config.delivery_timeout, error)
        self._fail(batch, error, record_errors)

    def _may_retry(self, batch: ProducerBatch, error: BaseException) -> bool:
        idempotence = self._idempotence
        if idempotence is not None and not idempotence.may_retry():
            return False
        if idempotence is not None and batch.has_sequence:
            if isinstance(error, OutOfOrderSequenceNumberError):
                doubtful_parts = idempotence.doubtful_parts(batch.tp)
                if doubtful_parts:
                    # They must not be retried in a new epoch. Other batches wait until no part is left.
                    return batch not in doubtful_parts
                # A batch before this one is retried, and then this one succeeds. If there is none, records were lost.
                is_unresolved = idempotence.is_unresolved(batch.tp)
                if not is_unresolved and (batch.sequence_was_reset or not idempotence.is_next(batch)):
                    return True
                return idempotence.reset_sequence(batch.tp)
            if isinstance(error, UnknownProducerIdError):
                # Retention or truncation has removed all batches of this producer from the log.
                return idempotence.reset_sequence(batch.tp)
        return isinstance(error, KafkaError) and error.retriable

    def _complete(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None:
        if self._idempotence is not None:
            self._idempotence.handle_completed_batch(batch)
        if batch.complete(base_offset, log_append_time):
            self.traffic.note_batch(batch.tp, len(batch), batch.size_in_bytes)
            self._accumulator.finished(batch)
        else:
            self._accumulator.release(batch)

    def _fail(
        self, batch: ProducerBatch, error: BaseException, record_errors: dict[int, BaseException] | None = None
    ) -> None:
        if self._idempotence is not None:
            self._idempotence.handle_failed_batch(batch, error)
        if record_errors:
            error = KafkaError(_DROPPED_WITH_INVALID_RECORDS)
        if batch.fail(error, record_errors):
            self._accumulator.finished(batch, keep_memory=batch.in_flight)

    def fail_queued(self, error: BaseException) -> None:
        """Fails all queued batches, also those that wait for a retry."""
        for batch in self._accumulator.take_queued():
            self._fail(batch, error)

    def fail_in_flight(self, error: BaseException) -> None:
        """Fails the batches in flight, when no more responses will come."""
        for batch in list(self._in_flight):
            batch.in_flight = False
            self._fail(batch, error)
        self._in_flight.clear()

    def _split(self, batch: ProducerBatch) -> None:
        """Splits a batch into parts of at most half its size, so that repeated splits end whatever the topic's limit
        is."""
        max_bytes = min(self._accumulator.config.batch_bytes, max(batch.size_in_bytes // 2, 1))
        parts = batch.split(max_bytes)
        _logger.debug("Split %s, which is too large for its topic, into %d batches", batch, len(parts))
        if self._idempotence is not None:
            self._idempotence.replace_batch(batch, parts)
        self._accumulator.replace(batch, parts)
        self._poll_after_response = True

    def _last_error(self, batch: ProducerBatch) -> BaseException | None:
        """Returns the error that kept a batch from being acknowledged, if one is known."""
        leader = self._accumulator.queue(batch.tp).leader
        return self._network.connection_errors.get(leader, batch.last_error)

    def _expire(self, now: float) -> None:
        timeout = self.config.delivery_timeout
        for batch in self._accumulator.expire(now):
            self._fail(batch, delivery_timeout_error(batch, timeout, self._last_error(batch)))
        oldest = now
        for batch in list(self._in_flight):
            if not batch.is_done:
                if batch.created_at + timeout <= now:
                    self._fail(batch, delivery_timeout_error(batch, timeout, self._last_error(batch)))
                else:
                    oldest = min(oldest, batch.created_at)
        self._next_expiry = min(oldest, self._accumulator.oldest(now)) + timeout


def _record_errors(partition: PartitionProduceResponse, error: KafkaError) -> dict[int, BaseException] | None:
    """Returns the errors of the records that made the broker reject their batch (KIP-467).

    The error code is that of the batch. It is certainly the record's own only if there is one such record; the messages
    of several tell them apart, as in Java.
    """
    if not partition.record_errors:
        return None
    error_class = type(error) if len(partition.record_errors) == 1 else InvalidRecordError
    return {
        record.batch_index: error_class(record.batch_index_error_message or partition.error_message or str(error))
        for record in partition.record_errors
    }
