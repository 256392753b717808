"""The requests of a transactional producer to its transaction coordinator and to group coordinators.

Each method sends one request and raises the response's error. `TransactionManager` retries and changes state.

Version notes: transaction version 2 (KIP-890) uses EndTxn 5 and TxnOffsetCommit 5, and needs neither AddPartitionsToTxn
nor AddOffsetsToTxn. Version 1 uses the versions below. Later versions of AddPartitionsToTxn are for brokers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.client.coordinators import CoordinatorType
from headrace.client.errors import CommitFailedError, check, error_for
from headrace.client.producer.network_client import NetworkClient
from headrace.client.producer.sequences import ProducerIdAndEpoch
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata
from headrace.common.errors import (
    IllegalGenerationError,
    KafkaError,
    NotCoordinatorError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

__all__ = ["TRANSACTION_VERSION_2", "TransactionRequests"]

TRANSACTION_VERSION_2 = 2
_INIT_WITH_EPOCH_VERSION = 3
_INIT_LAST_VERSION = 5
_ADD_PARTITIONS_LAST_VERSION = 3
_ADD_OFFSETS_LAST_VERSION = 3
_END_TXN_VERSION_2 = 5
_OFFSET_COMMIT_WITH_MEMBER_VERSION = 3
_OFFSET_COMMIT_VERSION_2 = 5


@dataclass(frozen=True, slots=True)
class TransactionRequests:
    """Sends requests for one transactional ID and producer epoch."""

    network: NetworkClient
    transactional_id: str
    producer: ProducerIdAndEpoch
    version: int
    """The transaction version, 1 or 2."""

    async def _send(self, request: Any, min_version: int | None, max_version: int | None) -> Any:
        return await self.network.send_to_coordinator(
            CoordinatorType.TRANSACTION, self.transactional_id, request, min_version, max_version
        )

    async def init_producer_id(self, timeout_ms: int) -> ProducerIdAndEpoch:
        """Returns a new epoch of the producer ID, or a producer ID and epoch if the producer has none."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
        )
        min_version = _INIT_WITH_EPOCH_VERSION if self.producer.is_valid else None
        response = await self._send(request, min_version, _INIT_LAST_VERSION)
        check(response.error_code)
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    async def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds partitions to the transaction."""
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, AddPartitionsToTxnTopic(name=tp.topic)).partitions.append(tp.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=list(topics.values()),
        )
        response = await self._send(request, None, _ADD_PARTITIONS_LAST_VERSION)
        errors = [
            error
            for topic in response.results_by_topic_v3_and_below
            for result in topic.results_by_partition
            if (error := error_for(result.partition_error_code)) is not None
        ]
        if errors:
            # The error that matters: the other partitions of the request were not attempted.
            raise min(errors, key=lambda error: (error.name == "OPERATION_NOT_ATTEMPTED", error.retriable))

    async def add_offsets(self, group_id: str) -> None:
        """Adds the offsets of a consumer group to the transaction."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            group_id=group_id,
        )
        response = await self._send(request, None, _ADD_OFFSETS_LAST_VERSION)
        check(response.error_code)

    async def commit_offsets(
        self, uncommitted: dict[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Sends offsets to the group coordinator, and removes those that it accepted from `uncommitted`."""
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for tp, offset in uncommitted.items():
            topics.setdefault(tp.topic, TxnOffsetCommitRequestTopic(name=tp.topic)).partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=tp.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=list(topics.values()),
        )
        min_version = _OFFSET_COMMIT_WITH_MEMBER_VERSION if group.member_id or group.generation_id >= 0 else None
        max_version = _OFFSET_COMMIT_VERSION_2 - 1
        if self.version >= TRANSACTION_VERSION_2:
            min_version = max_version = _OFFSET_COMMIT_VERSION_2
        response = await self.network.send_to_coordinator(
            CoordinatorType.GROUP, group.group_id, request, min_version, max_version
        )
        error = _remove_committed(uncommitted, response)
        if isinstance(error, UnknownMemberIdError | IllegalGenerationError):
            raise CommitFailedError(
                f"Offsets of group {group.group_id!r} were not committed: the group has rebalanced: {error}"
            )
        if isinstance(error, UnknownTopicOrPartitionError):
            raise NotCoordinatorError(str(error))
        if error is not None:
            raise error

    async def end(self, committed: bool) -> ProducerIdAndEpoch | None:
        """Commits or aborts the transaction. Returns the producer's next epoch, with transaction version 2."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            committed=committed,
        )
        if self.version < TRANSACTION_VERSION_2:
            response = await self._send(request, None, _END_TXN_VERSION_2 - 1)
            check(response.error_code)
            return None
        response = await self._send(request, _END_TXN_VERSION_2, None)
        check(response.error_code)
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)


def _remove_committed(
    uncommitted: dict[TopicPartition, OffsetAndMetadata], response: TxnOffsetCommitResponse
) -> KafkaError | None:
    """Removes committed offsets. Returns an error of the others, preferably one that is not retriable."""
    errors: list[KafkaError] = []
    for topic in response.topics:
        for partition in topic.partitions:
            error = error_for(partition.error_code)
            if error is None:
                uncommitted.pop(TopicPartition(topic.name, partition.partition_index), None)
            else:
                errors.append(error)
    return min(errors, key=lambda error: error.retriable, default=None)
