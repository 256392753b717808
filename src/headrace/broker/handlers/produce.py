"""Produce: appends record batches to partitions.

Behavior:
- acks=0: no response. If a partition fails, the connection is closed, because the producer would not notice otherwise.
- acks=1: responds when the leader has appended the records.
- acks=all: refused if fewer than `min.insync.replicas` are in sync. Responds when all in-sync replicas have the
  records. After the request's timeout it responds with REQUEST_TIMED_OUT, but the records stay in the log.
- Transactional records are accepted only for partitions of the transaction (KIP-890). From version 12 on, the broker
  adds the partition. Clients use these versions only if the broker announces `transaction.version` 2.
- Each partition succeeds or fails on its own. Internal topics are refused.
- The first batch of a transaction for a partition may wait for a transaction coordinator on another broker. Later
  requests of the connection are handled meanwhile; batches of the same producer for the same partition stay in order.
- A large batch is decompressed in a thread, and later requests of its connection wait. Without a limit a few KB could
  take any amount of memory: a batch that is too large uncompressed gets MESSAGE_TOO_LARGE, and clients divide it.
- If a record is invalid (without key in a compacted topic, or with a timestamp out of range), its whole batch is
  rejected, and the response names the invalid records, at most 1,000 of them.

Version notes (3 to 13):
- 3 has record batches of magic 2 (KIP-98)
- 4 has KAFKA_STORAGE_ERROR
- 5 has the log start offset (KIP-107)
- 7 has zstd (KIP-110)
- 8 has errors of single records (KIP-467)
- 9 is flexible
- 10 has the new leader in errors (KIP-951)
- 11 and 12 have transactions without a separate verification (KIP-890)
- 13 has topic ids (KIP-516)
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from headrace.broker.apis import NO_REPLY, HandlerResult, api
from headrace.broker.batch_inflater import BatchInflater
from headrace.broker.delayed_produce import DelayedProduce, UnreplicatedAppend
from headrace.broker.dispatch import RequestContext
from headrace.broker.leader_hints import LeaderHints
from headrace.broker.partition import ALL_IN_SYNC, Partition
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.required_rights import on_topic, on_transactional_id, requires
from headrace.broker.rights import is_allowed, is_allowed_on_topic
from headrace.broker.transaction_verification import UnverifiedAppend
from headrace.broker.transactions import Transactions
from headrace.broker.yielding import InTurns, parts, run_at_once
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.topics import INTERNAL_TOPICS
from headrace.common.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    KafkaError,
    KafkaStorageError,
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicIdError,
    UnsupportedCompressionTypeError,
    message_of,
)
from headrace.common.types import Buffer
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from headrace.records import BATCH_HEADER_BYTES, BatchHeader, Compression
from headrace.security.acls import Operation, ResourceType
from headrace.storage.large_batches import MAX_INLINE_BYTES, LargeBatchError
from headrace.storage.validation import MAX_RECORD_ERRORS, ValidatedBatches

_logger = logging.getLogger(__name__)

_FIRST_WITH_ZSTD = 7
_FIRST_WITH_TOPIC_IDS = 13
_WITHOUT_LOG_START_OFFSET = (
    CorruptRecordError,
    KafkaStorageError,
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
    RecordListTooLargeError,
)
"""Errors of the log to which Kafka's response does not add the log start offset."""
_AT_ONCE = 16
"""A request with more partitions is handled in turns: their batches can take long to decompress."""
_MAGIC = 2
_ZSTD = Compression.ZSTD.value


# Older librdkafka versions compress only if version 0 is announced (KAFKA-18659). They do not send it.
@api(
    ApiKey.PRODUCE,
    3,
    13,
    announced_from=0,
    needs=requires(
        on_transactional_id(Operation.WRITE, "if a batch is transactional"), on_topic(Operation.WRITE, "each topic")
    ),
)
def handle(
    request: ProduceRequest,
    context: RequestContext,
    *,
    batch_inflater: BatchInflater,
    image: MetadataImage,
    replicas: ReplicaManager,
    transactions: Transactions,
) -> HandlerResult | InTurns[HandlerResult]:
    appends = _Appends(request, context, image, replicas, transactions)
    if context.is_long or _has_many_partitions(request):
        return _append_in_turns(request, image, appends, batch_inflater)
    if context.authorizer is not None:
        appends.is_transaction_denied = run_at_once(_is_transaction_denied(request, context))
    for topic in request.topic_data:
        name = _name_of(image, topic, context.api_version)
        responses = appends.add_topic(topic, name)
        for data in topic.partition_data:
            appends.append(name, data, responses)
    return _complete(appends, batch_inflater)


