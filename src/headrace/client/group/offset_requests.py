"""OffsetCommit and OffsetFetch as this client writes and reads them: partitions flat, and either form of a request that
changed its shape (OffsetFetch v8 asks for several groups)."""

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
            name=topic, partitions=[_commit_of(index, offsets[TopicPartition(topic, index)]) for index in partitions]
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


def _commit_of(index: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def commit_results(reply: OffsetCommitResponse) -> dict[TopicPartition, int]:
    """The error code of each partition."""
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in reply.topics
        for each in topic.partitions
    }


def fetch_request(group_id: str, tps: Iterable[TopicPartition], require_stable: bool) -> OffsetFetchRequest:
    wanted = group_by_topic(sorted(tps))
    return OffsetFetchRequest(
        group_id=group_id,
        topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=each) for topic, each in wanted.items()],
        groups=[
            OffsetFetchRequestGroup(
                group_id=group_id,
                topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=each) for topic, each in wanted.items()],
            )
        ],
        require_stable=require_stable,
    )


def fetch_results(
    reply: OffsetFetchResponse, group_id: str
) -> tuple[int, dict[TopicPartition, tuple[int, OffsetAndMetadata | None]]]:
    """The error code of the whole, and of each partition its error code and its offset, None if there is none."""
    for group in reply.groups:
        if group.group_id == group_id:
            parts = [(topic.name, each) for topic in group.topics for each in topic.partitions]
            return group.error_code, {TopicPartition(n, each.partition_index): _found(each) for n, each in parts}
    older = [(topic.name, each) for topic in reply.topics for each in topic.partitions]
    return reply.error_code, {TopicPartition(name, each.partition_index): _found(each) for name, each in older}


def _found(
    each: OffsetFetchResponsePartition | OffsetFetchResponsePartitions,
) -> tuple[int, OffsetAndMetadata | None]:
    if each.committed_offset < 0:
        return each.error_code, None
    return each.error_code, OffsetAndMetadata(each.committed_offset, each.metadata or "", each.committed_leader_epoch)
