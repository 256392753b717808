"""The partition state machine.

- New → Online initializes leader and ISR.
- Offline → Online and Online → Online run an election.
- Leader and ISR are written to the store by compare-and-set before any broker learns of them.

  NonExistent -> New -> Online <-> Offline -> NonExistent        (Online -> Online: new leader;
                  |                   ^                            Online -> Offline -> NonExistent: deletion)
                  +-------------------+
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from headrace.cluster.bulk_reads import give_way, read_many
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

_MAX_LOGGED_PARTITIONS = 5
"""How many failed elections a log line explains."""
_ATTEMPTS = 5
"""How often an election is attempted when the leader changes the ISR concurrently."""


class IllegalTransition(KafkaError):
    """A state change that the state machine does not allow: a bug in the controller, not an invalid request."""


class PartitionStateMachine:
    """The states of all partitions, and the elections that change them."""

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
        self._logged_failures: frozenset[TopicPartition] = frozenset()

    async def initialize_states(self) -> None:
        """Sets the states of all partitions after a controller failover, from the store's data."""
        context = self._context
        for count, tp in enumerate(context.partitions(), 1):
            await give_way(count)
            state = context.leaderships.get(tp)
            if state is None and tp not in context.damaged_partitions:
                context.partition_status[tp] = PartitionStatus.NEW
            elif state is not None and context.is_replica_online(state.leader, tp):
                context.partition_status[tp] = PartitionStatus.ONLINE
            else:
                context.partition_status[tp] = PartitionStatus.OFFLINE

    async def refresh(self, tps: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Reads leader and ISR of partitions again after somebody else may have changed them. Returns the partitions
        that have changed."""
        changed: list[TopicPartition] = []
        for tp, state in (await self._store.read_leaderships(tps)).items():
            if isinstance(state, DamagedNode):
                _logger.error("Partition %s: ignoring a change of its leader and ISR: %s", tp, state)
            elif state is not None and self._context.has_partition(tp) and state != self._context.leaderships.get(tp):
                self._context.leaderships[tp] = state
                changed.append(tp)
        return changed

    async def trigger_online_state_change(self, tps: Iterable[TopicPartition] | None = None) -> None:
        """Elects leaders for all New and Offline partitions, or only for the ones in `tps`."""
        leaderless = [
            tp
            for tp in (self._context.partition_status if tps is None else tps)
            if self._context.partition_status.get(tp) in (PartitionStatus.NEW, PartitionStatus.OFFLINE)
            and not self._context.is_queued_for_deletion(tp)
        ]
        await self.handle_state_changes(leaderless, PartitionStatus.ONLINE, Election.OFFLINE_PARTITION)

    async def handle_state_changes(
        self, tps: Sequence[TopicPartition], target: PartitionStatus, election: Election = Election.OFFLINE_PARTITION
    ) -> dict[TopicPartition, KafkaError]:
        """Changes the state of partitions and adds the resulting commands to the batch. Returns the errors of the
        partitions that could not be changed."""
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
        self._log_failures(failed, election)
        return failed

    def _log_failures(self, failed: Mapping[TopicPartition, KafkaError], election: Election) -> None:
        """Logs which partitions have no leader and why, unless they are the same as before."""
        if not failed or self._logged_failures == failed.keys():
            return
        self._logged_failures = frozenset(failed)
        reasons = "; ".join(str(error) for error in islice(failed.values(), _MAX_LOGGED_PARTITIONS))
        more = f" and {len(failed) - _MAX_LOGGED_PARTITIONS} more" if len(failed) > _MAX_LOGGED_PARTITIONS else ""
        _logger.warning("Election (%s) failed for %d partitions: %s%s", election.value, len(failed), reasons, more)

    def _log_leaders(self, states: Mapping[TopicPartition, Leadership], election: str) -> None:
        leaders = Counter(state.leader for state in states.values())
        counts = ", ".join(f"broker {broker_id}: {count}" for broker_id, count in sorted(leaders.items()))
        if states:
            _logger.info("%d partitions have new leaders (%s): %s", len(states), election, counts)

    def _check(self, tp: TopicPartition, target: PartitionStatus) -> None:
        current = self._context.partition_status.get(tp, PartitionStatus.NON_EXISTENT)
        if current not in target.predecessors:
            _logger.error("Partition %s: illegal state change from %s to %s refused", tp, current.value, target.value)
            raise IllegalTransition(f"Partition {tp} cannot change from {current.value} to {target.value}.")

    def _transition(self, tp: TopicPartition, target: PartitionStatus) -> None:
        """Changes the state of a partition. No other function does."""
        self._check(tp, target)
        current = self._context.partition_status.get(tp, PartitionStatus.NON_EXISTENT)
        if target is PartitionStatus.NON_EXISTENT:
            self._context.partition_status.pop(tp, None)
        else:
            self._context.partition_status[tp] = target
        _logger.debug("Partition %s: %s -> %s", tp, current.value, target.value)

    # ---- first leader

    async def _initialize(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, KafkaError]:
        """Writes the first leader and ISR: the first online replica leads, all online replicas are in the ISR."""
        failed: dict[TopicPartition, KafkaError] = {}
        states: dict[TopicPartition, Leadership] = {}
        for tp in tps:
            online = self._context.online_replicas(tp)
            isr = tuple(replica for replica in self._context.assignment(tp).replicas if replica in online)
            if isr:
                states[tp] = Leadership(isr[0], 0, isr, self._context.epoch)
            else:
                failed[tp] = EligibleLeadersNotAvailableError(
                    f"No replica of {tp} is online: assigned replicas {list(self._context.assignment(tp).replicas)}."
                )
        await self._store.create_leaderships(states)
        self._log_leaders(states, "first leader")
        for tp, state in states.items():
            self._context.leaderships[tp] = state
            self._transition(tp, PartitionStatus.ONLINE)
            self._batch.add_leader_and_isr(state.isr, tp, is_new=True)
        if failed:
            self._batch.add_update_metadata(failed)
        return failed

    # ---- elections

    async def _elect(self, tps: Sequence[TopicPartition], election: Election) -> dict[TopicPartition, KafkaError]:
        failed: dict[TopicPartition, KafkaError] = {}
        pending = list(tps)
        for attempt in range(_ATTEMPTS):
            elected: dict[TopicPartition, Leadership] = {}
            states = await self._states(pending, cached=attempt == 0 and not self._context.leaders_write_isr)
            unclean_topics = await self._unclean_topics(states, election)
            for count, (tp, state) in enumerate(states.items(), 1):
                try:
                    elected[tp] = self._elect_leader(tp, election, state, unclean=tp.topic in unclean_topics)
                except KafkaError as error:
                    failed[tp] = error
                await give_way(count)
            written = await self._store.update_leaderships(elected)
            self._log_leaders(written, f"{election.value} election")
            for count, (tp, new_state) in enumerate(written.items(), 1):
                self._context.leaderships[tp] = new_state
                self._transition(tp, PartitionStatus.ONLINE)
                self._batch.add_leader_and_isr(self._context.online_replicas(tp, include_shutting_down=True), tp)
                await give_way(count)
            pending = [tp for tp in elected if tp not in written]
            if not pending:
                return failed
        for tp in pending:
            failed[tp] = EligibleLeadersNotAvailableError(
                f"Leader and ISR of {tp} changed concurrently in {_ATTEMPTS} attempts."
            )
        return failed

    async def _states(
        self, tps: Sequence[TopicPartition], *, cached: bool
    ) -> dict[TopicPartition, Leadership | DamagedNode | None]:
        """Returns leaders and ISRs: with `cached` the known ones. They may be old, but then the compare-and-set fails.
        A partition that is not known, or whose node is unreadable, is read."""
        known = self._context.leaderships if cached else {}
        read = await self._store.read_leaderships([tp for tp in tps if tp not in known])
        return {tp: known[tp] if tp in known else read[tp] for tp in tps}

    async def _unclean_topics(
        self, states: Mapping[TopicPartition, Leadership | DamagedNode | None], election: Election
    ) -> set[str]:
        """Returns the topics that allow unclean leaders, of the partitions that need one."""
        if election is not Election.OFFLINE_PARTITION:
            return {tp.topic for tp in states} if election is Election.UNCLEAN else set()
        context = self._context
        topics = {
            tp.topic: None
            for tp, state in states.items()
            if isinstance(state, Leadership) and not context.online_replicas(tp) & set(state.isr)
        }
        return {topic for topic, is_allowed in (await read_many(topics, self._unclean_allowed)).items() if is_allowed}

    def _elect_leader(
        self, tp: TopicPartition, election: Election, state: Leadership | DamagedNode | None, *, unclean: bool
    ) -> Leadership:
        context = self._context
        if isinstance(state, DamagedNode):
            raise EligibleLeadersNotAvailableError(str(state))
        if state is None:
            raise UnknownTopicOrPartitionError(f"Partition {tp} has no leader and ISR in the store.")
        if state.controller_epoch > context.epoch:
            raise EligibleLeadersNotAvailableError(
                f"Partition {tp} was changed by a newer controller with epoch {state.controller_epoch}."
            )
        assignment = context.assignment(tp)
        online = context.online_replicas(tp)
        match election:
            case Election.OFFLINE_PARTITION | Election.UNCLEAN:
                elected = elect_for_offline(state, assignment, online, unclean=unclean)
                if elected is not None and elected.leader not in state.isr:
                    _logger.warning(
                        "Partition %s: unclean election of leader %d, which is not in the ISR %s; records may be lost",
                        tp,
                        elected.leader,
                        list(state.isr),
                    )
            case Election.REASSIGN_PARTITION:
                elected = elect_for_reassignment(state, assignment, online)
            case Election.PREFERRED_REPLICA:
                elected = elect_preferred(state, assignment, online)
                if elected is None:
                    raise PreferredLeaderNotAvailableError(
                        f"Preferred leader {assignment.replicas[0]} of {tp} is offline or not in the ISR."
                    )
            case Election.CONTROLLED_SHUTDOWN:
                online = context.online_replicas(tp, include_shutting_down=True)
                elected = elect_for_shutdown(state, assignment, online, context.shutting_down)
        if elected is None:
            raise EligibleLeadersNotAvailableError(
                f"No replica of {tp} is eligible as leader: ISR {list(state.isr)}, online replicas {sorted(online)}."
            )
        return replace(elected, controller_epoch=context.epoch)