def _append_in_turns(
    request: ProduceRequest, image: MetadataImage, appends: "_Appends", batch_inflater: BatchInflater
) -> InTurns[HandlerResult]:
    """Handles a request with many partitions, and gives way in between."""
    context = appends.context
    views_stay_valid = context.is_long
    copied_bytes = 0
    appends.is_transaction_denied = yield from _is_transaction_denied(request, context)
    try:
        for position, topic in enumerate(request.topic_data):
            name = _name_of(image, topic, context.api_version)
            responses = appends.add_topic(topic, name)
            for data in topic.partition_data:
                appends.append(name, data, responses)
                if context.turn_is_over():
                    if not views_stay_valid:
                        views_stay_valid = True
                        copied_bytes = _copy_records(request.topic_data[position:], len(responses))
                        context.connection.retain(copied_bytes)
                    yield
            if views_stay_valid and context.turn_is_over():
                yield
        return _complete(appends, batch_inflater)
    finally:
        context.connection.retain(-copied_bytes)


def _has_many_partitions(request: ProduceRequest) -> bool:
    partitions = 0
    for topic in request.topic_data:
        partitions += len(topic.partition_data)
    return partitions > _AT_ONCE


def _copy_records(topics: Sequence[TopicProduceData], appended: int) -> int:
    """Copies the records, except of the first partitions, which are appended. Returns the size of the copies."""
    size = 0
    for topic in topics:
        for data in topic.partition_data[appended:]:
            if data.records is not None:
                data.records = bytearray(data.records)
                size += len(data.records)
        appended = 0
    return size


def _complete(appends: "_Appends", batch_inflater: BatchInflater) -> HandlerResult:
    if not appends.later:
        return appends.finish()
    context = appends.context
    retained_bytes = sum(len(later.records) for later in appends.later)
    work = _append_later(appends, batch_inflater)
    if all(later.unverified is not None for later in appends.later):
        return context.run_concurrently(work, retained_bytes)
    return context.run(work, retained_bytes)


async def _append_later(appends: "_Appends", batch_inflater: BatchInflater) -> HandlerResult:
    """Completes a request with batches that wait: for the transaction coordinator, or to be decompressed in a thread,
    one after the other."""
    try:
        for later in appends.later:
            await _append_one(appends, later, batch_inflater)
            if later.unverified is not None:
                later.unverified.finish()
    finally:
        for later in appends.later:
            if later.unverified is not None:
                later.unverified.finish()
    return appends.finish()


async def _append_one(appends: "_Appends", later: "_LaterAppend", batch_inflater: BatchInflater) -> None:
    validate = later.validate
    while True:
        try:
            if later.unverified is not None:
                await later.unverified.wait()
            appended: Buffer | ValidatedBatches = later.records
            if validate is not None:
                appended = await batch_inflater.run(partial(validate, later.records))
            appends.complete(later, appended)
            return
        except LargeBatchError as error:
            validate = error.validate
        except UnverifiedBatchError as error:
            later.unverified = error.append  # its transaction was open when it arrived, and has ended meanwhile
        except KafkaError as error:
            if isinstance(error, MessageSizeTooLargeError):
                batch_inflater.log_rejected(appends.context, later.name, later.data.index, error)
            appends.complete(later, error)
            return


class UnverifiedBatchError(Exception):
    """A batch has to wait for the transaction coordinator."""

    def __init__(self, append: UnverifiedAppend):
        super().__init__()
        self.append = append


@dataclass(slots=True, eq=False)
class _LaterAppend:
    """A batch that must be verified or decompressed before it can be appended, and the place of its response."""

    name: str | None
    data: PartitionProduceData
    records: bytearray
    """A copy, since the bytes of the request are valid only while its handler runs."""
    validate: Callable[[bytearray], ValidatedBatches] | None
    unverified: UnverifiedAppend | None
    responses: list[PartitionProduceResponse]
    position: int


