"""The state machine of replicas: tells brokers to start, stop and delete them, and takes those that go offline out of
the ISR.

  NonExistent -> New -> Online <-> Offline -> DeletionStarted -> DeletionSuccessful -> NonExistent
                                     ^  \\          |
                                     |   v         v
                                    DeletionIneligible
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from headrace.cluster.command_batch import CommandBatch
from headrace.cluster.commands import NO_LEADER
from headrace.cluster.controller_context import ControllerContext, Replica, ReplicaStatus
from headrace.cluster.fenced_store import FencedStore
from headrace.cluster.partition_state_machine import IllegalTransition
from headrace.cluster.znodes import Leadership
from headrace.common.types import TopicPartition

_logger = logging.getLogger(__name__)


class ReplicaStateMachine:
    def __init__(self, context: ControllerContext, store: FencedStore, batch: CommandBatch):
        self._context = context
        self._store = store
        self._batch = batch

    def load(self) -> None:
        """Where replicas stand when a controller takes over. Those of topics that are to be deleted, and are not at
        hand, are already known to be in the way."""
        context = self._context
        for replica in context.replicas_of(context.partitions()):
            if context.is_online(replica.broker_id, replica.tp):
                context.replica_status[replica] = ReplicaStatus.ONLINE
            elif context.is_to_delete(replica.tp):
                context.replica_status[replica] = ReplicaStatus.DELETION_INELIGIBLE
            else:
                context.replica_status[replica] = ReplicaStatus.OFFLINE

    async def move(self, replicas: Iterable[Replica], target: ReplicaStatus) -> list[Replica]:
        """Moves replicas and adds to the batch what brokers must hear. Returns those that could not be moved, as the
        state machine does not allow it."""
        legal: list[Replica] = []
        refused: list[Replica] = []
        for replica in replicas:
            try:
                self._check(replica, target)
            except IllegalTransition:
                refused.append(replica)
            else:
                legal.append(replica)
        if target is ReplicaStatus.OFFLINE:
            await self._stop(legal)
        for replica in legal:
            if target is ReplicaStatus.ONLINE:
                self._start(replica)
            elif target is ReplicaStatus.DELETION_STARTED:
                self._batch.stop_replica(replica.broker_id, replica.tp, delete=True)
            self._transition(replica, target)
        return refused

    def _check(self, replica: Replica, target: ReplicaStatus) -> None:
        current = self._context.replica_status.get(replica, ReplicaStatus.NON_EXISTENT)
        if current not in target.predecessors:
            _logger.error("refused to move replica %s from %s to %s", replica, current.value, target.value)
            raise IllegalTransition(f"replica {replica} cannot go from {current.value} to {target.value}")

    def _transition(self, replica: Replica, target: ReplicaStatus) -> None:
        """The only place where a replica changes its state."""
        self._check(replica, target)
        current = self._context.replica_status.get(replica, ReplicaStatus.NON_EXISTENT)
        if target is ReplicaStatus.NON_EXISTENT:
            self._context.replica_status.pop(replica, None)
        else:
            self._context.replica_status[replica] = target
        _logger.debug("replica %s: %s -> %s", replica, current.value, target.value)

    def _start(self, replica: Replica) -> None:
        # A new replica of a new partition hears of its leader when there is one; that of a topic to be deleted never.
        is_new = self._context.replica_status.get(replica) is ReplicaStatus.NEW
        if not is_new and not self._context.is_to_delete(replica.tp):
            self._batch.leader_and_isr([replica.broker_id], replica.tp)

    # ---- going offline

    async def _stop(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            self._batch.stop_replica(replica.broker_id, replica.tp, delete=False)
        leaving: dict[TopicPartition, set[int]] = {}
        for tp, broker_id in replicas:
            if tp in self._context.leaderships and not self._context.is_to_delete(tp):
                leaving.setdefault(tp, set()).add(broker_id)
        shrunk = await self._remove_from_isr(leaving)
        for tp, brokers in leaving.items():
            if tp in shrunk:
                others = self._context.online_replicas(tp, or_shutting_down=True) - brokers
                self._batch.leader_and_isr(others, tp)
            else:
                self._batch.metadata([tp])

    async def _remove_from_isr(self, leaving: dict[TopicPartition, set[int]]) -> set[TopicPartition]:
        """Writes the ISRs without the brokers that leave. An ISR that would be empty stays as it is: its members, and
        nobody else, have all the records."""
        waiting = dict(leaving)
        changed: set[TopicPartition] = set()
        while waiting:
            after: dict[TopicPartition, Leadership] = {}
            for tp, brokers in list(waiting.items()):
                state = await self._store.read_leadership(tp)
                del waiting[tp]
                if state is None or not (brokers & {*state.isr, state.leader}):
                    continue
                isr = tuple(one for one in state.isr if one not in brokers) or state.isr
                leader = NO_LEADER if state.leader in brokers else state.leader
                if (leader, isr) != (state.leader, state.isr):
                    after[tp] = replace(state.new_leader(leader, isr), controller_epoch=self._context.epoch)
            written = await self._store.update_leaderships(after)
            self._context.leaderships.update(written)
            changed.update(written)
            waiting = {tp: leaving[tp] for tp in after if tp not in written}
        return changed
