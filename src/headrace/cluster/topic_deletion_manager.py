"""Deleting topics, step by step, each of which may be the last of a controller: the next one begins again from the mark
under /admin/delete_topics.

1. Brokers are told that the partitions are going (leader -2), and drop them from their metadata.
2. All replicas are told to stop, then to delete their logs. Those of a broker that is down cannot be: the topic is
   halted until the broker comes back.
3. When all have answered, the topic's nodes, its settings and the mark go in one step.
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
        """Takes topics that were marked."""
        self._context.to_delete.update(topics)
        await self.resume()

    async def resume(self, topics: Collection[str] = ()) -> None:
        """Goes on with what can be done. `topics` are those that a broker came back for."""
        self._context.deletion_halted.difference_update(topics)
        for topic in sorted(self._context.to_delete):
            await self._resume_one(topic)

    async def _resume_one(self, topic: str) -> None:
        context = self._context
        replicas = context.replicas_of(context.partitions_of(topic))
        status = {replica: context.replica_status.get(replica) for replica in replicas}
        if all(one is ReplicaStatus.DELETION_SUCCESSFUL for one in status.values()):
            await self._finish(topic)
        elif ReplicaStatus.DELETION_STARTED not in status.values() and topic not in context.deletion_halted:
            await self._begin(topic, [replica for replica in replicas if not _is_deleted(status[replica])])

    async def _begin(self, topic: str, replicas: list[Replica]) -> None:
        context = self._context
        if topic not in context.deletion_begun:
            _logger.info("deleting topic %s", topic)
            context.deletion_begun.add(topic)
            tps = [tp for tp in context.partitions_of(topic) if tp in context.partition_status]
            await self._partitions.move(tps, PartitionStatus.OFFLINE)
            await self._partitions.move(tps, PartitionStatus.NON_EXISTENT)
        self._batch.metadata(context.partitions_of(topic))
        ready = [one for one in replicas if context.is_online(one.broker_id, one.tp, or_shutting_down=True)]
        missing = _without(replicas, ready)
        await self._replicas.move(self._not_in(replicas, ReplicaStatus.OFFLINE), ReplicaStatus.OFFLINE)
        if missing:
            await self._replicas.move(missing, ReplicaStatus.DELETION_INELIGIBLE)
            self._halt(topic, missing)
        await self._replicas.move(ready, ReplicaStatus.DELETION_STARTED)

    def _not_in(self, replicas: Iterable[Replica], status: ReplicaStatus) -> list[Replica]:
        return [replica for replica in replicas if self._context.replica_status.get(replica) is not status]

    def _halt(self, topic: str, replicas: Collection[Replica]) -> None:
        if topic not in self._context.deletion_halted:
            shown = ", ".join(str(replica) for replica in sorted(replicas)[:5])
            _logger.info("the deletion of topic %s waits for %d replicas: %s", topic, len(replicas), shown)
            self._context.deletion_halted.add(topic)

    async def replicas_deleted(self, replicas: Iterable[Replica]) -> None:
        """A broker has answered that these are gone."""
        done = [one for one in replicas if self._context.replica_status.get(one) is ReplicaStatus.DELETION_STARTED]
        await self._replicas.move(done, ReplicaStatus.DELETION_SUCCESSFUL)

    async def replicas_failed(self, replicas: Iterable[Replica]) -> None:
        """A broker could not delete these, or went away before it answered."""
        by_topic: dict[str, list[Replica]] = {}
        for replica in replicas:
            status = self._context.replica_status.get(replica)
            if self._context.is_to_delete(replica.tp) and not _is_deleted(status):
                by_topic.setdefault(replica.tp.topic, []).append(replica)
        for topic, failed in by_topic.items():
            running = [one for one in failed if self._context.replica_status.get(one) is ReplicaStatus.DELETION_STARTED]
            others = _without(self._not_in(failed, ReplicaStatus.DELETION_INELIGIBLE), running)
            await self._replicas.move(self._not_in(others, ReplicaStatus.OFFLINE), ReplicaStatus.OFFLINE)
            await self._replicas.move([*running, *others], ReplicaStatus.DELETION_INELIGIBLE)
            self._halt(topic, failed)

    async def _finish(self, topic: str) -> None:
        context = self._context
        tps = context.partitions_of(topic)
        await self._replicas.move(context.replicas_of(tps), ReplicaStatus.NON_EXISTENT)
        standing = [tp for tp in tps if tp in context.partition_status]
        await self._partitions.move(standing, PartitionStatus.OFFLINE)
        await self._partitions.move(standing, PartitionStatus.NON_EXISTENT)
        operations: list[Operation] = await tree_deletions(self._store, znodes.topic_path(topic))
        # A topic of very many partitions does not go in one step; the topic's own node and the mark go last.
        while len(operations) > BATCH_OPERATIONS:
            await self._fenced.multi(operations[:BATCH_OPERATIONS])
            del operations[:BATCH_OPERATIONS]
        config_path = znodes.config_path(znodes.TOPIC_CONFIGS, topic)
        if await self._store.exists(config_path) is not None:
            operations.append(Delete(config_path))
        if await self._store.exists(znodes.delete_topic_path(topic)) is not None:
            operations.append(Delete(znodes.delete_topic_path(topic)))
        await self._fenced.multi(operations)
        context.forget_topic(topic)
        _logger.info("topic %s is deleted", topic)


def _without(replicas: Iterable[Replica], others: Iterable[Replica]) -> list[Replica]:
    left_out = set(others)
    return [replica for replica in replicas if replica not in left_out]


def _is_deleted(status: ReplicaStatus | None) -> bool:
    return status is ReplicaStatus.DELETION_SUCCESSFUL
