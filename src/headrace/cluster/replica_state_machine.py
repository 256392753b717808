"""The replica state machine: commands brokers to start, stop and delete replicas, and removes offline replicas from the
ISR.

  NonExistent -> New -> Online <-> Offline -> DeletionStarted -> DeletionSuccessful -> NonExistent
                                     ^  \\          |
                                     |   v         v
                                    DeletionIneligible
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.cluster.bulk_reads import give_way
from headrace.cluster.command_batch import CommandBatch
from headrace.cluster.commands import NO_LEADER
from headrace.cluster.controller_context import ControllerContext, Replica, ReplicaStatus
from headrace.cluster.fenced_store import FencedStore
from headrace.cluster.partition_state_machine import IllegalTransition
from headrace.cluster.znodes import Leadership
from headrace.common.types import TopicPartition

_logger = logging.getLogger(__name__)


class ReplicaStateMachine:
    """The states of all replicas, and the commands that follow from their changes."""

    def __init__(self, context: ControllerContext, store: FencedStore, batch: CommandBatch):
        self._context = context
        self._store = store
        self._batch = batch

    async def initialize_states(self) -> None:
        """Sets the states of all replicas after a controller failover. An offline replica of a topic that is queued for
        deletion is ineligible for deletion from the start."""
        context = self._context
        for count, replica in enumerate(context.replicas_of(context.partitions()), 1):
            await give_way(count)
            if context.is_replica_online(replica.broker_id, replica.tp):
                context.replica_status[replica] = ReplicaStatus.ONLINE
            elif context.is_queued_for_deletion(replica.tp):
                context.replica_status[replica] = ReplicaStatus.DELETION_INELIGIBLE
            else:
                context.replica_status[replica] = ReplicaStatus.OFFLINE

    async def handle_state_changes(self, replicas: Iterable[Replica], target: ReplicaStatus) -> list[Replica]:
        """Changes the state of replicas and adds the resulting commands to the batch. Returns the replicas whose change
        is illegal."""
        legal: list[Replica] = []
        refused: list[Replica] = []
        for count, replica in enumerate(replicas, 1):
            await give_way(count)
            try:
                self._check(replica, target)
            except IllegalTransition:
                refused.append(replica)
            else:
                legal.append(replica)
        if target is ReplicaStatus.OFFLINE:
            await self._stop(legal)
        for count, replica in enumerate(legal, 1):
            await give_way(count)
            if target is ReplicaStatus.ONLINE:
                self._start(replica)
            elif target is ReplicaStatus.NEW:
                # Of a new partition it gets its LeaderAndIsr with the first leader.
                if replica.tp in self._context.leaderships:
                    self._batch.add_leader_and_isr([replica.broker_id], replica.tp, is_new=True)
            elif target is ReplicaStatus.DELETION_STARTED:
                self._batch.add_stop_replica(replica.broker_id, replica.tp, delete=True)
            self._transition(replica, target)
        return refused

    def _check(self, replica: Replica, target: ReplicaStatus) -> None:
        current = self._context.replica_status.get(replica, ReplicaStatus.NON_EXISTENT)
        if current not in target.predecessors:
            _logger.error(
                "Replica %s: illegal state change from %s to %s refused", replica, current.value, target.value
            )
            raise IllegalTransition(f"Replica {replica} cannot change from {current.value} to {target.value}.")

    def _transition(self, replica: Replica, target: ReplicaStatus) -> None:
        """Changes the state of a replica, after `_check`. No other function does."""
        current = self._context.replica_status.get(replica, ReplicaStatus.NON_EXISTENT)
        if target is ReplicaStatus.NON_EXISTENT:
            self._context.replica_status.pop(replica, None)
        else:
            self._context.replica_status[replica] = target
        _logger.debug("Replica %s: %s -> %s", replica, current.value, target.value)

    def _start(self, replica: Replica) -> None:
        # A New replica has got its LeaderAndIsr; a replica of a deleted topic gets none.
        is_new = self._context.replica_status.get(replica) is ReplicaStatus.NEW
        if not is_new and not self._context.is_queued_for_deletion(replica.tp):
            self._batch.add_leader_and_isr([replica.broker_id], replica.tp)

    # ---- offline replicas

    async def _stop(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            self._batch.add_stop_replica(replica.broker_id, replica.tp, delete=False)
        offline: dict[TopicPartition, set[int]] = {}
        for tp, broker_id in replicas:
            if tp in self._context.leaderships and not self._context.is_queued_for_deletion(tp):
                offline.setdefault(tp, set()).add(broker_id)
        changed = await self._remove_from_isr(offline)
        for count, (tp, brokers) in enumerate(offline.items(), 1):
            await give_way(count)
            if tp in changed:
                online_brokers = self._context.online_replicas(tp, include_shutting_down=True) - brokers
                self._batch.add_leader_and_isr(online_brokers, tp)
            else:
                self._batch.add_update_metadata([tp])

    async def _remove_from_isr(self, offline: dict[TopicPartition, set[int]]) -> set[TopicPartition]:
        """Removes offline brokers from ISRs. Returns the changed partitions.

        An ISR that would become empty is not changed, because only its members have all committed records.
        """
        pending = dict(offline)
        changed: set[TopicPartition] = set()
        states: Mapping[TopicPartition, object]
        if self._context.leaders_write_isr:
            states = await self._store.read_leaderships(pending)
        else:
            # The first attempt uses the known states: the compare-and-set fails if they are not current.
            states = {tp: self._context.leaderships[tp] for tp in pending}
        while pending:
            updates: dict[TopicPartition, Leadership] = {}
            for count, (tp, state) in enumerate(states.items(), 1):
                await give_way(count)
                brokers = pending[tp]
                if not isinstance(state, Leadership) or not (brokers & {*state.isr, state.leader}):
                    continue
                isr = tuple(replica for replica in state.isr if replica not in brokers) or state.isr
                leader = NO_LEADER if state.leader in brokers else state.leader
                if (leader, isr) != (state.leader, state.isr):
                    updates[tp] = replace(state.new_leader(leader, isr), controller_epoch=self._context.epoch)
            written = await self._store.update_leaderships(updates)
            if written:
                leaderless = sum(state.leader == NO_LEADER for state in written.values())
                _logger.info(
                    "Removed offline replicas from the ISR of %d partitions; %d of them have no leader",
                    len(written),
                    leaderless,
                )
            self._context.leaderships.update(written)
            changed.update(written)
            pending = {tp: offline[tp] for tp in updates if tp not in written}
            states = await self._store.read_leaderships(pending)
        return changed
