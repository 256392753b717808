"""A simulated sender and brokers, without sockets and event loop, on the test's clock.

`SimCluster` simulates network and leaders: it takes Produce requests, checks sequence numbers as a leader does, and
responds when the test says so, in the order of the requests. The test also injects the faults.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from headrace.client.producer._batch import FutureRecordMetadata
from headrace.client.producer._send import RecordAppender, SerializedRecord
from headrace.client.producer.accumulator import Accumulator, AccumulatorConfig
from headrace.client.producer.buffer_pool import BufferPool
from headrace.client.producer.idempotence import IdempotenceManager
from headrace.client.producer.metadata import ProducerMetadata
from headrace.client.producer.network_client import NetworkClient, OnResponse
from headrace.client.producer.sender import Sender, SenderConfig
from headrace.client.producer.sequences import ProducerIdAndEpoch, Sequences
from headrace.common.backoff import Backoff
from headrace.common.errors import (
    InvalidProducerEpochError,
    KafkaError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumberError,
)
from headrace.common.ids import Random, Uuid, make_random
from headrace.common.types import TopicPartition
from headrace.net.errors import KafkaConnectionError
from headrace.net.nodes import Node
from headrace.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.records import RecordBatch, decode_rows
from headrace.testing.clock import ManualClock

_KEPT_BATCHES = 5


@dataclass
class Log:
    """A partition's records and producer states."""

    values: list[bytes] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    recent: dict[int, deque[tuple[int, int, int]]] = field(default_factory=dict)

    def append(self, batch: RecordBatch) -> int:
        producer = batch.producer_id
        values = [record.value or b"" for record in decode_rows(batch.records())]
        if producer >= 0:
            for base, last, offset in self.recent.get(producer, ()):
                if (base, last) == (batch.base_sequence, batch.last_sequence) and (
                    batch.producer_epoch == self.epochs[producer]
                ):
                    return offset
            if batch.producer_epoch < self.epochs.get(producer, -1):
                raise InvalidProducerEpochError(f"{batch.producer_epoch}, expected {self.epochs[producer]}")
            is_new = batch.producer_epoch != self.epochs.get(producer)
            expected = 0 if is_new else (self.last[producer] + 1) & 0x7FFFFFFF
            if producer not in self.epochs and batch.base_sequence != 0:
                # As Kafka: a log without state of the producer accepts any sequence.
                expected = batch.base_sequence
            if batch.base_sequence != expected:
                raise OutOfOrderSequenceNumberError(f"{batch.base_sequence}, expected {expected}")
            if batch.producer_epoch != self.epochs.get(producer):
                self.recent[producer] = deque(maxlen=_KEPT_BATCHES)
            self.epochs[producer] = batch.producer_epoch
            self.last[producer] = batch.last_sequence
            self.recent[producer].append((batch.base_sequence, batch.last_sequence, len(self.values)))
        offset = len(self.values)
        self.values += values
        return offset


class _InFlightRequest:
    """A Produce request without a response. Keeps the bytes as they were when it was sent."""

    def __init__(self, request: ProduceRequest, on_response: OnResponse):
        self.request = request
        self.on_response = on_response
        self.records = [
            (topic.name, part.index, bytes(part.records or b""))
            for topic in request.topic_data
            for part in topic.partition_data
        ]


class SimCluster(NetworkClient):
    """The brokers, in place of the sender's network client."""

    def __init__(self) -> None:
        self.connection_errors = {}
        self.logs: dict[TopicPartition, Log] = {}
        self.leaders: dict[TopicPartition, int] = {}
        self.ready: set[int] = set()
        self.waiting: dict[int, deque[_InFlightRequest]] = {}
        self.refuse: Callable[[TopicPartition, RecordBatch], type[KafkaError] | None] = lambda tp, batch: None
        self.record_errors: list[BatchIndexAndErrorMessage] = []
        """The record errors of a refused batch."""
        self.hint: tuple[int, int] | None = None
        self.sent = 0
        self.largest_in_flight = 0

    # ---- the sender

    def is_ready(self, node_id: int) -> bool:
        return node_id in self.ready

    def reconnect_delay(self, node_id: int) -> float:
        return 0.0

    def connect(self, node_id: int) -> None:
        self.ready.add(node_id)

    def produce(
        self,
        node_id: int,
        request: ProduceRequest,
        min_version: int | None,
        max_version: int | None,
        on_response: OnResponse,
    ) -> None:
        if node_id not in self.ready:
            raise KafkaConnectionError("not connected")
        self.sent += 1
        requests = self.waiting.setdefault(node_id, deque())
        requests.append(_InFlightRequest(request, on_response))
        self.largest_in_flight = max(self.largest_in_flight, len(requests))

    # ---- the test

    def in_flight(self, node_id: int = 1) -> int:
        return len(self.waiting.get(node_id, ()))

    def handle(self, node_id: int = 1) -> ProduceResponse:
        """Handles the oldest request and returns the response, which is not sent yet."""
        return self._handle(node_id, self.waiting[node_id][0])

    def _handle(self, node_id: int, in_flight: _InFlightRequest) -> ProduceResponse:
        topics: dict[str, TopicProduceResponse] = {}
        for name, index, data in in_flight.records:
            tp = TopicPartition(name, index)
            batch = RecordBatch(data)
            batch.check_crc()
            reply = PartitionProduceResponse(index=index, base_offset=-1)
            try:
                if self.leaders.get(tp, 1) != node_id:
                    raise NotLeaderForPartitionError("another broker is")
                error = self.refuse(tp, batch)
                if error is not None:
                    raise error("refused")
                reply.base_offset = self.logs.setdefault(tp, Log()).append(batch)
            except KafkaError as error:
                reply.error_code = error.code
                reply.error_message = str(error)
                reply.record_errors = self.record_errors
                if self.hint is not None and isinstance(error, NotLeaderForPartitionError):
                    reply.current_leader = LeaderIdAndEpoch(leader_id=self.hint[0], leader_epoch=self.hint[1])
            topic = topics.setdefault(name, TopicProduceResponse(name=name))
            topic.partition_responses.append(reply)
        return ProduceResponse(responses=list(topics.values()))

    def respond(self, node_id: int = 1) -> None:
        """Handles the oldest request and sends the response."""
        in_flight = self.waiting[node_id].popleft()
        in_flight.on_response(self._handle(node_id, in_flight), None)

    def respond_to_all(self, node_id: int = 1) -> None:
        while self.in_flight(node_id):
            self.respond(node_id)

    def cut(self, node_id: int = 1, handled: int = 0) -> None:
        """Cuts the connection. The broker has handled the first `handled` requests; their responses are lost."""
        self.ready.discard(node_id)
        lost, self.waiting[node_id] = self.waiting.get(node_id, deque()), deque()
        for number, in_flight in enumerate(lost):
            if number < handled:
                self._handle(node_id, in_flight)
        for in_flight in lost:
            in_flight.on_response(None, KafkaConnectionError("cut", sent=True))

    def values(self, topic: str = "t", partition: int = 0) -> list[bytes]:
        log = self.logs.get(TopicPartition(topic, partition))
        return [] if log is None else log.values


