"""Partitions: list offsets, delete records, describe producers. Owner: the loop."""

from collections.abc import Iterable, Mapping

from headrace.client.admin.base import MOVED_LEADER, AdminBase, by_topic
from headrace.client.admin.types import (
    DeletedRecords,
    IsolationLevel,
    ListedOffset,
    OffsetSpec,
    PartitionProducers,
    ProducerState,
    Results,
    to_enum,
)
from headrace.client.arguments import AnyPartition, PartitionLike, to_partition_keys, to_partitions
from headrace.client.errors import IllegalArgumentError, error_for
from headrace.common.types import TopicPartition
from headrace.net.nodes import Node
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_FIRST_VERSION = {OffsetSpec.MAX_TIMESTAMP: 7, OffsetSpec.EARLIEST_LOCAL: 8, OffsetSpec.LATEST_TIERED: 9}
ALL_RECORDS = -1
"""The offset that deletes all records up to the high watermark."""


class PartitionsAdmin(AdminBase):
    """The calls about partitions."""

    async def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[AnyPartition, OffsetSpec | int],
        isolation_level: IsolationLevel | str = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: float | None = None,
        *,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, ListedOffset]:
        """Returns offsets by OffsetSpec, or by timestamp in milliseconds: that of the first record not older than
        it."""
        specs = to_partition_keys(topic_partition_specs, "topic_partition_specs")
        for spec in specs.values():
            if not isinstance(spec, int) or spec < OffsetSpec.LATEST_TIERED:
                raise IllegalArgumentError(f"{spec!r} is not an OffsetSpec or a timestamp in milliseconds")
        level = to_enum(IsolationLevel, isolation_level, "isolation_level")
        first = max((_FIRST_VERSION.get(OffsetSpec(spec), 1) for spec in specs.values() if -5 <= spec < 0), default=1)

        async def send(leader: Node, tps: list[TopicPartition]) -> dict[TopicPartition, ListedOffset]:
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=level,
                topics=[
                    ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=partition,
                                current_leader_epoch=-1,
                                timestamp=int(specs[TopicPartition(topic, partition)]),
                            )
                            for partition in partitions
                        ],
                    )
                    for topic, partitions in by_topic(tps).items()
                ],
                timeout_ms=int(self.core.config.request_timeout_ms),
            )
            response: ListOffsetsResponse = await self.core.pool.send(
                leader.id, request, min_version=max(first, 2 if level else 1)
            )
            return {
                TopicPartition(topic.name, partition.partition_index): ListedOffset(
                    partition.offset,
                    partition.timestamp,
                    partition.leader_epoch,
                    error_for(partition.error_code, about=f"Partition {topic.name}-{partition.partition_index}"),
                )
                for topic in response.topics
                for partition in topic.partitions
            }

        return await self._call_for_items(
            specs,
            lambda tps: self._request_leaders(tps, send, lambda error: ListedOffset(-1, error=error), timeout_ms),
            timeout_ms,
            "listing offsets",
            raise_errors,
            MOVED_LEADER,
        )

    async def delete_records(
        self,
        records_to_delete: Mapping[AnyPartition, int],
        timeout_ms: float | None = None,
        *,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, DeletedRecords]:
        """Deletes all records before an offset. Offset -1 deletes all records."""
        offsets = to_partition_keys(records_to_delete, "records_to_delete")

        async def send(leader: Node, tps: list[TopicPartition]) -> dict[TopicPartition, DeletedRecords]:
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsPartition(
                                partition_index=partition, offset=offsets[TopicPartition(topic, partition)]
                            )
                            for partition in partitions
                        ],
                    )
                    for topic, partitions in by_topic(tps).items()
                ],
                timeout_ms=int(self.core.config.request_timeout_ms),
            )
            response: DeleteRecordsResponse = await self.core.pool.send(leader.id, request)
            return {
                TopicPartition(topic.name, partition.partition_index): DeletedRecords(
                    partition.low_watermark,
                    error_for(partition.error_code, about=f"Partition {topic.name}-{partition.partition_index}"),
                )
                for topic in response.topics
                for partition in topic.partitions
            }

        return await self._call_for_items(
            offsets,
            lambda tps: self._request_leaders(tps, send, lambda error: DeletedRecords(-1, error), timeout_ms),
            timeout_ms,
            "deleting records",
            raise_errors,
            MOVED_LEADER,
        )

    async def describe_producers(
        self,
        partitions: Iterable[PartitionLike],
        broker_id: int | None = None,
        *,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, PartitionProducers]:
        """Returns the active idempotent and transactional producers of partitions, as the leaders or one broker know
        them."""

        async def send(leader: Node, tps: list[TopicPartition]) -> dict[TopicPartition, PartitionProducers]:
            request = DescribeProducersRequest(
                topics=[
                    TopicRequest(name=topic, partition_indexes=partitions)
                    for topic, partitions in by_topic(tps).items()
                ]
            )
            response: DescribeProducersResponse = await self.core.pool.send(
                leader.id if broker_id is None else broker_id, request
            )
            return {
                TopicPartition(topic.name, partition.partition_index): _producers(partition)
                for topic in response.topics
                for partition in topic.partitions
            }

        return await self._call_for_items(
            to_partitions(partitions),
            lambda tps: self._request_leaders(tps, send, lambda error: PartitionProducers(error=error), timeout_ms),
            timeout_ms,
            "describing producers",
            raise_errors,
            MOVED_LEADER if broker_id is None else (),
        )


def _producers(response: PartitionResponse) -> PartitionProducers:
    return PartitionProducers(
        tuple(
            ProducerState(
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.current_txn_start_offset,
            )
            for producer in response.active_producers
        ),
        error_for(response.error_code, response.error_message),
    )
