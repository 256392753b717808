"""Builds OffsetCommit and OffsetFetch requests and reads their responses.

OffsetFetch requests have both forms: one group at the top level, and a list of groups from v8 on.
"""

from collections.abc import Iterable, Mapping

from headrace.client.group.consumer_protocol import group_by_topic
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata
from headrace.common.types import TopicPartition
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

__all__ = ["commit_request", "commit_results", "fetch_request", "fetch_results"]


def commit_request(
    identity: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> OffsetCommitRequest:
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                _commit_partition(partition, offsets[TopicPartition(topic, partition)]) for partition in partitions
            ],
        )
        for topic, partitions in group_by_topic(offsets).items()
    ]
    return OffsetCommitRequest(
        group_id=identity.group_id,
        generation_id_or_member_epoch=identity.generation_id,
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        topics=topics,
    )


def _commit_partition(partition: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def commit_results(response: OffsetCommitResponse) -> dict[TopicPartition, int]:
    """Returns the error code of each partition."""
    return {
        TopicPartition(topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


def fetch_request(group_id: str, tps: Iterable[TopicPartition], require_stable: bool) -> OffsetFetchRequest:
    by_topic = group_by_topic(sorted(tps))
    return OffsetFetchRequest(
        group_id=group_id,
        topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=indexes) for topic, indexes in by_topic.items()],
        groups=[
            OffsetFetchRequestGroup(
                group_id=group_id,
                topics=[
                    OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
                    for topic, indexes in by_topic.items()
                ],
            )
        ],
        require_stable=require_stable,
    )


def fetch_results(
    response: OffsetFetchResponse, group_id: str
) -> tuple[int, dict[TopicPartition, tuple[int, OffsetAndMetadata | None]]]:
    """Returns the top-level error code, and the error code and offset (None if there is none) of each
    partition."""
    for group in response.groups:
        if group.group_id == group_id:
            named_partitions = [(topic.name, partition) for topic in group.topics for partition in topic.partitions]
            return group.error_code, {
                TopicPartition(name, partition.partition_index): _committed_offset(partition)
                for name, partition in named_partitions
            }
    older = [(topic.name, partition) for topic in response.topics for partition in topic.partitions]
    return response.error_code, {
        TopicPartition(name, partition.partition_index): _committed_offset(partition) for name, partition in older
    }


def _committed_offset(
    partition: OffsetFetchResponsePartition | OffsetFetchResponsePartitions,
) -> tuple[int, OffsetAndMetadata | None]:
    if partition.committed_offset < 0:
        return partition.error_code, None
    return partition.error_code, OffsetAndMetadata(
        partition.committed_offset, partition.metadata or "", partition.committed_leader_epoch
    )
