"""Log directories of brokers, and moves of replicas between them. Owner: the loop."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from headrace.client.admin.base import AdminBase, by_topic, gather
from headrace.client.admin.types import AlteredLogDir, LogDirDescription, ReplicaInfo, ReplicaLogDirs, Results
from headrace.client.errors import check, error_for
from headrace.client.types import TopicPartitionReplica
from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition
from headrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from headrace.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

AnyReplica = TypeVar("AnyReplica", bound=tuple[str, int, int])
"""A replica: a TopicPartitionReplica, or any tuple of topic, partition and broker id."""


class LogDirsAdmin(AdminBase):
    """The calls about log directories."""

    async def describe_log_dirs(
        self,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[str] | None = None,
        brokers: Iterable[int] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> dict[int, list[LogDirDescription]]:
        """Returns log directories by broker, with the sizes of their replicas: all of them, those of some topics, or
        those of some partitions."""
        topics: list[DescribableLogDirTopic] | None = None
        if isinstance(topic_partitions, Mapping):
            topics = [
                DescribableLogDirTopic(topic=name, partitions=list(partitions))
                for name, partitions in topic_partitions.items()
            ]
        elif topic_partitions is not None:
            names = list(topic_partitions)
            view = await self.core.metadata.update(names, self._timeout_ms(timeout_ms))
            topics = [
                DescribableLogDirTopic(topic=name, partitions=list(range(view.partition_count(name) or 0)))
                for name in names
            ]

        async def attempt() -> dict[int, list[LogDirDescription]]:
            ids = await self._broker_ids(brokers)
            described = await asyncio.gather(*[self._describe_log_dirs(broker_id, topics) for broker_id in ids])
            return dict(zip(ids, described, strict=True))

        return await self._call_with_retries(attempt, timeout_ms, "describing log directories")

    async def _describe_log_dirs(
        self, broker_id: int, topics: list[DescribableLogDirTopic] | None
    ) -> list[LogDirDescription]:
        response: DescribeLogDirsResponse = await self.core.pool.send(broker_id, DescribeLogDirsRequest(topics=topics))
        check(response.error_code)
        return [
            LogDirDescription(
                broker_id,
                log_dir.log_dir,
                {
                    TopicPartition(topic.name, replica.partition_index): ReplicaInfo(
                        replica.partition_size, replica.offset_lag, replica.is_future_key
                    )
                    for topic in log_dir.topics
                    for replica in topic.partitions
                },
                log_dir.total_bytes,
                log_dir.usable_bytes,
                log_dir.is_cordoned,
                error_for(log_dir.error_code),
            )
            for log_dir in response.results
        ]

    async def alter_replica_log_dirs(
        self,
        replica_assignments: Mapping[AnyReplica, str],
        timeout_ms: float | None = None,
        *,
        raise_errors: bool = True,
    ) -> Results[TopicPartitionReplica, AlteredLogDir]:
        """Starts to move replicas to other log directories of their brokers (KIP-113). The keys are replicas: topic,
        partition and broker id. The values are absolute paths, as `describe_log_dirs` returns them.

        Returns when the moves have started. `describe_replica_log_dirs` shows their progress. The current directory
        cancels a move. A broker that has no such replica yet gives ReplicaNotAvailableError, and will create it there.
        """
        paths = {_to_replica(replica): path for replica, path in replica_assignments.items()}

        async def attempt(
            replicas: list[TopicPartitionReplica],
        ) -> dict[TopicPartitionReplica, AlteredLogDir]:
            by_broker: dict[int, dict[str, list[TopicPartition]]] = {}
            for replica in replicas:
                tps = by_broker.setdefault(replica.broker_id, {}).setdefault(paths[replica], [])
                tps.append(TopicPartition(replica.topic, replica.partition))

            async def send(broker_id: int) -> dict[TopicPartitionReplica, AlteredLogDir]:
                request = AlterReplicaLogDirsRequest(
                    dirs=[
                        AlterReplicaLogDir(
                            path=path,
                            topics=[
                                AlterReplicaLogDirTopic(name=topic, partitions=indexes)
                                for topic, indexes in by_topic(tps).items()
                            ],
                        )
                        for path, tps in by_broker[broker_id].items()
                    ]
                )
                response: AlterReplicaLogDirsResponse = await self.core.pool.send(broker_id, request)
                return _altered(broker_id, response)

            def fail(broker_id: int, error: KafkaError) -> dict[TopicPartitionReplica, AlteredLogDir]:
                return {replica: AlteredLogDir(error) for replica in replicas if replica.broker_id == broker_id}

            await self.core.metadata.update_brokers(self._timeout_ms(timeout_ms))
            results = await gather(by_broker, send, fail)
            return {replica: altered for one in results.values() for replica, altered in one.items()}

        return await self._call_for_items(paths, attempt, timeout_ms, "altering replica log directories", raise_errors)

    async def describe_replica_log_dirs(
        self, replicas: Iterable[tuple[str, int, int]], *, timeout_ms: float | None = None
    ) -> dict[TopicPartitionReplica, ReplicaLogDirs]:
        """Returns the log directories of replicas, and those to which they are being moved."""
        wanted = [_to_replica(replica) for replica in replicas]
        topics: dict[int, list[TopicPartition]] = {}
        for replica in wanted:
            topics.setdefault(replica.broker_id, []).append(TopicPartition(replica.topic, replica.partition))

        async def describe(broker_id: int) -> list[LogDirDescription]:
            return await self._describe_log_dirs(
                broker_id,
                [
                    DescribableLogDirTopic(topic=name, partitions=indexes)
                    for name, indexes in by_topic(topics[broker_id]).items()
                ],
            )

        async def attempt() -> dict[TopicPartitionReplica, ReplicaLogDirs]:
            await self.core.metadata.update_brokers(self._timeout_ms(timeout_ms))
            described = dict(zip(topics, await asyncio.gather(*map(describe, topics)), strict=True))
            return {replica: _replica_log_dirs(replica, described[replica.broker_id]) for replica in wanted}

        return await self._call_with_retries(attempt, timeout_ms, "describing replica log directories")


def _to_replica(replica: Any) -> TopicPartitionReplica:
    try:
        topic, partition, broker_id = replica
    except (TypeError, ValueError):
        raise TypeError(f"a replica must be (topic, partition, broker_id), not {replica!r}") from None
    if not isinstance(topic, str) or not isinstance(partition, int) or not isinstance(broker_id, int):
        raise TypeError(f"a replica must be (topic: str, partition: int, broker_id: int), not {replica!r}")
    return TopicPartitionReplica(topic, partition, broker_id)


def _altered(broker_id: int, response: AlterReplicaLogDirsResponse) -> dict[TopicPartitionReplica, AlteredLogDir]:
    return {
        TopicPartitionReplica(topic.topic_name, partition.partition_index, broker_id): AlteredLogDir(
            error_for(partition.error_code, about=f"Replica {topic.topic_name}-{partition.partition_index}-{broker_id}")
        )
        for topic in response.results
        for partition in topic.partitions
    }


def _replica_log_dirs(replica: TopicPartitionReplica, directories: list[LogDirDescription]) -> ReplicaLogDirs:
    tp = TopicPartition(replica.topic, replica.partition)
    current: tuple[str | None, int] = None, -1
    future: tuple[str | None, int] = None, -1
    for directory in directories:
        found = directory.replicas.get(tp)
        if found is not None and found.is_future:
            future = directory.path, found.offset_lag
        elif found is not None:
            current = directory.path, found.offset_lag
    return ReplicaLogDirs(*current, *future)
