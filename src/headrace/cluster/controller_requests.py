"""Requests of brokers to the active controller: ElectLeaders, AlterPartition (ISR changes), ControlledShutdown."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from headrace.cluster.commands import NO_LEADER
from headrace.cluster.controller_context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from headrace.cluster.controller_term import ControllerTerm
from headrace.cluster.leader_election import Election
from headrace.cluster.znodes import Leadership
from headrace.common.errors import (
    ElectionNotNeededError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidTopicError,
    InvalidUpdateVersionError,
    KafkaError,
    StaleBrokerEpochError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A leader's proposed ISR. Valid only if leader epoch and partition epoch are current."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


async def elect_leaders(
    term: ControllerTerm, election: Election, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, KafkaError | None]:
    context = term.context
    candidates = list(context.partitions()) if partitions is None else list(dict.fromkeys(partitions))
    results: dict[TopicPartition, KafkaError | None] = {}
    needed: list[TopicPartition] = []
    for tp in candidates:
        error = _reason_for_no_election(context, election, tp)
        if error is None:
            needed.append(tp)
            results[tp] = None
        elif partitions is not None:
            results[tp] = error
    results |= await term.partitions.handle_state_changes(needed, PartitionStatus.ONLINE, election)
    return results


def _reason_for_no_election(context: ControllerContext, election: Election, tp: TopicPartition) -> KafkaError | None:
    if not context.has_partition(tp):
        return UnknownTopicOrPartitionError(f"Partition {tp} does not exist.")
    if context.is_queued_for_deletion(tp):
        return InvalidTopicError(f"Topic '{tp.topic}' is marked for deletion.")
    state = context.leaderships.get(tp)
    leader = NO_LEADER if state is None else state.leader
    if election is Election.PREFERRED_REPLICA:
        if leader == context.assignment(tp).replicas[0]:
            return ElectionNotNeededError(
                f"Leader election not needed: the preferred replica of {tp} is already the leader."
            )
    elif context.is_replica_online(leader, tp):
        return ElectionNotNeededError(f"Leader election not needed: {tp} has leader {leader}.")
    return None


async def alter_isr(
    term: ControllerTerm, broker_id: int, broker_epoch: int, changes: Mapping[TopicPartition, IsrChange]
) -> dict[TopicPartition, Leadership | KafkaError]:
    context = term.context
    _check_broker_epoch(context, broker_id, broker_epoch)
    results: dict[TopicPartition, Leadership | KafkaError] = {}
    updates: dict[TopicPartition, Leadership] = {}
    for tp, change in changes.items():
        state = context.leaderships.get(tp)
        try:
            if state is None or not context.has_partition(tp) or context.is_queued_for_deletion(tp):
                raise UnknownTopicOrPartitionError(f"Partition {tp} does not exist.")
            _check_isr_change(context, tp, broker_id, state, change)
        except KafkaError as error:
            results[tp] = error
            continue
        if set(change.isr) == set(state.isr):
            results[tp] = state
        else:
            updates[tp] = replace(state, isr=change.isr, controller_epoch=context.epoch)
    written = await term.fenced.update_leaderships(updates)
    for tp in updates:
        if tp in written:
            results[tp] = context.leaderships[tp] = written[tp]
        else:
            results[tp] = InvalidUpdateVersionError(f"Leader and ISR of {tp} were changed concurrently.")
    if written:
        term.batch.add_update_metadata(written)
    return results


def _check_broker_epoch(context: ControllerContext, broker_id: int, broker_epoch: int) -> None:
    broker = context.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        current = "none" if broker is None else broker.epoch
        raise StaleBrokerEpochError(
            f"Broker {broker_id} sent epoch {broker_epoch}, but its current epoch is {current}."
        )


def _check_isr_change(
    context: ControllerContext, tp: TopicPartition, broker_id: int, state: Leadership, change: IsrChange
) -> None:
    if change.leader_epoch < state.leader_epoch:
        raise FencedLeaderEpochError(
            f"Leader epoch {change.leader_epoch} of {tp} is old, the current one is {state.leader_epoch}."
        )
    if change.leader_epoch > state.leader_epoch:
        raise UnknownLeaderEpochError(
            f"Leader epoch {change.leader_epoch} of {tp} is unknown, the current one is {state.leader_epoch}."
        )
    if state.leader != broker_id:
        raise InvalidRequestError(f"Broker {broker_id} is not the leader of {tp}, broker {state.leader} is.")
    if set(change.isr) == set(state.isr):
        return  # a retry after a lost response
    if change.partition_epoch != state.partition_epoch:
        raise InvalidUpdateVersionError(
            f"Partition epoch {change.partition_epoch} of {tp} is not the current one, {state.partition_epoch}."
        )
    isr = set(change.isr)
    if broker_id not in isr or len(isr) != len(change.isr) or not isr <= set(context.assignment(tp).replicas):
        raise InvalidRequestError(
            f"Invalid ISR {list(change.isr)} for {tp} with leader {broker_id}: it must contain the leader, "
            f"no duplicates, and only assigned replicas."
        )
    offline = [
        replica for replica in change.isr if replica not in state.isr and not context.is_replica_online(replica, tp)
    ]
    if offline:
        raise IneligibleReplicaError(f"Brokers {offline} are offline and cannot join the ISR of {tp}.")


async def controlled_shutdown(term: ControllerTerm, broker_id: int, broker_epoch: int) -> set[TopicPartition]:
    context = term.context
    _check_broker_epoch(context, broker_id, broker_epoch)
    _logger.info("Controlled shutdown of broker %d: moving its leaderships to other brokers", broker_id)
    context.shutting_down.add(broker_id)
    replicated = [
        tp
        for tp, _ in context.replicas_on([broker_id])
        if len(context.assignment(tp).replicas) > 1
        and tp in context.leaderships
        and not context.is_queued_for_deletion(tp)
    ]
    led = [tp for tp in replicated if context.leaderships[tp].leader == broker_id]
    await term.partitions.handle_state_changes(led, PartitionStatus.ONLINE, Election.CONTROLLED_SHUTDOWN)
    followed = [tp for tp in replicated if context.leaderships[tp].leader != broker_id]
    await term.replicas.handle_state_changes([Replica(tp, broker_id) for tp in followed], ReplicaStatus.OFFLINE)
    return {tp for tp in replicated if context.leaderships[tp].leader == broker_id}
