"""TxnOffsetCommit: commits offsets of a group in a transaction. They take effect when the transaction commits.

Behavior:
- The group's partition must belong to the transaction (KIP-890), which would never end in it otherwise. The group
  coordinator asks the transaction coordinator, which may be on another broker.

Version notes (0 to 5):
- 2 has leader epochs (KIP-320)
- 3 is flexible, and has members with their generation (KIP-447)
- 4 has TRANSACTION_ABORTABLE
- 5 adds the group's partition to the transaction, without AddOffsetsToTxn (KIP-890)
"""

from collections.abc import Callable, Sequence

from headrace.broker.apis import api
from headrace.broker.config.coordinators import GROUP_TOPIC
from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import RequestContext
from headrace.broker.group_requests import PARTITIONS_PER_OPERATION
from headrace.broker.required_rights import on_group, on_topic, on_transactional_id, requires
from headrace.broker.rights import check_group, check_transactional_id, is_allowed_on_topic
from headrace.broker.transaction_verification import Operation
from headrace.broker.transactions import Transactions
from headrace.broker.yielding import parts
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import (
    CoordinatorLoadInProgressError,
    InvalidGroupIdError,
    KafkaError,
    KafkaStorageError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition
from headrace.coordinator.group.shard import CommitRequest, GroupCoordinatorShard, Offset, commit_error
from headrace.coordinator.result import CoordinatorResult, ProducerInfo
from headrace.net.errors import KafkaConnectionError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from headrace.security import acls

_FIRST_WITH_ABORTABLE = 4
_FIRST_THAT_ADDS_PARTITIONS = 5


@api(
    ApiKey.TXN_OFFSET_COMMIT,
    0,
    5,
    needs=requires(
        on_transactional_id(acls.Operation.WRITE),
        on_group(acls.Operation.READ),
        on_topic(acls.Operation.READ, "each topic"),
    ),
)
async def handle(
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    *,
    coordinators: Coordinators,
    image: MetadataImage,
    transactions: Transactions,
) -> TxnOffsetCommitResponse:
    try:
        check_transactional_id(context, acls.Operation.WRITE, request.transactional_id)
        check_group(context, acls.Operation.READ, request.group_id)
    except KafkaError as error:
        denied = error.code
        return await _response(request, context, lambda _: denied)
    codes: dict[TopicPartition, int] = {}
    offsets: dict[TopicPartition, Offset] = {}
    for topic in request.topics:
        await context.give_way()
        is_denied = not is_allowed_on_topic(context, acls.Operation.READ, topic.name)
        for requested in topic.partitions:
            tp = TopicPartition(topic.name, requested.partition_index)
            if is_denied:
                codes[tp] = TopicAuthorizationFailedError.code
            elif image.partition(tp.topic, tp.partition) is None:
                codes[tp] = UnknownTopicOrPartitionError.code
            else:
                offsets[tp] = (
                    tp,
                    requested.committed_offset,
                    requested.committed_leader_epoch,
                    requested.committed_metadata,
                )
            await context.give_way()
    for part in parts(list(offsets.values()), PARTITIONS_PER_OPERATION):
        try:
            codes |= await _commit(coordinators, transactions, request, part, context.api_version)
        except KafkaError as error:
            codes |= dict.fromkeys((tp for tp, *_ in part), _code(error))
        await context.give_way()
    return await _response(request, context, codes.__getitem__)


def _code(error: KafkaError) -> int:
    if isinstance(error, KafkaConnectionError):
        # The transaction coordinator cannot be reached. Producers retry this error, and keep the group coordinator.
        return CoordinatorLoadInProgressError.code
    if isinstance(error, NotLeaderForPartitionError | KafkaStorageError):
        return NotCoordinatorError.code
    return commit_error(error)


async def _response(
    request: TxnOffsetCommitRequest, context: RequestContext, code_of: Callable[[TopicPartition], int]
) -> TxnOffsetCommitResponse:
    topics: list[TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=[]))
        for part in parts(topic.partitions):
            topics[-1].partitions += [
                TxnOffsetCommitResponsePartition(
                    partition_index=requested.partition_index,
                    error_code=code_of(TopicPartition(topic.name, requested.partition_index)),
                )
                for requested in part
            ]
            await context.give_way()
    return TxnOffsetCommitResponse(topics=topics)


async def _commit(
    coordinators: Coordinators,
    transactions: Transactions,
    request: TxnOffsetCommitRequest,
    offsets: Sequence[Offset],
    version: int,
) -> dict[TopicPartition, int]:
    if not request.group_id:
        raise InvalidGroupIdError("The group id must not be empty")
    producer = ProducerInfo(request.producer_id, request.producer_epoch)
    partition = coordinators.group_partition(request.group_id)
    if partition not in coordinators.groups:
        raise NotCoordinatorError(f"This broker is not the coordinator of group {request.group_id!r}")
    commit = CommitRequest(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id, offsets, -1
    )
    verifier = transactions.verifier
    guard = await verifier.verify(
        transactions.find_partition(TopicPartition(GROUP_TOPIC, partition)),
        producer,
        request.transactional_id,
        _operation(version),
    )

    def write(shard: GroupCoordinatorShard) -> CoordinatorResult[dict[TopicPartition, int]]:
        if guard is not None:
            guard.check()
        return shard.commit_in_transaction(commit, producer)

    try:
        return await coordinators.groups.call(partition, write)
    finally:
        if guard is not None:
            verifier.release(guard)


def _operation(version: int) -> Operation:
    if version >= _FIRST_THAT_ADDS_PARTITIONS:
        return Operation.ADD
    return Operation.VERIFY_ABORTABLE if version >= _FIRST_WITH_ABORTABLE else Operation.VERIFY