class _Appends:
    """The appends of one request, and their responses."""

    __slots__ = (
        "_appended",
        "_denied",
        "_nameable_records",
        "_replicas",
        "_request",
        "_transactions",
        "_unreplicated",
        "context",
        "failed",
        "hints",
        "is_transaction_denied",
        "later",
        "topics",
    )

    def __init__(
        self,
        request: ProduceRequest,
        context: RequestContext,
        image: MetadataImage,
        replicas: ReplicaManager,
        transactions: Transactions,
    ):
        self._request = request
        self._replicas = replicas
        self._transactions = transactions
        self._unreplicated: list[UnreplicatedAppend] = []
        self._nameable_records = MAX_RECORD_ERRORS
        """How many invalid records the response can still name: small batches can have millions of them."""
        self._appended = iter(context.appended)
        """The results for the first partitions, to which `_fast_produce` has already appended."""
        self.context = context
        self.hints = LeaderHints(image, context.connection.listener_name, LeaderIdAndEpoch, NodeEndpoint)
        self.topics: list[TopicProduceResponse] = []
        self.later: list[_LaterAppend] = []
        """The batches that are left: the response of each is incomplete."""
        self.failed = False
        self.is_transaction_denied = False
        """True if a batch is transactional and the client may not use the transactional id. Then everything fails."""
        self._denied: type[KafkaError] | None = None
        """The error of the topic that was added last, if the client may not write to it."""

    def add_topic(self, topic: TopicProduceData, name: str | None) -> list[PartitionProduceResponse]:
        """Adds a topic to the response. Returns the list of its partitions."""
        if self.context.authorizer is not None:
            self._denied = self._error_of(name)
        responses: list[PartitionProduceResponse] = []
        self.topics.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=responses)
        )
        return responses

    def _error_of(self, name: str | None) -> type[KafkaError] | None:
        """Returns the error for all partitions of a topic, None if the client may write to it."""
        context = self.context
        if self.is_transaction_denied:
            return TransactionalIdAuthorizationFailedError
        if name is None:
            return None
        if is_allowed_on_topic(context, Operation.WRITE, name):
            context.remember_writable(name)
            return None
        return TopicAuthorizationFailedError

    def append(self, name: str | None, data: PartitionProduceData, responses: list[PartitionProduceResponse]) -> None:
        """Appends to one partition, unless that is done, and adds its response."""
        done = next(self._appended, None)
        if done is not None:
            base_offset, log_start_offset = done
            responses.append(
                PartitionProduceResponse(index=data.index, base_offset=base_offset, log_start_offset=log_start_offset)
            )
            return
        if self._denied is not None:
            responses.append(self._rejected(name, data, self._denied(), None))
            return
        validate, unverified = None, None
        try:
            responses.append(self._append(name, data, data.records))
            return
        except LargeBatchError as error:
            validate = error.validate
        except UnverifiedBatchError as error:
            unverified = error.append
        assert data.records is not None
        data.records = copy = bytearray(data.records)
        self.later.append(_LaterAppend(name, data, copy, validate, unverified, responses, len(responses)))
        responses.append(PartitionProduceResponse(index=data.index))

    def complete(
        self,
        later: _LaterAppend,
        appended: Buffer | ValidatedBatches | KafkaError,
    ) -> None:
        """Appends a batch that has waited, or rejects it, and completes its response."""
        if isinstance(appended, KafkaError):
            response = self._rejected(later.name, later.data, appended, None)
        else:
            response = self._append(later.name, later.data, appended, later.unverified)
        later.responses[later.position] = response

    def _append(
        self,
        name: str | None,
        data: PartitionProduceData,
        appended: Buffer | ValidatedBatches | None,
        unverified: UnverifiedAppend | None = None,
    ) -> PartitionProduceResponse:
        """Appends a batch. `unverified` has waited for the transaction coordinator.

        Raises LargeBatchError or UnverifiedBatchError, and appends nothing, if the batch has to wait."""
        records, acks, version = data.records, self._request.acks, self.context.api_version
        appending_to: Partition | None = None
        try:
            size = len(records) if records is not None else 0
            header = BatchHeader(records) if records is not None and size >= BATCH_HEADER_BYTES else None
            partition = _partition(self._replicas, name, data.index, header, acks, version)
            if unverified is None:
                partition.traffic.produces += 1
            if appended is None or header is None:
                raise InvalidRecordError(f"Expected one record batch, got {size} bytes, fewer than a batch header has")
            _check_batch(header, size)
            if header.is_transactional:
                self._check_transaction(partition, header, unverified)
            appending_to = partition
            _check_base_offset(header)
            log = partition.log
            high_watermark = log.high_watermark if log is not None else -1
            result = partition.append(appended, acks, max_inline_bytes=MAX_INLINE_BYTES)
        except KafkaError as error:
            return self._rejected(name, data, error, appending_to)
        except (LargeBatchError, UnverifiedBatchError):
            raise
        except Exception:
            _logger.exception("Partition %s-%d: an append failed with an internal error", name, data.index)
            failure = KafkaError("The broker failed to append the records; see its log")
            return self._rejected(name, data, failure, appending_to)
        response = PartitionProduceResponse(
            index=data.index,
            base_offset=result.base_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=result.log_start_offset,
        )
        if log is None or log.high_watermark != high_watermark:
            self._replicas.appended(partition)
        else:
            # Only followers can read the records so far. The produces that wait for them wait on: there may be many.
            self._replicas.fetches.check_and_complete(partition)
        if acks == ALL_IN_SYNC and not partition.is_replicated(result.last_offset):
            self._unreplicated.append(UnreplicatedAppend(partition, result.last_offset, response))
        return response

    def _check_transaction(
        self, partition: Partition, header: BatchHeader, unverified: UnverifiedAppend | None
    ) -> None:
        if unverified is not None:
            unverified.check()
            return
        unverified = self._transactions.check_append(
            partition, header, self._request.transactional_id, self.context.api_version
        )
        if unverified is not None:
            raise UnverifiedBatchError(unverified)

    def _rejected(
        self, name: str | None, data: PartitionProduceData, error: KafkaError, appending_to: Partition | None
    ) -> PartitionProduceResponse:
        self.failed = True
        partition = self._replicas.get(name, data.index) if name is not None else None
        if partition is not None:
            partition.traffic.failed_produces += 1
            partition.traffic.bytes_rejected += len(data.records) if data.records is not None else 0
        response = _error_response(data, error, appending_to)
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors[: self._nameable_records]
        ]
        self._nameable_records -= len(response.record_errors)
        response.current_leader = self.hints.leader_after(error, name, data.index)
        return response

    def finish(self) -> HandlerResult:
        """Responds, or waits until all in-sync replicas have the records."""
        context = self.context
        if self._request.acks == 0:
            if self.failed:
                context.close("a produce request with acks=0 failed")
            return NO_REPLY
        response = ProduceResponse(responses=self.topics, node_endpoints=self.hints.endpoints)
        if self._unreplicated:
            timeout_ms = max(0, self._request.timeout_ms)
            operation = DelayedProduce(self._unreplicated, timeout_ms, lambda: context.reply(response))
            return context.wait(operation, self._replicas.produces, [each.partition for each in self._unreplicated])
        return response