class SimMetadata(ProducerMetadata):
    """Metadata that the test passes to the accumulator. Records the sender's requests and updates."""

    def __init__(self) -> None:
        self.updates: list[set[str]] = []
        self.noted_leaders: list[tuple[TopicPartition, int]] = []

    def request_update(self, topics: AbstractSet[str]) -> None:
        self.updates.append(set(topics))

    def topic_id(self, topic: str) -> Uuid:
        return Uuid(int=hash(topic) & 0xFFFF | 1)

    def note_leader(self, tp: TopicPartition, leader: int, leader_epoch: int, node: Node | None) -> None:
        self.noted_leaders.append((tp, leader))


class SimIdempotenceManager(IdempotenceManager):
    """An idempotence manager that has its producer ID from the start."""

    def __init__(self, producer_id: int = 7):
        self.sequences = Sequences()
        self.transactional_id = None
        self.sequences.set_identity(ProducerIdAndEpoch(producer_id, 0))
        self.bumps = 0

    def prepare(self) -> None:
        for tp in self.sequences.resolve():
            self.sequences.request_bump(tp)
        if self.sequences.must_bump:
            self.bumps += 1
            self.sequences.bump()


class SimProducer(RecordAppender):
    """A producer without event loop and network."""

    def __init__(
        self,
        partitions: int = 1,
        *,
        idempotent: bool = True,
        batch_bytes: int = 450,
        linger: float = 0.0,
        delivery_timeout: float = 120.0,
        max_request_bytes: int = 1_000_000,
        memory_bytes: int = 1_000_000,
        random: Random | None = None,
        first_bytes: int | None = None,
        adaptive: bool = True,
        **sender: Any,
    ):
        self._clock = self.clock = ManualClock()
        self.cluster = SimCluster()
        self.metadata = SimMetadata()
        self.idempotence = SimIdempotenceManager() if idempotent else None
        self.buffers = BufferPool(memory_bytes, first_bytes or batch_bytes)
        self.wakes = 0
        random = random or make_random(0)
        config = AccumulatorConfig(
            batch_bytes=batch_bytes,
            first_bytes=first_bytes or batch_bytes,
            linger=linger,
            delivery_timeout=delivery_timeout,
            max_request_bytes=max_request_bytes,
            adaptive=adaptive,
        )
        self.accumulator = Accumulator(
            config, self.buffers, self.clock, random, Backoff(100, 1000, random), self._wake, self.idempotence
        )
        self.accumulator.set_leaders("t", [1] * partitions)
        self._topics = self.accumulator.topics
        self.sender = Sender(
            SenderConfig(delivery_timeout=delivery_timeout, **sender),
            self.accumulator,
            self.cluster,
            self.metadata,
            self.clock,
            self._wake,
            self.idempotence,
        )

    def _wake(self) -> None:
        self.wakes += 1

    def _append_to_accumulator(self, record: SerializedRecord) -> Any:
        self._choose_partition(record)
        result = self.accumulator.append(record)
        return None if isinstance(result, int) else result

    def put(self, value: bytes, partition: int | None = 0) -> FutureRecordMetadata:
        future: FutureRecordMetadata = self.send("t", value, partition=partition)
        assert future is not None, "no memory"
        return future

    def poll(self, advance_ms: int = 0) -> float:
        """Polls until no more requests are sent. Connections are established at once."""
        self.clock.advance(advance_ms)
        while True:
            sent, ready = self.cluster.sent, len(self.cluster.ready)
            at = self.sender.poll()
            if (sent, ready) == (self.cluster.sent, len(self.cluster.ready)):
                return at
