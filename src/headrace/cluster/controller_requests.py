"""What brokers ask of the active controller: elections, changes of ISRs, leave to shut down."""

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
    """What a leader asks for: another ISR, if leader and ISR are still as it knows them."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


async def elect_leaders(
    term: ControllerTerm, election: Election, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, KafkaError | None]:
    context = term.context
    wanted = list(context.partitions()) if partitions is None else list(dict.fromkeys(partitions))
    results: dict[TopicPartition, KafkaError | None] = {}
    needed: list[TopicPartition] = []
    for tp in wanted:
        error = _why_no_election(context, election, tp)
        if error is None:
            needed.append(tp)
            results[tp] = None
        elif partitions is not None:
            results[tp] = error
    results |= await term.partitions.move(needed, PartitionStatus.ONLINE, election)
    return results


def _why_no_election(context: ControllerContext, election: Election, tp: TopicPartition) -> KafkaError | None:
    if not context.has_partition(tp):
        return UnknownTopicOrPartitionError(f"there is no partition {tp}")
    if context.is_to_delete(tp):
        return InvalidTopicError(f"the topic of {tp} is being deleted")
    state = context.leaderships.get(tp)
    leader = NO_LEADER if state is None else state.leader
    if election is Election.PREFERRED_REPLICA:
        if leader == context.assignment(tp).replicas[0]:
            return ElectionNotNeededError(f"the preferred replica of {tp} leads already")
    elif context.is_online(leader, tp):
        return ElectionNotNeededError(f"{tp} has a leader")
    return None


async def alter_isr(
    term: ControllerTerm, broker_id: int, broker_epoch: int, changes: Mapping[TopicPartition, IsrChange]
) -> dict[TopicPartition, Leadership | KafkaError]:
    context = term.context
    _check_broker_epoch(context, broker_id, broker_epoch)
    results: dict[TopicPartition, Leadership | KafkaError] = {}
    wanted: dict[TopicPartition, Leadership] = {}
    for tp, change in changes.items():
        state = context.leaderships.get(tp)
        try:
            if state is None or not context.has_partition(tp) or context.is_to_delete(tp):
                raise UnknownTopicOrPartitionError(f"there is no partition {tp}")
            _check_isr_change(context, tp, broker_id, state, change)
        except KafkaError as error:
            results[tp] = error
            continue
        if set(change.isr) == set(state.isr):
            results[tp] = state
        else:
            wanted[tp] = replace(state, isr=change.isr, controller_epoch=context.epoch)
    written = await term.fenced.update_leaderships(wanted)
    for tp in wanted:
        if tp in written:
            results[tp] = context.leaderships[tp] = written[tp]
        else:
            results[tp] = InvalidUpdateVersionError(f"the state of {tp} was changed at the same time")
    if written:
        term.batch.metadata(written)
    return results


def _check_broker_epoch(context: ControllerContext, broker_id: int, broker_epoch: int) -> None:
    broker = context.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        known = "none" if broker is None else broker.epoch
        raise StaleBrokerEpochError(f"broker {broker_id} has epoch {known}, not {broker_epoch}")


def _check_isr_change(
    context: ControllerContext, tp: TopicPartition, broker_id: int, state: Leadership, change: IsrChange
) -> None:
    if change.leader_epoch < state.leader_epoch:
        raise FencedLeaderEpochError(f"{tp} has leader epoch {state.leader_epoch}, not {change.leader_epoch}")
    if change.leader_epoch > state.leader_epoch:
        raise UnknownLeaderEpochError(f"{tp} has leader epoch {state.leader_epoch}, not {change.leader_epoch}")
    if state.leader != broker_id:
        raise InvalidRequestError(f"broker {broker_id} does not lead {tp}, broker {state.leader} does")
    if set(change.isr) == set(state.isr):
        return  # asked for again after a reply that was lost
    if change.partition_epoch != state.partition_epoch:
        raise InvalidUpdateVersionError(
            f"{tp} has partition epoch {state.partition_epoch}, not {change.partition_epoch}"
        )
    isr = set(change.isr)
    if broker_id not in isr or len(isr) != len(change.isr) or not isr <= set(context.assignment(tp).replicas):
        raise InvalidRequestError(f"{list(change.isr)} cannot be the ISR of {tp}, which broker {broker_id} leads")
    offline = [one for one in change.isr if one not in state.isr and not context.is_online(one, tp)]
    if offline:
        raise IneligibleReplicaError(f"brokers {offline} are not alive and cannot join the ISR of {tp}")


async def shut_down(term: ControllerTerm, broker_id: int, broker_epoch: int) -> set[TopicPartition]:
    context = term.context
    _check_broker_epoch(context, broker_id, broker_epoch)
    _logger.info("broker %d is shutting down", broker_id)
    context.shutting_down.add(broker_id)
    replicated = [
        tp
        for tp, _ in context.replicas_on([broker_id])
        if len(context.assignment(tp).replicas) > 1 and tp in context.leaderships and not context.is_to_delete(tp)
    ]
    led = [tp for tp in replicated if context.leaderships[tp].leader == broker_id]
    await term.partitions.move(led, PartitionStatus.ONLINE, Election.CONTROLLED_SHUTDOWN)
    followed = [tp for tp in replicated if context.leaderships[tp].leader != broker_id]
    await term.replicas.move([Replica(tp, broker_id) for tp in followed], ReplicaStatus.OFFLINE)
    return {tp for tp in replicated if context.leaderships[tp].leader == broker_id}
