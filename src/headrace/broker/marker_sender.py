"""Sends the markers of prepared transactions to the leaders of their partitions, and then completes the transactions.

    prepared ──► for each partition ─┬─ led by this broker ── appended directly ───────────────┐
                                     ├─ led by another ────── queued for it, WriteTxnMarkers ──┼─► all written: complete
                                     ├─ no leader ─────────── again after a back-off           │
                                     └─ topic deleted ──────── needs no marker ────────────────┘

- A failed marker is retried, with a new lookup of the leader, until it is written or this broker stops being the
  coordinator.
- Each attempt has the current coordinator epoch. A partition refuses a marker with an older epoch than it has seen
  (TRANSACTION_COORDINATOR_FENCED), so a coordinator that was replaced and does not know it yet changes nothing.
- A newer sending for the same transactional id replaces the older one. A late marker of the older one could otherwise
  end the producer's next transaction.

Owned by the broker's loop.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from headrace.broker.broker_queues import BrokerClient, BrokerQueues
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import (
    InvalidProducerEpochError,
    KafkaError,
    LeaderNotAvailableError,
    TransactionCoordinatorFencedError,
    UnknownError,
    UnknownTopicOrPartitionError,
    for_code,
)
from headrace.common.timing_wheel import Timer
from headrace.common.types import TopicPartition
from headrace.coordinator.result import CoordinatorResponse, ProducerInfo
from headrace.coordinator.runtime import CoordinatorRuntime
from headrace.coordinator.transaction.metadata import TransactionMetadata, TransactionState
from headrace.coordinator.transaction.shard import TransactionCoordinatorShard
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_logger = logging.getLogger(__name__)

PURPOSE = "markers"
"""Markers have their own connections: a partition leader responds when its in-sync replicas have them."""
_FIRST_RETRY_MS = 100
_LAST_RETRY_MS = 1_000

Written = Callable[[KafkaError | None], None]


class LocalPartitions(Protocol):
    """The partitions of this broker. `Transactions` implements it."""

    def leads(self, tp: TopicPartition) -> bool: ...

    def write_marker(
        self,
        tp: TopicPartition,
        producer: ProducerInfo,
        committed: bool,
        coordinator_epoch: int,
        version: int,
        done: Written,
    ) -> None: ...

    def check_deleted(self, topic: str, done: Callable[[bool], None]) -> None: ...


class _QueuedMarker(NamedTuple):
    transaction: "_EndingTransaction"
    tp: TopicPartition


class MarkerSender:
    """The prepared transactions of all coordinators on this broker whose markers are not all written."""

    def __init__(
        self,
        node_id: int,
        image: MetadataImage,
        runtime: CoordinatorRuntime[TransactionCoordinatorShard],
        local: LocalPartitions,
        client: BrokerClient,
        timer: Timer,
    ):
        self.image = image
        self.runtime = runtime
        self.local = local
        self.timer = timer
        self._node_id = node_id
        self._client = client
        self._queues: BrokerQueues[_QueuedMarker] = BrokerQueues(self._send)
        self._ending: dict[tuple[int, str], _EndingTransaction] = {}
        """By coordinator partition and transactional id."""

    def __len__(self) -> int:
        return len(self._ending)

    def send(self, coordinator_partition: int, prepared: TransactionMetadata) -> None:
        """Writes the markers of a prepared transaction, then completes it. Call it when the decision is committed."""
        key = coordinator_partition, prepared.transactional_id
        previous = self._ending.get(key)
        if previous is not None:
            previous.is_over = True
        transaction = self._ending[key] = _EndingTransaction(self, coordinator_partition, prepared)
        transaction.start()

    def ended(self, transaction: "_EndingTransaction") -> None:
        """Forgets a transaction that is complete, or has another coordinator."""
        transaction.is_over = True
        key = transaction.coordinator_partition, transaction.prepared.transactional_id
        if self._ending.get(key) is transaction:
            del self._ending[key]

    def write(self, transaction: "_EndingTransaction", tp: TopicPartition) -> None:
        """Writes one marker. Calls `transaction.written` once, now or later."""
        written = partial(transaction.written, tp)
        state = self.image.partition(tp.topic, tp.partition)
        if state is None or state.leader == self._node_id or self.local.leads(tp):
            prepared = transaction.prepared
            self.local.write_marker(
                tp,
                ProducerInfo(prepared.producer_id, prepared.producer_epoch),
                transaction.is_committed,
                transaction.coordinator_epoch(),
                prepared.version,
                written,
            )
        elif self.image.is_alive(state.leader):
            self._queues.add(state.leader, _QueuedMarker(transaction, tp))
        else:
            written(LeaderNotAvailableError(f"Partition {tp} has no leader"))

    async def close(self) -> None:
        """Cancels the requests in flight. The next coordinator repeats the markers."""
        for transaction in list(self._ending.values()):
            self.ended(transaction)
        await self._queues.close()

    # ---- remote leaders

    async def _send(self, broker_id: int, queued: Sequence[_QueuedMarker]) -> Iterable[_QueuedMarker]:
        """Sends a batch of markers. Returns those that have to wait for the next request."""
        batch: dict[int, list[_QueuedMarker]] = {}
        """By producer id, the key of the response. So each request has only one transaction of a producer."""
        waiting: list[_QueuedMarker] = []
        for marker in queued:
            transaction = marker.transaction
            if not transaction.is_current():
                self.ended(transaction)
                continue
            markers = batch.setdefault(transaction.prepared.producer_id, [])
            if markers and markers[0].transaction is not transaction:
                waiting.append(marker)
            else:
                markers.append(marker)
        if not batch:
            return waiting
        request = WriteTxnMarkersRequest(markers=[_encode(markers) for markers in batch.values()])
        errors: dict[tuple[int, TopicPartition], KafkaError | None]
        failure: KafkaError = UnknownError(f"The response of broker {broker_id} has no result for it")
        try:
            errors = _errors(await self._client.send(broker_id, request, purpose=PURPOSE), broker_id)
        except KafkaError as error:
            errors, failure = {}, error
        for producer_id, markers in batch.items():
            for transaction, tp in markers:
                transaction.written(tp, errors.get((producer_id, tp), failure))
        return waiting


def _encode(markers: Sequence[_QueuedMarker]) -> WritableTxnMarker:
    """Returns the marker of one transaction for several partitions."""
    transaction = markers[0].transaction
    prepared = transaction.prepared
    topics: dict[str, list[int]] = {}
    for _, tp in markers:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return WritableTxnMarker(
        producer_id=prepared.producer_id,
        producer_epoch=prepared.producer_epoch,
        transaction_result=transaction.is_committed,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
        coordinator_epoch=transaction.coordinator_epoch(),
        transaction_version=prepared.version,
    )


def _errors(response: WriteTxnMarkersResponse, broker_id: int) -> dict[tuple[int, TopicPartition], KafkaError | None]:
    return {
        (marker.producer_id, TopicPartition(topic.name, partition.partition_index)): for_code(partition.error_code)(
            f"Broker {broker_id} did not write the marker"
        )
        if partition.error_code
        else None
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }


class _EndingTransaction:
    """A prepared transaction, until each of its partitions has a marker and its completion is written."""

    def __init__(self, sender: MarkerSender, coordinator_partition: int, prepared: TransactionMetadata):
        self.coordinator_partition = coordinator_partition
        self.prepared = prepared
        self.is_committed = prepared.state is TransactionState.PREPARE_COMMIT
        self.is_over = False
        """True if no more markers may be sent: the transaction is complete, or was sent again by another call."""
        self._sender = sender
        self._remaining = set(prepared.partitions)
        self._to_retry: set[TopicPartition] = set()
        self._retries = 0
        self._reported: set[TopicPartition] = set()
        """The partitions whose failure is logged."""

    def start(self) -> None:
        if not self._remaining:
            self._complete()
        else:
            self._write(sorted(self._remaining))

    def _write(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            if not self.is_current():
                self._sender.ended(self)
                return
            self._sender.write(self, tp)

    def is_current(self) -> bool:
        """Returns True if this broker is the coordinator and the transaction is still prepared."""
        if self.is_over:
            return False
        try:
            shard = self._sender.runtime.shard(self.coordinator_partition)
        except KafkaError:
            return False
        return shard.transactions.get(self.prepared.transactional_id) == self.prepared

    def coordinator_epoch(self) -> int:
        return self._sender.runtime.leader_epoch(self.coordinator_partition)

    def written(self, tp: TopicPartition, error: KafkaError | None) -> None:
        """Handles the result of one marker."""
        if isinstance(error, UnknownTopicOrPartitionError):
            self._sender.local.check_deleted(tp.topic, lambda deleted: self._finished(tp, None if deleted else error))
        else:
            self._finished(tp, error)

    def _finished(self, tp: TopicPartition, error: KafkaError | None) -> None:
        if self.is_over:
            return
        if isinstance(error, InvalidProducerEpochError):
            # A producer gets a newer epoch only after this transaction is complete. So the marker was written before,
            # and the coordinator's log lost the completion in a power failure.
            _logger.warning(
                "Transaction %r: partition %s needs no marker: %s", self.prepared.transactional_id, tp, error
            )
        elif error is not None:
            self._report(tp, error)
            self._retry_later(tp)
            return
        self._remaining.discard(tp)
        if not self._remaining:
            self._complete()

    def _report(self, tp: TopicPartition, error: KafkaError) -> None:
        if isinstance(error, TransactionCoordinatorFencedError):
            level, message = logging.WARNING, "a newer coordinator exists, and has to write the marker for partition"
        else:
            level, message = logging.INFO, "retrying the marker for partition"
        if tp in self._reported:
            level = logging.DEBUG
        self._reported.add(tp)
        _logger.log(level, "Transaction %r: %s %s: %s", self.prepared.transactional_id, message, tp, error)

    def _retry_later(self, tp: TopicPartition) -> None:
        if not self._to_retry:
            delay_ms = min(_FIRST_RETRY_MS << min(self._retries, 10), _LAST_RETRY_MS)
            self._retries += 1
            self._sender.timer.add(delay_ms, self._retry)
        self._to_retry.add(tp)

    def _retry(self) -> None:
        tps, self._to_retry = sorted(self._to_retry), set()
        self._write(tps)

    def _complete(self) -> None:
        self._sender.runtime.write(
            self.coordinator_partition, lambda shard: shard.complete(self.prepared), self._completed
        )

    def _completed(self, response: CoordinatorResponse[None]) -> None:
        # A full disk answers clients with NOT_COORDINATOR, too, but this broker is still the coordinator.
        if response.error is None or not self.is_current():
            self._sender.ended(self)
            return
        _logger.warning(
            "Transaction %r: cannot write its completion, will retry: %s",
            self.prepared.transactional_id,
            response.error,
        )
        self._sender.timer.add(_LAST_RETRY_MS, self._complete_again)

    def _complete_again(self) -> None:
        if self.is_current():
            self._complete()
        else:
            self._sender.ended(self)
