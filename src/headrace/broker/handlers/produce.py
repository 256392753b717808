"""Produce: appends record batches to partitions.

Behavior:
- acks=0: no response. If a partition fails, the connection is closed, because the producer would not notice otherwise.
- acks=1: responds when the leader has appended the records.
- acks=all: refused if fewer than `min.insync.replicas` are in sync. Responds when all in-sync replicas have the
  records. After the request's timeout it responds with REQUEST_TIMED_OUT, but the records stay in the log.
- Transactional records are accepted only for partitions of the transaction (KIP-890). From version 12 on, the broker
  adds the partition. Clients use these versions only if the broker announces `transaction.version` 2.
- Each partition succeeds or fails on its own. Internal topics are refused.
- If a record is invalid (without key in a compacted topic, or with a timestamp out of range), its whole batch is
  rejected, and the response names the invalid records.

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

from headrace.broker.delayed_produce import DelayedProduce, UnreplicatedAppend
from headrace.broker.dispatch import NO_REPLY, HandlerResult, RequestContext, api
from headrace.broker.leader_hints import LeaderHints
from headrace.broker.partition import ALL_IN_SYNC, Partition
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.transactions import Transactions
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
    UnknownTopicIdError,
    UnsupportedCompressionTypeError,
    message_of,
)
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
_MAGIC = 2
_ZSTD = Compression.ZSTD.value


# Older librdkafka versions compress only if version 0 is announced (KAFKA-18659). They do not send it.
@api(ApiKey.PRODUCE, 3, 13, announced_from=0)
def handle(
    request: ProduceRequest,
    context: RequestContext,
    *,
    image: MetadataImage,
    replicas: ReplicaManager,
    transactions: Transactions,
) -> HandlerResult:
    version, acks = context.api_version, request.acks
    hints = LeaderHints(image, context.connection.listener_name, LeaderIdAndEpoch, NodeEndpoint)
    unreplicated: list[UnreplicatedAppend] = []
    topics: list[TopicProduceResponse] = []
    failed = False
    for topic in request.topic_data:
        name = _name_of(image, topic, version)
        partition_responses: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            appending_to: Partition | None = None
            try:
                records = data.records
                size = len(records) if records is not None else 0
                header = BatchHeader(records) if records is not None and size >= BATCH_HEADER_BYTES else None
                partition = _partition(replicas, name, data.index, header, acks, version)
                if records is None or header is None:
                    raise InvalidRecordError(
                        f"Expected one record batch, got {size} bytes, fewer than a batch header has"
                    )
                _check_batch(header, size)
                if header.is_transactional:
                    transactions.check_append(partition, header, request.transactional_id, version)
                appending_to = partition
                _check_base_offset(header)
                result = partition.append(records, acks)
            except KafkaError as error:
                failed = True
                response = _error_response(data, error, appending_to)
                response.current_leader = hints.leader_after(error, name, data.index)
            except Exception:
                _logger.exception("Partition %s-%d: an append failed with an internal error", name, data.index)
                failed = True
                failure = KafkaError("The broker failed to append the records; see its log")
                response = _error_response(data, failure, appending_to)
            else:
                response = PartitionProduceResponse(
                    index=data.index,
                    base_offset=result.base_offset,
                    log_append_time_ms=result.log_append_time_ms,
                    log_start_offset=result.log_start_offset,
                )
                replicas.appended(partition)
                if acks == ALL_IN_SYNC and not partition.is_replicated(result.last_offset):
                    unreplicated.append(UnreplicatedAppend(partition, result.last_offset, response))
            partition_responses.append(response)
        topics.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partition_responses)
        )
    if acks == 0:
        if failed:
            context.close("a produce request with acks=0 failed")
        return NO_REPLY
    produce_response = ProduceResponse(responses=topics, node_endpoints=hints.endpoints)
    if unreplicated:
        operation = DelayedProduce(unreplicated, max(0, request.timeout_ms), lambda: context.reply(produce_response))
        return context.wait(operation, replicas.produces, [append.partition for append in unreplicated])
    return produce_response


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
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ],
    )
    if appending_to is not None and appending_to.log is not None and not isinstance(error, _WITHOUT_LOG_START_OFFSET):
        response.log_start_offset = appending_to.log.log_start_offset
    return response