def _is_transaction_denied(request: ProduceRequest, context: RequestContext) -> InTurns[bool]:
    """Returns True if a batch is transactional, and the client may not use the transactional id of the request.

    A transactional batch without a transactional id is never allowed. Gives way only in a long request.
    """
    transactional_id = request.transactional_id
    if context.authorizer is None or (
        transactional_id is not None
        and is_allowed(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    ):
        return False
    for topic in request.topic_data:
        for part in parts(topic.partition_data):
            if any(_is_transactional(data.records) for data in part):
                return True
            if context.is_long and context.turn_is_over():
                yield
    return False


def _is_transactional(records: Buffer | None) -> bool:
    return records is not None and len(records) >= BATCH_HEADER_BYTES and BatchHeader(records).is_transactional


def _name_of(image: MetadataImage, topic: TopicProduceData, version: int) -> str | None:
    return topic.name if version < _FIRST_WITH_TOPIC_IDS else image.topic_name(topic.topic_id)


def _partition(
    replicas: ReplicaManager, name: str | None, index: int, header: BatchHeader | None, acks: int, version: int
) -> Partition:
    """Returns the partition to append to, after the checks that need no partition."""
    if not -1 <= acks <= 1:
        raise InvalidRequiredAcksError(f"acks must be 0, 1 or -1 (all), but it is {acks}")
    if name is None:
        raise UnknownTopicIdError("This broker has no topic with the requested id")
    if name in INTERNAL_TOPICS:
        raise InvalidTopicError(f"Clients must not write to the internal topic '{name}'")
    if version < _FIRST_WITH_ZSTD and header is not None and header.codec == _ZSTD:
        raise UnsupportedCompressionTypeError(
            f"Produce version {version} does not support zstd, use version {_FIRST_WITH_ZSTD} or newer"
        )
    return replicas.find(name, index)


def _check_batch(header: BatchHeader, size: int) -> None:
    """Checks that a client sent one batch of magic 2 (KIP-98)."""
    if header.magic != _MAGIC:
        raise InvalidRecordError(f"Expected a record batch of magic {_MAGIC}, got magic {header.magic}")
    if header.size_in_bytes >= BATCH_HEADER_BYTES and header.size_in_bytes != size:
        raise InvalidRecordError(f"Expected one record batch of {header.size_in_bytes} bytes, got {size} bytes")


def _check_base_offset(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise InvalidRecordError(f"Expected a record batch with base offset 0, got {header.base_offset}")


def _error_response(
    data: PartitionProduceData, error: KafkaError, appending_to: Partition | None
) -> PartitionProduceResponse:
    """Returns the response for a partition that failed, in `appending_to` if the request was valid so far."""
    response = PartitionProduceResponse(
        index=data.index,
        error_code=error.code,
        base_offset=-1,
        log_append_time_ms=-1,
        error_message=message_of(error),
    )
    if appending_to is not None and appending_to.log is not None and not isinstance(error, _WITHOUT_LOG_START_OFFSET):
        response.log_start_offset = appending_to.log.log_start_offset
    return response
