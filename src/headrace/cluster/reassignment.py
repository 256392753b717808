"""Partition reassignment: moves partitions to other brokers (KIP-455).

The assignment in /brokers/topics/<topic> is the state of a reassignment. It survives a controller failover:

    replicas   target replicas, then those of the others that the partition had before
    adding     the target replicas that are not there yet
    removing   the replicas that are not in the target

    A  start      write the assignment; new leader epoch, so that the leader learns of the new followers; brokers
                  create the new replicas, which fetch until the leader adds them to the ISR
    B  complete   once all target replicas are in the ISR: move the leadership to a target replica, if necessary;
                  remove the other replicas from the ISR; delete them; write the final assignment

Each step can be repeated. After a failover the new controller continues every reassignment from the stored assignment.
The removed replicas are deleted before the final assignment is written, so that no replica is forgotten.

A cancellation is a reassignment to the original replicas. Another target for a partition that is being reassigned
replaces the first one; its new replicas are deleted, unless the new target has them, too.

Older tools write targets to /admin/reassign_partitions. An entry is deleted when its reassignment ends.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.cluster import znodes
from headrace.cluster.bulk_reads import give_way, read_many
from headrace.cluster.command_batch import CommandBatch
from headrace.cluster.controller_context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from headrace.cluster.fenced_store import FencedStore
from headrace.cluster.leader_election import Election
from headrace.cluster.partition_state_machine import PartitionStateMachine
from headrace.cluster.replica_state_machine import ReplicaStateMachine
from headrace.cluster.store import BadVersion, CoordinationStore, Delete, NoNode, Set, Watch
from headrace.cluster.znodes import DamagedNode, ReplicaAssignment, TopicAssignment
from headrace.common.errors import (
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    KafkaError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition

_logger = logging.getLogger(__name__)

_TOPICS_PER_WRITE = 20
"""ZooKeeper accepts at most 1 MB in one step. A topic with 1,000 partitions has about 25 KB."""

Target = Sequence[int] | None
"""The new replicas of a partition; None cancels its reassignment."""


class PartitionReassignment:
    """The reassignments of the active controller."""

    def __init__(
        self,
        context: ControllerContext,
        store: CoordinationStore,
        fenced: FencedStore,
        batch: CommandBatch,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        watch: Watch,
    ):
        """`watch` is called when /admin/reassign_partitions changes."""
        self._context = context
        self._store = store
        self._fenced = fenced
        self._batch = batch
        self._partitions = partitions
        self._replicas = replicas
        self._watch = watch

    # ---- requests

    async def alter(
        self, targets: Mapping[TopicPartition, Target], *, allow_replication_factor_change: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Starts, replaces and cancels reassignments. Returns None or the error of each partition."""
        results: dict[TopicPartition, KafkaError | None] = {}
        assignments: dict[TopicPartition, ReplicaAssignment] = {}
        for count, (tp, target) in enumerate(targets.items(), 1):
            await give_way(count)
            try:
                assignment = self._new_assignment(tp, target)
                if target is not None:
                    self._check_live(assignment)
                    if not allow_replication_factor_change:
                        self._check_replication_factor(tp, target)
                assignments[tp] = assignment
                results[tp] = None
            except KafkaError as error:
                results[tp] = error
        # The latest request takes precedence over the older tool's.
        await self._remove_from_node(assignments)
        results.update(await self._apply(assignments))
        return results

    async def in_progress(self, tps: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, ReplicaAssignment]:
        """Returns the ongoing reassignments: all, or those of some partitions."""
        found: dict[TopicPartition, ReplicaAssignment] = {}
        for count, tp in enumerate(sorted(self._context.reassigned_partitions) if tps is None else tps, 1):
            await give_way(count)
            assignment = self._context.assignment(tp)
            if assignment.is_reassigned and not self._context.is_queued_for_deletion(tp):
                found[tp] = assignment
        return found

    def _new_assignment(self, tp: TopicPartition, target: Target) -> ReplicaAssignment:
        context = self._context
        if target is not None:
            _check_replicas(target)
        if not context.has_partition(tp) or context.is_queued_for_deletion(tp):
            raise UnknownTopicOrPartitionError("The partition does not exist.")
        current = context.assignment(tp)
        if target is None and not current.is_reassigned:
            raise NoReassignmentInProgressError(f"Partition {tp} is not being reassigned.")
        assignment = current.reassign_to(current.origin if target is None else target)
        state = context.leaderships.get(tp)
        if state is not None and not set(state.isr) & set(assignment.replicas):
            raise InvalidReplicationAssignmentError(
                f"Partition {tp} cannot be assigned to {list(assignment.replicas)}: none of them is in sync, and the "
                f"in-sync replicas {list(state.isr)} would be deleted."
            )
        return assignment

    def _check_live(self, assignment: ReplicaAssignment) -> None:
        live = self._context.live_broker_ids
        if not set(assignment.adding) <= set(live):
            raise InvalidReplicationAssignmentError(
                f"Replica assignment has brokers that are not alive. Replica list: {list(assignment.adding)}, live "
                f"broker list: {live}"
            )

    def _check_replication_factor(self, tp: TopicPartition, target: Sequence[int]) -> None:
        current = len(self._context.assignment(tp).target)
        if len(target) != current:
            raise InvalidReplicationFactorError(f"The replication factor is changed from {current} to {len(target)}")

    # ---- steps

    async def _apply(
        self, assignments: Mapping[TopicPartition, ReplicaAssignment]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Makes these the assignments, and starts or completes the reassignments. Returns the result of each."""
        context = self._context
        before = {tp: context.assignment(tp) for tp in assignments}
        # Replicas of an earlier target: they leave the ISR before they leave the assignment.
        narrowed = {
            tp: ReplicaAssignment(tuple(replica for replica in assignment.replicas if replica in before[tp].replicas))
            for tp, assignment in assignments.items()
            if not set(before[tp].replicas) <= set(assignment.replicas)
        }
        failed = await self._narrow(narrowed)
        accepted = {tp: assignment for tp, assignment in assignments.items() if tp not in failed}
        if narrowed:
            await self._batch.send()
        await self._write(accepted)
        context.update_assignments(accepted)
        context.reassigned_partitions.update(accepted)
        for tp, assignment in accepted.items():
            _logger.info(
                "Partition %s: reassigning replicas %s to %s",
                tp,
                list(before[tp].replicas),
                list(assignment.target),
            )
        await self.resume(accepted)
        return {tp: failed.get(tp) for tp in assignments}

    async def resume(self, tps: Iterable[TopicPartition]) -> None:
        """Continues reassignments: completes those whose target is in sync, and starts the others (again)."""
        complete, incomplete = self._divide(tps)
        await self._start(incomplete)
        await self._complete(complete)

    async def complete(self) -> None:
        """Completes the reassignments whose target replicas are all in sync."""
        complete, _ = self._divide(self._context.reassigned_partitions)
        await self._complete(complete)

    def _divide(self, tps: Iterable[TopicPartition]) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Returns the complete and the incomplete reassignments."""
        complete: list[TopicPartition] = []
        incomplete: list[TopicPartition] = []
        for tp in sorted(tps):
            if not self._context.is_queued_for_deletion(tp):
                (complete if self._is_complete(tp) else incomplete).append(tp)
        return complete, incomplete

    def _is_complete(self, tp: TopicPartition) -> bool:
        assignment = self._context.assignment(tp)
        if not assignment.is_reassigned:
            return True
        state = self._context.leaderships.get(tp)
        target = set(assignment.target)
        return state is not None and target <= set(state.isr) and bool(target & self._context.online_replicas(tp))

    async def _start(self, tps: Sequence[TopicPartition]) -> None:
        """Phase A."""
        context = self._context
        await self._increment_leader_epochs(tps)
        new = [
            Replica(tp, broker_id)
            for tp in tps
            for broker_id in context.assignment(tp).adding
            if Replica(tp, broker_id) not in context.replica_status
        ]
        await self._replicas.handle_state_changes(new, ReplicaStatus.NEW)
        # An older tool may choose a broker that is offline. It gets the replica when it starts.
        offline = [replica for replica in new if not context.is_replica_online(replica.broker_id, replica.tp)]
        await self._replicas.handle_state_changes(offline, ReplicaStatus.OFFLINE)
        # A partition that never had a leader may get its first one.
        await self._partitions.trigger_online_state_change(
            [tp for tp in tps if context.partition_status.get(tp) is PartitionStatus.NEW]
        )

    async def _complete(self, tps: Sequence[TopicPartition]) -> None:
        """Phase B."""
        if not tps:
            return
        context = self._context
        before = {tp: context.assignment(tp) for tp in tps}
        final = {tp: ReplicaAssignment(assignment.target) for tp, assignment in before.items()}
        online = [
            Replica(tp, broker_id)
            for tp, assignment in final.items()
            for broker_id in assignment.replicas
            if context.is_replica_online(broker_id, tp, include_shutting_down=True)
        ]
        await self._replicas.handle_state_changes(online, ReplicaStatus.ONLINE)
        epochs = {tp: state.leader_epoch for tp in tps if (state := context.leaderships.get(tp)) is not None}
        failed = await self._narrow(final)
        done = [tp for tp in tps if tp not in failed]
        # Brokers learn the new assignment only with a new leader epoch.
        await self._increment_leader_epochs(
            [tp for tp in done if tp in epochs and context.leaderships[tp].leader_epoch == epochs[tp]]
        )
        self._batch.add_update_metadata(done)
        await self._batch.send()
        await self._write({tp: final[tp] for tp in done})
        context.reassigned_partitions.difference_update(done)
        await self._remove_from_node(done)
        for tp in done:
            if before[tp].is_reassigned:
                _logger.info("Partition %s: reassignment to %s is complete", tp, list(final[tp].replicas))

    async def _narrow(
        self, assignments: Mapping[TopicPartition, ReplicaAssignment]
    ) -> dict[TopicPartition, KafkaError]:
        """Removes replicas: moves the leadership away from them, takes them out of the ISR, and deletes them.

        Changes the assignment only in memory. Returns the partitions that have no eligible leader; they stay as they
        are.
        """
        context = self._context
        before = {tp: context.assignment(tp) for tp in assignments}
        context.update_assignments(assignments)
        led_elsewhere = [
            tp
            for tp, assignment in assignments.items()
            if tp in context.leaderships and context.leaderships[tp].leader not in assignment.replicas
        ]
        failed = await self._partitions.handle_state_changes(
            led_elsewhere, PartitionStatus.ONLINE, Election.REASSIGN_PARTITION
        )
        context.update_assignments({tp: before[tp] for tp in failed})
        removed = [
            Replica(tp, broker_id)
            for tp, assignment in before.items()
            if tp not in failed
            for broker_id in assignment.replicas
            if broker_id not in assignments[tp].replicas
        ]
        await self._delete(removed)
        return failed

    async def _delete(self, replicas: Iterable[Replica]) -> None:
        """Removes replicas from the ISR and tells their brokers to delete them. Does not wait for the brokers."""
        context = self._context
        existing = [replica for replica in replicas if replica in context.replica_status]
        await self._replicas.handle_state_changes(existing, ReplicaStatus.OFFLINE)
        for status in (
            ReplicaStatus.DELETION_STARTED,
            ReplicaStatus.DELETION_SUCCESSFUL,
            ReplicaStatus.NON_EXISTENT,
        ):
            await self._replicas.handle_state_changes(existing, status)
        for tp, broker_id in existing:
            context.replicas_on_offline_dirs.get(broker_id, set()).discard(tp)

    async def _increment_leader_epochs(self, tps: Iterable[TopicPartition]) -> None:
        """Sends leader, ISR and assignment to the replicas with a new leader epoch. The leader stays."""
        context = self._context
        pending = [tp for tp in tps if tp in context.leaderships]
        while pending:
            states = {tp: context.leaderships[tp] for tp in pending}
            written = await self._fenced.update_leaderships(
                {
                    tp: replace(state.new_leader(state.leader), controller_epoch=context.epoch)
                    for tp, state in states.items()
                }
            )
            context.leaderships.update(written)
            for tp in written:
                self._batch.add_leader_and_isr(context.online_replicas(tp, include_shutting_down=True), tp)
            pending = await self._partitions.refresh([tp for tp in pending if tp not in written])

    # ---- the assignments in the store

    async def _write(self, assignments: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        """Writes assignments. Keeps everything else that others may have written, such as new partitions."""
        by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
        for tp, assignment in assignments.items():
            by_topic.setdefault(tp.topic, {})[tp.partition] = assignment
        topics = list(by_topic)
        for first in range(0, len(topics), _TOPICS_PER_WRITE):
            while not await self._try_to_write(
                {topic: by_topic[topic] for topic in topics[first:][:_TOPICS_PER_WRITE]}
            ):
                _logger.info("Topics were changed during a reassignment, writing their assignments again")

    async def _try_to_write(self, by_topic: Mapping[str, Mapping[int, ReplicaAssignment]]) -> bool:
        async def read(topic: str) -> tuple[TopicAssignment, int] | None:
            try:
                data, stat = await self._store.get(znodes.topic_path(topic))
            except NoNode:
                return None  # removed by another program: nothing to do
            return znodes.decode_topic(topic, data), stat.version

        operations = []
        for topic, found in (await read_many(by_topic, read)).items():
            if found is None:
                continue
            stored, version = found
            changed = {index: new for index, new in by_topic[topic].items() if stored.partitions.get(index, new) != new}
            if changed:
                data = znodes.encode_topic(replace(stored, partitions={**stored.partitions, **changed}))
                operations.append(Set(znodes.topic_path(topic), data, version))
        try:
            if operations:
                await self._fenced.multi(operations)
        except (BadVersion, NoNode):
            return False
        return True

    # ---- requests of older tools

    async def process_node(self) -> set[TopicPartition]:
        """Starts the reassignments in /admin/reassign_partitions. Returns their partitions."""
        requested = await self._read_node()
        assignments: dict[TopicPartition, ReplicaAssignment] = {}
        refused: set[TopicPartition] = set()
        for tp, target in requested.items():
            current = self._context.assignment(tp)
            if current.is_reassigned and current.target == target and tp in self._context.reassigned_partitions:
                continue  # it was processed before
            try:
                assignments[tp] = self._new_assignment(tp, target)
            except KafkaError as error:
                _logger.error("Reassignment of %s to %s in %s: %s", tp, target, znodes.REASSIGN_PARTITIONS, error)
                refused.add(tp)
        for tp, failure in (await self._apply(assignments)).items():
            if failure is not None:
                _logger.error("Reassignment of %s in %s: %s", tp, znodes.REASSIGN_PARTITIONS, failure)
                refused.add(tp)
        await self._remove_from_node(refused)
        return assignments.keys() - refused

    async def _read_node(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Returns the requested targets, and sets a watch."""
        if await self._store.exists(znodes.REASSIGN_PARTITIONS, self._watch) is None:
            return {}
        try:
            data, _ = await self._store.get(znodes.REASSIGN_PARTITIONS)
            return znodes.decode_reassignments(data)
        except NoNode:
            return {}
        except DamagedNode as error:
            _logger.error("%s", error)
            await self._fenced.delete_existing([znodes.REASSIGN_PARTITIONS])
            return {}

    async def _remove_from_node(self, tps: Collection[TopicPartition]) -> None:
        """Deletes entries of /admin/reassign_partitions, and the node with the last one. Also deletes the entries of
        deleted topics."""
        context = self._context
        while tps:
            try:
                data, stat = await self._store.get(znodes.REASSIGN_PARTITIONS)
                requested = znodes.decode_reassignments(data)
                remaining = {
                    tp: target
                    for tp, target in requested.items()
                    if tp not in tps and context.has_partition(tp) and not context.is_queued_for_deletion(tp)
                }
                if remaining == requested:
                    return
                path, version = znodes.REASSIGN_PARTITIONS, stat.version
                await self._fenced.multi(
                    [Set(path, znodes.encode_reassignments(remaining), version) if remaining else Delete(path, version)]
                )
                return
            except BadVersion:
                continue
            except (NoNode, DamagedNode):
                return


def _check_replicas(target: Sequence[int]) -> None:
    if not target:
        raise InvalidReplicationAssignmentError("Empty replica list specified in partition reassignment.")
    if len(set(target)) != len(target):
        raise InvalidReplicationAssignmentError(
            f"Duplicate replica ids in partition reassignment replica list: {list(target)}"
        )
    if min(target) < 0:
        raise InvalidReplicationAssignmentError(f"Invalid broker id in replica list: {list(target)}")
