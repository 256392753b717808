"""The state machine of partitions: from New to Online a leader is chosen for the first time; from Offline or Online to
Online there is an election. Leader and ISR are written to the store by compare-and-set before anybody hears of them.

  NonExistent -> New -> Online <-> Offline -> NonExistent        (Online -> Online: another leader;
                  |                   ^                            Online -> Offline -> NonExistent: deletion)
                  +-------------------+
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from headrace.cluster.command_batch import CommandBatch
from headrace.cluster.controller_context import ControllerContext, PartitionStatus
from headrace.cluster.fenced_store import FencedStore
from headrace.cluster.leader_election import (
    Election,
    elect_for_offline,
    elect_for_reassignment,
    elect_for_shutdown,
    elect_preferred,
)
from headrace.cluster.znodes import DamagedNode, Leadership
from headrace.common.errors import (
    EligibleLeadersNotAvailableError,
    KafkaError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition

_logger = logging.getLogger(__name__)

_ATTEMPTS = 5
"""How often an election is tried again when the leader changes the ISR at the same time."""


class IllegalTransition(KafkaError):
    """A change of state that the state machine does not allow: an error in the controller, not in a request."""


class PartitionStateMachine:
    def __init__(
        self,
        context: ControllerContext,
        store: FencedStore,
        batch: CommandBatch,
        unclean_allowed: Callable[[str], Awaitable[bool]],
    ):
        self._context = context
        self._store = store
        self._batch = batch
        self._unclean_allowed = unclean_allowed

    def load(self) -> None:
        """Where partitions stand when a controller takes over, by what the store says."""
        context = self._context
        for tp in context.partitions():
            state = context.leaderships.get(tp)
            if state is None and tp not in context.unreadable:
                context.partition_status[tp] = PartitionStatus.NEW
            elif state is not None and context.is_online(state.leader, tp):
                context.partition_status[tp] = PartitionStatus.ONLINE
            else:
                context.partition_status[tp] = PartitionStatus.OFFLINE

    async def elect_missing(self, tps: Iterable[TopicPartition] | None = None) -> None:
        """Tries to find leaders for all partitions (or these) that have none."""
        waiting = [
            tp
            for tp in (self._context.partition_status if tps is None else tps)
            if self._context.partition_status.get(tp) in (PartitionStatus.NEW, PartitionStatus.OFFLINE)
            and not self._context.is_to_delete(tp)
        ]
        await self.move(waiting, PartitionStatus.ONLINE, Election.OFFLINE_PARTITION)

    async def move(
        self, tps: Sequence[TopicPartition], target: PartitionStatus, election: Election = Election.OFFLINE_PARTITION
    ) -> dict[TopicPartition, KafkaError]:
        """Moves partitions, as far as they can be, and adds to the batch what brokers must hear. Returns why the others
        could not be moved."""
        failed: dict[TopicPartition, KafkaError] = {}
        legal = []
        for tp in tps:
            try:
                self._check(tp, target)
            except IllegalTransition as error:
                failed[tp] = error
            else:
                legal.append(tp)
        if target is not PartitionStatus.ONLINE:
            for tp in legal:
                self._transition(tp, target)
            return failed
        new = [tp for tp in legal if self._context.partition_status[tp] is PartitionStatus.NEW]
        old = [tp for tp in legal if self._context.partition_status[tp] is not PartitionStatus.NEW]
        if new:
            failed |= await self._initialize(new)
        if old:
            failed |= await self._elect(old, election)
        if failed:
            first = next(iter(failed.values()))
            _logger.warning("no new leader for %d partitions, such as: %s", len(failed), first)
        return failed

    def _check(self, tp: TopicPartition, target: PartitionStatus) -> None:
        current = self._context.partition_status.get(tp, PartitionStatus.NON_EXISTENT)
        if current not in target.predecessors:
            _logger.error("refused to move partition %s from %s to %s", tp, current.value, target.value)
            raise IllegalTransition(f"partition {tp} cannot go from {current.value} to {target.value}")

    def _transition(self, tp: TopicPartition, target: PartitionStatus) -> None:
        """The only place where a partition changes its state."""
        self._check(tp, target)
        current = self._context.partition_status.get(tp, PartitionStatus.NON_EXISTENT)
        if target is PartitionStatus.NON_EXISTENT:
            self._context.partition_status.pop(tp, None)
        else:
            self._context.partition_status[tp] = target
        _logger.debug("partition %s: %s -> %s", tp, current.value, target.value)

    # ---- the first leader

    async def _initialize(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, KafkaError]:
        """The first replica that is up leads, all that are up are in the ISR."""
        failed: dict[TopicPartition, KafkaError] = {}
        states: dict[TopicPartition, Leadership] = {}
        for tp in tps:
            online = self._context.online_replicas(tp)
            isr = tuple(one for one in self._context.assignment(tp).replicas if one in online)
            if isr:
                states[tp] = Leadership(isr[0], 0, isr, self._context.epoch)
            else:
                failed[tp] = EligibleLeadersNotAvailableError(
                    f"none of the replicas {list(self._context.assignment(tp).replicas)} of {tp} is alive"
                )
        await self._store.create_leaderships(states)
        for tp, state in states.items():
            self._context.leaderships[tp] = state
            self._transition(tp, PartitionStatus.ONLINE)
            self._batch.leader_and_isr(state.isr, tp, is_new=True)
        if failed:
            self._batch.metadata(failed)
        return failed

    # ---- elections

    async def _elect(self, tps: Sequence[TopicPartition], election: Election) -> dict[TopicPartition, KafkaError]:
        failed: dict[TopicPartition, KafkaError] = {}
        waiting = list(tps)
        for _ in range(_ATTEMPTS):
            chosen: dict[TopicPartition, Leadership] = {}
            for tp in waiting:
                try:
                    chosen[tp] = await self._choose(tp, election)
                except KafkaError as error:
                    failed[tp] = error
            written = await self._store.update_leaderships(chosen)
            for tp, state in written.items():
                self._context.leaderships[tp] = state
                self._transition(tp, PartitionStatus.ONLINE)
                self._batch.leader_and_isr(self._context.online_replicas(tp, or_shutting_down=True), tp)
            waiting = [tp for tp in chosen if tp not in written]
            if not waiting:
                return failed
        for tp in waiting:
            failed[tp] = EligibleLeadersNotAvailableError(f"the state of {tp} keeps changing")
        return failed

    async def _choose(self, tp: TopicPartition, election: Election) -> Leadership:
        context = self._context
        try:
            state = await self._store.read_leadership(tp)
        except DamagedNode as error:
            raise EligibleLeadersNotAvailableError(str(error)) from None
        if state is None:
            raise UnknownTopicOrPartitionError(f"{tp} has no state in the store")
        if state.controller_epoch > context.epoch:
            raise EligibleLeadersNotAvailableError(f"{tp} belongs to a controller of epoch {state.controller_epoch}")
        assignment = context.assignment(tp)
        online = context.online_replicas(tp)
        match election:
            case Election.OFFLINE_PARTITION | Election.UNCLEAN:
                chosen = elect_for_offline(state, assignment, online, unclean=False)
                if chosen is None and (election is Election.UNCLEAN or await self._unclean_allowed(tp.topic)):
                    chosen = elect_for_offline(state, assignment, online, unclean=True)
                    if chosen is not None:
                        _logger.warning(
                            "unclean election: broker %d leads %s without having been in sync; records may be lost",
                            chosen.leader,
                            tp,
                        )
            case Election.REASSIGN_PARTITION:
                chosen = elect_for_reassignment(state, assignment, online)
            case Election.PREFERRED_REPLICA:
                chosen = elect_preferred(state, assignment, online)
                if chosen is None:
                    raise PreferredLeaderNotAvailableError(
                        f"the preferred leader of {tp}, broker {assignment.replicas[0]}, is not alive or not in sync"
                    )
            case Election.CONTROLLED_SHUTDOWN:
                online = context.online_replicas(tp, or_shutting_down=True)
                chosen = elect_for_shutdown(state, assignment, online, context.shutting_down)
        if chosen is None:
            raise EligibleLeadersNotAvailableError(
                f"no replica of {tp} can lead: in sync {list(state.isr)}, alive {sorted(online)}"
            )
        return Leadership(chosen.leader, chosen.leader_epoch, chosen.isr, context.epoch, state.partition_epoch)
