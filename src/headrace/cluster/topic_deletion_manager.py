"""Deletes topics that are marked under /admin/delete_topics. After a controller failover the new controller resumes
from the mark.

1. UpdateMetadata with leader -2: brokers remove the partitions from their metadata.
2. StopReplica to all replicas, first without, then with deletion of the log. While a replica is offline, the topic is
   ineligible for deletion. The deletion resumes when the replica is online again.
3. When all replicas are deleted, one step removes the topic's nodes, its configs and the mark.
"""

import logging
from collections.abc import Collection, Iterable

from headrace.cluster import znodes
from headrace.cluster.command_batch import CommandBatch
from headrace.cluster.controller_context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from headrace.cluster.fenced_store import BATCH_OPERATIONS, FencedStore
from headrace.cluster.partition_state_machine import PartitionStateMachine
from headrace.cluster.replica_state_machine import ReplicaStateMachine
from headrace.cluster.store import CoordinationStore, Delete, Operation, tree_deletions

_logger = logging.getLogger(__name__)


class TopicDeletionManager:
    """The deletion of topics by the active controller."""

    def __init__(
        self,
        context: ControllerContext,
        store: CoordinationStore,
        fenced: FencedStore,
        batch: CommandBatch,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
    ):
        self._context = context
        self._store = store
        self._fenced = fenced
        self._batch = batch
        self._partitions = partitions
        self._replicas = replicas

    async def add(self, topics: Iterable[str]) -> None:
        """Queues topics for deletion and starts it."""
        self._context.topics_to_be_deleted.update(topics)
        await self.resume()

    async def resume(self, topics: Collection[str] = ()) -> None:
        """Continues all deletions that can proceed. `topics` become eligible again, as replicas came online."""
        self._context.topics_ineligible_for_deletion.difference_update(topics)
        for topic in sorted(self._context.topics_to_be_deleted):
            await self._resume_topic(topic)

    async def _resume_topic(self, topic: str) -> None:
        context = self._context
        replicas = context.replicas_of(context.partitions_of(topic))
        status = {replica: context.replica_status.get(replica) for replica in replicas}
        if all(map(_is_deleted, status.values())):
            await self._finish(topic)
        elif (
            ReplicaStatus.DELETION_STARTED not in status.values()
            and topic not in context.topics_ineligible_for_deletion
        ):
            await self._begin(topic, [replica for replica in replicas if not _is_deleted(status[replica])])

    async def _begin(self, topic: str, replicas: list[Replica]) -> None:
        context = self._context
        if topic not in context.topics_with_deletion_started:
            _logger.info("Deleting topic %s", topic)
            context.topics_with_deletion_started.add(topic)
            tps = [tp for tp in context.partitions_of(topic) if tp in context.partition_status]
            await self._partitions.handle_state_changes(tps, PartitionStatus.OFFLINE)
            await self._partitions.handle_state_changes(tps, PartitionStatus.NON_EXISTENT)
        self._batch.add_update_metadata(context.partitions_of(topic))
        online = [
            replica
            for replica in replicas
            if context.is_replica_online(replica.broker_id, replica.tp, include_shutting_down=True)
        ]
        offline = _without(replicas, online)
        await self._replicas.handle_state_changes(self._not_in(replicas, ReplicaStatus.OFFLINE), ReplicaStatus.OFFLINE)
        if offline:
            await self._replicas.handle_state_changes(offline, ReplicaStatus.DELETION_INELIGIBLE)
            self._mark_ineligible(topic, offline)
        await self._replicas.handle_state_changes(online, ReplicaStatus.DELETION_STARTED)

    def _not_in(self, replicas: Iterable[Replica], status: ReplicaStatus) -> list[Replica]:
        return [replica for replica in replicas if self._context.replica_status.get(replica) is not status]

    def _in_deletion(self, replicas: Iterable[Replica]) -> list[Replica]:
        return [
            replica
            for replica in replicas
            if self._context.replica_status.get(replica) is ReplicaStatus.DELETION_STARTED
        ]

    def _mark_ineligible(self, topic: str, replicas: Collection[Replica]) -> None:
        if topic not in self._context.topics_ineligible_for_deletion:
            names = ", ".join(str(replica) for replica in sorted(replicas)[:5])
            _logger.info("Deletion of topic %s waits for %d offline replicas: %s", topic, len(replicas), names)
            self._context.topics_ineligible_for_deletion.add(topic)

    async def on_replicas_deleted(self, replicas: Iterable[Replica]) -> None:
        """Handles a broker's response that it has deleted these replicas."""
        deleted = self._in_deletion(replicas)
        await self._replicas.handle_state_changes(deleted, ReplicaStatus.DELETION_SUCCESSFUL)

    async def on_replica_deletion_failure(self, replicas: Iterable[Replica]) -> None:
        """Handles replicas that a broker failed to delete, or whose broker failed before it responded."""
        by_topic: dict[str, list[Replica]] = {}
        for replica in replicas:
            status = self._context.replica_status.get(replica)
            if self._context.is_queued_for_deletion(replica.tp) and not _is_deleted(status):
                by_topic.setdefault(replica.tp.topic, []).append(replica)
        for topic, failed in by_topic.items():
            started = self._in_deletion(failed)
            not_started = _without(self._not_in(failed, ReplicaStatus.DELETION_INELIGIBLE), started)
            await self._replicas.handle_state_changes(
                self._not_in(not_started, ReplicaStatus.OFFLINE), ReplicaStatus.OFFLINE
            )
            await self._replicas.handle_state_changes([*started, *not_started], ReplicaStatus.DELETION_INELIGIBLE)
            self._mark_ineligible(topic, failed)

    async def _finish(self, topic: str) -> None:
        context = self._context
        tps = context.partitions_of(topic)
        await self._replicas.handle_state_changes(context.replicas_of(tps), ReplicaStatus.NON_EXISTENT)
        existing = [tp for tp in tps if tp in context.partition_status]
        await self._partitions.handle_state_changes(existing, PartitionStatus.OFFLINE)
        await self._partitions.handle_state_changes(existing, PartitionStatus.NON_EXISTENT)
        operations: list[Operation] = await tree_deletions(self._store, znodes.topic_path(topic))
        # A topic with many partitions needs several steps; the topic's own node and the mark are deleted last.
        while len(operations) > BATCH_OPERATIONS:
            await self._fenced.multi(operations[:BATCH_OPERATIONS])
            del operations[:BATCH_OPERATIONS]
        config_path = znodes.config_path(znodes.TOPIC_CONFIGS, topic)
        if await self._store.exists(config_path) is not None:
            operations.append(Delete(config_path))
        if await self._store.exists(znodes.delete_topic_path(topic)) is not None:
            operations.append(Delete(znodes.delete_topic_path(topic)))
        await self._fenced.multi(operations)
        context.remove_topic(topic)
        _logger.info("Deleted topic %s", topic)


def _without(replicas: Iterable[Replica], excluded_replicas: Iterable[Replica]) -> list[Replica]:
    excluded = set(excluded_replicas)
    return [replica for replica in replicas if replica not in excluded]


def _is_deleted(status: ReplicaStatus | None) -> bool:
    return status is ReplicaStatus.DELETION_SUCCESSFUL
