"""Produce: appends record batches to partitions.

Versions 3 (KIP-98, record batches of magic 2) to 13: 4 KAFKA_STORAGE_ERROR, 5 log start offset (KIP-107), 7 zstd
(KIP-110), 8 errors of single records (KIP-467), 9 flexible, 10 the new leader in errors (KIP-951), 11 and 12
transactions without a separate verification (KIP-890), 13 topic ids (KIP-516).

- acks 0: nothing is answered; if anything went wrong the connection is closed, as that is all a producer would notice.
- acks 1: answered when the leader has the records.
- acks all: refused where fewer than `min.insync.replicas` are in sync; answered when all of them have the records, or
  with REQUEST_TIMED_OUT after the request's timeout, with the records in the log all the same.

Records of a transaction are taken only where the transaction has the partition (KIP-890); from version 12 on the
partition is added to it here. Clients use those versions only where a broker says that it has `transaction.version` 2.

Partitions fail one by one; the others of a request are appended. Topics that the broker itself writes are refused.
"""

import logging

from headrace.broker.delayed_produce import DelayedProduce, Waiting
from headrace.broker.dispatch import NO_REPLY, HandlerResult, RequestContext, api
from headrace.broker.leader_hints import LeaderHints
from headrace.broker.partition import ALL_IN_SYNC, Partition
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.transactions import Transactions
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.topics import INTERNAL_TOPICS
from headrace.common.errors import (
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    KafkaError,
    UnknownTopicIdError,
    UnsupportedCompressionTypeError,
    message_of,
)
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.produce import (
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
_MAGIC = 2
_ZSTD = Compression.ZSTD.value


# Older versions of librdkafka do not compress where version 0 is not announced (KAFKA-18659). None sends it.
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
    waiting: list[Waiting] = []
    topics: list[TopicProduceResponse] = []
    failed = False
    for topic in request.topic_data:
        name = _name_of(image, topic, version)
        replies: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            try:
                records = data.records
                size = len(records) if records is not None else 0
                header = BatchHeader(records) if records is not None and size >= BATCH_HEADER_BYTES else None
                partition = _partition(replicas, name, data.index, header, acks, version)
                if records is None or header is None:
                    raise InvalidRecordError(f"expected one record batch, got {size} bytes: fewer than its header has")
                _check_batch(header, size)
                if header.is_transactional:
                    transactions.check_append(partition, header, request.transactional_id, version)
                result = partition.append(records, acks)
            except KafkaError as error:
                failed = True
                reply = _error_reply(data, error)
                reply.current_leader = hints.leader_after(error, name, data.index)
            except Exception:
                _logger.exception("an append to %s-%d failed", name, data.index)
                failed = True
                reply = _error_reply(data, KafkaError("the broker failed on this append; its log says why"))
            else:
                reply = PartitionProduceResponse(
                    index=data.index,
                    base_offset=result.base_offset,
                    log_append_time_ms=result.log_append_time_ms,
                    log_start_offset=result.log_start_offset,
                )
                replicas.appended(partition)
                if acks == ALL_IN_SYNC and not partition.is_replicated(result.last_offset):
                    waiting.append(Waiting(partition, result.last_offset, reply))
            replies.append(reply)
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=replies))
    if acks == 0:
        if failed:
            context.close("a produce request with acks=0 failed")
        return NO_REPLY
    response = ProduceResponse(responses=topics, node_endpoints=hints.endpoints)
    if waiting:
        operation = DelayedProduce(waiting, max(0, request.timeout_ms), lambda: context.reply(response))
        return context.wait(operation, replicas.produces, [entry.partition for entry in waiting])
    return response


def _name_of(image: MetadataImage, topic: TopicProduceData, version: int) -> str | None:
    return topic.name if version < _FIRST_WITH_TOPIC_IDS else image.topic_name(topic.topic_id)


def _partition(
    replicas: ReplicaManager, name: str | None, index: int, header: BatchHeader | None, acks: int, version: int
) -> Partition:
    """The partition to append to, after all checks of the request."""
    if not -1 <= acks <= 1:
        raise InvalidRequiredAcksError(f"acks is 0, 1 or -1 (all), not {acks}")
    if name is None:
        raise UnknownTopicIdError("this broker knows no topic of that id")
    if name in INTERNAL_TOPICS:
        raise InvalidTopicError(f"clients may not write to the internal topic {name}")
    if version < _FIRST_WITH_ZSTD and header is not None and header.codec == _ZSTD:
        raise UnsupportedCompressionTypeError(f"zstd needs Produce version {_FIRST_WITH_ZSTD}, not {version}")
    return replicas.find(name, index)


def _check_batch(header: BatchHeader, size: int) -> None:
    """A client sends one batch of magic 2 for each partition (KIP-98), whose offsets begin with 0. A batch that is cut
    short is left to the log."""
    if header.magic != _MAGIC:
        raise InvalidRecordError(f"expected a record batch of magic {_MAGIC}, got magic {header.magic}")
    if BATCH_HEADER_BYTES <= header.size_in_bytes < size:
        raise InvalidRecordError(f"expected one record batch, got {size} bytes for one of {header.size_in_bytes}")
    if header.base_offset != 0:
        raise InvalidRecordError(f"expected a record batch whose base offset is 0, not {header.base_offset}")


def _error_reply(data: PartitionProduceData, error: KafkaError) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=data.index, error_code=error.code, base_offset=-1, log_append_time_ms=-1, error_message=message_of(error)
    )
